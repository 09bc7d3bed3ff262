"""CSV and other text files in blocks, with the same types in every block."""

import io
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv as pa_csv

from ncprior.data import cells
from ncprior.data.cells import Reading
from ncprior.data.formats import text_columns
from ncprior.data.formats.dialect import SAMPLE, Dialect, DialectOptions, detect
from ncprior.data.formats.layout import BLANKS, counted, records
from ncprior.data.formats.text_columns import Inferred
from ncprior.errors import UserError

# Bytes that are parsed at a time; the first block tells the types of the columns. Arrow reads some 32 blocks ahead, so
# larger ones would need much memory.
_BLOCK = 1 << 22
_COMPRESSION = {".gz": "gzip", ".bz2": "bz2"}
# What the values of a column may be that is empty in the first block; all text reads as the last of them.
_LATE = (pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.string())
_KINDS = {"double": "a number", "bool": "true or false", "date32": "a date", "timestamp": "a date and time"}


class _Beginning(NamedTuple):
    """The beginning of a file: header, types and settings that follow from its first block."""

    names: list[str]
    first: list[pa.Array] | None  # of each column; None if there are no rows
    inferred: dict[str, Inferred]


def dialect_of(file: Path, options: DialectOptions) -> Dialect:
    """The dialect of a file."""
    stat = file.stat()
    return _dialect(file, stat.st_mtime_ns, stat.st_size, options)


@lru_cache(256)
def _dialect(file: Path, changed: int, size: int, options: DialectOptions) -> Dialect:  # noqa: ARG001
    with _source(file) as source:
        sample = source.read(SAMPLE + 1)
    tabs = ".tsv" in [suffix.lower() for suffix in file.suffixes]
    return detect(file, sample[:SAMPLE], complete=len(sample) <= SAMPLE, options=options, tabs=tabs)


@contextmanager
def opened(
    file: Path, columns: Sequence[str] | None, schema: pa.Schema, options: DialectOptions
) -> Iterator[Iterator[pa.RecordBatch]]:
    """The blocks of a file as record batches, with the given columns in the types of the schema.

    Args:
        file: The file.
        columns: The columns; None for all.
        schema: As `schema` gives it, or with other types, as which Arrow then reads the text.
        options: What is known of the dialect.
    """
    dialect, inferred = dialect_of(file, options), _beginning(file, options).inferred
    readings: dict[str, Reading] = {}
    for field in schema:
        if reading := text_columns.reading_for(field, inferred.get(field.name), dialect.decimal):
            readings[field.name] = reading
    types = {field.name: pa.string() if field.name in readings else field.type for field in schema}
    with _blocks(file, columns, types, dialect) as blocks:
        yield _converted(file, blocks, readings, dialect)


def schema(
    file: Path,
    columns: Collection[str] | None,
    given: Mapping[str, pa.DataType],
    options: DialectOptions,
    *,
    strict: bool = True,
) -> pa.Schema:
    """The columns of a file with the types in which to read them.

    A type is the given one or inferred from the first block, where numbers are float64 so that 1.5 may follow whole
    numbers. If the first block has nothing in a column that is wanted, the rest of the file is searched for values.

    Raises:
        UserError: If ``strict`` and a wanted column can be read in two ways.
    """
    dialect, (names, first, inferred) = dialect_of(file, options), _beginning(file, options)
    if first is None:
        return pa.schema([(name, pa.null()) for name in names])
    fields = []
    for name, values in zip(names, first, strict=True):
        wanted = strict and (columns is None or name in columns)
        plain = text_columns.arrow_type(values, given.get(name))
        fields.append(text_columns.field(name, inferred.get(name), plain, given.get(name), strict=wanted))
    # Names that occur twice are for the caller to complain about.
    twice = {name for name, count in Counter(names).items() if count > 1}
    late = {field.name for field in fields if field.type == pa.null()} - twice
    late &= set(names if columns is None else columns)
    if late:
        found = _late_types(file, late, dialect)
        fields = [pa.field(field.name, found.get(field.name, field.type), metadata=field.metadata) for field in fields]
    return text_columns.with_habits(pa.schema(fields), dialect.decimal, (one.reading for one in inferred.values()))


def merged(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """One schema for files with the same columns; a column whose types differ is text."""
    fields = []
    for name in schemas[0].names:
        found = [schema.field(name) for schema in schemas]
        kinds = {field.type for field in found} - {pa.null()}
        for wide, narrow in ((pa.float64(), pa.int64()), (pa.timestamp("us"), pa.date32())):
            kinds = {wide} if kinds == {wide, narrow} else kinds
        kind = pa.string() if len(kinds) > 1 else next(iter(kinds), pa.null())
        described = sorted(
            filter(None, (one.metadata and one for one in found)), key=lambda one: not text_columns.written(one).bounds
        )
        fields.append(pa.field(name, kind, metadata=described[0].metadata if described else None))
    return pa.schema(fields, metadata=schemas[0].metadata)


def reason(file: Path, message: str, options: DialectOptions) -> str | None:
    """A clear message for an error of Arrow about a damaged CSV file; None for other errors."""
    if "Empty CSV file" in message or "Could not skip" in message:
        return "has no rows; give a table with at least one row under its header"
    if "straddling object" in message:
        return f"a line is longer than {_BLOCK >> 20} MB; look for a quotation mark that is never closed"
    ragged = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", message)
    conversion = r"column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+).*?: (?:invalid value )?(.*)"
    found = re.search(conversion, message, re.DOTALL)
    if not ragged and not found:
        return None
    dialect = dialect_of(file, options)
    if ragged:
        line = _line(file, dialect, int(ragged[1]) - dialect.skipped)
        return f"line {line} has {counted(int(ragged[3]))}, but the header has {ragged[2]}; mend or drop that line"
    assert found is not None
    name = dialect.names[int(found[1])]
    if "UTF8" in found[4]:
        return f"column {name!r} has letters that are not UTF-8; say --encoding cp1252, or save the file as UTF-8"
    line = _line(file, dialect, int(found[2]) - dialect.skipped)
    return _odd_value(" ".join(found[4].split()), name, line, _KINDS.get(found[3], found[3]))


def _odd_value(value: str, name: str, line: int, kind: str) -> str:
    where = f"{value[:80]} in column {name!r}, line {line},"
    return f"{where} is not {kind}, as the column is; mend it, or leave it empty if missing"


def _line(file: Path, dialect: Dialect, row: int) -> int:
    """The number of the line in which a row of values begins; Arrow does not count empty ones."""
    with _source(file) as source:
        binary = io.BufferedReader(source)
        text = io.TextIOWrapper(binary, dialect.encoding, errors="replace", newline="")
        rows = (one for one in records(iter(text), dialect.separator) if one.line > dialect.skipped)
        found = next(islice(rows, row - 1, None), None)
        return dialect.skipped + row if found is None else found.line


@contextmanager
def _blocks(
    file: Path, columns: Sequence[str] | None, types: Mapping[str, pa.DataType], dialect: Dialect
) -> Iterator[pa_csv.CSVStreamingReader]:
    """The blocks of a file, as Arrow reads them."""
    blanks = dialect.separator == BLANKS
    # Without threads, Arrow's messages have line numbers.
    reading = pa_csv.ReadOptions(
        block_size=_BLOCK,
        use_threads=False,
        skip_rows=dialect.skipped,
        column_names=dialect.names,
        encoding="utf8" if blanks or dialect.encoding in ("utf-8", "utf-8-sig") else dialect.encoding,
    )
    parsing = pa_csv.ParseOptions(delimiter="\t" if blanks else dialect.separator, newlines_in_values=not blanks)
    conversion = pa_csv.ConvertOptions(
        column_types=types,
        include_columns=columns if columns is not None else _kept(dialect),
        null_values=cells.MISSING,
        strings_can_be_null=True,
        decimal_point="," if dialect.hint == "," and dialect.separator != "," else ".",
    )
    with _source(file) as source:
        bytes_ = _Tabbed(source, dialect.encoding) if blanks else source
        with pa_csv.open_csv(bytes_, reading, parsing, conversion) as blocks:
            yield blocks


def _kept(dialect: Dialect) -> list[str]:
    """The columns of a file, but for those without a name and a value."""
    return [name for i, name in enumerate(dialect.names) if i not in dialect.dropped]


class _Tabbed(io.RawIOBase):
    """A text in which blanks separate values, with single tabs in their place."""

    def __init__(self, source: pa.NativeFile, encoding: str) -> None:
        self.text = io.TextIOWrapper(io.BufferedReader(source), encoding, newline="")
        self.rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self.rest:
            lines = self.text.readlines(1 << 18)
            self.rest = "".join(map(_tabbed, lines)).encode()
        size = min(len(self.rest), len(buffer))
        buffer[:size] = self.rest[:size]
        self.rest = self.rest[size:]
        return size


def _tabbed(line: str) -> str:
    body = line.strip()
    if '"' in body:
        return re.sub(r'("[^"]*")|\s+', lambda found: found[1] or "\t", body) + "\n"
    return "\t".join(body.split()) + "\n"


def _converted(
    file: Path, blocks: Iterable[pa.RecordBatch], readings: Mapping[str, Reading], dialect: Dialect
) -> Iterator[pa.RecordBatch]:
    """The blocks with their text read as people mean it."""
    done = 0
    for block in blocks:
        columns = []
        for name, values in zip(block.schema.names, block.columns, strict=True):
            if name in readings:
                try:
                    values = cells.read(values, readings[name])
                except pa.ArrowInvalid as error:
                    place = text_columns.first_odd(values, readings[name])
                    line = _line(file, dialect, done + place + 1)
                    kind = text_columns.KINDS[readings[name].kind]
                    raise UserError(f"{file}: {_odd_value(repr(values[place].as_py()), name, line, kind)}") from error
            columns.append(values)
        yield pa.RecordBatch.from_arrays(columns, names=block.schema.names) if readings else block
        done += block.num_rows


def _beginning(file: Path, options: DialectOptions) -> _Beginning:
    stat = file.stat()
    return _first_block(file, stat.st_mtime_ns, stat.st_size, options)


@lru_cache(16)
def _first_block(file: Path, changed: int, size: int, options: DialectOptions) -> _Beginning:  # noqa: ARG001
    """The first values of every column, and how their text is to be read."""
    dialect = dialect_of(file, options)
    with _blocks(file, None, {}, dialect) as blocks:
        names, first = blocks.schema.names, next(iter(blocks), None)
    if first is None:
        return _Beginning(names, None, {})
    units = dict(zip(dialect.names, dialect.units, strict=False))
    order, lists = options.dates or options.trained_dates, dialect.separator == "," and options.decimal != ","
    inferred = {name: Inferred(None, doubt=doubt) for name, doubt in dialect.doubts}
    for name, values in zip(names, first.columns, strict=True):
        unit = units.get(name, "")
        found = text_columns.infer(name, values, unit, decimal=dialect.hint, order=order, lists=lists)
        if found and name not in inferred:
            inferred[name] = found
    # Whole numbers are kept, of which the largest count; of others, the type.
    kept = [values if pa.types.is_integer(values.type) else pa.nulls(0, values.type) for values in first.columns]
    return _Beginning(names, kept, inferred)


def _source(file: Path) -> pa.NativeFile:
    """The bytes of a file, which may be compressed."""
    return pa.input_stream(str(file), compression=_COMPRESSION.get(file.suffix.lower()))


def _late_types(file: Path, names: Collection[str], dialect: Dialect) -> dict[str, pa.DataType]:
    """The types of columns of text, each from the first block in which it has values."""
    found: dict[str, pa.DataType] = {}
    with _blocks(file, sorted(names), dict.fromkeys(names, pa.string()), dialect) as blocks:
        for block in blocks:
            for name in names:
                if name not in found and len(values := block[name].drop_null()):
                    found[name] = next(kind for kind in _LATE if _reads_as(values, kind))
            if len(found) == len(names):
                break
    return found


def _reads_as(text: pa.Array, kind: pa.DataType) -> bool:
    """Whether every value reads as this type."""
    try:
        text.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True
