"""Predictions on record: made by a model before the label came, and scored when it has come."""

import math
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

LEVEL = 0.9
"""Of intervals."""

_DIGITS = 6


class Predicted(NamedTuple):
    """What a model predicts of a target of a row: a mixture of normals, in units of the target."""

    mean: float
    noise: float
    uncertainty: float
    lower: float
    upper: float
    weights: tuple[float, ...]
    means: tuple[float, ...]
    stds: tuple[float, ...]

    def log_prob(self, value: float) -> float:
        """Log density at a value.

        >>> round(Predicted(0, 0, 1, -1.6, 1.6, (1.0,), (0.0,), (1.0,)).log_prob(0.0), 4)
        -0.9189
        """
        weights, means, stds = (np.asarray(part, float) for part in (self.weights, self.means, self.stds))
        stds = np.maximum(stds, 1e-300)
        logs = np.log(np.maximum(weights, 1e-300)) - 0.5 * ((value - means) / stds) ** 2
        logs = logs - np.log(stds) - 0.5 * math.log(2 * math.pi)
        most = float(logs.max())
        return most + math.log(float(np.exp(logs - most).sum()))

    def covers(self, value: float) -> bool:
        """Whether the interval holds a value."""
        return self.lower <= value <= self.upper

    def to_json(self) -> list[object]:
        """For the database, to six digits."""
        numbers = [_short(value) for value in self[:5]]
        return [*numbers, *([_short(value) for value in part] for part in self[5:])]

    @classmethod
    def from_json(cls, saved: list[Any]) -> "Predicted":
        """From the database."""
        return cls(*saved[:5], *map(tuple, saved[5:]))

    @classmethod
    def normal(cls, mean: float, noise: float, uncertainty: float) -> "Predicted":
        """A prediction that is one normal."""
        std = math.hypot(noise, uncertainty)
        half = NormalDist().inv_cdf(0.5 + LEVEL / 2) * std
        return cls(mean, noise, uncertainty, mean - half, mean + half, (1.0,), (mean,), (std,))


def _short(value: float) -> float:
    return float(f"{float(value):.{_DIGITS}g}")
