"""Rows that are unlike any of a table, made from rows that are like it: shuffled and far ones."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import pyarrow as pa

from ncprior.data import column_values

Shift = Literal["shuffled", "far"]
FAR = 4.0
"""How far a value is moved, in standard deviations of its column."""


def shuffled(rows: pa.Table, train: pa.Table) -> pa.Table | None:  # noqa: ARG001
    """Each column permuted by itself: every value is one of the table, and their combinations are new.

    Returns:
        As many rows, or None for a table of one column or row, which would be the same.
    """
    if rows.num_columns < 2 or rows.num_rows < 2:
        return None
    rng = np.random.default_rng(rows.num_rows)
    columns = [column.take(pa.array(rng.permutation(rows.num_rows))) for column in rows.columns]
    return pa.Table.from_arrays(columns, schema=rows.schema)


def far(rows: pa.Table, train: pa.Table) -> pa.Table | None:
    """One number of each row, drawn at random, moved up or down by four standard deviations of its column.

    Args:
        rows: The rows.
        train: The training rows, whose standard deviations are meant.

    Returns:
        The rows that have a number, moved; None if no column of numbers varies.
    """
    rng = np.random.default_rng(rows.num_rows)
    moved: dict[str, np.ndarray] = {}
    steps: list[float] = []
    for name in rows.column_names:
        if column_values.kind_of(name, rows[name].type) == "number":
            values, missing = column_values.numbers(name, train[name], 1)
            step = FAR * float(np.std(values[~missing])) if not missing.all() else 0.0
            if 0 < step < np.inf:
                values, lacking = column_values.numbers(name, rows[name], 1)
                moved[name] = np.where(lacking, np.nan, values)
                steps.append(step)
    if not moved or not rows.num_rows:
        return None
    present = ~np.isnan(np.stack(list(moved.values()), axis=1))
    chosen = np.where(present, rng.random(present.shape), -1.0).argmax(1)
    sign = rng.choice([-1.0, 1.0], rows.num_rows)
    for place, (name, values) in enumerate(moved.items()):
        shift = np.where(chosen == place, sign * steps[place], 0.0)
        field = pa.field(name, pa.float64(), metadata=rows.schema.field(name).metadata)
        column = pa.array(values + shift, pa.float64(), mask=np.isnan(values))
        rows = rows.set_column(rows.column_names.index(name), field, column)
    kept = np.flatnonzero(present.any(1))
    return rows.take(pa.array(kept)) if len(kept) else None


SHIFTS: dict[Shift, Callable[[pa.Table, pa.Table], pa.Table | None]] = {"shuffled": shuffled, "far": far}
"""Every way to make rows unlike the others."""
