"""Input priors beyond the paper, used for people's tables: noise of many sizes, in the shape of the data, by column."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, PRNGKeyArray

from ncprior.core.input_priors import InputPrior


class Radial(eqx.Module):
    """``x~ = x + std |r| eps`` with one ``r`` for each row: near the data for some rows, and far from it for others.

    ``r`` and ``eps`` are standard normal. A fixed radius leaves a distance at which nothing was ever said.
    """

    std: Float[ArrayLike, "*inputs"]

    def __call__(self, inputs: Float[Array, "rows inputs"], *, key: PRNGKeyArray) -> Float[Array, "rows inputs"]:
        """Noised inputs of the same shape."""
        key_radius, key_noise = jax.random.split(key)
        radius = jnp.abs(jax.random.normal(key_radius, (len(inputs), 1), inputs.dtype))
        return inputs + self.std * radius * jax.random.normal(key_noise, inputs.shape, inputs.dtype)


class NoisedShare(eqx.Module):
    """Noise on the first rows of a mini batch only, which are as random as any: a share of them, at least one.

    A noised row costs as much as a clean one. Where the prior counts little, as with many labels, few are enough.
    """

    prior: InputPrior
    share: float = eqx.field(static=True)

    def __call__(self, inputs: Float[Array, "rows inputs"], *, key: PRNGKeyArray) -> Float[Array, "first inputs"]:
        """Noised inputs of the first rows."""
        return self.prior(inputs[: max(1, round(self.share * len(inputs)))], key=key)


class DataShaped(eqx.Module):
    """Noise that for a share of the rows has the shape of the data: ``scale * (colours @ noise)``.

    Where columns go together, equal noise on each of them hardly ever goes a little way along the directions in which
    rows differ least; ``colours`` ``[inputs, components]`` scales it to what rows differ by in every direction, or in
    the most important ones. ``scale`` is that of each column, and comes last: ``colours`` mixes the columns, so that
    noise must be equal on all of them.
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


class PerColumn(eqx.Module):
    """Gives each group of columns its own input prior; columns that are not named stay as they are.

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
        for columns, prior, part_key in zip(self.columns, self.priors, keys, strict=True):
            index = jnp.asarray(columns)
            inputs = inputs.at[:, index].set(prior(inputs[:, index], key=part_key))
        return inputs
