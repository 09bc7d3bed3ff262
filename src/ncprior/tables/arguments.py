"""The arguments of `fit`: rows, targets and weights in all forms that are accepted."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_array

from ncprior.data.column_values import numbers
from ncprior.data.encoding import Encoder
from ncprior.data.frames import as_table, is_frame
from ncprior.data.labelled import LARGEST
from ncprior.errors import UserError
from ncprior.tables.recipe import LabelledTable


class DataFrameLike(Protocol):
    """A data frame of pandas, polars (also lazy), DuckDB and others."""

    @property
    def columns(self) -> Iterable[object]:
        """Names of the columns, or the columns themselves."""


TableLike: TypeAlias = pa.Table | DataFrameLike | ArrayLike | Mapping[str, Sequence[object]]
"""Rows: an Arrow table, a data frame, an array, or a dictionary of columns."""

TargetsLike: TypeAlias = pa.Table | DataFrameLike | ArrayLike
"""Targets, one or several for each row."""


def targets_of(y: TargetsLike) -> tuple[np.ndarray, list[str] | None]:
    """Targets as numbers, one or two axes, and their names if they have any."""
    if y is None:
        raise UserError("NCPRegressor requires y to be passed, but the target y is None")
    names = None
    if is_frame(y):
        table = as_table(y)
        names = list(table.column_names)
        y = np.column_stack([numbers(*column, first_row=1)[0] for column in zip(names, table.columns, strict=True)])
    elif (name := getattr(y, "name", None)) is not None:
        names = [str(name)]
    values = check_array(y, dtype=np.float64, ensure_2d=False, allow_nd=False, input_name="y")
    if values.ndim not in (1, 2) or not values.size:
        raise UserError(f"y has shape {values.shape}; give one number for each row, or one row of numbers")
    if np.abs(values).max() > LARGEST:
        raise UserError("y has values above 1e30, which are too large to compute with; give it in another unit")
    return values, names


_MAX_COPIES = 10
"""Rows that one row stands for, at most, if weights are counts; weights that differ more are relative."""

_ROUNDING = 1e-6
"""Relative error of weights that may be rounding, also in single precision."""

_MIN_WEIGHT = 1e-30
"""Rows with a smaller share of the largest weight are left out: in single precision they would not count."""


def weighted(labelled: LabelledTable, weights: np.ndarray) -> LabelledTable:
    """The rows with their weights: repeated if these are counts, else with relative weights up to 1."""
    if (weights < 0).any():
        raise UserError("Negative values in data passed to `sample_weight`: every weight must be at least 0")
    if weights.max() > LARGEST:
        raise UserError("sample_weight has values above 1e30, too large to compute with; give smaller weights")
    share = weights.astype(np.float64) / weights.max()  # only proportions count
    rows = np.flatnonzero(share > _MIN_WEIGHT)
    relative = share[rows]
    counts = counts_of(relative)
    if counts is not None:
        rows = np.repeat(rows, counts)
    return labelled._replace(
        table=labelled.table.take(rows),
        targets=labelled.targets[rows],
        weights=relative if counts is None else None,
        repeated=counts is not None and bool((counts > 1).any()),
    )


def counts_of(weights: np.ndarray) -> np.ndarray | None:
    """The smallest whole numbers in the proportions of these positive weights; None if there are none up to 10.

    >>> counts_of(np.array([0.5, 0.75, 1.5])).tolist()
    [2, 3, 6]
    >>> counts_of(np.array([2.0, 2.0])).tolist()
    [1, 1]
    """
    for smallest in range(1, _MAX_COPIES + 1):
        exact = smallest * (weights / weights.min())
        if exact.max() > _MAX_COPIES + 0.5:
            return None
        counts = np.round(exact)
        if (np.abs(exact - counts) <= _ROUNDING * counts).all():
            return counts.astype(np.int64)
    return None


def unlabelled_rows(X: TableLike, table: pa.Table) -> pa.Table:  # noqa: N803
    """Rows without targets, with the columns of the table to learn from."""
    if is_frame(X):
        return as_table(X)  # whose columns the encoder finds by name
    found = as_table(check_array(X, dtype=None, ensure_all_finite="allow-nan", input_name="X_unlabelled"))
    if found.num_columns != table.num_columns:
        what = f"X_unlabelled has {found.num_columns} columns, and X has {table.num_columns}"
        raise UserError(f"{what}; give rows with the columns of X")
    return found.rename_columns(table.column_names)


_FEW_ROWS = 64
"""Rows of a data frame that are cheap to look at as an array, at most, whatever they hold."""


def plain_numbers(rows: Any, encoder: Encoder, names: Sequence[str] | np.ndarray | None) -> np.ndarray | None:
    """The rows as an array, if they are finite or missing numbers with the columns of training in their order.

    For rows that come one by one, tables and the checks of other data take longer than the networks.

    Args:
        rows: Rows to predict, of any kind.
        encoder: The encoding of the columns.
        names: Names of the columns of training, if they had any.

    Returns:
        An array for `Encoder.transform_numbers`; None if the rows need to be looked at.
    """
    if not encoder.only_numbers:
        return None
    pandas = sys.modules.get("pandas")
    if pandas is not None and type(rows) is pandas.DataFrame:
        if names is None or len(rows) > _FEW_ROWS or list(rows.columns) != list(names):
            return None
        rows = rows.to_numpy()
    elif names is not None:
        return None
    if type(rows) is not np.ndarray or rows.dtype not in (np.float64, np.float32) or rows.ndim != 2 or not len(rows):
        return None
    return rows if rows.shape[1] == len(encoder.columns) and not np.isinf(rows).any() else None
