"""Output of the commands for tables: text and tables for people, one JSON object for scripts."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

import numpy as np
import pyarrow as pa
from rich.table import Table

from ncprior.cli.console import Terminal
from ncprior.data import column_values
from ncprior.data.column_types import python_rows
from ncprior.errors import UserError
from ncprior.experiments.records import json_value
from ncprior.tables.predictions import Distribution
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
    targets: list[str]
    rows: int
    rows_without_target: int
    columns: list[ColumnSummary]
    steps: Sequence[int]
    seconds: float
    held_out: Mapping[str, Any] | None
    """`NCPRegressor.validation_`: numbers, or lists of them if there are several targets."""


class PredictSummary(TypedDict):
    """The output of ``ncprior predict``."""

    rows: int
    columns: list[str]
    level: float
    scores: dict[str, dict[str, float]]
    not_scored: dict[str, str]
    out: NotRequired[str]
    first_rows: NotRequired[list[Row]]


class SuggestSummary(TypedDict):
    """The output of ``ncprior suggest``."""

    pool_rows: int
    excluded: int
    suggestions: list[Row]
    out: NotRequired[str]


_MANY, _SHOWN = 100, 20
"""If there are more columns than the first number, only as many as the second are listed."""


class Scores:
    """How good predictions are, from sums over the rows of a table whose targets are known."""

    def __init__(self, targets: Sequence[str]) -> None:
        self.targets = targets
        self.sums = {name: np.zeros(4) for name in targets}  # rows, squared errors, log densities, rows in the interval
        self.not_scored: dict[str, str] = {}
        """Why a target that is in the table has no scores, by its name."""

    def add(self, table: pa.Table, prediction: Distribution, columns: Mapping[str, np.ndarray], first_row: int) -> None:
        """Add the rows of a piece of the table.

        Args:
            table: The piece.
            prediction: Its prediction.
            columns: The columns of the prediction, such as ``lower`` and ``upper``.
            first_row: The number of its first row in the whole table, for messages.
        """
        truth = np.full((table.num_rows, len(self.targets)), np.nan)
        for i, name in enumerate(self.targets):
            if name in table.column_names and name not in self.not_scored:
                try:
                    truth[:, i] = column_values.numbers(name, table[name], first_row)[0]
                except UserError as error:
                    self.not_scored[name] = str(error)
        known = ~np.isnan(truth)
        if not known.any():
            return
        filled = np.where(known, truth, 0)
        density = prediction.log_prob(filled[:, 0] if prediction.flat else filled).reshape(truth.shape)
        for i, name in enumerate(self.targets):
            suffix = f"_{name}" if len(self.targets) > 1 else ""
            mean, lower, upper = (columns[f"{part}{suffix}"] for part in ("mean", "lower", "upper"))
            y = filled[:, i]
            sums = np.stack([np.ones(len(y)), (y - mean) ** 2, density[:, i], (lower <= y) & (y <= upper)])
            self.sums[name] += sums[:, known[:, i]].sum(axis=1)

    def results(self) -> dict[str, dict[str, float]]:
        """RMSE, NLPD, coverage and number of rows, for each target that is in the table."""
        results = {}
        for name, (rows, squares, density, inside) in self.sums.items():
            if rows and name not in self.not_scored:
                scores = {"rmse": math.sqrt(squares / rows), "nlpd": -density / rows, "coverage": inside / rows}
                results[name] = {**scores, "rows": int(rows)}
        return results


def print_json(content: Mapping[str, object]) -> None:
    """Print one JSON object. Numbers that are not finite become null."""
    for line in json.dumps(json_value(content), indent=2, allow_nan=False, default=str).split("\n"):
        say(line)


def print_fit(summary: FitSummary) -> None:
    """Print how columns were treated, how good the model is, and where it was saved."""
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
    rows = f"{summary['rows']:,} rows"
    if dropped := summary["rows_without_target"]:
        rows += f" ({dropped:,} more have no value of {' and '.join(summary['targets'])} and were left out)"
    console.print(f"{rows}, up to {max(summary['steps']):,} training steps, {summary['seconds']:.1f} s")
    if held := summary["held_out"]:
        for name, scores in _by_target(held, summary["targets"]).items():
            console.print(f"held-out rows{name}: {_in_words(scores, 0.9)}")
        console.print("(a little optimistic: these rows also said when to stop; `ncprior evaluate` is the fair test)")
    else:
        console.print("no rows were held out, so nothing is known of how good the model is")
    console.print(f"model: {summary['model']}", soft_wrap=True)


def print_predict(summary: PredictSummary, first: pa.Table) -> None:
    """Print the first rows, unless all are in a file, and how good the predictions are, if the table has the target."""
    console = Terminal()
    if "out" not in summary:
        # Only some of the table's own columns, to leave space for the new ones.
        own = [name for name in first.column_names if name not in summary["columns"]]
        console.print(rows_table(first.select([*own[: max(1, 9 - len(summary["columns"]))], *summary["columns"]])))
    for name, scores in summary["scores"].items():
        console.print(f"{name}: {_in_words(scores, summary['level'])}")
    for name, reason in summary["not_scored"].items():
        console.print(f"{name}: not compared with predictions ({reason})")
    if "out" in summary:
        console.print(f"{summary['rows']:,} rows: {summary['out']}", soft_wrap=True)
    elif summary["rows"] > len(first):
        console.print(f"the first of {summary['rows']:,} rows; --out FILE writes all", soft_wrap=True)


def print_suggest(summary: SuggestSummary, rows: pa.Table) -> None:
    """Print the rows to label, and where they were written."""
    console = Terminal()
    console.print(rows_table(rows))
    excluded = f", {summary['excluded']:,} of them excluded" if summary["excluded"] else ""
    console.print(f"from a pool of {summary['pool_rows']:,} rows{excluded}")
    if "out" in summary:
        console.print(f"rows to label: {summary['out']}", soft_wrap=True)


def rows_table(rows: pa.Table) -> Table:
    """Rows as a table for the terminal."""
    table = Table(*rows.column_names)
    for row in python_rows(rows):
        table.add_row(*(_short(value) for value in row.values()))
    return table


def _by_target(held: Mapping[str, Any], targets: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Scores on held-out rows by target. With several targets, `NCPRegressor.validation_` has lists."""
    if len(targets) == 1:
        return {"": held}
    return {
        f", {name}": {key: value[i] if isinstance(value, list) else value for key, value in held.items()}
        for i, name in enumerate(targets)
    }


def _in_words(scores: Mapping[str, Any], level: float) -> str:
    covered = f"the {100 * level:.4g}% interval holds {scores['coverage']:.1%} of {scores['rows']:,} rows"
    return f"RMSE {scores['rmse']:.4g}, NLPD {scores['nlpd']:.4g}; {covered}"


def _short(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
