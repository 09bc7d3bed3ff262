"""Sheets of Excel workbooks, read whole by python-calamine."""

import datetime
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from ncprior.data.formats.dialect import DialectOptions
from ncprior.data.formats.layout import Record, laid_out, no_header
from ncprior.errors import UserError


class Sheet(NamedTuple):
    """The rows of a sheet under its header, what it is called, and how many others of the workbook have values."""

    rows: pa.RecordBatch
    units: dict[str, str]  # of columns, if there is a row of them
    name: str
    header: int
    others: int

    def in_words(self) -> str:
        """What was read, as one line for people."""
        more = f", one of {self.others + 1}" if self.others else ""
        line = f", names from line {self.header}" if self.header > 1 else ""
        line += ", units in the line under it" if self.units else ""
        return f"read from the sheet {self.name!r}{more}{line}" if more or line else ""


def read(file: Path, options: DialectOptions) -> Sheet:
    """The sheet that the options name, or the first that has values."""
    stat = file.stat()
    return _read(file, stat.st_mtime_ns, stat.st_size, options)


@lru_cache(4)
def _read(file: Path, changed: int, size: int, options: DialectOptions) -> Sheet:  # noqa: ARG001
    try:
        import python_calamine as calamine
    except ImportError as error:
        raise UserError(f"{file}: Excel files need python-calamine; pip install 'ncprior[excel]'") from error
    try:
        with calamine.load_workbook(str(file)) as book:
            if options.sheet is not None and options.sheet not in book.sheet_names:
                raise UserError(f"--sheet {options.sheet}: {file} has the sheets {', '.join(book.sheet_names)}")
            sheets = {name: book.get_sheet_by_name(name).to_python(skip_empty_area=False) for name in book.sheet_names}
    except calamine.CalamineError as error:
        raise UserError(f"{file}: not an Excel file, or damaged ({str(error)[:120]}); get it anew") from error
    filled = {name: rows for name, rows in sheets.items() if any(any(_text(cell) for cell in row) for row in rows)}
    if not filled:
        raise UserError(f"{file}: has no rows; give a table with at least one row under its header")
    name = options.sheet or next(iter(filled))
    others = len(filled) - 1
    rows = sheets[name]
    # As a line of text, a row ends with its last value.
    width = max((i + 1 for row in rows for i, cell in enumerate(row) if _text(cell)), default=0)
    found = [Record(line, [_text(cell) for cell in row[:width]]) for line, row in enumerate(rows, 1)]
    found = [record for record in found if any(record.cells)]
    layout = laid_out(file, found, ",", options.header_row)
    if layout is None:
        raise UserError(f"{file}: the sheet {name!r} has no header that can be found; say its line with --header-row")
    if options.header_row is None and (line := no_header(file, layout.header or 1, layout.names)):
        raise UserError(line)
    names = [cell.strip() or f"unnamed {i + 1}" for i, cell in enumerate(layout.names)]
    lines = [rows[record.line - 1] for record in layout.rows]
    columns = [_column([row[i] if i < len(row) else "" for row in lines]) for i in range(len(names))]
    kept = [i for i, column in enumerate(columns) if column.null_count < len(column) or layout.names[i].strip()]
    batch = pa.RecordBatch.from_arrays([columns[i] for i in kept], names=[names[i] for i in kept])
    return Sheet(batch, dict(zip(names, layout.units, strict=False)), name, layout.header or 0, others)


def _column(values: Sequence[object]) -> pa.Array:
    """The values of a column: numbers, dates, times or flags if all are of one kind, and else text."""
    given = [value if _text(value) else None for value in values]
    kinds = {_kind(value) for value in given if value is not None}
    kind = kinds.pop() if len(kinds) == 1 else pa.string()
    if pa.types.is_timestamp(kind):
        given = [_moment(value) for value in given]
    if pa.types.is_string(kind):
        given = [None if value is None else _text(value) for value in given]
    return pa.array(given, kind)


def _kind(value: object) -> pa.DataType:
    """The type of a value."""
    return next((kind for python, kind in _KINDS.items() if isinstance(value, python)), pa.string())


_KINDS = {
    **{bool: pa.bool_(), int: pa.float64(), float: pa.float64(), datetime.date: pa.timestamp("us")},
    **{datetime.time: pa.time64("us"), datetime.timedelta: pa.duration("us")},
}
"""Types of values, of which true and false come before numbers: in Python they are some."""


def _moment(value: object) -> object:
    """A date as a point in time."""
    is_day = isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)
    return datetime.datetime.combine(value, datetime.time()) if is_day else value  # type: ignore[arg-type]


def _text(cell: object) -> str:
    """A cell as text; whole numbers without a point."""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return "" if cell is None else str(cell).strip()
