"""Predictions: the distribution of ``y`` given ``x``, with noise and uncertainty.

Models return predictions; metrics, acquisition, figures and reports take predictions and know nothing of networks.
Every prediction is a mixture of normals, most often of one. Predictions of NumPy arrays are scaled and mixed by NumPy,
which has nothing to compile.
"""

import abc
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from ncprior.core.distributions import Normal
from ncprior.core.quantiles import invert_cdf


class Predictive(eqx.Module):
    """A distribution of ``y`` for every row and output, with its spread split into noise and uncertainty.

    ``noise`` is the aleatoric and ``uncertainty`` the epistemic standard deviation; their squares add up to the
    variance of the prediction. All three, and ``mean``, have the unit of the target.
    """

    if TYPE_CHECKING:  # which would take abstract fields for arguments of __init__
        mean = noise = uncertainty = property(lambda _: jnp.zeros(()))
    else:
        mean: eqx.AbstractVar[Float[Array, "*shape"]]
        noise: eqx.AbstractVar[Float[Array, "*shape"]]
        uncertainty: eqx.AbstractVar[Float[Array, "*shape"]]

    @abc.abstractmethod
    def components(self) -> tuple[Float[Array, "*shape components"], Normal]:
        """Weights and normals of the mixture, the components on a new last axis."""

    @abc.abstractmethod
    def inflate(self, noise: Float[ArrayLike, "..."], uncertainty: Float[ArrayLike, "..."]) -> "Predictive":
        """Multiply noise and uncertainty by these numbers."""

    @abc.abstractmethod
    def rescale(self, scale: Float[ArrayLike, "..."], shift: Float[ArrayLike, "..."] = 0.0) -> "Predictive":
        """The prediction of ``shift + scale * y``: from standardised targets back to their unit."""

    @property
    def std(self) -> Float[Array, "*shape"]:
        """Standard deviation of the prediction, uncertainty and noise together."""
        noise, uncertainty = self.noise, self.uncertainty
        return np.hypot(noise, uncertainty) if isinstance(noise, np.ndarray) else jnp.hypot(noise, uncertainty)

    def log_prob(self, y: Float[ArrayLike, "*shape"]) -> Float[Array, "*shape"]:
        """``ln p(y | x)``, in nats per unit of the target."""
        weights, normal = self.components()
        return jax.scipy.special.logsumexp(normal.log_prob(jnp.asarray(y)[..., None]), axis=-1, b=weights)

    def cdf(self, y: Float[ArrayLike, "*shape"]) -> Float[Array, "*shape"]:
        """``P(Y <= y | x)``."""
        weights, normal = self.components()
        return jnp.sum(weights * normal.cdf(jnp.asarray(y)[..., None]), axis=-1)

    def quantile(self, probability: Float[ArrayLike, "*levels"]) -> Float[Array, "..."]:
        """Quantiles of ``Y``. Axes of ``probability`` lead in the result, as in `numpy.quantile`."""
        if np.ndim(probability):
            return jax.vmap(self.quantile)(jnp.asarray(probability))
        weights, normal = self.components()
        ends = jnp.asarray(normal.mean + normal.std * jax.scipy.stats.norm.ppf(probability))
        if weights.shape[-1] == 1:
            return ends[..., 0]

        # The quantile of a mixture lies between those of its components.
        return invert_cdf(self.cdf, jnp.asarray(probability), ends.min(-1), ends.max(-1), mean=self.mean, std=self.std)

    def interval(self, level: float = 0.9) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
        """The central interval that holds ``Y`` with probability ``level``."""
        return self.quantile(0.5 - 0.5 * level), self.quantile(0.5 + 0.5 * level)


def _root(variance: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    return np.sqrt(variance) if isinstance(variance, np.ndarray) else jnp.sqrt(variance)


class Prediction(Predictive):
    """A normal prediction with mean ``mean`` and variance ``noise^2 + uncertainty^2``.

    >>> Prediction(mean=jnp.array(1.0), noise=jnp.array(3.0), uncertainty=jnp.array(4.0)).std
    Array(5., dtype=float32, weak_type=True)
    """

    mean: Float[Array, "*shape"]
    noise: Float[Array, "*shape"]
    uncertainty: Float[Array, "*shape"]

    def components(self) -> tuple[Float[Array, "*shape components"], Normal]:
        """One component of weight 1."""
        mean = self.mean[..., None]
        return jnp.ones_like(mean), Normal(mean, self.std[..., None])

    def inflate(self, noise: Float[ArrayLike, "..."], uncertainty: Float[ArrayLike, "..."]) -> "Prediction":
        """Multiply noise and uncertainty by these numbers."""
        return Prediction(self.mean, noise * self.noise, uncertainty * self.uncertainty)  # type: ignore[arg-type]

    def rescale(self, scale: Float[ArrayLike, "..."], shift: Float[ArrayLike, "..."] = 0.0) -> "Prediction":
        """The prediction of ``shift + scale * y``."""
        scale = jnp.asarray(scale)
        return Prediction(jnp.asarray(shift + scale * self.mean), scale * self.noise, scale * self.uncertainty)


class MixturePrediction(Predictive):
    """A mixture of normal predictions, with the components on the last axis of every field.

    The out-of-distribution classifier predicts one (Equation 8), and so does an ensemble. By the law of total
    variance the noise is that of an average component, and disagreement between the components is uncertainty.
    """

    weights: Float[Array, "*shape components"]
    parts: Prediction

    @property
    def mean(self) -> Float[Array, "*shape"]:
        """Mean of the mixture."""
        return (self.weights * self.parts.mean).sum(axis=-1)

    @property
    def noise(self) -> Float[Array, "*shape"]:
        """Root of the components' average noise variance."""
        return _root((self.weights * self.parts.noise**2).sum(axis=-1))

    @property
    def uncertainty(self) -> Float[Array, "*shape"]:
        """Root of the components' average uncertainty variance plus the variance of their means."""
        spread = (self.parts.mean - self.mean[..., None]) ** 2
        return _root((self.weights * (self.parts.uncertainty**2 + spread)).sum(axis=-1))

    def components(self) -> tuple[Float[Array, "*shape components"], Normal]:
        """The weights and the normals that they mix."""
        return self.weights, Normal(self.parts.mean, self.parts.std)

    def inflate(self, noise: Float[ArrayLike, "..."], uncertainty: Float[ArrayLike, "..."]) -> "MixturePrediction":
        """Multiply noise and uncertainty of every component by these numbers."""
        noise, uncertainty = (
            factor[..., None] if isinstance(factor, np.ndarray) else jnp.asarray(factor)[..., None]
            for factor in (noise, uncertainty)
        )
        return MixturePrediction(self.weights, self.parts.inflate(noise, uncertainty))

    def rescale(self, scale: Float[ArrayLike, "..."], shift: Float[ArrayLike, "..."] = 0.0) -> "MixturePrediction":
        """The prediction of ``shift + scale * y``."""
        scale, shift = jnp.asarray(scale)[..., None], jnp.asarray(shift)[..., None]
        return MixturePrediction(self.weights, self.parts.rescale(scale, shift))


def mix(members: Predictive, shares: Float[Array, "members"] | np.ndarray | None = None) -> MixturePrediction:
    """The mixture of the predictions of an ensemble.

    Args:
        members: Predictions with a leading axis of members.
        shares: Weight of each member, with sum 1; equal weights if None.
    """
    if isinstance(members, MixturePrediction):
        weights, parts = members.weights, members.parts
    else:
        one = np if isinstance(members.mean, np.ndarray) else jnp
        weights = one.ones_like(members.mean[..., None])
        parts = Prediction(*(leaf[..., None] for leaf in (members.mean, members.noise, members.uncertainty)))

    def flat(leaf: Float[Array, "members *shape parts"]) -> Float[Array, "*shape components"]:
        order = (*range(1, leaf.ndim - 1), 0, leaf.ndim - 1)
        return leaf.transpose(order).reshape(*leaf.shape[1:-1], -1)

    shares = jnp.full(len(weights), 1 / len(weights)) if shares is None else shares
    scaled: Array = shares.reshape(-1, *[1] * (weights.ndim - 1)) * weights  # type: ignore[assignment]
    return MixturePrediction(flat(scaled), jax.tree.map(flat, parts))


_TAILS = ((0.63095604, 0.35169383, 0.01735013), (0.67954734, 1.25968786, 2.94581784))
"""Weights and standard deviations of three normals, with variance 1 together, that are nearest to a Student t with 5
degrees of freedom and variance 1: the KL divergence is 0.0003."""


def heavy_tailed(prediction: Predictive) -> MixturePrediction:
    """Replace every normal by three that approximate a Student t with 5 degrees of freedom, mean and variance kept.

    Errors of regression have more outliers than a normal, which would make a normal model too uncertain elsewhere.
    """
    share, scale = jnp.asarray(_TAILS)
    if not isinstance(prediction, MixturePrediction):
        prediction = mix(jax.tree.map(lambda leaf: leaf[None], prediction))

    def spread(leaf: Float[Array, "*shape parts"], factor: Float[Array, "3"]) -> Float[Array, "*shape spread"]:
        return (leaf[..., None] * factor).reshape(*leaf.shape[:-1], -1)

    ones = jnp.ones_like(share)
    parts = prediction.parts
    return MixturePrediction(
        spread(prediction.weights, share),
        Prediction(spread(parts.mean, ones), spread(parts.noise, scale), spread(parts.uncertainty, scale)),
    )


def add_uncertainty(prediction: Prediction, std: Float[ArrayLike, "..."]) -> Prediction:
    """The prediction with independent uncertainty of this standard deviation besides its own."""
    return Prediction(prediction.mean, prediction.noise, _root(prediction.uncertainty**2 + std**2))


def with_minimum_std(prediction: MixturePrediction, std: float) -> MixturePrediction:
    """Raise the uncertainty of components whose standard deviation is below ``std``, to that value."""
    parts = prediction.parts
    uncertainty = jnp.sqrt(jnp.maximum(parts.uncertainty**2, std**2 - parts.noise**2))
    return MixturePrediction(prediction.weights, Prediction(parts.mean, parts.noise, uncertainty))


def gather(prediction: Predictive) -> Prediction:
    """Mean, noise and uncertainty as NumPy arrays, for figures and tables."""
    fields = (prediction.mean, prediction.noise, prediction.uncertainty)
    return Prediction(*(np.asarray(field) for field in fields))  # type: ignore[arg-type]
