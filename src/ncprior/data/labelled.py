"""The rows of a table that have a target, ready to be split."""

import hashlib
import itertools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ncprior.data import column_values, table_files
from ncprior.data.column_values import RowNumbers, row_number
from ncprior.data.formats.dialect import PLAIN, DialectOptions
from ncprior.data.formats.text_columns import written
from ncprior.data.inspection import row_counters
from ncprior.data.sampling import DrawnRows, NumberedRows, draw_rows, numbered
from ncprior.errors import UserError

FEWEST = 20
"""Smallest number of rows with a target for a split into training and test rows."""

_PIECE = 1 << 20
"""Rows that are read at a time."""

LARGEST = 1e30
"""Largest target. Single precision ends at 3e38, and predictions may be larger than the targets."""


class Labelled(NamedTuple):
    """Inputs and targets of the same rows, and further columns."""

    inputs: pa.Table
    targets: np.ndarray
    extra: pa.Table  # columns that are not inputs but say how to split, such as a date
    dropped: int  # rows that were left out, as their target is missing
    left_out: tuple[str, ...] = ()  # columns without a name that only count the rows

    def take(self, rows: np.ndarray) -> tuple[pa.Table, np.ndarray]:
        """Inputs and targets of these rows alone."""
        return self.inputs.take(pa.array(rows)), self.targets[rows]


def load(
    path: str | Path,
    target: str,
    inputs: Sequence[str] | None = None,
    *,
    extra: Sequence[str] = (),
    rows: int | None = None,
    options: DialectOptions = PLAIN,
) -> Labelled:
    """Reads the rows that have a target.

    Args:
        path: A file or a folder of files that `ncprior.data.table_files` reads.
        target: The column to predict, of numbers.
        inputs: The columns to predict it from; without it, all others.
        extra: Columns that are wanted for other purposes, inputs or not.
        rows: The most rows to keep, drawn at random but always the same ones, in their order; all without it.
        options: What is known about the dialect of text files.
    """
    if inputs is not None and target in inputs:
        raise UserError(f"column {target!r} is the target and cannot be an input as well; take it out of the inputs")
    columns = None if inputs is None else list(dict.fromkeys([*inputs, *extra, target]))
    table = table_files.read(path, columns, options=options)
    # Wanted columns that are not there get the same message, with the names that come close, as they do in a file.
    there_are = set(table.column_names)
    for name in (target, *extra):
        if name not in there_are:
            table_files.read(path, [name], options=options)
    truth, labelled = read_targets(table, [target])
    check_inputs(table)  # here, where rows still have the numbers that they have in the file
    values, present = truth[:, 0], np.flatnonzero(labelled)
    if len(present) < FEWEST:
        raise UserError(f"{path}: {len(present)} rows have a value of {target!r}; at least {FEWEST} are needed")
    if values[present].min() == values[present].max():
        raise UserError(f"{path}: every value of {target!r} is the same; there is nothing to predict")
    dropped = len(values) - len(present)
    if rows is not None and rows < len(present):
        if rows < FEWEST:
            raise UserError(f"at most {rows} rows are to be used; at least {FEWEST} are needed")
        present = np.sort(np.random.default_rng(0).choice(present, rows, replace=False))
    kept = table.take(pa.array(present)) if len(present) < len(values) else table
    counters = tuple(row_counters(table)) if inputs is None else ()
    names = [name for name in table.column_names if name != target and name not in counters]
    names = names if inputs is None else list(inputs)
    if not names:
        raise UserError(f"{path}: no column but the target {target!r}; inputs are needed to predict it from")
    return Labelled(kept.select(names), values[present], kept.select(list(extra)), dropped, counters)


def draw_labelled(
    path: str | Path,
    targets: Sequence[str],
    inputs: Sequence[str],
    *,
    most: Callable[[pa.Table], int],
    seed: int,
    options: DialectOptions = PLAIN,
    report: Callable[[int], None] = lambda _: None,
) -> DrawnRows:
    """Read a table in one pass, and of a large one draw rows at random, those first that have every target.

    Args:
        path: A file or a folder of files that `ncprior.data.table_files` reads.
        targets: The columns to predict.
        inputs: Those to predict them from.
        most: How many rows to keep, at most, by the first ones.
        seed: Of the rows that are drawn.
        options: What is known about the dialect of text files.
        report: Called with the number of rows that were read since.
    """
    pieces = table_files.stream(path, [*targets, *inputs], _PIECE, options=options)
    first = next(pieces)  # a table without rows is an error

    def reported(piece: NumberedRows) -> NumberedRows:
        report(len(piece.numbers))
        return piece

    drawn = draw_rows(
        map(reported, numbered(itertools.chain([first], pieces))),
        most(first),
        np.random.default_rng([seed, 7]),
        preferred=partial(_with_values, targets),
    )
    assert drawn is not None
    return drawn


def _with_values(targets: Sequence[str], table: pa.Table) -> np.ndarray:
    """Which rows have a value of every target. In text, what stands for a missing value counts as one."""
    present = np.ones(table.num_rows, bool)
    for name in targets:
        values = table[name]
        is_missing = values.is_null(nan_is_null=pa.types.is_floating(values.type))
        present &= ~is_missing.to_numpy().astype(bool)
    return present


def read_targets(table: pa.Table, targets: Sequence[str], first_row: RowNumbers = 1) -> tuple[np.ndarray, np.ndarray]:
    """Read target columns.

    Args:
        table: The whole table, or rows that were drawn from one.
        targets: The columns.
        first_row: Numbers of its rows, for messages.

    Returns:
        The targets as float64 ``[rows, targets]``, and which rows have all of them.

    Raises:
        UserError: If a target is text or dates, too large, or missing in every row.
    """
    columns = []
    for name in targets:
        values = column_values.decoded(name, table[name])
        kind = column_values.kind_of(name, values.type)
        row = column_values.first_unread(values, pa.float64()) if kind == "category" else None
        if row is not None and (meant := column_values.as_written(name, values, "number")) is not None:
            values, row = meant, None
        if row is not None:
            where = f"text {values[row].as_py()!r:.80} in the target {name!r}, row {row_number(first_row, row)}"
            raise UserError(f"{where}; a target must be numbers: mend it, or leave it empty if missing")
        if kind == "date":
            raise UserError(f"the target {name!r} holds dates; a target must be numbers, such as days since a date")
        columns.append(column_values.numbers(name, values, first_row)[0])
        if len(large := np.flatnonzero(np.abs(columns[-1]) > LARGEST)):
            where = f"{columns[-1][large[0]]:g} in the target {name!r}, row {row_number(first_row, large[0])}"
            raise UserError(f"{where} is too large to compute with; give the target in another unit")
        if np.isnan(columns[-1]).all():
            raise UserError(f"the target {name!r} has no value in any row; give rows that have one to learn from")
    truth = np.stack(columns, axis=1)
    present = ~np.isnan(truth).any(axis=1)
    if not present.any():
        raise UserError(f"no row has a value of every target, {', '.join(map(repr, targets))}; train them one by one")
    return truth, present


def check_inputs(table: pa.Table, first_row: RowNumbers = 1) -> None:
    """Raise if a number is infinite, or if a column of numbers reads as text because of commas or single values.

    For whole tables, or many rows that were drawn from one: a few may look like a mistake when all of them do not.
    """
    for field, values in zip(table.schema, table.columns, strict=True):
        name, kind = field.name, column_values.kind_of(field.name, values.type)
        if kind == "number" or written(field).bounds:
            column_values.numbers(name, values, first_row)
        elif kind == "category":
            text = column_values.text(name, values)
            column_values.check_commas(name, text.drop_null().unique())
            if not pa.types.is_dictionary(values.type):  # which is a category because someone made it one
                column_values.check_numbers(name, text, first_row)


def fingerprint(path: str | Path) -> str:
    """A short digest of the contents of a file or folder, to detect changes.

    A missing file has one too; `load` has the better message for it.
    """
    digest = hashlib.sha256()
    path = Path(path)
    try:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                with file.open("rb") as opened:
                    digest.update(hashlib.file_digest(opened, "sha256").digest())
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"{path}: cannot be read ({reason}); check its name and your permissions") from error
    return digest.hexdigest()[:16]
