"""CSV and TSV files in blocks, with the same types in every block."""

import codecs
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from ncprior.errors import UserError

MISSING = ("", "NA", "NaN", "nan", "null", "None", "N/A")  # what counts as no value

# Bytes that are parsed at a time; the first block tells the types of the columns. Arrow reads some 32 blocks ahead, so
# larger ones would need much memory.
_BLOCK = 1 << 22
_HEADER = 1 << 16  # bytes of a header that are looked at
_EXACT = 2**53  # float64 holds every whole number up to this one
_COMPRESSION = {".gz": "gzip", ".bz2": "bz2"}
# What the values of a column may be that is empty in the first block; all text reads as the last of them.
_LATE = (pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.string())
_KINDS = {"double": "a number", "bool": "true or false", "date32": "a date", "timestamp": "a date and time"}


@contextmanager
def opened(
    file: Path, columns: Sequence[str] | None, types: Mapping[str, pa.DataType]
) -> Iterator[pa_csv.CSVStreamingReader]:
    """The blocks of a file as record batches, with all columns or the given ones, in the given types."""
    # Without threads, Arrow's messages have line numbers.
    reading = pa_csv.ReadOptions(block_size=_BLOCK, use_threads=False)
    parsing = pa_csv.ParseOptions(delimiter=_delimiter(file), newlines_in_values=True)
    conversion = pa_csv.ConvertOptions(
        column_types=types, include_columns=columns, null_values=MISSING, strings_can_be_null=True
    )
    with _source(file) as source, pa_csv.open_csv(source, reading, parsing, conversion) as blocks:
        yield blocks


def schema(file: Path, columns: Collection[str] | None, given: Mapping[str, pa.DataType]) -> pa.Schema:
    """The columns of a file with the types in which to read them.

    A type is the given one or inferred from the first block, where numbers are float64 so that 1.5 may follow whole
    numbers. If the first block has nothing in a column that is wanted, the rest of the file is searched for values.
    """
    _check_header(file)
    with opened(file, None, {}) as blocks:
        names, first = blocks.schema.names, next(iter(blocks), None)
    if first is None:
        return pa.schema([(name, pa.null()) for name in names])
    types = [_type(values, given.get(name)) for name, values in zip(names, first.columns, strict=True)]
    # Names that occur twice are for the caller to complain about.
    twice = {name for name, count in Counter(names).items() if count > 1}
    late = {name for name, kind in zip(names, types, strict=True) if kind == pa.null()} - twice
    late &= set(names if columns is None else columns)
    if late:
        with opened(file, sorted(late), dict.fromkeys(late, pa.string())) as blocks:
            found = _late_types(blocks, late)
        types = [found.get(name, kind) for name, kind in zip(names, types, strict=True)]
    return pa.schema(list(zip(names, types, strict=True)))


def merged(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """One schema for files with the same columns; a column whose types differ is text."""
    fields = []
    for name in schemas[0].names:
        kinds = {found.field(name).type for found in schemas} - {pa.null()}
        for wide, narrow in ((pa.float64(), pa.int64()), (pa.timestamp("us"), pa.date32())):
            kinds = {wide} if kinds == {wide, narrow} else kinds
        fields.append((name, pa.string() if len(kinds) > 1 else next(iter(kinds), pa.null())))
    return pa.schema(fields)


def reason(file: Path, message: str) -> str | None:
    """A clear message for an error of Arrow about a damaged CSV file; None for other errors."""
    if "Empty CSV file" in message:
        return "has no rows; give a table with at least one row under its header"
    if ragged := re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", message):
        return f"line {ragged[1]} has {ragged[3]} values, but the header has {ragged[2]}; mend or drop that line"
    if "straddling object" in message:
        return f"a line is longer than {_BLOCK >> 20} MB; look for a quotation mark that is never closed"
    conversion = r"column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+).*?: (?:invalid value )?(.*)"
    if not (found := re.search(conversion, message, re.DOTALL)):
        return None
    with opened(file, None, {}) as blocks:
        name = blocks.schema.names[int(found[1])]
    if "UTF8" in found[4]:
        return f"column {name!r} has letters that are not UTF-8; save the file as UTF-8"
    where = f"{' '.join(found[4].split())[:80]} in column {name!r}, line {found[2]},"
    return f"{where} is not {_KINDS.get(found[3], found[3])}, as the column is; mend it, or leave it empty if missing"


def _check_header(file: Path) -> None:
    """Raise if the first line shows that the file is UTF-16, or that columns have another separator."""
    with _source(file) as source:
        header = source.read(_HEADER).partition(b"\n")[0]
    if header.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in header:
        raise UserError(f"{file}: is UTF-16 or no text at all; save the file as UTF-8")
    if b";" in header and _delimiter(file).encode() not in header:
        other = "tabs between them" if _delimiter(file) == "\t" else "commas between them and points in numbers"
        raise UserError(f"{file}: its columns are separated by semicolons; save it with {other}")


def _source(file: Path) -> pa.NativeFile:
    """The bytes of a file, which may be compressed."""
    return pa.input_stream(str(file), compression=_COMPRESSION.get(file.suffix.lower()))


def _delimiter(file: Path) -> str:
    """The separator of columns, by the suffix of the file."""
    return "\t" if ".tsv" in [suffix.lower() for suffix in file.suffixes] else ","


def _type(first: pa.Array, given: pa.DataType | None) -> pa.DataType:
    """The type in which to read a column, from the type that is given or else from its first values."""
    kind = first.type if given is None or pa.types.is_null(given) else given
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind):
        # Numbers that large are identifiers, which rounding would confuse.
        whole = pa.types.is_integer(first.type)
        large = whole and any(abs(end) > _EXACT for end in pc.min_max(first).as_py().values())
        return first.type if large else pa.float64()
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return pa.float64()
    # Arrow infers binary for what is not UTF-8; reading it as text says so in an error.
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) or pa.types.is_binary(kind):
        return pa.string()
    # Fractions of seconds may come later: many programs leave them out of whole seconds.
    return pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) and kind.unit == "s" else kind


def _late_types(blocks: Iterable[pa.RecordBatch], names: Collection[str]) -> dict[str, pa.DataType]:
    """The types of columns of text, each from the first block in which it has values."""
    found: dict[str, pa.DataType] = {}
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
