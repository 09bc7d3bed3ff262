"""What `import ncprior` offers, and what it costs."""

import subprocess
import sys

import pytest

import ncprior
from ncprior.core.settings import PAPER, REFERENCE
from ncprior.tables.estimator import NCPRegressor


@pytest.mark.parametrize("name", ncprior.__all__)
def test_every_public_name_resolves(name):
    assert getattr(ncprior, name) is not None
    assert name in dir(ncprior)


def test_lazy_names_are_the_public_names():
    assert {*ncprior._PLACES, "__version__"} == set(ncprior.__all__)


def test_public_names_are_those_of_the_modules():
    assert ncprior.NCPRegressor is NCPRegressor
    assert ncprior.load == NCPRegressor.load
    assert ncprior.presets == {"paper": PAPER, "reference": REFERENCE}
    assert "bbb+ncp" in ncprior.methods(ncprior.presets["reference"])


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'NCPClassifier'"):
        ncprior.NCPClassifier  # noqa: B018


def test_importing_the_package_imports_no_jax():
    code = "import sys, ncprior; print(sorted({'jax', 'numpy', 'sklearn', 'pyarrow'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
