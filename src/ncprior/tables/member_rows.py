"""The training rows of a member of an ensemble, with weights and in units of its own."""

from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from ncprior.core.prediction import Predictive
from ncprior.core.row_weights import RowWeights
from ncprior.core.training import Rows


class MemberRows(NamedTuple):
    """Rows to learn from, and the unit of their targets.

    ``shift + scale * target`` ``[outputs]`` is the target in a unit that members with other rows share.
    """

    rows: Rows
    shift: Array
    scale: Array

    @property
    def inputs(self) -> Array:
        """Inputs ``[rows, inputs]``."""
        return self.rows.inputs

    @property
    def targets(self) -> Array:
        """Targets ``[rows, outputs]``, in the unit of these rows."""
        return self.rows.targets

    @property
    def weights(self) -> RowWeights:
        """What each row counts."""
        assert self.rows.weights is not None
        return self.rows.weights

    def with_zero_target(self) -> "MemberRows":
        """The same rows with one target that is always 0; inputs and weights are shared, not copied."""
        zeros = np.zeros((len(self.inputs), 1), np.float32)
        targets, shift, scale = jax.device_put((zeros, np.zeros(1, np.float32), np.ones(1, np.float32)))
        return MemberRows(self.rows._replace(targets=targets), shift, scale)

    def in_shared_unit(self, prediction: Predictive) -> Predictive:
        """A prediction of these rows in the unit that members with other rows share."""
        return prediction.rescale(self.scale, self.shift)

    def shared_targets(self, indices: np.ndarray) -> np.ndarray:
        """Targets of some rows in that unit."""
        return np.asarray(self.shift) + np.asarray(self.scale) * np.asarray(self.targets)[indices]
