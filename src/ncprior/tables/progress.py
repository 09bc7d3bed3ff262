"""How far training has come, told to whoever wants to know."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple


class FitProgress(NamedTuple):
    """How far `fit` has come: steps of a stage, of at most ``total``; ``score`` is the held-out log density."""

    stage: str
    done: int
    total: int
    score: float | None


Show = Callable[[FitProgress], None]


@contextmanager
def progress_bar(verbose: bool, callbacks: Sequence[Show]) -> Iterator[Show]:
    """Tells the callbacks, and draws a bar on stderr if wanted."""
    if not verbose:

        def tell(progress: FitProgress) -> None:
            for callback in callbacks:
                callback(progress)

        yield tell
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def draw(progress: FitProgress) -> None:
            if progress.stage not in tasks:
                tasks[progress.stage] = bars.add_task(progress.stage, total=progress.total)
            bars.update(tasks[progress.stage], completed=progress.done, total=progress.total)
            for callback in callbacks:
                callback(progress)

        yield draw
