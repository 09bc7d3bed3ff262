"""Picking the best rows of a pool of any size, in one pass over its pieces.

Rules for batches compare rows with each other: they choose among `CANDIDATES` rows that are drawn at random on the way.
A row's random part depends on nothing but the seed and the row itself: its id, or else its number in the pool. So a
pool gives the same rows whole, in pieces of any size, and as a folder of shards; with ids also in any order, and shards
that are searched apart can be merged by their scores.
"""

import hashlib
from collections.abc import Callable, Hashable, Iterable, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pyarrow as pa
from jax import Array

from ncprior.data import column_values, table_files
from ncprior.data.formats.dialect import DialectOptions
from ncprior.errors import UserError
from ncprior.tables import batch_features
from ncprior.tables.batches import RULES
from ncprior.tables.columns import (
    dialect_of,
    input_types,
    prediction_columns,
    target_names,
    used_columns,
    with_columns,
)
from ncprior.tables.estimator import NCPRegressor

CANDIDATES = 50_000
"""Rows of a pool, at most, that a rule for batches compares."""


Key = str | bytes
"""What tells rows apart: an id, or all that a model sees of a row."""


class Picked(NamedTuple):
    """The rows that were picked, best first; how many the pool has, and how many of them were excluded."""

    rows: pa.Table
    pool: int
    excluded: int


@dataclass(frozen=True)
class Picker:
    """Picks rows of a pool that comes in pieces, by a rule for batches or by their scores.

    At temperature 0 the rows with the best scores are taken. Above it, rows are drawn from the softmax of the scores
    divided by the temperature, one after the other without replacement: by adding Gumbel noise, which ``seed`` decides,
    and taking the best sums (Kool et al., 2019).

    Args:
        count: How many rows to pick.
        acquisition: A name in `ncprior.tables.batches.RULES` or `ncprior.core.acquisition.SCORES`.
        temperature: Of the softmax; 0 for rules.
        seed: Of the draws.
        id_column: Column that names rows; rows with the same id count as one. None counts them from 1.
        options: What is known about the dialect of text files.

    >>> x = np.linspace(-1, 1, 40)
    >>> model = NCPRegressor(members=1, epochs=1, random_state=0).fit(pa.table({"x": x}), x)
    >>> pieces = [pa.table({"x": [0.1, 9.0]}), pa.table({"x": [0.2, -9.0, 0.3]})]
    >>> sorted(Picker(2, "uncertainty").pick(model, pieces).rows["row"].to_pylist())
    [2, 4]
    """

    count: int
    acquisition: str
    temperature: float = 0.0
    seed: int = 0
    id_column: str | None = None
    options: DialectOptions = table_files.PLAIN

    def stream(self, model: NCPRegressor, path: Path, rows: int = 65_536) -> Iterable[pa.Table]:
        """The pieces of a table, with ids and the columns that the model uses; ids in CSV are text, as written."""
        names, types = self._columns(model)
        return table_files.stream(path, names, rows=rows, schema=types, options=dialect_of(model, self.options))

    def schema(self, model: NCPRegressor, path: Path) -> pa.Schema:
        """Names and types of the columns of these pieces."""
        names, types = self._columns(model)
        return table_files.schema_of(path, names, schema=types, options=dialect_of(model, self.options))

    def _columns(self, model: NCPRegressor) -> tuple[list[str] | None, dict[str, pa.DataType]]:
        """The columns to read, and their types in CSV."""
        own = {self.id_column: pa.string()} if self.id_column else {}
        return list(dict.fromkeys([*own, *used_columns(model)])) or None, input_types(model) | own

    def keys_in(self, model: NCPRegressor, path: Path) -> set[Key]:
        """The `keys` of the rows in a file, such as rows not to pick; rows without an id are left out."""
        if self.id_column is None:
            return {key for piece in self.stream(model, path) for key in self.keys(model, piece, 1)}
        types = {self.id_column: pa.string()}
        pieces = table_files.stream(path, [self.id_column], schema=types, options=self.options)
        ids = (column_values.text(self.id_column, piece[self.id_column]) for piece in pieces)
        return {one for column in ids for one in column.to_pylist() if one is not None}

    def keys(self, model: NCPRegressor, piece: pa.Table, first_row: int = 1) -> list[Key]:
        """What tells the rows of a piece apart: the id, or else all that the model sees of a row."""
        if self.id_column is None:
            return [row.tobytes() for row in model.encoder_.transform(piece, first_row=first_row) + np.float32(0)]
        ids = column_values.text(self.id_column, piece[self.id_column])
        if ids.null_count:
            row = first_row + int(np.argmax(column_values.missing_in(ids)))
            raise UserError(f"row {row} of the pool has no id in column {self.id_column!r}; give every row one")
        return list(ids.to_pylist())

    def pick(
        self,
        model: NCPRegressor,
        pieces: Iterable[pa.Table],
        excluded: Set[Key] = frozenset(),
        advance: Callable[[int], None] = lambda _: None,
    ) -> Picked:
        """The best rows of a pool.

        Args:
            model: The trained estimator.
            pieces: The pool, as tables with the columns that the model uses, such as those of `stream`.
            excluded: `keys` of rows that must not be picked.
            advance: Called with the number of rows of every piece that is done.

        Raises:
            UserError: If the pool has fewer than ``count`` rows that can be picked.
        """
        if self.acquisition in RULES:
            draw = replace(self, acquisition="random", count=max(CANDIDATES, self.count))
            found = draw._search(model, pieces, excluded, advance)
        else:
            found = self._search(model, pieces, excluded, advance)
        if found.rows.num_rows < self.count:
            what = "rows that can be picked" if found.excluded or self.id_column else "rows"
            raise UserError(f"-n {self.count}: the pool has only {found.rows.num_rows:,} {what}; ask for fewer")
        rows = self._batch(model, found.rows) if self.acquisition in RULES else found.rows
        return found._replace(rows=with_columns(rows, {"rank": np.arange(1, self.count + 1)}, at=0))

    def _batch(self, model: NCPRegressor, rows: pa.Table) -> pa.Table:
        """The rows that the rule picks."""
        rule, key = RULES[self.acquisition], jax.random.key(self.seed)
        picked = batch_features.pick_batch(rule, model.fitted_, rows, self.count, key=key)
        return rows.take(picked).drop_columns(["score"])

    def _search(
        self,
        model: NCPRegressor,
        pieces: Iterable[pa.Table],
        excluded: Set[Key],
        advance: Callable[[int], None],
    ) -> Picked:
        """The rows with the best scores, or all if there are fewer."""
        kept: pa.Table | None = None
        scores, names = np.zeros(0), np.zeros(0, object)
        pool = left_out = 0
        for piece in pieces:
            numbers = np.arange(pool + 1, pool + 1 + piece.num_rows)
            keys = self.keys(model, piece, pool + 1) if self.id_column or excluded else []
            free = np.array([key not in excluded for key in keys]) if excluded else np.ones(len(numbers), bool)
            ids = np.array(keys, object) if self.id_column else numbers
            rows, new = self._scored(model, piece, numbers, ids)
            kept = rows.filter(free) if kept is None else pa.concat_tables([kept, rows.filter(free)])
            scores, names = np.concatenate([scores, new[free]]), np.concatenate([names, ids[free]])
            best = _best(scores, names, self.count)
            kept, scores, names = kept.take(best).combine_chunks(), scores[best], names[best]
            pool += piece.num_rows
            left_out += int((~free).sum())
            advance(piece.num_rows)
        return Picked(pa.table({}) if kept is None else kept, pool, left_out)

    def _scored(
        self, model: NCPRegressor, piece: pa.Table, numbers: np.ndarray, ids: np.ndarray
    ) -> tuple[pa.Table, np.ndarray]:
        """The rows with columns about their predictions, and the scores that they are ranked by."""
        prediction = model.predict_piece(piece, first_row=int(numbers[0]))
        logits = prediction.score(self.acquisition)
        if self.temperature > 0 or self.acquisition == "random":
            keys = hashed(ids) if self.id_column else numbers
            logits = logits / (self.temperature or 1.0) + row_noise(keys, self.seed)
        about = prediction_columns(prediction, target_names(model))
        why = {"score": logits, "information_gain": prediction.score("information_gain").astype(np.float32)}
        why |= {name: values for name, values in about.items() if not name.startswith("std")}
        if self.id_column is None:
            return with_columns(piece, {"row": numbers, **why}, at=0), logits
        return with_columns(piece, why, at=1), logits


def row_noise(numbers: np.ndarray, seed: int) -> np.ndarray:
    """Gumbel noise, for each row from the seed and its own 64-bit number alone: Threefry, by `jax.random.fold_in`."""
    numbers = numbers.astype(np.uint64)
    halves = ((numbers >> np.uint64(32)).astype(np.uint32), numbers.astype(np.uint32))
    bits = np.asarray(_bits(jax.random.key(seed), *halves)).astype(np.float64)
    # Finest at the upper end, where the rows that are picked come from: there the uniform number is near 0.
    uniform = np.minimum((bits[:, 0] + (bits[:, 1] + 0.5) * 2.0**-32) * 2.0**-32, 1 - 2.0**-53)
    return -np.log(-np.log1p(-uniform))


@jax.jit
@partial(jax.vmap, in_axes=(None, 0, 0))
def _bits(key: Array, high: Array, low: Array) -> Array:
    return jax.random.bits(jax.random.fold_in(jax.random.fold_in(key, high), low), (2,))


def hashed(ids: Iterable[str]) -> np.ndarray:
    """A 64-bit number for each id, the same everywhere and always."""
    return np.array([int.from_bytes(hashlib.blake2b(one.encode(), digest_size=8).digest()) for one in ids], np.uint64)


def _best(scores: np.ndarray, ids: np.ndarray, count: int) -> np.ndarray:
    """Numbers of the rows with the best scores, best first; of equal ones, the first; of one id, only the best."""
    picked: dict[Hashable, int] = {}
    for row in np.argsort(-scores, kind="stable"):
        picked.setdefault(ids[row], int(row))
        if len(picked) == count:
            break
    return np.array(list(picked.values()), np.int64)
