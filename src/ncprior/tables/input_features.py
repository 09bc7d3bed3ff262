"""What a trunk sees of its inputs: their places among the quantiles of the training rows.

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
from ncprior.core.networks import MLP, Network, as_column


class Bins(eqx.Module):
    """A trunk that sees every input as its place among the quantiles of the training rows, and nothing else.

    The first number of a column is not clipped below, and the last not above, so that inputs far from the data still
    look far away.
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
    """The method with a network that sees its inputs through `Bins`."""

    def init(_: int, outputs: int, *, key: Array) -> Network:
        network = method.init(sum(len(one) - 1 for one in edges), outputs, key=key)
        return Network(Bins(edges, network.trunk), network.heads)

    return dataclasses.replace(method, init=init)


_NARROWEST = 1e-6
"""Width of a bin, of standardised inputs, below which edges are taken for one."""


class Sight(eqx.Module):
    """What the trunks of a table's ensemble are told about it: arrays, so that one program serves many tables.

    ``lower`` and ``width`` are the bins ``[columns, bins]`` of the columns that have them, ``sharpness`` is what the
    places in them are multiplied with: 0 for a trunk without sharp sight. ``whitener`` ``[components, columns]`` turns
    these columns into uncorrelated ones with variance 1.
    """

    lower: Array
    width: Array
    sharpness: Array
    whitener: Array

    @classmethod
    def blind(cls, columns: int, bins: int) -> "Sight":
        """Sees nothing but the inputs as they are."""
        zeros = jnp.zeros((columns, bins))
        return cls(zeros, zeros + 1.0, jnp.zeros(()), jnp.zeros((components_of(columns), columns)))

    @classmethod
    def find(
        cls, inputs: np.ndarray, bins: int, shape: "Components | None" = None, weights: np.ndarray | None = None
    ) -> "Sight":
        """Learned from the rows ``[rows, columns]``; a column with few values has as many bins, and empty ones.

        ``shape`` is that of the rows, where it is known.
        """
        places = np.linspace(0, 1, bins + 1)
        lower = np.full((inputs.shape[1], bins), 1e30, np.float32)
        width = np.ones_like(lower)
        for i, column in enumerate(inputs.T):
            if weights is None:
                edges = np.quantile(column, places)
            else:
                edges = np.quantile(column, places, weights=weights, method="inverted_cdf")
            edges = np.unique(edges.astype(np.float32))
            edges = edges[np.concatenate([[True], np.diff(edges) > _NARROWEST])]
            lower[i, : len(edges) - 1], width[i, : len(edges) - 1] = edges[:-1], np.diff(edges)
        variances, directions = shape or principal(inputs, weights)
        whitener = (directions / np.sqrt(variances)).T
        sharpness = jnp.asarray(bins**-0.5, jnp.float32)
        return cls(jnp.asarray(lower), jnp.asarray(width), sharpness, jnp.asarray(whitener, jnp.float32))


_SMALLEST_SHARE = 1e-4
"""Variance of a principal component, as a share of the largest, below which it is taken for rounding or noise."""


_MOST_COMPONENTS = 512
"""Principal components, at most, that a table has: time and memory of all of them grow with the cube and the square of
the columns, and few tables of so many columns have more rows than that."""


class Components(NamedTuple):
    """The principal components of rows: their variances and directions."""

    variances: np.ndarray  # [components]
    directions: np.ndarray  # [columns, components]


def components_of(columns: int) -> int:
    """How many principal components rows of so many columns have here: all, or those with the largest variances."""
    return min(columns, _MOST_COMPONENTS)


def principal(inputs: np.ndarray, weights: np.ndarray | None = None) -> Components:
    """Variances, none too small, and directions of the principal components of rows ``[rows, columns]``."""
    if len(inputs) < 2 or not inputs.shape[1]:
        components = components_of(inputs.shape[1])
        return Components(np.ones(components), np.eye(inputs.shape[1], components))
    if components_of(inputs.shape[1]) < inputs.shape[1]:
        variances, directions = _largest(inputs, np.ones(len(inputs)) if weights is None else weights)
    else:
        variances, directions = np.linalg.eigh(np.atleast_2d(np.cov(inputs.T.astype(np.float64), aweights=weights)))
    return Components(np.maximum(variances, max(_SMALLEST_SHARE * variances.max(), 1e-12)), directions)


def _largest(inputs: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The components of the largest variances; fewer rows than components leave directions that are 0."""
    from sklearn.utils.extmath import randomized_svd

    total, most = weights.sum(), components_of(inputs.shape[1])
    centred = (inputs - np.average(inputs, axis=0, weights=weights)) * np.sqrt(weights)[:, None]
    _, sizes, found = randomized_svd(centred.astype(np.float32), min(most, len(inputs)), random_state=0)
    variances, directions = np.zeros(most), np.zeros((inputs.shape[1], most))
    variances[: len(sizes)] = sizes.astype(np.float64) ** 2 / (total - (weights**2).sum() / total)  # as `np.cov`
    directions[:, : len(sizes)] = found.T
    return variances, directions


def colours(shape: Components) -> np.ndarray:
    """A matrix ``[columns, components]`` that gives white noise the covariance of rows, the inverse of whitening."""
    return np.asarray(shape.directions * np.sqrt(shape.variances), np.float32)


class Stepped(eqx.Module):
    """A trunk that sees its inputs as they are, and some of them also whitened and as places in bins.

    Whitened, a small deviation of columns that otherwise go together is as large as any other. Members with and without
    sharp sight make up an ensemble that is exact on the data and careful off it.
    """

    takes_columns: ClassVar[bool] = True
    sight: Sight
    columns: tuple[int, ...] = eqx.field(static=True)
    trunk: Callable[[Array], Array]

    def __call__(self, x: Array) -> Array:
        """Features of one example."""
        if not isinstance(self.trunk, MLP):
            return self.trunk(self.see(x))
        # Places of sharpness 0 take most of the time of a step, for nothing.
        plain = self.trunk.first_inputs_only(len(x) + len(self.sight.whitener))
        return jax.lax.cond(
            self.sight.sharpness > 0, lambda: self.trunk(self.see(x)), lambda: plain(self.see(x, places=False))
        )

    def see(self, x: Array, *, places: bool = True) -> Array:
        """What the trunk gets, with or without the places in bins."""
        sight = jax.lax.stop_gradient(self.sight)
        part = x[np.asarray(self.columns, np.int32)]
        seen = [x, sight.whitener @ part]
        if places:
            # Bins on a new axis: gathering a column once for every bin takes longer than the layers.
            shape = (*sight.lower.shape, *[1] * (x.ndim - 1))
            place = (part[:, None] - sight.lower.reshape(shape)) / sight.width.reshape(shape)
            seen.append(sight.sharpness * jnp.clip(place, 0.0, 1.0).reshape(-1, *x.shape[1:]))
        return jnp.concatenate(seen)


def stepped(method: Method, columns: tuple[int, ...], bins: int) -> Method:
    """The method with a trunk that can see more of these columns, see `Stepped`; until it is told, it is blind."""

    def init(inputs: int, outputs: int, *, key: Array) -> Network:
        seen = inputs + components_of(len(columns)) + len(columns) * bins
        network = method.init(seen, outputs, key=key)
        return Network(Stepped(Sight.blind(len(columns), bins), columns, network.trunk), network.heads)

    return dataclasses.replace(method, init=init)
