"""The commands ``ncprior evaluate`` and ``ncprior simulate``: what models are worth on people's own tables."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ncprior.cli.options import parse
from ncprior.cli.paper import split_names
from ncprior.cli.stopping import RESUME, ends_at_once, stoppable
from ncprior.cli.tables import ExcludeOption, InputsOption, JsonOption, TableArgument
from ncprior.errors import UserError
from ncprior.terminal import say

TargetOption = Annotated[str, typer.Option(metavar="COLUMN", help="What to predict.")]
SeedsOption = Annotated[int | None, typer.Option(help="Number of seeds, 0 and up. \\[default: 1]")]
RowsOption = Annotated[int | None, typer.Option(help="Use at most this many rows, drawn at random. \\[default: all]")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="An argument of NCPRegressor, e.g. members=4; can be repeated."),
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")]


@stoppable(RESUME)
def evaluate(
    table: TableArgument,
    target: TargetOption,
    split: Annotated[
        str,
        typer.Option(
            metavar="random|gap|tail|time:COLUMN",
            help="Which rows are tested on: a tenth; for each input that is a number, the middle third of the rows by "
            "it, or the fifth with its largest values; the last fifth by a column.",
        ),
    ] = "random",
    methods: Annotated[
        str,
        typer.Option(
            help="Comma-separated: ncp (the default model), det, bbb, det+ncp, bbb+ncp, odc+ncp; mean, linear, "
            "boosting, forest, or all four as baselines; no-ncp, one-member, no-early-stopping, constant-gamma, or all "
            "four and ncp as ablations."
        ),
    ] = "ncp,baselines",
    inputs: InputsOption = None,
    exclude_columns: ExcludeOption = None,
    seeds: SeedsOption = None,
    splits: Annotated[
        int | None, typer.Option(help="Number of splits, at most. \\[default: 10 random ones, 20 columns; quick: 3]")
    ] = None,
    rows: RowsOption = None,
    held_out: Annotated[
        float,
        typer.Option(
            help="Share of the training rows that is held out with gap and tail, to be told from test rows; 0 for none."
        ),
    ] = 0.1,
    quick: Annotated[bool, typer.Option("--quick", help="Two networks, three splits, at most 5000 rows.")] = False,
    change: SetOption = None,
    as_json: JsonOption = False,
    out: Annotated[Path, typer.Option(help="Folder for records, figures and report.")] = Path("runs/evaluate"),
    resume: ResumeOption = False,
) -> None:
    """See how far the uncertainty can be trusted on a table: train on some of its rows, and test on others.

    [bold]Examples[/bold]

      ncprior evaluate houses.csv --target price --quick

      ncprior evaluate houses.csv --target price --split gap --seeds 3 --out runs/houses-gap

      ncprior evaluate trips.parquet --target minutes --split time:start --methods ablations
    """
    with ends_at_once():
        from ncprior.cli import summaries
        from ncprior.data.labelled import fingerprint
        from ncprior.experiments import evaluate as experiment

    fast: dict[str, Any] = experiment.QUICK if quick else {}
    config = experiment.Config(
        table=str(table.expanduser().absolute()),
        target=target,
        split=split,
        fingerprint=fingerprint(table.expanduser()),
        methods=experiment.expand(split_names(methods)),
        inputs=chosen_inputs(table.expanduser(), target, inputs, exclude_columns),
        seeds=1 if seeds is None else seeds,
        splits=fast.get("splits") if splits is None else splits,
        rows=fast.get("rows") if rows is None else rows,
        held_out=held_out,
        estimator={**(experiment.QUICK_ESTIMATOR if quick else {}), **estimator_arguments(change or [])},
    )
    results, report = run(experiment, config, out, resume)
    if as_json:
        summaries.print_json({**results, "report": report})
        return
    shown = [m for m in experiment.METRICS if any(m in of for of in results["methods"].values())]
    print_table(
        ["method", *shown],
        [[name, *(spread(of.get(m)) for m in shown)] for name, of in results["methods"].items()],
    )
    say(f"report: {report}")


@stoppable(RESUME)
def simulate(
    table: TableArgument,
    target: TargetOption,
    rules: Annotated[
        str,
        typer.Option(
            help="Comma-separated: kmeans_inputs, kmeans_pp, lcmd, k_center, max_det, bait, information_gain, "
            "uncertainty; random is always run."
        ),
    ] = "kmeans_inputs",
    inputs: InputsOption = None,
    exclude_columns: ExcludeOption = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds, 0 and up. \\[default: 5; quick: 2]")] = None,
    initial: Annotated[int, typer.Option(help="Random labels to begin with.")] = 20,
    batch: Annotated[int, typer.Option(help="Labels to choose at a time.")] = 20,
    labels: Annotated[
        int | None, typer.Option(help="Labels to end with, at most 40% of the pool. \\[default: 400; quick: 100]")
    ] = None,
    rows: Annotated[
        int | None, typer.Option(help="Use at most this many rows, drawn at random. \\[default: 20000; quick: 5000]")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Two networks, two seeds, 100 labels.")] = False,
    change: SetOption = None,
    as_json: JsonOption = False,
    out: Annotated[Path, typer.Option(help="Folder for records, figures and report.")] = Path("runs/simulate"),
    resume: ResumeOption = False,
) -> None:
    """See how many labels active learning would have saved on a table whose labels are all known; test on a fifth.

    [bold]Examples[/bold]

      ncprior simulate houses.csv --target price --quick

      ncprior simulate houses.csv --target price --rules kmeans_inputs,information_gain --seeds 10 --out runs/labels
    """
    with ends_at_once():
        from ncprior.cli import summaries
        from ncprior.data.labelled import fingerprint
        from ncprior.experiments import simulate as experiment

    fast: dict[str, Any] = experiment.QUICK if quick else {}
    given = {"seeds": seeds, "labels": labels, "rows": rows}
    config = experiment.Config(
        table=str(table.expanduser().absolute()),
        target=target,
        fingerprint=fingerprint(table.expanduser()),
        rules=tuple(dict.fromkeys([*split_names(rules), experiment.CONTROL])),
        inputs=chosen_inputs(table.expanduser(), target, inputs, exclude_columns),
        initial=initial,
        batch=batch,
        **{**fast, **{name: value for name, value in given.items() if value is not None}},
        estimator={
            **(experiment.QUICK_ESTIMATOR if quick else experiment.ESTIMATOR),
            **estimator_arguments(change or []),
        },
    )
    results, report = run(experiment, config, out, resume)
    if as_json:
        summaries.print_json({**results, "report": report})
        return
    print_table(
        ["rule", "final rmse", "final nlpd", "labels saved (rmse)", "labels saved (nlpd)"],
        [
            [rule, *(f"{of[m]['mean'][-1]:.4g}" for m in experiment.COMPARED)]
            + [saved(of["saved"][m]) if rule != experiment.CONTROL else "-" for m in experiment.COMPARED]
            for rule, of in results["rules"].items()
        ],
    )
    say(f"report: {report}")


def run(experiment: Any, config: Any, out: Path, resume: bool) -> tuple[dict[str, Any], str]:
    """Runs an experiment with a progress bar and draws its page; gives the results and the place of the page."""
    with ends_at_once():
        from ncprior.cli.progress import run_bar
        from ncprior.estimators import NCPRegressor
        from ncprior.experiments.records import Records
        from ncprior.options import settings_of
        from ncprior.report.page import report

    # Mistakes in the table and in --set come to light before anything is written.
    loaded = experiment.load(config)
    settings_of(NCPRegressor(**config.estimator), rows=len(loaded[0].targets))
    with Records.running(out, experiment.NAME, dataclasses.asdict(config), resume=resume) as records:
        with run_bar() as show:
            results = experiment.experiment(config, loaded, records, show)
        return results, str(report(out))


def chosen_inputs(
    table: Path, target: str, inputs: Sequence[str] | None, excluded: Sequence[str] | None
) -> tuple[str, ...] | None:
    """The columns to predict from, as `fit` chooses them; None if the options name none."""
    with ends_at_once():
        from ncprior.cli.columns import choose_inputs

    return tuple(choose_inputs(table, [target], inputs or (), excluded or ())) if inputs or excluded else None


def estimator_arguments(changes: Sequence[str]) -> dict[str, Any]:
    """Arguments of `NCPRegressor` given as ``NAME=VALUE``, each of the kind of its default."""
    with ends_at_once():
        from ncprior.estimators import NCPRegressor

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


def spread(value: dict[str, float | None] | None) -> str:
    """Mean and standard deviation."""
    if value is None or value["mean"] is None:
        return "-"
    return f"{value['mean']:.4g} ± {value['std']:.2g}"


def saved(value: dict[str, float | None]) -> str:
    """Share of labels saved, and the range over the seeds."""
    mean, low, high = (value[key] for key in ("mean", "low", "high"))
    if mean is None:
        return "-"
    return (
        f"{mean:+.0%}" if low is None or high is None or math.isnan(low) else f"{mean:+.0%} ({low:+.0%} to {high:+.0%})"
    )


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns that line up."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    for row in (header, *rows):
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
