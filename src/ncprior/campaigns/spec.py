"""What a campaign is: its columns, its rules, how its models are trained."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TypedDict

from ncprior.campaigns.times import duration
from ncprior.errors import UserError
from ncprior.schema import JsonObject

FIRST_MODEL = 20
"""Labels from which on a model is trained."""


class StopRules(TypedDict, total=False):
    """Fields of `Spec` that can change; None removes a rule."""

    budget: int | None
    stop_error: float | None
    stop_patience: int | None


class Rules(StopRules, total=False):
    """Fields of `Spec` that may be given for a new campaign."""

    audit: float
    seed: int
    replicates: int
    lease: str
    unlabelled: bool
    fit: JsonObject


@dataclass(frozen=True)
class Spec:
    """What was said when a campaign was made; stop rules can change later.

    Args:
        id_column: The column of the pool that names rows.
        targets: What is measured.
        inputs: The columns to predict from, and their kinds.
        audit: Share of the asked rows that is drawn at random, to measure the error.
        seed: Of the random order of the pool and of the models.
        replicates: How many people label each row.
        lease: How long a row is out with someone, if they do not say.
        budget: Rows to label, beside those that are ``given``; None for no end.
        stop_error: The RMSE on audit rows below which to stop.
        stop_patience: Labels over which the error must have fallen for the campaign to go on.
        given: Rows whose labels were known at the beginning.
        unlabelled: Whether models are taught to be unsure where the pool is, by its inputs.
        fit: Parameters of `NCPRegressor` by name.
    """

    id_column: str
    targets: tuple[str, ...]
    inputs: Mapping[str, str]
    audit: float = 0.1
    seed: int = 0
    replicates: int = 1
    lease: str = "3d"
    budget: int | None = None
    stop_error: float | None = None
    stop_patience: int | None = None
    given: int = 0
    unlabelled: bool = True
    fit: JsonObject = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.targets:
            raise UserError("a campaign needs a target: what is measured")
        if len(set(self.targets)) < len(self.targets):
            raise UserError("a target is named twice; name each once")
        if self.id_column in self.targets:
            raise UserError(f"column {self.id_column!r} is the id and cannot be a target as well")
        if not 0 <= self.audit <= 1:
            raise UserError(f"an audit share of {self.audit:g} makes no sense; give a number from 0 to 1, such as 0.1")
        if not 0 <= self.seed < 2**32:
            raise UserError(f"seed {self.seed}: give a whole number from 0 to {2**32 - 1}")
        for name, least in (("replicates", 1), ("budget", 1), ("stop_patience", 10)):
            value = getattr(self, name)
            if value is not None and not least <= value <= 10**9:
                raise UserError(f"{name.replace('_', ' ')} {value}: give a whole number from {least} up")
        if self.stop_error is not None and not 0 < self.stop_error < math.inf:
            raise UserError(f"stop error {self.stop_error:g}: give a number above 0, in the unit of the target")
        duration(self.lease)

    def to_json(self) -> dict[str, object]:
        """For the database."""
        return {**asdict(self), "targets": list(self.targets)}

    @classmethod
    def from_json(cls, saved: JsonObject) -> "Spec":
        """From the database."""
        return cls(**{**saved, "targets": tuple(saved["targets"])})


def check_name(name: str, what: str = "campaign") -> str:
    """The name of a campaign or a person, if it can be one: it stands in addresses and in files."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise UserError(f"{name!r:.80} is no name of a {what}; use up to 64 letters, digits, points, dashes and _")
    return name


def is_text(value: str, most: int) -> bool:
    """Whether a database can hold this text: no null characters, no halves of letters, not too long."""
    return len(value) <= most and "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)


def numbers(values: Mapping[str, object], targets: Sequence[str], most: float = 1e30) -> dict[str, float]:
    """The values that someone tells, by target.

    Raises:
        UserError: If there is none, a target is unknown, or a value is no number.
    """
    if unknown := [name for name in values if name not in targets]:
        raise UserError(f"unknown target {unknown[0]!r:.80}; the targets are {', '.join(targets)}")
    if not values:
        raise UserError(f"no value; give one of {', '.join(targets)}")
    return {name: _number(name, value, most) for name, value in values.items()}


def _number(target: str, value: object, most: float) -> float:
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, str | int | float) else float(value)
    except (ValueError, OverflowError):
        number = math.nan
    if not abs(number) <= most:  # also for NaN
        raise UserError(f"{value!r:.40} is no value of {target!r:.80}; give a number, or skip or fail the row")
    return number
