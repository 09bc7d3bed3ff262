"""Columns of plain numbers, encoded together: a call of NumPy for each column would take longer than the encoding."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ncprior.data.column_values import RowNumbers, row_number
from ncprior.errors import UserError

LARGEST = float(np.finfo(np.float64).max)
"""The largest number of a column."""

_LINEAR = 3.0  # standardised values up to here stay as they are; those beyond grow with their logarithm

_TOGETHER = 1 << 17
"""Numbers that are encoded together, at most: few enough to stay in a core's cache."""


class NumberColumns(NamedTuple):
    """How some columns of numbers are encoded, and where in the matrix.

    >>> arrays = (np.array(part) for part in ([1.0, 0.0], [2.0, 1.0], [0, 1], [2, -1]))
    >>> columns = NumberColumns(("a", "b"), *arrays)
    >>> matrix = np.zeros((2, 4), np.float32)
    >>> columns.encode(np.array([[2.0, np.nan], [0.5, 3.0]]), matrix)
    >>> matrix.tolist()
    [[0.5, 0.5, 0.0, 0.0], [0.0, 3.0, 1.0, 0.0]]
    """

    names: tuple[str, ...]
    centre: np.ndarray  # what is subtracted,
    scale: np.ndarray  # and what the rest is divided by
    value_at: np.ndarray  # the matrix column of the value; -1 for none, as it was always the same in training
    missing_at: np.ndarray  # that of the flag for missing values; -1 for none, as training had none

    def of(self, chosen: Sequence[int]) -> "NumberColumns":
        """Some of the columns."""
        chosen_rows = np.asarray(chosen)
        return NumberColumns(tuple(self.names[i] for i in chosen), *(part[chosen_rows] for part in self[1:]))

    def encode(self, numbers: np.ndarray, matrix: np.ndarray, first_row: RowNumbers = 1) -> None:
        """Fill the matrix columns of these columns, and flag rows that lack what training always had in the last one.

        Args:
            numbers: The values as float64 ``[columns, rows]``; NaN where they are missing.
            matrix: The matrix ``[rows, width]``, which is 0.
            first_row: The number of the first row, or those of all rows, for messages.

        Raises:
            UserError: If a value is infinite.
        """
        z = compressed(numbers, self.centre[:, None], self.scale[:, None])
        if not np.isfinite(numbers).all():
            missing = np.isnan(numbers)
            self._check_infinite(numbers, missing, first_row)
            z[missing] = 0
            flagged = self.missing_at >= 0
            matrix[:, self.missing_at[flagged]] = missing[flagged].T
            matrix[missing[~flagged].any(0), -1] = 1
        at = self.value_at
        if len(at) and at[0] >= 0 and at[-1] - at[0] == len(at) - 1:
            matrix[:, at[0] : at[-1] + 1] = z.T  # faster than a list of columns; they are in ascending order
        else:
            matrix[:, at[at >= 0]] = z[at >= 0].T

    def encode_table(self, columns: Sequence[pa.ChunkedArray], matrix: np.ndarray, first_row: RowNumbers = 1) -> None:
        """The same for columns of a table, which are float64."""
        step = max(1, _TOGETHER // len(columns))
        for start in range(0, len(matrix), step):
            part = matrix[start : start + step]
            numbers = np.stack([column.slice(start, step).to_numpy() for column in columns])
            rows = first_row + start if isinstance(first_row, int) else first_row[start : start + step]
            self.encode(numbers, part, rows)

    def _check_infinite(self, numbers: np.ndarray, missing: np.ndarray, first_row: RowNumbers) -> None:
        infinite = ~np.isfinite(numbers) & ~missing
        if infinite.any():
            column = int(np.argmax(infinite.any(1)))
            where = f"column {self.names[column]!r}, row {row_number(first_row, int(np.argmax(infinite[column])))}"
            raise UserError(f"infinite value in {where}: remove it or mark it as missing")


def compressed(numbers: np.ndarray, centre: np.ndarray | float, scale: np.ndarray | float) -> np.ndarray:
    """Standardised values; large ones grow with their logarithm."""
    with np.errstate(over="ignore"):
        z = numbers - centre
        np.clip(z, -LARGEST, LARGEST, out=z)
        z /= scale
    flat = z.reshape(-1)
    far = np.flatnonzero(np.abs(flat) > _LINEAR)
    if len(far):
        size = np.minimum(np.abs(flat[far]), LARGEST)
        flat[far] = np.copysign(_LINEAR + np.log1p(size - _LINEAR), flat[far])
    return z
