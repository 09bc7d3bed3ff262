"""Input features: a row's place among the quantiles of the training rows, and its whitened columns.

Networks on plain inputs learn smooth functions and need long for sharp ones, such as the step from one day to the next;
trees learn steps at once. A piecewise linear encoding lets networks learn them too (Gorishniy et al., 2022): a column
with edges ``t_0 < ... < t_k`` becomes k numbers ``(x - t_{j-1}) / (t_j - t_{j-1})``, clipped to [0, 1].
"""

import dataclasses
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ncprior.core.methods import Method
from ncprior.core.networks import GELU, MLP, Constants, LeakyReLU, Network, as_column


class Bins(eqx.Module):
    """A trunk that gets nothing but quantile features.

    The first feature of a column is not clipped below, and the last not above, so that inputs far from the data stay
    far away.
    """

    takes_columns: ClassVar[bool] = True
    edges: tuple[tuple[float, ...], ...] = eqx.field(static=True)
    trunk: Callable[[Array], Array]

    @staticmethod
    def find(inputs: np.ndarray, bins: int) -> tuple[tuple[float, ...], ...]:
        """At most ``bins + 1`` different edges for every column: its quantiles, from smallest to largest."""
        edges = []
        for column in inputs.T:
            found = np.unique(np.quantile(column, np.linspace(0, 1, bins + 1)).astype(np.float32))
            edges.append(tuple(found.tolist()) if len(found) > 1 else (float(found[0]), float(found[0]) + 1.0))
        return tuple(edges)

    def __call__(self, x: Array) -> Array:
        """Features of one example."""
        column = np.repeat(np.arange(len(self.edges)), [len(edges) - 1 for edges in self.edges])
        lower = np.concatenate([edges[:-1] for edges in self.edges])
        upper = np.concatenate([edges[1:] for edges in self.edges])
        least = np.concatenate([[-np.inf, *[0.0] * (len(edges) - 2)] for edges in self.edges])
        most = np.concatenate([[*[1.0] * (len(edges) - 2), np.inf] for edges in self.edges])
        # One number for each bin, in the shape of one example or of many columns.
        start, width, floor, ceiling = (
            as_column(jnp.asarray(value, x.dtype), x) for value in (lower, upper - lower, least, most)
        )
        return self.trunk(jnp.clip((x[column] - start) / width, floor, ceiling))


def in_bins(method: Method, edges: tuple[tuple[float, ...], ...]) -> Method:
    """The method with a `Bins` trunk."""

    def init(_: int, outputs: int, *, key: Array) -> Network:
        network = method.init(sum(len(one) - 1 for one in edges), outputs, key=key)
        return Network(Bins(edges, network.trunk), network.heads)

    return dataclasses.replace(method, init=init)


_MIN_WIDTH = 1e-6
"""Width of a bin, in standardised inputs, below which its edges are one."""


class InputFeatures(Constants):
    """How features are made of a table's columns: arrays, so that one program serves many tables.

    ``lower`` and ``width`` are quantile bins ``[columns, bins]``. ``quantile_scale`` multiplies the features that they
    make; 0 leaves them out. ``whitener`` ``[components, columns]`` turns the columns into uncorrelated ones with
    variance 1.
    """

    lower: Array
    width: Array
    quantile_scale: Array
    whitener: Array

    @classmethod
    def zeros(cls, columns: int, bins: int) -> "InputFeatures":
        """Features that are all 0."""
        zeros = jnp.zeros((columns, bins))
        return cls(zeros, zeros + 1.0, jnp.zeros(()), jnp.zeros((number_of_components(columns), columns)))

    @classmethod
    def fit(
        cls,
        inputs: np.ndarray,
        bins: int,
        components: "Components | None" = None,
        weights: np.ndarray | None = None,
    ) -> "InputFeatures":
        """Quantiles and principal components of rows ``[rows, columns]``.

        A column with few values has as many bins, and the rest of them empty. ``components`` are those of the rows, if
        they have been computed.
        """
        probabilities = np.linspace(0, 1, bins + 1)
        lower = np.full((inputs.shape[1], bins), 1e30, np.float32)
        width = np.ones_like(lower)
        for i, column in enumerate(inputs.T):
            if weights is None:
                edges = np.quantile(column, probabilities)
            else:
                edges = np.quantile(column, probabilities, weights=weights, method="inverted_cdf")
            edges = np.unique(edges.astype(np.float32))
            edges = edges[np.concatenate([[True], np.diff(edges) > _MIN_WIDTH])]
            lower[i, : len(edges) - 1], width[i, : len(edges) - 1] = edges[:-1], np.diff(edges)
        variances, directions = components or principal_components(inputs, weights)
        whitener = (directions / np.sqrt(variances)).T
        # Without JAX's own functions, which would compile for every shape.
        arrays = (np.asarray(part, np.float32) for part in (lower, width, max(bins, 1) ** -0.5, whitener))
        return cls(*jax.device_put(tuple(arrays)))


_SMALLEST_SHARE = 1e-4
"""Smallest variance of a principal component, as a share of the largest: less is rounding or noise."""


_MAX_COMPONENTS = 512
"""Principal components, at most, that a table has: time and memory of all of them grow with the cube and the square of
the columns, and few tables of so many columns have more rows than that."""


class Components(NamedTuple):
    """The principal components of rows: their variances and directions."""

    variances: np.ndarray  # [components]
    directions: np.ndarray  # [columns, components]


def number_of_components(columns: int) -> int:
    """How many principal components of so many columns are used: at most 512, those with the largest variances."""
    return min(columns, _MAX_COMPONENTS)


def principal_components(inputs: np.ndarray, weights: np.ndarray | None = None) -> Components:
    """Variances, none too small, and directions of the principal components of rows ``[rows, columns]``."""
    if len(inputs) < 2 or not inputs.shape[1]:
        components = number_of_components(inputs.shape[1])
        return Components(np.ones(components), np.eye(inputs.shape[1], components))
    if number_of_components(inputs.shape[1]) < inputs.shape[1]:
        variances, directions = _largest(inputs, np.ones(len(inputs)) if weights is None else weights)
    else:
        variances, directions = np.linalg.eigh(np.atleast_2d(np.cov(inputs.T.astype(np.float64), aweights=weights)))
    return Components(np.maximum(variances, max(_SMALLEST_SHARE * variances.max(), 1e-12)), directions)


def _largest(inputs: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The components of the largest variances; fewer rows than components leave directions that are 0."""
    from sklearn.utils.extmath import randomized_svd
    from threadpoolctl import threadpool_limits

    total, most = weights.sum(), number_of_components(inputs.shape[1])
    centred = (inputs - np.average(inputs, axis=0, weights=weights)) * np.sqrt(weights)[:, None]
    # Threads of BLAS wait for each other between the many small products of it: one takes a fraction of their time.
    with threadpool_limits(1, user_api="blas"):
        _, sizes, found = randomized_svd(centred.astype(np.float32), min(most, len(inputs)), random_state=0)
    variances, directions = np.zeros(most), np.zeros((inputs.shape[1], most))
    variances[: len(sizes)] = sizes.astype(np.float64) ** 2 / (total - (weights**2).sum() / total)  # as `np.cov`
    directions[:, : len(sizes)] = found.T
    return variances, directions


def coloring_matrix(components: Components) -> np.ndarray:
    """A matrix ``[columns, components]`` that gives white noise the covariance of rows: the inverse of whitening."""
    return np.asarray(components.directions * np.sqrt(components.variances), np.float32)


class FeatureTrunk(eqx.Module):
    """A trunk that gets its inputs, and for some of them also whitened columns and quantile features.

    Whitened, a small deviation of columns that otherwise go together is as large as any other. Members with and without
    quantile features make up an ensemble that is exact on the data and careful off it. Those with them have leaky ReLUs
    in place of GELUs: what they are for is not smooth.
    """

    takes_columns: ClassVar[bool] = True
    features: InputFeatures
    columns: tuple[int, ...] = eqx.field(static=True)
    trunk: Callable[[Array], Array]

    def __call__(self, x: Array) -> Array:
        """The trunk's output for one example."""
        if not self.features.lower.shape[-1]:
            return self.trunk(self.expand(x, quantiles=False))
        if not isinstance(self.trunk, MLP):
            return self.trunk(self.expand(x))
        # Quantile features of scale 0 take most of the time of a step, for nothing.
        plain, with_kinks = (
            self.trunk.first_inputs_only(len(x) + len(self.features.whitener)),
            self.with_kinks(self.trunk),
        )
        return jax.lax.cond(
            self.features.quantile_scale > 0,
            lambda: with_kinks(self.expand(x)),
            lambda: plain(self.expand(x, quantiles=False)),
        )

    @staticmethod
    def with_kinks(trunk: MLP) -> MLP:
        """The trunk of members with quantile features, which has leaky ReLUs in place of GELUs."""
        return MLP(trunk.layers, LeakyReLU()) if isinstance(trunk.activation, GELU) else trunk

    def expand(self, x: Array, *, quantiles: bool = True) -> Array:
        """The inputs with their features, with or without those of the quantiles."""
        features = jax.lax.stop_gradient(self.features)
        part = x[np.asarray(self.columns, np.int32)]
        expanded = [x, features.whitener @ part]
        if quantiles:
            # Bins on a new axis: gathering a column once for every bin takes longer than the layers.
            shape = (*features.lower.shape, *[1] * (x.ndim - 1))
            position = (part[:, None] - features.lower.reshape(shape)) / features.width.reshape(shape)
            expanded.append(features.quantile_scale * jnp.clip(position, 0.0, 1.0).reshape(-1, *x.shape[1:]))
        return jnp.concatenate(expanded)


def with_input_features(method: Method, columns: tuple[int, ...], bins: int) -> Method:
    """The method with a `FeatureTrunk` for these columns; its features are 0 until they are replaced."""

    def init(inputs: int, outputs: int, *, key: Array) -> Network:
        width = inputs + number_of_components(len(columns)) + len(columns) * bins
        network = method.init(width, outputs, key=key)
        return Network(FeatureTrunk(InputFeatures.zeros(len(columns), bins), columns, network.trunk), network.heads)

    return dataclasses.replace(method, init=init)
