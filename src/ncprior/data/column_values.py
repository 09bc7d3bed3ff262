"""Values of a column as numbers, text or dates, whatever its Arrow type.

Each of `numbers`, `text` and `days` reads a column as one of these and raises a `UserError` that names the column, the
row and the value if that cannot be done.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ncprior.data import cell_numbers, cells
from ncprior.errors import UserError

Kind = Literal["number", "flag", "category", "date"]
"""What a column holds."""

RowNumbers = int | np.ndarray
"""The number of the first row of a column, or those of all its rows, for messages."""

FEW = 10
"""Number of distinct values up to which a text is a category even if no value repeats."""
_MOST = 0.9
"""Share of the distinct values of a text that must be numbers for the others to be mistakes."""
_WHOLE = r"^[+-]?\d+$"
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_THOUSANDS = r"^[+-]?\d{1,3}(,\d{3})+(\.\d*)?$"
_COMMAS = rf"{_THOUSANDS}|^[+-]?[\d.]*\d,\d+$"
_EXACT = 2**53  # float64 holds every whole number up to this one
_DAY = 86_400  # seconds
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_WORDS = {"number": "numbers", "flag": "true or false", "date": "dates", "category": "text"}


def kind_of(name: str, type_: pa.DataType) -> Kind:
    """Whether a column of this type is a ``number``, a ``flag`` (true or false), a ``category`` or a ``date``."""
    is_ = pa.types
    if is_.is_integer(type_) or is_.is_floating(type_) or is_.is_decimal(type_) or is_.is_duration(type_):
        return "number"
    if is_.is_null(type_):
        return "number"
    if is_.is_boolean(type_):
        return "flag"
    if _is_text(type_) or (is_.is_dictionary(type_) and kind_of(name, type_.value_type)):
        return "category"
    if is_.is_date(type_) or is_.is_timestamp(type_) or is_.is_time(type_):
        return "date"
    what = f"column {name!r} holds {type_!s:.80}, which is no input"
    raise UserError(f"{what}; leave it out, or make it numbers, text or dates")


def numbers(
    name: str, column: pa.ChunkedArray, first_row: RowNumbers, kind: str = "number"
) -> tuple[np.ndarray, np.ndarray]:
    """Read a column as float64 numbers. Durations are in seconds, and true is 1.

    With `kind` ``flag``, every value must be 0 or 1. Text that reads as numbers is converted.

    Returns:
        The values, and where they are missing.
    """
    column = decoded(name, column)
    if _is_text(column.type):
        column = _parsed(name, column, [pa.bool_() if kind == "flag" else pa.float64()], first_row, kind)
    _require(name, column, ("number", "flag"), kind)
    per_second = 1
    if pa.types.is_duration(column.type):
        per_second = _PER_SECOND[column.type.unit]
        column = column.cast(pa.int64())
    values = column.cast(pa.float64(), safe=False).to_numpy()
    if per_second > 1:
        values = values / per_second
    finite = np.isfinite(values)
    missing = ~finite
    if not finite.all():
        missing = np.isnan(values)
        if len(infinite := np.flatnonzero(~finite & ~missing)):
            where = f"column {name!r}, row {row_number(first_row, infinite[0])}"
            raise UserError(f"infinite value in {where}: remove it or mark it as missing")
    if kind == "flag" and len(odd := np.flatnonzero((values != 0) & (values != 1) & ~missing)):
        where = f"{values[odd[0]]:g} in column {name!r}, row {row_number(first_row, odd[0])}"
        raise UserError(f"{where}, which was true or false in training; mend it or mark it as missing")
    return values, missing


def text(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Read a column as text. Whole numbers are written without a decimal point, also if they are floats."""
    column = decoded(name, column)
    if pa.types.is_decimal(column.type) or column.type == pa.float16():
        column = column.cast(pa.float32() if column.type == pa.float16() else pa.float64())
    if pa.types.is_floating(column.type):
        whole = pc.and_(pc.equal(column, pc.floor(column)), pc.less(pc.abs(column), float(_EXACT)))
        integers = pc.if_else(whole, column, pa.scalar(0, column.type)).cast(pa.int64())
        written = pc.if_else(whole, integers.cast(pa.large_string()), column.cast(pa.large_string()))
        return pc.if_else(pc.is_nan(column), pa.scalar(None, pa.large_string()), written)
    try:
        return column.cast(pa.large_string())
    except pa.ArrowInvalid:  # an unknown time zone
        return column.cast(pa.timestamp(column.type.unit, "UTC")).cast(pa.large_string())


class Days(NamedTuple):
    """Points in time: whole days since 1970, and the fraction of the day."""

    day: np.ndarray
    fraction: np.ndarray


def days(name: str, column: pa.ChunkedArray, first_row: RowNumbers) -> tuple[Days, np.ndarray]:
    """Read a column as dates, in UTC. A time without a date is on 1 January 1970. ISO dates in text are converted.

    Returns:
        The points in time, and where they are missing.
    """
    column = decoded(name, column)
    if _is_text(column.type):
        column = _parsed(name, column, [pa.timestamp("us"), pa.timestamp("us", "UTC")], first_row, "date")
    if pa.types.is_null(column.type):
        column = column.cast(pa.date32())
    _require(name, column, ("date",), "date")
    if pa.types.is_date(column.type):
        per_day = 1 if column.type == pa.date32() else _DAY * 1000
    else:
        per_day = _DAY * _PER_SECOND[column.type.unit]
    width = pa.int32() if column.type.bit_width == 32 else pa.int64()
    since = column.cast(width).cast(pa.int64()).fill_null(0).to_numpy()
    day, rest = np.divmod(since, per_day)
    return Days(day, rest / per_day), missing_in(column)


def check_commas(name: str, different: pa.Array) -> None:
    """Raise if the distinct values of a text column are numbers with commas. A few of them may be codes."""
    commas = _matching(different, _COMMAS)
    # Whole numbers among pairs of them, such as 1 and 1,2, may be lists; 1,234,567 is none.
    whole = [] if len(_matching(commas, _THOUSANDS)) == len(commas) else _matching(different, _WHOLE)
    plain = _matching(different, _NUMBER)
    if len(commas) > FEW and len(commas) > len(whole) and len(commas) + len(plain) >= _MOST * len(different):
        where = f"column {name!r} holds numbers with commas, such as {commas[0].as_py()!r:.80}, which read as text"
        raise UserError(f"{where}; write 0.5 for 0,5 and 1234 for 1,234, or leave the column out")


def check_numbers(name: str, text: pa.ChunkedArray, first_row: RowNumbers = 1) -> None:
    """Raise if a text column holds numbers except for a few values, unless the numbers look like codes.

    Two of three things make codes of them: they repeat, they are whole, and what is no number has digits too (V57). So
    does a 0 at the beginning of one of them.
    """
    different = text.drop_null().unique()
    numbers = _matching(different, _NUMBER)
    if len(numbers) <= FEW or not _MOST * len(different) <= len(numbers) < len(different):
        return
    row = pc.index(pc.match_substring_regex(text, _NUMBER), False).as_py()
    signs = (
        len(different) <= _MOST * (len(text) - text.null_count),
        len(_matching(numbers, _WHOLE)) == len(numbers),
        len(_matching(different, r"\d")) > len(numbers),
    )
    if sum(signs) < 2 and not len(_matching(numbers, r"^0\d")):
        where = f"text {text[row].as_py()!r:.80} in column {name!r}, row {row_number(first_row, row)}"
        where = f"{where}, where most values are numbers"
        raise UserError(f"{where}; mend it, leave it empty if missing, or leave the column out")


def row_number(first_row: RowNumbers, index: int) -> int:
    """The number of the row at this index of a column."""
    return int(first_row[index]) if isinstance(first_row, np.ndarray) else first_row + index


def decoded(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column without a dictionary, whose text is UTF-8."""
    kind_of(name, column.type)
    column = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    if _is_text(column.type):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise UserError(f"column {name!r} has letters that are not UTF-8; write them as UTF-8") from error
    return column


def first_unread(text: pa.ChunkedArray, type_: pa.DataType) -> int | None:
    """Index of the first value that does not read as this type, found by bisection; None if all do."""
    if _reads_as(text, type_):
        return None
    start, end = 0, len(text)
    while end - start > 1:
        middle = (start + end) // 2
        start, end = (middle, end) if _reads_as(text.slice(start, middle - start), type_) else (start, middle)
    return start


def missing_in(column: pa.ChunkedArray) -> np.ndarray:
    """Where a column has nulls."""
    return column.is_null().to_numpy().astype(bool, copy=False)


def _matching(values: pa.Array, pattern: str) -> pa.Array:
    """The values that match a regular expression."""
    return values.filter(pc.match_substring_regex(values, pattern))


def _is_text(type_: pa.DataType) -> bool:
    """Whether a type is text."""
    return pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_)


def _require(name: str, column: pa.ChunkedArray, kinds: Sequence[str], trained: str) -> None:
    """Raise if a column is of none of these kinds."""
    if (kind := kind_of(name, column.type)) not in kinds:
        raise UserError(f"column {name!r} holds {_WORDS[kind]}, but was {_WORDS[trained]} in training; give those")


def as_written(name: str, text: pa.ChunkedArray, kind: str) -> pa.ChunkedArray | None:
    """Text such as 379.4 K as numbers, dates or flags; None if it is not of this kind. A bound becomes its number."""
    reading = cells.infer(name, text.drop_null().unique().to_pylist())
    if reading is None or reading.kind != kind:
        return None
    try:
        values = cells.read(text, reading)
    except pa.ArrowInvalid:
        return None
    return cell_numbers.plain_number(values) if reading.bounds else values


def bounds_in(column: pa.ChunkedArray) -> np.ndarray:
    """Where a column has numbers such as <0.05."""
    if not _is_text(column.type):
        return np.zeros(len(column), bool)
    return cell_numbers.is_bound(pc.utf8_trim_whitespace(column)).to_numpy().astype(bool, copy=False)


def _parsed(
    name: str, column: pa.ChunkedArray, types: Sequence[pa.DataType], first_row: RowNumbers, trained: str
) -> pa.ChunkedArray:
    """Text read as the first of the types that all of it reads as."""
    for type_ in types:
        if _reads_as(column, type_):
            return column.cast(type_)
    if (meant := as_written(name, column, trained)) is not None:
        return meant
    row = max(first_unread(column, type_) or 0 for type_ in types)
    where = f"text {column[row].as_py()!r:.80} in column {name!r}, row {row_number(first_row, row)}"
    raise UserError(f"{where}, which was {_WORDS[trained]} in training; mend it or mark it as missing")


def _reads_as(column: pa.ChunkedArray, type_: pa.DataType) -> bool:
    """Whether all of a text reads as this type."""
    try:
        column.cast(type_)
    except pa.ArrowInvalid:
        return False
    return True
