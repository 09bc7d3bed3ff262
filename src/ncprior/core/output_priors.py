"""Output priors: how uncertain to be at noised inputs (Equations 1 and 2)."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import digamma
from jax.typing import ArrayLike
from jaxtyping import Float

from ncprior.core.distributions import Normal

_SMALLEST_VARIANCE = 1e-12
"""Added to the variance of samples, as to that of a belief: equal samples would have an infinite divergence."""


class OutputPrior(eqx.Module):
    """``N(centre, std^2)``, and the direction of the KL divergence between it and the model.

    ``centre`` is ``"target"`` for the label of the clean row (the paper's choice, ``mu_y = y``, which acts as data
    augmentation), ``"prediction"`` for the mean that the model itself predicts there, or a constant, the default
    prediction outside the data. With ``"prediction"`` the means of prior and model agree and no gradient reaches them,
    so that the divergence changes only the spread. ``std`` is the sigma_y of the paper, in units of the (standardised)
    target. ``forward`` is ``KL(prior || model)`` as in Equations 2 and 5; ``reverse`` is ``KL(model || prior)``, which
    the derivation in appendix B arrives at.
    """

    std: Float[ArrayLike, "*outputs"] = 1.0
    centre: Literal["target", "prediction"] | Float[ArrayLike, "*outputs"] = "target"
    direction: Literal["forward", "reverse"] = eqx.field(static=True, default="forward")

    def __check_init__(self) -> None:
        if self.direction not in ("forward", "reverse"):
            raise ValueError(f"direction must be 'forward' or 'reverse', got {self.direction!r}")
        if isinstance(self.centre, str) and self.centre not in ("target", "prediction"):
            raise ValueError(f"centre must be 'target', 'prediction' or a number, got {self.centre!r}")

    @property
    def at_prediction(self) -> bool:
        """Whether the prior is centred at the model's own mean."""
        return isinstance(self.centre, str) and self.centre == "prediction"

    def __call__(self, targets: Float[Array, "*shape"], prediction: Float[ArrayLike, "*shape"]) -> Normal:
        """The prior at the noised inputs of rows with these targets, where the model predicts these means."""
        if self.at_prediction:
            return Normal(jax.lax.stop_gradient(jnp.asarray(prediction)), self.std)
        return Normal(targets if isinstance(self.centre, str) else self.centre, self.std)

    def divergence(self, targets: Float[Array, "*shape"], model: Normal) -> Float[Array, "*shape"]:
        """The KL divergence between the prior and the model, one for each row and output."""
        prior = self(targets, model.mean)
        if self.at_prediction:
            model = Normal(prior.mean, model.std)
        return prior.kl(model) if self.direction == "forward" else model.kl(prior)

    def estimated_divergence(
        self, targets: Float[Array, "*shape"], samples: Float[Array, "samples *shape"]
    ) -> Float[Array, "*shape"]:
        r"""The divergence of a model given by samples, estimated for each row and output.

        The estimate is unbiased for samples of a normal $N(m, v)$. The mean $\hat m$ and the unbiased variance $s^2$ of
        $S$ samples are then independent, $\hat m$ is normal with variance $v / S$, and $(S - 1) s^2 / v$ has a
        chi-square distribution with $k = S - 1$ degrees of freedom. So

        $$E[\ln s^2] = \ln v + \psi(k / 2) - \ln(k / 2), \quad E[1 / s^2] = \frac{k}{(k - 2) v}, \quad
        E[(\mu - \hat m)^2] = (\mu - m)^2 + v / S,$$

        and the excess of each is subtracted. The last is 0, with no excess, for a prior centred at the prediction. The
        variance of the forward direction is finite with 6 samples or more
        (that of $1 / s^2$ needs $k > 4$), and that of its gradient, which goes with $1 / s^3$, with 8 ($k > 6$).
        The expectation is never below 0, but an estimate can be.
        """
        count = len(samples)
        freedom = count - 1
        mean = samples.mean(0)
        prior = self(targets, mean)
        square = jnp.zeros_like(mean) if self.at_prediction else (mean - prior.mean) ** 2
        excess = 0.0 if self.at_prediction else 1 / count  # of the square, in units of the variance
        variance = samples.var(0, ddof=1) + _SMALLEST_VARIANCE
        log_ratio = 0.5 * (jnp.log(variance) - digamma(freedom / 2) + np.log(freedom / 2)) - jnp.log(prior.std)
        if self.direction == "forward":
            inverse = (freedom - 2) / freedom / variance
            return log_ratio + 0.5 * (inverse * (jnp.asarray(prior.std) ** 2 + square) - excess - 1)
        return 0.5 * ((variance + square - excess * variance) / jnp.asarray(prior.std) ** 2 - 1) - log_ratio
