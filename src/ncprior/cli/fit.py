"""The command ``ncprior fit``."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ncprior.cli.interrupts import ends_at_once, stoppable
from ncprior.cli.options import (
    ExcludeOption,
    ForceOption,
    InputsOption,
    JsonOption,
    TableArgument,
    check_out,
    check_seed,
    kept_place,
)
from ncprior.errors import UserError


def fit(
    table: TableArgument,
    *,
    target: Annotated[list[str], typer.Option(metavar="COLUMN", help="Column to predict; can be repeated.")],
    out: Annotated[Path, typer.Option(help="File for the model, such as model.ncp.")],
    inputs: InputsOption = None,
    exclude_columns: ExcludeOption = None,
    method: Annotated[str, typer.Option(help="det, det+ncp, bbb, bbb+ncp, odc+ncp or deep+ncp.")] = "bbb+ncp",
    members: Annotated[int | None, typer.Option(help="Networks in the ensemble. \\[default: 8]")] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the rows. \\[default: found by early stopping]")
    ] = None,
    min_rows: Annotated[int | None, typer.Option(help="Fewest rows to accept. \\[default: 3]")] = None,
    seed: Annotated[int, typer.Option(help="The same seed and table give the same model.")] = 0,
    as_json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Train a model that predicts a column of a table. Rows without a value in that column are left out.

    [bold]Examples[/bold]

      ncprior fit houses.csv --target price --out houses.ncp

      ncprior fit trips/ --target minutes --target cost --inputs from,to,start --out trips.ncp
    """
    check_out(out, force)
    check_seed(seed)
    with ends_at_once():
        from ncprior.cli.options import choose_inputs
        from ncprior.cli.progress import fit_lines
        from ncprior.cli.summaries import FitSummary, print_fit, print_json
        from ncprior.data import table_files
        from ncprior.data.labelled import check_inputs, read_targets
        from ncprior.tables.estimator import NCPRegressor
    with stoppable(), kept_place(out, force):
        check_model_name(out)
        targets = list(dict.fromkeys(target))
        chosen = choose_inputs(table, targets, inputs or [], exclude_columns or [])
        rows = table_files.read(table, [*targets, *chosen])
        truth, there = read_targets(rows, targets)
        rows = rows.select(chosen)
        if not there.all():
            check_inputs(rows)  # before filtering, so that messages have the row numbers of the file
            rows = rows.filter(there)
        given: dict[str, Any] = {"members": members, "epochs": epochs, "min_rows": min_rows}
        model = NCPRegressor(
            method,
            random_state=seed,
            verbose=sys.stderr.isatty(),
            callbacks=() if sys.stderr.isatty() else (fit_lines(),),
            **{name: value for name, value in given.items() if value is not None},
        )
        truth = truth[there]
        model.fit(rows, truth[:, 0] if len(targets) == 1 else truth)
        model.target_names_ = targets
        model.save(out)
    with stoppable(f"the model is in {out}"):
        summary: FitSummary = {
            "model": str(out),
            "method": method,
            "targets": targets,
            "rows": int(there.sum()),
            "rows_without_target": int((~there).sum()),
            "columns": [{"name": c.name, "kind": c.kind, "treatment": c.treatment} for c in model.encoder_.columns],
            "steps": model.steps_,
            "seconds": model.fit_seconds_,
            "held_out": model.validation_,
        }
        if as_json:
            print_json(summary)
        else:
            print_fit(summary)


def check_model_name(out: Path) -> None:
    """Raise if the file name of a model is that of a table."""
    from ncprior.data import table_files

    if any(out.name.lower().endswith(ending) for ending in table_files.FORMATS):
        raise UserError(f"--out {out}: a model is not a table; choose a name such as {out.stem}.ncp")
