"""Tables whose values have types of their own, but whose text is as people write it: JSON lines and Excel sheets."""

from collections.abc import Collection, Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from ncprior.data import cells
from ncprior.data.formats import text_columns
from ncprior.data.formats.dialect import DialectOptions
from ncprior.data.formats.text_columns import Inferred
from ncprior.errors import UserError


def inferred(first: pa.RecordBatch, options: DialectOptions, units: Mapping[str, str]) -> dict[str, Inferred]:
    """How to read the columns of text, by the first rows, and which units those have that a row of units names."""
    decimal, order = options.decimal or options.trained_decimal, options.dates or options.trained_dates
    found = {}
    for name, values in zip(first.schema.names, first.columns, strict=True):
        unit, text = units.get(name, ""), without_missing(values)
        if one := text_columns.infer(name, text, unit, decimal=decimal, order=order, lists=True):
            found[name] = one
    return found


def schema(
    first: pa.RecordBatch,
    columns: Collection[str] | None,
    given: Mapping[str, pa.DataType],
    options: DialectOptions,
    *,
    units: Mapping[str, str],
    strict: bool = True,
) -> pa.Schema:
    """The columns with the types in which to read them, by the first rows; the arguments are those of `csv.schema`."""
    readings = inferred(first, options, units)
    fields = []
    for name, values in zip(first.schema.names, first.columns, strict=True):
        wanted = strict and (columns is None or name in columns)
        given_type = given.get(name)
        # What has a type of its own, such as a date, is not read in another.
        text = pa.types.is_string(values.type)
        plain = text_columns.arrow_type(values, None if text and _is_text(given_type) else given_type if text else None)
        fields.append(text_columns.field(name, readings.get(name), plain, given_type, strict=wanted))
    return text_columns.with_habits(pa.schema(fields), options.decimal, (one.reading for one in readings.values()))


def converted(
    file: object, batches: Iterable[pa.RecordBatch], schema: pa.Schema, readings: Mapping[str, Inferred]
) -> Iterator[pa.RecordBatch]:
    """The batches with the columns of the schema, their text read as people mean it."""
    done = 0
    for batch in batches:
        columns = []
        for field in schema:
            values = without_missing(batch.column(field.name))
            reading = text_columns.reading_for(field, readings.get(field.name), "")
            try:
                if reading and pa.types.is_string(values.type):
                    values = cells.read(values, reading)
                columns.append(values.cast(field.type))
            except pa.ArrowInvalid as error:
                place = text_columns.first_odd(values, reading) if reading else _first_uncast(values, field.type)
                where = f"{values[place].as_py()!r:.80} in column {field.name!r}, row {done + place + 1},"
                kind = text_columns.KINDS[reading.kind] if reading else f"{field.type}"
                what = f"is not {kind}, as the column is; mend it, or leave it empty if missing"
                raise UserError(f"{file}: {where} {what}") from error
        yield pa.RecordBatch.from_arrays(columns, names=schema.names)
        done += batch.num_rows


def without_missing(values: pa.Array) -> pa.Array:
    """Text with nulls in place of what stands for no value."""
    if not pa.types.is_string(values.type):
        return values
    return pc.if_else(pc.is_in(values, pa.array(cells.MISSING)), pa.scalar(None, pa.string()), values)


def _is_text(type_: pa.DataType | None) -> bool:
    return type_ is not None and pa.types.is_string(type_)


def _first_uncast(values: pa.Array, type_: pa.DataType) -> int:
    for place in range(len(values)):
        try:
            values.slice(place, 1).cast(type_)
        except pa.ArrowInvalid:
            return place
    return 0
