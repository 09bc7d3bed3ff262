"""Columns of text files: what their cells are read as, and what a schema says about that.

How the cells of a column were written is kept in the metadata of its field, as long as there is something to say: its
unit, whether some of its numbers are bounds, and a line for people.
"""

import dataclasses
import json
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ncprior.data import cells
from ncprior.data.cell_dates import Order
from ncprior.data.cell_numbers import Decimal
from ncprior.data.cells import Reading
from ncprior.errors import UserError

KINDS = {"number": "a number", "date": "a date", "flag": "yes or no", "text": "text"}
_KEY = b"ncprior"
_EXACT = 2**53  # float64 holds every whole number up to this one


class Inferred(NamedTuple):
    """How to read a column, and its unit if it has a row of units; or why that cannot be known."""

    reading: Reading | None
    unit: str = ""
    doubt: str = ""


class Written(NamedTuple):
    """How the cells of a column were written."""

    note: str = ""
    """In words."""
    unit: str = ""
    bounds: bool = False


class Habits(NamedTuple):
    """How numbers and dates of a table were written, for other files of the same people that leave it open."""

    decimal: Decimal = ""
    dates: Order = ""


def infer(
    name: str, values: pa.Array, unit: str = "", *, decimal: Decimal = "", order: Order = "", lists: bool = False
) -> Inferred | None:
    """How to read a column whose first values are given; None if there is nothing to say about it."""
    unit = unit.strip("[]() ")
    unit = "" if cells.is_missing(unit) else unit
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return Inferred(None, unit) if unit else None
    try:
        found = values.drop_null().unique().to_pylist()
        reading = cells.infer(name, found, decimal=decimal, order=order, lists=lists)
    except UserError as error:
        return Inferred(None, unit, doubt=str(error))
    return Inferred(reading, unit) if reading or unit else None


def field(
    name: str, inferred: Inferred | None, plain: pa.DataType, given: pa.DataType | None, *, strict: bool
) -> pa.Field:
    """The field of a column.

    Args:
        name: The column.
        inferred: How to read it, if not as Arrow does.
        plain: The type that Arrow reads.
        given: The type in which it is wanted.
        strict: Whether a column that can be read in two ways is an error; else it is text.
    """
    wanted = "any" if given is None else _kind(given)
    if inferred is None or wanted == "text":
        return pa.field(name, plain)
    if inferred.doubt:
        if strict:
            raise UserError(inferred.doubt)
        return pa.field(name, pa.string())
    reading = inferred.reading
    if reading is None or reading.kind == "text" or wanted not in ("any", reading.kind):
        about = (
            Written(f"in {inferred.unit}", inferred.unit) if inferred.unit and _kind(plain) == "number" else Written()
        )
        return pa.field(name, plain, metadata=_metadata(about))
    unit = reading.unit or (inferred.unit if reading.kind == "number" else "")
    note = dataclasses.replace(reading, unit=unit).in_words()
    return pa.field(name, reading.type, metadata=_metadata(Written(note, unit, reading.bounds)))


def reading_for(field: pa.Field, inferred: Inferred | None, decimal: Decimal) -> Reading | None:
    """How to read a column so that it is of this field; None if Arrow reads it."""
    reading = inferred.reading if inferred else None
    if written(field).bounds:
        reading = reading if reading and reading.kind == "number" else Reading("number", decimal=decimal)
        return dataclasses.replace(reading, bounds=True)
    if reading is not None and reading.kind == "date" and pa.types.is_temporal(field.type):
        return reading  # days become points in time where another file has these
    if reading is None or (reading.kind != "text" and reading.type != field.type):
        return None
    if reading.kind == "number" and reading.bounds:
        return None  # wanted as text
    return reading if pa.types.is_string(field.type) or reading.kind != "text" else None


def written(field: pa.Field) -> Written:
    """How the cells of a column were written, by its metadata."""
    found = (field.metadata or {}).get(_KEY)
    return Written(**json.loads(found)) if found else Written()


def with_habits(schema: pa.Schema, decimal: Decimal, readings: Iterable[Reading | None]) -> pa.Schema:
    """The schema with what its table shows of how numbers and dates are written."""
    orders: list[Order] = [reading.order for reading in readings if reading and reading.order]
    return schema.with_metadata(_metadata(Habits(decimal, orders[0] if len(set(orders)) == 1 else "")))


def habits(schema: pa.Schema) -> Habits:
    """How numbers and dates of a table were written."""
    found = (schema.metadata or {}).get(_KEY)
    return Habits(**json.loads(found)) if found else Habits()


def arrow_type(first: pa.Array, given: pa.DataType | None) -> pa.DataType:
    """The type in which to read a column, from the type that is given or else from its first values."""
    kind = first.type if given is None or pa.types.is_null(given) else given
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind):
        # Numbers that large are identifiers, which rounding would confuse.
        is_integer = pa.types.is_integer(first.type)
        large = is_integer and any(abs(end) > _EXACT for end in pc.min_max(first).as_py().values())
        return first.type if large else pa.float64()
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return pa.float64()
    # Arrow infers binary for what is not UTF-8; reading it as text says so in an error.
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) or pa.types.is_binary(kind):
        return pa.string()
    # Fractions of seconds may come later: many programs leave them out of whole seconds.
    return pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) and kind.unit == "s" else kind


def first_odd(values: pa.Array, reading: Reading) -> int:
    """The place of the first value that does not read as the others."""
    start, end = 0, len(values)
    while end - start > 1:
        middle = (start + end) // 2
        start, end = (middle, end) if _reads(values.slice(start, middle - start), reading) else (start, middle)
    return start


def _reads(values: pa.Array, reading: Reading) -> bool:
    try:
        cells.read(values, reading)
    except pa.ArrowInvalid:
        return False
    return True


def _metadata(about: NamedTuple) -> dict[bytes, bytes] | None:
    return {_KEY: json.dumps(about._asdict()).encode()} if any(about) else None


def _kind(type_: pa.DataType) -> str:
    """The kind of cells that a type is wanted for."""
    is_ = pa.types
    if is_.is_null(type_):
        return "any"
    if is_.is_integer(type_) or is_.is_floating(type_) or is_.is_decimal(type_):
        return "number"
    if is_.is_boolean(type_):
        return "flag"
    return "date" if is_.is_temporal(type_) else "text"
