"""Ensembles for people's tables: members trained together, for as long as rows that they have not seen get better.

How long to train matters more than any other setting, and training rows cannot tell. So every member first trains
without some of its rows: those around a random place of a random column (a gap, to see what happens off the data) and
some at random. The number of steps after which held-out rows are predicted best, by each member on average or by all
together, is the number for which the members are trained anew on all rows. They also say how to scale noise and
uncertainty, and what members of two kinds should count in the mixture.
"""

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from ncprior.active import predict_in_blocks
from ncprior.input_priors import InputPrior
from ncprior.prediction import Predictive, heavy_tailed
from ncprior.training import Learner, Rows, Trainer, combine
from ncprior.trunks import Sight

_NO_WARM_UP = np.int32(1 << 20)
"""Steps that members which go on are taken to have behind them, so that they do not warm up again."""

_SCORED = 4_096
"""Held-out rows of each kind, at most, that a member is scored on."""


@dataclass(frozen=True)
class Stopping:
    """When to look at the held-out rows, and when to stop."""

    gap: float = 0.2
    """Share of the rows that a member holds out around a random place of a random column."""
    random: float = 0.1
    """Share of the rows that it holds out at random."""
    gap_share: float = 0.5
    """Share of the gap in the score; the rest is that of the rows at random."""
    together: float = 0.0
    """Share of the members' mixture in the score of the rows at random; the rest is that of each member alone. The
    mixture gains from members that know the data too well, up to a point."""
    first: int = 100
    """Steps before the first look; the next comes after ``growth`` times as many, and so on."""
    growth: float = 1.5
    patience: int = 2
    """Looks in a row without a better score that end the search, but not before ``fewest`` steps, and not while it
    rises again: what is hard to learn can cost at first."""
    fewest: int = 760
    least: float = 0.003
    """Improvement of the score, in nats, that counts as better."""
    most: int = 10_000
    """Steps that end it in any case."""

    def looks(self) -> list[int]:
        """Steps after which the held-out rows are scored."""
        steps = [self.first]
        while steps[-1] < self.most:
            steps.append(min(self.most, round(steps[-1] * self.growth)))
        return steps


class Holdout(NamedTuple):
    """Numbers of a member's rows: those that it trains on, those of its gap, and some at random."""

    train: np.ndarray
    gap: np.ndarray
    random: np.ndarray


def hold_out(
    columns: np.ndarray,
    members: int,
    stopping: Stopping,
    rng: np.random.Generator,
    equal: np.ndarray | None = None,
    neighbours: int = 1,
) -> list[Holdout]:
    """Held-out rows for every member: a gap, and the same rows at random as all others.

    So many ``neighbours`` share a gap, the first ones, the next ones, and so on. No gap takes all rows that are left.

    ``columns`` ``[rows, columns]`` are those that a gap can lie in. ``equal`` numbers the rows from 0, the same for
    rows that are equal: these are held out together or not at all, as a copy in training would give a row away. Where
    more than half of the rows are equal there is nothing else to learn from, and copies are rows like others.
    """
    count = len(columns)
    equal = np.arange(count) if equal is None or np.bincount(equal).max() > count / 2 else equal
    wide, some = int(stopping.gap * count), max(1, int(stopping.random * count))
    drawn = rng.permutation(equal.max() + 1)
    rank = np.empty_like(drawn)
    rank[drawn] = np.arange(len(drawn))
    order = np.argsort(rank[equal], kind="stable")
    some = int(np.sum(rank[equal] <= rank[equal[order[some - 1]]]))
    random, rest = order[:some], order[some:]
    parts = []
    gap = rest[:0]
    for member in range(members):
        if columns.shape[1] and member % neighbours == 0:
            column = columns[rest, rng.integers(columns.shape[1])]
            start = rng.integers(max(0, len(rest) - wide) + 1)
            inside = rest[np.argsort(column, kind="stable")[start : start + wide]]
            gap = rest[np.isin(equal[rest], equal[inside])]
            gap = gap if len(gap) < len(rest) else rest[:0]
        parts.append(Holdout(np.setdiff1d(rest, gap), np.sort(gap), np.sort(random)))
    # All members train on as many rows as each other; copies can make gaps longer.
    least = max(1, min(len(part.train) for part in parts))
    return [
        part if len(part.train) == least else part._replace(train=np.sort(rng.choice(part.train, least, replace=False)))
        for part in parts
    ]


class Look(NamedTuple):
    """What the members came to on their held-out rows: mean log densities, a number for each member."""

    step: int
    gap: np.ndarray
    random: np.ndarray
    mixture: float = math.nan  # of all members, on the rows at random

    @classmethod
    def at(cls, step: int, density: np.ndarray, sizes: np.ndarray) -> "Look":
        """From log densities ``[members, 2, n, outputs]``, of which so many ``[members, 2]`` are in use."""
        in_use = np.arange(density.shape[2]) < sizes[..., None]
        with np.errstate(invalid="ignore"):  # a kind may have no rows
            gap, random = (np.where(in_use, density.sum(3), 0.0).sum(2) / sizes).T
            mixture = _mean_density(density[:, 1, in_use[0, 1]]).sum() / sizes[0, 1]
        return cls(step, gap, random, float(mixture))

    def score(self, gap: float, together: float = 0.0) -> float:
        """The mean over the members, the gap's with this share; of one kind where the other has no rows.

        ``together`` is the share of the mixture in what rows at random count.
        """
        random = (1 - together) * self.random.mean() + (together * self.mixture if together else 0.0)
        kinds = [(gap, self.gap.mean()), (1 - gap, random)]
        finite = [(share, value) for share, value in kinds if np.isfinite(value)]
        used = [pair for pair in finite if pair[0]] or [(1.0, value) for _, value in finite]
        return sum(share * value for share, value in used) / sum(share for share, _ in used) if used else -np.inf


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
        return _best_scales(prediction, targets, counted.reshape(len(held), -1).astype(np.float32))

    def share(self, weights: Any, calibration: np.ndarray, rows: Rows, held: Sequence[Holdout]) -> float:
        """What every second member, from the second on, should count together, for held-out rows to be predicted best.

        Rows of a gap are predicted by the two neighbours that hold it out, rows at random by all members.
        """
        prediction, targets, in_use = self._held(weights, rows, held)
        scales = (jnp.asarray(calibration)[:, i, None, None] for i in range(2))
        density = np.asarray(_LOG_DENSITY(prediction.inflate(*scales), targets), np.float64)
        density = np.nan_to_num(density, nan=_LOWEST, neginf=_LOWEST).reshape(*in_use.shape, -1)
        first, second = density[::2], density[1::2]
        gaps = [
            (a[0, used].ravel(), b[0, used].ravel())
            for a, b, used in zip(first, second, in_use[::2, 0], strict=False)  # the last may have no neighbour
        ]
        random = [_mean_density(part[:, 1, in_use[0, 1]]).ravel() for part in (first, second)]
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


@jax.jit
def _log_densities(prediction: Predictive, targets: Array, weights: Array, noise: Array, uncertainty: Array) -> Array:
    """The weighted log density of the targets for every pair of scales."""

    def one(pair: tuple[Array, Array]) -> Array:
        density = heavy_tailed(prediction.inflate(*pair)).log_prob(targets).sum(-1)
        return jnp.sum(weights * density)

    return jax.lax.map(one, (noise, uncertainty))


_LOG_DENSITY = jax.jit(lambda prediction, targets: heavy_tailed(prediction).log_prob(targets))

_LOWEST = -1e6
"""Log density of rows that are predicted worse than numbers can say."""

_FOR_EQUAL = 0.05
"""What equal shares are worth, in nats: rows to come are further from the data than those that are held out. With few
rows they are worth as much as one row more."""


def best_share(kinds: Sequence[tuple[np.ndarray, np.ndarray]]) -> float:
    """The share of the second of two predictions in their mixture that gives held-out rows the highest density.

    Of each kind of rows there are log densities of both; kinds count the same, however many rows they have. The share
    stays close to one half where that makes little difference.
    """
    shares = np.linspace(0.02, 0.98, 49)
    fewest = min((len(first) for first, _ in kinds), default=1)
    score = (_FOR_EQUAL + 1 / fewest) * (np.log(shares) + np.log(1 - shares))
    for first, second in kinds:
        mixed = np.logaddexp(first + np.log(1 - shares[:, None]), second + np.log(shares[:, None]))
        score = score + mixed.mean(1) / len(kinds)
    return float(shares[np.argmax(score)])


def _mean_density(logs: np.ndarray) -> np.ndarray:
    """The logarithm of the members' mean density, from ``[members, rows, outputs]``."""
    return np.logaddexp.reduce(logs, axis=0) - math.log(len(logs))


_NOISE_SCALES, _UNCERTAINTY_SCALES = 2.0 ** np.arange(-0.6, 1.6, 0.15), 2.0 ** np.arange(0.0, 2.6, 0.5)
"""What noise and uncertainty may be multiplied with. Uncertainty is never lowered: held-out rows are closer to the data
than rows to come may be, and where noise alone explains them, they would undo the prior that keeps others uncertain."""


def _best_scales(prediction: Predictive, targets: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """The best of a grid of scales for noise and uncertainty."""
    if not weights.any():
        return 1.0, 1.0
    noise, uncertainty = (part.ravel().astype(np.float32) for part in np.meshgrid(_NOISE_SCALES, _UNCERTAINTY_SCALES))
    best = int(np.argmax(np.asarray(_log_densities(prediction, targets, weights, noise, uncertainty))))
    return float(noise[best]), float(uncertainty[best])


def held_numbers(held: Sequence[Holdout] | None, members: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers ``[members, 2, n]`` that members are scored on, filled up with zeros, and how many there are.

    Room for half of the rows, which no kind of held-out rows exceeds, so that the shape depends on their number alone.
    """
    size = min(_SCORED, rows // 2)
    if held is None:
        return np.zeros((members, 2, size), np.int32), np.zeros((members, 2), np.int32)
    parts = [[part[:: max(1, -(-len(part) // size))] for part in (one.gap, one.random)] for one in held]
    numbers = np.array([[np.pad(part, (0, size - len(part))) for part in pair] for pair in parts], np.int32)
    return numbers, np.array([[len(part) for part in pair] for pair in parts], np.int32)


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
