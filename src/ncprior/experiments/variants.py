"""The methods that `evaluate` compares: variants of the estimator by name, beside the baselines."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ncprior.core.methods import STYLES
from ncprior.core.registry import Style, style_of
from ncprior.experiments.baselines import BASELINES, Baseline
from ncprior.tables.estimator import NCPRegressor
from ncprior.tables.options import FitOptions

Arguments = dict[str, Any]
"""Arguments of `NCPRegressor` by name."""


class Variant(NamedTuple):
    """A variant of the estimator: how it is written and drawn, and its arguments of `NCPRegressor`."""

    style: Style
    arguments: Arguments


ABLATIONS = {
    "no-ncp": Variant(Style("without NCP", "#D55E00", "--", "v"), {"gamma": 0.0}),
    "one-member": Variant(Style("one member", "#E69F00", "-.", "D"), {"members": 1}),
    "no-early-stopping": Variant(Style("without early stopping", "#009E73", ":", "^"), {"early_stopping": False}),
    "constant-gamma": Variant(Style("constant gamma", "#CC79A7", "--", "P"), {"gamma_per_label": False, "gamma": 0.1}),
}
"""The default estimator with one of its parts left out or changed."""
VARIANTS = {
    "ncp": Variant(Style("NCP (default)", "#0072B2", "-", "o"), {}),
    **{name: Variant(style, {"method": name}) for name, style in STYLES.items()},
    "bbb+ncp": Variant(STYLES["bbb+ncp"]._replace(dash=":"), {"method": "bbb+ncp"}),  # the solid line is that of ncp
    **ABLATIONS,
}
"""Every network by name; ``ncp`` is the default estimator."""
METHODS: dict[str, Variant | Baseline] = {**VARIANTS, **BASELINES}
"""Every method by name."""
GROUPS = {"baselines": tuple(BASELINES), "ablations": ("ncp", *ABLATIONS)}
"""Names for several methods."""
DEFAULT_METHODS = ("ncp", *BASELINES)
"""What is evaluated if no methods are named."""


def method_style(name: str) -> Style:
    """How a method is written and drawn; an unknown one is grey."""
    return style_of(name, METHODS)


def expand(names: Sequence[str]) -> tuple[str, ...]:
    """Names of methods, each once, with groups such as ``ablations`` replaced by their methods.

    >>> expand(["baselines", "ncp", "linear"])
    ('mean', 'linear', 'boosting', 'forest', 'ncp')
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
