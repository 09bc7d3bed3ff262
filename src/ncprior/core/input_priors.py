"""Input priors: where to be uncertain. Each makes noised inputs ``x~`` of a mini batch (Equation 1).

An input prior is any function ``(inputs, *, key) -> noised`` from a batch ``[rows, inputs]`` to a batch of the
same shape, or to one of its first rows only. Those here are Equinox modules, so that their scales can be traced, swept
and batched; scales are standard deviations in the units of the (standardised) inputs and may differ from column to
column.
"""

from collections.abc import Sequence
from typing import Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike


class InputPrior(Protocol):
    """Makes noised inputs ``x~`` from the inputs of a mini batch."""

    def __call__(self, inputs: Array, *, key: Array) -> Array:
        """Noised inputs of the same shape."""


class Gaussian(eqx.Module):
    """``x~ = x + N(0, std^2)``."""

    std: ArrayLike

    def __call__(self, inputs: Array, *, key: Array) -> Array:
        """Noised inputs of the same shape."""
        return inputs + self.std * jax.random.normal(key, inputs.shape, inputs.dtype)


class Radial(eqx.Module):
    """``x~ = x + std |r| eps`` with one ``r`` for each row: near the data for some rows, and far from it for others.

    ``r`` and ``eps`` are standard normal. A fixed radius leaves a distance at which nothing was ever said.
    """

    std: ArrayLike

    def __call__(self, inputs: Array, *, key: Array) -> Array:
        """Noised inputs of the same shape."""
        key_radius, key_noise = jax.random.split(key)
        radius = jnp.abs(jax.random.normal(key_radius, (len(inputs), 1), inputs.dtype))
        return inputs + self.std * radius * jax.random.normal(key_noise, inputs.shape, inputs.dtype)


class Uniform(eqx.Module):
    """``x~ = x + U[-2 std, 2 std]``, the paper's uniform noise (Section 5.3).

    ``std`` is the sigma_x of the paper's interval; the standard deviation of the noise itself is 2 / sqrt(3) of it.
    """

    std: ArrayLike

    def __call__(self, inputs: Array, *, key: Array) -> Array:
        """Noised inputs of the same shape."""
        noise = jax.random.uniform(key, inputs.shape, inputs.dtype, -2.0, 2.0)
        return inputs + self.std * noise


class FlipCategories(eqx.Module):
    """Replaces a category by a *different* one, each with the same chance, with this probability (Section 2).

    With ``one_hot=False`` every column holds integer codes ``0 .. classes - 1``. With ``one_hot=True`` the
    columns together are one category in one-hot code, and ``classes`` is their number.
    """

    classes: int = eqx.field(static=True)
    probability: ArrayLike
    one_hot: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        if self.classes < 2:
            raise ValueError(f"a category needs at least two classes to flip between, got {self.classes}")

    def __call__(self, inputs: Array, *, key: Array) -> Array:
        """Noised inputs of the same shape."""
        if self.one_hot and inputs.shape[1] != self.classes:
            raise ValueError(f"{self.classes} classes in one-hot code need as many columns, got {inputs.shape[1]}")
        key_flip, key_shift = jax.random.split(key)
        shape = (len(inputs), 1) if self.one_hot else inputs.shape
        flip = jax.random.bernoulli(key_flip, self.probability, shape)
        # A shift by 1 to classes - 1 around the circle of classes reaches every other class and never the same.
        shift = jnp.where(flip, jax.random.randint(key_shift, shape, 1, self.classes), 0)
        if not self.one_hot:
            return ((inputs.astype(jnp.int32) + shift) % self.classes).astype(inputs.dtype)
        source = (jnp.arange(self.classes) - shift) % self.classes
        return jnp.take_along_axis(inputs, source, axis=1)


class Some(eqx.Module):
    """Noise on the first rows of a mini batch only, which are as random as any: a share of them, at least one.

    A noised row costs as much as a clean one. Where the prior counts little, as with many labels, few are enough.
    """

    prior: InputPrior
    share: float = eqx.field(static=True)

    def __call__(self, inputs: Array, *, key: Array) -> Array:
        """Noised inputs of the first rows."""
        return self.prior(inputs[: max(1, round(self.share * len(inputs)))], key=key)


class Shaped(eqx.Module):
    """Noise that for a share of the rows has the shape of the data: ``scale * (colours @ noise)``.

    Where columns go together, equal noise on each of them hardly ever goes a little way along the directions in which
    rows differ least; ``colours`` ``[inputs, components]`` scales it to what rows differ by in every direction, or in
    the most important ones. ``scale`` is that of each column, and comes last: ``colours`` mixes the columns, so that
    noise must be equal on all of them.
    """

    noise: InputPrior
    colours: ArrayLike
    scale: ArrayLike = 1.0
    share: ArrayLike = 0.5

    def __call__(self, inputs: Array, *, key: Array) -> Array:
        """Noised inputs of the same shape."""
        key_noise, key_share = jax.random.split(key)
        noise = self.noise(jnp.zeros_like(inputs), key=key_noise)
        shaped = jax.random.bernoulli(key_share, self.share, (len(inputs), 1))
        colours = jnp.asarray(self.colours)
        return inputs + self.scale * jnp.where(shaped, noise[:, : colours.shape[1]] @ colours.T, noise)


class PerColumn(eqx.Module):
    """Gives each group of columns its own input prior; columns that are not named stay as they are.

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

    def __call__(self, inputs: Array, *, key: Array) -> Array:
        """Noised inputs of the same shape."""
        missing = [column for columns in self.columns for column in columns if not 0 <= column < inputs.shape[1]]
        if missing:
            raise ValueError(f"no columns {missing} in inputs that have {inputs.shape[1]}")
        keys = jax.random.split(key, len(self.priors))
        for columns, prior, part_key in zip(self.columns, self.priors, keys, strict=True):
            index = jnp.asarray(columns)
            inputs = inputs.at[:, index].set(prior(inputs[:, index], key=part_key))
        return inputs
