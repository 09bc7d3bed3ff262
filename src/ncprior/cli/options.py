"""Options that several commands share, and their checks."""

import os
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ncprior.cli.interrupts import ends_at_once
from ncprior.errors import UserError
from ncprior.files import alone
from ncprior.terminal import remark

if TYPE_CHECKING:
    from ncprior.data.formats.dialect import DialectOptions
    from ncprior.engines.engine import Engine

TableArgument = Annotated[
    Path,
    typer.Argument(
        metavar="TABLE",
        help="CSV or other text, JSON lines, Excel, Parquet or Arrow file, a folder of such files, or - for stdin.",
    ),
]
InputsOption = Annotated[
    list[str] | None, typer.Option(metavar="A,B,C", help="Columns to predict from. \\[default: all others]")
]
ExcludeOption = Annotated[
    list[str] | None, typer.Option(metavar="A,B,C", help="Columns to leave out, such as row numbers.")
]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="Model file of ncprior fit.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace the file of --out if it exists.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout, for scripts.")]
ExplainOption = Annotated[bool, typer.Option("--explain", help="Say what the words and numbers mean.")]
TargetOption = Annotated[str, typer.Option(metavar="COLUMN", help="Column to predict.")]
_FILES = "How a text file or spreadsheet is written, where that is not found"
SepOption = Annotated[
    str | None,
    typer.Option("--sep", metavar="SIGN", help="Between columns: ',', ';', '|', tab or space.", rich_help_panel=_FILES),
]
DecimalOption = Annotated[str | None, typer.Option(metavar=".|,", help="The decimal sign.", rich_help_panel=_FILES)]
EncodingOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Such as utf-8, cp1252 or utf-16.", rich_help_panel=_FILES)
]
HeaderRowOption = Annotated[
    int | None, typer.Option(metavar="LINE", help="Line with the names, from 1; 0 for none.", rich_help_panel=_FILES)
]
DatesOption = Annotated[
    str | None, typer.Option(metavar="dmy|mdy", help="Whether the day of 05/06/2021 is 5 or 6.", rich_help_panel=_FILES)
]
SheetOption = Annotated[str | None, typer.Option(metavar="NAME", help="Sheet of a workbook.", rich_help_panel=_FILES)]
_WHERE = "Where it is computed"
EngineOption = Annotated[
    str,
    typer.Option("--engine", metavar="local|ray", help="This process, or a Ray cluster.", rich_help_panel=_WHERE),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Of the Ray cluster, such as auto or ray://head:10001. \\[default: start one on this machine]",
        rich_help_panel=_WHERE,
    ),
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")]


def dialect_options(
    *,
    sep: str | None,
    decimal: str | None,
    encoding: str | None,
    header_row: int | None,
    dates: str | None,
    sheet: str | None,
) -> "DialectOptions":
    """What these options say about the dialect of a file."""
    with ends_at_once():
        from ncprior.data.formats.dialect import DialectOptions

    signs = {"decimal": decimal or "", "dates": dates or ""}
    return DialectOptions(sep, encoding=encoding, header_row=header_row, sheet=sheet, **signs)  # type: ignore[arg-type]


def say_dialect(table: Path, options: "DialectOptions") -> str:
    """Tells how a file is read, unless it is as files should be."""
    with ends_at_once():
        from ncprior.data import table_files

    if line := table_files.dialect_in_words(table, options):
        remark(f"{table.name}: {line}")
    return line


@contextmanager
def incoming(table: Path) -> Iterator[Path]:
    """The place of a table; what comes in on standard input is kept in a file until it is used."""
    if str(table) != STANDARD:
        yield table
        return
    if sys.stdin.isatty():
        raise UserError("-: stands for standard input, and nothing comes in there; pipe a table into it")
    with tempfile.TemporaryDirectory() as folder:
        source = sys.stdin.buffer
        first = source.read(1 << 16)
        file = Path(folder) / f"stdin{next((end for mark, end in _MAGIC.items() if first.startswith(mark)), '.csv')}"
        with file.open("wb") as kept:
            kept.write(first)
            shutil.copyfileobj(source, kept, 1 << 20)
        try:
            yield file
        except UserError as error:
            raise UserError(str(error).replace(str(file), "standard input")) from error


STANDARD = "-"
"""The name of standard input and output."""
_MAGIC = {
    **{b"PAR1": ".parquet", b"ARROW1": ".arrow", b"\xff\xff\xff\xff": ".arrow", b"PK\x03\x04": ".xlsx"},
    **{b"\x1f\x8b": ".csv.gz", b"BZh": ".csv.bz2", b"{": ".jsonl"},
}
"""How files begin; all else is text."""


def check_folder(out: Path | None, table: Path | None = None) -> None:
    """Raise if predictions cannot be written into the folder ``--out``."""
    if out is None:
        return
    if next(out.iterdir(), None) is not None:
        raise UserError(f"--out {out}: is a folder with files in it; give an empty one, or the name of a file")
    if not os.access(out, os.W_OK):
        raise UserError(f"--out {out}: cannot be written; choose another place")
    if table is not None and table.is_dir() and table.resolve() in (out.resolve(), *out.resolve().parents):
        raise UserError(f"--out {out}: lies in the folder that is read and would become part of it; choose another one")


def chosen_engine(
    name: str, address: str | None, table: Path | None = None, out: Path | None = None
) -> "Engine | None":
    """The engine of ``--engine`` and ``--address``; None for this process.

    Raises:
        UserError: If there is none, or the table or the result is not in files, which all machines can see.
    """
    from ncprior.engines.engine import engine_of

    found = engine_of(name, address)
    for option, path in (("the table", table), ("--out", out)):
        if found is not None and path is not None and str(path) == STANDARD:
            raise UserError(f"--engine {name}: {option} must be a file that all machines can see, not -")
    return found


def check_standard(out: Path | None, as_json: bool) -> None:
    """Raise if two things would be written to standard output."""
    if out is not None and str(out) == STANDARD and as_json:
        raise UserError("--out - and --json both write to standard output; leave one of them out")


def check_seed(seed: int) -> None:
    """Raise if the seed is out of range."""
    if not 0 <= seed < 2**32:
        raise UserError(f"--seed {seed}: give a whole number from 0 to {2**32 - 1}")


@contextmanager
def kept_place(out: Path | None, force: bool, table: Path | None = None) -> Iterator[None]:
    """Check ``--out``, and lock it while the command runs: another command for the same file is refused at once."""
    check_out(out, force, table)
    if out is None or str(out) == STANDARD:
        yield
        return
    with alone(out, f"--out {out}: is being written"):
        check_out(out, force, table)  # another command may just have finished
        yield


def check_out(out: Path | None, force: bool, table: Path | None = None) -> None:
    """Raise, before any work is done, if the result cannot be written to ``--out``."""
    if out is None or str(out) == STANDARD:
        return
    if out.exists() and not force:
        raise UserError(f"--out {out}: exists already; choose another name, or add --force to replace it")
    if not out.parent.is_dir():
        raise UserError(f"--out {out}: there is no folder {out.parent}; make it first")
    if out.is_dir() or not os.access(out.parent, os.W_OK):
        raise UserError(f"--out {out}: cannot be written; choose another place")
    if table is not None and table.is_dir() and out.parent.resolve() == table.resolve():
        raise UserError(f"--out {out}: lies in the folder that is read and would become part of it; choose another one")


def split_names(text: str) -> tuple[str, ...]:
    """The names in a comma-separated list, each once."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def choose_inputs(
    path: Path,
    targets: Sequence[str],
    inputs: Sequence[str],
    excluded: Sequence[str],
    options: "DialectOptions | None" = None,
) -> list[str]:
    """The names of the columns to predict from."""
    with ends_at_once():
        from ncprior.data import table_files
        from ncprior.data.formats.dialect import PLAIN

    names = dict.fromkeys(table_files.schema_of(path, options=options or PLAIN).names)
    chosen, left_out = given_columns(inputs, names), set(given_columns(excluded, names))
    if unknown := sorted(left_out - names.keys()):
        raise UserError(f"--exclude-columns: {path} has no column {unknown[0]!r}; it has {_listed(list(names))}")
    for name in chosen:
        if name in targets or name in left_out:
            other = "--target" if name in targets else "--exclude-columns"
            raise UserError(f"column {name!r} is in --inputs and in {other}; take it out of one of them")
    chosen = chosen or [name for name in names if name not in targets and name not in left_out]
    if not chosen:
        raise UserError(f"{path}: no column is left to predict from; give a table with more columns than the target")
    return chosen


def given_columns(items: Sequence[str], names: Collection[str]) -> list[str]:
    """The column names in comma-separated lists, each once. A name that contains commas must be given on its own."""
    return list(dict.fromkeys(name for item in items for name in ([item] if item in names else split_names(item))))


def _listed(names: Sequence[str], most: int = 20) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
