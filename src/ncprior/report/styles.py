"""How figures are drawn: fonts, sizes, panels and legends, legible in a paper's column.

Colours and lines of methods, rules and scores are in their registries: see `ncprior.core.registry.Style`.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ncprior.core.registry import Style
from ncprior.terminal import printable

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
def figure_style() -> Iterator[None]:
    """Draws in the house style without touching a user's own settings."""
    with mpl.rc_context(_RC):
        yield


WIDE, NARROW = 7.2, 3.4
"""Width of a figure in inches: for a page of a paper, and for a telephone, where panels stand below each other."""


def new_figure(width: float, height: float) -> Figure:
    """A figure of this size in inches that needs no screen."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def label(text: str) -> str:
    """A name of people's own for a figure: no formula, though it may have dollars in it, and nothing unprintable."""
    return printable(text).replace("$", r"\$")


def new_panels(
    count: int, height: float, *, narrow: bool, widths: Sequence[float] | None = None
) -> tuple[Figure, list[Axes]]:
    """A figure with this many panels beside each other, or, if it is narrow, below each other."""
    if narrow:
        figure = new_figure(NARROW, 0.5 + 2.2 * count)
        axes = figure.subplots(count, 1, squeeze=False)
    else:
        figure = new_figure(WIDE, height)
        axes = figure.subplots(1, count, squeeze=False, width_ratios=widths)
    return figure, list(axes.flat)


def legend_lines(styles: Iterable[Style], *, markers: bool = False) -> list[Line2D]:
    """A line of the legend for each style."""
    return [
        Line2D([], [], color=style.colour, linestyle=style.dash, label=style.title,
               marker=style.marker if markers else None, markersize=3)
        for style in styles
    ]  # fmt: skip


def add_legend(figure: Figure, handles: Sequence[Artist], *, narrow: bool, columns: int) -> None:
    """A legend below the panels."""
    figure.legend(handles=handles, loc="outside lower center", ncols=2 if narrow else min(len(handles), columns))


def note_above(axis: Axes, lines: Sequence[str]) -> None:
    """Small lines between a panel and its title, where they cover no curve."""
    if lines:
        axis.set_title(axis.get_title(), pad=8 + 7.5 * len(lines))
        axis.text(0.5, 1.02, "\n".join(lines), transform=axis.transAxes, ha="center", va="bottom", fontsize=6)
