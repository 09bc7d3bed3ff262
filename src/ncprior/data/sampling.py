"""Rows of a table that are drawn at random, in one pass over its pieces and in bounded memory."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

_SPARE = 0.25
"""Rows that wait to be drawn from, relative to those that are drawn, before some are dropped; a piece comes on top."""


class NumberedRows(NamedTuple):
    """Some rows of a table, with their indices in the whole, from 0."""

    table: pa.Table
    numbers: np.ndarray

    def where(self, chosen: np.ndarray) -> "NumberedRows":
        """The rows for which ``chosen`` is true."""
        # Unlike `take`, `filter` neither joins chunks, which may be too large, nor their dictionaries.
        return NumberedRows(self.table.filter(pa.array(chosen)), self.numbers[chosen])


class DrawnRows(NamedTuple):
    """Rows that were drawn, in their order."""

    rows: NumberedRows
    seen: int  # rows that there were,
    preferred: int  # and those that were preferred


def numbered(tables: Iterable[pa.Table]) -> Iterator[NumberedRows]:
    """The pieces of a table with the indices of their rows."""
    done = 0
    for table in tables:
        yield NumberedRows(table, np.arange(done, done + table.num_rows))
        done += table.num_rows


def draw_rows(
    pieces: Iterable[NumberedRows],
    most: int,
    rng: np.random.Generator,
    *,
    preferred: Callable[[pa.Table], np.ndarray] = lambda table: np.ones(table.num_rows, bool),
) -> DrawnRows | None:
    """Draw at most so many rows without replacement, all with the same probability.

    Every row has a random number, and those with the smallest are drawn. The numbers depend on the generator and on the
    index of the row alone, so that the same rows are drawn however the table is cut into pieces.

    Args:
        pieces: The table in pieces.
        most: How many rows to draw; all if there are no more.
        rng: Of the random numbers.
        preferred: Says which rows of a piece are drawn before all others.

    Returns:
        The rows, or None if there are no pieces.

    >>> whole = pa.table({"x": np.arange(10)})
    >>> drawn = draw_rows(numbered([whole.slice(0, 7), whole.slice(7)]), 3, np.random.default_rng(0))
    >>> drawn.rows.table["x"].to_pylist(), drawn.seen
    ([1, 2, 3], 10)
    """
    waiting: list[_Keyed] = []
    seen, liked, limit = 0, 0, np.inf
    for piece in pieces:
        first = preferred(piece.table)
        keys = rng.random(len(first)) + ~first
        seen, liked = seen + len(keys), liked + int(first.sum())
        inside = keys < limit
        waiting.append(_Keyed(piece if inside.all() else piece.where(inside), keys[inside]))
        if sum(len(one.keys) for one in waiting) > (1 + _SPARE) * most:
            waiting = [_smallest(waiting, most)]
            limit = waiting[0].keys.max()
    return DrawnRows(_smallest(waiting, most).rows, seen, liked) if waiting else None


class _Keyed(NamedTuple):
    rows: NumberedRows
    keys: np.ndarray


def _smallest(pieces: list[_Keyed], most: int) -> _Keyed:
    """The rows with the smallest keys; of equal ones the first."""
    table = pa.concat_tables([piece.rows.table for piece in pieces])
    rows = NumberedRows(table, np.concatenate([piece.rows.numbers for piece in pieces]))
    keys = np.concatenate([piece.keys for piece in pieces])
    if len(keys) <= most:
        return _Keyed(rows, keys)
    limit = np.partition(keys, most - 1)[most - 1]
    chosen = keys < limit
    chosen[np.flatnonzero(keys == limit)[: most - int(chosen.sum())]] = True
    rows = rows.where(chosen)
    return _Keyed(rows._replace(table=_with_small_dictionaries(rows.table)), keys[chosen])


def _with_small_dictionaries(table: pa.Table) -> pa.Table:
    """The table with dictionaries that hold no value but those of its rows."""
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            chunks = [_with_small_dictionary(chunk) for chunk in table.column(i).chunks]
            table = table.set_column(i, field, pa.chunked_array(chunks, field.type))
    return table


def _with_small_dictionary(values: pa.DictionaryArray) -> pa.DictionaryArray:
    encoded = values.dictionary_decode().dictionary_encode()
    indices = encoded.indices.cast(values.type.index_type)
    return pa.DictionaryArray.from_arrays(indices, encoded.dictionary, ordered=values.type.ordered)
