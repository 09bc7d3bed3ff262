"""Conversion of Arrow types: to the few that tables use, to those of CSV and Parquet, and to Python values.

Views, run-end encoded columns, dictionaries of them, and some extensions hold what other types hold too, but much of
Arrow does not compute with them. `plain` gives the other type, in which tables are kept; all else stays as it is. Nor
can Parquet hold dictionaries in which a value is missing: what stands for it is then missing itself.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from ncprior.errors import UserError


def plain_type(type_: pa.DataType) -> pa.DataType:
    """The type in which a column of this type is kept."""
    is_ = pa.types
    if is_.is_primitive(type_):
        return type_
    if is_.is_string_view(type_):
        return pa.large_string()
    if is_.is_binary_view(type_):
        return pa.large_binary()
    if is_.is_run_end_encoded(type_):
        return plain_type(type_.value_type)
    if is_.is_dictionary(type_):
        value_type = plain_type(type_.value_type)
        return type_ if value_type == type_.value_type else pa.dictionary(type_.index_type, value_type, type_.ordered)
    if isinstance(type_, pa.JsonType):
        return plain_type(type_.storage_type)
    if isinstance(type_, pa.Bool8Type):
        return pa.bool_()
    return type_


def plain(table: pa.Table) -> pa.Table:
    """The table with every column in its plain type."""
    schema, columns = table.schema, None
    for i, type_ in enumerate(schema.types):
        if ((kept := plain_type(type_)) is not type_ and kept != type_) or pa.types.is_dictionary(type_):
            columns = table.columns if columns is None else columns
            columns[i] = pa.chunked_array([_plain(chunk) for chunk in columns[i].chunks], kept)
    return table if columns is None else pa.table(columns, names=schema.names)


def _plain(values: pa.Array) -> pa.Array:
    """The values in their plain type."""
    type_ = values.type
    if (kept := plain_type(type_)) == type_ and not pa.types.is_dictionary(type_):
        return values
    if pa.types.is_run_end_encoded(type_):
        # A run ends before the row that its end names.
        rows = np.arange(values.offset, values.offset + len(values))
        runs = np.searchsorted(values.run_ends.to_numpy(), rows, side="right")
        return _plain(values.values).take(pa.array(runs))
    if pa.types.is_dictionary(type_):
        indices, dictionary = values.indices, _plain(values.dictionary)
        if dictionary.null_count and not pa.types.is_nested(dictionary.type):
            valid = dictionary.is_valid().to_numpy(zero_copy_only=False)
            positions = pa.array(np.cumsum(valid) - 1, type_.index_type, mask=~valid)
            indices, dictionary = positions.take(indices), dictionary.filter(valid)
        return pa.DictionaryArray.from_arrays(indices, dictionary, ordered=type_.ordered)
    if isinstance(type_, pa.BaseExtensionType):
        values = _plain(values.storage)
    return values.cast(kept)


def csv_table(table: pa.Table) -> pa.Table:
    """The table in types that CSV can hold: dictionaries are decoded, and bytes are text with escapes."""
    schema, columns = table.schema, table.columns
    for i, type_ in enumerate(schema.types):
        while pa.types.is_dictionary(type_):
            type_ = type_.value_type
            columns[i] = columns[i].cast(type_)
        if _is_bytes(type_):
            columns[i] = _text(columns[i], lambda value: value.decode(errors="backslashreplace"))
        elif isinstance(type_, pa.UuidType):
            columns[i] = _text(columns[i], str)
    return pa.table(columns, names=schema.names)


def check_held(file: Path, schema: pa.Schema) -> None:
    """Raise if a column could not be written to a CSV or Parquet file of this name."""
    csv = file.suffix.lower() != ".parquet"
    held: dict[pa.DataType, bool] = {}
    for name, type_ in zip(schema.names, schema.types, strict=True):
        if type_ not in held:
            held[type_] = _is_held(type_, csv)
        if not held[type_]:
            what = f"{file}: column {name!r} holds {type_!s:.80}, which {'CSV' if csv else 'Parquet'} cannot hold"
            other = "write a .parquet file instead" if csv and _is_held(type_, False) else "take it out of the table"
            raise UserError(f"{what}; {other}")


def python_rows(table: pa.Table) -> list[dict[str, object]]:
    """The rows as dictionaries of Python values. What Python cannot hold, such as dates after 9999, is text."""
    columns = [_python_values(column) for column in table.columns]
    names = table.column_names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _python_values(column: pa.ChunkedArray) -> list[object]:
    try:
        return list(column.to_pylist())
    except (ArithmeticError, ValueError, LookupError, pa.ArrowException):
        chunks = (chunk.dictionary_decode() if hasattr(chunk, "dictionary") else chunk for chunk in column.chunks)
        values = (chunk.slice(i, 1) for chunk in chunks for i in range(len(chunk)))
        return [" ".join(str(value).split())[1:-1].strip() if value.null_count == 0 else None for value in values]


def _is_held(type_: pa.DataType, csv: bool) -> bool:
    """Whether CSV or Parquet can hold a type, found by writing one empty row."""
    sink, row = pa.BufferOutputStream(), pa.table({"column": pa.nulls(1, type_)})
    try:
        if csv:
            pa_csv.write_csv(csv_table(row), sink)
        else:
            pq.write_table(row, sink)
    except pa.ArrowException:
        return False
    return True


def _is_bytes(type_: pa.DataType) -> bool:
    is_ = pa.types
    return is_.is_binary(type_) or is_.is_large_binary(type_) or is_.is_fixed_size_binary(type_)


def _text(column: pa.ChunkedArray, written: Callable[..., str]) -> pa.ChunkedArray:
    values = (None if value is None else written(value) for value in column.to_pylist())
    return pa.chunked_array([pa.array(values, pa.large_string())])
