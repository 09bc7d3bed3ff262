"""Training of the seeds of a wide network one after the other, recorded after every epoch.

A checkpoint has the state of the current seed and the networks of the seeds before it; see `ncprior.experiments.runs`.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from ncprior.experiments.paper.data_parallel import Regression, State
from ncprior.experiments.runs import Columns, MethodFiles, append_rows
from ncprior.schema import JsonObject


class Progress(NamedTuple):
    """The progress of a method. Metrics are those of the last complete epoch, NaN before it."""

    method: str
    seed: int
    seeds: int
    epoch: float  # of this seed, with a fraction for the current one
    epochs: int
    rows_per_second: float
    seconds_left: float  # of this seed
    test_rmse: float
    test_nlpd: float
    failed: str | None  # why the seed stopped


class TrainedSeed(NamedTuple):
    """A seed whose training has ended."""

    params: PyTree
    epoch: int  # after which the weights were kept
    failed: str | None  # why it stopped early


class TrainingState(NamedTuple):
    """The state of a method: the seeds that have been trained, and the current one after ``epoch`` epochs."""

    trained: tuple[TrainedSeed, ...] = ()
    epoch: int = 0
    state: State | None = None  # None before the first epoch of the seed
    best: PyTree = None  # the weights with the lowest NLPD on the validation rows; without any, the last ones
    best_epoch: int = 0  # the epoch of these weights
    metrics: Columns = {}  # noqa: RUF012
    seconds: float = 0.0  # of all seeds


def train_seeds(
    files: MethodFiles, regression: Regression, seeds: int, show: Callable[[Progress], None] = lambda _: None
) -> None:
    """Train the seeds of a method that have not been recorded yet, from its checkpoint if there is one.

    Args:
        files: The files of the method.
        regression: Its training, with any seed.
        seeds: Number of seeds.
        show: Called with the progress.
    """
    current = _resume(files, regression)
    while len(current.trained) < seeds:
        of_seed = regression.with_seed(len(current.trained))
        meter = _Meter(files.name, of_seed, seeds, show)
        current = _train_seed(files, of_seed, current, meter)
    files.finish(
        jax.tree.map(lambda *leaves: np.stack(leaves), *(one.params for one in current.trained)),
        seeds=list(range(seeds)),
        epochs=[one.epoch for one in current.trained],
        failed={seed: one.failed for seed, one in enumerate(current.trained) if one.failed},
        seconds=current.seconds,
    )


class _Meter(NamedTuple):
    """Reports the progress of a seed."""

    name: str
    regression: Regression
    seeds: int
    show: Callable[[Progress], None]

    def __call__(self, current: TrainingState, epoch: float, rate: float, failed: str | None = None) -> None:
        """Report ``epoch``, with a fraction for the current one, and ``rate`` in steps per second."""
        last = {
            key: float(current.metrics[key][-1]) if current.epoch else float("nan")
            for key in ("test_rmse", "test_nlpd")
        }
        regression = self.regression
        epochs, rows = regression.schedule.epochs, rate * regression.settings.batch_size
        left = (epochs - epoch) * regression.steps / rate
        self.show(Progress(self.name, regression.seed, self.seeds, epoch, epochs, rows, left, **last, failed=failed))


def _train_seed(files: MethodFiles, regression: Regression, current: TrainingState, meter: _Meter) -> TrainingState:
    """The state of the method after one more seed, which was trained to the end or stopped early."""
    epochs, failed = regression.schedule.epochs, None
    state = current.state or regression.start()
    if current.state is None:
        current = current._replace(best=jax.tree.map(np.array, state.params))
    for epoch in range(current.epoch + 1, epochs + 1):
        started, rate = time.monotonic(), 0.0
        stretches = regression.train(state, epoch)
        for state, done in stretches:
            failed = regression.failure(state)
            rate = done / (time.monotonic() - started)
            meter(current, epoch - 1 + done / regression.steps, rate, failed)
            if failed:
                break
        if failed:
            break
        current = _add_epoch(current, regression, state, current.seconds + time.monotonic() - started)
        _save_checkpoint(files, current)
        meter(current, epoch, rate)
    trained = TrainedSeed(current.best, current.best_epoch, failed)
    return TrainingState((*current.trained, trained), metrics=current.metrics, seconds=current.seconds)


def _add_epoch(current: TrainingState, regression: Regression, state: State, seconds: float) -> TrainingState:
    """The state of the method after one more epoch."""
    epoch = current.epoch + 1
    new = {"seed": regression.seed, "epoch": epoch, **regression.evaluate(state)}
    metrics = append_rows(current.metrics, {key: np.array([value]) for key, value in new.items()})
    best, best_epoch = current.best, current.best_epoch
    valid = metrics["valid_nlpd"][metrics["seed"] == regression.seed] if "valid_nlpd" in metrics else None
    if valid is None or valid[-1] <= valid.min():
        best, best_epoch = jax.tree.map(np.array, state.params), epoch
    return TrainingState(current.trained, epoch, state, best, best_epoch, metrics, seconds)


def _save_checkpoint(files: MethodFiles, current: TrainingState) -> None:
    files.save_checkpoint(
        {"state": current.state, "best": current.best, "trained": [one.params for one in current.trained]},
        current.metrics,
        trained=[{"epoch": one.epoch, "failed": one.failed} for one in current.trained],
        epoch=current.epoch,
        best_epoch=current.best_epoch,
        seconds=current.seconds,
    )


def _resume(files: MethodFiles, regression: Regression) -> TrainingState:
    """The state in the checkpoint, or the one before the first seed."""

    def like(notes: JsonObject) -> dict[str, PyTree]:
        state = regression.start()
        return {"state": state, "best": state.params, "trained": [state.params] * len(notes["trained"])}

    checkpoint = files.load_checkpoint(like)
    if checkpoint is None:
        return TrainingState()
    tree, notes = checkpoint.tree, checkpoint.notes
    trained = tuple(
        TrainedSeed(params, one["epoch"], one["failed"])
        for params, one in zip(tree["trained"], notes["trained"], strict=True)
    )
    return TrainingState(
        trained,
        notes["epoch"],
        regression.place(tree["state"]),
        tree["best"],
        notes["best_epoch"],
        checkpoint.metrics,
        notes["seconds"],
    )
