"""Weights of rows. Beyond the paper, used for people's tables."""

from typing import NamedTuple, TypeVar

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, Scalar

T = TypeVar("T", Array, np.ndarray)


class RowWeights(NamedTuple):
    """Relative weights of rows.

    A row of large weight may be split into several copies.

    Attributes:
        values: Weight of each row; only proportions matter.
        copies: Number of copies of each row, 1 for rows that are not split.
        labels_before: Labels of earlier training that are not among these rows. They count for terms that fade with
            labels.
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
        """Effective number of labels, those of earlier training included."""
        return effective_number(self._visible(visible, in_use), self.copies[visible]) + self.labels_before

    def _visible(self, visible: Int[Array, "buffer"], in_use: Bool[Array, "buffer"]) -> Float[Array, "buffer"]:
        return jnp.where(in_use, self.values[visible], 0.0)


def effective_number(weights: T, copies: T | None = None) -> T:
    """Effective number of rows, ``(sum_i w_i)^2 / sum_i w_i^2`` (Kish, 1965).

    The ``copies`` of a row, which share its weight, count as one row.

    >>> float(effective_number(np.array([1.0, 1.0, 0.0])))
    2.0
    """
    total = weights.sum()
    return total * (total / (weights * weights * (1.0 if copies is None else copies)).sum())
