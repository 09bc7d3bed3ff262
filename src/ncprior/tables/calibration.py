"""Calibration by held-out rows: scales of noise and uncertainty, and the shares of two families of members."""

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from ncprior.core.prediction import Prediction, Predictive, add_uncertainty, heavy_tailed
from ncprior.tables.compiled import Program

Values = TypeVar("Values", Array, np.ndarray)

EXPONENT = 1.5
"""Exponent of the contrast if no rows are held out; with few held-out rows, it stays close to this."""


_LARGEST_CONTRAST = 1e4
"""Largest contrast: the output of contrast networks grows with the inputs as they extrapolate."""


def power(contrast: Values, exponent: ArrayLike) -> Values:
    """``contrast^exponent`` up to a contrast of 1, which is what the prior teaches far from the data.

    Further away, where contrast networks extrapolate, it is the contrast itself.

    >>> power(np.array([0.5, 1.0, 2.0]), 3.0).tolist()
    [0.125, 1.0, 2.0]
    """
    return contrast.clip(max=1.0) ** exponent * contrast.clip(1.0, _LARGEST_CONTRAST)


class Calibration(NamedTuple):
    """Corrections of the members' predictions, and the members' weights in the mixture: arrays ``[members]``.

    >>> Calibration.equal(4).share.tolist()
    [0.25, 0.25, 0.25, 0.25]
    """

    noise_scale: np.ndarray  # factors of the noise (a std)
    uncertainty_scale: np.ndarray  # and of the uncertainty
    share: np.ndarray  # sums to 1
    contrast_scale: np.ndarray  # uncertainty far from the data by the contrast networks; 0 without them
    contrast_exponent: np.ndarray  # of the contrast: the larger, the less uncertain near the data

    @classmethod
    def equal(cls, members: int) -> "Calibration":
        """Predictions as they are, all members with the same share."""
        ones = np.ones(members, np.float32)
        return cls(ones, ones.copy(), np.full(members, 1 / members, np.float32), 0 * ones, EXPONENT * ones)

    def apply(self, predictions: Predictive, contrast: np.ndarray | None = None) -> Predictive:
        """The members' predictions ``[members, rows, outputs]`` with noise and uncertainty scaled.

        ``contrast`` ``[rows]``, or ``[members, rows]``, is the output of contrast networks; see `contrast_std`.
        """
        scales = Calibration(*(part[:, None, None] for part in self))
        scaled = predictions.inflate(scales.noise_scale, scales.uncertainty_scale)
        if contrast is None:
            return scaled
        assert isinstance(scaled, Prediction)
        return add_uncertainty(scaled, scales.contrast_std(np.asarray(contrast)[..., None]))

    def contrast_std(self, contrast: Values) -> Values:
        """The uncertainty of rows with this contrast: ``scale * contrast^exponent``."""
        return power(contrast, self.contrast_exponent) * self.contrast_scale

    def with_contrast(self, scale: float) -> "Calibration":
        """The calibration with this uncertainty far from the data, in standard deviations of the target."""
        return self._replace(contrast_scale=np.full_like(self.contrast_scale, scale))

    def of(self, members: np.ndarray) -> "Calibration":
        """The calibration of some members, their shares scaled to sum to 1."""
        subset = Calibration(*(part[members] for part in self))
        return subset._replace(share=subset.share / subset.share.sum())


_NOISE_SCALES, _UNCERTAINTY_SCALES = 2.0 ** np.arange(-0.6, 1.6, 0.15), 2.0 ** np.arange(0.0, 2.6, 0.5)
"""Factors of noise and uncertainty to choose from. Uncertainty is never lowered: new rows may be further from the data
than held-out ones, which would undo the prior where noise alone explains them."""

_EQUAL_SHARES_BONUS = 0.05
"""Bonus for equal shares, in nats: new rows are further from the data than held-out ones. With few rows the bonus is
that of one row more."""

_MIN_LOG_DENSITY = -1e6
"""Stands for log densities that are not finite."""


def _log_densities(prediction: Predictive, targets: Array, weights: Array, noise: Array, uncertainty: Array) -> Array:
    """The weighted log density of the targets for every pair of scales."""

    def one(pair: tuple[Array, Array]) -> Array:
        density = heavy_tailed(prediction.inflate(*pair)).log_prob(targets).sum(-1)
        return jnp.sum(weights * density)

    return jax.lax.map(one, (noise, uncertainty))


_LOG_DENSITIES = Program(_log_densities, "log densities by scales", brief=True)


def best_scales(prediction: Predictive, targets: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """The best of a grid of scales for noise and uncertainty."""
    if not weights.any():
        return 1.0, 1.0
    noise, uncertainty = (part.ravel().astype(np.float32) for part in np.meshgrid(_NOISE_SCALES, _UNCERTAINTY_SCALES))
    best = int(np.argmax(np.asarray(_LOG_DENSITIES(prediction, targets, weights, noise, uncertainty))))
    return float(noise[best]), float(uncertainty[best])


_EXPONENTS = 2.0 ** np.arange(-1.0, 2.6, 0.25)
"""Exponents of the contrast to choose from."""

_NOISE_FACTORS = 2.0 ** np.arange(-1.0, 1.1, 0.25)
"""Noise scales to choose from, in units of the expected one."""

_NOISE_PULL, _EXPONENT_PULL = 0.1, 0.03
"""Cost in nats of a factor of e from the expected noise scale, and from `EXPONENT` with few held-out rows."""

_PULL_ROWS = 100
"""Number of held-out rows with which the second cost is halved."""

_FEW_ROWS = 4
"""Number of held-out rows with which the correction of the noise is half of what these rows suggest."""


class SquaredErrors(NamedTuple):
    r"""Mean squared errors on rows that members have seen, and on rows like these that they have not.

    A model that has $p$ degrees of freedom for $n$ rows with noise $\sigma$ comes to $\sigma^2 (1 - p / n)$ on the
    first and to $\sigma^2 (1 + p / n)$ on the second: their mean is the noise, and half of their difference the error
    of the mean. So held-out rows tell noise from uncertainty, of which a likelihood sees the sum alone.

    >>> SquaredErrors(seen=0.8, unseen=1.2, noise=4.0, rows=1_000_000).noise_scale.round(3)
    np.float64(0.5)
    """

    seen: float
    unseen: float
    noise: float  # mean variance of the predicted noise
    rows: float  # that were not seen

    @property
    def noise_scale(self) -> np.floating:
        """The factor that makes the predicted noise as large as it is; close to 1 by few rows."""
        factor = np.sqrt(max(self.seen + self.unseen, 1e-12) / 2 / max(self.noise, 1e-12))
        return np.clip(factor, 0.1, 10.0) ** (self.rows / (self.rows + _FEW_ROWS))


class ContrastFit(NamedTuple):
    """Held-out rows by which a noise scale and an exponent are chosen: ``[members, rows, outputs]`` unless noted."""

    prediction: Prediction
    targets: np.ndarray
    contrast: np.ndarray  # [members, rows]
    groups: np.ndarray  # [groups, members, rows]: 1 for members that predict a row together, as one mixture
    weights: np.ndarray  # [groups, rows]: of these mixtures; they sum to 1


def _mixture_density(held: ContrastFit, noise: Array, exponent: Array, scale: Array) -> Array:
    """The weighted log density of the mixtures of the members of every group, for each pair of candidates."""

    def one(pair: tuple[Array, Array]) -> Array:
        widened = add_uncertainty(
            held.prediction.inflate(pair[0], 1.0), (scale * power(held.contrast, pair[1]))[..., None]
        )
        density = heavy_tailed(widened).log_prob(held.targets).sum(-1)

        def group(parts: tuple[Array, Array]) -> Array:
            together, weights = parts
            mixed = jax.scipy.special.logsumexp(density, axis=0, b=together) - jnp.log(jnp.sum(together, axis=0))
            return jnp.sum(jnp.where(weights > 0, weights * mixed, 0.0))

        return jnp.sum(jax.lax.map(group, (held.groups, held.weights)))

    return jax.lax.map(one, (noise, exponent))


_MIXTURE_DENSITY = Program(_mixture_density, "mixture density by scale and exponent", brief=True)


class BestExponent(NamedTuple):
    """The noise scale and the exponent of the contrast that predict held-out rows best, and how well that is."""

    noise_scale: float
    exponent: float
    score: float = 0.0  # mean log density, less the cost of the distance from the defaults


def best_exponent(held: ContrastFit, scale: float, expected_noise: float) -> BestExponent:
    """The noise scale and the exponent of the contrast that predict held-out rows best, by mixtures of members.

    Members alone would seem too sure: where they disagree, their mixture is wider than each of them. The noise scale
    stays close to what is expected, see `SquaredErrors`.
    """
    if not held.weights.any():
        return BestExponent(1.0, EXPONENT)
    noise, exponent = (part.ravel() for part in np.meshgrid(expected_noise * _NOISE_FACTORS, _EXPONENTS))
    density = np.asarray(_MIXTURE_DENSITY(held, np.float32(noise), np.float32(exponent), np.float32(scale)), np.float64)
    few = _PULL_ROWS / (_PULL_ROWS + np.count_nonzero(held.weights.max(0)))
    pull = _NOISE_PULL * np.log(noise / expected_noise) ** 2 + few * _EXPONENT_PULL * np.log(exponent / EXPONENT) ** 2
    score = np.where(np.isfinite(density), density, -np.inf) - pull
    best = int(np.argmax(score))
    return BestExponent(float(noise[best]), float(exponent[best]), float(score[best]))


def log_density(prediction: Predictive, targets: np.ndarray) -> np.ndarray:
    """The log density of every target, at least -1e6."""
    return np.nan_to_num(
        np.asarray(_LOG_PROB(prediction, targets), np.float64), nan=_MIN_LOG_DENSITY, neginf=_MIN_LOG_DENSITY
    )


_LOG_PROB = Program(lambda prediction, targets: heavy_tailed(prediction).log_prob(targets), "log density", brief=True)


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
