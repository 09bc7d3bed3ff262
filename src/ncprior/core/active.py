"""Simulated active learning: train, evaluate, draw new labels, repeat. All seeds run in step.

A single program trains from one evaluation to the next. It is compiled once for each method.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Bool, Float, Int, PRNGKeyArray, PyTree, Scalar

from ncprior.core.acquisition import draw_with_replacement, gumbel_top_k
from ncprior.core.blocks import predict_in_blocks
from ncprior.core.input_priors import InputPrior
from ncprior.core.methods import Method
from ncprior.core.metrics import METRICS
from ncprior.core.networks import Network
from ncprior.core.prediction import Predictive
from ncprior.core.training import (
    Clock,
    Count,
    Learner,
    Rows,
    Trainer,
    combine,
    over_seeds,
    padded,
    seed_keys,
    seed_mesh,
    train_seeds,
)
from ncprior.data.dataset import Dataset
from ncprior.errors import UserError, check_limits


@dataclass(frozen=True)
class Schedule:
    """When to draw labels and when to evaluate, in epochs of the visible labels."""

    epochs: int = 50_000
    initial: int = 10
    """Number of labels at the start, drawn at random."""
    select: int = 1
    """Number of labels drawn at a time."""
    select_every: int = 1_000
    """Epochs between two draws."""
    evaluate_every: int = 500
    """Epochs between two evaluations."""

    def __post_init__(self) -> None:
        check_limits(**dataclasses.asdict(self))
        if self.select_every % self.evaluate_every or self.epochs % self.evaluate_every:
            raise UserError(
                f"evaluate_every ({self.evaluate_every}) must divide select_every ({self.select_every}) "
                f"and epochs ({self.epochs}), so that every round ends with an evaluation"
            )

    @property
    def labels(self) -> int:
        """Number of visible labels at the end of the run."""
        return self.initial + self.select * ((self.epochs - 1) // self.select_every)

    def check(self, trainer: Trainer, rows: int) -> None:
        """Raise if this many training rows are too few for the labels, or the labels too few for a mini batch.

        Raises:
            UserError: Which of them are too few.
        """
        if self.labels > rows:
            raise UserError(f"the schedule asks for {self.labels} labels but there are only {rows} rows")
        trainer.check_labels(self.initial, "initial labels")

    def ends_round(self, epoch: int) -> bool:
        """Whether new labels are drawn, or the run ends, after this many epochs."""
        return epoch % self.select_every == 0 or epoch >= self.epochs


class Snapshot(NamedTuple):
    """State of a run after an evaluation. Continuing from it gives the same numbers as an uninterrupted run."""

    clock: Clock
    learners: Learner


class Stretch(NamedTuple):
    """How far to train in one call of the program, and whether to draw labels afterwards."""

    clock: Clock
    epochs: Count
    select: Scalar | np.bool_


class Evaluation(NamedTuple):
    """Metrics and loss terms after an evaluation: one number for each seed under every name."""

    epoch: int
    labels: int
    values: dict[str, np.ndarray]


class Simulation:
    """Active learning of one method on one data set, for several seeds."""

    def __init__(
        self,
        trainer: Trainer,
        data: Dataset,
        schedule: Schedule,
        seeds: Sequence[int],
        *,
        evaluate_unseen: bool = False,
        input_priors: InputPrior | None = None,
    ) -> None:
        """Prepare a simulation.

        Args:
            trainer: Method, optimiser and mini batches.
            data: Training and test rows.
            schedule: When to draw labels and when to evaluate.
            seeds: One run for each of them; a seed may repeat.
            evaluate_unseen: Count training rows without a label as test rows, as on the toy data.
            input_priors: An input prior for each run: one module whose arrays have a leading axis of runs.

        Raises:
            UserError: If the schedule does not suit the rows or the mini batches.
        """
        schedule.check(trainer, len(data.train_inputs))
        self.trainer, self.schedule, self.seeds = trainer, schedule, list(seeds)
        self.data, self.evaluate_unseen, self.input_priors = data, evaluate_unseen, input_priors
        self.mesh = seed_mesh(len(self.seeds))
        self.static = trainer.static(data.train_inputs.shape[1], data.train_targets.shape[1])
        everywhere = NamedSharding(self.mesh, PartitionSpec())
        self._train, self._test = (
            Rows(jax.device_put(inputs, everywhere), jax.device_put(targets, everywhere))
            for inputs, targets in (
                (data.train_inputs, data.train_targets),
                (data.test_inputs, data.test_targets),
            )
        )
        self._stretch = jax.jit(over_seeds(self._run_stretch, self.mesh), donate_argnums=0)

    def start(self) -> Snapshot:
        """All seeds at epoch 0, each with its initial labels."""
        keys = seed_keys(self.seeds)

        def one(key: PRNGKeyArray, flat: Float[Array, "rows"]) -> Learner:
            key_labels, key_learner = jax.random.split(key)
            # Initial labels are drawn from a flat softmax, in the way that all others are.
            if self.trainer.method.acquisition.draw == "with_replacement":
                drawn = draw_with_replacement(flat, self.schedule.initial, key=key_labels)
            else:
                drawn = gumbel_top_k(flat, self.schedule.initial, key=key_labels)[0]
            visible = jnp.zeros(self.trainer.buffer(self.schedule.labels), jnp.int32)
            visible = visible.at[: self.schedule.initial].set(drawn)
            return self.trainer.start(self._train, visible, key=key_learner)

        # As an argument: XLA would take many seconds to fold the sums of a large constant.
        flat = jnp.zeros(len(self._train.inputs))
        learners = jax.jit(jax.vmap(one, in_axes=(0, None)))(keys, flat)
        if self.input_priors is not None:
            learners = learners._replace(input_prior=jax.tree.map(jnp.asarray, self.input_priors))
        return Snapshot(Clock(0, self.schedule.initial), self.place(learners))

    def place(self, learners: Learner) -> Learner:
        """Spread learners over the devices; the last one is repeated until every device has the same number."""
        rows = np.minimum(np.arange(len(padded(self.seeds, self.mesh))), len(self.seeds) - 1)
        filled = jax.tree.map(lambda leaf: jnp.asarray(leaf)[rows], learners)
        return jax.device_put(filled, NamedSharding(self.mesh, PartitionSpec("seeds")))

    def real(self, learners: Learner) -> Learner:
        """The learners without the copies that `place` adds."""
        return jax.tree.map(lambda leaf: leaf[: len(self.seeds)], learners)

    def run(self, snapshot: Snapshot | None = None) -> Iterator[tuple[Snapshot, Evaluation]]:
        """Run from the snapshot, or from the start, to the end of the schedule.

        Yields:
            State and metrics after every evaluation. The next step reuses the memory of the snapshot: copy what must
            last.
        """
        schedule = self.schedule
        (epoch, labels), learners = snapshot or self.start()
        while epoch < schedule.epochs:
            after = int(epoch) + schedule.evaluate_every
            select = after % schedule.select_every == 0 and after < schedule.epochs
            # Arrays rather than Python numbers, whose every new value would be traced as a new type or constant.
            clock = Clock(*np.asarray([epoch, labels], np.int32))
            learners, values = self._stretch(
                learners, self._train, self._test, Stretch(clock, np.int32(schedule.evaluate_every), np.bool_(select))
            )
            # A seed whose loss is no longer finite has stopped: it has no results from then on.
            alive = np.asarray(learners.failed)[: len(self.seeds)] < 0
            numbers = {
                name: np.where(alive, np.asarray(value, np.float64)[: len(self.seeds)], np.nan)
                for name, value in values.items()
            }
            evaluation = Evaluation(after, int(labels), numbers)
            epoch, labels = after, int(labels) + schedule.select * select
            yield Snapshot(Clock(epoch, labels), learners), evaluation

    def predict(self, learners: Learner, inputs: np.ndarray) -> Predictive:
        """Every seed's prediction for these inputs, shape ``[seeds, rows, outputs]``, in units of the target."""

        def one(params: PyTree[Float[Array, "..."]]) -> Predictive:
            predict = partial(self.trainer.method, combine(params, self.static))
            prediction = predict_in_blocks(predict, jnp.asarray(inputs))
            return prediction.rescale(self.data.target_scale, self.data.target_shift)

        return jax.jit(partial(jax.lax.map, one))(self.real(learners).params)

    def _run_stretch(
        self, learners: Learner, train: Rows, test: Rows, stretch: Stretch
    ) -> tuple[Learner, dict[str, Scalar]]:
        """The program: trains, evaluates and, if wanted, draws labels, for the seeds of one device."""
        clock, epochs, select = stretch
        learners = train_seeds(self.trainer, learners, train, self.static, clock=clock, epochs=epochs)

        def finish(learner: Learner) -> tuple[Learner, dict[str, Scalar]]:
            network = combine(learner.params, self.static)
            values = self._evaluate(network, learner, train, test, clock)
            learner = jax.lax.cond(
                select, lambda one: self._label(network, one, train, clock), lambda one: one, learner
            )
            return learner, values

        return jax.lax.map(finish, learners)

    def _evaluate(self, network: Network, learner: Learner, train: Rows, test: Rows, clock: Clock) -> dict[str, Scalar]:
        """Every metric on the visible and on the test rows, in units of the target, and every loss term."""
        visible = jax.tree.map(lambda leaf: leaf[learner.visible], train)
        parts = {"train": visible, "test": test} | ({"unseen": train} if self.evaluate_unseen else {})
        inputs = jnp.concatenate([part.inputs for part in parts.values()])
        targets = jnp.concatenate([part.targets for part in parts.values()])
        # One prediction of all rows, and for each part weights that leave out the rows of the others.
        rows = {name: jnp.ones(len(part.inputs)) for name, part in parts.items()}
        rows["train"] = (jnp.arange(len(learner.visible)) < clock.labels).astype(jnp.float32)
        if self.evaluate_unseen:
            rows["unseen"] = (~self._seen(learner, train, clock)).astype(jnp.float32)
        nothing = {name: jnp.zeros_like(ones) for name, ones in rows.items()}
        weights = [{**nothing, "train": rows["train"]}, {**rows, "train": nothing["train"]}]
        stacked = jnp.stack([jnp.concatenate(list(part.values())) for part in weights])

        prediction = predict_in_blocks(partial(self.trainer.method, network), inputs)
        prediction = prediction.rescale(self.data.target_scale, self.data.target_shift)
        truth = self.data.target_shift + self.data.target_scale * targets
        values = {f"loss_{name}": value for name, value in learner.terms.items()}
        for name, metric in METRICS.items():
            both = jax.vmap(partial(metric, prediction, truth))(stacked)
            values |= {f"train_{name}": both[0], f"test_{name}": both[1]}
        return values

    def _label(self, network: Network, learner: Learner, train: Rows, clock: Clock) -> Learner:
        """The learner with newly drawn labels at the end of its buffer."""
        # Training folds epochs into the key, so labels take the numbers below zero.
        key = jax.random.fold_in(learner.key, -jnp.asarray(clock.labels))
        seen = self._seen(learner, train, clock)
        drawn = choose(self.trainer.method, network, train.inputs, seen, self.schedule.select, key=key)
        visible = jax.lax.dynamic_update_slice(learner.visible, drawn.astype(jnp.int32), (clock.labels,))
        return learner._replace(visible=visible)

    def _seen(self, learner: Learner, train: Rows, clock: Clock) -> Bool[Array, "rows"]:
        rows = len(train.inputs)
        in_use = jnp.arange(len(learner.visible)) < clock.labels
        # Places that are not in use point behind the last row, where writes are dropped.
        marks = jnp.where(in_use, learner.visible, rows)
        return jnp.zeros(rows, bool).at[marks].set(True, mode="drop")


def choose(
    method: Method,
    network: Network,
    inputs: Float[Array, "rows inputs"],
    excluded: Bool[Array, "rows"],
    count: int,
    *,
    key: PRNGKeyArray,
) -> Int[Array, "count"]:
    """Choose rows of a pool to label next.

    Args:
        method: Predicts, and says how rows are drawn.
        network: A trained network of the method.
        inputs: All rows of the pool.
        excluded: True for rows that have a label.
        count: How many rows to draw.
        key: Random key.

    Returns:
        The numbers of the rows.
    """
    rule = method.acquisition
    logits = predict_in_blocks(lambda rows: rule.logits(method(network, rows)), inputs)
    return rule.pick(logits, excluded, count, key=key)
