"""Metrics of predictions: point error, density, calibration and sharpness.

Each metric takes a prediction, the true ``y`` and, if wanted, weights of the rows (0 leaves a row out), and gives one
number. All are in the units of the prediction: rescale it first for numbers in the units of the target. For
several outputs, errors, densities and scores are summed over the outputs of a row, and coverage is averaged.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Scalar

from ncprior.core.distributions import Normal
from ncprior.core.prediction import Predictive

Metric = Callable[..., Scalar]


def rmse(
    prediction: Predictive, y: Float[Array, "rows outputs"], weights: Float[Array, "rows"] | None = None
) -> Scalar:
    """Root mean squared error of the predicted mean.

    >>> from ncprior.core.prediction import Prediction
    >>> ones = jnp.ones((3, 1))
    >>> float(rmse(Prediction(0 * ones, ones, ones), 2 * ones))
    2.0
    """
    error = y - prediction.mean
    return jnp.sqrt(_average(jnp.sum(error**2, axis=-1), weights))


def nlpd(
    prediction: Predictive, y: Float[Array, "rows outputs"], weights: Float[Array, "rows"] | None = None
) -> Scalar:
    """Mean negative log predictive density, in nats. It depends on the unit of the target."""
    return -_average(jnp.sum(prediction.log_prob(y), axis=-1), weights)


def crps(
    prediction: Predictive, y: Float[Array, "rows outputs"], weights: Float[Array, "rows"] | None = None
) -> Scalar:
    """Mean continuous ranked probability score, in the unit of the target: ``E|Y - y| - E|Y - Y'| / 2``.

    In closed form for mixtures of normals (Grimit et al., 2006).
    """
    mix, normal = prediction.components()
    mean, std = jnp.asarray(normal.mean), jnp.asarray(normal.std)
    to_truth = jnp.sum(mix * _mean_absolute(y[..., None] - mean, std), axis=-1)
    between = _mean_absolute(mean[..., :, None] - mean[..., None, :], jnp.hypot(std[..., :, None], std[..., None, :]))
    among = jnp.sum(mix[..., :, None] * mix[..., None, :] * between, axis=(-2, -1))
    return _average(jnp.sum(to_truth - 0.5 * among, axis=-1), weights)


def coverage(
    prediction: Predictive,
    y: Float[Array, "rows outputs"],
    weights: Float[Array, "rows"] | None = None,
    *,
    level: float | Scalar = 0.9,
) -> Scalar:
    """Share of rows inside their central interval of probability ``level``; the ideal is ``level``."""
    return _average(jnp.mean(_centrality(prediction, y) <= level, axis=-1), weights)


def calibration_error(
    prediction: Predictive, y: Float[Array, "rows outputs"], weights: Float[Array, "rows"] | None = None
) -> Scalar:
    """Expected calibration error: mean ``|coverage - level|`` over the levels 5%, 10%, ..., 95%."""
    levels = jnp.arange(1, 20) / 20
    inside = jnp.mean(_centrality(prediction, y)[..., None] <= levels, axis=-2)
    return jnp.mean(jnp.abs(_average(inside, weights) - levels))


def sharpness(
    prediction: Predictive, y: Float[Array, "rows outputs"], weights: Float[Array, "rows"] | None = None
) -> Scalar:
    """Root mean predicted variance, in the unit of the target; smaller is sharper, if calibration holds."""
    variance = jnp.broadcast_to(prediction.std, y.shape) ** 2
    return jnp.sqrt(_average(jnp.sum(variance, axis=-1), weights))


METRICS: dict[str, Metric] = {
    "rmse": rmse,
    "nlpd": nlpd,
    "crps": crps,
    "coverage": coverage,
    "calibration_error": calibration_error,
    "sharpness": sharpness,
}
"""Every metric by the name that records and reports use; ``coverage`` is that of 90% intervals."""


def _average(values: Float[Array, "rows *shape"], weights: Float[Array, "rows"] | None) -> Float[Array, "*shape"]:
    """Weighted mean over the first axis. Rows of weight 0 are ignored, even if their values are not finite."""
    if weights is None:
        return jnp.mean(values, axis=0)
    counts = weights.reshape(-1, *[1] * (values.ndim - 1)) > 0
    return weights @ jnp.where(counts, values, 0) / jnp.sum(weights)


def _centrality(prediction: Predictive, y: Float[Array, "rows outputs"]) -> Float[Array, "rows outputs"]:
    """The probability of the smallest central interval that holds ``y``."""
    return jnp.abs(2 * prediction.cdf(y) - 1)


def _mean_absolute(mean: Float[Array, "*shape"], std: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """``E|Y|`` for ``Y ~ N(mean, std^2)``."""
    standard = Normal(0.0, 1.0)
    z = mean / std
    return 2 * std * jnp.exp(standard.log_prob(z)) + mean * (2 * standard.cdf(z) - 1)
