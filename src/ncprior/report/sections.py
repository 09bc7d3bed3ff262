"""What a page is made of: sections with pictures and tables."""

from typing import NamedTuple, Protocol

from matplotlib.figure import Figure

from ncprior.experiments.records import Records
from ncprior.report.claims.verdicts import Claim


class Draw(Protocol):
    """Draws a figure: for a wide page, or with its panels below each other for a narrow one."""

    def __call__(self, *, narrow: bool = False) -> Figure:
        """The figure."""


class Picture(NamedTuple):
    """A figure with its name and caption."""

    name: str
    title: str
    caption: str
    draw: Draw


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
    claims: list[Claim]
    stopped: list[str]  # runs that ended before their time, and why
    records: Records
    differences: str = ""  # from the experiment that the run stands for, in a sentence


def name_cell(name: str, title: str) -> Cell:
    """The first cell of a row: the title, and the name on the command line if that is another."""
    return Cell(title, "" if title.lower() == name else name)


def number(value: float | None) -> str:
    """A number as tables show it."""
    if value is None or value != value:  # NaN
        return "–"
    if value and abs(value) < 0.01:
        return f"{value:.3g}"
    return f"{value:.3f}" if abs(value) < 10_000 else f"{value:.1e}"


def plain(value: object) -> str:
    """A value of a configuration as tables show it."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
