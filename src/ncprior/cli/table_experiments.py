"""Parts that the commands ``ncprior evaluate`` and ``ncprior simulate`` share."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from ncprior.cli.changes import parse
from ncprior.cli.interrupts import ends_at_once
from ncprior.cli.options import STANDARD
from ncprior.errors import UserError
from ncprior.terminal import remark, say

if TYPE_CHECKING:
    from ncprior.data.formats.dialect import DialectOptions
    from ncprior.data.labelled import Labelled
    from ncprior.experiments import evaluate, simulate
    from ncprior.experiments.records import Records
    from ncprior.experiments.runs import RunProgress
    from ncprior.tables.options import Arguments

Results = TypeVar("Results")

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="An argument of NCPRegressor, e.g. members=4; can be repeated."),
]


def run_on_table(
    config: "evaluate.Config | simulate.Config",
    data: "Labelled",
    experiment: "Callable[[Records, Callable[[RunProgress], None]], Results]",
    *,
    name: str,
    out: Path,
    resume: bool,
) -> tuple[Results, str]:
    """Run an experiment on a table with a progress bar, and draw its page.

    Args:
        config: The configuration, which is written to the folder.
        data: The table.
        experiment: Runs the experiment, given its records and a function that shows progress.
        name: The name of the experiment.
        out: The folder.
        resume: Whether to continue the run in this folder.

    Returns:
        The results, and the path of the page.
    """
    with ends_at_once():
        from ncprior.cli.progress import run_bar
        from ncprior.experiments.records import Records
        from ncprior.report.page import report
        from ncprior.tables.estimator import NCPRegressor
        from ncprior.tables.options import FitOptions

    for counter in data.left_out:
        remark(f"{counter!r} has no name and only counts the rows; it was left out")
    # Raises on mistakes in --set, before anything is written.
    FitOptions.of(NCPRegressor(**config.estimator)).settings_for(len(data.targets))
    with Records.running(out, name, dataclasses.asdict(config), resume=resume) as records:
        with run_bar() as show:
            results = experiment(records, show)
        return results, str(report(out))


def check_file(table: Path) -> None:
    """Raise if the table is standard input: a run that is taken up again needs its table."""
    if str(table) == STANDARD:
        raise UserError("-: a run keeps the place of its table, and standard input has none; save the table to a file")


def recorded(options: "DialectOptions") -> dict[str, str | int]:
    """What is known about the dialect of the table, for the configuration of a run."""
    given = {name: value for name, value in dataclasses.asdict(options).items() if value not in (None, "")}
    return dict(given)


def chosen_inputs(
    table: Path,
    target: str,
    inputs: Sequence[str] | None,
    excluded: Sequence[str] | None,
    options: "DialectOptions",
) -> tuple[str, ...] | None:
    """The columns to predict from, as in `fit`; None if no option names any."""
    with ends_at_once():
        from ncprior.cli.options import choose_inputs

    if not inputs and not excluded:
        return None
    return tuple(choose_inputs(table, [target], inputs or (), excluded or (), options))


def estimator_arguments(changes: Sequence[str]) -> "Arguments":
    """Arguments of `NCPRegressor` from ``NAME=VALUE``, each with the type of its default."""
    with ends_at_once():
        from ncprior.tables.estimator import NCPRegressor

    kinds = {bool: bool, int: int, float: float, tuple: tuple[int, ...], type(None): int | None}
    types = {
        name: kinds[type(value)]
        for name, value in NCPRegressor().get_params().items()
        if type(value) in kinds and name not in ("random_state", "verbose", "callbacks", "trunk", "settings")
    }
    found = {}
    for change in changes:
        name, given, text = change.partition("=")
        if not given or name not in types:
            raise UserError(f"--set {change}: give NAME=VALUE with one of the names {', '.join(types)}")
        found[name] = parse(text, types[name], name)
    return found


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with aligned columns."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    for row in (header, *rows):
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
