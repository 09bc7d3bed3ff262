"""The table: every method on every data set, with the spread over the splits, and the best marked."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

Record = dict[str, Any]

MEASURES = {
    "log_likelihood": "log likelihood",
    "rmse": "RMSE",
    "crps": "CRPS",
    "coverage": "90% coverage",
    "seconds": "seconds to train",
}

MARKED = ("log_likelihood", "rmse", "crps", "coverage")
"""Measures whose best is marked: the fastest method is always the one that learns nothing."""


class Cell(NamedTuple):
    """Mean of a measure over the splits, the standard deviation between them, and how many there are."""

    mean: float
    spread: float
    splits: int
    best: bool = False

    def text(self, measure: str) -> str:
        """The two numbers with as many digits as the measure deserves."""
        digits = {"coverage": 3, "seconds": 1}.get(measure, 3 if abs(self.mean) < 10 else 2)
        return f"{self.mean:.{digits}f} ± {self.spread:.{digits}f}"


def read(path: Path) -> list[Record]:
    """The results in a file, one JSON object a line; a line that an interruption cut off is left out."""
    records = []
    for line in path.read_text().splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records


def summary(records: list[Record]) -> dict[str, dict[str, dict[str, Cell]]]:
    """Cells by data set, method and measure; seeds are averaged within a split first.

    Methods may have finished different splits, as some fit small tables only, so a cell has their number, too.
    """
    values: dict[str, dict[str, dict[str, list[Record]]]] = {}
    for record in records:
        if "error" not in record:
            methods = values.setdefault(record["set"], {})
            methods.setdefault(record["method"], {}).setdefault(record["split"], []).append(record)
    result: dict[str, dict[str, dict[str, Cell]]] = {}
    for name, methods in values.items():
        rows = result.setdefault(name, {})
        for method, splits in methods.items():
            for measure in MEASURES:
                means = [float(np.mean([record[measure] for record in seeds])) for seeds in splits.values()]
                cell = Cell(float(np.mean(means)), float(np.std(means)), len(means))
                rows.setdefault(method, {})[measure] = cell
        for measure in MARKED:
            winner = min(rows, key=lambda method: _loss(measure, rows[method][measure].mean))
            rows[winner][measure] = rows[winner][measure]._replace(best=True)
    return result


def _loss(measure: str, mean: float) -> float:
    """What is to be small: the likelihood's negative, the distance of the coverage from 0.9, and all else as it is."""
    if not np.isfinite(mean):
        return np.inf
    return {"log_likelihood": -mean, "coverage": abs(mean - 0.9)}.get(measure, mean)


def tables(records: list[Record]) -> list[tuple[str, list[str], list[list[tuple[str, bool]]]]]:
    """Title, header and rows of texts with marks: log likelihoods of all data sets, then every data set by itself."""
    cells = summary(records)
    methods = list(dict.fromkeys(method for rows in cells.values() for method in rows))
    result = []
    if len(cells) > 1:
        lines = []
        for method in methods:
            line = [(method, False)]
            for rows in cells.values():
                cell = rows.get(method, {}).get("log_likelihood")
                line.append((cell.text("log_likelihood"), cell.best) if cell else ("", False))
            lines.append(line)
        result.append(("Mean test log likelihood", ["method", *cells], lines))
    for name, rows in cells.items():
        lines = []
        for method in rows:
            line = [(method, False)]
            line += [(rows[method][measure].text(measure), rows[method][measure].best) for measure in MEASURES]
            lines.append([*line, (str(rows[method]["rmse"].splits), False)])
        result.append((name, ["method", *MEASURES.values(), "splits"], lines))
    return result


def markdown(records: list[Record], title: str) -> str:
    """The tables as Markdown, best in bold, with the fits that failed below."""
    lines = [
        f"# {title}",
        "",
        "Mean and standard deviation over the splits; the best of each column is bold, without the time.",
        "",
    ]
    for name, header, rows in tables(records):
        lines += [f"## {name}", "", "| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
        lines += ["| " + " | ".join(f"**{text}**" if best else text for text, best in row) + " |" for row in rows]
        lines.append("")
    if failed := failures(records):
        lines += ["## Fits that failed", "", *(f"- {line}" for line in failed), ""]
    return "\n".join(lines)


def show(records: list[Record]) -> None:
    """Prints the tables."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)  # a file or a pipe has no edge
    for name, header, rows in tables(records):
        table = Table(*header, title=name)
        for row in rows:
            table.add_row(*(f"[bold green]{text}[/]" if best else text for text, best in row))
        console.print(table)
    for line in failures(records):
        console.print(line, style="red", markup=False)


def failures(records: list[Record]) -> list[str]:
    """One line for each fit that failed and did not succeed later."""
    done = {key(record) for record in records if "error" not in record}
    latest = {key(record): record for record in records if "error" in record}
    return [f"{' / '.join(map(str, at))}: {record['error']}" for at, record in latest.items() if at not in done]


def key(record: Record) -> tuple[Any, ...]:
    """What makes a result one of its kind."""
    return tuple(record[name] for name in ("set", "split", "seed", "method"))
