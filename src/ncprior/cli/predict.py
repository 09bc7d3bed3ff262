"""The command ``ncprior predict``."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from ncprior.cli.interrupts import ends_at_once, stoppable
from ncprior.cli.options import (
    STANDARD,
    DatesOption,
    DecimalOption,
    EncodingOption,
    ExplainOption,
    ForceOption,
    HeaderRowOption,
    JsonOption,
    ModelArgument,
    SepOption,
    SheetOption,
    TableArgument,
    check_out,
    check_standard,
    dialect_options,
    incoming,
    kept_place,
    say_dialect,
)
from ncprior.errors import UserError

SHOWN_ROWS = 10
"""Rows that are printed without ``--out``."""


def predict(
    model: ModelArgument,
    table: TableArgument,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File for the predictions, .parquet or .csv, or - for stdout. \\[default: show the first rows]"
        ),
    ] = None,
    level: Annotated[float, typer.Option(help="Probability of the interval from lower to upper.")] = 0.9,
    flag_below: Annotated[
        float | None,
        typer.Option(help="Add a column unfamiliar that marks rows with a familiarity below this, such as 0.05."),
    ] = None,
    sep: SepOption = None,
    decimal: DecimalOption = None,
    encoding: EncodingOption = None,
    header_row: HeaderRowOption = None,
    dates: DatesOption = None,
    sheet: SheetOption = None,
    as_json: JsonOption = False,
    explain: ExplainOption = False,
    force: ForceOption = False,
) -> None:
    """Add predictions to a table of any size: mean, std, uncertainty, noise, an interval from lower to upper, and
    familiarity.

    More labels reduce the uncertainty but not the noise; std is both together. Familiarity goes from 1 (like the
    training rows) to 0 (unlike any of them): of rows like the training rows, about 5% are below 0.05. If the table has
    the target as well, the predictions are compared with it.

    [bold]Examples[/bold]

      ncprior predict houses.ncp new-houses.csv --out predictions.csv

      ncprior predict trips.ncp trips-of-may/ --level 0.5 --flag-below 0.05 --out may.parquet

      unzip -p may.zip | ncprior predict trips.ncp - --out - | head
    """
    if not 0 < level < 1:
        raise UserError(f"--level {level:g}: give a probability between 0 and 1, such as 0.9")
    if flag_below is not None and not 0 < flag_below <= 1:
        raise UserError(f"--flag-below {flag_below:g}: give a familiarity above 0 and at most 1, such as 0.05")
    check_out(out, force, table)
    check_standard(out, as_json)
    known = dialect_options(
        sep=sep, decimal=decimal, encoding=encoding, header_row=header_row, dates=dates, sheet=sheet
    )
    with ends_at_once():
        from ncprior.cli.progress import row_bar
        from ncprior.cli.summaries import Familiar, PredictSummary, Scores, print_json, print_predict
        from ncprior.data import table_files
        from ncprior.data.column_types import check_held, python_rows
        from ncprior.tables.columns import (
            count_rows,
            dialect_of,
            familiarity_columns,
            input_types,
            kept_types,
            prediction_columns,
            target_names,
            with_columns,
        )
        from ncprior.tables.estimator import NCPRegressor
    with stoppable(), kept_place(out, force, table), incoming(table) as place:
        loaded = NCPRegressor.load(model)
        options = dialect_of(loaded, known)
        read_with = say_dialect(place, options)
        targets = target_names(loaded)
        scores, familiar = Scores(targets), Familiar()
        first: Any = None
        done = 0
        types = kept_types(loaded, place, out, options) | input_types(loaded)
        if out:
            check_held(out, table_files.schema_of(place, schema=types, options=options))
        with table_files.write(out) if out else nullcontext() as append, row_bar(count_rows(place)) as advance:
            for piece in table_files.stream(place, schema=types, options=options):
                prediction = loaded.predict_piece(piece, first_row=done + 1)
                columns = prediction_columns(prediction, targets, level) | familiarity_columns(prediction, flag_below)
                scores.add(piece, prediction, columns, done + 1)
                familiar.add(columns)
                piece = with_columns(piece, columns)
                if append:
                    append(piece)
                first = piece.slice(0, SHOWN_ROWS) if first is None else first
                done += piece.num_rows
                advance(piece.num_rows)
        summary: PredictSummary = {
            "rows": done,
            "read": read_with,
            "columns": first.column_names[-len(columns) :],
            "targets": targets,
            "level": level,
            "unlike": familiar.unlike,
            "promised": loaded.validation_,
            "scores": scores.results(),
            "not_scored": scores.not_scored,
        }
        if out:
            summary["out"] = str(out)
        else:
            summary["first_rows"] = python_rows(first)
        if as_json:
            print_json(summary)
        else:
            print_predict(summary, first, explain=explain, stderr=str(out) == STANDARD)
