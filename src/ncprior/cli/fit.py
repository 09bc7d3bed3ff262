"""The command ``ncprior fit``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ncprior.cli.interrupts import ends_at_once, stoppable
from ncprior.cli.options import (
    STANDARD,
    DatesOption,
    DecimalOption,
    EncodingOption,
    ExcludeOption,
    ExplainOption,
    ForceOption,
    HeaderRowOption,
    InputsOption,
    JsonOption,
    SepOption,
    SheetOption,
    TableArgument,
    check_out,
    check_seed,
    dialect_options,
    incoming,
    kept_place,
    say_dialect,
)
from ncprior.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from ncprior.data.formats.dialect import DialectOptions
    from ncprior.tables.estimator import NCPRegressor

MOST_COMPARED = 1_000
"""Columns of encoded rows, at most, that boosted trees are trained on."""


def fit(
    table: TableArgument,
    *,
    target: Annotated[list[str], typer.Option(metavar="COLUMN", help="Column to predict; can be repeated.")],
    out: Annotated[Path, typer.Option(help="File for the model, such as model.ncp.")],
    inputs: InputsOption = None,
    exclude_columns: ExcludeOption = None,
    unlabelled: Annotated[
        Path | None,
        typer.Option(
            metavar="POOL",
            help="File or folder of rows without the target, such as those to be predicted: the model learns to be "
            "unsure where they are and the rows of TABLE are not.",
        ),
    ] = None,
    method: Annotated[str, typer.Option(help="ncp, det, det+ncp, bbb, bbb+ncp, odc+ncp or deep+ncp.")] = "ncp",
    members: Annotated[int | None, typer.Option(help="Networks in the ensemble. \\[default: 8]")] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the rows. \\[default: found by early stopping]")
    ] = None,
    conformal_fraction: Annotated[
        float | None,
        typer.Option(
            help="Share of the rows, at most 0.5, that nothing is learned from, so that the intervals of predict "
            "--guaranteed hold what they promise however wrong the model is. \\[default: 0]"
        ),
    ] = None,
    min_rows: Annotated[int | None, typer.Option(help="Fewest rows to accept. \\[default: 3]")] = None,
    max_rows: Annotated[
        int | None,
        typer.Option(
            help="Most rows to learn from; of a larger table so many are drawn at random. \\[default: 5.12 "
            "million, or fewer if these have more than 30 million numbers, but no fewer than 100,000]"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed and table give the same model.")] = 0,
    sep: SepOption = None,
    decimal: DecimalOption = None,
    encoding: EncodingOption = None,
    header_row: HeaderRowOption = None,
    dates: DatesOption = None,
    sheet: SheetOption = None,
    as_json: JsonOption = False,
    explain: ExplainOption = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Only train: say nothing of the table, and compare with nothing.")
    ] = False,
    force: ForceOption = False,
) -> None:
    """Train a model that predicts a column of a table. Rows without a value in that column are left out.

    [bold]Examples[/bold]

      ncprior fit houses.csv --target price --out houses.ncp

      ncprior fit trips/ --target minutes --target cost --inputs from,to,start --out trips.ncp

      ncprior fit measured.csv --target yield --unlabelled candidates.parquet --out yield.ncp
    """
    check_out(out, force)
    check_seed(seed)
    if quiet and (as_json or explain):
        raise UserError(f"--quiet says nothing, and {'--json' if as_json else '--explain'} does; leave one of them out")
    options = dialect_options(
        sep=sep, decimal=decimal, encoding=encoding, header_row=header_row, dates=dates, sheet=sheet
    )
    with ends_at_once():
        from ncprior.cli.options import choose_inputs
        from ncprior.cli.progress import fit_lines, row_bar
        from ncprior.cli.summaries import FitSummary, print_fit, print_json
        from ncprior.data import table_files
        from ncprior.data.inspection import look_at, row_counters
        from ncprior.data.labelled import check_inputs, draw_labelled, read_targets
        from ncprior.tables.estimator import NCPRegressor
        from ncprior.tables.recipe import MIN_ROWS, most_rows
    if max_rows is not None and max_rows < (MIN_ROWS if min_rows is None else min_rows):
        raise UserError(f"--max-rows {max_rows} are too few to learn from; see --min-rows")
    with stoppable(), kept_place(out, force), incoming(table) as place:
        check_model_name(out)
        read_with = say_dialect(place, options)
        targets = list(dict.fromkeys(target))
        chosen = choose_inputs(place, targets, inputs or [], exclude_columns or [], options)
        with row_bar(table_files.rows_of(table_files.units(place))) as show:
            most = most_rows if max_rows is None else lambda _: max_rows
            drawn = draw_labelled(place, targets, chosen, most=most, seed=seed, options=options, report=show)
        rows, indices = drawn.rows
        truth, present = read_targets(rows, targets, indices + 1)
        with_target = int(present.sum()) if len(rows) == drawn.seen else drawn.preferred
        counters = [] if inputs else row_counters(rows.select(chosen), indices)
        partial = [] if inputs else table_files.only_in_some(place, options)
        rows = rows.select([name for name in chosen if name not in counters])
        if not rows.num_columns:
            raise UserError(f"{place}: no column is left to predict from; give a table with more columns")
        check_inputs(rows, indices + 1)  # before filtering: a few rows may look like a mistake
        rows, truth = rows.filter(present), truth[present]
        given = {
            "members": members,
            "epochs": epochs,
            "min_rows": min_rows,
            "conformal_fraction": conformal_fraction,
        }
        model = NCPRegressor(
            method,
            random_state=seed,
            verbose=sys.stderr.isatty(),
            callbacks=() if sys.stderr.isatty() else (fit_lines(),),
        )
        model.set_params(**{name: value for name, value in given.items() if value is not None})
        pool = None if unlabelled is None else read_unlabelled(unlabelled, rows, options, seed)
        model.fit_subset(rows, truth[:, 0] if len(targets) == 1 else truth, X_unlabelled=pool)
        model.target_names_ = targets
        model.save(out)
    if quiet:
        return
    with stoppable(f"the model is in {out}"):
        by_name = {name: truth[:, i] for i, name in enumerate(targets)}
        summary: FitSummary = {
            "model": str(out),
            "method": method,
            "read": read_with,
            "targets": targets,
            "rows": len(truth),
            "rows_with_target": with_target,
            "rows_without_target": drawn.seen - with_target,
            "unlabelled_rows": model.fitted_.unlabelled,
            "rows_set_apart": len(truth) - model.n_rows_,
            "columns": [{"name": c.name, "kind": c.kind, "treatment": c.treatment} for c in model.encoder_.columns],
            "look_at": [
                *(f"{name!r} has no name and only counts the rows; it was left out" for name in counters),
                *(f"{name!r} is not in the first file of the folder, and was left out" for name in partial),
                *look_at(rows, by_name, model.encoder_),
            ],
            "steps": model.steps_,
            "seconds": model.fit_seconds_,
            "held_out": model.validation_,
            "boosted_trees": boosted_trees(model, rows, by_name),
        }
        if as_json:
            print_json(summary)
        else:
            print_fit(summary, explain=explain)


def read_unlabelled(path: Path, rows: "pa.Table", options: "DialectOptions", seed: int) -> "pa.Table":
    """Rows without the target, drawn from a file or folder in one pass, with the columns of the training rows."""
    from ncprior.data import table_files
    from ncprior.data.encoding import Encoder
    from ncprior.tables.columns import dialect_of, input_types, used_columns
    from ncprior.tables.unlabelled import draw

    if str(path) == STANDARD:
        raise UserError("--unlabelled -: only the table can come in on standard input; give a file or a folder")
    encoder = Encoder.fit(rows)
    trained_options = dialect_of(encoder, options)
    say_dialect(path, trained_options)
    names = used_columns(encoder) or None
    drawn = draw(table_files.stream(path, names, schema=input_types(encoder), options=trained_options), seed)
    try:
        encoder.transform(drawn.table, first_row=drawn.numbers + 1)  # here, where rows have their numbers in the file
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return drawn.table


def boosted_trees(model: "NCPRegressor", rows: "pa.Table", targets: "dict[str, np.ndarray]") -> dict[str, float]:
    """The error of boosted trees for each target, on the rows that the model held out; nothing if it held out none.

    Nor are wide tables compared: trees would take minutes.
    """
    from ncprior.experiments.baselines import boosting_error

    held_out = model.fitted_.held_out
    if held_out is None or not 1 < model.encoder_.width <= MOST_COMPARED:
        return {}
    return {name: boosting_error(rows, values, held_out) for name, values in targets.items()}


def check_model_name(out: Path) -> None:
    """Raise if the file name of a model is that of a table."""
    from ncprior.data.table_parts import FORMATS

    if str(out) == STANDARD:
        raise UserError("--out -: a model is no text for standard output; choose a name such as model.ncp")
    if any(out.name.lower().endswith(ending) for ending in FORMATS):
        raise UserError(f"--out {out}: a model is not a table; choose a name such as {out.stem}.ncp")
