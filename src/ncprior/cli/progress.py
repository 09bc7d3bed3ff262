"""Live progress of experiments: one line for each method."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ncprior.experiments import learning_curves, regression
from ncprior.methods import title

_PLAIN_EVERY = 0.1
"""Where there is no terminal, a line is printed each time that this share of a method is done."""


class Step(NamedTuple):
    """How far a method has come, in words."""

    method: str
    epoch: float
    epochs: int
    state: str
    problems: list[str]  # what stopped before its time, and why


def describe(progress: Any) -> Step:
    """What an experiment tells about its progress, in words."""
    if isinstance(progress, regression.Progress):
        state = (
            f"{progress.rows_per_second:,.0f} rows/s, {progress.seconds_left:.0f} s left, "
            f"test RMSE {progress.test_rmse:.3g}, NLPD {progress.test_nlpd:.3g}"
        )
        problems = [f"{title(progress.method)} stopped: {progress.failed}"] if progress.failed else []
        return Step(progress.method, progress.epoch, progress.epochs, state, problems)
    assert isinstance(progress, learning_curves.Progress)
    state = (
        f"{progress.seeds} runs, {progress.labels} labels, test RMSE {progress.test_rmse:.3g}, "
        f"NLPD {progress.test_nlpd:.3g} (medians)"
    )
    problems = [f"{title(progress.method)}, run {i} stopped: {why}" for i, why in progress.failed.items()]
    return Step(progress.method, progress.epoch, progress.epochs, state, problems)


@contextmanager
def progress_bars(methods: Sequence[str]) -> Iterator[Callable[[Any], None]]:
    """Bars with epochs, state and the time left; plain lines where there is no terminal."""
    console = Console(stderr=True)
    told: set[str] = set()

    def tell(problems: list[str], say: Callable[[str], None]) -> None:
        for problem in problems:
            if problem not in told:
                told.add(problem)
                say(problem)

    if not console.is_terminal:
        done: dict[str, int] = {}

        def print_line(progress: Any) -> None:
            step = describe(progress)
            part = int(step.epoch / step.epochs / _PLAIN_EVERY + 1e-9)
            if part > done.get(step.method, 0):
                done[step.method] = part
                _say(f"{title(step.method):>8}  epoch {step.epoch:.4g}/{step.epochs}  {step.state}")
            tell(step.problems, _say)

        yield print_line
        return
    columns = (
        TextColumn("{task.description:>8}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:>6.0f}/{task.total:.0f} epochs"),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        tasks = {name: bars.add_task(title(name), total=1, start=False, state="waiting") for name in methods}
        bars.start_task(tasks[methods[0]])

        def draw(progress: Any) -> None:
            step = describe(progress)
            bars.start_task(tasks[step.method])
            bars.update(tasks[step.method], completed=step.epoch, total=step.epochs, state=step.state)
            tell(step.problems, bars.console.print)
            following = list(methods).index(step.method) + 1
            if step.epoch >= step.epochs and following < len(methods):
                bars.start_task(tasks[methods[following]])

        yield draw


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
