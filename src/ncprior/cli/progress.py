"""Progress bars on a terminal, and plain lines elsewhere: for experiments, fits, and rows of a table."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ncprior.cli.console import Terminal
from ncprior.core.methods import title
from ncprior.experiments.paper import learning_curves, seed_by_seed
from ncprior.experiments.runs import RunProgress
from ncprior.tables.progress import FitProgress
from ncprior.terminal import remark

_PLAIN_EVERY = 0.1
"""Without a terminal, a line is printed after every such share of a method."""
_PLAIN_SECONDS = 10.0
"""Without a terminal, a line about a fit or a table is printed at most this often."""


MethodProgress = learning_curves.Progress | seed_by_seed.Progress
Show = Callable[[MethodProgress], None]


class Step(NamedTuple):
    """The progress of a method as text."""

    method: str
    epoch: float
    epochs: int
    state: str
    problems: list[str]  # runs that stopped early, and why


def describe(progress: MethodProgress) -> Step:
    """The progress of an experiment as text."""
    if isinstance(progress, seed_by_seed.Progress):
        seed = f", seed {progress.seed}" if progress.seeds > 1 else ""
        state = f"{progress.rows_per_second:,.0f} rows/s{seed}"
        if not math.isnan(progress.test_rmse):
            state += f", test RMSE {progress.test_rmse:.3g}, NLPD {progress.test_nlpd:.3g}"
        problems = [f"{title(progress.method)}{seed} stopped: {progress.failed}"] if progress.failed else []
        epoch = progress.seed * progress.epochs + progress.epoch
        return Step(progress.method, epoch, progress.seeds * progress.epochs, state, problems)
    state = (
        f"{progress.seeds} runs, {progress.labels} labels, test RMSE {progress.test_rmse:.3g}, "
        f"NLPD {progress.test_nlpd:.3g} (medians)"
    )
    problems = [f"{title(progress.method)}, run {i} stopped: {why}" for i, why in progress.failed.items()]
    return Step(progress.method, progress.epoch, progress.epochs, state, problems)


@contextmanager
def progress_bars(methods: Sequence[str], finished: Sequence[str] = ()) -> Iterator[Show]:
    """A progress bar for each method, with epochs, state and remaining time; plain lines without a terminal.

    Args:
        methods: Names of the methods.
        finished: Those that have finished in an earlier session.
    """
    console = Terminal(stderr=True)
    ahead = [name for name in methods if name not in finished]
    started = time.monotonic()

    def left(step: Step) -> str:
        """The remaining time of all methods, if each takes as long as those before."""
        share = (ahead.index(step.method) + step.epoch / step.epochs) / len(ahead)
        seconds = (time.monotonic() - started) * (1 - share) / share
        return f"{seconds / 60:.0f} min" if seconds >= 100 else f"{seconds:.0f} s"

    printed: set[str] = set()

    def print_problems(problems: list[str], say: Callable[[str], None]) -> None:
        for problem in problems:
            if problem not in printed:
                printed.add(problem)
                say(problem)

    if not console.is_terminal:
        done: dict[str, int] = {}

        def print_line(progress: MethodProgress) -> None:
            step = describe(progress)
            part = int(step.epoch / step.epochs / _PLAIN_EVERY + 1e-9)
            if part > done.get(step.method, 0):
                done[step.method] = part
                so_far = f"epoch {step.epoch:.5g}/{step.epochs}"
                remark(f"{title(step.method):>8}  {so_far}  {step.state}, {left(step)} left in all")
            print_problems(step.problems, remark)

        yield print_line
        return
    columns = (
        TextColumn("{task.description:>8}", markup=False),
        BarColumn(bar_width=24),
        TaskProgressColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[state]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bars:
        tasks = {name: bars.add_task(title(name), total=None, start=False, state="waiting") for name in methods}
        for name in finished:
            bars.update(tasks[name], total=1, completed=1, state="done before")
        if ahead:
            bars.start_task(tasks[ahead[0]])

        def draw(progress: MethodProgress) -> None:
            step = describe(progress)
            bars.start_task(tasks[step.method])
            bars.update(
                tasks[step.method],
                completed=step.epoch,
                total=step.epochs,
                state=f"{step.state}, {left(step)} left in all",
            )
            print_problems(step.problems, bars.console.print)
            following = ahead.index(step.method) + 1
            if step.epoch >= step.epochs and following < len(ahead):
                bars.start_task(tasks[ahead[following]])

        yield draw


def fit_lines() -> Callable[[FitProgress], None]:
    """A callback that prints the progress of a fit as plain lines."""
    last = time.monotonic()

    def print_line(progress: FitProgress) -> None:
        nonlocal last
        if time.monotonic() - last >= _PLAIN_SECONDS:
            last = time.monotonic()
            # The search may end early: its total is an upper bound, so a percentage would mislead.
            share = (
                f"{progress.done:,} steps" if progress.stage == "searching" else f"{progress.done / progress.total:.0%}"
            )
            remark(f"{progress.stage}: {share}")

    return print_line


@contextmanager
def row_bar(total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar for rows: call it with the number of rows that were done since. Plain lines without a terminal."""
    console = Terminal(stderr=True)
    done = 0
    started = last = time.monotonic()

    def state() -> str:
        return f"{done:,} rows, {done / max(time.monotonic() - started, 1e-9):,.0f} rows/s"

    if not console.is_terminal:

        def print_line(rows: int) -> None:
            nonlocal done, last
            done += rows
            if time.monotonic() - last >= _PLAIN_SECONDS:
                last = time.monotonic()
                remark(state() if total is None else f"{done / total:.0%}, {state()}")

        yield print_line
        return
    columns = (
        BarColumn(bar_width=24),
        TextColumn("{task.fields[state]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task("rows", total=total, state="")

        def draw(rows: int) -> None:
            nonlocal done
            done += rows
            bars.update(task, completed=done, state=state())

        yield draw


class TimeLeft:
    """The time that runs still take: those of a kind as long as those of it before, others as long as the longest."""

    def __init__(self) -> None:
        self.last = time.monotonic()
        self.took: dict[str, list[float]] = {}

    def after(self, progress: RunProgress, now: float) -> float:
        """Seconds left, when a run has just been done."""
        self.took.setdefault(progress.kind, []).append(now - self.last)
        self.last = now
        # The first run of a kind compiles, which the others need not do again.
        each = {kind: min(took) if len(took) == 2 else sum(took) / len(took) for kind, took in self.took.items()}
        ahead = progress.ahead or {progress.kind: progress.total - progress.done}
        return sum(count * each.get(kind, max(each.values())) for kind, count in ahead.items())


@contextmanager
def run_bar() -> Iterator[Callable[[RunProgress], None]]:
    """A progress bar for runs one after the other, with the remaining time; plain lines without a terminal."""
    console, left = Terminal(stderr=True), TimeLeft()

    def state(progress: RunProgress) -> str:
        seconds = left.after(progress, time.monotonic())
        words = f"{seconds / 60:.0f} min" if seconds >= 100 else f"{seconds:.0f} s"
        return f"{progress.done}/{progress.total}  {progress.state}, {words} left in all"

    if not console.is_terminal:
        yield lambda progress: remark(state(progress))
        return
    columns = (BarColumn(bar_width=24), TextColumn("{task.fields[state]}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console) as bars:
        task = bars.add_task("runs", total=None, state="reading and compiling")
        yield lambda progress: bars.update(task, completed=progress.done, total=progress.total, state=state(progress))
