"""The documented examples run, and show what they say."""

import doctest
import importlib.util
import re
from pathlib import Path

import pytest

import ncprior.distributions
import ncprior.input_priors
import ncprior.prediction

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_ncp_for_a_network_of_ones_own():
    spec = importlib.util.spec_from_file_location("own_network", EXAMPLES / "own_network.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    without, with_ncp = example.uncertainty_off_the_data(0.0), example.uncertainty_off_the_data(1.0)
    assert with_ncp > 3 * without


@pytest.mark.parametrize("module", [ncprior.distributions, ncprior.input_priors, ncprior.prediction])
def test_docstrings(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_the_code_in_the_readme_runs():
    text = (EXAMPLES.parent / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, {})
