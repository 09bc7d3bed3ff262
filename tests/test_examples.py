"""The documented examples run, and show what they say."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from ncprior.core.acquisition import SCORES, information_gain
from ncprior.tables.batches import RULES, acquisitions, lcmd

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_ncp_for_a_network_of_ones_own():
    spec = importlib.util.spec_from_file_location("own_network", EXAMPLES / "own_network.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    without, with_ncp = (example.uncertainty_off_the_data(gamma, epochs=200) for gamma in (0.0, 1.0))
    assert with_ncp > 3 * without


@pytest.mark.parametrize("page", ["README.md", "docs/tour.md"])
def test_the_code_in_the_readme_and_the_tour_runs(page):
    text = (EXAMPLES.parent / page).read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, {})


@pytest.mark.usefixtures("short_search", "long_training")
def test_the_code_in_the_guide_to_tables_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (EXAMPLES.parent / "docs" / "guides" / "tables.md").read_text()
    block, registration = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    rows = np.random.default_rng(0).normal(size=(100, 2))
    names = {"X": rows, "y": rows[:, 0], "X_new": rows, "y_new": rows[:, 1], "X_pool": rows}
    exec(block, names)
    assert (tmp_path / "model.ncp").exists()
    assert names["functions"].shape == (20, 100)
    monkeypatch.setitem(RULES, "mine", lcmd)  # removed again after the test, like what takes its place
    monkeypatch.setitem(SCORES, "high_std", information_gain)
    exec(registration, names | {"my_rule": lcmd})
    assert acquisitions()["mine"].title == "my rule"
    assert acquisitions()["high_std"].function is not information_gain
