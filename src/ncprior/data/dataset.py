"""Training and test rows of an experiment, and the unit of the target."""

from typing import NamedTuple

import numpy as np


class Dataset(NamedTuple):
    """Training and test rows in the scale of the network, and how to convert predictions to the unit of the target.

    Inputs have shape ``[rows, inputs]`` and targets ``[rows, outputs]``, both float32. A target in its own
    unit is ``target_shift + target_scale * target``; data that is not standardised has shift 0 and scale 1.
    """

    train_inputs: np.ndarray
    train_targets: np.ndarray
    test_inputs: np.ndarray
    test_targets: np.ndarray
    target_shift: float = 0.0
    target_scale: float = 1.0
    target_unit: str = ""


def standardised(
    train_inputs: np.ndarray,
    train_targets: np.ndarray,
    test_inputs: np.ndarray,
    test_targets: np.ndarray,
    *,
    target_unit: str = "",
) -> Dataset:
    """Standardise rows to mean 0 and standard deviation 1 on the training rows.

    Constant columns become 0. Test rows are not used for the statistics.

    >>> data = standardised(np.array([[1.0], [3.0]]), np.array([[2.0], [6.0]]), np.array([[5.0]]), np.array([[4.0]]))
    >>> float(data.test_inputs[0, 0]), data.target_shift, data.target_scale
    (3.0, 4.0, 2.0)
    """
    shift = train_inputs.mean(0, dtype=np.float64)
    scale = train_inputs.std(0, dtype=np.float64)
    scale = np.where(scale > 0, scale, 1.0)
    target_shift = float(train_targets.mean(dtype=np.float64))
    target_scale = float(train_targets.std(dtype=np.float64)) or 1.0
    return Dataset(
        ((train_inputs - shift) / scale).astype(np.float32),
        ((train_targets - target_shift) / target_scale).astype(np.float32),
        ((test_inputs - shift) / scale).astype(np.float32),
        ((test_targets - target_shift) / target_scale).astype(np.float32),
        target_shift,
        target_scale,
        target_unit,
    )
