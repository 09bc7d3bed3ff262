"""Calibration by held-out rows: scales of noise and uncertainty, and the shares of two families of members."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ncprior.core.prediction import Predictive, heavy_tailed
from ncprior.tables.compiled import Program


class Calibration(NamedTuple):
    """Corrections of the members' predictions, and the members' weights in the mixture: arrays ``[members]``.

    >>> Calibration.equal(4).share.tolist()
    [0.25, 0.25, 0.25, 0.25]
    """

    noise_scale: np.ndarray  # factors of the noise (a std)
    uncertainty_scale: np.ndarray  # and of the uncertainty
    share: np.ndarray  # sums to 1

    @classmethod
    def equal(cls, members: int) -> "Calibration":
        """Predictions as they are, all members with the same share."""
        ones = np.ones(members, np.float32)
        return cls(ones, ones.copy(), np.full(members, 1 / members, np.float32))

    def apply(self, predictions: Predictive) -> Predictive:
        """The members' predictions ``[members, rows, outputs]`` with noise and uncertainty scaled."""
        noise, uncertainty = (scale[:, None, None] for scale in (self.noise_scale, self.uncertainty_scale))
        return predictions.inflate(noise, uncertainty)

    def of(self, members: np.ndarray) -> "Calibration":
        """The calibration of some members, their shares scaled to sum to 1."""
        share = self.share[members]
        return Calibration(self.noise_scale[members], self.uncertainty_scale[members], share / share.sum())


_NOISE_SCALES, _UNCERTAINTY_SCALES = 2.0 ** np.arange(-0.6, 1.6, 0.15), 2.0 ** np.arange(0.0, 2.6, 0.5)
"""Factors of noise and uncertainty to choose from. Uncertainty is never lowered: new rows may be further from the data
than held-out ones, which would undo the prior where noise alone explains them."""

_EQUAL_SHARES_BONUS = 0.05
"""What equal shares are worth, in nats: new rows are further from the data than held-out ones. With few rows they are
worth as much as one row more."""

_MIN_LOG_DENSITY = -1e6
"""Stands for log densities that are not finite."""


def _log_densities(prediction: Predictive, targets: Array, weights: Array, noise: Array, uncertainty: Array) -> Array:
    """The weighted log density of the targets for every pair of scales."""

    def one(pair: tuple[Array, Array]) -> Array:
        density = heavy_tailed(prediction.inflate(*pair)).log_prob(targets).sum(-1)
        return jnp.sum(weights * density)

    return jax.lax.map(one, (noise, uncertainty))


_LOG_DENSITIES = Program(_log_densities, "log densities by scales")


def best_scales(prediction: Predictive, targets: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """The best of a grid of scales for noise and uncertainty."""
    if not weights.any():
        return 1.0, 1.0
    noise, uncertainty = (part.ravel().astype(np.float32) for part in np.meshgrid(_NOISE_SCALES, _UNCERTAINTY_SCALES))
    best = int(np.argmax(np.asarray(_LOG_DENSITIES(prediction, targets, weights, noise, uncertainty))))
    return float(noise[best]), float(uncertainty[best])


def log_density(prediction: Predictive, targets: np.ndarray) -> np.ndarray:
    """The log density of every target, at least -1e6."""
    return np.nan_to_num(
        np.asarray(_LOG_PROB(prediction, targets), np.float64), nan=_MIN_LOG_DENSITY, neginf=_MIN_LOG_DENSITY
    )


_LOG_PROB = Program(lambda prediction, targets: heavy_tailed(prediction).log_prob(targets), "log density")


class Densities(NamedTuple):
    """Log densities of held-out rows of one kind by two predictions, and the weights of the rows."""

    first: np.ndarray
    second: np.ndarray
    weights: np.ndarray | None = None
    effective_number: float | None = None  # of rows, if their weights differ


def best_share(kinds: Sequence[Densities]) -> float:
    """The share of the second of two predictions in their mixture that gives held-out rows the highest density.

    Kinds of rows count the same, however many rows they have. The share stays close to one half where that makes
    little difference.
    """
    shares = np.linspace(0.02, 0.98, 49)
    fewest = min((kind.effective_number or len(kind.first) for kind in kinds), default=1)
    score = (_EQUAL_SHARES_BONUS + 1 / fewest) * (np.log(shares) + np.log(1 - shares))
    for first, second, weights, _ in kinds:
        mixed = np.logaddexp(first + np.log(1 - shares[:, None]), second + np.log(shares[:, None]))
        score = score + np.average(mixed, axis=1, weights=weights) / len(kinds)
    return float(shares[np.argmax(score)])


def log_mean_density(logs: np.ndarray) -> np.ndarray:
    """The logarithm of the members' mean density, from ``[members, rows, outputs]``."""
    return np.logaddexp.reduce(logs, axis=0) - math.log(len(logs))


def refit_noise_factor(train: float, out: float) -> float:
    """Noise correction after refitting on all rows, ``out`` of which were held out and ``train`` were not.

    Errors fall with about the fourth root of the number of rows. And two scales that were fitted to few rows are too
    small for others: two degrees of freedom are lost.
    """
    return (train / (train + out)) ** 0.25 * math.sqrt(out / (out - 2)) if out > 2 else 1.0
