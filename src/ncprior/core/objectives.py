"""Loss terms and their weighted sum by name.

A term is a function of a `View`: the outputs of a network for a mini batch and for its noised copy. It returns
one loss for each row, shape ``[rows]``, or one number for the whole network. An objective is a dictionary of
weighted terms; every term is recorded under its name.
"""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, PRNGKeyArray, PyTree, Scalar

from ncprior.core.distributions import Normal
from ncprior.core.input_priors import InputPrior
from ncprior.core.networks import Network
from ncprior.core.output_priors import OutputPrior


class Batch(NamedTuple):
    """A mini batch. ``weights`` are 0 for rows that only fill up a batch of fixed size.

    The weights of all visible rows, not those of the batch, have mean 1.
    """

    inputs: Float[Array, "rows inputs"]
    targets: Float[Array, "rows outputs"]
    weights: Float[Array, "rows"]
    num_visible: Scalar  # labels that are visible in all, not only in this batch


class View(NamedTuple):
    """What loss terms are computed from: a mini batch, its noised inputs, and the outputs of the network for both.

    ``noised`` is empty for a method without input prior. An input prior may noise only the first rows of the batch.
    """

    network: Network
    batch: Batch
    features: Float[Array, "rows features"]  # of the clean rows
    clean: dict[str, PyTree[Array]]  # outputs of the heads at x
    noised: dict[str, PyTree[Array]]  # outputs of the heads at x~
    key: PRNGKeyArray
    noised_inputs: Float[Array, "noised inputs"] | None = None  # x~ itself

    @classmethod
    def of(cls, network: Network, batch: Batch, input_prior: InputPrior | None, *, key: PRNGKeyArray) -> "View":
        """Apply the network to the clean and the noised rows, in one pass of twice the rows."""
        key_prior, key_terms = jax.random.split(key)
        rows, noised_inputs = batch.inputs, None
        if input_prior is not None:
            noised_inputs = input_prior(batch.inputs, key=key_prior)
            rows = jnp.concatenate([rows, noised_inputs])
        features = jax.vmap(network.trunk)(rows)
        outputs = jax.vmap(network.read)(features)
        split = len(batch.inputs)
        clean = jax.tree.map(lambda leaf: leaf[:split], outputs)
        noised = jax.tree.map(lambda leaf: leaf[split:], outputs) if input_prior is not None else {}
        return cls(network, batch, features[:split], clean, noised, key_terms, noised_inputs)

    def of_noised(self, values: Float[Array, "rows ..."]) -> Float[Array, "noised ..."]:
        """The values of those clean rows that have a noised copy."""
        return values if self.noised_inputs is None else values[: len(self.noised_inputs)]


Term = Callable[[View], Float[Array, "rows"] | Scalar]


class Weighted(NamedTuple):
    """A term and its weight in the loss."""

    weight: float | Scalar
    term: Term


Objective = Mapping[str, Weighted]


def numbers_of(objective: Objective) -> PyTree[Scalar]:
    """Weights of the terms and numbers within them, in the structure of the objective.

    As arguments of a compiled program, in place of those that are part of it, they need not be compiled again.

    >>> numbers_of({"nll": Weighted(1.0, NLL())})
    {'nll': Weighted(weight=Array(1., dtype=float32), term=NLL())}
    """
    numbers = eqx.filter(objective, lambda leaf: isinstance(leaf, float))
    return jax.tree.map(lambda number: jnp.asarray(number, jnp.float32), numbers)


def with_numbers(objective: Objective, numbers: PyTree[Scalar]) -> Objective:
    """The objective with other numbers; see `numbers_of`."""
    return eqx.combine(numbers, objective)


def total(objective: Objective, view: View) -> tuple[Scalar, dict[str, Scalar]]:
    """The loss and the value of every term by name, before its weight.

    A term of rows counts ``sum_i w_i value_i / n`` with the ``n`` rows in use, whatever their weights sum to: so the
    mean over mini batches is that over the table, and no batch is worth more for having light rows.
    """
    weights = view.batch.weights
    terms = {}
    for name, (_, term) in objective.items():
        value = term(view)
        counts = weights[: len(value)] if value.ndim else weights
        terms[name] = jnp.sum(counts * value) / jnp.sum(counts > 0) if value.ndim else value
    loss = sum((jnp.asarray(objective[name].weight) * value for name, value in terms.items()), jnp.zeros(()))
    return loss, terms


class NLL(eqx.Module):
    """``-E_q[ln p(y | x, theta)]`` at the clean rows, the first term of Equations 2, 5 and 9.

    ``exact`` uses the closed form; ``sampled`` draws one layer from the belief for each mini batch, shared by its
    rows, as the released code did. They agree for a point estimate.
    """

    expectation: Literal["exact", "sampled"] = eqx.field(static=True, default="exact")

    def __call__(self, view: View) -> Float[Array, "rows"]:
        """One loss for each row."""
        mean = view.clean["mean"]
        if self.expectation == "sampled":
            layer = view.network.heads["mean"].sample(key=view.key)  # type: ignore[attr-defined]
            mean = jax.vmap(layer)(view.features)
        return -mean.expected_log_prob(view.batch.targets, view.clean["noise"]).sum(-1)


class WeightKL(eqx.Module):
    """``KL(q(theta) || N(0, std^2)) / num_visible``: Bayes by Backprop's prior in weight space, for each label."""

    std: float

    def __call__(self, view: View) -> Scalar:
        """One number for the network."""
        return view.network.heads["mean"].kl(self.std) / view.batch.num_visible  # type: ignore[attr-defined]


class MeanNCP(eqx.Module):
    """``KL(N(mu_mu, sigma_mu^2) || q(mu(x~)))``: the NCP on the predicted mean, second term of Equation 5."""

    prior: OutputPrior = OutputPrior()

    def __call__(self, view: View) -> Float[Array, "rows"]:
        """One loss for each row."""
        return self.prior.divergence(view.of_noised(view.batch.targets), view.noised["mean"]).sum(-1)


class PredictiveNCP(eqx.Module):
    """``KL(N(mu_y, sigma_y^2) || p(y | x~))``: the NCP on the whole prediction, second term of Equation 2.

    The form for point estimates, where the prediction has noise but no belief over the mean.
    """

    prior: OutputPrior = OutputPrior()

    def __call__(self, view: View) -> Float[Array, "rows"]:
        """One loss for each row."""
        mean: Normal = view.noised["mean"]
        prediction = Normal(mean.mean, view.noised["noise"])
        return self.prior.divergence(view.of_noised(view.batch.targets), prediction).sum(-1)


class NoiseNCP(eqx.Module):
    """Pulls the noise at x~ towards ``std``: ``KL(N(m, std^2) || N(m, noise(x~)^2))`` for the same mean m.

    Not in the paper; the released code has it for BBB+NCP on the toy data. Without it nothing says what the noise
    should be off the data, and it may take the place of uncertainty there.
    """

    std: float

    def __call__(self, view: View) -> Float[Array, "rows"]:
        """One loss for each row."""
        return Normal(0.0, self.std).kl(Normal(0.0, view.noised["noise"])).sum(-1)


class NoisedNLL(eqx.Module):
    """``-ln p(y | x~)``: the label of the clean row predicted at the noised one, as plain data augmentation.

    Not in the paper's loss for the classifier (Equation 9); the released code adds it.
    """

    def __call__(self, view: View) -> Float[Array, "rows"]:
        """One loss for each row."""
        log_prob = view.noised["mean"].expected_log_prob(view.of_noised(view.batch.targets), view.noised["noise"])
        return -log_prob.sum(-1)


class InDistribution(eqx.Module):
    """``-ln Bernoulli(0 | pi(x))``: training rows are in distribution, second term of Equation 9."""

    def __call__(self, view: View) -> Float[Array, "rows"]:
        """One loss for each row."""
        return -view.clean["ood"].log_prob(0).sum(-1)


class OutOfDistribution(eqx.Module):
    """``-ln Bernoulli(1 | pi(x~))``: noised rows are out of distribution, the NCP of Equation 9."""

    def __call__(self, view: View) -> Float[Array, "rows"]:
        """One loss for each row."""
        return -view.noised["ood"].log_prob(1).sum(-1)
