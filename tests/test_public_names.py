"""What `import ncprior` offers, and what it costs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ncprior
from ncprior.core.settings import PAPER, REFERENCE
from ncprior.tables.estimator import NCPRegressor


@pytest.mark.parametrize("name", ncprior.__all__)
def test_every_public_name_resolves(name):
    assert getattr(ncprior, name) is not None
    assert name in dir(ncprior)


def test_type_checkers_see_the_public_names():
    """Names are imported lazily, and once more where only type checkers look."""
    (checked,) = [one for one in ast.parse(Path(ncprior.__file__).read_text()).body if isinstance(one, ast.If)]
    imported = [alias.name for one in checked.body if isinstance(one, ast.ImportFrom) for alias in one.names]
    assigned = [one.targets[0].id for one in checked.body if isinstance(one, ast.Assign)]
    assert {*imported, *assigned, "__version__"} - {"PRESETS"} == set(ncprior.__all__)


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
