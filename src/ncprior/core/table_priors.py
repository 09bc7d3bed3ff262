"""Input priors beyond the paper: radial and coloured noise, rows of a pool, and a prior for each column."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, PRNGKeyArray

from ncprior.core.input_priors import InputPrior


class Radial(eqx.Module):
    """``x~ = x + std |r| eps`` with standard normal ``eps``, and one standard normal ``r`` for each row.

    Noise of many sizes covers all distances from the data; Gaussian noise of a fixed size has one typical distance.
    """

    std: Float[ArrayLike, "*inputs"]

    def __call__(self, inputs: Float[Array, "rows inputs"], *, key: PRNGKeyArray) -> Float[Array, "rows inputs"]:
        """Noised inputs of the same shape."""
        key_radius, key_noise = jax.random.split(key)
        radius = jnp.abs(jax.random.normal(key_radius, (len(inputs), 1), inputs.dtype))
        return inputs + self.std * radius * jax.random.normal(key_noise, inputs.shape, inputs.dtype)


class NoisedShare(eqx.Module):
    """Noise on the first rows of a mini batch only: ``share`` of the rows, at least one.

    A noised row costs as much as a clean one. With many labels the prior counts little, and few noised rows are enough.
    """

    prior: InputPrior
    share: float = eqx.field(static=True)

    def __call__(self, inputs: Float[Array, "rows inputs"], *, key: PRNGKeyArray) -> Float[Array, "first inputs"]:
        """Noised inputs of the first rows."""
        return self.prior(inputs[: max(1, round(self.share * len(inputs)))], key=key)


class DataShaped(eqx.Module):
    """Noise with the covariance of the data for a share of the rows: ``x~ = x + scale * (colours @ noise)``.

    Where columns are correlated, independent noise is too large in directions of small variance. ``colours`` is a root
    of the covariance, or of its largest principal components.

    Attributes:
        noise: Independent noise, equal on all columns.
        colours: Matrix that gives the noise the covariance of the data.
        scale: Factor for each column, applied last.
        share: Probability that a row gets coloured noise; other rows get independent noise.
    """

    noise: InputPrior
    colours: Float[ArrayLike, "inputs components"]
    scale: Float[ArrayLike, "*inputs"] = 1.0
    share: Float[ArrayLike, ""] = 0.5

    def __call__(self, inputs: Float[Array, "rows inputs"], *, key: PRNGKeyArray) -> Float[Array, "rows inputs"]:
        """Noised inputs of the same shape."""
        key_noise, key_share = jax.random.split(key)
        noise = self.noise(jnp.zeros_like(inputs), key=key_noise)
        shaped = jax.random.bernoulli(key_share, self.share, (len(inputs), 1))
        colours = jnp.asarray(self.colours)
        return inputs + self.scale * jnp.where(shaped, noise[:, : colours.shape[1]] @ colours.T, noise)


class FromPool(eqx.Module):
    """Rows drawn from a pool of unlabelled rows, with replacement, so that the model is unsure where it will be asked.

    A drawn row has nothing to do with the target of the row that it replaces: centre the output prior at the prediction
    or at a constant.

    Attributes:
        pool: The rows to draw from.
        noise: An input prior for the rows that are not drawn from the pool; None draws all of them.
        share: Probability that a row is drawn from the pool, if there is an input prior for the others.
    """

    pool: Float[ArrayLike, "pool inputs"]
    noise: InputPrior | None = None
    share: Float[ArrayLike, ""] = 0.5

    def __check_init__(self) -> None:
        shape = jnp.shape(self.pool)
        if len(shape) != 2 or not shape[0]:
            raise ValueError(f"a pool has rows and columns, got an array of shape {shape}")

    def __call__(self, inputs: Float[Array, "rows inputs"], *, key: PRNGKeyArray) -> Float[Array, "rows inputs"]:
        """Rows of the pool, as many as inputs."""
        pool = jnp.asarray(self.pool, inputs.dtype)
        if pool.shape[1] != inputs.shape[1]:
            raise ValueError(f"the pool has {pool.shape[1]} columns, the inputs have {inputs.shape[1]}")
        key_rows, key_share, key_noise = jax.random.split(key, 3)
        drawn = pool[jax.random.randint(key_rows, (len(inputs),), 0, len(pool))]
        if self.noise is None:
            return drawn
        from_pool = jax.random.bernoulli(key_share, self.share, (len(inputs), 1))
        return jnp.where(from_pool, drawn, self.noise(inputs, key=key_noise))


class PerColumn(eqx.Module):
    """A prior for each group of columns; other columns stay unchanged.

    >>> from ncprior.core.input_priors import FlipCategories, Gaussian
    >>> prior = PerColumn([((0, 1), Gaussian(0.5)), ((2, 3, 4), FlipCategories(3, 0.1, one_hot=True))])
    """

    columns: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    priors: tuple[InputPrior, ...]

    def __init__(self, parts: Sequence[tuple[Sequence[int], InputPrior]]) -> None:
        """``parts`` are groups of columns, each with its prior."""
        self.columns = tuple(tuple(columns) for columns, _ in parts)
        self.priors = tuple(prior for _, prior in parts)
        named = [column for columns in self.columns for column in columns]
        if len(named) != len(set(named)):
            raise ValueError(f"a column has more than one input prior: {sorted(named)}")

    def __call__(self, inputs: Float[Array, "rows inputs"], *, key: PRNGKeyArray) -> Float[Array, "rows inputs"]:
        """Noised inputs of the same shape."""
        missing = [column for columns in self.columns for column in columns if not 0 <= column < inputs.shape[1]]
        if missing:
            raise ValueError(f"no columns {missing} in inputs that have {inputs.shape[1]}")
        keys = jax.random.split(key, len(self.priors))
        parts = [
            prior(take_columns(inputs, columns), key=part_key)
            for columns, prior, part_key in zip(self.columns, self.priors, keys, strict=True)
        ]
        # Put together rather than set in place, as XLA compiles and runs scatters slowly on a CPU.
        unchanged = sorted(set(range(inputs.shape[1])) - {column for columns in self.columns for column in columns})
        parts.append(take_columns(inputs, unchanged))
        place = np.argsort([column for columns in (*self.columns, unchanged) for column in columns])
        return take_columns(jnp.concatenate(parts, axis=1), place.tolist())


def take_columns(rows: Float[Array, "rows inputs"], columns: Sequence[int]) -> Float[Array, "rows columns"]:
    """Some columns of rows: a slice if they are next to each other.

    >>> take_columns(jnp.arange(3.0)[None], (1, 2))
    Array([[1., 2.]], dtype=float32)
    """
    first = columns[0] if columns else 0
    if list(columns) == list(range(first, first + len(columns))):
        return rows[:, first : first + len(columns)]
    return rows[:, np.asarray(columns)]
