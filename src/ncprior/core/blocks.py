"""Predictions of many rows, a block at a time."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array

T = TypeVar("T")
Rows = TypeVar("Rows")

_BLOCK = 512
"""Rows that are predicted together: few enough to stay in a core's cache."""


def predict_in_blocks(predict: Callable[[Rows], T], inputs: Rows, block: int = _BLOCK) -> T:
    """Compute ``predict(inputs)`` for a block of rows at a time, which is several times faster than all at once.

    ``inputs`` is an array with a leading axis of rows, or a tree of them.
    """
    leaves, tree = jax.tree.flatten(inputs)
    rows = len(leaves[0])
    if rows <= block:
        return predict(inputs)
    blocks = -(-rows // block)

    def cut(leaf: Array) -> Array:
        filled = jnp.pad(leaf, ((0, blocks * block - rows), *[(0, 0)] * (leaf.ndim - 1)))
        return filled.reshape(blocks, block, *leaf.shape[1:])

    results = jax.lax.map(predict, jax.tree.unflatten(tree, map(cut, leaves)))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:rows], results)
