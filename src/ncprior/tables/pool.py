"""Picking the best rows of a pool of any size, in one pass over its pieces.

Rules for batches compare rows with each other: they choose among candidates that are drawn on the way (see
`ncprior.tables.candidates`). A row's random part depends on nothing but the seed and the row itself: its id, or else
its number in the pool. So a pool gives the same rows whole, in pieces of any size, and as a folder of shards; with ids
also in any order, and what was found in shards that are searched apart can be merged.
"""

import math
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pyarrow as pa

from ncprior.data import column_values, table_files
from ncprior.data.formats.dialect import PLAIN, DialectOptions
from ncprior.errors import UserError
from ncprior.tables import batch_features, candidates
from ncprior.tables.batches import RULES
from ncprior.tables.candidates import Kept, Reservoir, RowWeights, hashed, row_keys, row_noise
from ncprior.tables.columns import (
    dialect_of,
    input_types,
    prediction_columns,
    target_names,
    used_columns,
    with_columns,
)
from ncprior.tables.constraints import Constraints, PerGroup, costs_in, groups_in, score_for_cost
from ncprior.tables.estimator import NCPRegressor

Key = str | bytes
"""Identifies a row: its id, or all encoded values of the row."""


class Picked(NamedTuple):
    """The picked rows, best first; the number of rows of the pool, and how many of them were excluded."""

    rows: pa.Table
    pool: int
    excluded: int


class Found(NamedTuple):
    """The result of a pass over a pool or a part of it: rows that include the best, and how many were read."""

    kept: Kept | None  # None if there was no piece
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
        compared: How many candidates a rule compares, at most; None for `CANDIDATES`, or ``count`` if that is more.
        cost: Column that says what the label of a row costs: rows are picked by what they gain for each unit of it.
        per: A column of groups, and how many rows of each are picked at most.
        output_weights: How much each output counts; empty for all the same.

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
    options: DialectOptions = PLAIN
    compared: int | None = None
    cost: str | None = None
    per: PerGroup | None = None
    output_weights: tuple[float, ...] = ()

    def stream(
        self, model: NCPRegressor, path: Path, rows: int = 65_536, units: Sequence[table_files.Unit] | None = None
    ) -> Iterable[pa.Table]:
        """The pieces of a table, with ids and the columns that the model uses; ids in CSV are text, as written."""
        names, types = self._columns(model)
        options = dialect_of(model.encoder_, self.options)
        return table_files.stream(path, names, rows=rows, schema=types, options=options, units=units)

    def schema(self, model: NCPRegressor, path: Path) -> pa.Schema:
        """Names and types of the columns of these pieces."""
        names, types = self._columns(model)
        return table_files.schema_of(path, names, schema=types, options=dialect_of(model.encoder_, self.options))

    def _columns(self, model: NCPRegressor) -> tuple[list[str] | None, dict[str, pa.DataType]]:
        """The columns to read, and their types in CSV."""
        ids = {self.id_column: pa.string()} if self.id_column else {}
        inputs = input_types(model.encoder_)
        more = {self.cost: pa.float64()} if self.cost else {}
        more |= {self.per.column: pa.string()} if self.per else {}
        return list(dict.fromkeys([*ids, *more, *used_columns(model.encoder_)])) or None, more | inputs | ids

    def keys_in(self, model: NCPRegressor, path: Path) -> set[Key]:
        """The `keys` of the rows in a file, such as rows not to pick; rows without an id are left out."""
        if self.id_column is None:
            plain = replace(self, cost=None, per=None)  # which these rows need not have
            return {key for piece in plain.stream(model, path) for key in self.keys(model, piece, 1)}
        types = {self.id_column: pa.string()}
        pieces = table_files.stream(path, [self.id_column], schema=types, options=self.options)
        ids = (column_values.text(self.id_column, piece[self.id_column]) for piece in pieces)
        return {one for column in ids for one in column.to_pylist() if one is not None}

    def keys(self, model: NCPRegressor, piece: pa.Table, first_row: int = 1) -> list[Key]:
        """Identifies the rows of a piece: by their ids, or else by all encoded values of a row."""
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
        return self.choose(model, self.search(model, pieces, excluded, advance))

    def search(
        self,
        model: NCPRegressor,
        pieces: Iterable[pa.Table],
        excluded: Set[Key] = frozenset(),
        advance: Callable[[int], None] = lambda _: None,
        *,
        first_row: int = 1,
        part_of: int | None = None,
    ) -> Found:
        """One pass over a pool or a part of it, in bounded memory: all rows that `choose` may pick.

        Args:
            model: The trained estimator.
            pieces: The tables.
            excluded: `keys` of rows that must not be picked.
            advance: Called with the number of rows of every piece that is done.
            first_row: The number of the first row in the pool.
            part_of: The number of rows of the whole pool, if this is a part of it, 0 if it is not known: rows are left
                out that cannot be candidates, so that the parts have few rows in all.
        """
        by_rule = self.acquisition in RULES
        reservoir = self._reservoir()
        self._output_weights(model)  # raises if they have no meaning, before the pool is read
        lowest = self.lowest_keys(part_of, len(excluded)) if part_of is not None else None
        weigh: RowWeights | None = None
        waiting: list[_Piece] = []  # as long as all rows are candidates, they need no keys
        pool = left_out = 0
        for table in pieces:
            piece = self._piece(model, table, first_row + pool, excluded)
            waiting.append(piece)
            pool += table.num_rows
            left_out += int((~piece.free).sum())
            if not by_rule or lowest is not None or pool > self.most_compared:
                if by_rule and weigh is None:
                    weigh = RowWeights(model.fitted_, model.fitted_.training_sample)
                for one in waiting:
                    reservoir.add(_above(one.kept(self._keys(model, one, weigh)), lowest))
                waiting = []
            advance(table.num_rows)
        for one in waiting:
            reservoir.add(one.kept(row_keys(one.numbers, np.zeros(len(one.numbers)), self.seed)))
        return Found(reservoir.kept(), pool, left_out)

    def _piece(self, model: NCPRegressor, table: pa.Table, first_row: int, excluded: Set[Key]) -> "_Piece":
        """The rows of a table with their numbers, and which of them may be picked."""
        keys = self.keys(model, table, first_row) if self.id_column or excluded else []
        free = np.array([key not in excluded for key in keys], bool) if excluded else np.ones(table.num_rows, bool)
        numbers = np.arange(first_row, first_row + table.num_rows, dtype=np.uint64)
        if self.id_column:
            numbers = hashed(map(str, keys))
        # Errors name rows by their number in the pool, also where rows are not predicted.
        inputs = model.encoder_.transform(table, first_row=first_row) if self._by_keys else None
        cost = costs_in(table, self.cost, first_row) if self.cost else None
        if self.per:
            groups_in(table, self.per.column, first_row)
        return _Piece(table, numbers, free, first_row, inputs, cost)

    def lowest_keys(self, rows: int, excluded: int = 0) -> tuple[float, ...]:
        """Lower bounds of the keys of the best rows, for a pool of so many rows."""
        if self.acquisition not in RULES:
            return (-math.inf,)
        return candidates.lowest_keys(max(rows - excluded, 0), self.most_compared)

    def merge(self, parts: Iterable[Found], rows: int | None = None, excluded: int = 0) -> Found:
        """What was found in all parts of a pool, as if it had been searched whole.

        Args:
            parts: What was found in each.
            rows: The number of rows of the whole pool that was given to `search`, if any.
            excluded: How many rows were not to be picked, as there.

        Raises:
            UserError: If the parts left out rows that would have been found in the whole.
        """
        reservoir, pool, left_out = self._reservoir(), 0, 0
        for part in parts:
            if part.kept is not None:
                reservoir.add(part.kept)
            pool += part.pool
            left_out += part.excluded
        kept = reservoir.kept()
        lowest = self.lowest_keys(rows, excluded) if rows is not None else (-math.inf,)
        for size, key, found in zip(self._sizes, lowest, () if kept is None else kept.keys.T, strict=False):
            if kept is not None and key > -math.inf and len(np.unique(kept.numbers[found >= key])) < size:
                raise UserError(
                    f"of {pool:,} rows too few have an id of their own, or may be picked, to be searched in parts; "
                    "leave rows that repeat an id out of the pool, or search it whole"
                )
        return Found(kept, pool, left_out)

    def choose(self, model: NCPRegressor, found: Found) -> Picked:
        """The best of the rows found, with columns of their predictions.

        Raises:
            UserError: If they are fewer than ``count``.
        """
        kept = found.kept
        numbers = np.zeros(0, np.uint64) if kept is None else kept.numbers
        if kept is None or (distinct := len(np.unique(numbers))) < self.count:
            distinct = 0 if kept is None else distinct
            what = "rows that can be picked" if found.excluded or self.id_column or self.per else "rows"
            raise UserError(f"-n {self.count}: the pool has only {distinct:,} {what}; ask for fewer")
        if self.acquisition in RULES:
            drawn = candidates.draw(kept, self.most_compared, self.seed)
            compared = kept.take(drawn.rows)
            constraints = Constraints.of_columns(compared.rows, self.cost, self.per)
            constraints.check_enough(self.count)
            rows = batch_features.pick_batch(
                RULES[self.acquisition],
                model.fitted_,
                compared.rows,
                self.count,
                key=jax.random.key(self.seed),
                weights=drawn.weights,
                constraints=constraints,
                output_weights=self._output_weights(model),
            )
            best = compared.take(rows)
        else:
            best = kept.take(candidates.best(kept.keys, kept.numbers, self.count))
        return Picked(self._described(model, best), found.pool, found.excluded)

    def _reservoir(self) -> Reservoir:
        """Keeps the best rows. Rules handle groups themselves, as they choose among all candidates."""
        return Reservoir(self._sizes, None if self.acquisition in RULES else self.per)

    def _output_weights(self, model: NCPRegressor) -> np.ndarray | None:
        outputs = len(model.target_shift_)
        return batch_features.output_weights_for(self.acquisition, self.output_weights or None, outputs)

    @property
    def _by_keys(self) -> bool:
        """Whether rows are kept without a prediction."""
        return self.acquisition in RULES or self.acquisition == "random"

    @property
    def most_compared(self) -> int:
        """How many candidates a rule compares, at most."""
        return self.compared or max(candidates.CANDIDATES, self.count)

    @property
    def _sizes(self) -> tuple[int, ...]:
        """How many rows to keep by each kind of key."""
        return candidates.sizes(self.most_compared) if self.acquisition in RULES else (self.count,)

    def _keys(self, model: NCPRegressor, piece: "_Piece", weigh: RowWeights | None) -> np.ndarray:
        """The keys that rows are kept by: those of candidates, or a score."""
        if weigh is not None and piece.inputs is not None:
            return row_keys(piece.numbers, weigh(piece.inputs), self.seed)
        random = self.acquisition == "random"
        scores = np.zeros(len(piece.numbers))
        if not random:
            prediction = model.predict_piece(piece.table, first_row=piece.first_row)
            scores = prediction.score(self.acquisition, self._output_weights(model))
        scores = score_for_cost(scores, piece.cost, self.acquisition, self.temperature)
        if self.temperature > 0 or random:
            scores = scores + row_noise(piece.numbers, self.seed)
        return scores[:, None]

    def _described(self, model: NCPRegressor, best: Kept) -> pa.Table:
        """The rows, best first, with columns about them and their predictions."""
        prediction = model.predict_piece(best.rows)
        why = {} if self.acquisition in RULES else {"score": best.keys[:, 0]}
        why["information_gain"] = prediction.score("information_gain").astype(np.float32)
        about = prediction_columns(prediction, target_names(model))
        why |= {name: values for name, values in about.items() if not name.startswith("std")}
        if self.id_column is None:
            rows = with_columns(best.rows, {"row": best.numbers.astype(np.int64), **why}, at=0)
        else:
            rows = with_columns(best.rows, why, at=1)
        return with_columns(rows, {"rank": np.arange(1, self.count + 1)}, at=0)


class _Piece(NamedTuple):
    """A piece of a pool."""

    table: pa.Table
    numbers: np.ndarray  # that tell the rows apart
    free: np.ndarray  # whether they may be picked
    first_row: int
    inputs: np.ndarray | None  # encoded, if rows are not predicted
    cost: np.ndarray | None  # of their labels, if they differ

    def kept(self, keys: np.ndarray) -> Kept:
        """The rows that may be picked, with these keys."""
        return Kept(self.table.filter(self.free), self.numbers[self.free], keys[self.free])


def _above(part: Kept, lowest: tuple[float, ...] | None) -> Kept:
    """The rows with at least one key above its lower bound."""
    if lowest is None:
        return part
    worth = (part.keys >= np.array(lowest)).any(1)
    return Kept(part.rows.filter(worth), part.numbers[worth], part.keys[worth])
