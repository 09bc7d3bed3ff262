"""How figures look: one colour and line for each method everywhere, legible in a paper's column."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ncprior.methods import split_name
from ncprior.terminal import printable


class Line(NamedTuple):
    """How a method is drawn."""

    colour: str
    dash: Literal["-", "--", "-.", ":"]


# The colours of Okabe and Ito (2008), which people with any kind of colour vision can tell apart; the dashes tell
# the lines apart in grey print.
LINES = {
    "bbb+ncp": Line("#0072B2", "-"),
    "odc+ncp": Line("#E69F00", "-"),
    "bbb": Line("#009E73", "--"),
    "det": Line("#D55E00", "--"),
    "det+ncp": Line("#CC79A7", "-."),
}


def line(name: str) -> Line:
    """How a method is drawn; dotted with another score than its own."""
    base, score = split_name(name)
    return Line(LINES[base].colour, ":") if score else LINES[base]


NOISE = "#F4B9A7"
UNCERTAINTY = "#A6CDE8"
GAIN = "#BEBEBE"

_RC: Any = {
    "font.size": 8,
    "font.family": "DejaVu Sans",
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    # The same input gives the same file: no random ids.
    "svg.hashsalt": "ncprior",
}


@contextmanager
def style() -> Iterator[None]:
    """Draws in the house style without touching a user's own settings."""
    with mpl.rc_context(_RC):
        yield


def new_figure(width: float, height: float) -> Figure:
    """A figure of this size in inches that needs no screen."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def label(text: str) -> str:
    """A name of people's own for a figure: no formula, though it may have dollars in it, and nothing unprintable."""
    return printable(text).replace("$", r"\$")
