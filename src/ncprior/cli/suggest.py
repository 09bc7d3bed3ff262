"""The command ``ncprior suggest``."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

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
    check_out,
    check_seed,
    check_standard,
    chosen_engine,
    dialect_options,
    incoming,
    kept_place,
    say_dialect,
)
from ncprior.errors import UserError
from ncprior.files import digest_of

MOST_ROWS = 1_000_000
"""The most rows that suggest picks: they are kept in memory and compared with each other."""


def suggest(
    model: ModelArgument,
    pool: Annotated[
        Path, typer.Argument(metavar="POOL", help="Rows that could be labelled: a table as for ncprior predict.")
    ],
    *,
    count: Annotated[int, typer.Option("-n", help="How many rows to pick.")] = 10,
    out: Annotated[
        Path | None,
        typer.Option(help="File for the rows, .csv or .parquet, or - for stdout. \\[default: only print them]"),
    ] = None,
    acquisition: Annotated[
        str,
        typer.Option(help="How to choose rows: a rule for batches (RULES), or a score of every row (SCORES)."),
    ] = "kmeans_greedy",
    temperature: Annotated[
        float, typer.Option(help="Above 0, rows are drawn at random, those with high scores more often.")
    ] = 0.0,
    greedy: Annotated[bool, typer.Option("--greedy", help="Take the highest scores: --temperature 0.")] = False,
    id_column: Annotated[
        str | None,
        typer.Option("--id", metavar="COLUMN", help="Column that identifies rows. \\[default: row numbers from 1]"),
    ] = None,
    exclude: Annotated[
        Path | None,
        typer.Option(
            metavar="TABLE", help="Rows not to pick: those with the same id or, without --id, the same inputs."
        ),
    ] = None,
    cost: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column that says what a label costs: choose by gain for each unit of it."),
    ] = None,
    per: Annotated[
        tuple[str, int] | None,
        typer.Option(metavar="COLUMN K", help="Pick at most K rows of each group that this column names."),
    ] = None,
    weight: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="How much one of several targets counts; can be repeated, others 1."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 0,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N",
            help="Search only the I-th of N parts of the pool; ncprior merge picks rows from what all parts found.",
        ),
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
    """Choose the rows of a pool of any size that are most worth a label.

    A rule picks a batch of rows that are informative together: far from each other and from the training rows. A score,
    such as the information gain, ranks every row on its own; with a temperature above 0, rows are drawn at random by
    their scores. Draws depend only on the seed and on the id of a row, or its number.

    [bold]Examples[/bold]

      ncprior suggest houses.ncp all-houses.parquet -n 20 --id address --exclude labelled.csv --out to-label.csv

      ncprior suggest assays.ncp library.csv -n 96 --id compound --cost price --per supplier 24

      ncprior suggest trips.ncp pool/ --acquisition uncertainty --temperature 0.5 --seed 7

      ncprior suggest trips.ncp pool/ -n 20 --id trip --shard 3/64 --out parts/3.parquet
    """
    check_suggest(count, acquisition, temperature, greedy, seed)
    if per is not None:
        check_per(*per)
    check_out(out, force, pool)
    check_standard(out, as_json)
    if shard is not None:
        check_shard(pool, out, id_column)
    runner = chosen_engine(engine, address, pool)
    if shard is not None and runner is not None:
        raise UserError("--shard is for one process and --engine ray for a cluster, which needs no shards; choose one")
    if exclude is not None and str(exclude) == STANDARD:
        raise UserError("--exclude -: only the pool can come in on standard input; give a file")
    dialect = dialect_options(
        sep=sep, decimal=decimal, encoding=encoding, header_row=header_row, dates=dates, sheet=sheet
    )
    with ends_at_once():
        from ncprior.cli.progress import row_bar
        from ncprior.cli.summaries import ShardSummary, SuggestSummary, print_json, print_shard, print_suggest
        from ncprior.data import table_files
        from ncprior.data.column_types import check_held, python_rows
        from ncprior.tables.columns import count_rows, dialect_of, target_names, used_columns, with_reasons
        from ncprior.tables.constraints import PerGroup, costs_in
        from ncprior.tables.estimator import NCPRegressor
        from ncprior.tables.pool import Picker
        from ncprior.tables.pool_parts import Search, Shard, write_part
        from ncprior.tables.pool_tasks import PoolSearch, search_units
        from ncprior.tables.table_predictions import ModelFile
    with stoppable(), kept_place(out, force, pool), incoming(pool) as place:
        loaded = NCPRegressor.load(model)
        options = dialect_of(loaded.encoder_, dialect)
        read_with = say_dialect(place, options)
        picker = Picker(
            count,
            acquisition,
            temperature,
            seed,
            id_column,
            options,
            cost=cost,
            per=PerGroup(*per) if per else None,
            output_weights=output_weights(target_names(loaded), weight or []),
        )
        if out:
            check_held(out, picker.schema(loaded, place))
        excluded = picker.keys_in(loaded, exclude) if exclude else set()
        if shard is not None and out is not None and id_column is not None:
            part, rows_in_all = Shard.parse(shard), count_rows(place) or 0
            search = Search.of(
                picker, digest_of(model), pool_rows=rows_in_all, not_to_pick=len(excluded), shards=part.of
            )
            units = part.units(place)
            with row_bar(table_files.rows_of(units)) as advance:
                pieces = picker.stream(loaded, place, units=units)
                found = picker.search(loaded, pieces, excluded, advance, part_of=rows_in_all)
            kept = write_part(out, found, search, part)
            shard_summary: ShardSummary = {
                "shard": str(part),
                "rows": found.pool,
                "excluded": found.excluded,
                "kept": kept,
                "out": str(out),
            }
            (print_json if as_json else print_shard)(shard_summary)
            return
        with table_files.write(out) if out else nullcontext() as append:
            with row_bar(count_rows(place)) as advance:
                if runner is None:
                    best = picker.pick(loaded, picker.stream(loaded, place), excluded, advance)
                else:
                    not_these = exclude.absolute() if exclude else None
                    wanted = PoolSearch(ModelFile.shared(model), picker, place.absolute(), not_these)
                    best = picker.choose(loaded, search_units(wanted, runner, advance))
            rows = with_reasons(loaded, best.rows)
            suggestions = python_rows(rows)  # may fail, so before the file is written
            if append:
                append(rows)
        summary: SuggestSummary = {
            "pool_rows": best.pool,
            "read": read_with,
            "excluded": best.excluded,
            "rule": chosen_by(acquisition, temperature),
            "suggestions": suggestions,
        }
        if cost is not None:
            summary["total_cost"] = float(costs_in(rows, cost).sum())
        if out:
            summary["out"] = str(out)
        if as_json:
            print_json(summary)
        else:
            inputs = set(used_columns(loaded.encoder_)) - {id_column, cost, per[0] if per else None}
            shown = rows.select([name for name in rows.column_names if name not in inputs])
            print_suggest(summary, shown, explain=explain, stderr=str(out) == STANDARD)


def check_shard(pool: Path, out: Path | None, id_column: str | None) -> None:
    """Raise if the options do not suit the search of a single shard."""
    if str(pool) == STANDARD:
        raise UserError("--shard parts files, and standard input is none; give a file or a folder")
    if id_column is None:
        raise UserError("--shard needs --id COLUMN: rows of one shard are told from those of others by their ids")
    if out is None or out.suffix.lower() != ".parquet":
        raise UserError("--shard needs --out FILE.parquet: what it finds is for ncprior merge, which picks the rows")


def check_per(column: str, most: int) -> None:
    """Raise unless ``--per`` allows at least one row of each group."""
    if most < 1:
        raise UserError(f"--per {column} {most}: give a whole number from 1 up")


def output_weights(targets: Sequence[str], texts: Sequence[str]) -> tuple[float, ...]:
    """The weights of all targets from ``NAME=VALUE``, 1 for those that are not named; none without any text."""
    if not texts:
        return ()
    found = dict.fromkeys(targets, 1.0)
    for text in texts:
        name, _, value = text.rpartition("=")
        if name not in found:
            raise UserError(f"--weight {text}: give NAME=VALUE with one of the targets {', '.join(targets)}")
        try:
            found[name] = float(value)
        except ValueError:
            raise UserError(f"--weight {text}: {value!r} is no number; give one, such as {name}=2") from None
    return tuple(found.values())


def chosen_by(acquisition: str, temperature: float) -> str:
    """How rows are chosen, and what their order means, in words."""
    from ncprior.cli.sentences import order_sentence
    from ncprior.core.acquisition import SCORES
    from ncprior.tables.batches import RULES

    entry = RULES[acquisition] if acquisition in RULES else SCORES[acquisition]
    return order_sentence(acquisition, entry.help, rule=acquisition in RULES, temperature=temperature)


def check_suggest(count: int, acquisition: str, temperature: float, greedy: bool, seed: int) -> None:
    """Raise if options have no meaning, or contradict each other."""
    if count < 1:
        raise UserError(f"-n {count}: ask for at least one row")
    if count > MOST_ROWS:
        raise UserError(f"-n {count}: ask for at most {MOST_ROWS:,} rows; for more, sort what ncprior predict gives")
    from ncprior.core.acquisition import score_names
    from ncprior.tables.batches import RULES, acquisitions

    if acquisition not in acquisitions():
        raise UserError(f"unknown acquisition {acquisition!r}: choose from {', '.join(acquisitions())}")
    if not 0 <= temperature < float("inf"):
        raise UserError(f"--temperature {temperature:g}: give a number from 0 up, such as 0.5")
    if acquisition in RULES and (greedy or temperature > 0):
        option = "--greedy" if greedy else "--temperature"
        raise UserError(
            f"{option} is for scores of rows, and {acquisition} is none: add --acquisition {score_names()[0]}"
        )
    if greedy and (temperature > 0 or acquisition == "random"):
        other = "--temperature" if temperature > 0 else "--acquisition random"
        raise UserError(f"--greedy leaves nothing to chance, {other} does; leave one of them out")
    check_seed(seed)
