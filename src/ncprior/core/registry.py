"""Parts that are known by a name: the function, what it compares, and how it is described and drawn.

Commands, experiments, report pages and docs read these entries, so that a part is added in one place.
"""

import inspect
import re
from collections import UserDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

from ncprior.errors import UserError

Dash = Literal["-", "--", "-.", ":"]
"""Matplotlib's names for solid, dashed, dash-dotted and dotted lines."""

Compares = Literal["prediction", "ood_prediction", "inputs", "gradients", "covariances"]
"""What a function sees of the rows.

- ``prediction``: the prediction of every row, one row at a time; all scores.
- ``ood_prediction``: the same, of the models that predict the probability of being out of distribution.
- ``inputs``: the ranks of the inputs among the values of the pool.
- ``gradients``: random sketches of the gradients and activations in all layers of the networks.
- ``covariances``: features whose dot products are the covariances of the predicted means.
"""

Function = TypeVar("Function", bound=Callable[..., object])


class Style(NamedTuple):
    """How something is written in figures and tables, and how its curve is drawn.

    Colours are hexadecimal, dashes and markers as Matplotlib names them. Something without a style of its own is drawn
    in grey.
    """

    title: str
    colour: str = "#666666"
    dash: Dash = "-"
    marker: str = "."


@dataclass(frozen=True)
class Entry(Generic[Function]):
    """A function with all that is known about it.

    Args:
        function: What is called.
        style: How it is written and drawn.
        help: One line for the command's help and the docs.
        compares: What the function sees of the rows.
        logarithm: Whether a score is the logarithm of what is gained, so that a cost is subtracted as its logarithm.
    """

    function: Function
    style: Style
    help: str
    compares: Compares
    logarithm: bool = False

    @property
    def title(self) -> str:
        """How it is written in figures and tables."""
        return self.style.title


class Styled(Protocol):
    """Anything that has a style."""

    @property
    def style(self) -> Style:
        """How it is written and drawn."""


def style_of(name: str, entries: Mapping[str, Styled]) -> Style:
    """The style of an entry; a name that is not among them, such as that of another program's score, is drawn in grey.

    >>> style_of("my_score", {}).title
    'my score'
    """
    return entries[name].style if name in entries else Style(name.replace("_", " "))


class Registry(UserDict[str, Entry[Function]]):
    """Entries by name. A plain function can be assigned as well: it is drawn in grey, under its own name.

    >>> scores = Registry({}, compares="prediction")
    >>> scores["noise"] = lambda prediction: prediction.noise
    >>> scores["noise"].title, scores["noise"].compares
    ('noise', 'prediction')
    """

    def __init__(self, entries: Mapping[str, Entry[Function]], *, compares: Compares) -> None:
        self.compares: Compares = compares
        super().__init__(entries)

    def __setitem__(self, name: str, item: Entry[Function] | Function) -> None:
        """Adds or replaces an entry.

        Raises:
            UserError: If the name could not be given on the command line or be part of a file name.
        """
        if not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII):
            raise UserError(f"{name!r} cannot be a name here: use letters, digits and _, with a letter first")
        if not isinstance(item, Entry):
            first_line = (inspect.getdoc(item) or "").partition("\n")[0]
            item = Entry(item, Style(name.replace("_", " ")), first_line, self.compares)
        super().__setitem__(name, item)
