"""Rows of a table that are drawn at random, in one pass over its pieces and in bounded memory."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

_SPARE = 4
"""Rows that wait to be drawn from are at most this part more than those that are drawn."""


class NumberedRows(NamedTuple):
    """Some rows of a table, with their places in the whole, from 0."""

    table: pa.Table
    numbers: np.ndarray

    def take(self, rows: np.ndarray) -> "NumberedRows":
        """Some of these."""
        return NumberedRows(self.table.take(rows), self.numbers[rows])


class DrawnRows(NamedTuple):
    """Rows that were drawn, in their order, and how many there were."""

    rows: NumberedRows
    seen: int


def numbered(tables: Iterable[pa.Table]) -> Iterator[NumberedRows]:
    """The pieces of a table with the places of their rows."""
    done = 0
    for table in tables:
        yield NumberedRows(table, np.arange(done, done + table.num_rows))
        done += table.num_rows


def draw_rows(pieces: Iterable[NumberedRows], most: int, rng: np.random.Generator) -> DrawnRows | None:
    """Draw at most so many rows without replacement, all with the same probability.

    Every row has a random number, and those with the smallest are drawn. The numbers depend on the generator and on how
    many rows came before alone, so that the same rows are drawn however the table is cut into pieces.

    Args:
        pieces: The rows to draw from, in pieces.
        most: How many to draw; all if there are no more.
        rng: Of the random numbers.

    Returns:
        The rows, or None if there are no pieces.

    >>> whole = pa.table({"x": np.arange(10)})
    >>> drawn = draw_rows(numbered([whole.slice(0, 7), whole.slice(7)]), 3, np.random.default_rng(0))
    >>> drawn.rows.table["x"].to_pylist(), drawn.seen
    ([1, 2, 3], 10)
    """
    waiting: list[_Keyed] = []
    seen, limit = 0, np.inf
    for piece in pieces:
        keys = rng.random(len(piece.numbers))
        inside = np.flatnonzero(keys < limit)
        whole = len(inside) == len(keys)
        waiting.append(_Keyed(piece if whole else piece.take(inside), keys if whole else keys[inside]))
        seen += len(keys)
        if sum(len(one.keys) for one in waiting) > most + most // _SPARE:
            waiting = [_smallest(waiting, most)]
            limit = waiting[0].keys.max()
    return DrawnRows(_smallest(waiting, most).rows, seen) if waiting else None


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
    below, level = np.flatnonzero(keys < limit), np.flatnonzero(keys == limit)
    chosen = np.sort(np.concatenate([below, level[: most - len(below)]]))
    return _Keyed(rows.take(chosen), keys[chosen])
