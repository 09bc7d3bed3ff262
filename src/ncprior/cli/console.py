"""Rich's console for text that comes from people's files."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from ncprior.terminal import printable


class Terminal(Console):
    """A console on which text is shown as it is: no markup, and escapes in place of what is not printable."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, highlight=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Text of a line or a cell, before room is made for it."""
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The pieces that are written: only rich's own may have control characters, and ends of lines."""
        for piece in super().render(renderable, options):
            if piece.control or piece.text.isprintable():
                yield piece
            else:
                yield piece._replace(text="\n".join(map(printable, piece.text.split("\n"))))

    def on_broken_pipe(self) -> None:
        """Nobody reads any more; on stderr that is no reason to stop."""
        if not self.stderr:
            raise  # the error that this is called for
        self.quiet = True
