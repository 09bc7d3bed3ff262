"""Options that several commands share, and their checks."""

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ncprior.cli.interrupts import ends_at_once
from ncprior.errors import UserError
from ncprior.files import alone

TableArgument = Annotated[
    Path, typer.Argument(metavar="TABLE", help="CSV, TSV, Parquet or Arrow file, or a folder of such files.")
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
TargetOption = Annotated[str, typer.Option(metavar="COLUMN", help="Column to predict.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")]


def check_seed(seed: int) -> None:
    """Raise if the seed is out of range."""
    if not 0 <= seed < 2**32:
        raise UserError(f"--seed {seed}: give a whole number from 0 to {2**32 - 1}")


@contextmanager
def kept_place(out: Path | None, force: bool, table: Path | None = None) -> Iterator[None]:
    """Check ``--out``, and lock it while the command runs: another command for the same file is refused at once."""
    check_out(out, force, table)
    if out is None:
        yield
        return
    with alone(out, f"--out {out}: is being written"):
        check_out(out, force, table)  # another command may just have finished
        yield


def check_out(out: Path | None, force: bool, table: Path | None = None) -> None:
    """Raise, before any work is done, if the result cannot be written to ``--out``."""
    if out is None:
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


def choose_inputs(path: Path, targets: Sequence[str], inputs: Sequence[str], excluded: Sequence[str]) -> list[str]:
    """The names of the columns to predict from."""
    with ends_at_once():
        from ncprior.data import table_files

    names = dict.fromkeys(table_files.schema_of(path).names)
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
