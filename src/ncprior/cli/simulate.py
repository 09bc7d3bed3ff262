"""The command ``ncprior simulate``."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ncprior.cli.interrupts import RESUME, ends_at_once, stoppable
from ncprior.cli.options import (
    AddressOption,
    DatesOption,
    DecimalOption,
    EncodingOption,
    EngineOption,
    ExcludeOption,
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
from ncprior.errors import UserError
from ncprior.terminal import say


@stoppable(RESUME)
def simulate(
    table: TableArgument,
    *,
    target: TargetOption,
    rules: Annotated[
        str,
        typer.Option(
            help="Comma-separated: rules for batches (RULES) and scores of rows (SCORES); random is always run."
        ),
    ] = "kmeans_greedy",
    inputs: InputsOption = None,
    exclude_columns: ExcludeOption = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds, 0 and up. \\[default: 5; quick: 2]")] = None,
    initial: Annotated[int, typer.Option(help="Random labels at the start.")] = 20,
    batch: Annotated[
        str, typer.Option(help="Labels to choose at a time; several sizes, such as 1,5,40, are compared in one run.")
    ] = "20",
    labels: Annotated[
        int | None, typer.Option(help="Labels to end with, at most 40% of the pool. \\[default: 400; quick: 100]")
    ] = None,
    rows: Annotated[
        int | None, typer.Option(help="Use at most this many rows, drawn at random. \\[default: 20000; quick: 5000]")
    ] = None,
    unlabelled: Annotated[
        bool, typer.Option(help="Teach models to be unsure where the pool is, by its inputs; see ncprior fit.")
    ] = True,
    quick: Annotated[bool, typer.Option("--quick", help="Two networks, two seeds, 100 labels.")] = False,
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
    out: Annotated[Path, typer.Option(help="Folder for records, figures and report.")] = Path("runs/simulate"),
    resume: ResumeOption = False,
) -> None:
    """Measure how many labels active learning would have saved on a table whose labels are all known.

    A fifth of the rows are test rows. Every rule starts with the same random labels, chooses more in batches, and is
    compared with random labels.

    [bold]Examples[/bold]

      ncprior simulate houses.csv --target price --quick

      ncprior simulate houses.csv --target price --rules kmeans_greedy,information_gain --seeds 10 --out runs/labels

      ncprior simulate houses.csv --target price --batch 5,40
    """
    with ends_at_once():
        from ncprior.cli import summaries
        from ncprior.data.labelled import fingerprint
        from ncprior.experiments import simulate as experiment
        from ncprior.report.sections import number
        from ncprior.report.simulate import savings, settled, share_saved

    fast = experiment.QUICK if quick else {}
    check_file(table)
    runner = chosen_engine(engine, address)
    given = {"seeds": seeds, "labels": labels, "rows": rows}
    options = dialect_options(
        sep=sep, decimal=decimal, encoding=encoding, header_row=header_row, dates=dates, sheet=sheet
    )
    config = experiment.Config(
        table=str(table.expanduser().absolute()),
        target=target,
        fingerprint=fingerprint(table.expanduser()),
        rules=tuple(dict.fromkeys([*split_names(rules), experiment.CONTROL])),
        inputs=chosen_inputs(table.expanduser(), target, inputs, exclude_columns, options),
        dialect=recorded(options),
        initial=initial,
        batch=_batch_sizes(batch),
        unlabelled=unlabelled,
        **{**fast, **{name: value for name, value in given.items() if value is not None}},
        estimator={
            **(experiment.QUICK_ESTIMATOR if quick else experiment.ESTIMATOR),
            **estimator_arguments(change or []),
        },
    )
    say_dialect(table.expanduser(), options)
    loaded = experiment.load(config)  # mistakes in the table come to light before anything is written
    run = partial(experiment.experiment, config, loaded, engine=runner)
    results, report = run_on_table(config, loaded[0], run, name=experiment.NAME, out=out, resume=resume)
    if as_json:
        summaries.print_json({**results, "report": report})
        return

    def saved(one: experiment.LabelsSaved) -> str:
        return f"{share_saved(one)}: {settled(one, config.seeds)}"

    print_table(
        ["rule", "final rmse", "final nlpd", "labels saved (rmse)", "labels saved (nlpd)"],
        [
            [name, *(number(of[m]["mean"][-1]) for m in experiment.COMPARED)]
            + ["-" if of["rule"] == experiment.CONTROL else saved(of["saved"][m]) for m in experiment.COMPARED]
            for name, of in results["rules"].items()
        ],
    )
    say(savings(results))
    say(f"report: {report}")


def _batch_sizes(text: str) -> int | tuple[int, ...]:
    """One batch size, or several with commas between."""
    sizes = split_names(text)
    if not sizes or not all(size.isdecimal() for size in sizes):
        raise UserError(f"--batch {text}: give a whole number, or several with commas between, such as 5,40")
    found = tuple(dict.fromkeys(map(int, sizes)))
    return found if len(found) > 1 else found[0]
