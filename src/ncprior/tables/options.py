"""The parameters of an estimator, checked, and the settings of a method that they stand for.

A parameter that has no effect with the method, or beside another parameter, is refused, with the reason.
"""

import dataclasses
import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass
from typing import Any, TypeAlias

import numpy as np

from ncprior.core.effects import TRAINING, why_idle
from ncprior.core.input_priors import InputPrior
from ncprior.core.methods import INPUT_NOISE, TITLES, Method
from ncprior.core.settings import Settings
from ncprior.errors import UserError, check_limits
from ncprior.tables.preset import CONTRAST, TABLES
from ncprior.tables.programs import TrunkFactory

Arguments: TypeAlias = dict[str, Any]
"""Arguments of `NCPRegressor` by name; some may be code of the user's own."""

LARGEST_BATCH = 512
"""Rows in a mini batch of a large table."""

_SETTINGS = {
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
"""Parameters of the estimator, and the settings that have an effect where these have one."""

_ELSEWHERE = {
    "input_noise": "give the argument input_prior",
    "input_noise_std": "give the argument input_scale",
    "temperature": "give it to suggest(..., temperature=...)",
    "gain_exponent": "exponent e at temperature t is suggest(..., temperature=t / e)",
    "det_score": "give suggest(..., acquisition=...) the name of a score",
    "draw": "suggest(..., temperature=...) draws rows without replacement, and takes the best at temperature 0",
}
"""Settings of the experiments that an estimator has in another place."""


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """The parameters of an estimator that say how it learns; `NCPRegressor` explains each of them.

    Args:
        check_effects: Whether parameters that have no effect are refused.

    Raises:
        UserError: If a parameter has no meaning or no effect, whatever the table.

    >>> FitOptions(members=2, hidden=[64]).hidden
    (64,)
    """

    method: str | Method = "ncp"
    hidden: Sequence[int] = (128, 128)
    members: int = 8
    learning_rate: float = 3e-3
    batch_size: int | None = None
    epochs: int | None = None
    early_stopping: bool = True
    validation_fraction: float = 0.1
    conformal_fraction: float = 0.0
    min_rows: int = 3
    gamma: float | None = None
    gamma_per_label: bool = True
    input_prior: str | InputPrior = "radial"
    input_scale: float | Mapping[str, float] = 2.0
    output_scale: float = 1.0
    flip: float = 0.1
    trunk: TrunkFactory | None = None
    settings: Mapping[str, Any] | None = None
    warm_start: bool = False
    check_effects: InitVar[bool] = True

    @classmethod
    def of(cls, estimator: object, *, check_effects: bool = True) -> "FitOptions":
        """The options of an estimator, which has them as attributes."""
        values = {field.name: getattr(estimator, field.name) for field in dataclasses.fields(cls)}
        return cls(**values, check_effects=check_effects)

    def __post_init__(self, check_effects: bool) -> None:
        self._check_values()
        for name in ("hidden", "learning_rate", "gamma", "output_scale"):
            object.__setattr__(self, name, _plain(getattr(self, name)))
        self._check_settings(check_effects)
        for name, why in self.without_effect().items() if check_effects else ():
            raise UserError(f"{name} has no effect with {why}; leave it out")

    @property
    def own_input_prior(self) -> InputPrior | None:
        """The input prior, if it is a function of the user's own."""
        return None if isinstance(self.input_prior, str) else self.input_prior

    def settings_for(self, rows: int) -> Settings:
        """The settings of the method for a table of so many rows."""
        given = {name: _plain(value) for name, value in (self.settings or {}).items()}
        # Mini batches grow with the table, from 64 rows at 10 thousand to the largest at 100 thousand.
        size = self.batch_size or int(min(LARGEST_BATCH, max(64, 2 ** round(math.log2(max(1, rows / 150))))))
        gamma = TABLES.gamma if self.gamma is None else self.gamma
        changes = {
            "hidden": self.hidden,
            "learning_rate": self.learning_rate,
            "batch_size": min(size, _largest_batch(rows)),  # a table may have far fewer rows than a batch
            "gamma": gamma,
            "noise_tie": given.get("gamma", gamma),
            "gamma_per_label": self.gamma_per_label,
            "output_std": self.output_scale,
            **given,
        }
        settings = dataclasses.replace(TABLES, **changes)
        # Programs hold a whole batch: rows that a table does not have would only take memory.
        settings = dataclasses.replace(settings, batch_size=min(settings.batch_size, _largest_batch(rows)))
        if self.epochs is not None and self.epochs * rows >= settings.batch_size * 2**31:
            what = f"{self.epochs:,} epochs of {rows:,} rows are more steps than 32 bits can count"
            raise UserError(f"{what}; lower epochs or raise batch_size")
        return settings

    @property
    def has_contrast(self) -> bool:
        """Whether there are contrast networks beside the members."""
        return self.method == "ncp" and self._given_gamma != 0

    @property
    def contrast_scale(self) -> float:
        """The uncertainty far from the data that these networks stand for, in standard deviations of the target."""
        return float((self.settings or {}).get("output_std", self.output_scale)) if self.has_contrast else 0.0

    @property
    def contrast_settings(self) -> Settings:
        """The settings of the contrast networks."""
        gamma = CONTRAST.gamma if self._given_gamma is None else self._given_gamma
        return dataclasses.replace(CONTRAST, gamma=gamma)

    @property
    def why_no_unlabelled(self) -> str | None:
        """What keeps unlabelled rows from having an effect; None if they have one."""
        if self.method != "ncp":
            return f"method {self.method if isinstance(self.method, str) else self.method.name!r}"
        if not self.has_contrast:
            return "gamma 0"
        return None if self.own_input_prior is None else "an input_prior of your own"

    @property
    def _given_gamma(self) -> float | None:
        """Gamma as an argument or a setting; None for the method's own."""
        return _plain((self.settings or {}).get("gamma", self.gamma))

    def without_effect(self) -> dict[str, str]:
        """Parameters that are not at their defaults and change nothing, with the reason of each."""
        idle = {name: self._why_idle(setting) for name, setting in _SETTINGS.items() if self._is_given(name)}
        if self._is_given("validation_fraction") and (self.epochs is not None or not self.early_stopping):
            idle["validation_fraction"] = "early_stopping=False" if self.epochs is None else "a number of epochs"
        return {name: why for name, why in idle.items() if why}

    def _check_values(self) -> None:
        """Raise if a parameter has no meaning."""
        if not isinstance(self.method, Method) and self.method not in ("ncp", *TITLES, "deep+ncp"):
            names = ", ".join(("ncp", *TITLES))
            raise UserError(f"unknown method {self.method!r}: choose from {names}, deep+ncp, or give a Method")
        if isinstance(self.input_prior, str) and self.input_prior not in INPUT_NOISE:
            names = ", ".join(INPUT_NOISE)
            raise UserError(f"unknown input_prior {self.input_prior!r}: choose from {names}, or give a function")
        if not isinstance(self.input_prior, str) and not callable(self.input_prior):
            raise UserError(
                f"input_prior must be a name or a function (inputs, *, key) -> noised, got {self.input_prior!r}"
            )
        for name in ("members", "min_rows", "epochs", "batch_size"):
            value = getattr(self, name)
            if (value is not None or name in ("members", "min_rows")) and not _is_count(value):
                raise UserError(f"{name} must be at least 1 and a whole number, got {value!r}")
        check_limits(members=self.members, epochs=self.epochs)
        if not np.iterable(self.hidden) or not list(self.hidden) or not all(map(_is_count, self.hidden)):
            what = "hidden must be whole numbers of units, one for each layer, such as (128, 128)"
            raise UserError(f"{what}, got {self.hidden!r}")
        for name in ("learning_rate", "gamma", "output_scale", "validation_fraction", "conformal_fraction", "flip"):
            if not isinstance(getattr(self, name), numbers.Real) and not (name == "gamma" and self.gamma is None):
                raise UserError(f"{name} must be a number, got {getattr(self, name)!r}")
        for name in ("early_stopping", "gamma_per_label", "warm_start"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise UserError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if not 0 < self.output_scale < math.inf:
            raise UserError(f"output_scale must be above 0 and finite, got {self.output_scale}")
        if not 0 < self.validation_fraction <= 0.3:
            raise UserError(f"validation_fraction must be above 0 and at most 0.3, got {self.validation_fraction}")
        if not 0 <= self.conformal_fraction <= 0.5:
            raise UserError(f"conformal_fraction must be from 0 to 0.5, got {self.conformal_fraction}")
        if not 0 <= self.flip <= 1:
            raise UserError(f"flip must be between 0 and 1, got {self.flip}")
        for scale in self.input_scale.values() if isinstance(self.input_scale, Mapping) else [self.input_scale]:
            if not (isinstance(scale, numbers.Real) and 0 <= float(scale) < math.inf):
                raise UserError(f"input_scale must be a number from 0 up, or a dictionary of them, got {scale!r}")
        if not isinstance(self.settings, dict | None):
            raise UserError(f"settings must be a dictionary by the names of settings, got {self.settings!r}")

    def _check_settings(self, check_effects: bool) -> None:
        """Raise if a setting is unknown, belongs elsewhere, has no effect, or contradicts a parameter."""
        fields = {field.name for field in dataclasses.fields(Settings)}
        for name in self.settings or {}:
            if name not in fields:
                names = ", ".join(sorted(fields - set(_ELSEWHERE)))
                raise UserError(f"unknown setting {name!r}: choose from {names}")
            if name in _ELSEWHERE:
                raise UserError(f"settings: {name} is of the paper's experiments; {_ELSEWHERE[name]}")
        for name, value in (self.settings or {}).items():
            if check_effects and (why := self._why_idle(name)):
                raise UserError(f"settings: {name} has no effect with {why}; leave it out")
            for parameter in (one for one, setting in _SETTINGS.items() if setting == name):
                given = getattr(self, parameter)
                if self._is_given(parameter) and _plain(given) != _plain(value):
                    raise UserError(f"{parameter} is {given!r}, and {value!r} as {name} in settings; give one of them")

    def _why_idle(self, setting: str) -> str | None:
        """What keeps a setting from having an effect; None if it has one."""
        own_prior = self.own_input_prior is not None
        if isinstance(self.method, Method):
            used = TRAINING | ({"input_noise"} if own_prior and self.method.input_prior is not None else set())
            return None if setting in used else f"a Method of your own ({self.method.name})"
        if why := why_idle(setting, self.method, self.settings_for(rows=1)):
            return why
        if setting in ("hidden", "activation", "leaky_slope") and self.trunk is not None and self.method != "deep+ncp":
            return "a trunk of your own"
        return "an input_prior of your own" if setting == "input_noise_std" and own_prior else None

    def _is_given(self, parameter: str) -> bool:
        """Whether a parameter is not at its default."""
        value, default = getattr(self, parameter), getattr(FitOptions, parameter)
        return callable(value) or isinstance(value, Mapping) or bool(_plain(value) != default)


def _largest_batch(rows: int) -> int:
    """The largest mini batch of a table: more than all of its rows only take time."""
    return max(64, 1 << (rows - 1).bit_length())


def _plain(value: object) -> Any:
    """Lists, arrays and ranges as tuples, which can be compared, and fractions as floats, which JAX computes with."""
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
        return float(value)
    return tuple(value) if np.iterable(value) and not isinstance(value, str | dict) else value


def _is_count(value: object) -> bool:
    """Whether this is a whole number of things; True is none, though Python counts with it."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= 1
