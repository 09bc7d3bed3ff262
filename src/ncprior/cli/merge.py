"""The command ``ncprior merge``."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from ncprior.cli.interrupts import ends_at_once, stoppable
from ncprior.cli.options import (
    STANDARD,
    ExplainOption,
    ForceOption,
    JsonOption,
    ModelArgument,
    check_out,
    check_standard,
    kept_place,
)
from ncprior.cli.suggest import MOST_ROWS, chosen_by
from ncprior.errors import UserError
from ncprior.files import digest_of


def merge(
    model: ModelArgument,
    parts: Annotated[
        list[Path], typer.Argument(metavar="PARTS...", help="Files of ncprior suggest --shard, or folders of them.")
    ],
    *,
    count: Annotated[int, typer.Option("-n", help="How many rows to pick.")] = 10,
    id_column: Annotated[str, typer.Option("--id", metavar="COLUMN", help="Column that identifies rows.")],
    out: Annotated[
        Path | None,
        typer.Option(help="File for the rows, .csv or .parquet, or - for stdout. \\[default: only print them]"),
    ] = None,
    as_json: JsonOption = False,
    explain: ExplainOption = False,
    force: ForceOption = False,
) -> None:
    """Choose the rows of a pool that are most worth a label, from what was found in all of its shards.

    The rows are those that ncprior suggest picks from the whole pool, with the acquisition and the seed that the shards
    were searched with.

    [bold]Examples[/bold]

      ncprior suggest trips.ncp pool/ -n 20 --id trip --shard 3/64 --out parts/3.parquet

      ncprior merge trips.ncp parts/ -n 20 --id trip --out to-label.csv
    """
    if not 1 <= count <= MOST_ROWS:
        raise UserError(f"-n {count}: ask for 1 to {MOST_ROWS:,} rows")
    check_out(out, force)
    check_standard(out, as_json)
    with ends_at_once():
        import dataclasses

        from ncprior.cli.summaries import SuggestSummary, print_json, print_suggest
        from ncprior.data import table_files
        from ncprior.data.column_types import check_held, python_rows
        from ncprior.tables.columns import used_columns, with_reasons
        from ncprior.tables.constraints import costs_in
        from ncprior.tables.estimator import NCPRegressor
        from ncprior.tables.pool_parts import part_files, read_parts, read_search
    with stoppable(), kept_place(out, force):
        loaded = NCPRegressor.load(model)
        files = part_files(parts)
        search = read_search(files)
        if search.model != digest_of(model):
            raise UserError(f"{files[0]}: was found with another model than {model}; search the shards with this one")
        if search.id_column != id_column:
            raise UserError(f"--id {id_column}: the shards were searched with --id {search.id_column}; give the same")
        if count > search.count:
            raise UserError(f"-n {count}: the shards were searched for -n {search.count}; ask for as many, or fewer")
        found = search.picker.merge(read_parts(files), search.pool_rows, search.not_to_pick)
        picker = search.picker
        best = dataclasses.replace(picker, count=count, compared=picker.most_compared).choose(loaded, found)
        rows = with_reasons(loaded, best.rows)
        suggestions = python_rows(rows)
        if out:
            check_held(out, rows.schema)
        with table_files.write(out) if out else nullcontext() as append:
            if append:
                append(rows)
        summary: SuggestSummary = {
            "pool_rows": best.pool,
            "read": "",
            "excluded": best.excluded,
            "rule": chosen_by(search.acquisition, search.temperature),
            "suggestions": suggestions,
        }
        if search.cost:
            summary["total_cost"] = float(costs_in(rows, search.cost).sum())
        if out:
            summary["out"] = str(out)
        if as_json:
            print_json(summary)
        else:
            inputs = set(used_columns(loaded.encoder_)) - {id_column, search.cost, search.groups}
            shown = rows.select([name for name in rows.column_names if name not in inputs])
            print_suggest(summary, shown, explain=explain, stderr=str(out) == STANDARD)
