"""The commands for people's own tables: ``ncprior fit``, ``ncprior predict`` and ``ncprior suggest``."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from ncprior.cli.stopping import ends_at_once, stoppable
from ncprior.errors import UserError
from ncprior.files import alone

TableArgument = Annotated[
    Path, typer.Argument(metavar="TABLE", help="CSV, TSV, Parquet or Arrow file, or a folder of such files.")
]
InputsOption = Annotated[
    list[str] | None, typer.Option(metavar="A,B,C", help="Columns to predict from. \\[default: all others]")
]
ExcludeOption = Annotated[
    list[str] | None, typer.Option(metavar="A,B,C", help="Columns to leave out, such as numbers of rows.")
]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="What ncprior fit has written.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace the file that --out names.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout, for scripts.")]
SHOWN_ROWS = 10
MOST_ROWS = 1_000_000
"""That suggest picks: they are kept in memory, and compared with each other."""


def fit(
    table: TableArgument,
    target: Annotated[list[str], typer.Option(metavar="COLUMN", help="What to predict; can be repeated.")],
    out: Annotated[Path, typer.Option(help="File for the model, such as model.ncp.")],
    inputs: InputsOption = None,
    exclude_columns: ExcludeOption = None,
    method: Annotated[str, typer.Option(help="det, det+ncp, bbb, bbb+ncp, odc+ncp or deep+ncp.")] = "bbb+ncp",
    members: Annotated[int | None, typer.Option(help="Networks to average. \\[default: 8]")] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the rows. \\[default: as many as held-out rows ask for]")
    ] = None,
    min_rows: Annotated[
        int | None, typer.Option(help="Rows that are needed, for a start with fewer. \\[default: 3]")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed and table give the same model.")] = 0,
    as_json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Train a model of a column of a table. Rows without a value in that column are left out.

    [bold]Examples[/bold]

      ncprior fit houses.csv --target price --out houses.ncp

      ncprior fit trips/ --target minutes --target cost --inputs from,to,start --out trips.ncp
    """
    check_out(out, force)
    check_seed(seed)
    with ends_at_once():
        from ncprior.cli.columns import choose_inputs
        from ncprior.cli.progress import fit_lines
        from ncprior.cli.summaries import print_fit, print_json
        from ncprior.data import tables
        from ncprior.data.labelled import check_inputs, known_targets
        from ncprior.estimators import NCPRegressor
    with stoppable(), kept_place(out, force):
        check_model_name(out)
        targets = list(dict.fromkeys(target))
        chosen = choose_inputs(table, targets, inputs or [], exclude_columns or [])
        rows = tables.read(table, [*targets, *chosen])
        truth, there = known_targets(rows, targets)
        rows = rows.select(chosen)
        if not there.all():
            check_inputs(rows)  # here, where rows still have the numbers that they have in the file
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
        summary = {
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


def predict(
    model: ModelArgument,
    table: TableArgument,
    out: Annotated[
        Path | None, typer.Option(help="File for the predictions, .parquet or .csv. \\[default: print the first rows]")
    ] = None,
    level: Annotated[float, typer.Option(help="Probability that the interval from lower to upper holds.")] = 0.9,
    as_json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Add predictions to a table of any size: mean, std, uncertainty, noise, and an interval from lower to upper.

    The squares of noise (which more labels do not lower) and uncertainty (which they do) add up to the square of std.
    Where the table has the target as well, the predictions are compared with it.

    [bold]Examples[/bold]

      ncprior predict houses.ncp new-houses.csv --out predictions.csv

      ncprior predict trips.ncp trips-of-may/ --level 0.5 --out may.parquet
    """
    if not 0 < level < 1:
        raise UserError(f"--level {level:g}: give a probability between 0 and 1, such as 0.9")
    check_out(out, force, table)
    with ends_at_once():
        from ncprior.cli.columns import count_rows, described, input_types, kept_types, target_names, with_columns
        from ncprior.cli.progress import row_bar
        from ncprior.cli.summaries import Scores, print_json, print_predict
        from ncprior.data import tables
        from ncprior.data.column_types import check_held, python_rows
        from ncprior.estimators import NCPRegressor
    with stoppable(), kept_place(out, force, table):
        loaded = NCPRegressor.load(model)
        targets = target_names(loaded)
        scores = Scores(targets)
        first: Any = None
        done = 0
        types = kept_types(loaded, table, out) | input_types(loaded)
        if out:
            check_held(out, tables.schema_of(table, schema=types))
        with tables.write(out) if out else nullcontext() as append, row_bar(count_rows(table)) as advance:
            for piece in tables.stream(table, schema=types):
                prediction = loaded._predict(piece, first_row=done + 1)
                columns = described(prediction, targets, level)
                scores.add(piece, prediction, columns, done + 1)
                piece = with_columns(piece, columns)
                if append:
                    append(piece)
                first = piece.slice(0, SHOWN_ROWS) if first is None else first
                done += piece.num_rows
                advance(piece.num_rows)
        summary = {
            "rows": done,
            "columns": first.column_names[-len(columns) :],
            "level": level,
            "scores": scores.results(),
            "not_scored": scores.why,
            **({"out": str(out)} if out else {"first_rows": python_rows(first)}),
        }
        if as_json:
            print_json(summary)
        else:
            print_predict(summary, first)


RULES = ("kmeans_inputs", "kmeans_pp", "lcmd", "k_center", "max_det", "bait")
"""Rules for whole batches that the help names, the default first; `ncprior.batches.RULES` has all there are."""
SCORES = ("information_gain", "uncertainty", "predictive_variance", "predictive_std", "random")
"""Scores of single rows that the help names; `ncprior.acquisition.SCORES` has all there are."""


def suggest(
    model: ModelArgument,
    pool: Annotated[
        Path, typer.Argument(metavar="POOL", help="Rows that could be labelled: a table as for ncprior predict.")
    ],
    count: Annotated[int, typer.Option("-n", help="How many rows to pick.")] = 10,
    out: Annotated[
        Path | None, typer.Option(help="File for the rows, .csv or .parquet. \\[default: only print them]")
    ] = None,
    acquisition: Annotated[
        str,
        typer.Option(
            help=f"What makes rows worth a label: a rule for batches ({', '.join(RULES)}), or a score of every row "
            f"({', '.join(SCORES)})."
        ),
    ] = RULES[0],
    temperature: Annotated[
        float, typer.Option(help="Above 0, rows are drawn at random, those with high scores more often.")
    ] = 0.0,
    greedy: Annotated[bool, typer.Option("--greedy", help="Take the highest scores: --temperature 0.")] = False,
    id_column: Annotated[
        str | None,
        typer.Option("--id", metavar="COLUMN", help="Column that names rows. \\[default: count them from 1]"),
    ] = None,
    exclude: Annotated[
        Path | None,
        typer.Option(metavar="TABLE", help="Rows not to pick: those with the same id, or without --id, equal inputs."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 0,
    as_json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Find the rows of a pool of any size whose labels would teach the model most, and say why.

    A batch should tell much together: a rule picks rows that the networks see as far from each other and from those
    that they learned from. Or rows are ranked by a score, such as the information gain, in which chance has a part if
    the temperature is above 0. Chance depends only on the seed and on a row's id, or its number.

    [bold]Examples[/bold]

      ncprior suggest houses.ncp all-houses.parquet -n 20 --id address --exclude labelled.csv --out to-label.csv

      ncprior suggest trips.ncp pool/ --acquisition uncertainty --temperature 0.5 --seed 7
    """
    check_suggest(count, acquisition, temperature, greedy, seed)
    check_out(out, force, pool)
    with ends_at_once():
        from ncprior.cli.columns import count_rows, used_columns
        from ncprior.cli.pool import Picker
        from ncprior.cli.progress import row_bar
        from ncprior.cli.summaries import print_json, print_suggest
        from ncprior.data import tables
        from ncprior.data.column_types import check_held, python_rows
        from ncprior.estimators import NCPRegressor
    with stoppable(), kept_place(out, force, pool):
        loaded = NCPRegressor.load(model)
        picker = Picker(count, acquisition, temperature, seed, id_column)
        if out:
            check_held(out, picker.schema(loaded, pool))
        excluded = picker.known(loaded, exclude) if exclude else set()
        with tables.write(out) if out else nullcontext() as append:
            with row_bar(count_rows(pool)) as advance:
                best = picker.best(loaded, picker.stream(loaded, pool), excluded, advance)
            suggestions = python_rows(best.rows)  # before the file is there: after that, nothing may fail
            if append:
                append(best.rows)
        summary: dict[str, Any] = {
            "pool_rows": best.pool,
            "excluded": best.excluded,
            "suggestions": suggestions,
        }
        summary |= {"out": str(out)} if out else {}
        if as_json:
            print_json(summary)
        else:
            inputs = set(used_columns(loaded)) - {id_column}
            print_suggest(summary, best.rows.select([name for name in best.rows.column_names if name not in inputs]))


def check_suggest(count: int, acquisition: str, temperature: float, greedy: bool, seed: int) -> None:
    """Raise if options of suggest do not make sense."""
    if count < 1:
        raise UserError(f"-n {count}: ask for at least one row")
    if count > MOST_ROWS:
        raise UserError(f"-n {count}: ask for at most {MOST_ROWS:,} rows; for more, sort what ncprior predict gives")
    from ncprior import acquisition as scores
    from ncprior import batches

    if acquisition not in (known := [*batches.RULES, *scores.score_names()]):
        raise UserError(f"unknown acquisition {acquisition!r}: choose from {', '.join(known)}")
    if not 0 <= temperature < float("inf"):
        raise UserError(f"--temperature {temperature:g}: give a number from 0 up, such as 0.5")
    if acquisition in batches.RULES and (greedy or temperature > 0):
        option = "--greedy" if greedy else "--temperature"
        raise UserError(f"{option} is for scores of rows, and {acquisition} is none: add --acquisition {SCORES[0]}")
    if greedy and (temperature > 0 or acquisition == "random"):
        other = "--temperature" if temperature > 0 else "--acquisition random"
        raise UserError(f"--greedy leaves nothing to chance, {other} does; leave one of them out")
    check_seed(seed)


def check_seed(seed: int) -> None:
    """Raise if this is no seed."""
    if not 0 <= seed < 2**32:
        raise UserError(f"--seed {seed}: give a whole number from 0 to {2**32 - 1}")


@contextmanager
def kept_place(out: Path | None, force: bool, table: Path | None = None) -> Iterator[None]:
    """Keeps the place of the result from the beginning, so that no other command works for the same one in vain."""
    check_out(out, force, table)
    if out is None:
        yield
        return
    with alone(out, f"--out {out}: is being written"):
        check_out(out, force, table)  # another command may just have finished
        yield


def check_out(out: Path | None, force: bool, table: Path | None = None) -> None:
    """Raise, before any work is done, if the result could not be put there."""
    if out is None:
        return
    if out.exists() and not force:
        raise UserError(f"--out {out}: exists already; choose another name, or add --force to replace it")
    if not out.parent.is_dir():
        raise UserError(f"--out {out}: there is no folder {out.parent}; make it first")
    if out.is_dir() or not os.access(out.parent, os.W_OK):
        raise UserError(f"--out {out}: cannot be written; choose another place")
    if table is not None and table.is_dir() and out.parent.resolve() == table.resolve():
        raise UserError(f"--out {out}: lies in the folder that is read and would become part of it; choose another one")


def check_model_name(out: Path) -> None:
    """Raise if a model would be taken for a table."""
    from ncprior.data import tables

    if any(out.name.lower().endswith(ending) for ending in tables.FORMATS):
        raise UserError(f"--out {out}: a model is not a table; choose a name such as {out.stem}.ncp")
