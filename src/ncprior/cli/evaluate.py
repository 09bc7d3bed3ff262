"""The command ``ncprior evaluate``."""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ncprior.cli.interrupts import RESUME, ends_at_once, stoppable
from ncprior.cli.options import (
    AddressOption,
    DatesOption,
    DecimalOption,
    EncodingOption,
    EngineOption,
    ExcludeOption,
    ExplainOption,
    HeaderRowOption,
    InputsOption,
    JsonOption,
    ResumeOption,
    SepOption,
    SheetOption,
    TableArgument,
    TargetOption,
    chosen_engine,
    dialect_options,
    say_dialect,
    split_names,
)
from ncprior.cli.table_experiments import (
    SetOption,
    check_file,
    chosen_inputs,
    estimator_arguments,
    print_table,
    recorded,
    run_on_table,
)
from ncprior.terminal import say

if TYPE_CHECKING:
    from ncprior.experiments.records import Summary

SeedsOption = Annotated[int | None, typer.Option(help="Number of seeds, 0 and up. \\[default: 1]")]
RowsOption = Annotated[int | None, typer.Option(help="Use at most this many rows, drawn at random. \\[default: all]")]


@stoppable(RESUME)
def evaluate(
    table: TableArgument,
    *,
    target: TargetOption,
    split: Annotated[
        str,
        typer.Option(
            metavar="random|gap|tail|time:COLUMN",
            help="Test rows: a random tenth; for each numeric input, the middle third of the rows sorted by it (gap), "
            "or the fifth with its largest values (tail); the last fifth by a column (time:COLUMN).",
        ),
    ] = "random",
    methods: Annotated[
        str,
        typer.Option(
            help="Comma-separated: ncp (the default model), det, bbb, det+ncp, bbb+ncp, odc+ncp; mean, linear, "
            "boosting, forest, neighbours, gp (from at most 2,000 rows), or all six as baselines; mapie, mapie-cqr, or "
            "both as conformal (extra conformal); no-ncp, one-member, no-early-stopping, or all three "
            "and ncp as ablations; any installed regressor by its import path, e.g. sklearn.linear_model.BayesianRidge."
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
            help="Share of the training rows that is held out with gap, tail and time, to compare with the test rows; "
            "0 for none."
        ),
    ] = 0.1,
    quick: Annotated[bool, typer.Option("--quick", help="Two networks, three splits, at most 5000 rows.")] = False,
    change: SetOption = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    sep: SepOption = None,
    decimal: DecimalOption = None,
    encoding: EncodingOption = None,
    header_row: HeaderRowOption = None,
    dates: DatesOption = None,
    sheet: SheetOption = None,
    as_json: JsonOption = False,
    explain: ExplainOption = False,
    out: Annotated[Path, typer.Option(help="Folder for records, figures and report.")] = Path("runs/evaluate"),
    resume: ResumeOption = False,
) -> None:
    """Measure how good predictions and uncertainty are on a table: train on some of its rows, and test on others.

    [bold]Examples[/bold]

      ncprior evaluate houses.csv --target price --quick

      ncprior evaluate houses.csv --target price --split gap --seeds 3 --out runs/houses-gap

      ncprior evaluate houses.csv --target price --split tail --methods ncp,no-ncp,sklearn.linear_model.BayesianRidge

      ncprior evaluate trips.parquet --target minutes --split time:start --methods ablations
    """
    with ends_at_once():
        from ncprior.cli import summaries
        from ncprior.cli.sentences import explained
        from ncprior.data.labelled import fingerprint
        from ncprior.experiments import evaluate as experiment
        from ncprior.experiments.evaluate_results import OF_DOUBT, OF_PREDICTIONS
        from ncprior.experiments.variants import expand
        from ncprior.report.headline import in_words, lead

    fast = experiment.QUICK if quick else {}
    check_file(table)
    runner = chosen_engine(engine, address)
    options = dialect_options(
        sep=sep, decimal=decimal, encoding=encoding, header_row=header_row, dates=dates, sheet=sheet
    )
    config = experiment.Config(
        table=str(table.expanduser().absolute()),
        target=target,
        split=split,
        fingerprint=fingerprint(table.expanduser()),
        methods=expand(split_names(methods)),
        inputs=chosen_inputs(table.expanduser(), target, inputs, exclude_columns, options),
        dialect=recorded(options),
        seeds=1 if seeds is None else seeds,
        splits=fast.get("splits") if splits is None else splits,
        rows=fast.get("rows") if rows is None else rows,
        held_out=held_out,
        estimator={**(experiment.QUICK_ESTIMATOR if quick else {}), **estimator_arguments(change or [])},
    )
    say_dialect(table.expanduser(), options)
    loaded = experiment.load(config)  # mistakes in the table come to light before anything is written
    run = partial(experiment.experiment, config, loaded, engine=runner)
    results, report = run_on_table(config, loaded[0], run, name=experiment.NAME, out=out, resume=resume)
    if as_json:
        summaries.print_json({**results, "report": report})
        return
    for line in (lead(results), *in_words(results)):
        say(line)
    for group in (OF_PREDICTIONS, OF_DOUBT):
        shown = [metric for metric in group if any(metric in of for of in results["methods"].values())]
        columns = [spreads([of.get(metric) for of in results["methods"].values()]) for metric in shown]
        print_table(["method", *shown], list(zip(results["methods"], *columns, strict=True)))
    if explain:
        words = ["typical error", "coverage", "NLPD", "CRPS", "detection", "shuffled and far rows", "rank correlation"]
        for line in explained([*words, "risk-coverage", "boosted trees"]):
            say(f"  {line}")
    say(f"report: {report}")


def spreads(values: "Sequence[Summary | None]") -> list[str]:
    """Means and standard deviations, all with as many decimals as four digits of the largest mean need."""
    means = [abs(value["mean"]) for value in values if value is not None and value["mean"]]
    decimals = min(6, max(0, 3 - math.floor(math.log10(max(means))))) if means else 3
    return ["-" if value is None or value["mean"] is None else _spread(value, decimals) for value in values]


def _spread(value: "Summary", decimals: int) -> str:
    std = "-" if value["std"] is None else f"{value['std']:.{decimals}f}"
    return f"{value['mean']:.{decimals}f} ± {std}"
