"""Batches of rows that are informative together.

Rows that each score high are often near duplicates of one another. The rules here pick one row after the other and
look at the kernel ``k(a, b) = phi(a) . phi(b)`` between what is picked and what is left. For a belief ``N(w, s^2)``
over a last layer with features ``f(x)``, take ``phi(x) = s * f(x)``, with the std of the bias as one more entry if it
has a belief: then ``phi . phi`` is the variance ``uncertainty^2`` of the predicted mean and ``phi(a) . phi(b)`` the
covariance of two of them. For a belief over every layer, ``phi`` are the deviations of sampled functions from their
mean, over the root of their number less 1. Members of an ensemble are joined end to end, each times the root of its
share, and so is what their means differ by; several outputs count with their average covariance.

A pool may be a sample of a larger one, whose rows stand for several each: rules that sum over the pool or draw from it
count them as often. Labels may have costs, which what a pick gains is divided by. And a batch may hold only so many
rows of each group.

`kmeans_inputs`, `kmeans_greedy` and `kmeans_pp` draw rows at random. The other rules are deterministic: of
rows that tie, the first is picked.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from ncprior.core.acquisition import SCORES, Score, score_names
from ncprior.core.registry import Entry, Registry, Style

_EPSILON = 1e-8
"""Added to the noise variance, as in `acquisition.information_gain`, for rows without noise."""

_SMALLEST = 1e-30
"""Squared distance of a row to its equal, so that it has a logarithm."""

_TRIALS = 8
"""Rows drawn for each pick of `kmeans_greedy`. As many are usual for 400 clusters, ``2 + ln 400``."""

_BLOCK = 512
"""Pool rows whose distances to all labelled rows are held at a time."""

State = TypeVar("State")


class Pool(NamedTuple):
    """The rows that a rule picks from, with what it has to know of each.

    Attributes:
        features: ``phi`` ``[rows, features]``.
        noise: Std of the observation noise in the same unit ``[rows]``.
        excluded: True for rows that must not be picked ``[rows]``.
        weights: How many rows of a larger pool each of these stands for ``[rows]``.
        cost: What a label costs, in any unit ``[rows]``: rules go by what is gained for each unit of it.
        group: The number of each row's group ``[rows]``.
        group_limit: How many rows of each group a batch may have ``[groups]``.
    """

    features: Array
    noise: Array
    excluded: Array
    weights: Array
    cost: Array
    group: Array
    group_limit: Array

    @classmethod
    def of(
        cls,
        features: ArrayLike,
        noise: ArrayLike = 1.0,
        excluded: ArrayLike = False,
        *,
        weights: ArrayLike = 1.0,
        cost: ArrayLike = 1.0,
        group: ArrayLike = 0,
        group_limit: ArrayLike | None = None,
    ) -> "Pool":
        """A pool; what is left out, or given as one number, is the same for all rows, and groups have no limit."""
        features = jnp.asarray(features)
        rows, kind = features.shape[:1], features.dtype
        return cls(
            features,
            jnp.broadcast_to(jnp.asarray(noise, kind), rows),
            jnp.broadcast_to(jnp.asarray(excluded, bool), rows),
            jnp.broadcast_to(jnp.asarray(weights, kind), rows),
            jnp.broadcast_to(jnp.asarray(cost, kind), rows),
            jnp.broadcast_to(jnp.asarray(group, jnp.int32), rows),
            jnp.full(1, len(features), jnp.int32) if group_limit is None else jnp.asarray(group_limit, jnp.int32),
        )


class Rule(Protocol):
    """How to pick a batch: all rules have the same arguments, and each leaves aside those that it has no need of."""

    def __call__(self, pool: Pool, labelled: Array, count: int, *, key: Array) -> Array:
        """The numbers of ``count`` different pool rows to label next, in the order in which they were picked.

        ``labelled`` ``[labels, features]`` holds ``phi`` of rows that have labels. There may be none; a buffer of fixed
        size can be filled up with repeats of any of them. ``count`` is static. More than the pool has is a
        `ValueError`, but how many are excluded is not known before the program runs: with fewer than ``count`` rows
        left, the batch ends in rows that mean nothing.
        """


def max_det(
    pool: Pool,
    labelled: Array,  # noqa: ARG001
    count: int,
    *,
    key: Array,  # noqa: ARG001
) -> Array:
    """The row with the largest information gain given those already picked, again and again.

    Each pick maximises ``0.5 ln(1 + Var[mu(x) | picked] / noise(x)^2)``, so that the batch greedily maximises
    ``0.5 ln det(I + K / noise^2)``: BatchBALD (Kirsch et al., 2019) in closed form, as the belief is Gaussian, and the
    greedy D-optimal design. The variance given a label does not depend on what the label says.

    ``labelled`` rows do not enter: the belief that made ``phi`` has learnt from them, and to condition on them here
    would count them twice (mode P of Holzmueller et al., 2023, for a kernel that is a posterior already).
    Takes ``O(rows * features)`` for each pick and one copy of the pool.

    >>> rows = jnp.array([[3.0, 0.0], [3.0, 0.0], [0.0, 2.0]])
    >>> max_det(Pool.of(rows), rows[:0], 2, key=jax.random.key(0))
    Array([0, 2], dtype=int32)
    >>> max_det(Pool.of(rows, cost=[9, 8, 1]), rows[:0], 2, key=jax.random.key(0))
    Array([2, 1], dtype=int32)
    """

    def scores(rows: Array, _: Array) -> Array:
        return jnp.log1p(jnp.sum(rows**2, -1)) / pool.cost

    def take(rows: Array, row: Array, _: Array) -> Array:
        return _condition(rows, rows[row], rows @ rows[row])

    return _one_by_one(_whiten(pool), scores, take, pool, count)


def bait(
    pool: Pool,
    labelled: Array,  # noqa: ARG001
    count: int,
    *,
    key: Array,  # noqa: ARG001
) -> Array:
    """The row whose label most reduces the average variance over the whole pool, again and again.

    Each pick minimises ``trace((I + sum phi phi^T / noise^2)^-1 F)``, the sum over the picked rows and
    ``F = mean phi phi^T`` over the pool. This is the forward pass of BAIT (Ash et al., 2021; BAIT-F in Holzmueller et
    al., 2023) for a Gaussian last layer. The prior precision is the identity, since ``phi`` is whitened by the belief,
    which knows the ``labelled`` rows: they do not enter. ``F`` is over all pool rows, also excluded ones: they stand
    for the inputs that predictions are wanted for, labelled or not.

    By Sherman and Morrison a pick lowers the trace by ``phi^T P F P phi / (noise^2 + phi^T P phi)``, with ``P`` the
    inverse so far. Takes ``O(rows * features)`` for each pick, ``O(rows * features^2 + features^3)`` once, and two
    copies of the pool.
    """
    shares = pool.weights / pool.weights.sum()
    values, vectors = jnp.linalg.eigh((pool.features * shares[:, None]).T @ pool.features)
    root = vectors * jnp.sqrt(jnp.maximum(values, 0.0))
    rows = _whiten(pool)

    # The second matrix holds root^T P phi. Norms of what is left of it cannot turn negative as differences would.
    def scores(state: tuple[Array, Array], _: Array) -> Array:
        rows, effects = state
        return jnp.sum(effects**2, -1) / (1 + jnp.sum(rows**2, -1)) / pool.cost

    def take(state: tuple[Array, Array], row: Array, _: Array) -> tuple[Array, Array]:
        rows, effects = state
        picked = rows[row]
        covariance = rows @ picked
        effects = effects - jnp.outer(covariance / (1 + picked @ picked), effects[row])
        return _condition(rows, picked, covariance), effects

    return _one_by_one((rows, rows @ root), scores, take, pool, count)


def lcmd(
    pool: Pool,
    labelled: Array,
    count: int,
    *,
    key: Array,  # noqa: ARG001
) -> Array:
    """The row farthest from its centre in the largest cluster: largest cluster maximum distance.

    The labelled and the picked rows are centres, and every row belongs to the nearest, by ``|phi(a) - phi(b)|^2``. A
    cluster is as large as the sum of the squared distances of its rows that can still be picked. Without labelled
    rows the first pick has the largest norm (Holzmueller et al., 2023). Within the cluster, squared distances are
    divided by costs. Knows no noise. Takes ``O(rows * features)`` for each centre, labelled or picked.
    """
    centres = len(labelled) + count

    def scores(nearest: _Nearest, available: Array) -> Array:
        counted = jnp.where(available, pool.weights * nearest.distance, 0.0)
        sizes = jax.ops.segment_sum(counted, nearest.centre, centres)
        # By way of the rows: a cluster with no row to pick is never the largest, even if all have size 0.
        largest = nearest.centre[jnp.argmax(jnp.where(available, sizes[nearest.centre], -jnp.inf))]
        return jnp.where(nearest.centre == largest, nearest.distance / pool.cost, -jnp.inf)

    return _one_by_one(_nearest(pool, labelled), scores, _add_centre(pool, labelled), pool, count)


def k_center(
    pool: Pool,
    labelled: Array,
    count: int,
    *,
    key: Array,  # noqa: ARG001
) -> Array:
    """The row farthest from all labelled and picked rows, again and again: the greedy core-set.

    Each pick maximises ``min |phi(x) - phi(centre)|``, which keeps the largest distance from any row to its nearest
    label within twice the least possible (Sener and Savarese, 2018). Without labelled rows the first pick has the
    largest norm. Squared distances are divided by costs. Knows no noise. Takes ``O(rows * features)`` for each centre,
    labelled or picked.
    """

    def scores(nearest: _Nearest, _: Array) -> Array:
        return nearest.distance / pool.cost

    return _one_by_one(_nearest(pool, labelled), scores, _add_centre(pool, labelled), pool, count)


def kmeans_pp(pool: Pool, labelled: Array, count: int, *, key: Array) -> Array:
    """A row drawn in proportion to its squared distance to the nearest labelled or picked one, again and again.

    This is how k-means++ chooses centres (Arthur and Vassilvitskii, 2007), and BADGE a batch (Ash et al., 2020). Rows
    are far apart as with `lcmd`, but as many are picked where there are many: the labels stay like the pool, which
    what is learned about noise depends on. Without labelled rows the first is drawn in proportion to its squared norm.
    A row that costs twice as much is drawn half as often. Knows no noise. Takes ``O(rows * features)`` for each centre,
    labelled or picked.
    """
    add, log_each = _add_centre(pool, labelled), jnp.log(pool.weights / pool.cost)

    def scores(state: tuple[_Nearest, Array], _: Array) -> Array:
        (_, distance), key = state
        # The largest of these is a draw in proportion to the distances (Gumbel, 1954).
        return log_each + jnp.log(jnp.maximum(distance, _SMALLEST)) + jax.random.gumbel(key, distance.shape)

    def take(state: tuple[_Nearest, Array], row: Array, place: Array) -> tuple[_Nearest, Array]:
        return add(state[0], row, place), jax.random.fold_in(state[1], place)

    return _one_by_one((_nearest(pool, labelled), key), scores, take, pool, count)


def kmeans_inputs(pool: Pool, labelled: Array, count: int, *, key: Array) -> Array:
    """`kmeans_pp` for features that are the ranks of the inputs in the pool.

    Networks trained on few labels find differences where there are none, and miss others. Ranks count all inputs the
    same and no value as extreme, so that the labels are spread over the pool as it is.
    """
    return kmeans_pp(pool, labelled, count, key=key)


def kmeans_greedy(pool: Pool, labelled: Array, count: int, *, key: Array) -> Array:
    """The row, of eight drawn as by `kmeans_inputs`, that brings the pool nearest to labels, again and again.

    Of rows that are drawn in proportion to their squared distance to the nearest labelled or picked row, the one is
    taken that most lowers the sum of these distances over the whole pool: greedy k-means++ (Arthur and Vassilvitskii,
    2007), on the ranks of the inputs in the pool. So a row counts for itself and for the rows around it, which
    predictions are asked for, too; one that is far from labels and from all others is seldom taken. Excluded rows
    count, as they do in `bait`.

    Without labelled rows distances are those from the origin. What a row lowers is divided by its cost. Knows no noise.
    Takes ``O(8 rows * features)`` for each pick.
    """
    add = _add_centre(pool, labelled)
    trials, log_each = min(_TRIALS, len(pool.features)), jnp.log(pool.weights / pool.cost)

    def scores(state: tuple[_Nearest, Array], available: Array) -> Array:
        (_, distance), key = state
        chances = log_each + jnp.log(jnp.maximum(distance, _SMALLEST)) + jax.random.gumbel(key, distance.shape)
        drawn = jax.lax.top_k(jnp.where(available, chances, -jnp.inf), trials)[1]

        def gain(row: Array) -> Array:
            squares = jnp.sum((pool.features - pool.features[row]) ** 2, -1)
            return pool.weights @ jnp.maximum(distance - squares, 0.0) / pool.cost[row]

        gains = jax.lax.map(gain, drawn)
        return jnp.full(len(distance), -jnp.inf).at[drawn].set(gains)

    def take(state: tuple[_Nearest, Array], row: Array, place: Array) -> tuple[_Nearest, Array]:
        return add(state[0], row, place), jax.random.fold_in(state[1], place)

    return _one_by_one((_nearest(pool, labelled), key), scores, take, pool, count)


RULES: Registry[Rule] = Registry(
    {
        "kmeans_inputs": Entry(
            kmeans_inputs,
            Style("k-means++ on inputs", "#332288", "-", "o"),
            "rows spread over the pool by the ranks of their inputs",
            "inputs",
        ),
        "kmeans_greedy": Entry(
            kmeans_greedy,
            Style("greedy k-means++", "#117733", "-", "X"),
            "rows that bring the pool near to labels by the ranks of its inputs, again and again",
            "inputs",
        ),
        "kmeans_pp": Entry(
            kmeans_pp,
            Style("k-means++", "#882255", "-", "*"),
            "rows drawn at random, those far from labelled and picked rows more often",
            "gradients",
        ),
        "lcmd": Entry(
            lcmd,
            Style("LCMD", "#E69F00", "-.", "D"),
            "the row farthest from its centre in the largest cluster, again and again",
            "gradients",
        ),
        "k_center": Entry(
            k_center,
            Style("k-centre", "#56B4E9", "--", "P"),
            "the row farthest from all labelled and picked rows, again and again",
            "gradients",
        ),
        "max_det": Entry(
            max_det,
            Style("MaxDet", "#009E73", "-", "s"),
            "the row with the largest information gain given those already picked, again and again",
            "covariances",
        ),
        "bait": Entry(
            bait,
            Style("BAIT", "#CC79A7", "-", "^"),
            "the row whose label most reduces the average variance over the pool, again and again",
            "covariances",
        ),
    },
    compares="covariances",
)
"""Every rule by name. Add one of your own as an `Entry`, or as a plain function: ``RULES["mine"] = function``, which
then gets features whose dot products are covariances."""

DEFAULT_RULE = "kmeans_greedy"
"""The one that needs fewer labels than random on most tables, for the same error and for the same density; see
docs/results/tables.md."""


def acquisitions() -> dict[str, Entry[Rule] | Entry[Score]]:
    """The rules for batches and the scores of rows by name, as `NCPRegressor.suggest` and the commands take them."""
    return {**RULES, **{name: SCORES[name] for name in score_names() if name not in RULES}}


def sketch(features: Array, size: int, *, key: Array) -> Array:
    """Wide features projected to ``size`` random directions; features that are no wider stay as they are.

    ``phi @ G`` with entries of ``G`` from ``N(0, 1 / size)`` keeps every ``phi(a) . phi(b)`` on average, and squared
    norms with a relative std of ``sqrt(2 / size)`` (Johnson and Lindenstrauss, 1984). Pool and labelled rows need the
    same key.
    """
    width = features.shape[-1]
    if width <= size:
        return features
    return features @ (jax.random.normal(key, (width, size)) / size**0.5)


class _Nearest(NamedTuple):
    """The number of every row's nearest centre, and the squared distance to it."""

    centre: Array
    distance: Array


def _one_by_one(
    state: State,
    scores: Callable[[State, Array], Array],
    take: Callable[[State, Array, Array], State],
    pool: Pool,
    count: int,
) -> Array:
    """Picks the available row with the best score, ``count`` times.

    ``scores(state, available)`` gives a number for each row and ``take(state, row, place)`` the state with this row in
    the batch, as number ``place``. A row is available if it is not excluded or picked, and its
    group has not reached its limit.
    """
    if count > len(pool.features):
        raise ValueError(f"a batch of {count} different rows cannot come from a pool of {len(pool.features)}")

    def step(carry: tuple[State, Array, Array], place: Array) -> tuple[tuple[State, Array, Array], Array]:
        state, left, more = carry
        available = left & (more[pool.group] > 0)
        row = jnp.argmax(jnp.where(available, scores(state, available), -jnp.inf))
        return (take(state, row, place), left.at[row].set(False), more.at[pool.group[row]].add(-1)), row

    return jax.lax.scan(step, (state, ~pool.excluded, pool.group_limit), jnp.arange(count))[1]


def _whiten(pool: Pool) -> Array:
    """Rows in units of their noise, whose squared norm is ``uncertainty^2 / noise^2``."""
    return pool.features / jnp.sqrt(pool.noise**2 + _EPSILON)[:, None]


def _condition(rows: Array, picked: Array, covariance: Array) -> Array:
    """Whitened rows whose kernel is the one given a label of the picked row; ``covariance`` is ``rows @ picked``.

    Rows are multiplied by the symmetric root of ``I - picked picked^T / (1 + |picked|^2)`` (Potter, 1963). A variance
    that is the norm of what is left has a far smaller error in float32 than the difference of two variances, which
    would take the rounding of near duplicates for uncertainty.
    """
    root = jnp.sqrt(1 + picked @ picked)
    return rows - jnp.outer(covariance / (root * (root + 1)), picked)


def _nearest(pool: Pool, labelled: Array) -> _Nearest:
    """The nearest labelled row of every pool row, or the origin if there are none."""
    rows = pool.features
    if len(labelled) == 0:
        return _Nearest(jnp.zeros(len(rows), int), jnp.sum(rows**2, -1))
    # Distances do not change with the origin, but |c|^2 - 2 x . c is rounded least if it is in the middle.
    origin = labelled.mean(0)
    centres = labelled - origin
    norms = jnp.sum(centres**2, -1)
    rounding = 8 * jnp.finfo(rows.dtype).eps

    def one(row: Array) -> _Nearest:
        shifted = row - origin
        distances = norms - 2 * (centres @ shifted)
        # Of centres that differ by rounding alone the first, so that a repeat never parts the rows of a cluster.
        centre = jnp.argmax(distances <= distances.min() + rounding * (norms + shifted @ shifted))
        return _Nearest(centre, jnp.sum((row - labelled[centre]) ** 2))

    return jax.lax.map(one, rows, batch_size=_BLOCK)


def _add_centre(pool: Pool, labelled: Array) -> Callable[[_Nearest, Array, Array], _Nearest]:
    """How a pick becomes a centre: the rows that are closer to it than to theirs move over."""

    def take(nearest: _Nearest, row: Array, place: Array) -> _Nearest:
        centre = len(labelled) + place
        distance = jnp.sum((pool.features - pool.features[row]) ** 2, -1)
        # Before the first centre of all, distances are those from the origin, which is none.
        closer = (distance < nearest.distance) | (centre == 0)
        return _Nearest(jnp.where(closer, centre, nearest.centre), jnp.where(closer, distance, nearest.distance))

    return take
