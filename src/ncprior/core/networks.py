"""Networks: a trunk that makes features and heads that read them.

A module handles one example; `jax.vmap` handles the batch. (Those here also take many examples as the columns of a
matrix, which predicts large tables at twice the speed; see `read_columns`.) The trunk can be any Equinox module or
function from an input vector to a feature vector. A head maps features to what its name promises:

- ``mean``: a `Normal`, the belief ``q(mu(x))`` over the predicted mean; its std is 0 for a point estimate,
- ``noise``: the standard deviation of the observation noise, positive,
- ``ood``: a `Bernoulli`, whether the input is out of distribution,

one entry for each output of the regression. Other names and values are free: loss terms find them by name.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, PRNGKeyArray, PyTree, Scalar

from ncprior.core.distributions import Bernoulli, Normal

_SMALLEST_VARIANCE = 1e-12
"""Added to the variance of a belief: the root of 0 has no gradient, and zero features make it 0."""

Trunk = Callable[[Float[Array, "inputs"]], Float[Array, "features"]]
Heads = dict[str, Callable[[Float[Array, "features"]], PyTree[Array]]]


def glorot_uniform(inputs: int, outputs: int, *, key: PRNGKeyArray) -> Float[Array, "inputs outputs"]:
    """A kernel from ``U[-a, a]`` with ``a = sqrt(6 / (inputs + outputs))`` (Glorot and Bengio, 2010)."""
    limit = (6 / (inputs + outputs)) ** 0.5
    return jax.random.uniform(key, (inputs, outputs), minval=-limit, maxval=limit)


def multiply(
    x: Float[Array, "inputs *examples"], kernel: Float[Array, "inputs outputs"]
) -> Float[Array, "outputs *examples"]:
    """``x @ kernel`` for one example ``[inputs]``, or for the columns of ``[inputs, examples]``."""
    return x @ kernel if x.ndim == 1 else kernel.T @ x


def as_column(bias: Float[Array, "outputs"], x: Float[Array, "inputs *examples"]) -> Float[Array, "outputs *ones"]:
    """The bias ``[outputs]`` for one example; ``[outputs, 1]`` for examples that are columns."""
    return bias if x.ndim == 1 else bias[:, None]


def read_columns(
    module: Callable[[Array], PyTree[Array]], columns: Float[Array, "inputs examples"]
) -> PyTree[Float[Array, "examples ..."]]:
    """Apply a module to examples that are columns; the result has a leading axis of examples.

    Modules with ``takes_columns`` get all columns at once, others one at a time through `jax.vmap`. XLA multiplies
    ``[units, units] @ [units, rows]`` about twice as fast on a CPU as ``[rows, units] @ [units, units]`` for some
    hundreds of rows; for the few rows of a mini batch it is the other way round.
    """
    if getattr(module, "takes_columns", False):
        return jax.tree.map(jnp.transpose, module(columns))
    return jax.vmap(module, in_axes=1)(columns)


class Constants(eqx.Module):
    """Arrays of a network that are saved with its weights and never trained, such as quantiles of the training rows."""


class Linear(eqx.Module):
    """``x @ kernel + bias``, with a Glorot-uniform kernel and a bias of zero to begin with."""

    takes_columns: ClassVar[bool] = True
    kernel: Float[Array, "inputs outputs"]
    bias: Float[Array, "outputs"]

    @classmethod
    def init(cls, inputs: int, outputs: int, *, key: PRNGKeyArray) -> "Linear":
        """A layer of this size."""
        return cls(glorot_uniform(inputs, outputs, key=key), jnp.zeros(outputs))

    def __call__(self, x: Float[Array, "inputs *examples"]) -> Float[Array, "outputs *examples"]:
        """Outputs for one example, or for examples that are columns."""
        return multiply(x, self.kernel) + as_column(self.bias, x)

    def first_inputs_only(self, inputs: int) -> "Linear":
        """The layer for the first ``inputs`` inputs, where all others are 0."""
        return Linear(self.kernel[:inputs], self.bias)


class TransposedLinear(eqx.Module):
    """A `Linear` whose kernel lies in memory as multiplies with columns read it.

    XLA takes 60% longer for ``kernel.T @ x`` than for ``kernel @ x`` with kernels of 128 x 128 and 64 columns.
    """

    takes_columns: ClassVar[bool] = True
    kernel: Float[Array, "outputs inputs"]
    bias: Float[Array, "outputs"]

    def __call__(self, x: Float[Array, "inputs *examples"]) -> Float[Array, "outputs *examples"]:
        """Outputs for one example, or for examples that are columns."""
        return self.kernel @ x + as_column(self.bias, x)

    def first_inputs_only(self, inputs: int) -> "TransposedLinear":
        """The layer for the first ``inputs`` inputs, where all others are 0."""
        return TransposedLinear(self.kernel[:, :inputs], self.bias)


@dataclass(frozen=True)
class LeakyReLU:
    """``x`` above 0 and ``slope * x`` below: the activation of the paper's models."""

    slope: float = 0.2

    def __call__(self, x: Array) -> Array:
        """The activations of units with these inputs."""
        return jax.nn.leaky_relu(x, self.slope)


@dataclass(frozen=True)
class GELU:
    """``x Phi(x)``, a ReLU without a kink (Hendrycks and Gimpel, 2016).

    A network of them learns a smooth function from far fewer rows than one of leaky ReLUs, and in fewer steps.
    """

    def __call__(self, x: Array) -> Array:
        """The activations of units with these inputs, by the approximation of the normal distribution with tanh."""
        return jax.nn.gelu(x)


Activation = LeakyReLU | GELU
_LEAKY = LeakyReLU()


class MLP(eqx.Module):
    """Fully connected layers with an activation after each: the trunk of the paper's models."""

    takes_columns: ClassVar[bool] = True
    layers: tuple[Linear | TransposedLinear, ...]
    activation: Activation = eqx.field(static=True)

    @classmethod
    def init(cls, inputs: int, hidden: Sequence[int], *, activation: Activation = _LEAKY, key: PRNGKeyArray) -> "MLP":
        """A trunk with layers of these sizes."""
        sizes = (inputs, *hidden)
        keys = jax.random.split(key, len(hidden))
        layers = [Linear.init(a, b, key=k) for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=True)]
        return cls(tuple(layers), activation)

    def __call__(self, x: Float[Array, "inputs *examples"]) -> Float[Array, "features *examples"]:
        """Features of one example, or of examples that are columns."""
        return self.activations(x)[-1]

    def first_inputs_only(self, inputs: int) -> "MLP":
        """The trunk for the first ``inputs`` inputs, where all others are 0."""
        first, *others = self.layers
        return MLP((first.first_inputs_only(inputs), *others), self.activation)

    def activations(self, x: Float[Array, "inputs *examples"]) -> list[Float[Array, "units *examples"]]:
        """The input of every layer, from the example itself to the features that the last layer makes."""
        found = [x]
        for layer in self.layers:
            found.append(self.activation(layer(found[-1])))
        return found


def transposed_kernels(weights: PyTree[Array]) -> PyTree[Array]:
    """The same weights with the kernels of every `MLP` transposed, for `with_transposed_layers`.

    They may be those of several networks, on a leading axis.
    """

    def transposed(mlp: PyTree[Array]) -> PyTree[Array]:
        if not isinstance(mlp, MLP):
            return mlp
        kernels = [np.ascontiguousarray(np.swapaxes(layer.kernel, -1, -2)) for layer in mlp.layers]
        return eqx.tree_at(lambda tree: [layer.kernel for layer in tree.layers], mlp, kernels)

    return jax.tree.map(transposed, weights, is_leaf=_is_mlp)


def with_transposed_layers(network: "Network") -> "Network":
    """A network of weights from `transposed_kernels`, which reads them as what they are."""

    def reading(mlp: PyTree[Array]) -> PyTree[Array]:
        if not isinstance(mlp, MLP):
            return mlp
        return MLP(tuple(TransposedLinear(layer.kernel, layer.bias) for layer in mlp.layers), mlp.activation)

    return jax.tree.map(reading, network, is_leaf=_is_mlp)


def _is_mlp(node: object) -> bool:
    return isinstance(node, MLP)


class PointMean(eqx.Module):
    """The head ``mean`` of a deterministic network: a point estimate, so a belief of std 0."""

    takes_columns: ClassVar[bool] = True
    linear: Linear

    @classmethod
    def init(cls, features: int, outputs: int, *, key: PRNGKeyArray) -> "PointMean":
        """A head of this size."""
        return cls(Linear.init(features, outputs, key=key))

    def __call__(self, features: Float[Array, "features *examples"]) -> Normal:
        """The predicted mean."""
        mean = self.linear(features)
        return Normal(mean, jnp.zeros_like(mean))

    def deviations(self, features: Float[Array, "features"]) -> Float[Array, "weights outputs"]:  # noqa: ARG002
        """A point estimate has none: ``[0, outputs]``."""
        return jnp.zeros((0, len(self.linear.bias)))

    def sample(self, *, key: PRNGKeyArray) -> "PointMean":  # noqa: ARG002
        """The head itself, as there is no belief to draw from."""
        return self


class BayesianMean(eqx.Module):
    """The head ``mean`` of a Bayesian network: a factorised normal belief over an output layer (Equation 4).

    The belief over the weights is ``N(mean, softplus(rho)^2)``. As the layer is linear, the belief over its output,
    ``q(mu(x))``, is normal too, and its variance ``features^2 @ softplus(rho)^2`` has no need of samples.
    ``bias_rho`` is None for a bias that is a point estimate.
    """

    takes_columns: ClassVar[bool] = True
    mean: Float[Array, "features outputs"]
    rho: Float[Array, "features outputs"]
    bias: Float[Array, "outputs"]
    bias_rho: Float[Array, "outputs"] | None

    @classmethod
    def init(
        cls, features: int, outputs: int, *, std: float = 0.1, bias_belief: bool = False, key: PRNGKeyArray
    ) -> "BayesianMean":
        """Weight means drawn from ``N(0, std^2)``, and weight beliefs of this std, as in the released code."""
        rho = jnp.log(jnp.expm1(std))
        return cls(
            std * jax.random.normal(key, (features, outputs)),
            jnp.full((features, outputs), rho),
            jnp.zeros(outputs),
            jnp.full(outputs, rho) if bias_belief else None,
        )

    def __call__(self, features: Float[Array, "features *examples"]) -> Normal:
        """The belief ``q(mu(x))`` over the predicted mean."""
        variance = multiply(features**2, jax.nn.softplus(self.rho) ** 2)
        if self.bias_rho is not None:
            variance = variance + as_column(jax.nn.softplus(self.bias_rho) ** 2, features)
        mean = multiply(features, self.mean) + as_column(self.bias, features)
        return Normal(mean, jnp.sqrt(variance + _SMALLEST_VARIANCE))

    def deviations(self, features: Float[Array, "features"]) -> Float[Array, "weights outputs"]:
        """Change of the mean of one example by one standard deviation of each weight.

        The squares sum to the variance of ``q(mu(x))``. The product of the deviations of two rows, summed over the
        weights, is the covariance of their means.
        """
        parts = features[:, None] * jax.nn.softplus(self.rho)
        if self.bias_rho is None:
            return parts
        return jnp.concatenate([parts, jax.nn.softplus(self.bias_rho)[None]])

    def weights(self) -> list[Normal]:
        """The beliefs over the kernel and, if there is one, over the bias."""
        beliefs = [Normal(self.mean, jax.nn.softplus(self.rho))]
        if self.bias_rho is not None:
            beliefs.append(Normal(self.bias, jax.nn.softplus(self.bias_rho)))
        return beliefs

    def sample(self, *, key: PRNGKeyArray) -> PointMean:
        """Draw one layer from the belief, to be used for all rows."""
        key_kernel, key_bias = jax.random.split(key)
        noise = jax.random.normal(key_kernel, self.mean.shape)
        kernel = self.mean + jax.nn.softplus(self.rho) * noise
        bias = self.bias
        if self.bias_rho is not None:
            bias = bias + jax.nn.softplus(self.bias_rho) * jax.random.normal(key_bias, bias.shape)
        return PointMean(Linear(kernel, bias))

    def kl(self, prior_std: float) -> Scalar:
        """``KL(q(theta) || N(0, prior_std^2))``, summed over the weights."""
        prior = Normal(0.0, prior_std)
        return sum((jnp.sum(belief.kl(prior)) for belief in self.weights()), jnp.zeros(()))


class Noise(eqx.Module):
    """The head ``noise``: ``softplus(.) + floor``, a standard deviation of at least ``floor``."""

    takes_columns: ClassVar[bool] = True
    linear: Linear
    floor: float = eqx.field(static=True)

    @classmethod
    def init(cls, features: int, outputs: int, *, floor: float = 1e-6, key: PRNGKeyArray) -> "Noise":
        """A head of this size."""
        return cls(Linear.init(features, outputs, key=key), floor)

    def __call__(self, features: Float[Array, "features *examples"]) -> Float[Array, "outputs *examples"]:
        """The standard deviation of the noise."""
        return jax.nn.softplus(self.linear(features)) + self.floor


class Ood(eqx.Module):
    """The head ``ood``: a classifier that says whether the input is out of distribution (Equation 8)."""

    takes_columns: ClassVar[bool] = True
    linear: Linear

    @classmethod
    def init(cls, features: int, outputs: int, *, key: PRNGKeyArray) -> "Ood":
        """A head of this size."""
        return cls(Linear.init(features, outputs, key=key))

    def __call__(self, features: Float[Array, "features *examples"]) -> Bernoulli:
        """The distribution of ``o``, 1 for out of distribution."""
        return Bernoulli(self.linear(features))


class Network(eqx.Module):
    """A trunk and its heads; calling it with one input gives the value of every head by name."""

    trunk: Trunk
    heads: Mapping[str, Callable[[Float[Array, "features"]], PyTree[Array]]]

    def __call__(self, x: Float[Array, "inputs"]) -> dict[str, PyTree[Array]]:
        """The output of every head for one example."""
        return self.read(self.trunk(x))

    def read(self, features: Float[Array, "features"]) -> dict[str, PyTree[Array]]:
        """The output of every head, given the features of one example."""
        return {name: head(features) for name, head in self.heads.items()}

    def predict(self, inputs: Float[Array, "rows inputs"]) -> dict[str, PyTree[Array]]:
        """The output of every head for many rows, on a leading axis."""
        features = read_columns(self.trunk, inputs.T).T
        return {name: read_columns(head, features) for name, head in self.heads.items()}
