"""The command ``ncprior predict``."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ncprior.cli.interrupts import ends_at_once, stoppable
from ncprior.cli.options import (
    STANDARD,
    AddressOption,
    DatesOption,
    DecimalOption,
    EncodingOption,
    EngineOption,
    ExplainOption,
    ForceOption,
    HeaderRowOption,
    JsonOption,
    ModelArgument,
    SepOption,
    SheetOption,
    TableArgument,
    check_folder,
    check_out,
    check_standard,
    chosen_engine,
    dialect_options,
    incoming,
    kept_place,
    say_dialect,
)
from ncprior.errors import UserError

if TYPE_CHECKING:
    from ncprior.engines.engine import Engine

SHOWN_ROWS = 10
"""Rows that are printed without ``--out``."""


def predict(
    model: ModelArgument,
    table: TableArgument,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File for the predictions, .parquet or .csv, a folder that is empty, for one file for each part of "
            "the table, or - for stdout. \\[default: show the first rows]"
        ),
    ] = None,
    level: Annotated[float, typer.Option(help="Probability of the interval from lower to upper.")] = 0.9,
    guaranteed: Annotated[
        bool,
        typer.Option(
            "--guaranteed",
            help="Make lower and upper conformal: at least the share --level of new rows like those of training lie "
            "between them, however wrong the model is.",
        ),
    ] = False,
    flag_below: Annotated[
        float | None,
        typer.Option(help="Add a column unfamiliar that marks rows with a familiarity below this, such as 0.05."),
    ] = None,
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
    force: ForceOption = False,
) -> None:
    """Add predictions to a table of any size: mean, std, uncertainty, noise, an interval from lower to upper, and
    familiarity.

    More labels reduce the uncertainty but not the noise; std is both together. Familiarity goes from 1 (like the
    training rows) to 0 (unlike any of them): of rows like the training rows, about 5% are below 0.05. If the table has
    the target as well, the predictions are compared with it.

    With --guaranteed, lower and upper are the mean and so many standard deviations below and above it that they held
    the share --level of rows that the networks had not learned from. The guarantee is for rows drawn as the training
    rows were, all together: not for rows unlike them, nor for each row.

    [bold]Examples[/bold]

      ncprior predict houses.ncp new-houses.csv --out predictions.csv

      ncprior predict trips.ncp trips-of-may/ --level 0.5 --flag-below 0.05 --out may.parquet

      ncprior predict trips.ncp all-trips/ --engine ray --address auto --out predictions/

      unzip -p may.zip | ncprior predict trips.ncp - --out - | head
    """
    if not 0 < level < 1:
        raise UserError(f"--level {level:g}: give a probability between 0 and 1, such as 0.9")
    if flag_below is not None and not 0 < flag_below <= 1:
        raise UserError(f"--flag-below {flag_below:g}: give a familiarity above 0 and at most 1, such as 0.05")
    folder = out if out is not None and out.is_dir() else None
    single = None if folder else out
    check_out(single, force, table)
    check_folder(folder, table)
    check_standard(out, as_json)
    runner = chosen_engine(engine, address, table, out)
    options = dialect_options(
        sep=sep, decimal=decimal, encoding=encoding, header_row=header_row, dates=dates, sheet=sheet
    )
    with ends_at_once():
        from ncprior.cli.progress import row_bar
        from ncprior.cli.summaries import PredictSummary, print_json, print_predict
        from ncprior.data import table_files
        from ncprior.data.column_types import check_held, python_rows
        from ncprior.engines.engine import InProcess
        from ncprior.tables.columns import dialect_of, input_types, kept_types, target_names
        from ncprior.tables.table_predictions import (
            UNIT_ROWS,
            Job,
            ModelFile,
            append_all,
            predict_here,
            predict_units,
        )
    with stoppable(), kept_place(single, force, table), incoming(table) as place:
        file = ModelFile(model) if runner is None else ModelFile.shared(model)
        loaded = file.load()
        if guaranteed:
            loaded.fitted_.conformal.factor(level)  # raises before anything is read or written
        options = dialect_of(loaded.encoder_, options)
        read_with = say_dialect(place, options)
        targets = target_names(loaded)
        types = kept_types(loaded, place, out if single else Path("part.parquet"), options) | input_types(
            loaded.encoder_
        )
        if single:
            check_held(single, table_files.schema_of(place, schema=types, options=options))
        job = Job(file, place.absolute(), types, options, level, flag_below, guaranteed)
        units = table_files.units(place, rows=UNIT_ROWS)
        with (
            table_files.write(single) if single else nullcontext() as append,
            parts_folder(single, folder, runner) as parts,
            row_bar(table_files.rows_of(units)) as advance,
        ):
            if runner is not None or folder is not None:
                engine_used = runner or InProcess()
                done = predict_units(job, units, engine_used, parts, shown_rows=SHOWN_ROWS, advance=advance)
            if append and parts is not None:
                append_all(append, (piece for file in sorted(parts.iterdir()) for piece in table_files.stream(file)))
            elif not (runner or folder):
                done = predict_here(job, units, append, shown_rows=SHOWN_ROWS, advance=advance)
        first, totals = done.first, done.totals
        if first is None:
            raise UserError(f"{table}: has columns but no rows; give a table with at least one row")
        summary: PredictSummary = {
            "rows": totals.rows,
            "read": read_with,
            "columns": totals.columns,
            "targets": targets,
            "level": level,
            "guaranteed": None,
            "unlike": totals.unlike,
            "promised": loaded.validation_,
            "scores": totals.scores.results(),
            "not_scored": totals.scores.not_scored,
        }
        if guaranteed:
            conformal = loaded.fitted_.conformal
            summary["guaranteed"] = {"rows": len(conformal.scores), "refitted": conformal.refitted}
        if out:
            summary["out"] = str(out)
        else:
            summary["first_rows"] = python_rows(first)
        if as_json:
            print_json(summary)
        else:
            print_predict(summary, first, explain=explain, stderr=str(out) == STANDARD)


@contextmanager
def parts_folder(out: Path | None, folder: Path | None, runner: "Engine | None") -> Iterator[Path | None]:
    """Where units are written one by one: the folder of ``--out``, or one beside its file until they are all there."""
    if out is None or runner is None:
        yield folder
        return
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.", suffix=".ncprior-parts") as draft_folder:
        yield Path(draft_folder)
