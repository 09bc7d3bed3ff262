"""Training of a wide network's seeds one after the other, kept in records after every epoch.

metrics/METHOD.parquet          every metric and loss term of every seed after every epoch
checkpoints/METHOD.safetensors  the seed in training, and the networks of those before it
models/METHOD.safetensors       the networks of all seeds, when the last of them is trained
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from ncprior.experiments.paper.data_parallel import Regression, State
from ncprior.experiments.records import Records


class Progress(NamedTuple):
    """How far a run has come, for people to look at. The metrics are those of the last whole epoch, at first NaN."""

    method: str
    seed: int
    seeds: int
    epoch: float  # of this seed, with the part of the present one
    epochs: int
    rows_per_second: float
    seconds_left: float  # of this seed
    test_rmse: float
    test_nlpd: float
    failed: str | None  # why the seed stopped


def model_file(name: str) -> str:
    """Where the trained networks of a method are; its presence says that they all are done."""
    return f"models/{name}.safetensors"


class _Finished(NamedTuple):
    """A seed whose training is over."""

    params: Any
    epoch: int  # that the weights are from
    failed: str | None


class _Standing(NamedTuple):
    """Where a method stands: the seeds that are trained, and the next one after a number of epochs."""

    finished: tuple[_Finished, ...] = ()
    epoch: int = 0
    state: State | None = None  # None before the seed has begun
    best: Any = None  # the weights that were best on the validation rows, or the last ones
    chosen: int = 0  # the epoch that they are from
    columns: dict[str, np.ndarray] = {}  # noqa: RUF012  # of the table of metrics
    seconds: float = 0.0  # of all seeds


def train_seeds(
    name: str, regression: Regression, seeds: int, records: Records, show: Callable[[Progress], None]
) -> None:
    """Trains the seeds of a method that are not in the records yet, from where these end."""
    here = _resume(name, regression, records)
    while len(here.finished) < seeds:
        here = _train_seed(name, regression.with_seed(len(here.finished)), seeds, here, records, show)
    records.write_tree(
        model_file(name),
        jax.tree.map(lambda *leaves: np.stack(leaves), *(one.params for one in here.finished)),
        seeds=list(range(seeds)),
        epochs=[one.epoch for one in here.finished],
        failed={seed: one.failed for seed, one in enumerate(here.finished) if one.failed},
        seconds=here.seconds,
    )
    records.remove(_checkpoint(name))


def _train_seed(
    name: str,
    regression: Regression,
    seeds: int,
    here: _Standing,
    records: Records,
    show: Callable[[Progress], None],
) -> _Standing:
    """Where the method stands when one more seed is trained, or has stopped before its time."""
    epochs, failed = regression.schedule.epochs, None
    state = here.state or regression.start()
    if here.state is None:
        here = here._replace(best=jax.tree.map(np.array, state.params))
    for epoch in range(here.epoch + 1, epochs + 1):
        started, rate = time.monotonic(), 0.0
        stretches = regression.train(state, epoch)
        for state, done in stretches:
            failed = regression.failure(state)
            rate = done / (time.monotonic() - started)
            show(_progress(name, regression, seeds, epoch - 1 + done / regression.steps, rate, here, failed))
            if failed:
                break
        if failed:
            break
        here = _advance(here, regression, state, here.seconds + time.monotonic() - started)
        _write_checkpoint(name, here, records)
        show(_progress(name, regression, seeds, epoch, rate, here))
    finished = _Finished(here.best, here.chosen, failed)
    return _Standing((*here.finished, finished), columns=here.columns, seconds=here.seconds)


def _progress(
    name: str,
    regression: Regression,
    seeds: int,
    epoch: float,
    rate: float,
    here: _Standing,
    failed: str | None = None,
) -> Progress:
    known = {key: float(here.columns[key][-1]) if here.epoch else float("nan") for key in ("test_rmse", "test_nlpd")}
    epochs, rows = regression.schedule.epochs, rate * regression.settings.batch_size
    left = (epochs - epoch) * regression.steps / rate
    return Progress(name, regression.seed, seeds, epoch, epochs, rows, left, **known, failed=failed)


def _advance(here: _Standing, regression: Regression, state: State, seconds: float) -> _Standing:
    """Where the method stands after one more epoch."""
    epoch = here.epoch + 1
    new = {"seed": regression.seed, "epoch": epoch, **regression.evaluate(state)}
    columns = {
        key: np.append(here.columns[key], value) if here.columns else np.array([value]) for key, value in new.items()
    }
    best, chosen = here.best, here.chosen
    valid = columns["valid_nlpd"][columns["seed"] == regression.seed] if "valid_nlpd" in columns else None
    if valid is None or valid[-1] <= valid.min():
        best, chosen = jax.tree.map(np.array, state.params), epoch
    return _Standing(here.finished, epoch, state, best, chosen, columns, seconds)


def _write_checkpoint(name: str, here: _Standing, records: Records) -> None:
    records.write_table(f"metrics/{name}.parquet", here.columns)
    records.write_tree(
        _checkpoint(name),
        {"state": here.state, "best": here.best, "finished": [one.params for one in here.finished]},
        finished=[{"epoch": one.epoch, "failed": one.failed} for one in here.finished],
        epoch=here.epoch,
        chosen=here.chosen,
        seconds=here.seconds,
    )


def _resume(name: str, regression: Regression, records: Records) -> _Standing:
    """Where the records of a method end."""
    if not records.exists(_checkpoint(name)):
        return _Standing()
    notes, state = records.read_notes(_checkpoint(name)), regression.start()
    like = {"state": state, "best": state.params, "finished": [state.params] * len(notes["finished"])}
    tree = records.read_tree(_checkpoint(name), like)
    finished = tuple(
        _Finished(params, one["epoch"], one["failed"])
        for params, one in zip(tree["finished"], notes["finished"], strict=True)
    )
    columns, seed = records.read_table(f"metrics/{name}.parquet"), len(finished)
    # The metrics are written just before the checkpoint, so they may be one epoch ahead of it.
    kept = (columns["seed"] < seed) | ((columns["seed"] == seed) & (columns["epoch"] <= notes["epoch"]))
    return _Standing(
        finished,
        notes["epoch"],
        regression.place(tree["state"]),
        tree["best"],
        notes["chosen"],
        {key: value[kept] for key, value in columns.items()},
        notes["seconds"],
    )


def _checkpoint(name: str) -> str:
    return f"checkpoints/{name}.safetensors"
