"""Candidates: the rows of a pool of any size that a rule for batches compares, drawn in one pass.

Half of them are drawn uniformly, the others by weights that grow with the squared distance from the labelled rows and
with the uncertainty of one member: a lightweight core-set (Bachem et al., 2018), in which a region that few rows of the
pool fall into has candidates, too. Rows are drawn by Gumbel keys, the largest of which win (Kool et al., 2019). A row's
keys depend on nothing but the seed, the model and the row itself: its id, or else its number in the pool. So a pool has
the same candidates whole, in pieces of any size and in shards that are searched apart.
"""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from jax import Array

from ncprior.core.blocks import predict_in_blocks
from ncprior.tables.constraints import PerGroup, among_first, groups_in
from ncprior.tables.familiarity import novelty
from ncprior.tables.fitted import Fitted
from ncprior.tables.programs import UNCERTAINTY, chunked, padded_size
from ncprior.tables.recipe import subsample

CANDIDATES = 50_000
"""Rows of a pool, at most, that a rule for batches compares, unless it picks more."""

LARGEST_WEIGHT = 100.0
"""Of a row, where that of a row like the labelled ones is 1. It bounds what shards keep (see `lowest_keys`)."""

PIECE = 65_536
"""Rows of a table in memory that are predicted at a time."""

_UNIFORM, _WEIGHTED = 0, 1
"""The two kinds of keys."""

_FAR = 0.9
"""A row of weight 1 is as far from the labelled rows as this share of them are from each other, at most."""

_BLOCK = 64
"""Rows whose distances are computed together; always as many, so that rounding does not depend on the others."""

_TIE = 1e-9
"""What weights beyond the bounds still count for: rows of one id are told apart, whatever their order."""

_SPARE = 1.25
"""How many rows shards keep for one that is drawn: some may be excluded, or have an id that others have."""


def sizes(count: int) -> tuple[int, int]:
    """How many rows to keep by uniform and by weighted keys, such that ``count`` candidates can be drawn from them.

    One more of each says how likely the others were drawn.
    """
    return count // 2 + 1, count + 1


class Candidates(NamedTuple):
    """The candidates, by the numbers of rows that were kept, and how many rows of the pool each stands for."""

    rows: np.ndarray
    weights: np.ndarray


def draw(kept: "Kept", count: int, seed: int) -> Candidates:
    """Draws candidates from the rows that were kept by their keys: half by uniform ones, then by weighted ones.

    A row is drawn if one of its keys is above that of the first row left out, ``c``. For a weight ``w`` that has the
    probability ``1 - exp(-w exp(-c))``, and its inverse is what the row stands for (Horvitz and Thompson, 1952).

    Args:
        kept: Rows with keys of `row_keys`, `sizes` of them or all.
        count: How many to draw.
        seed: That of the keys.
    """
    (uniform, weighted), numbers = kept.keys.T, kept.numbers
    first = best(kept.keys, numbers, count // 2, _UNIFORM)
    others = np.flatnonzero(~np.isin(numbers, numbers[first]))
    second = others[best(kept.keys[others], numbers[others], count - len(first), _WEIGHTED)]
    rows = np.concatenate([first, second])
    rows = rows[best(kept.keys[rows], numbers[rows], len(rows), _UNIFORM)]  # in an order that all pools have
    left = np.flatnonzero(~np.isin(numbers, numbers[rows]))
    cut = np.max(uniform[others], initial=-np.inf), np.max(weighted[left], initial=-np.inf)
    log_weights = weighted[rows] - row_noise(kept.numbers[rows], seed, stream=1)
    with np.errstate(over="ignore"):  # where no row was left out
        return Candidates(rows, -1 / np.expm1(-np.exp(-cut[0]) - np.exp(log_weights - cut[1])))


def of_table(
    fitted: Fitted,
    table: pa.Table,
    count: int,
    *,
    excluded: np.ndarray,
    labelled: np.ndarray | None = None,
    seed: int = 0,
) -> Candidates:
    """Draws candidates from a table, by the numbers of its rows.

    Args:
        fitted: The trained ensemble.
        table: The pool.
        count: How many to draw, at most.
        excluded: True for rows that are none ``[rows]``.
        labelled: Encoded rows that have labels; None for those that the ensemble keeps of its training rows.
        seed: Of the draw.
    """
    weigh = RowWeights(fitted, fitted.training_sample if labelled is None else labelled)
    reservoir = Reservoir(sizes(count))
    for start in range(0, table.num_rows, PIECE):
        piece = table.slice(start, PIECE)
        free = ~excluded[start : start + PIECE]
        numbers = np.arange(start, start + piece.num_rows, dtype=np.uint64)[free]
        keys = row_keys(numbers, weigh(fitted.encoder.transform(piece, first_row=start + 1))[free], seed)
        reservoir.add(Kept(pa.table({"row": numbers}), numbers, keys))
    kept = reservoir.kept()
    assert kept is not None
    drawn = draw(kept, count, seed)
    order = np.argsort(kept.numbers[drawn.rows])
    return Candidates(kept.numbers[drawn.rows][order].astype(np.int64), drawn.weights[order])


def row_keys(numbers: np.ndarray, log_weights: np.ndarray, seed: int) -> np.ndarray:
    """A uniform and a weighted key for each row ``[rows, 2]``."""
    return np.stack([row_noise(numbers, seed), log_weights + row_noise(numbers, seed, stream=1)], axis=1)


def lowest_keys(rows: int, count: int) -> tuple[float, float]:
    """Keys below which a row of a pool of so many rows is no candidate, whatever the other shards hold.

    Weights are at least 1, so that more than ``count`` rows have keys above those of as many uniform draws; the chance
    that they are fewer is below that of 8 standard deviations. All shards together keep about
    ``count`` times 0.6 rows by the uniform keys and 1.3 times the average weight by the weighted ones.

    >>> [round(key, 2) for key in lowest_keys(10**9, 50_000)]
    [10.33, 9.65]
    """
    return _lowest(rows, sizes(count)[0]), _lowest(rows, sizes(count)[1])


def _lowest(rows: int, size: int) -> float:
    expected = _SPARE * size + 8 * math.sqrt(size) + 64
    return -math.log(-math.log1p(-expected / rows)) if expected < rows else -math.inf


class RowWeights:
    """The weights of rows: squared distance from the labelled rows, times an uncertainty that takes little time.

    That is what contrast networks say, or else the uncertainty of the first member.

    Both are relative to what labelled rows have, and the product is kept between 1 and `LARGEST_WEIGHT`.

    Args:
        fitted: The trained ensemble.
        labelled: Encoded rows that have labels, of which 1,000 at most are compared with.
    """

    def __init__(self, fitted: Fitted, labelled: np.ndarray) -> None:
        self._engine, self._contrast = fitted.engine, fitted.contrast
        first = jax.tree.map(lambda leaf: leaf[:1], fitted.weights)
        self._member = self._engine.on_device(first), fitted.calibration.of(np.arange(1))
        rows = subsample(labelled, seed=0)
        # With repeats, so that labels of about the same number share a program.
        self._labelled = np.pad(rows, ((0, padded_size(len(rows)) - len(rows)), (0, 0)), mode="edge")
        self._distance = _typical_distance(rows)
        self._uncertainty = float(np.median(self._uncertain(rows)))

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        """The logarithms of the weights of encoded rows."""
        distances = chunked(lambda part: _DISTANCES(part, self._labelled), inputs)
        weights = distances.astype(np.float64) / self._distance
        if self._uncertainty > 0:  # else the method has none
            weights *= self._uncertain(inputs) / self._uncertainty
        logs = np.log(np.maximum(weights, np.finfo(float).tiny))
        return np.clip(logs, 0.0, math.log(LARGEST_WEIGHT)) + _TIE * logs

    def _uncertain(self, inputs: np.ndarray) -> np.ndarray:
        if self._contrast is not None:
            return np.asarray(chunked(self._contrast.spread, inputs), np.float64)
        return novelty(chunked(lambda part: UNCERTAINTY(self._engine.predict(*self._member, part)), inputs))


@jax.jit
def _DISTANCES(rows: Array, labelled: Array) -> Array:  # noqa: N802
    """The squared distances of rows to the nearest labelled one."""
    origin = labelled.mean(0)
    centres = labelled - origin
    norms = jnp.sum(centres**2, axis=1)

    def nearest(part: Array) -> Array:
        shifted = part - origin
        return jnp.maximum(jnp.min(norms - 2 * shifted @ centres.T, axis=1) + jnp.sum(shifted**2, axis=1), 0.0)

    return predict_in_blocks(nearest, rows, block=_BLOCK)


def _typical_distance(rows: np.ndarray) -> float:
    """The squared distance within which most rows have another one; of rows that are all equal, 1."""
    if len(rows) < 2:
        return 1.0
    squares = (rows.astype(np.float64) ** 2).sum(1)
    between = squares[:, None] - 2 * rows.astype(np.float64) @ rows.T + squares
    np.fill_diagonal(between, np.inf)
    nearest = np.maximum(between.min(1), 0)
    return float(np.quantile(nearest, _FAR) or nearest.mean() or 1.0)


class Kept(NamedTuple):
    """Rows of a pool with what tells them apart, and the keys by which they were kept ``[rows, kinds of keys]``."""

    rows: pa.Table
    numbers: np.ndarray  # of 64 bits: hashes of their ids, or their numbers in the pool
    keys: np.ndarray

    def take(self, chosen: np.ndarray) -> "Kept":
        """Some of these rows."""
        return Kept(self.rows.take(chosen).combine_chunks(), self.numbers[chosen], self.keys[chosen])


@dataclass
class Reservoir:
    """Keeps the rows with the largest keys, so many of each kind of key, of tables that come one after the other.

    Rows with the same number count as one, the best. Of rows with the same key, that with the smallest number is the
    best: the result does not depend on the order of the tables.

    Args:
        sizes: How many rows to keep by each kind of key.
        per: How many rows of each group to keep, at most.
    """

    sizes: tuple[int, ...]
    per: PerGroup | None = None
    _parts: list[Kept] = field(default_factory=list)
    _cut: np.ndarray | None = None  # keys below which rows need not be looked at

    def add(self, part: Kept) -> None:
        """Adds rows."""
        if self._cut is not None:
            worth = (part.keys >= self._cut).any(1)
            part = Kept(part.rows.filter(worth), part.numbers[worth], part.keys[worth])
        self._parts.append(part)
        if sum(len(one.numbers) for one in self._parts) > 2 * sum(self.sizes):
            self._parts = [self._best()]

    def kept(self) -> Kept | None:
        """The rows that were kept, in the order in which they came; None if no table came."""
        return self._best() if self._parts else None

    def _best(self) -> Kept:
        whole = Kept(
            pa.concat_tables([part.rows for part in self._parts]),
            np.concatenate([part.numbers for part in self._parts]),
            np.concatenate([part.keys for part in self._parts]),
        )
        found = [self._limited(whole, kind)[:size] for kind, size in enumerate(self.sizes)]
        full = [len(rows) == size for rows, size in zip(found, self.sizes, strict=True)]
        last = [keys[rows[-1]] if len(rows) else -np.inf for keys, rows in zip(whole.keys.T, found, strict=True)]
        self._cut = np.where(full, last, -np.inf)
        return whole.take(np.unique(np.concatenate(found)))

    def _limited(self, whole: Kept, kind: int) -> np.ndarray:
        """The rows, best first, each number once, without those that their group has no room for."""
        if self.per is None:
            return best(whole.keys, whole.numbers, self.sizes[kind], kind)
        order = best(whole.keys, whole.numbers, len(whole.numbers), kind)
        return order[among_first(groups_in(whole.rows, self.per.column)[order], self.per.most)]


def best(keys: np.ndarray, numbers: np.ndarray, count: int, kind: int = 0) -> np.ndarray:
    """The rows with the largest keys of a kind, best first, each number once.

    Of equal keys, the smallest number; of these, the one whose other keys are largest.

    >>> best(np.array([[1.0], [5.0], [5.0], [7.0]]), np.array([3, 9, 8, 3]), 3)
    array([3, 2, 1])
    """
    order = np.lexsort((*-keys.T, numbers, -keys[:, kind]))
    first = np.unique(numbers[order], return_index=True)[1]
    return order[np.sort(first)[:count]]


def row_noise(numbers: np.ndarray, seed: int, stream: int = 0) -> np.ndarray:
    """Gumbel noise, for each row from the seed and its own 64-bit number alone: Threefry, by `jax.random.fold_in`.

    Another ``stream`` gives other noise.
    """
    numbers = numbers.astype(np.uint64)
    halves = ((numbers >> np.uint64(32)).astype(np.uint32), numbers.astype(np.uint32))
    key = jax.random.fold_in(jax.random.key(seed), stream) if stream else jax.random.key(seed)
    bits = chunked(partial(_bits, key), *halves).astype(np.float64)
    # Finest at the upper end, where the rows that are picked come from: there the uniform number is near 0.
    uniform = np.minimum((bits[:, 0] + (bits[:, 1] + 0.5) * 2.0**-32) * 2.0**-32, 1 - 2.0**-53)
    return -np.log(-np.log1p(-uniform))


@jax.jit
@partial(jax.vmap, in_axes=(None, 0, 0))
def _bits(key: Array, high: Array, low: Array) -> Array:
    return jax.random.bits(jax.random.fold_in(jax.random.fold_in(key, high), low), (2,))


def hashed(ids: Iterable[str]) -> np.ndarray:
    """A 64-bit number for each id, the same everywhere and always."""
    digests = b"".join(hashlib.blake2b(one.encode(), digest_size=8).digest() for one in ids)
    return np.frombuffer(digests, ">u8").astype(np.uint64)
