"""The methods that `evaluate` compares: variants of the estimator by name, beside the baselines."""

import importlib.util
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ncprior.core.methods import STYLES
from ncprior.core.registry import Style, style_of
from ncprior.errors import UserError
from ncprior.experiments import regressors
from ncprior.experiments.baselines import BASELINES, CONFORMAL, Baseline
from ncprior.tables.estimator import NCPRegressor
from ncprior.tables.options import Arguments, FitOptions


class Variant(NamedTuple):
    """A variant of the estimator: how it is written and drawn, and its arguments of `NCPRegressor`."""

    style: Style
    arguments: Arguments


ABLATIONS = {
    "no-ncp": Variant(Style("without NCP", "#D55E00", "--", "v"), {"gamma": 0.0}),
    "one-member": Variant(Style("one member", "#E69F00", "-.", "D"), {"members": 1}),
    "no-early-stopping": Variant(Style("without early stopping", "#009E73", ":", "^"), {"early_stopping": False}),
}
"""The default estimator with one of its parts left out or changed."""
VARIANTS = {
    "ncp": Variant(Style("NCP (default)", "#0072B2", "-", "o"), {}),
    **{name: Variant(style, {"method": name}) for name, style in STYLES.items()},
    "bbb+ncp": Variant(STYLES["bbb+ncp"]._replace(dash=":"), {"method": "bbb+ncp"}),  # the solid line is that of ncp
    **ABLATIONS,
}
"""Every network by name; ``ncp`` is the default estimator."""
METHODS: dict[str, Variant | Baseline] = {**VARIANTS, **BASELINES, **CONFORMAL}
"""Every method by name. Regressors of other packages are named by their import path."""
GROUPS = {"baselines": tuple(BASELINES), "conformal": tuple(CONFORMAL), "ablations": ("ncp", *ABLATIONS)}
"""Names for several methods."""
DEFAULT_METHODS = ("ncp", *BASELINES)
"""What is evaluated if no methods are named."""


_COLOURS = ("#332288", "#44AA99", "#CC6677", "#6699CC", "#AA7744", "#777711")
_MARKERS = ("h", "X", "d", "*", "p", "8")


def method_style(name: str) -> Style:
    """How a method is written and drawn; a regressor by the name of its class, an unknown method in grey.

    >>> method_style("sklearn.linear_model.BayesianRidge").title
    'BayesianRidge'
    """
    if name in METHODS or not regressors.is_path(name):
        return style_of(name, METHODS)
    place = zlib.crc32(name.encode())
    return Style(name.rpartition(".")[2], _COLOURS[place % len(_COLOURS)], ":", _MARKERS[place // 7 % len(_MARKERS)])


def check_method(name: str) -> None:
    """Raise if there is no method of this name, or what it needs is not installed."""
    if regressors.is_path(name):
        regressors.load(name)
    elif name not in METHODS:
        choices = ", ".join([*METHODS, *GROUPS])
        raise UserError(f"unknown method {name!r}: choose from {choices}, or give the import path of a regressor")
    elif name in CONFORMAL and importlib.util.find_spec(CONFORMAL[name].needs) is None:
        raise UserError(f"{name} needs {CONFORMAL[name].needs}; pip install 'ncprior[conformal]'")


def subject(methods: Iterable[str]) -> str:
    """The method that results are about: the first that is a network, or else the first."""
    names = list(methods)
    return next((name for name in names if name in VARIANTS), names[0])


def expand(names: Sequence[str]) -> tuple[str, ...]:
    """Names of methods, each once, with groups such as ``ablations`` replaced by their methods.

    >>> expand(["baselines", "ncp", "linear"])
    ('mean', 'linear', 'boosting', 'forest', 'neighbours', 'gp', 'ncp')
    """
    return tuple(dict.fromkeys(one for name in names for one in GROUPS.get(name, (name,))))


def network(arguments: Arguments, method: str) -> NCPRegressor:
    """The estimator of a variant.

    Args:
        arguments: Arguments of `NCPRegressor` for all variants. Those that have no effect on this one are left out.
        method: The name of the variant.
    """
    model = NCPRegressor(**{**arguments, **VARIANTS[method].arguments})
    idle = FitOptions.of(model, check_effects=False).without_effect()
    return model.set_params(**{name: NCPRegressor().get_params()[name] for name in idle})
