"""The parts of a report page: sections, which have pictures and tables."""

from typing import NamedTuple, Protocol

from matplotlib.figure import Figure

from ncprior.experiments.records import Records
from ncprior.report.claims.verdicts import Claim


class Draw(Protocol):
    """A function that draws a figure, for a wide page or, with panels below each other, for a narrow one."""

    def __call__(self, *, narrow: bool = False) -> Figure:
        """The figure."""


class Picture(NamedTuple):
    """A figure with its name and caption."""

    name: str
    title: str
    caption: str
    draw: Draw


class Cell(NamedTuple):
    """A cell of a table: its text, a smaller line below it, and a published number to compare it with."""

    text: str
    small: str = ""
    published: str = ""
    best: bool = False  # whether it is the best of its column


class Table(NamedTuple):
    """A table with its heading and a note."""

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
    stopped: list[str]  # runs that stopped early, and why
    records: Records
    differences: str = ""  # how the run differs from the full experiment, as a sentence
    headline: tuple[str, ...] = ()  # what was found, in sentences
    lead: str = ""  # what was found in a few sentences, for people who know no statistics
    terms: tuple[str, ...] = ()  # that are explained at the end, names in `ncprior.report.terms.TERMS`


def name_cell(name: str, title: str) -> Cell:
    """The first cell of a row: the title and, if it is different, the name on the command line."""
    return Cell(title, "" if title.lower() == name else name)


def number(value: float | None) -> str:
    """A number as text for a table; a dash for None and NaN.

    >>> number(1.23456), number(0.00123456), number(None)
    ('1.235', '0.00123', '–')
    """
    if value is None or value != value:  # NaN
        return "–"
    if value and abs(value) < 0.01:
        return f"{value:.3g}"
    return f"{value:.3f}" if abs(value) < 10_000 else f"{value:.1e}"


def plain(value: object) -> str:
    """A value of a configuration as text for a table."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
