"""Tables of users: read whole or in pieces, converted from other libraries, and written atomically.

A table is a `pyarrow.Table`, whatever it came from. Files are CSV or TSV (plain, .gz or .bz2), Parquet and Arrow
(also called Feather or IPC), known by their suffix, or a folder of such files of one format.
"""

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from pyarrow.interchange import from_dataframe

from ncprior.data.column_types import csv_table, plain, plain_type
from ncprior.data.formats import arrow as arrow_files
from ncprior.data.formats import csv as csv_tables
from ncprior.errors import UserError
from ncprior.files import explained, written

FORMATS = {
    **{".csv": "CSV", ".tsv": "TSV", ".parquet": "Parquet", ".arrow": "Arrow", ".feather": "Arrow", ".ipc": "Arrow"},
    **{".csv.gz": "CSV", ".csv.bz2": "CSV", ".tsv.gz": "TSV", ".tsv.bz2": "TSV"},
}


def read(
    path: str | Path, columns: Sequence[str] | None = None, *, schema: Mapping[str, pa.DataType] | None = None
) -> pa.Table:
    """The whole table of a file or folder; the arguments are those of `stream`."""
    return pa.concat_tables(stream(path, columns, 1 << 20, schema=schema))


def stream(
    path: str | Path,
    columns: Sequence[str] | None = None,
    rows: int = 65_536,
    *,
    schema: Mapping[str, pa.DataType] | None = None,
) -> Iterator[pa.Table]:
    """The table of a file or folder in pieces of `rows` rows (the last may have fewer), in bounded memory.

    Every piece has the same columns and types. Numbers in CSV are float64, so that 1.5 may come after any count of
    whole numbers; only whole numbers too large for that, such as identifiers, stay integers. The types of CSV columns
    come from the first 4 MB of each file, and a later value that does not fit is an error. Of an Arrow file, one batch
    at a time is in memory, as large as it was written, and one that is damaged is an error before it is used.

    Args:
        path: The file or the folder, whose files follow each other by name.
        columns: The columns to read, in this order; without it, all of the first file's.
        rows: The most rows in a piece.
        schema: Types of CSV columns by name, such as those seen in training. Other formats have types of their own.
    """
    files = _files(Path(path))
    wanted = _wanted(Path(path), files, columns, schema or {})
    empty = True
    for piece in _pieces((table for file in files for table in _blocks(file, wanted, rows)), rows):
        empty = False
        yield piece
    if empty:
        raise UserError(f"{path}: has columns but no rows; give a table with at least one row")


def schema_of(
    path: str | Path, columns: Sequence[str] | None = None, *, schema: Mapping[str, pa.DataType] | None = None
) -> pa.Schema:
    """Names and types of the columns that `stream` gives, without reading all rows."""
    return _wanted(Path(path), _files(Path(path)), columns, schema or {})


def as_table(data: object) -> pa.Table:
    """Convert data to a table; numbers are shared, not copied, where possible.

    Takes Arrow tables and batches, data frames of pandas, polars and others with the Arrow or data frame
    protocol, dictionaries of columns, lists of rows and 2-D NumPy arrays, whose columns are named x0, x1, and so on.

    >>> as_table([[1.0, 2.0]]).column_names
    ['x0', 'x1']
    """
    try:
        table = _converted(data)
    except UserError:
        raise
    except (pa.ArrowException, TypeError, ValueError, NotImplementedError) as error:
        what = f"{type(data).__name__} cannot be read as a table ({_line(error)})"
        raise UserError(f"{what}; give rows and columns of numbers, text or dates") from error
    names = [str(name) for name in table.column_names]
    _check_names("the table", names, ())
    return plain(table.rename_columns(names))


@contextmanager
def write(path: str | Path) -> Iterator[Callable[[pa.Table], None]]:
    """Gives a function that appends tables to a new .parquet or .csv file, which appears when all is written.

    After an error, an interruption, or if nothing was appended, there is no new file and an old one stays as it was.
    Meanwhile nobody else can write the file (see `ncprior.files`).

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with write(f"{folder}/rows.csv") as append:
    ...         append(as_table({"x": [1.0, 2.0]}))
    ...     read(f"{folder}/rows.csv").num_rows
    2
    """
    target = Path(path)
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
                writer = (pa_csv.CSVWriter if csv else pq.ParquetWriter)(sink, table.schema)
            writer.write_table(table)

    with written(target) as draft:
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


def _files(path: Path) -> list[Path]:
    """The file itself, or the tables in a folder by name."""
    with _found(path):
        size = path.stat().st_size
        if not path.is_dir():
            if _form(path) is None:
                raise UserError(f"{path}: unknown kind of file; its name should end in one of {', '.join(FORMATS)}")
            if size == 0:
                raise UserError(f"{path}: the file is empty; give one with a table in it")
            return [path]
        inside = sorted(path.iterdir())
    files = [file for file in inside if _form(file) and file.name[0] not in "._" and file.is_file()]
    if not files:
        raise UserError(f"{path}: no tables in this folder; their names should end in one of {', '.join(FORMATS)}")
    if len(forms := sorted({_form(file) or "" for file in files})) > 1:
        raise UserError(f"{path}: a folder of {' and '.join(forms)} files; keep files of one kind only")
    return [one for file in files for one in _files(file)]


def _form(file: Path) -> str | None:
    """The format of a file, by its suffix."""
    return next((form for ending, form in FORMATS.items() if file.name.lower().endswith(ending)), None)


def _wanted(
    path: Path, files: Sequence[Path], columns: Sequence[str] | None, types: Mapping[str, pa.DataType]
) -> pa.Schema:
    """The columns to read of all files, in one order and of one type each."""
    schemas = [_schema(file, columns, types) for file in files]
    names = list(schemas[0].names if columns is None else columns)
    for file, found in zip(files, schemas, strict=True):
        _check_names(f"{file}", found.names, names)
    chosen = [pa.schema([found.field(name) for name in names]) for found in schemas]
    return _merged(path, chosen, csv=_form(files[0]) in ("CSV", "TSV"))


def _schema(file: Path, columns: Sequence[str] | None, types: Mapping[str, pa.DataType]) -> pa.Schema:
    """Names and plain types of all columns of a file."""
    with _found(file):
        if _form(file) == "Parquet":
            found = pq.read_schema(file)
        elif _form(file) == "Arrow":
            with arrow_files.opened(file) as arrow:
                found = arrow.schema
        else:
            found = csv_tables.schema(file, columns, types)
        return pa.schema([(name, plain_type(kind)) for name, kind in zip(found.names, found.types, strict=True)])


def _merged(path: Path, schemas: Sequence[pa.Schema], *, csv: bool) -> pa.Schema:
    """One schema for all files of a folder."""
    if csv:
        return csv_tables.merged(schemas)
    try:
        return pa.unify_schemas(list(schemas), promote_options="permissive")
    except pa.ArrowException as error:
        raise UserError(f"{path}: its files do not fit together ({_line(error)}); give columns one type") from error


def _blocks(file: Path, schema: pa.Schema, rows: int) -> Iterator[pa.Table]:
    """The wanted columns of one file, block by block, in the wanted types."""
    names = schema.names
    with ExitStack() as opened, _found(file):
        if _form(file) == "Parquet":
            parquet = opened.enter_context(pq.ParquetFile(file))
            batches = parquet.iter_batches(min(rows, 1 << 18), columns=names)
        elif _form(file) == "Arrow":
            batches = opened.enter_context(arrow_files.opened(file, names)).batches
        else:
            batches = opened.enter_context(csv_tables.opened(file, names, dict(zip(names, schema.types, strict=True))))
        for batch in batches:
            if _form(file) in ("Parquet", "Arrow"):
                arrow_files.check(file, batch)
            yield plain(pa.Table.from_batches([batch]).select(names)).cast(schema)


def _pieces(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """The same rows in pieces of equal size, whatever the sizes of the blocks; the last piece may be smaller."""
    waiting: pa.Table | None = None
    for table in tables:
        waiting = table if waiting is None else pa.concat_tables([waiting, table])
        whole = waiting.num_rows - waiting.num_rows % rows
        yield from (waiting.slice(start, rows) for start in range(0, whole, rows))
        waiting = waiting.slice(whole)
    if waiting is not None and waiting.num_rows:
        yield waiting


def _converted(data: object) -> pa.Table:
    """A table from anything that holds one, its names not yet checked."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if hasattr(data, "columns") and any(base.__module__.partition(".")[0] == "pandas" for base in type(data).__mro__):
        _check_names("the data frame", [str(name) for name in data.columns], ())
        return pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata(None)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return pa.table(data)
    if hasattr(data, "__dataframe__"):
        return from_dataframe(data)
    if isinstance(data, Mapping):
        _check_names("the dictionary", [str(name) for name in data], ())
        columns = {str(name): values for name, values in data.items()}
    elif isinstance(data, list | tuple):
        if not data or not all(isinstance(row, list | tuple | np.ndarray) and len(row) for row in data):
            raise UserError("a list is read as a table row by row; give a list of rows, each a list of values")
        if (bad := next((i for i, row in enumerate(data) if len(row) != len(data[0])), None)) is not None:
            raise UserError(f"row {bad + 1} has {len(data[bad])} values, but row 1 has {len(data[0])}; make them equal")
        columns = {f"x{i}": values for i, values in enumerate(zip(*data, strict=True))}
    else:
        array = data if isinstance(data, np.ndarray) else np.asarray(data)
        if array.ndim != 2 or not array.shape[1]:
            what = f"{type(data).__name__} of shape {array.shape} is not a table"
            raise UserError(f"{what}; give rows and columns, as by reshape(-1, 1) of an array")
        columns = {f"x{i}": array[:, i] for i in range(array.shape[1])}
    return pa.table({name: _column(name, values) for name, values in columns.items()})


def _column(name: str, values: object) -> pa.Array | pa.ChunkedArray:
    """One column. The type of Python objects is inferred from their values, and NaN among them is missing."""
    if isinstance(values, np.ndarray):
        native = values.dtype.newbyteorder("=")
        values = values.tolist() if values.dtype.kind in "OT" else values.astype(native, copy=False)
    try:
        return pa.array(values, from_pandas=not isinstance(values, np.ndarray))
    except (pa.ArrowException, TypeError, ValueError, OverflowError, NotImplementedError) as error:
        what = f"column {name!r} cannot be read ({_line(error)})"
        raise UserError(f"{what}; make all its values numbers, text or dates") from error


def _check_names(where: str, names: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise if a name stands for two columns, or a wanted column is not there."""
    counts = Counter(names)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise UserError(f"{where}: more than one column is called {twice[0]!r}; give each a name of its own")
    if missing := [name for name in wanted if name not in counts]:
        close = {match: None for name in missing for match in difflib.get_close_matches(name, names, 3, 0.5)}
        listed = ", ".join(map(repr, close or names[:9]))
        hint = f"did you mean {listed}?" if close else f"it has {listed}"
        raise UserError(f"{where}: no column {', '.join(map(repr, missing))}; {hint} (case matters)")


@contextmanager
def _found(file: Path) -> Iterator[None]:
    """Turn errors of reading a file into a `UserError` with advice."""
    try:
        yield
    except FileNotFoundError as error:
        close = difflib.get_close_matches(file.name, [at.name for at in file.parent.glob("*")], 3)
        hint = f"did you mean {' or '.join(close)}?" if close else "check its name and folder"
        raise UserError(f"{file}: no such file or folder; {hint}") from error
    except PermissionError as error:
        raise UserError(f"{file}: no permission to read it; ask its owner, or copy it to your own folder") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: its header has letters that are not UTF-8; save the file as UTF-8") from error
    except (pa.ArrowException, OSError) as error:
        damaged = f"not a {_form(file)} file, or damaged ({_line(error)}); get it anew"
        raise UserError(f"{file}: {csv_tables.reason(file, str(error)) or damaged}") from error


def _line(error: object) -> str:
    """A message as one printable line."""
    line = " ".join(str(error).split())[:200]
    return "".join(letter if letter.isprintable() else "?" for letter in line)
