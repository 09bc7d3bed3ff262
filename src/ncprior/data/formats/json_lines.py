"""JSON lines: one object for each row, in blocks."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.json as pa_json

from ncprior.data.formats import typed
from ncprior.data.formats.dialect import DialectOptions
from ncprior.errors import UserError

_BLOCK = 1 << 22
"""Bytes that are parsed at a time; the first block tells the columns and their types."""


def first_rows(file: Path) -> pa.RecordBatch:
    """The rows of the first block."""
    stat = file.stat()
    return _first_rows(file, stat.st_mtime_ns, stat.st_size)


@lru_cache(16)
def _first_rows(file: Path, changed: int, size: int) -> pa.RecordBatch:  # noqa: ARG001
    with _source(file) as source:
        if source.read(1) == b"[":
            raise UserError(f"{file}: is one list; write one object on each line, as in JSON lines")
    with _source(file) as source, pa_json.open_json(source, pa_json.ReadOptions(block_size=_BLOCK)) as blocks:
        return next(iter(blocks))


@contextmanager
def opened(file: Path, schema: pa.Schema, options: DialectOptions) -> Iterator[Iterator[pa.RecordBatch]]:
    """The blocks of a file as record batches, with the columns of the schema in its types."""
    first = first_rows(file)
    readings = typed.inferred(first, options, {})
    raw = pa.schema([_raw(first.schema.field(field.name), field) for field in schema])
    parsing = pa_json.ParseOptions(explicit_schema=raw, unexpected_field_behavior="ignore", newlines_in_values=False)
    reading = pa_json.ReadOptions(block_size=_BLOCK)
    with _source(file) as source, pa_json.open_json(source, reading, parsing) as blocks:
        yield typed.converted(file, blocks, schema, readings)


def reason(file: Path, message: str) -> str | None:
    """A clear message for an error of Arrow about a JSON file: the first line that is no object; None if all are."""
    with _source(file) as source:
        for number, line in enumerate(io.TextIOWrapper(io.BufferedReader(source), errors="replace"), 1):
            try:
                if line.strip() and not isinstance(json.loads(line), dict):
                    raise ValueError
            except ValueError:
                return f'line {number} is no JSON object; write one on each line, such as {{"x": 1}}'
    if "changed from" in message or "Column" in message:
        what = " ".join(message.split())[:120]
        return f"a column has values of different kinds ({what}); write them in one way"
    return None


def _raw(found: pa.Field, wanted: pa.Field) -> pa.Field:
    """The field as JSON has it: text stays text until its cells are read, and numbers may have fractions."""
    if pa.types.is_string(found.type) or pa.types.is_null(found.type):
        return pa.field(wanted.name, pa.string() if pa.types.is_string(found.type) else wanted.type)
    return pa.field(wanted.name, pa.float64() if pa.types.is_floating(wanted.type) else found.type)


def _source(file: Path) -> pa.NativeFile:
    return pa.input_stream(str(file), compression="gzip" if file.suffix.lower() == ".gz" else None)
