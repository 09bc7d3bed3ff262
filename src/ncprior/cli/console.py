"""A Rich console for text from files, which may contain markup and control characters."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from ncprior.terminal import printable


class Terminal(Console):
    """A console that shows text as it is: without markup, and with control characters escaped."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, highlight=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Escape the text of a line or a cell before it is laid out."""
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Escape all output except control sequences and line ends of Rich itself."""
        for piece in super().render(renderable, options):
            if piece.control or piece.text.isprintable():
                yield piece
            else:
                yield piece._replace(text="\n".join(map(printable, piece.text.split("\n"))))

    def on_broken_pipe(self) -> None:
        """Go on silently if nobody reads stderr any more."""
        if not self.stderr:
            raise  # the error that this is called for
        self.quiet = True
