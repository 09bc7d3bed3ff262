"""Ensembles for people's tables: members trained together, for as long as rows that they have not seen get better.

How long to train matters more than any other setting, and training rows cannot tell. So every member first trains
without some of its rows: those around a random place of a random column (a gap, to see what happens off the data) and
some at random. The number of steps after which held-out rows are predicted best, by each member on average or by all
together, is the number for which the members are trained anew on all rows. They also say how to scale noise and
uncertainty, and what members of two kinds should count in the mixture.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from ncprior.active import predict_in_blocks
from ncprior.calibration import best_scales, best_share, log_density, mean_density
from ncprior.holdout import Holdout, Look, Stopping, held_numbers
from ncprior.input_priors import InputPrior
from ncprior.prediction import Predictive, heavy_tailed
from ncprior.training import Learner, Rows, Trainer, combine
from ncprior.trunks import Sight

_NO_WARM_UP = np.int32(1 << 20)
"""Steps that members which go on are taken to have behind them, so that they do not warm up again."""


class Search(NamedTuple):
    """How long to train: the best number of steps, the weights there, and every look on the way."""

    steps: int
    weights: Any
    looks: list[Look]


class Table(NamedTuple):
    """What members are told about the table besides its rows."""

    sights: Sight | None  # one for each member, on a leading axis; None for trunks that have none
    input_prior: InputPrior | None  # takes the place of the method's own

    def of(self, members: np.ndarray) -> "Table":
        """What these members are told."""
        return self._replace(sights=jax.tree.map(lambda leaf: leaf[members], self.sights))


Members = list[Learner]
"""Members of an ensemble in groups that are trained together, each with a leading axis."""


class Ensemble:
    """Members of one method on tables of one shape. A program compiles once for every padded number of rows."""

    def __init__(self, trainer: Trainer, inputs: int, outputs: int) -> None:
        self.trainer = trainer
        self.static = trainer.static(inputs, outputs)
        self._start = jax.jit(jax.vmap(self._begin, in_axes=(None, 0, 0, None, 0)))
        self._run = jax.jit(self._stretches, donate_argnums=0)
        self._compiled: set[tuple[int, ...]] = set()  # shapes of rows that there is a program for
        self._restart = jax.jit(jax.vmap(trainer.optimizer.init))
        self._predict_held = jax.jit(jax.vmap(lambda w, rows, held: self._predict(w, rows.inputs[held]), (0, None, 0)))

    def start(
        self,
        rows: Rows,
        visible: Sequence[np.ndarray],
        table: Table,
        seeds: Sequence[int] | np.ndarray,
        weights: Any = None,
    ) -> Members:
        """Members that see these rows, in a buffer with room for all; fresh ones, or those with these weights."""
        self.trainer.check_labels(min(map(len, visible)))
        size = self.trainer.buffer(len(rows.inputs))
        numbers = np.stack([np.pad(part, (0, size - len(part))) for part in visible]).astype(np.int32)

        def begin(group: slice) -> Learner:
            keys = jax.vmap(jax.random.key)(np.asarray(seeds, np.uint32)[group])
            sights = jax.tree.map(lambda leaf: leaf[group], table.sights)
            members = self._start(rows, numbers[group], sights, table.input_prior, keys)
            if weights is None:
                return members
            given = jax.tree.map(lambda leaf: leaf[group], weights)
            optimizer = optax.tree_utils.tree_set(self._restart(given), count=np.full(len(keys), _NO_WARM_UP))
            return members._replace(params=given, optimizer=optimizer)

        return [begin(group) for group in groups(len(numbers))]

    def search(
        self,
        rows: Rows,
        held: Sequence[Holdout],
        table: Table,
        seeds: Sequence[int] | np.ndarray,
        stopping: Stopping,
        show: Callable[[int, float], None],
    ) -> Search:
        """Trains members without their held-out rows until these are predicted no better."""
        members = self.start(rows, [one.train for one in held], table, seeds)
        looks: list[Look] = []
        best, weights, since, score = -np.inf, self.gather(members), 0, -np.inf
        for step in stopping.looks():
            members, look = self.train(members, rows, len(held[0].train), looks[-1].step if looks else 0, step, held)
            looks.append(look)
            before, score = score, look.score(stopping.gap_share, stopping.together)
            since += 1
            if score > best + stopping.least:
                best, weights, since = score, self.gather(members), 0
            show(step, score)
            rising = score > before + stopping.least
            if since >= stopping.patience and step >= stopping.fewest and not rising:
                break
        return Search(looks[len(looks) - 1 - since].step, weights, looks)

    def train(
        self, members: Members, rows: Rows, labels: int, first: int, last: int, held: Sequence[Holdout] | None = None
    ) -> tuple[Members, Look]:
        """The members after steps ``first`` to ``last``, and their scores on what they hold out."""
        places = groups(sum(len(group.failed) for group in members))
        numbers, sizes = held_numbers(held, places[-1].stop, len(rows.inputs))
        limits = tuple(np.int32(value) for value in (labels, first, last))

        def run(group: Learner, place: slice) -> tuple[Learner, Array]:
            return jax.block_until_ready(self._run(group, rows, numbers[place], *limits))

        # The first of all alone, so that the program is not compiled by every thread.
        alone = 0 if rows.inputs.shape in self._compiled else 1
        done = [run(members[0], places[0])] if alone else []
        self._compiled.add(rows.inputs.shape)
        done += in_threads(run, members[alone:], places[alone:])
        density = np.concatenate([np.asarray(part, np.float64) for _, part in done])
        return [group for group, _ in done], Look.at(last, density, sizes)

    def calibrate(self, search: Search, rows: Rows, held: Sequence[Holdout]) -> tuple[float, float]:
        """What noise and uncertainty must be multiplied with for the held-out rows to be predicted best."""
        prediction, targets, in_use = self._held(search.weights, rows, held)
        counted = in_use / np.maximum(in_use.sum(2, keepdims=True), 1)
        return best_scales(prediction, targets, counted.reshape(len(held), -1).astype(np.float32))

    def share(self, weights: Any, calibration: np.ndarray, rows: Rows, held: Sequence[Holdout]) -> float:
        """What every second member, from the second on, should count together, for held-out rows to be predicted best.

        Rows of a gap are predicted by the two neighbours that hold it out, rows at random by all members.
        """
        prediction, targets, in_use = self._held(weights, rows, held)
        scales = (jnp.asarray(calibration)[:, i, None, None] for i in range(2))
        density = log_density(prediction.inflate(*scales), targets).reshape(*in_use.shape, -1)
        first, second = density[::2], density[1::2]
        gaps = [
            (a[0, used].ravel(), b[0, used].ravel())
            for a, b, used in zip(first, second, in_use[::2, 0], strict=False)  # the last may have no neighbour
        ]
        random = [mean_density(part[:, 1, in_use[0, 1]]).ravel() for part in (first, second)]
        kinds = [tuple(np.concatenate(part) for part in zip(*gaps, strict=True)), tuple(random)]
        return best_share([(a, b) for a, b in kinds if len(a)])

    def _held(self, weights: Any, rows: Rows, held: Sequence[Holdout]) -> tuple[Predictive, np.ndarray, np.ndarray]:
        """Every member's prediction of what it holds out, the targets, and which ``[members, 2, n]`` are in use."""
        numbers, sizes = held_numbers(held, len(held), len(rows.inputs))
        places = numbers.reshape(len(held), -1)
        in_use = np.arange(numbers.shape[-1]) < sizes[..., None]
        return self._predict_held(weights, rows, places), np.asarray(rows.targets)[places], in_use

    def gather(self, members: Members) -> Any:
        """The weights that all members predict with, on a leading axis."""
        parts = [jax.tree.map(np.asarray, self.weights(group)) for group in members]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def weights(self, member: Learner) -> Any:
        """The weights that a member predicts with: the average, if its optimiser keeps one."""
        return getattr(member.optimizer, "average", member.params)

    def _begin(self, rows: Rows, visible: Array, sight: Sight | None, prior: InputPrior | None, key: Array) -> Learner:
        def prepare(network: Any) -> Any:
            return network if sight is None else eqx.tree_at(lambda whole: whole.trunk.sight, network, sight)

        return self.trainer.start(rows, visible, key=key, prepare=prepare)._replace(input_prior=prior)

    def _stretches(self, members: Learner, rows: Rows, held: Array, *limits: Array) -> Any:
        """The program: `_stretch` for every member of a group."""

        def one(member: Learner, held: Array) -> tuple[Learner, Array]:
            return self._stretch(member, rows, held, *limits)

        if len(held) > 1:
            return jax.vmap(one)(members, held)
        # A member alone is not batched, as a batch has to compute both sides of every condition.
        alone = one(*jax.tree.map(lambda leaf: leaf[0], (members, held)))
        return jax.tree.map(lambda leaf: leaf[None], alone)

    def _stretch(
        self, member: Learner, rows: Rows, held: Array, labels: Array, first: Array, last: Array
    ) -> tuple[Learner, Array]:
        """Trains one member and scores it on its held-out rows of both kinds."""
        member = self.trainer.train_steps(member, rows, self.static, labels, first, last)
        prediction = self._predict(self.weights(member), rows.inputs[held.reshape(-1)])
        density = heavy_tailed(prediction).log_prob(rows.targets[held.reshape(-1)])
        return member, density.reshape(*held.shape, -1)

    def _predict(self, weights: Any, inputs: Array) -> Predictive:
        """One member's prediction for rows ``[rows, inputs]``."""
        return predict_in_blocks(partial(self.trainer.method, combine(weights, self.static)), inputs)


def in_threads(function: Callable[..., Any], *arguments: Sequence[Any]) -> list[Any]:
    """``map`` over all cores; what has not begun is dropped on Ctrl-C or an error, and nobody waits for the rest."""
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
