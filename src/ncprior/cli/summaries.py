"""Output of the commands for tables: text and tables for people, one JSON object for scripts."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NotRequired, TypedDict

import pyarrow as pa
from rich.table import Table

from ncprior.cli import sentences
from ncprior.cli.console import Terminal
from ncprior.data import column_values
from ncprior.data.column_types import python_rows
from ncprior.errors import UserError
from ncprior.experiments.records import json_value
from ncprior.tables.search import Validation
from ncprior.terminal import say

Row = dict[str, object]
"""The values of a row by column, with types that JSON has."""


class ColumnSummary(TypedDict):
    """A column and how it is treated."""

    name: str
    kind: str
    treatment: str


class FitSummary(TypedDict):
    """The output of ``ncprior fit``."""

    model: str
    method: str
    read: str
    """How the file was written, if not as files should be."""
    targets: list[str]
    rows: int
    """Rows that were learned from, or set apart."""
    rows_with_target: int
    """Rows that they were drawn from: more than ``rows`` if the table is large, see ``--max-rows``."""
    rows_without_target: int
    unlabelled_rows: int
    """Rows without the target that were contrast points, at most 16,384."""
    rows_set_apart: int
    """Rows that nothing was learned from, for guaranteed intervals."""
    columns: list[ColumnSummary]
    look_at: list[str]
    """Possible mistakes in the table, as sentences."""
    steps: Sequence[int]
    seconds: float
    held_out: Validation | None
    """`NCPRegressor.validation_`: numbers, or lists of them if there are several targets."""
    boosted_trees: dict[str, float]
    """The error of boosted trees on the same rows, for each target."""


class GuaranteeSummary(TypedDict):
    """The rows that guaranteed intervals come from."""

    rows: int
    refitted: bool
    """Whether the model has learned from these rows since."""


class PredictSummary(TypedDict):
    """The output of ``ncprior predict``."""

    rows: int
    read: str
    columns: list[str]
    targets: list[str]
    level: float
    guaranteed: GuaranteeSummary | None
    """None if the intervals are those of the prediction."""
    unlike: float | None
    """Share of the rows that are unlike the training rows, if that is known."""
    promised: Validation | None
    """Scores of the rows that were held out in training."""
    scores: dict[str, dict[str, float]]
    not_scored: dict[str, str]
    out: NotRequired[str]
    first_rows: NotRequired[list[Row]]


class SuggestSummary(TypedDict):
    """The output of ``ncprior suggest``."""

    pool_rows: int
    read: str
    excluded: int
    rule: str
    """How they were chosen, in words."""
    suggestions: list[Row]
    total_cost: NotRequired[float]
    out: NotRequired[str]


_MANY, _SHOWN = 100, 20
"""If there are more columns than the first number, only as many as the second are listed."""


class ShardSummary(TypedDict):
    """The output of ``ncprior suggest --shard``."""

    shard: str
    rows: int
    excluded: int
    kept: int
    out: str


def print_json(content: Mapping[str, object]) -> None:
    """Print one JSON object. Numbers that are not finite become null."""
    for line in json.dumps(json_value(content), indent=2, allow_nan=False, default=str).split("\n"):
        say(line)


def print_shard(summary: ShardSummary) -> None:
    """Print what was kept of a shard of a pool."""
    left_out = f", {summary['excluded']:,} of them excluded" if summary["excluded"] else ""
    say(f"shard {summary['shard']}: kept {summary['kept']:,} of {summary['rows']:,} rows{left_out}")
    say(f"saved: {summary['out']}; ncprior merge picks the rows when all shards are there")


def print_fit(summary: FitSummary, *, explain: bool = False) -> None:
    """Print how columns were treated, what to look at, how good the model is, and where it was saved."""
    console = Terminal()
    table = Table("column", "treatment")
    columns = summary["columns"]
    shown = len(columns) if len(columns) <= _MANY else _SHOWN
    for column in columns[:shown]:
        table.add_row(column["name"], column["treatment"])
    console.print(table)
    if more := Counter(column["kind"] for column in columns[shown:]):
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in more.most_common())
        console.print(f"and {more.total():,} more columns: {kinds}")
    if lines := summary["look_at"]:
        console.print("Please look at:")
        for line in [*lines[:_SHOWN], *([f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else [])]:
            console.print(f"  - {line}", soft_wrap=True)
    rows = f"{summary['rows']:,} rows"
    if (every := summary["rows_with_target"]) > summary["rows"]:
        rows += f", drawn at random from {every:,}"
    if dropped := summary["rows_without_target"]:
        rows += f" ({dropped:,} more have no value of {' and '.join(summary['targets'])} and were left out)"
    if set_apart := summary["rows_set_apart"]:
        rows += f" ({set_apart:,} of them set apart for guaranteed intervals)"
    if pool := summary["unlabelled_rows"]:
        rows += f", {pool:,} unlabelled rows as contrast"
    steps = f"up to {max(summary['steps']):,} training steps, {summary['seconds']:.1f} s"
    console.print(f"{rows}, {steps}", soft_wrap=True)
    if held := summary["held_out"]:
        for name, scores in _by_target(held, summary["targets"]).items():
            trees = summary["boosted_trees"].get(name)
            several = len(summary["targets"]) > 1
            console.print(f"{name}: " * several + sentences.fit_sentence(scores, trees), style="bold", soft_wrap=True)
            console.print(f"held-out rows{f', {name}' * several}: {_in_words(scores, 0.9)}")
        fair = "(a little optimistic: these rows also said when to stop; `ncprior evaluate` is the fair test)"
        console.print(fair, soft_wrap=True)
    else:
        console.print("no rows were held out, so nothing is known of how good the model is")
    if explain:
        _explain(console, "typical error", "boosted trees", "interval", "coverage", "NLPD", "held-out rows")
    console.print(f"model: {summary['model']}", soft_wrap=True)


def print_predict(summary: PredictSummary, first: pa.Table, *, explain: bool = False, stderr: bool = False) -> None:
    """Print the first rows, unless all are in a file, and how good the predictions are, if the table has the target."""
    console = Terminal(stderr=stderr)
    if "out" not in summary:
        # Only some of the table's own columns, to leave space for the new ones; true values stand beside these.
        true = [name for name in summary["targets"] if name in first.column_names]
        other_columns = [name for name in first.column_names if name not in (*summary["columns"], *true)]
        space = max(1, 9 - len(summary["columns"]) - len(true))
        console.print(rows_table(_as_numbers(first.select([*other_columns[:space], *true, *summary["columns"]]), true)))
    if summary["unlike"] is not None:
        console.print(sentences.unlike_sentence(summary["unlike"], summary["rows"]), style="bold", soft_wrap=True)
    if (guarantee := summary["guaranteed"]) is not None:
        sentence = sentences.guarantee_sentence(summary["level"], guarantee["rows"], refitted=guarantee["refitted"])
        console.print(sentence, soft_wrap=True)
    promised = _by_target(summary["promised"], summary["targets"]) if summary["promised"] else {}
    for name, scores in summary["scores"].items():
        sentence = sentences.kept_promise(scores, summary["level"], promised.get(name))
        console.print(f"{name}: " * (len(summary["targets"]) > 1) + sentence, style="bold", soft_wrap=True)
        console.print(f"{name}: {_in_words(scores, summary['level'])}")
    for name, reason in summary["not_scored"].items():
        console.print(f"{name}: not compared with predictions ({reason})")
    if explain:
        more_terms = ("familiarity",) if summary["unlike"] is not None else ()
        _explain(console, "uncertainty", "noise", "interval", "typical error", "coverage", "NLPD", *more_terms)
    if stderr:
        console.print(f"{summary['rows']:,} rows")
    elif "out" in summary:
        console.print(f"{summary['rows']:,} rows: {summary['out']}", soft_wrap=True)
    elif summary["rows"] > len(first):
        console.print(f"the first of {summary['rows']:,} rows; --out FILE writes all", soft_wrap=True)


def print_suggest(summary: SuggestSummary, rows: pa.Table, *, explain: bool = False, stderr: bool = False) -> None:
    """Print the rows to label, why, and where they were written."""
    console = Terminal(stderr=stderr)
    why = rows["why"].to_pylist() if "why" in rows.column_names else []
    shown = rows.drop_columns(["why"]) if why else rows
    console.print(rows_table(shown))
    for number, reason in enumerate(why[:_MANY], 1):
        console.print(f"{number:>4}. {reason}")
    if len(why) > _MANY:
        console.print(f"and {len(why) - _MANY:,} more")
    console.print(summary["rule"], style="bold", soft_wrap=True)
    excluded = f", {summary['excluded']:,} of them excluded" if summary["excluded"] else ""
    cost = f"; their labels cost {summary['total_cost']:,.6g} in all" if "total_cost" in summary else ""
    console.print(f"from a pool of {summary['pool_rows']:,} rows{excluded}{cost}")
    if explain:
        _explain(console, "information gain", "uncertainty", "noise")
    if "out" in summary and not stderr:
        console.print(f"rows to label: {summary['out']}", soft_wrap=True)


def _explain(console: Terminal, *names: str) -> None:
    for line in sentences.explained(names):
        console.print(f"  {line}", soft_wrap=True)


def rows_table(rows: pa.Table) -> Table:
    """Rows as a table for the terminal; the numbers of a column have the same number of decimals."""
    table = Table(*rows.column_names)
    values = python_rows(rows)
    columns = [_same_decimals([row[name] for row in values]) for name in rows.column_names]
    for row in zip(*columns, strict=True):
        table.add_row(*row)
    return table


def _as_numbers(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """The rows with these columns as numbers, if they read as such."""
    for name in names:
        with suppress(UserError):
            numbers = column_values.numbers(name, rows[name], 1)[0]
            rows = rows.set_column(rows.column_names.index(name), name, [pa.array(numbers, from_pandas=True)])
    return rows


def _same_decimals(values: Sequence[object]) -> list[str]:
    """Values as text: numbers with as many decimals as four digits of the largest need."""
    sizes = [abs(value) for value in values if isinstance(value, float) and math.isfinite(value) and value]
    largest = max(sizes, default=1.0)
    if not 1e-4 <= largest < 1e9:
        return [f"{value:.4g}" if isinstance(value, float) else _short(value) for value in values]
    are_whole = all(size == round(size) for size in sizes)
    decimals = 0 if are_whole else max(0, 3 - math.floor(math.log10(largest)))
    return [f"{value:.{decimals}f}" if isinstance(value, float) else _short(value) for value in values]


def _by_target(held: Validation, targets: Sequence[str]) -> dict[str, dict[str, float]]:
    """Scores on held-out rows by target. With several targets, `NCPRegressor.validation_` has lists."""

    def scores(target: int) -> dict[str, float]:
        each = {"rmse": held["rmse"], "nlpd": held["nlpd"], "coverage": held["coverage"]}
        one = {name: value[target] if isinstance(value, list) else value for name, value in each.items()}
        return {**one, "rows": held["rows"]}

    return {name: scores(i) for i, name in enumerate(targets)}


def _in_words(scores: Mapping[str, float], level: float) -> str:
    covered = f"the {100 * level:.4g}% interval holds {scores['coverage']:.1%} of {scores['rows']:,} rows"
    return f"RMSE {scores['rmse']:.4g}, NLPD {scores['nlpd']:.4g}; {covered}"


def _short(value: object) -> str:
    return "" if value is None else str(value)
