"""The seeds of an experiment as tasks: a few of them in each, wherever an engine runs it.

What a seed learns depends on nothing but the seed, so that the seeds of all tasks together are those of one process.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ncprior.core.active import Schedule, Simulation
from ncprior.core.training import Learner, Trainer
from ncprior.data.dataset import Dataset
from ncprior.engines.engine import Engine
from ncprior.experiments.runs import Columns, append_rows

SEEDS = 5
"""Runs in a task: as many as are computed side by side."""


class SeedsTask(NamedTuple):
    """Some runs of a method.

    ``trainer()`` makes method, optimiser and mini batches where the task runs.
    """

    trainer: Callable[[], Trainer]
    data: Dataset
    schedule: Schedule
    seeds: list[int]
    evaluate_unseen: bool
    input_priors: PyTree  # one for each run, or None
    about: Columns  # columns about each run


class SeedsDone(NamedTuple):
    """What runs have learned: the arrays of their learners, and every metric at every evaluation."""

    leaves: list[np.ndarray]
    metrics: Columns
    clock: tuple[int, int]
    seconds: float


def run_seeds(task: SeedsTask) -> SeedsDone:
    """Runs from the start to the end of the schedule."""
    simulation = Simulation(
        task.trainer(),
        task.data,
        task.schedule,
        task.seeds,
        evaluate_unseen=task.evaluate_unseen,
        input_priors=task.input_priors,
    )
    metrics: Columns = {}
    started = time.monotonic()
    for snapshot, evaluation in simulation.run():  # noqa: B007  # the last one is what counts
        metrics = append_rows(
            metrics, evaluation_columns(task.about, evaluation.epoch, evaluation.labels, evaluation.values)
        )
    leaves = [_plain(leaf) for leaf in jax.tree.leaves(simulation.real(snapshot.learners))]
    clock = (int(snapshot.clock.epoch), int(snapshot.clock.labels))
    return SeedsDone(leaves, metrics, clock, time.monotonic() - started)


def evaluation_columns(about: Columns, epoch: int, labels: int, values: Columns) -> Columns:
    """One evaluation of some runs as rows of the table of metrics."""
    runs = len(next(iter(about.values())))
    return {**about, "epoch": np.full(runs, epoch), "labels": np.full(runs, labels), **values}


def in_tasks(
    engine: Engine, simulation: Simulation, trainer: Callable[[], Trainer], about: Columns
) -> Iterator[tuple[int, SeedsDone]]:
    """Runs a simulation as tasks; gives the number of each and what it has learned."""
    starts = range(0, len(simulation.seeds), SEEDS)
    tasks = [
        SeedsTask(
            trainer,
            simulation.data,
            simulation.schedule,
            simulation.seeds[start : start + SEEDS],
            simulation.evaluate_unseen,
            jax.tree.map(lambda leaf: np.asarray(leaf[start : start + SEEDS]), simulation.input_priors),  # noqa: B023
            {name: values[start : start + SEEDS] for name, values in about.items()},
        )
        for start in starts
    ]
    return engine.run(run_seeds, tasks)


def together(parts: Sequence[SeedsDone], like: Learner) -> tuple[Learner, Columns]:
    """The learners of all tasks, in the order of the tasks, and their metrics as one process records them.

    Args:
        parts: What every task has learned.
        like: Learners of the same structure.
    """
    leaves, structure = jax.tree.flatten(like)
    joined = [np.concatenate(parts_of) for parts_of in zip(*(part.leaves for part in parts), strict=True)]
    keyed = [
        jax.random.wrap_key_data(jnp.asarray(new)) if jnp.issubdtype(old.dtype, jax.dtypes.prng_key) else new
        for old, new in zip(leaves, joined, strict=True)
    ]
    # One evaluation after the other, each with all runs.
    metrics = {name: np.concatenate([part.metrics[name] for part in parts]) for name in parts[0].metrics}
    order = np.argsort(metrics["epoch"], kind="stable")
    return jax.tree.unflatten(structure, keyed), {name: values[order] for name, values in metrics.items()}


def _plain(leaf: jax.Array) -> np.ndarray:
    keys = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if keys else leaf)
