"""Input priors: noised inputs ``x~`` for a mini batch, where the model should be uncertain (Equation 1).

An input prior is any function ``(inputs, *, key) -> noised`` from a batch ``[rows, inputs]`` to a batch of the
same shape, or to one of its first rows only. Those here are Equinox modules, so that their scales can be traced, swept
and batched; scales are standard deviations in the units of the (standardised) inputs and may differ from column to
column.
"""

from typing import Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, PRNGKeyArray


class InputPrior(Protocol):
    """Makes noised inputs ``x~`` from the inputs of a mini batch."""

    def __call__(self, inputs: Float[Array, "rows inputs"], *, key: PRNGKeyArray) -> Float[Array, "rows inputs"]:
        """Noised inputs of the same shape."""


class Gaussian(eqx.Module):
    """``x~ = x + N(0, std^2)``.

    >>> Gaussian(0.0)(jnp.ones((1, 2)), key=jax.random.key(0))
    Array([[1., 1.]], dtype=float32)
    """

    std: Float[ArrayLike, "*inputs"]

    def __call__(self, inputs: Float[Array, "rows inputs"], *, key: PRNGKeyArray) -> Float[Array, "rows inputs"]:
        """Noised inputs of the same shape."""
        return inputs + self.std * jax.random.normal(key, inputs.shape, inputs.dtype)


class Uniform(eqx.Module):
    """``x~ = x + U[-2 std, 2 std]``, the paper's uniform noise (Section 5.3).

    ``std`` is the sigma_x of the paper's interval; the standard deviation of the noise itself is 2 / sqrt(3) of it.
    """

    std: Float[ArrayLike, "*inputs"]

    def __call__(self, inputs: Float[Array, "rows inputs"], *, key: PRNGKeyArray) -> Float[Array, "rows inputs"]:
        """Noised inputs of the same shape."""
        noise = jax.random.uniform(key, inputs.shape, inputs.dtype, -2.0, 2.0)
        return inputs + self.std * noise


class FlipCategories(eqx.Module):
    """Replaces a category, with this probability, by one of the others drawn uniformly (Section 2).

    With ``one_hot=False`` every column holds integer codes ``0 .. classes - 1``. With ``one_hot=True`` the
    columns together are one category in one-hot code, and ``classes`` is their number.
    """

    classes: int = eqx.field(static=True)
    probability: Float[ArrayLike, ""]
    one_hot: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        if self.classes < 2:
            raise ValueError(f"a category needs at least two classes to flip between, got {self.classes}")

    def __call__(self, inputs: Float[Array, "rows inputs"], *, key: PRNGKeyArray) -> Float[Array, "rows inputs"]:
        """Noised inputs of the same shape."""
        if self.one_hot and inputs.shape[1] != self.classes:
            raise ValueError(f"{self.classes} classes in one-hot code need as many columns, got {inputs.shape[1]}")
        key_flip, key_shift = jax.random.split(key)
        shape = (len(inputs), 1) if self.one_hot else inputs.shape
        flip = jax.random.bernoulli(key_flip, self.probability, shape)
        # A shift by 1 to classes - 1 around the circle of classes reaches every other class and never the same.
        # Of two classes there is one other: nothing to draw.
        other = jax.random.randint(key_shift, shape, 1, self.classes) if self.classes > 2 else 1
        shift = jnp.where(flip, other, 0)
        if not self.one_hot:
            return ((inputs.astype(jnp.int32) + shift) % self.classes).astype(inputs.dtype)
        source = (jnp.arange(self.classes) - shift) % self.classes
        return jnp.take_along_axis(inputs, source, axis=1)
