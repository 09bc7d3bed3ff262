"""A belief over the weights of every layer, where the distribution of the mean has no closed form.

The paper's "in other models": the NCP needs only the distribution of the predicted mean at x~, and samples give an
estimate of it. Here the mean is a whole network with a factorised normal belief over all of its weights; its mean and
standard deviation at x~ are taken from weight samples, and the divergence to the output prior is that of a normal with
these two.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from ncprior.distributions import Normal
from ncprior.methods import INPUT_NOISE, Method, acquire_by, ncp, predict_normal
from ncprior.networks import MLP, Linear, Network, Noise, PointMean
from ncprior.objectives import NLL, NoiseTie, View, Weighted, WeightKL
from ncprior.output_priors import OutputPrior
from ncprior.presets import Settings

_SAMPLES = 16
"""Weight samples that a prediction is made of, the same for every row."""

_TRAINING_SAMPLES = 4
"""Weight samples for the divergence in a training step."""


class Point(eqx.Module):
    """One network drawn from the belief: a point estimate of the mean."""

    trunk: MLP
    head: PointMean

    def __call__(self, x: Array) -> Normal:
        """The predicted mean for one example."""
        return self.head(self.trunk(x))


class DeepMean(eqx.Module):
    """The head ``mean`` with a belief ``N(means, softplus(rhos)^2)`` over all weights of a network of its own."""

    means: Point
    rhos: Any  # of the same structure

    @classmethod
    def init(
        cls, inputs: int, hidden: Sequence[int], outputs: int, *, slope: float, std: float, key: Array
    ) -> "DeepMean":
        """Means as any network begins with, and standard deviations a share ``std`` of the weights' usual size."""
        key_trunk, key_head = jax.random.split(key)
        trunk = MLP.init(inputs, hidden, slope=slope, key=key_trunk)
        means = Point(trunk, PointMean.init(hidden[-1], outputs, key=key_head))

        def rhos(layer: Linear) -> Linear:
            rho = jnp.log(jnp.expm1(std * len(layer.kernel) ** -0.5))
            return jax.tree.map(lambda leaf: jnp.full(leaf.shape, rho), layer)

        return cls(means, jax.tree.map(rhos, means, is_leaf=lambda node: isinstance(node, Linear)))

    def sample(self, *, key: Array) -> Point:
        """One network drawn from the belief, the same for every row that it is applied to."""
        means, structure = jax.tree.flatten(self.means)
        rhos, keys = jax.tree.leaves(self.rhos), jax.random.split(key, len(means))
        drawn = [
            mean + jax.nn.softplus(rho) * jax.random.normal(one, mean.shape)
            for mean, rho, one in zip(means, rhos, keys, strict=True)
        ]
        return jax.tree.unflatten(structure, drawn)

    def belief(self, x: Array, keys: Array) -> Normal:
        """The distribution of the mean for one example, from one weight sample for each key."""
        values = jnp.asarray(jax.vmap(lambda key: self.sample(key=key)(x).mean)(keys))
        return Normal(values.mean(0), jnp.sqrt(values.var(0) + 1e-12))

    def __call__(self, x: Array) -> Normal:
        """The distribution of the mean for one example, always from the same weight samples."""
        return self.belief(x, jax.random.split(jax.random.key(0), _SAMPLES))

    def kl(self, prior_std: float) -> Array:
        """``KL(q(theta) || N(0, s^2))`` with ``s`` the usual size of a layer's weights; ``prior_std`` for the last."""

        def one(layer: Linear, rho: Linear, last: bool) -> Array:
            prior = Normal(0.0, prior_std if last else (2 / len(layer.kernel)) ** 0.5)
            return jnp.sum(Normal(layer.kernel, jax.nn.softplus(rho.kernel)).kl(prior))

        pairs = zip(self.means.trunk.layers, self.rhos.trunk.layers, strict=True)
        inner = sum((one(layer, rho, False) for layer, rho in pairs), jnp.zeros(()))
        return inner + one(self.means.head.linear, self.rhos.head.linear, True)


class SampledMeanNCP(eqx.Module):
    """``KL(N(mu_mu, sigma_mu^2) || q(mu(x~)))`` with ``q`` a normal whose moments are those of weight samples."""

    prior: OutputPrior = OutputPrior()
    samples: int = eqx.field(static=True, default=_TRAINING_SAMPLES)

    def __call__(self, view: View) -> Array:
        """One loss for each row."""
        head: Any = view.network.heads["mean"]
        keys = jax.random.split(view.key, self.samples)
        layers = jax.vmap(lambda key: head.sample(key=key))(keys)
        values = jnp.asarray(jax.vmap(lambda layer: jax.vmap(layer)(view.noised["inputs"]).mean)(layers))
        belief = Normal(values.mean(0), jnp.sqrt(values.var(0) + 1e-4))
        return self.prior.divergence(view.of_noised(view.batch.targets), belief).sum(-1)


def deep_ncp(settings: Settings, trunk: Callable[..., Any] | None = None) -> Method:
    """Bayes by Backprop over all layers with a noise contrastive prior on the sampled mean.

    A ``trunk`` of the user's own stays a point estimate; the belief is over the layers that follow it.
    """
    s = settings

    def init(inputs: int, outputs: int, *, key: Array) -> Network:
        keys = jax.random.split(key, 4)
        see = (lambda x: x) if trunk is None else trunk(inputs, key=keys[0])
        size = jax.eval_shape(see, jnp.zeros(inputs)).shape[0]
        mean = DeepMean.init(size, s.hidden, outputs, slope=s.leaky_slope, std=s.belief_std, key=keys[1])
        noise = DeepNoise(
            MLP.init(size, s.hidden, slope=s.leaky_slope, key=keys[2]),
            Noise.init(s.hidden[-1], outputs, floor=s.noise_floor, key=keys[3]),
        )
        return Network(see, {"inputs": lambda x: x, "mean": mean, "noise": noise})

    prior = OutputPrior(s.output_std, s.output_centre, s.direction)
    objective = {
        "nll": Weighted(1.0, NLL("sampled")),
        "weight_kl": Weighted(s.ncp_weight_kl, WeightKL(s.weight_prior_std)),
        "ncp": ncp(s, s.gamma, SampledMeanNCP(prior)),
    }
    if s.noise_tie:
        objective["noise_tie"] = ncp(s, s.noise_tie, NoiseTie())
    noised = INPUT_NOISE[s.input_noise](s.input_noise_std)
    return Method("deep+ncp", init, objective, predict_normal, acquire_by("information_gain", s), noised)


class DeepNoise(eqx.Module):
    """The head ``noise`` with hidden layers of its own, as the mean's have a belief over their weights."""

    trunk: MLP
    head: Noise

    def __call__(self, x: Array) -> Array:
        """The standard deviation of the noise."""
        return self.head(self.trunk(x))
