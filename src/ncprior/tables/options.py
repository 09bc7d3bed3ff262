"""What an estimator is asked for: its arguments and settings, checked, as the settings of a method.

What has no effect with the method, or beside another argument, is refused, with the reason.
"""

import dataclasses
import inspect
import math
import numbers
from typing import Any

import numpy as np

from ncprior.core.methods import INPUT_NOISE, TITLES, Method
from ncprior.core.settings import Settings
from ncprior.errors import UserError, check_limits
from ncprior.tables.preset import TABLES
from ncprior.tables.recipe import room

_TRAINING = {"learning_rate", "batch_size", "clip", "epsilon_hat", "remainder"}
_NETWORK = {"trunk", "hidden", "leaky_slope", "noise_floor"}
_BELIEF = {"belief_std", "bias_belief", "expectation", "weight_prior_std"}
_NOISE = {"input_noise", "input_noise_std"}
_OUTPUT_PRIOR = {"output_std", "output_centre"}
_NCP = {"gamma", "gamma_per_label", "ncp_away", "direction"} | _NOISE | _OUTPUT_PRIOR
_MEAN_NCP = {"ncp_weight_kl", "noise_tie", "noise_prior_std"} | _NCP

USED: dict[str, set[str]] = {
    "det": _TRAINING | _NETWORK,
    "det+ncp": _TRAINING | _NETWORK | _NCP,
    "bbb": _TRAINING | _NETWORK | _BELIEF | {"weight_kl"},
    "bbb+ncp": _TRAINING | _NETWORK | _BELIEF | _MEAN_NCP,
    "odc+ncp": _TRAINING | _NETWORK | _NOISE | _OUTPUT_PRIOR | {"odc_noised_nll", "odc_prediction"},
    "deep+ncp": _TRAINING | _NETWORK | _BELIEF | _MEAN_NCP,
}
"""Settings that change what the estimator learns or predicts, for each method; and whether it takes a trunk."""

_SETTING_OF = {
    "hidden": "hidden",
    "learning_rate": "learning_rate",
    "batch_size": "batch_size",
    "gamma": "gamma",
    "gamma_per_label": "gamma_per_label",
    "output_scale": "output_std",
    "input_prior": "input_noise",
    "input_scale": "input_noise_std",
    "flip": "input_noise_std",
    "trunk": "trunk",
}
"""Arguments of the estimator, and the settings that have an effect where these have one."""

_INSTEAD = {
    "input_noise": "give the argument input_prior",
    "input_noise_std": "give the argument input_scale",
    "temperature": "give it to suggest(..., temperature=...)",
    "gain_exponent": "exponent e at temperature t is suggest(..., temperature=t / e)",
    "det_score": "give suggest(..., acquisition=...) the name of a score",
    "draw": "suggest(..., temperature=...) draws rows without replacement, and takes the best at temperature 0",
}
"""Settings of the experiments that an estimator has in another place."""


def settings_of(model: Any, rows: int, *, effects: bool = True) -> Settings:
    """The settings that an estimator's arguments stand for, given the number of rows; see `check_arguments`."""
    check_arguments(model, effects=effects)
    given = {name: _plain(value) for name, value in (model.settings or {}).items()}
    # Mini batches grow with the table, from 64 rows at 10 thousand to 512 at 100 thousand.
    size = model.batch_size or int(min(512, max(64, 2 ** round(math.log2(max(1, rows / 150))))))
    changes = {
        "hidden": _plain(model.hidden),
        "learning_rate": _plain(model.learning_rate),
        "batch_size": min(size, room(rows)),  # a table may have far fewer rows than a batch
        "gamma": _plain(model.gamma),
        "noise_tie": given.get("gamma", _plain(model.gamma)),
        "gamma_per_label": model.gamma_per_label,
        "output_std": _plain(model.output_scale),
        **given,
    }
    settings = dataclasses.replace(TABLES, **changes)
    # Programs have room for a whole batch: rows that a table does not have would only take memory.
    settings = dataclasses.replace(settings, batch_size=min(settings.batch_size, room(rows)))
    if model.epochs is not None and model.epochs * rows >= settings.batch_size * 2**31:
        what = f"{model.epochs:,} epochs of {rows:,} rows are more steps than 32 bits can count"
        raise UserError(f"{what}; lower epochs or raise batch_size")
    return settings


def check_arguments(model: Any, *, effects: bool = True) -> None:
    """Raise if an argument of an estimator has no meaning, or (with ``effects``) no effect, whatever the table."""
    if not isinstance(model.method, Method) and model.method not in (*TITLES, "deep+ncp"):
        raise UserError(f"unknown method {model.method!r}: choose from {', '.join(TITLES)}, deep+ncp, or give a Method")
    if isinstance(model.input_prior, str) and model.input_prior not in INPUT_NOISE:
        names = ", ".join(INPUT_NOISE)
        raise UserError(f"unknown input_prior {model.input_prior!r}: choose from {names}, or give a function")
    if not isinstance(model.input_prior, str) and not callable(model.input_prior):
        raise UserError(
            f"input_prior must be a name or a function (inputs, *, key) -> noised, got {model.input_prior!r}"
        )
    for name in ("members", "min_rows", "epochs", "batch_size"):
        value = getattr(model, name)
        if (value is not None or name in ("members", "min_rows")) and not _is_count(value):
            raise UserError(f"{name} must be at least 1 and a whole number, got {value!r}")
    check_limits(members=model.members, epochs=model.epochs)
    if not np.iterable(model.hidden) or not list(model.hidden) or not all(map(_is_count, model.hidden)):
        what = "hidden must be whole numbers of units, one for each layer, such as (128, 128)"
        raise UserError(f"{what}, got {model.hidden!r}")
    for name in ("learning_rate", "gamma", "output_scale", "validation_fraction", "flip"):
        if not isinstance(getattr(model, name), numbers.Real):
            raise UserError(f"{name} must be a number, got {getattr(model, name)!r}")
    for name in ("early_stopping", "gamma_per_label", "warm_start"):
        if not isinstance(getattr(model, name), bool | np.bool_):
            raise UserError(f"{name} must be True or False, got {getattr(model, name)!r}")
    if not 0 < model.output_scale < math.inf:
        raise UserError(f"output_scale must be above 0 and finite, got {model.output_scale}")
    if not 0 < model.validation_fraction <= 0.3:
        raise UserError(f"validation_fraction must be above 0 and at most 0.3, got {model.validation_fraction}")
    if not 0 <= model.flip <= 1:
        raise UserError(f"flip must be between 0 and 1, got {model.flip}")
    for scale in model.input_scale.values() if isinstance(model.input_scale, dict) else [model.input_scale]:
        if not (isinstance(scale, numbers.Real) and 0 <= float(scale) < math.inf):
            raise UserError(f"input_scale must be a number from 0 up, or a dictionary of them, got {scale!r}")
    if not isinstance(model.settings, dict | None):
        raise UserError(f"settings must be a dictionary by the names of settings, got {model.settings!r}")
    check_settings(model, effects=effects)
    for name, why in without_effect(model).items() if effects else ():
        raise UserError(f"{name} has no effect with {why}; leave it out")


def check_settings(model: Any, *, effects: bool = True) -> None:
    """Raise if a setting is unknown, has another place, has no effect, or is not what an argument says."""
    given = model.settings or {}
    fields = {field.name for field in dataclasses.fields(Settings)}
    for name, value in given.items():
        if name not in fields:
            known = ", ".join(sorted(fields - set(_INSTEAD)))
            raise UserError(f"unknown setting {name!r}: choose from {known}")
        if name in _INSTEAD:
            raise UserError(f"settings: {name} is of the paper's experiments; {_INSTEAD[name]}")
        if effects and (why := _idle(model, name)):
            raise UserError(f"settings: {name} has no effect with {why}; leave it out")
        for argument in (one for one, setting in _SETTING_OF.items() if setting == name):
            if _is_given(model, argument) and _plain(getattr(model, argument)) != _plain(value):
                raise UserError(
                    f"{argument} is {getattr(model, argument)!r}, and {value!r} as {name} in settings; give one of them"
                )


def without_effect(model: Any) -> dict[str, str]:
    """Arguments that are not at their defaults and change nothing, and what makes it so."""
    idle = {name: _idle(model, setting) for name, setting in _SETTING_OF.items() if _is_given(model, name)}
    if _is_given(model, "validation_fraction") and (model.epochs is not None or not model.early_stopping):
        idle["validation_fraction"] = "early_stopping=False" if model.epochs is None else "a number of epochs"
    return {name: why for name, why in idle.items() if why}


def _idle(model: Any, setting: str) -> str | None:
    """What keeps a setting from having an effect; None if it has one."""
    own_prior = not isinstance(model.input_prior, str)
    if isinstance(model.method, Method):
        used = _TRAINING | ({"input_noise"} if own_prior and model.method.input_prior is not None else set())
        return None if setting in used else f"a Method of your own ({model.method.name})"
    if setting not in USED[model.method]:
        return f"method {model.method!r}"
    if setting in ("hidden", "leaky_slope") and model.trunk is not None and model.method != "deep+ncp":
        return "a trunk of your own"
    given = model.settings or {}
    if setting in _OUTPUT_PRIOR and given.get("odc_prediction") == "blend":
        return "odc_prediction 'blend'"
    if setting == "weight_prior_std" and "ncp" in model.method and given.get("ncp_weight_kl") == 0:
        return "ncp_weight_kl 0"
    return "an input_prior of your own" if setting == "input_noise_std" and own_prior else None


def _is_given(model: Any, argument: str) -> bool:
    """Whether an argument is not at its default."""
    value, default = getattr(model, argument), _default(type(model), argument)
    if callable(value) or isinstance(value, dict):
        return True
    return bool(_plain(value) != default)


def _default(kind: type, argument: str) -> Any:
    """The default of an argument in the first of the classes that has it: a subclass may take others, or none."""
    makers = (vars(base)["__init__"] for base in reversed(kind.__mro__) if "__init__" in vars(base))
    signatures = (inspect.signature(maker).parameters for maker in makers)
    return next(parameters[argument].default for parameters in signatures if argument in parameters)


def _plain(value: Any) -> Any:
    """Lists, arrays and ranges as tuples, which can be compared, and fractions as floats, which JAX computes with."""
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
        return float(value)
    return tuple(value) if np.iterable(value) and not isinstance(value, str | dict) else value


def _is_count(value: Any) -> bool:
    """Whether this is a whole number of things; True is none, though Python counts with it."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= 1
