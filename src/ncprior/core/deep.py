"""A belief over the weights of every layer, where the distribution of the mean has no closed form.

The paper's "in other models": the NCP needs only the distribution of the predicted mean at x~, and samples give an
estimate of it. Here the mean is a whole network with a factorised normal belief over all of its weights, and the
divergence of its mean from the output prior is estimated without bias from a few samples.
"""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Key, PRNGKeyArray, Scalar

from ncprior.core.distributions import Normal
from ncprior.core.methods import INPUT_NOISE, Method, acquire_by, activation_of, bayesian_ncp, predict_normal
from ncprior.core.networks import MLP, Activation, BayesianMean, Linear, Network, Noise, PointMean, Trunk
from ncprior.core.objectives import NLL, View
from ncprior.core.output_priors import OutputPrior
from ncprior.core.settings import Settings

_SAMPLES = 16
"""Weight samples that a prediction is made of, the same for every row."""

TRAINING_SAMPLES = 8
"""Samples of the mean at every row in a training step: the fewest with which the gradient of the estimated divergence
has a finite variance, see `OutputPrior.estimated_divergence`."""

_LIKELIHOOD_SAMPLES = 2
"""Samples of the mean at every row for the expected likelihood, which is right in expectation with any number: those of
the rows are independent, so that their average has little noise."""


class Point(eqx.Module):
    """One network drawn from the belief: a point estimate of the mean."""

    trunk: MLP
    head: PointMean

    def __call__(self, x: Float[Array, "inputs"]) -> Normal:
        """The predicted mean for one example."""
        return self.head(self.trunk(x))


class DeepMean(eqx.Module):
    """The head ``mean`` as a network with a belief over all of its weights. Every layer is a `BayesianMean`."""

    hidden: tuple[BayesianMean, ...]
    last: BayesianMean
    activation: Activation = eqx.field(static=True)

    @property
    def layers(self) -> tuple[BayesianMean, ...]:
        """All layers, from the first to the last."""
        return (*self.hidden, self.last)

    @classmethod
    def init(
        cls,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        *,
        activation: Activation,
        std: float,
        bias_belief: bool = True,
        key: PRNGKeyArray,
    ) -> "DeepMean":
        """Glorot-uniform means, and standard deviations of ``std / sqrt(inputs)`` for each layer."""

        def layer(inputs: int, outputs: int, key: PRNGKeyArray) -> BayesianMean:
            point = Linear.init(inputs, outputs, key=key)
            rho = jnp.log(jnp.expm1(std * inputs**-0.5))
            bias_rho = jnp.full(outputs, rho) if bias_belief else None
            return BayesianMean(point.kernel, jnp.full(point.kernel.shape, rho), point.bias, bias_rho)

        sizes = (inputs, *hidden, outputs)
        keys = jax.random.split(key, len(sizes) - 1)
        *first, last = map(layer, sizes[:-1], sizes[1:], keys)
        return cls(tuple(first), last, activation)

    def sample(self, *, key: PRNGKeyArray) -> Point:
        """Draw one network from the belief, to be used for all rows."""
        keys = jax.random.split(key, len(self.layers))
        drawn = [layer.sample(key=one).linear for layer, one in zip(self.layers, keys, strict=True)]
        return Point(MLP(tuple(drawn[:-1]), self.activation), PointMean(drawn[-1]))

    def draw(self, x: Float[Array, "inputs"], *, key: PRNGKeyArray) -> Float[Array, "outputs"]:
        """Draw the mean of one example, with weights drawn for this example alone.

        Given its input, the output of a layer is normal and independent from unit to unit, so it is drawn instead of
        the weights (local reparameterisation, Kingma et al., 2015). The distribution at every row is that of `sample`.
        Rows are independent, and their average has far less noise than with shared weights.
        """
        keys = jax.random.split(key, len(self.layers))
        for number, (layer, one) in enumerate(zip(self.layers, keys, strict=True)):
            belief = layer(self.activation(x) if number else x)
            x = jnp.asarray(belief.mean + belief.std * jax.random.normal(one, jnp.shape(belief.mean)))
        return x

    def draws(
        self, rows: Float[Array, "rows inputs"], count: int, *, key: PRNGKeyArray
    ) -> Float[Array, "count rows outputs"]:
        """Draw the mean at every row ``count`` times, independently."""
        keys = jax.random.split(key, (count, len(rows)))
        return jax.vmap(jax.vmap(lambda x, one: self.draw(x, key=one)), in_axes=(None, 0))(rows, keys)

    def functions(self, x: Float[Array, "inputs"], keys: Key[Array, "samples"]) -> Float[Array, "samples outputs"]:
        """The mean of one example in several networks drawn from the belief, one for each key."""
        return jnp.asarray(jax.vmap(lambda key: self.sample(key=key)(x).mean)(keys))

    def __call__(self, x: Float[Array, "inputs"]) -> Normal:
        """Mean and std over weight samples, the same ones for every example."""
        values = self.functions(x, _fixed_keys())
        # The root of 0 has no gradient.
        return Normal(values.mean(0), jnp.sqrt(values.var(0, ddof=1) + 1e-12))

    def deviations(self, x: Float[Array, "inputs"]) -> Float[Array, "samples outputs"]:
        """Scaled deviations of the sampled means from their average.

        The product of the deviations of two rows, summed over samples, is the covariance of their means; see
        `BayesianMean.deviations`.
        """
        values = self.functions(x, _fixed_keys())
        return (values - values.mean(0)) / (_SAMPLES - 1) ** 0.5

    def kl(self, prior_std: float) -> Scalar:
        """``KL(q(theta) || N(0, s^2))``, kernels and the biases that have a belief.

        ``s`` is ``prior_std`` for the last layer, and for others the usual size of the weights in their kernel.
        """
        inner = (layer.kl((2 / len(layer.mean)) ** 0.5) for layer in self.hidden)
        return sum(inner, self.last.kl(prior_std))


def _fixed_keys() -> Key[Array, "samples"]:
    return jax.random.split(jax.random.key(0), _SAMPLES)


class ExpectedNLL(eqx.Module):
    """``-E_q[ln p(y | x, theta)]`` at the clean rows, averaged over samples of the mean at each row.

    The first term of Equation 5. There is no closed form for a belief over several layers; the average over any number
    of samples has the right expectation.
    """

    samples: int = eqx.field(static=True, default=_LIKELIHOOD_SAMPLES)

    def __call__(self, view: View) -> Float[Array, "rows"]:
        """One loss for each row."""
        head = view.network.heads["mean"]
        assert isinstance(head, DeepMean)
        draws = head.draws(view.features, self.samples, key=view.key)
        return -Normal(draws, view.clean["noise"]).log_prob(view.batch.targets).mean(0).sum(-1)


class SampledMeanNCP(eqx.Module):
    """``KL(N(mu_mu, sigma_mu^2) || q(mu(x~)))``, estimated from samples of the mean at every noised row.

    The second term of Equation 5. For a normal ``q`` the expectation is exact at any number of samples, see
    `OutputPrior.estimated_divergence`.
    """

    prior: OutputPrior = OutputPrior()
    samples: int = eqx.field(static=True, default=TRAINING_SAMPLES)

    def __check_init__(self) -> None:
        if self.samples < TRAINING_SAMPLES:
            raise ValueError(f"a divergence needs at least {TRAINING_SAMPLES} samples, got {self.samples}")

    def __call__(self, view: View) -> Float[Array, "rows"]:
        """One loss for each row."""
        head = view.network.heads["mean"]
        assert isinstance(head, DeepMean)
        draws = head.draws(view.noised["inputs"], self.samples, key=view.key)
        return self.prior.estimated_divergence(view.of_noised(view.batch.targets), draws).sum(-1)


def deep_ncp(settings: Settings, trunk: Callable[..., Trunk] | None = None) -> Method:
    """Bayes by Backprop over all layers with a noise contrastive prior on the sampled mean.

    A custom ``trunk`` stays a point estimate; the belief is over the layers that follow it. The settings of BBB+NCP
    apply: ``bias_belief`` is for the biases of every layer. The ``expectation`` is an average over two samples at every
    row if ``exact``, and uses one network for each mini batch if ``sampled``.
    """
    s = settings

    def init(inputs: int, outputs: int, *, key: PRNGKeyArray) -> Network:
        keys = jax.random.split(key, 4)
        body: Trunk = (lambda x: x) if trunk is None else trunk(inputs, key=keys[0])
        size = jax.eval_shape(body, jnp.zeros(inputs)).shape[0]
        mean = DeepMean.init(
            size,
            s.hidden,
            outputs,
            activation=activation_of(s),
            std=s.belief_std,
            bias_belief=s.bias_belief,
            key=keys[1],
        )
        noise = DeepNoise(
            MLP.init(size, s.hidden, activation=activation_of(s), key=keys[2]),
            Noise.init(s.hidden[-1], outputs, floor=s.noise_floor, key=keys[3]),
        )
        return Network(body, {"inputs": lambda x: x, "mean": mean, "noise": noise})

    prior = OutputPrior(s.output_std, s.output_centre, s.direction)
    nll = ExpectedNLL() if s.expectation == "exact" else NLL("sampled")
    objective = bayesian_ncp(s, nll, SampledMeanNCP(prior))
    noised = INPUT_NOISE[s.input_noise](s.input_noise_std)
    return Method("deep+ncp", init, objective, predict_normal, acquire_by("information_gain", s), noised)


class DeepNoise(eqx.Module):
    """The head ``noise`` with its own hidden layers, which are point estimates."""

    trunk: MLP
    head: Noise

    def __call__(self, x: Float[Array, "inputs"]) -> Float[Array, "outputs"]:
        """The standard deviation of the noise."""
        return self.head(self.trunk(x))
