"""What a page is made of: sections with pictures and tables."""

from typing import Any, NamedTuple

from matplotlib.figure import Figure

from ncprior.experiments.records import Records
from ncprior.report import claims


class Picture(NamedTuple):
    """A figure with its name and caption."""

    name: str
    title: str
    caption: str
    figure: Figure


class Cell(NamedTuple):
    """What stands in a table: a number, smaller lines below it, and a published figure to compare it with."""

    text: str
    small: str = ""
    published: str = ""
    best: bool = False  # of its column


class Table(NamedTuple):
    """A table with a heading and a remark."""

    title: str
    note: str
    header: list[str]
    rows: list[list[Cell]]


class Section(NamedTuple):
    """The part of a page that reports one run."""

    title: str
    intro: str
    pictures: list[Picture]
    tables: list[Table]
    claims: list[claims.Claim]
    stopped: list[str]  # runs that ended before their time, and why
    records: Records


def number(value: float | None) -> str:
    """A number as tables show it."""
    if value is None or value != value:  # NaN
        return "–"
    if value and abs(value) < 0.01:
        return f"{value:.3g}"
    return f"{value:.3f}" if abs(value) < 10_000 else f"{value:.1e}"


def plain(value: Any) -> str:
    """A value of a configuration as tables show it."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
