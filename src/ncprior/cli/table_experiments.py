"""What the commands ``ncprior evaluate`` and ``ncprior simulate`` share."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ncprior.cli.changes import parse
from ncprior.cli.interrupts import ends_at_once
from ncprior.errors import UserError
from ncprior.terminal import say

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="An argument of NCPRegressor, e.g. members=4; can be repeated."),
]


def run(experiment: Any, config: Any, out: Path, resume: bool) -> tuple[dict[str, Any], str]:
    """Runs an experiment with a progress bar and draws its page; gives the results and the place of the page."""
    with ends_at_once():
        from ncprior.cli.progress import run_bar
        from ncprior.experiments.records import Records
        from ncprior.report.page import report
        from ncprior.tables.estimator import NCPRegressor
        from ncprior.tables.options import FitOptions

    # Mistakes in the table and in --set come to light before anything is written.
    loaded = experiment.load(config)
    FitOptions.of(NCPRegressor(**config.estimator)).settings_for(len(loaded[0].targets))
    with Records.running(out, experiment.NAME, dataclasses.asdict(config), resume=resume) as records:
        with run_bar() as show:
            results = experiment.experiment(config, loaded, records, show)
        return results, str(report(out))


def chosen_inputs(
    table: Path, target: str, inputs: Sequence[str] | None, excluded: Sequence[str] | None
) -> tuple[str, ...] | None:
    """The columns to predict from, as `fit` chooses them; None if the options name none."""
    with ends_at_once():
        from ncprior.cli.options import choose_inputs

    return tuple(choose_inputs(table, [target], inputs or (), excluded or ())) if inputs or excluded else None


def estimator_arguments(changes: Sequence[str]) -> dict[str, Any]:
    """Arguments of `NCPRegressor` given as ``NAME=VALUE``, each of the kind of its default."""
    with ends_at_once():
        from ncprior.tables.estimator import NCPRegressor

    kinds = {bool: bool, int: int, float: float, tuple: tuple[int, ...], type(None): int | None}
    known = {
        name: kinds[type(value)]
        for name, value in NCPRegressor().get_params().items()
        if type(value) in kinds and name not in ("random_state", "verbose", "callbacks", "trunk", "settings")
    }
    found = {}
    for change in changes:
        name, given, text = change.partition("=")
        if not given or name not in known:
            raise UserError(f"--set {change}: give NAME=VALUE with one of the names {', '.join(known)}")
        found[name] = parse(text, known[name], name)
    return found


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns that line up."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    for row in (header, *rows):
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
