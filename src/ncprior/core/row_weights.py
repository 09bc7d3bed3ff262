"""Rows that do not all count the same. Beyond the paper, used for people's tables."""

from typing import NamedTuple, TypeVar

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, Scalar

T = TypeVar("T", Array, np.ndarray)


class RowWeights(NamedTuple):
    """How much each row counts, relative to the other visible ones.

    A row may stand there several times, with a part of its weight each time: ``copies`` says how often.
    ``labels_before`` is the number of labels that were learned from earlier and are not among these rows. They count
    for priors, which fade with labels.
    """

    values: Float[Array, "rows"]
    copies: Float[Array, "rows"]
    labels_before: Scalar

    def mean(
        self, visible: Int[Array, "buffer"], in_use: Bool[Array, "buffer"], labels: int | np.int32 | Scalar
    ) -> Scalar:
        """Mean weight of the visible rows, ``labels`` of which are in use."""
        return jnp.sum(self._visible(visible, in_use)) / labels

    def num_labels(self, visible: Int[Array, "buffer"], in_use: Bool[Array, "buffer"]) -> Scalar:
        """The effective number of labels that were learned from, earlier ones included."""
        return effective_number(self._visible(visible, in_use), self.copies[visible]) + self.labels_before

    def _visible(self, visible: Int[Array, "buffer"], in_use: Bool[Array, "buffer"]) -> Float[Array, "buffer"]:
        return jnp.where(in_use, self.values[visible], 0.0)


def effective_number(weights: T, copies: T | None = None) -> T:
    """Effective number of rows, ``(sum_i w_i)^2 / sum_i w_i^2`` (Kish, 1965).

    A row that stands there in several ``copies``, each with a part of its weight, is one row.

    >>> float(effective_number(np.array([1.0, 1.0, 0.0])))
    2.0
    """
    total = weights.sum()
    return total * (total / (weights * weights * (1.0 if copies is None else copies)).sum())
