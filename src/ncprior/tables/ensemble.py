"""Ensembles: members trained together, for as long as predictions of held-out rows get better.

How long to train matters more than any other setting, and training rows cannot tell. So every member first trains
without some of its rows: those around a random value of a random column (a gap, to see what happens off the data) and
some at random. The number of steps after which held-out rows are predicted best, by each member on average or by all
together, is the number for which the members are trained anew on all rows. They also say how to scale noise and
uncertainty, and the shares of two families of members in the mixture.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import PyTree, Scalar

from ncprior.core.blocks import predict_in_blocks
from ncprior.core.input_priors import InputPrior
from ncprior.core.networks import Network
from ncprior.core.prediction import Prediction, Predictive, add_uncertainty, heavy_tailed
from ncprior.core.training import Learner, Trainer, combine, trained
from ncprior.tables.compiled import Program
from ncprior.tables.held_out import HeldOutPredictions
from ncprior.tables.holdout import Evaluation, Holdout, Stopping, familiar, holdout_indices
from ncprior.tables.input_features import InputFeatures
from ncprior.tables.member_rows import MemberRows

_NO_WARM_UP = np.int32(1 << 20)
"""Step count of members whose training continues, so that they do not warm up again."""


_MAX_SEEN = 4_096
"""Rows, at most, on which the error of members on rows that they have learned from is measured."""


class StoppedTraining(NamedTuple):
    """The best number of steps, the weights there, and every evaluation on the way."""

    steps: int
    weights: Network
    evaluations: list[Evaluation]


class TrainingNumbers(NamedTuple):
    """Numbers that training depends on, as arguments of its program: others do not compile again."""

    learning_rate: np.ndarray | np.float32
    terms: PyTree[Scalar] | None  # of the loss terms; None for those of the method


class TableInfo(NamedTuple):
    """Input features, input prior and training numbers of a member."""

    features: InputFeatures | None  # None for trunks that have none
    input_prior: InputPrior | None  # takes the place of the method's own
    numbers: TrainingNumbers


Members = list[Learner]
"""Members of an ensemble in groups that are trained together, each with a leading axis."""

Result = TypeVar("Result")


class Stretch(NamedTuple):
    """A part of training, from step ``first`` to before step ``last``, on so many labels."""

    labels: int | Array
    first: int | Array
    last: int | Array


class Ensemble:
    """Members of one method on tables of one shape. A program compiles once for every padded number of rows."""

    def __init__(
        self, trainer: Trainer, inputs: int, outputs: int, *, widened: bool = False, about: str | None = None
    ) -> None:
        """Of members whose held-out rows have uncertainty besides their own (``widened``), or not.

        ``about`` says all that the programs depend on, see `Program`.
        """
        self.trainer, self.widened = trainer, widened
        self.static = trainer.static(inputs, outputs)

        def program(name: str, function: Callable[..., Any], **options: Any) -> Program:
            return Program(function, about and f"{name} of {about}", **options)

        self._start = program("start", jax.vmap(self._begin, in_axes=(None, 0, 0, 0)), brief=True)
        self._run = program("train", self._train_group, donate=[0])
        self._score = program("score", self._score_group, brief=True)
        self._restart = program("restart", jax.vmap(lambda params: trainer.optimizer.init(trained(params))), brief=True)
        self._predict_held = program("predict", self._predict_in_shared_unit, brief=True)

    def start(
        self,
        rows: MemberRows,
        visible: Sequence[np.ndarray],
        tables: Sequence[TableInfo],
        seeds: Sequence[int] | np.ndarray,
        weights: Network | None = None,
    ) -> Members:
        """Members that train on the ``visible`` rows, fresh ones or those with these weights."""
        self.trainer.check_labels(min(map(len, visible)))
        size = self.trainer.buffer(len(rows.inputs))
        numbers = np.stack([np.pad(part, (0, size - len(part))) for part in visible]).astype(np.int32)

        def begin(group: slice) -> Learner:
            own_seeds = np.asarray(seeds, np.uint32)[group]
            about = jax.tree.map(lambda *leaves: np.stack(leaves), *tables[group])
            members = self._start(rows, numbers[group], about, own_seeds)
            if weights is None:
                return members
            given = jax.tree.map(lambda leaf: leaf[group], weights)
            optimizer = optax.tree_utils.tree_set(
                self._restart(given),
                count=np.full(len(own_seeds), _NO_WARM_UP),
                learning_rate=about.numbers.learning_rate,
            )
            return members._replace(params=given, optimizer=optimizer)

        return [begin(group) for group in groups(len(numbers))]

    def search(
        self,
        rows: Sequence[MemberRows],
        holdouts: Sequence[Holdout],
        tables: Sequence[TableInfo],
        seeds: Sequence[int] | np.ndarray,
        *,
        stopping: Stopping,
        report: Callable[[int, float], None],
        extra: np.ndarray | None = None,
    ) -> StoppedTraining:
        """Trains members without their held-out rows until these are predicted no better.

        Args:
            rows: For each member the same rows, but encoded without what it holds out.
            holdouts: Rows that each member trains on and holds out.
            tables: Input features, input prior and numbers of each member.
            seeds: One for each member.
            stopping: When to score and when to stop.
            report: Called with the step and the score at every evaluation.
            extra: Uncertainty ``[members, 2 * n]`` that the held-out rows have besides the members' own.
        """
        members = self.start(rows[0], [one.train for one in holdouts], tables, seeds)
        labels = len(holdouts[0].train)
        evaluations: list[Evaluation] = []
        best, weights, since, score = -np.inf, self.gather(members), 0, -np.inf
        for step in stopping.evaluation_steps():
            stretch = Stretch(labels, evaluations[-1].step if evaluations else 0, step)
            members, evaluation = self.train_and_score(members, rows, stretch, holdouts, extra=extra)
            evaluations.append(evaluation)
            before, score = score, evaluation.score(stopping.gap_share, stopping.together)
            since += 1
            if score > best + stopping.min_delta:
                best, weights, since = score, self.gather(members), 0
            report(step, score)
            rising = score > before + stopping.min_delta
            if since >= stopping.patience and step >= stopping.min_steps and not rising:
                break
        return StoppedTraining(evaluations[len(evaluations) - 1 - since].step, weights, evaluations)

    def train(self, members: Members, rows: MemberRows | Sequence[MemberRows], stretch: Stretch) -> Members:
        """The members after a stretch of training. They share ``rows``, or each has its own."""

        def run(group: Learner, position: slice) -> Learner:
            return jax.block_until_ready(self._run(group, _of_group(rows, position), jax.tree.map(np.int32, stretch)))

        return in_threads(run, members, groups(sum(len(group.failed) for group in members)))

    def train_and_score(
        self,
        members: Members,
        rows: Sequence[MemberRows],
        stretch: Stretch,
        holdouts: Sequence[Holdout],
        *,
        extra: np.ndarray | None = None,
    ) -> tuple[Members, Evaluation]:
        """The members after a stretch of training, and their scores on what they hold out, see `search`."""
        indices, sizes = holdout_indices(holdouts, len(holdouts), len(rows[0].inputs))

        def run(group: Learner, position: slice) -> tuple[Learner, np.ndarray]:
            own = _of_group(rows, position)
            done = self._run(group, own, jax.tree.map(np.int32, stretch))
            besides = None if extra is None else extra[position]
            return done, self.log_densities(self.weights(done), own, indices[position], besides)

        done = in_threads(run, members, groups(len(holdouts)))
        density = np.concatenate([part for _, part in done])
        return [group for group, _ in done], Evaluation.at(int(stretch.last), density, _counts(rows[0], indices, sizes))

    def log_densities(
        self, weights: Network, rows: MemberRows, indices: np.ndarray, extra: np.ndarray | None = None
    ) -> np.ndarray:
        """Log densities ``[members, 2, n, outputs]`` of the rows ``[members, 2, n]`` that a group holds out."""
        besides = np.zeros((len(indices), 2 * indices.shape[2]), np.float32) if extra is None else extra
        return np.asarray(self._score(weights, rows, indices, besides), np.float64)

    def predict_held_out(
        self, weights: Network, rows: Sequence[MemberRows], holdouts: Sequence[Holdout]
    ) -> HeldOutPredictions:
        """Predictions of members with these weights for the rows that they hold out."""
        indices, sizes = holdout_indices(holdouts, len(holdouts), len(rows[0].inputs))
        each = indices.reshape(len(holdouts), -1)
        predictions = self._predict_each(weights, rows, each)
        targets = np.stack([one.shared_targets(part) for one, part in zip(rows, each, strict=True)])
        copies = np.asarray(rows[0].weights.copies)[indices]
        counts = _counts(rows[0], indices, sizes)
        return HeldOutPredictions(predictions, targets, counts, copies, indices, familiar(holdouts, indices.shape[-1]))

    def error_of_seen(
        self, weights: Network, rows: Sequence[MemberRows], holdouts: Sequence[Holdout], row_weights: np.ndarray | None
    ) -> float:
        """The mean squared error, over the outputs too, of members on rows that they have learned from.

        Every row, or some of many, is predicted by the mean of those members that have.
        """
        sample = np.setdiff1d(np.unique(np.concatenate([one.train for one in holdouts])), holdouts[0].random)
        sample = sample[:: max(1, -(-len(sample) // _MAX_SEEN))]
        seen = np.stack([np.isin(sample, one.train) for one in holdouts]).astype(float)
        mean = np.asarray(self.predict_rows(weights, rows, sample).mean)
        error = (np.sum((seen / seen.sum(0))[..., None] * mean, 0) - rows[0].shared_targets(sample)) ** 2
        return float(np.average(error.mean(-1), weights=None if row_weights is None else row_weights[sample]))

    def predict_rows(self, weights: Network, rows: Sequence[MemberRows], indices: np.ndarray) -> Predictive:
        """Predictions ``[members, rows, outputs]`` of members with these weights for some rows."""
        size = holdout_indices(None, 1, len(rows[0].inputs))[0].size  # for which there is a program
        parts = []
        for start in range(0, len(indices), size):
            part = indices[start : start + size]
            filled = np.pad(part, (0, size - len(part))).astype(np.int32)
            predicted = self._predict_each(weights, rows, [filled] * len(rows))
            parts.append(jax.tree.map(lambda leaf, part=part: leaf[:, : len(part)], predicted))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *parts)

    def _predict_each(
        self, weights: Network, rows: Sequence[MemberRows], indices: Sequence[np.ndarray] | np.ndarray
    ) -> Predictive:
        """Every member's prediction of some of its rows, in a unit that all share."""

        def run(i: int) -> Predictive:
            own = jax.tree.map(lambda leaf: leaf[i], weights)
            return jax.tree.map(np.asarray, self._predict_held(own, rows[i], indices[i]))

        return jax.tree.map(lambda *leaves: np.stack(leaves), *in_threads(run, range(len(rows))))

    def gather(self, members: Members) -> Network:
        """The weights that all members predict with, on a leading axis."""
        parts = [jax.tree.map(np.asarray, self.weights(group)) for group in members]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def weights(self, member: Learner) -> Network:
        """The weights that a member predicts with: the average, if its optimiser keeps one."""
        return eqx.combine(getattr(member.optimizer, "average", member.params), member.params)

    def _begin(self, rows: MemberRows, visible: Array, table: TableInfo, seed: Array) -> Learner:
        features, numbers, key = table.features, table.numbers, jax.random.key(seed)

        def prepare(network: Network) -> Network:
            return network if features is None else eqx.tree_at(lambda whole: whole.trunk.features, network, features)

        member = self.trainer.start(rows.rows, visible, key=key, prepare=prepare)
        optimizer = optax.tree_utils.tree_set(member.optimizer, learning_rate=numbers.learning_rate)
        return member._replace(optimizer=optimizer, input_prior=table.input_prior, term_numbers=numbers.terms)

    def _train_group(self, members: Learner, rows: MemberRows, stretch: Stretch) -> Learner:
        """The program that trains the members of a group."""

        def one(member: Learner, rows: MemberRows) -> Learner:
            return self.trainer.train_steps(
                member, rows.rows, self.static, stretch.labels, first=stretch.first, last=stretch.last
            )

        return _for_each(one, members, rows)

    def _score_group(self, weights: Network, rows: MemberRows, indices: Array, extra: Array) -> Array:
        """The program that scores the members of a group on their held-out rows of both kinds.

        It is not part of training, as that would take longer to compile where nothing is scored, too.
        """

        def one(whole: tuple[Network, Array, Array], rows: MemberRows) -> Array:
            weights, indices, extra = whole
            prediction = self._predict(weights, rows.inputs[indices.reshape(-1)])
            if self.widened and isinstance(prediction, Prediction):
                prediction = add_uncertainty(prediction, extra[:, None] / rows.scale)
            density = heavy_tailed(prediction).log_prob(rows.targets[indices.reshape(-1)])
            density = density - jnp.log(rows.scale)
            return density.reshape(*indices.shape, -1)

        return _for_each(one, (weights, indices, extra), rows)

    def _predict_in_shared_unit(self, weights: Network, rows: MemberRows, held: Array) -> Predictive:
        """One member's prediction for some rows, in a unit that all members share."""
        return rows.in_shared_unit(self._predict(weights, rows.inputs[held]))

    def _predict(self, weights: Network, inputs: Array) -> Predictive:
        """One member's prediction for rows ``[rows, inputs]``."""
        return predict_in_blocks(partial(self.trainer.method, combine(weights, self.static)), inputs)


def _for_each(function: Callable[[Any, MemberRows], Any], members: Any, rows: MemberRows) -> Any:
    """The function of every member of a group, which share rows or have their own on a leading axis."""
    if len(jax.tree.leaves(members)[0]) > 1:
        return jax.vmap(function, (0, 0 if rows.inputs.ndim == 3 else None))(members, rows)
    # A member alone is not batched, as a batch has to compute both sides of every condition.
    alone = function(jax.tree.map(lambda leaf: leaf[0], members), rows)
    return jax.tree.map(lambda leaf: leaf[None], alone)


def _of_group(rows: MemberRows | Sequence[MemberRows], position: slice) -> MemberRows:
    """The rows of a group of members."""
    if isinstance(rows, MemberRows):
        return rows
    own = rows[position]
    return own[0] if len(own) == 1 else jax.tree.map(lambda *leaves: jnp.stack(leaves), *own)


def _counts(rows: MemberRows, indices: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Weights of the rows ``[members, 2, n]``, of which so many ``[members, 2]`` are in use."""
    in_use = np.arange(indices.shape[-1]) < sizes[..., None]
    return np.where(in_use, np.asarray(rows.weights.values, np.float64)[indices], 0.0)


def in_threads(function: Callable[..., Result], *arguments: Sequence[object]) -> list[Result]:
    """``map`` over all cores; on Ctrl-C or an error, calls that have not begun are dropped and others not awaited."""
    pool = ThreadPoolExecutor(max_workers=cores())
    try:
        return list(pool.map(function, *arguments))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def groups(members: int) -> list[slice]:
    """Which members are trained together.

    On a CPU each is a task of its own, so that all cores have work and a member's result does not depend on how many
    there are; an accelerator takes all in one batch.
    """
    return [slice(i, i + 1) for i in range(members)] if jax.default_backend() == "cpu" else [slice(0, members)]


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
