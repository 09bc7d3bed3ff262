"""The style of figures: fonts, sizes, panels and legends, legible in the column of a paper.

Colours and lines of methods, rules and scores are in their registries; see `ncprior.core.registry.Style`.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.lines import Line2D

from ncprior.core.registry import Style
from ncprior.terminal import printable

NOISE = "#F4B9A7"
UNCERTAINTY = "#A6CDE8"
GAIN = "#BEBEBE"

_FONT = "DejaVu Sans"
_RC: Any = {  # Matplotlib types the names as literals, and not their values
    "font.size": 8,
    "font.family": _FONT,
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
    # Without this, SVG files have random ids, and the same records would not give the same file.
    "svg.hashsalt": "ncprior",
}


@contextmanager
def figure_style() -> Iterator[None]:
    """A context with the settings above; Matplotlib's own settings are restored afterwards."""
    with mpl.rc_context(_RC):
        yield


WIDE, NARROW = 7.2, 3.4
"""Width of a figure in inches: for a page of a paper, and for a phone, where panels are below each other."""


def new_figure(width: float, height: float) -> Figure:
    """A figure of this size in inches. It needs no display."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def label(text: str) -> str:
    r"""A name from outside, such as that of a column, as text of a figure.

    Dollars begin no formula. Letters that the font does not have are escaped: figures look the same on every machine,
    whatever fonts it has.

    >>> print(label("price ($)"), label("价格"))
    price (\$) \u4ef7\u683c
    """
    available = _font_letters()
    shown = (
        letter if ord(letter) in available else letter.encode("unicode_escape").decode() for letter in printable(text)
    )
    return "".join(shown).replace("$", r"\$")


@cache
def _font_letters() -> frozenset[int]:
    """Code points of the letters that the font of figures has."""
    return frozenset(get_font(findfont(_FONT)).get_charmap())


def new_panels(
    count: int, height: float, *, narrow: bool, widths: Sequence[float] | None = None, rows: int = 1
) -> tuple[Figure, list[Axes]]:
    """A figure and its panels, which are beside each other or, if ``narrow``, below each other.

    Args:
        count: Number of panels.
        height: Height of a wide figure in inches; that of a narrow one follows from the number of panels.
        narrow: Whether the figure is for a narrow page.
        widths: Relative widths of the panels of a wide figure; equal if None.
        rows: Number of rows of a wide figure, which all have as many panels.
    """
    if narrow:
        figure = new_figure(NARROW, 0.5 + 2.2 * count)
        axes = figure.subplots(count, 1, squeeze=False)
    else:
        figure = new_figure(WIDE, height)
        axes = figure.subplots(rows, count // rows, squeeze=False, width_ratios=widths)
    return figure, list(axes.flat)


def legend_lines(styles: Iterable[Style], *, markers: bool = False) -> list[Line2D]:
    """Handles of a legend, one line for each style."""
    return [
        Line2D([], [], color=style.colour, linestyle=style.dash, label=label(style.title),
               marker=style.marker if markers else None, markersize=3)
        for style in styles
    ]  # fmt: skip


def add_legend(figure: Figure, handles: Sequence[Artist], *, narrow: bool, columns: int) -> None:
    """A legend below the panels."""
    figure.legend(handles=handles, loc="outside lower center", ncols=2 if narrow else min(len(handles), columns))


def note_above(axis: Axes, lines: Sequence[str]) -> None:
    """Write small lines of text between a panel and its title, where they do not cover a curve."""
    if lines:
        axis.set_title(axis.get_title(), pad=8 + 7.5 * len(lines))
        axis.text(0.5, 1.02, "\n".join(lines), transform=axis.transAxes, ha="center", va="bottom", fontsize=6)
