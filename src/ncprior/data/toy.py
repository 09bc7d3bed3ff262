"""The paper's 1-dimensional data: a sine with a small slope whose noise grows with the input (Section 5.1)."""

import numpy as np

from ncprior.data.dataset import Dataset

DOMAIN = (-1.2, 1.2)
"""The inputs that figures show: somewhat more than the data covers."""

_BANDS = np.repeat([False, True, False, True, False], 200)
"""Labels can be acquired only for the points 200-399 and 600-799."""


def load() -> Dataset:
    """1000 points on [-1, 1] with ``y = 0.5 sin(25 x) + 0.5 x + N(0, 0.2^2 (x + 1)^2)``, always the same.

    The points in the two bands are training rows, all others test rows. The random numbers are those of
    NumPy's legacy generator with seed 0, as in the released code.
    """
    inputs = np.linspace(-1, 1, 1000)
    noise = np.random.RandomState(0).normal(0, 0.2 * (inputs + 1))
    targets = 0.5 * np.sin(25 * inputs) + 0.5 * inputs + noise
    rows = [values.astype(np.float32)[:, None] for values in (inputs, targets)]
    return Dataset(rows[0][_BANDS], rows[1][_BANDS], rows[0][~_BANDS], rows[1][~_BANDS])
