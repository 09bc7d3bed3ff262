"""Live progress of experiments: one line for each method."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

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
            f"{progress.rows_per_second:,.0f} rows/s, test RMSE {progress.test_rmse:.3g}, NLPD {progress.test_nlpd:.3g}"
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
def progress_bars(methods: Sequence[str], finished: Sequence[str] = ()) -> Iterator[Callable[[Any], None]]:
    """Bars with epochs, state and the time left; plain lines where there is no terminal."""
    console = Console(stderr=True)
    ahead = [name for name in methods if name not in finished]
    started = time.monotonic()

    def left(step: Step) -> str:
        """The time left in all, if the methods to come take as long as those before."""
        share = (ahead.index(step.method) + step.epoch / step.epochs) / len(ahead)
        seconds = (time.monotonic() - started) * (1 - share) / share
        return f"{seconds / 60:.0f} min" if seconds >= 100 else f"{seconds:.0f} s"

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
                so_far = f"epoch {step.epoch:.5g}/{step.epochs}"
                _say(f"{title(step.method):>8}  {so_far}  {step.state}, {left(step)} left in all")
            tell(step.problems, _say)

        yield print_line
        return
    columns = (
        TextColumn("{task.description:>8}"),
        BarColumn(bar_width=24),
        TaskProgressColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bars:
        tasks = {name: bars.add_task(title(name), total=None, start=False, state="waiting") for name in methods}
        for name in finished:
            bars.update(tasks[name], total=1, completed=1, state="done before")
        if ahead:
            bars.start_task(tasks[ahead[0]])

        def draw(progress: Any) -> None:
            step = describe(progress)
            bars.start_task(tasks[step.method])
            bars.update(
                tasks[step.method],
                completed=step.epoch,
                total=step.epochs,
                state=f"{step.state}, {left(step)} left in all",
            )
            tell(step.problems, bars.console.print)
            following = ahead.index(step.method) + 1
            if step.epoch >= step.epochs and following < len(ahead):
                bars.start_task(tasks[ahead[following]])

        yield draw


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
