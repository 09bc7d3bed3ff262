"""Progress of training, for callbacks and a progress bar."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple


class FitProgress(NamedTuple):
    """Progress of `fit`: steps of a stage, of at most ``total``; ``score`` is the held-out log density."""

    stage: str
    done: int
    total: int
    score: float | None


ProgressCallback = Callable[[FitProgress], None]


@contextmanager
def progress_bar(verbose: bool, callbacks: Sequence[ProgressCallback]) -> Iterator[ProgressCallback]:
    """A function that passes progress on to the callbacks and, if ``verbose``, draws it on stderr."""
    if not verbose:

        def report(progress: FitProgress) -> None:
            for callback in callbacks:
                callback(progress)

        yield report
        return
    from rich.console import Console
    from rich.progress import Progress, TaskID

    with Progress(console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def draw(progress: FitProgress) -> None:
            if progress.stage not in tasks:
                tasks[progress.stage] = bars.add_task(progress.stage, total=progress.total)
            bars.update(tasks[progress.stage], completed=progress.done, total=progress.total)
            for callback in callbacks:
                callback(progress)

        yield draw
