"""A map of a table: its rows by the first two principal components of their inputs."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ncprior.data.encoding import Encoder


class PoolMap(NamedTuple):
    """Where the rows of a table are.

    Attributes:
        first: The first principal component of each row ``[rows]``.
        second: The second ``[rows]``; 0 if there is only one input.
        shares: Share of the variance of the inputs that each of the two has.
    """

    first: np.ndarray
    second: np.ndarray
    shares: tuple[float, float]


def principal_components(inputs: pa.Table) -> PoolMap:
    """The first two principal components of encoded rows, as networks see them.

    Their signs are such that the input that counts most counts positively.

    >>> found = principal_components(pa.table({"a": [0.0, 1.0, 2.0, 3.0], "b": [0.0, 2.0, 4.0, 6.0]}))
    >>> bool(np.all(np.diff(found.first) > 0)), found.shares[0] > 0.999
    (True, True)
    """
    rows = Encoder.fit(inputs).transform(inputs).astype(np.float64)
    centred = rows - rows.mean(0)
    if centred.shape[1] < 2:
        centred = np.pad(centred, ((0, 0), (0, 2 - centred.shape[1])))
    variances, directions = np.linalg.eigh(centred.T @ centred / len(centred))  # in rising order
    two = directions[:, [-1, -2]]
    two = two * np.where(two[np.abs(two).argmax(0), [0, 1]] < 0, -1, 1)
    first, second = (centred @ two).T
    total = variances.sum() or 1.0
    return PoolMap(first, second, (float(variances[-1] / total), float(variances[-2] / total)))
