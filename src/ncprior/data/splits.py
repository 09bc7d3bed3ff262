"""Splits into training and test rows: at random, by time, with a gap, or by a tail.

Splits depend on the table alone (and on the seed, for random ones), so that resumed runs and other methods use the same
rows.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ncprior.data import column_values
from ncprior.errors import UserError

TAIL = 0.2
"""Share of the rows in a tail, or after the split by time."""


class Split(NamedTuple):
    """Numbers of the rows to train on and to test on, both in ascending order."""

    name: str
    train: np.ndarray
    test: np.ndarray


def random_splits(rows: int, count: int, share: float = 0.1, seed: int = 0) -> list[Split]:
    """Random splits with ``share`` of the rows for the test. The first ones do not depend on ``count``.

    >>> [split.name for split in random_splits(rows=10, count=2)]
    ['random 1', 'random 2']
    """
    test = min(max(round(share * rows), 1), rows - 1)
    splits = []
    for i in range(count):
        order = np.random.default_rng([seed, i]).permutation(rows)
        splits.append(Split(f"random {i + 1}", np.sort(order[test:]), np.sort(order[:test])))
    return splits


def gap_splits(inputs: pa.Table) -> list[Split]:
    """One split for each numeric column that varies: the middle third of the rows, sorted by it, is the test.

    This is the usual definition: of ``n`` sorted rows, those from ``n // 3`` up to, but not including, ``2 n // 3`` are
    the test. Rows with equal values keep the order of the table. Rows without a value are training rows.
    """
    splits = []
    for name, values in _varying(inputs):
        present = np.flatnonzero(~np.isnan(values))
        order = present[np.argsort(values[present], kind="stable")]
        test = np.sort(order[len(order) // 3 : 2 * len(order) // 3])
        splits.append(Split(f"gap in {name}", _others(test, len(values)), test))
    return [split for split in splits if len(split.test)]


def tail_splits(inputs: pa.Table) -> list[Split]:
    """One split for each numeric column that varies: the rows with its largest values, about a fifth, are the test.

    Equal values are never on both sides. Rows without a value are training rows.
    """
    splits = []
    for name, values in _varying(inputs):
        test = np.flatnonzero(_upper(values))
        splits.append(Split(f"tail of {name}", _others(test, len(values)), test))
    return splits


def time_split(name: str, column: pa.ChunkedArray) -> Split:
    """Split by a column of dates or numbers: the latest rows, about a fifth, are the test.

    Equal times are never on both sides. Rows without a time are left out.

    Raises:
        UserError: If the column holds neither dates nor numbers, or no two different values.
    """
    kind = column_values.kind_of(name, column.type)
    if kind not in ("date", "number"):
        raise UserError(f"column {name!r} holds neither dates nor numbers; choose one that does for the split by time")
    if kind == "date":
        days, missing = column_values.days(name, column, 1)
        values = days.day + days.fraction
    else:
        values, missing = column_values.numbers(name, column, 1)
    values = np.where(missing, np.nan, values)
    if not np.nanmin(values, initial=np.inf) < np.nanmax(values, initial=-np.inf):
        raise UserError(f"column {name!r} has no two different times; choose another column for the split by time")
    late = _upper(values)
    return Split(f"after {name}", np.flatnonzero(~late & ~missing), np.flatnonzero(late))


def _varying(inputs: pa.Table) -> list[tuple[str, np.ndarray]]:
    """The numbers among the inputs that have at least two different values, NaN where they are missing."""
    found = []
    for name in inputs.column_names:
        if column_values.kind_of(name, inputs[name].type) == "number":
            values, missing = column_values.numbers(name, inputs[name], 1)
            shown = values[~missing]
            if len(shown) and shown.min() < shown.max():
                found.append((name, np.where(missing, np.nan, values)))
    return found


def _upper(values: np.ndarray) -> np.ndarray:
    """True for the largest values: as close to a fifth of the rows as ties allow."""
    present = np.sort(values[~np.isnan(values)])
    boundary = present[len(present) - max(1, round(TAIL * len(present)))]
    with np.errstate(invalid="ignore"):  # comparisons with NaN are false, which is what is wanted
        choices = [values >= boundary, values > boundary]
    # One of the two has rows on both sides, since there are two different values.
    uppers = [upper for upper in choices if 0 < upper.sum() < len(present)]
    return min(uppers, key=lambda upper: abs(int(upper.sum()) - TAIL * len(present)))


def _others(test: np.ndarray, rows: int) -> np.ndarray:
    """All row numbers but these."""
    rest = np.ones(rows, bool)
    rest[test] = False
    return np.flatnonzero(rest)
