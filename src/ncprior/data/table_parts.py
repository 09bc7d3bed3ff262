"""The files of a table: which they are, of which format, and what is wrong with one that cannot be read."""

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from ncprior.data.formats import csv as csv_tables
from ncprior.data.formats import json_lines
from ncprior.data.formats.dialect import PLAIN, DialectOptions
from ncprior.data.frames import one_line
from ncprior.errors import UserError

FORMATS = {
    **{".csv": "CSV", ".tsv": "TSV", ".parquet": "Parquet", ".arrow": "Arrow", ".feather": "Arrow", ".ipc": "Arrow"},
    **{".csv.gz": "CSV", ".csv.bz2": "CSV", ".tsv.gz": "TSV", ".tsv.bz2": "TSV", ".txt": "text", ".dat": "text"},
    **{".jsonl": "JSON lines", ".ndjson": "JSON lines", ".jsonl.gz": "JSON lines", ".xlsx": "Excel", ".xlsm": "Excel"},
}
TEXT = ("CSV", "TSV", "text")
INFERRED = (*TEXT, "JSON lines", "Excel")
"""Formats whose types are found from their values."""


_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What Hive and Spark call the folder of rows without a value."""


class Part(NamedTuple):
    """A file of a table, and the columns that the names of its folders stand for."""

    file: Path
    folders: dict[str, str | None]


def files_of(path: Path) -> list[Part]:
    """The file itself, or the tables in a folder by name."""
    with explained_reading(path, PLAIN):
        size = path.stat().st_size
        if not path.is_dir():
            if format_of(path) is None:
                raise UserError(f"{path}: unknown kind of file; its name should end in one of {', '.join(FORMATS)}")
            if size == 0:
                raise UserError(f"{path}: the file is empty; give one with a table in it")
            return [Part(path, {})]
        found = list(_inside(path, {}))
    if not found:
        raise UserError(f"{path}: no tables in this folder; their names should end in one of {', '.join(FORMATS)}")
    if len(forms := sorted({format_of(part.file) or "" for part in found})) > 1:
        raise UserError(f"{path}: a folder of {' and '.join(forms)} files; keep files of one kind only")
    for part in found:
        if part.folders.keys() != found[0].folders.keys():
            raise UserError(f"{part.file}: lies in other folders than {found[0].file}; give all files the same ones")
    return [Part(one.file, part.folders) for part in found for one in files_of(part.file)]


def _inside(path: Path, folders: dict[str, str | None]) -> Iterator[Part]:
    """The tables in a folder and in those in it that are called KEY=VALUE."""
    for inside in sorted(path.iterdir()):
        key, equals, value = inside.name.partition("=")
        if inside.name[0] in "._":
            continue
        if inside.is_dir() and equals and key:
            yield from _inside(inside, {**folders, unquote(key): None if value == _NO_VALUE else unquote(value)})
        elif inside.is_file() and _is_table(inside):
            yield Part(inside, folders)


def _is_table(file: Path) -> bool:
    """Whether a file in a folder is a part of its table: a .txt beside others may be a note."""
    form = format_of(file)
    siblings = (format_of(one) for one in file.parent.iterdir() if one.name[0] not in "._")
    return form is not None and (form != "text" or not any(one not in (None, "text") for one in siblings))


def format_of(file: Path) -> str | None:
    """The format of a file, by its suffix."""
    return next((form for ending, form in FORMATS.items() if file.name.lower().endswith(ending)), None)


@contextmanager
def explained_reading(file: Path, options: DialectOptions) -> Iterator[None]:
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
        raise UserError(
            f"{file}: has letters that are not {error.encoding}; say --encoding, or save it as UTF-8"
        ) from error
    except (pa.ArrowException, OSError) as error:
        form, why = format_of(file), None
        if form in TEXT:
            why = csv_tables.reason(file, str(error), options)
        elif form == "JSON lines":
            why = json_lines.reason(file, str(error))
        damaged = f"not a {form} file, or damaged ({one_line(error)}); get it anew"
        raise UserError(f"{file}: {why or damaged}") from error
