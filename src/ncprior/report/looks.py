"""How the methods of ``evaluate`` and the rules of ``simulate`` are written and drawn."""

from collections.abc import Iterable
from typing import NamedTuple

from matplotlib.lines import Line2D

from ncprior.core.methods import TITLES
from ncprior.report.sections import Cell
from ncprior.report.styles import LINES, Line


class Look(NamedTuple):
    """How a method or a rule is written and drawn."""

    title: str
    line: Line
    marker: str


class Looks(dict[str, Look]):
    """Looks by name; a rule or score of the user's own, which has none here, is drawn in grey under its name."""

    def __missing__(self, name: str) -> Look:
        return Look(name.replace("_", " "), Line("#666666", "-"), ".")


_LOOKS = {
    "ncp": Look("NCP (default)", Line("#0072B2", "-"), "o"),
    **{name: Look(title, LINES[name], "s") for name, title in TITLES.items()},
    "bbb+ncp": Look("BBB+NCP", Line("#0072B2", ":"), "s"),
    "no-ncp": Look("without NCP", Line("#D55E00", "--"), "v"),
    "one-member": Look("one member", Line("#E69F00", "-."), "D"),
    "no-early-stopping": Look("without early stopping", Line("#009E73", ":"), "^"),
    "constant-gamma": Look("constant gamma", Line("#CC79A7", "--"), "P"),
    "mean": Look("train mean", Line("#999999", ":"), "x"),
    "linear": Look("linear", Line("#56B4E9", "-."), "v"),
    "boosting": Look("boosted trees", Line("#000000", "--"), "D"),
    "forest": Look("random forest", Line("#882255", "-."), "^"),
    "information_gain": Look("information gain", Line("#0072B2", "-"), "o"),
    "random": Look("random", Line("#000000", "--"), "x"),
    "uncertainty": Look("uncertainty", Line("#D55E00", ":"), "v"),
    "max_det": Look("MaxDet", Line("#009E73", "-"), "s"),
    "lcmd": Look("LCMD", Line("#E69F00", "-."), "D"),
    "bait": Look("BAIT", Line("#CC79A7", "-"), "^"),
    "k_center": Look("k-centre", Line("#56B4E9", "--"), "P"),
    "kmeans_inputs": Look("k-means++ on inputs", Line("#332288", "-"), "o"),
    "kmeans_pp": Look("k-means++", Line("#882255", "-"), "*"),
}
LOOKS = Looks(_LOOKS)
"""Every method of ``evaluate`` and every rule of ``simulate``, in the colours of Okabe and Ito (2008) and, for the
forest and k-means++, wine and indigo of Tol (2021)."""


def handles(names: Iterable[str]) -> list[Line2D]:
    """A legend of these methods or rules."""
    return [
        Line2D([], [], color=LOOKS[name].line.colour, linestyle=LOOKS[name].line.dash, marker=LOOKS[name].marker,
               markersize=3, label=LOOKS[name].title)
        for name in names
    ]  # fmt: skip


def name_cell(name: str) -> Cell:
    """The first cell of a row: the title, and the name on the command line if that is another."""
    title = LOOKS[name].title
    return Cell(title, "" if title.lower() == name else name)
