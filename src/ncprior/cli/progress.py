"""Live progress of experiments: one line for each method."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from ncprior.experiments.learning_curves import Progress
from ncprior.methods import title

_PLAIN_EVERY = 0.1
"""Where there is no terminal, a line is printed each time that this share of a method is done."""


@contextmanager
def progress_bars(methods: Sequence[str]) -> Iterator[Callable[[Progress], None]]:
    """Bars with epochs, labels, test RMSE and NLPD and the time left; plain lines where there is no terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _plain_lines()
        return
    columns = (
        TextColumn("{task.description:>8}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:>6.0f}/{task.total:.0f} epochs"),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console) as bars:
        tasks = {name: bars.add_task(title(name), total=1, start=False, state="waiting") for name in methods}
        bars.start_task(tasks[methods[0]])
        reported: set[tuple[str, int]] = set()

        def show(progress: Progress) -> None:
            bars.start_task(tasks[progress.method])
            bars.update(
                tasks[progress.method],
                completed=progress.epoch,
                total=progress.epochs,
                state=f"{progress.seeds} seeds, {_numbers(progress)}",
            )
            for seed, why in progress.failed.items():
                if (progress.method, seed) not in reported:
                    reported.add((progress.method, seed))
                    bars.console.print(f"{title(progress.method)}, seed {seed} stopped: {why}")
            following = list(methods).index(progress.method) + 1
            if progress.epoch == progress.epochs and following < len(methods):
                bars.start_task(tasks[methods[following]])

        yield show


def _plain_lines() -> Callable[[Progress], None]:
    shown: dict[str, int] = {}
    reported: set[tuple[str, int]] = set()

    def show(progress: Progress) -> None:
        part = int(progress.epoch / progress.epochs / _PLAIN_EVERY)
        if part > shown.get(progress.method, 0):
            shown[progress.method] = part
            print(
                f"{title(progress.method):>8}  epoch {progress.epoch}/{progress.epochs}  {progress.seeds} seeds, "
                f"{_numbers(progress)}",
                file=sys.stderr,
                flush=True,
            )
        for seed, why in progress.failed.items():
            if (progress.method, seed) not in reported:
                reported.add((progress.method, seed))
                print(f"{title(progress.method)}, seed {seed} stopped: {why}", file=sys.stderr, flush=True)

    return show


def _numbers(progress: Progress) -> str:
    return f"{progress.labels} labels, test RMSE {progress.test_rmse:.3g}, NLPD {progress.test_nlpd:.3g} (medians)"
