"""Contrast networks: a noise contrastive prior, learned from inputs alone, that measures how unlike the training rows
a row is.

They are BBB+NCP for a target that is always 0, with a known noise. The likelihood makes their belief certain at the
training rows, the prior makes it as uncertain as the output prior at noised ones, and there is no mean to be moved. At
a row where training rows have density p and noised ones q, the loss is least for a standard deviation that grows with
(q / p)^(1/4) and ends at 1: the networks compare the two densities, whatever the target is.

How uncertain a row makes the prediction of a target is another question, which held-out rows answer: see
`ncprior.tables.calibration`.
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import PRNGKeyArray

from ncprior.core.methods import INPUT_NOISE, Method, activation_of, predict_normal
from ncprior.core.networks import MLP, BayesianMean, Network
from ncprior.core.objectives import NLL, MeanNCP, Weighted
from ncprior.core.output_priors import OutputPrior
from ncprior.core.settings import Settings

NOISE = 0.3
"""Noise of the target that is always 0, in units of the output prior's standard deviation: less makes the networks more
certain at training rows than they can be with few of them, more blurs the edge of the data."""

STEPS = 1_500
"""Steps of training. There is nothing to overfit: noised rows are drawn anew for each of them."""

_MANY_NUMBERS = 1_024
"""Numbers in a row above which there are fewer steps: noise with so large a covariance is slow to draw."""


NETWORKS, SEARCHING_NETWORKS = 4, 1
"""How many networks there are in a model, and for each gap of the search."""


def training_steps(numbers: int) -> int:
    """Steps of training on rows of so many numbers."""
    return STEPS * _MANY_NUMBERS // max(numbers, _MANY_NUMBERS)


class KnownNoise(eqx.Module):
    """A head ``noise`` that is constant and not trained."""

    takes_columns: ClassVar[bool] = True
    std: float = eqx.field(static=True)

    def __call__(self, features: Array) -> Array:
        """The same standard deviation for every example."""
        return jnp.full_like(features[:1], self.std)


def contrast_method(settings: Settings) -> Method:
    """The method of these networks."""
    s = settings

    def init(inputs: int, outputs: int, *, key: PRNGKeyArray) -> Network:
        trunk = MLP.init(inputs, s.hidden, activation=activation_of(s), key=key)
        belief = BayesianMean.init(s.hidden[-1], outputs, std=s.belief_std, key=key)
        centred = eqx.tree_at(lambda head: head.mean, belief, jnp.zeros_like(belief.mean))  # and so it stays
        return Network(trunk, {"mean": centred, "noise": KnownNoise(NOISE)})

    objective = {
        "nll": Weighted(1.0, NLL()),
        "ncp": Weighted(s.gamma, MeanNCP(OutputPrior(1.0, 0.0))),
    }
    noise = INPUT_NOISE[s.input_noise](s.input_noise_std)
    return Method("contrast", init, objective, predict_normal, input_prior=noise)
