"""Tables of users in files: read whole or in pieces, and written atomically.

A table is a `pyarrow.Table`, whatever it came from. Files are text (CSV, TSV, .txt, .dat, JSON lines; plain, .gz or
.bz2), Excel workbooks, Parquet and Arrow (also called Feather or IPC), known by their suffix, or a folder of such files
of one format.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from ncprior.data.column_types import csv_table, plain, plain_type
from ncprior.data.formats import arrow as arrow_files
from ncprior.data.formats import csv as csv_tables
from ncprior.data.formats import excel, json_lines, typed
from ncprior.data.formats.dialect import PLAIN, DialectOptions
from ncprior.data.frames import check_names, one_line
from ncprior.data.table_parts import INFERRED, TEXT, Part, explained_reading, files_of, format_of
from ncprior.errors import UserError
from ncprior.files import explained, written, written_once

STANDARD = "-"
"""The name of standard input and output."""


def read(
    path: str | Path,
    columns: Sequence[str] | None = None,
    *,
    schema: Mapping[str, pa.DataType] | None = None,
    options: DialectOptions = PLAIN,
) -> pa.Table:
    """The whole table of a file or folder; the arguments are those of `stream`."""
    return pa.concat_tables(stream(path, columns, 1 << 20, schema=schema, options=options))


def stream(
    path: str | Path,
    columns: Sequence[str] | None = None,
    rows: int = 65_536,
    *,
    schema: Mapping[str, pa.DataType] | None = None,
    options: DialectOptions = PLAIN,
    units: "Sequence[Unit] | None" = None,
) -> Iterator[pa.Table]:
    """The table of a file or folder in pieces of `rows` rows (the last may have fewer), in bounded memory.

    Every piece has the same columns and types. Text files may be in any dialect and their cells written as people do
    (see `ncprior.data.formats.dialect` and `ncprior.data.cells`); what can be read in two ways is an error. Numbers in
    them are float64, so that 1.5 may come after any count of whole numbers; only whole numbers too large for that, such
    as identifiers, stay integers. The types of their columns come from the first 4 MB of each file, and a later value
    that does not fit is an error. Of an Arrow file, one batch at a time is in memory, as large as it was written, and
    one that is damaged is an error before it is used. An Excel sheet is read whole.

    Args:
        path: The file or the folder, whose files follow each other by name. Folders in it that are called KEY=VALUE
            add a column KEY, as Hive and Spark write them.
        columns: The columns to read, in this order; without it, all of the first file's.
        rows: The most rows in a piece.
        schema: Types of columns by name, such as those seen in training, for formats that have no types of their own.
        options: What is known about the dialect of text files.
        units: Only these `units` of the table, which may have no rows; columns and types are still those of the whole.
    """
    parts = files_of(Path(path))
    wanted = _wanted(Path(path), parts, columns, schema or {}, options)
    chosen = [Unit(number) for number in range(len(parts))] if units is None else units
    blocks = (
        table for unit in chosen for table in _blocks(parts[unit.file], wanted, rows, options, groups=unit.row_groups)
    )
    empty = True
    for piece in in_pieces(blocks, rows):
        empty = False
        yield piece
    if empty and units is None:
        raise UserError(f"{path}: has columns but no rows; give a table with at least one row")


class Unit(NamedTuple):
    """A part of a table that can be read apart from the others: a file, or row groups of a Parquet file."""

    file: int  # its place among the files of a folder
    row_groups: tuple[int, ...] | None = None  # None for all
    rows: int | None = None  # how many it has, if the file says so


def units(path: str | Path, least: int = 1, rows: int | None = None) -> list[Unit]:
    """The parts of a table that can be read apart: one for each file.

    Parquet files are parted further, into row groups, if there are fewer than ``least`` files, or to have about
    ``rows`` rows in each.

    Raises:
        UserError: If a file cannot be read.
    """
    parts = files_of(Path(path))
    found: list[Unit] = []
    for number, part in enumerate(parts):
        if format_of(part.file) != "Parquet":
            found.append(Unit(number))
            continue
        with explained_reading(part.file, PLAIN):
            about = pq.read_metadata(part.file)
        counts = [about.row_group(i).num_rows for i in range(about.num_row_groups)]
        if rows is None and len(parts) >= least:
            found.append(Unit(number, None, about.num_rows))
            continue
        group: list[int] = []
        for i, count in enumerate(counts):
            group.append(i)
            if i == len(counts) - 1 or rows is None or sum(counts[j] for j in group) + count > rows:
                found.append(Unit(number, tuple(group), sum(counts[j] for j in group)))
                group = []
    return found


def rows_of(units: Iterable[Unit]) -> int | None:
    """How many rows units have in all; None if a file does not say."""
    counts = [unit.rows for unit in units]
    return None if None in counts else sum(count or 0 for count in counts)


def schema_of(
    path: str | Path,
    columns: Sequence[str] | None = None,
    *,
    schema: Mapping[str, pa.DataType] | None = None,
    options: DialectOptions = PLAIN,
) -> pa.Schema:
    """Names and types of the columns that `stream` gives, without reading all rows.

    Columns that can be read in two ways are text here: whether they are wanted is not known yet.
    """
    return _wanted(Path(path), files_of(Path(path)), columns, schema or {}, options, strict=False)


def only_in_some(path: str | Path, options: DialectOptions = PLAIN) -> list[str]:
    """Columns that files of a folder have, but not the first of them, so that `stream` leaves them out."""
    parts = files_of(Path(path))
    first, *others = [_schema(part, (), {}, options, strict=False).names for part in parts] if len(parts) > 1 else [[]]
    return [name for name in dict.fromkeys(name for names in others for name in names) if name not in first]


def dialect_in_words(path: str | Path, options: DialectOptions = PLAIN) -> str:
    """How a file, or the first of a folder, was read, as one line; nothing if it is as files should be.

    Raises:
        UserError: If the file cannot be read, or an option is given that means nothing for it.
    """
    part = files_of(Path(path))[0]
    form = format_of(part.file) or ""
    for name, forms in _OPTIONS.items():
        field = {"sep": "separator", "header-row": "header_row"}.get(name, name)
        if getattr(options, field) not in (None, "") and form not in forms:
            raise UserError(f"--{name} is not for {form} files, such as {part.file}; leave it out")
    with explained_reading(part.file, options):
        if form in TEXT:
            return csv_tables.dialect_of(part.file, options).in_words()
        return excel.read(part.file, options).in_words() if form == "Excel" else ""


_OPTIONS = {
    **{"sep": TEXT, "encoding": TEXT, "header-row": (*TEXT, "Excel"), "decimal": INFERRED, "dates": INFERRED},
    "sheet": ("Excel",),
}
"""Formats for which the options of a dialect mean something."""


@contextmanager
def write(path: str | Path, *, once: bool = False) -> Iterator[Callable[[pa.Table], None]]:
    """Gives a function that appends tables to a new .parquet or .csv file, which appears when all is written.

    The name ``-`` stands for CSV on standard output, which is written as it comes.

    After an error, an interruption, or if nothing was appended, there is no new file and an old one stays as it was.
    Meanwhile nobody else can write the file, or with ``once`` the first of those who do (see `ncprior.files`).

    >>> from tempfile import TemporaryDirectory
    >>> from ncprior.data.frames import as_table
    >>> with TemporaryDirectory() as folder:
    ...     with write(f"{folder}/rows.csv") as append:
    ...         append(as_table({"x": [1.0, 2.0]}))
    ...     read(f"{folder}/rows.csv").num_rows
    2
    """
    target = Path(path)
    if str(target) == STANDARD:
        yield _standard_output()
        return
    csv = target.suffix.lower() == ".csv"
    if target.is_dir() or not (csv or target.suffix.lower() == ".parquet"):
        raise UserError(f"{target}: cannot be written; choose the name of a .parquet or .csv file")
    sink: BinaryIO | None = None
    writer: pa_csv.CSVWriter | pq.ParquetWriter | None = None

    def append(table: pa.Table) -> None:
        nonlocal sink, writer
        with explained(target, pa.ArrowException):
            table = csv_table(table) if csv else table
            if writer is None:
                sink = draft.open("wb")
                if csv:
                    writer = pa_csv.CSVWriter(sink, table.schema)
                else:
                    writer = pq.ParquetWriter(sink, table.schema, use_dictionary=_repeating(table))
            writer.write_table(table)

    with (written_once if once else written)(target) as draft:
        try:
            yield append
            if writer is not None and sink is not None:
                with explained(target, pa.ArrowException):
                    writer.close()
                    sink.close()
        finally:
            for opened in (writer, sink):
                with suppress(Exception):  # after an error, closing fails again for the same reason
                    if opened is not None:
                        opened.close()


_FIRST_VALUES = 1_024


def _repeating(table: pa.Table) -> list[str] | bool:
    """The columns whose first values repeat, or True for all.

    A dictionary makes these smaller. Others it makes larger, and it takes most of the time of writing them.
    """
    if any(pa.types.is_nested(type_) for type_ in table.schema.types):
        return True  # their parts are columns, too

    def repeats(values: pa.ChunkedArray) -> bool:
        try:
            return 2 * pc.count_distinct(values, mode="all").as_py() <= len(values)
        except pa.ArrowNotImplementedError:
            return True

    first = table.slice(0, _FIRST_VALUES)
    return [name for name, values in zip(first.column_names, first.columns, strict=True) if repeats(values)]


def _standard_output() -> Callable[[pa.Table], None]:
    """A function that writes tables to standard output as CSV."""
    first = True

    def append(table: pa.Table) -> None:
        nonlocal first
        sink = pa.BufferOutputStream()
        pa_csv.write_csv(csv_table(table), sink, pa_csv.WriteOptions(include_header=first))
        first = False
        sys.stdout.buffer.write(sink.getvalue())

    return append


def _wanted(
    path: Path,
    parts: Sequence[Part],
    columns: Sequence[str] | None,
    types: Mapping[str, pa.DataType],
    options: DialectOptions,
    *,
    strict: bool = True,
) -> pa.Schema:
    """The columns to read of all files, in one order and of one type each."""
    schemas = [_schema(part, columns, types, options, strict=strict) for part in parts]
    names = list(schemas[0].names if columns is None else columns)
    for part, found in zip(parts, schemas, strict=True):
        check_names(f"{part.file}", found.names, names)
    chosen = [pa.schema([found.field(name) for name in names], found.metadata) for found in schemas]
    merged = _merged(path, chosen, inferred=format_of(parts[0].file) in INFERRED)
    folder_types = {key: _folder_type(part.folders[key] for part in parts) for key in parts[0].folders if key in names}
    for key, kind in folder_types.items():
        merged = merged.set(names.index(key), pa.field(key, kind))
    return merged


def _schema(
    part: Part,
    columns: Sequence[str] | None,
    types: Mapping[str, pa.DataType],
    options: DialectOptions,
    *,
    strict: bool,
) -> pa.Schema:
    """Names and plain types of all columns of a file."""
    file, form = part.file, format_of(part.file)
    with explained_reading(file, options):
        if form == "Parquet":
            found = pq.read_schema(file)
        elif form == "Arrow":
            with arrow_files.opened(file) as arrow:
                found = arrow.schema
        elif form == "JSON lines":
            found = typed.schema(json_lines.first_rows(file), columns, types, options, units={}, strict=strict)
        elif form == "Excel":
            sheet = excel.read(file, options)
            found = typed.schema(sheet.rows, columns, types, options, units=sheet.units, strict=strict)
        else:
            found = csv_tables.schema(file, columns, types, options, strict=strict)
    plain_fields = [pa.field(field.name, plain_type(field.type), metadata=field.metadata) for field in found]
    folders = [pa.field(key, pa.string()) for key in part.folders if key not in found.names]
    return pa.schema([*plain_fields, *folders], metadata=found.metadata if form in INFERRED else None)


def _folder_type(values: Iterable[str | None]) -> pa.DataType:
    """The type of a column that the names of folders stand for."""
    present = [value for value in values if value is not None]
    return pa.int64() if all(re.fullmatch(r"-?\d{1,18}", value) for value in present) else pa.string()


def _merged(path: Path, schemas: Sequence[pa.Schema], *, inferred: bool) -> pa.Schema:
    """One schema for all files of a folder."""
    if inferred:
        return csv_tables.merged(schemas)
    try:
        return pa.unify_schemas(list(schemas), promote_options="permissive")
    except pa.ArrowException as error:
        raise UserError(f"{path}: its files do not fit together ({one_line(error)}); give columns one type") from error


def _blocks(
    part: Part, schema: pa.Schema, rows: int, options: DialectOptions, *, groups: Sequence[int] | None = None
) -> Iterator[pa.Table]:
    """The wanted columns of one file, or of row groups of it, block by block, in the wanted types."""
    file, form = part.file, format_of(part.file)
    added = {name: value for name, value in part.folders.items() if name in schema.names}
    file_schema = pa.schema([field for field in schema if field.name not in added], metadata=schema.metadata)
    with ExitStack() as opened, explained_reading(file, options):
        if form == "Parquet":
            parquet = opened.enter_context(pq.ParquetFile(file))
            batches = parquet.iter_batches(min(rows, 1 << 18), row_groups=groups, columns=file_schema.names)
        elif form == "Arrow":
            batches = opened.enter_context(arrow_files.opened(file, file_schema.names)).batches
        elif form == "JSON lines":
            batches = opened.enter_context(json_lines.opened(file, file_schema, options))
        elif form == "Excel":
            sheet = excel.read(file, options)
            batches = typed.converted(file, [sheet.rows], file_schema, typed.inferred(sheet.rows, options, sheet.units))
        else:
            batches = opened.enter_context(csv_tables.opened(file, file_schema.names, file_schema, options))
        for batch in batches:
            if form in ("Parquet", "Arrow"):
                arrow_files.check(file, batch)
            table = plain(pa.Table.from_batches([batch]).select(file_schema.names)).cast(file_schema)
            for name, value in added.items():
                kind = schema.field(name).type
                constant = pa.repeat(pa.scalar(value, pa.string()).cast(kind), table.num_rows)
                table = table.append_column(name, constant)
            yield table.select(schema.names) if added else table


def in_pieces(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """The same rows in pieces of equal size, whatever the sizes of the blocks; the last piece may be smaller."""
    waiting: pa.Table | None = None
    for table in tables:
        waiting = table if waiting is None else pa.concat_tables([waiting, table])
        ready = waiting.num_rows - waiting.num_rows % rows
        yield from (waiting.slice(start, rows) for start in range(0, ready, rows))
        waiting = waiting.slice(ready)
    if waiting is not None and waiting.num_rows:
        yield waiting
