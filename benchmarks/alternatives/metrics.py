"""How good a prediction is: one piece of code that scores every method.

A method predicts either a mixture of normals (most often of one) or a distribution through some quantiles. Both know
their log density, their distribution function and their continuous ranked probability score (CRPS), in the unit of the
target.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import logsumexp, ndtr

_PAIRS = 100
"""Components of a mixture that its CRPS, which looks at every pair, is computed from; of more, every n-th."""

_LEVELS = (np.arange(200) + 0.5) / 200
"""Probabilities at which the pinball loss is averaged for the CRPS of a distribution through quantiles."""


class Forecast(Protocol):
    """What a method says about the targets of some rows."""

    @property
    def mean(self) -> np.ndarray:
        """The point prediction that the RMSE is computed from."""

    def log_prob(self, y: np.ndarray) -> np.ndarray: ...

    def cdf(self, y: np.ndarray) -> np.ndarray: ...

    def crps(self, y: np.ndarray) -> np.ndarray: ...


def scores(forecast: Forecast, y: np.ndarray) -> dict[str, float]:
    """Mean log likelihood, RMSE, CRPS, and the share of the targets within the central 90% interval."""
    below = forecast.cdf(y)
    return {
        "log_likelihood": float(np.mean(forecast.log_prob(y))),
        "rmse": float(np.sqrt(np.mean((forecast.mean - y) ** 2))),
        "crps": float(np.mean(forecast.crps(y))),
        "coverage": float(np.mean((below >= 0.05) & (below <= 0.95))),
    }


@dataclass(frozen=True)
class Mixture:
    """A mixture of normals for every row: three arrays ``[rows, components]``."""

    weights: np.ndarray
    means: np.ndarray
    stds: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        return np.sum(self.weights * self.means, axis=1)

    @property
    def variance(self) -> np.ndarray:
        return np.sum(self.weights * (self.stds**2 + (self.means - self.mean[:, None]) ** 2), axis=1)

    def log_prob(self, y: np.ndarray) -> np.ndarray:
        z = (y[:, None] - self.means) / self.stds
        density = -0.5 * z**2 - np.log(self.stds) - 0.5 * np.log(2 * np.pi)
        return np.asarray(logsumexp(density, axis=1, b=self.weights))

    def cdf(self, y: np.ndarray) -> np.ndarray:
        return np.sum(self.weights * ndtr((y[:, None] - self.means) / self.stds), axis=1)

    def crps(self, y: np.ndarray) -> np.ndarray:
        """``E|Y - y| - E|Y - Y'| / 2`` in closed form (Grimit et al., 2006)."""
        step = -(-self.means.shape[1] // _PAIRS)
        weights, means, stds = (array[:, ::step] for array in (self.weights, self.means, self.stds))
        weights = weights / weights.sum(axis=1, keepdims=True)
        result = np.sum(weights * _distance(y[:, None] - means, stds), axis=1)
        for start in range(0, len(y), 256):  # rows in blocks, because pairs of components take memory
            rows = slice(start, start + 256)
            w, m, s = weights[rows], means[rows], stds[rows]
            apart = _distance(m[:, :, None] - m[:, None, :], np.hypot(s[:, :, None], s[:, None, :]))
            result[rows] -= 0.5 * np.einsum("ri,rij,rj->r", w, apart, w)
        return result

    def rescale(self, scale: float, shift: float) -> "Mixture":
        """The prediction of ``shift + scale * y``: from standardised targets back to their unit."""
        return Mixture(self.weights, shift + scale * self.means, scale * self.stds)


def normal(mean: np.ndarray, std: np.ndarray | float) -> Mixture:
    """A normal prediction for every row."""
    means = np.asarray(mean, np.float64).reshape(-1, 1)
    stds = np.broadcast_to(np.asarray(std, np.float64).reshape(-1, 1), means.shape)
    return Mixture(np.ones_like(means), means, stds)


def _distance(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """``E|Z|`` of a normal ``Z`` with this mean and standard deviation."""
    z = mean / std
    return mean * (2 * ndtr(z) - 1) + 2 * std * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)


@dataclass(frozen=True)
class Piecewise:
    """A distribution through quantiles: uniform between neighbours, exponential beyond the first and the last.

    A tail has the scale of the exponential through the two quantiles next to it, or ``tail`` where that is larger. The
    widths between neighbours are at least ``floor`` times the probability between them, measured from the middle
    quantile outwards, so that the density is nowhere above ``1 / floor`` between quantiles: without it, quantiles that
    fall together would have an infinite density.

    ``levels`` are the probabilities ``[k]`` and ``quantiles`` the values ``[rows, k]``, which are sorted here.
    """

    point: np.ndarray
    levels: np.ndarray
    quantiles: np.ndarray
    floor: float
    tail: float

    @property
    def mean(self) -> np.ndarray:
        """A point prediction of its own, as quantiles do not tell the mean."""
        return self.point

    def knots(self) -> np.ndarray:
        """The quantiles in ascending order, far enough apart."""
        ordered = np.sort(self.quantiles, axis=1)
        middle = len(self.levels) // 2
        widths = np.maximum(np.diff(ordered, axis=1), self.floor * np.diff(self.levels))
        up = np.cumsum(widths[:, middle:], axis=1)
        down = np.cumsum(widths[:, :middle][:, ::-1], axis=1)[:, ::-1]
        centre = ordered[:, middle : middle + 1]
        return np.concatenate([centre - down, centre, centre + up], axis=1)

    def _tails(self, knots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        low = (knots[:, 1] - knots[:, 0]) / np.log(self.levels[1] / self.levels[0])
        high = (knots[:, -1] - knots[:, -2]) / np.log((1 - self.levels[-2]) / (1 - self.levels[-1]))
        return np.maximum(low, self.tail), np.maximum(high, self.tail)

    def log_prob(self, y: np.ndarray) -> np.ndarray:
        knots = self.knots()
        low, high = self._tails(knots)
        density = np.log(np.diff(self.levels) / np.diff(knots, axis=1))
        place = np.clip(np.sum(knots <= y[:, None], axis=1) - 1, 0, density.shape[1] - 1)
        inside = np.take_along_axis(density, place[:, None], axis=1)[:, 0]
        below = np.log(self.levels[0] / low) - (knots[:, 0] - y) / low
        above = np.log((1 - self.levels[-1]) / high) - (y - knots[:, -1]) / high
        return np.where(y < knots[:, 0], below, np.where(y > knots[:, -1], above, inside))

    def cdf(self, y: np.ndarray) -> np.ndarray:
        knots = self.knots()
        low, high = self._tails(knots)
        inside = np.array([np.interp(value, row, self.levels) for value, row in zip(y, knots, strict=True)])
        below = self.levels[0] * np.exp(np.minimum(y - knots[:, 0], 0) / low)
        above = 1 - (1 - self.levels[-1]) * np.exp(-np.maximum(y - knots[:, -1], 0) / high)
        return np.where(y < knots[:, 0], below, np.where(y > knots[:, -1], above, inside))

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Twice the mean pinball loss over 200 evenly spaced probabilities."""
        knots = self.knots()
        low, high = (tail[:, None] for tail in self._tails(knots))
        inside = np.array([np.interp(_LEVELS, self.levels, row) for row in knots])
        below = knots[:, :1] + low * np.log(_LEVELS / self.levels[0])
        above = knots[:, -1:] - high * np.log((1 - _LEVELS) / (1 - self.levels[-1]))
        first, last = self.levels[0], self.levels[-1]
        values = np.where(first > _LEVELS, below, np.where(last < _LEVELS, above, inside))
        error = y[:, None] - values
        return 2 * np.mean(np.maximum(_LEVELS * error, (_LEVELS - 1) * error), axis=1)
