"""What labels cost, and how many rows of a group may be labelled together."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from ncprior.core.acquisition import SCORES, Score
from ncprior.data import column_values
from ncprior.errors import UserError


class PerGroup(NamedTuple):
    """A column that names groups of rows, and how many rows of each may be picked together."""

    column: str
    most: int


class Constraints(NamedTuple):
    """What is known about costs and groups of the rows of a pool.

    Attributes:
        cost: What each label costs, in any unit ``[rows]``; None if all cost the same.
        groups: The number of each row's group, counted from 0 ``[rows]``; None without a limit.
        per_group: How many rows of each group may be picked together.
    """

    cost: np.ndarray | None = None
    groups: np.ndarray | None = None
    per_group: int = 0

    @classmethod
    def of(cls, rows: int, cost: ArrayLike | None, per: tuple[ArrayLike, int] | None) -> "Constraints":
        """Costs and groups of so many rows, as they are given in Python.

        Raises:
            UserError: If a cost is not a positive number, or there is not one cost and one group for each row.
        """
        costs = None
        if cost is not None:
            try:
                costs = np.asarray(cost, np.float64)
            except (TypeError, ValueError) as error:
                raise UserError(f"cost must be a positive number for each of {rows} rows, got {cost!r}") from error
            if costs.shape != (rows,):
                raise UserError(f"cost has shape {costs.shape}; give one positive number for each of {rows} rows")
            check_costs(costs, "cost")
        if per is None:
            return cls(costs)
        if not isinstance(per, tuple) or len(per) != 2 or not isinstance(per[1], int | np.integer):
            raise UserError("per must be a pair: the group of each row, and how many rows of a group may be picked")
        named, most = np.asarray(per[0]), int(per[1])
        if named.shape != (rows,):
            raise UserError(f"per has groups of shape {named.shape}; give one for each of {rows} rows")
        check_per_group(most)
        return cls(costs, np.unique(named.astype(str), return_inverse=True)[1], most)

    @classmethod
    def of_columns(cls, table: pa.Table, cost: str | None, per: PerGroup | None) -> "Constraints":
        """Costs and groups of the rows of a table, as columns of it say."""
        costs = None if cost is None else costs_in(table, cost)
        if per is None:
            return cls(costs)
        return cls(costs, np.unique(groups_in(table, per.column), return_inverse=True)[1], per.most)

    def take(self, rows: np.ndarray) -> "Constraints":
        """Those of some of the rows."""
        cost, groups = (None if part is None else part[rows] for part in (self.cost, self.groups))
        return Constraints(cost, groups, self.per_group)

    def most(self, free: np.ndarray) -> int:
        """How many of the rows that are free ``[rows]`` can be picked together."""
        if self.groups is None:
            return int(free.sum())
        return int(np.minimum(np.bincount(self.groups[free]), self.per_group).sum())

    def check_enough(self, count: int) -> None:
        """Raise unless so many of these rows can be picked together."""
        if self.groups is not None and (most := self.most(np.ones(len(self.groups), bool))) < count:
            raise UserError(
                f"cannot pick {count} rows: of {len(self.groups):,} candidates {most:,} can be picked together, "
                f"{self.per_group} of a group at most; ask for fewer, or allow more of each group"
            )

    def within(self, rows: np.ndarray) -> np.ndarray:
        """Of rows in order, the best first, those that the limit of their group leaves."""
        return rows if self.groups is None else rows[among_first(self.groups[rows], self.per_group)]


NO_CONSTRAINTS = Constraints()
"""All rows cost the same, and any may be picked together."""


def check_costs(costs: np.ndarray, name: str, first_row: int = 1) -> None:
    """Raise unless all costs are positive and finite; rows are counted from ``first_row``."""
    bad = np.flatnonzero(~(np.isfinite(costs) & (costs > 0)))
    if len(bad):
        shown = ", ".join(str(first_row + row) for row in bad[:5]) + (f" and {len(bad) - 5:,} more" * (len(bad) > 5))
        what = "is missing" if np.isnan(costs[bad[0]]) else f"is {costs[bad[0]]:g}"
        raise UserError(
            f"{name}: costs must be positive numbers, and that of row {first_row + bad[0]} {what}; "
            f"mend row{'s' * (len(bad) > 1)} {shown}"
        )


def check_per_group(most: int) -> None:
    """Raise unless rows of a group may be picked at all."""
    if most < 1:
        raise UserError(f"at most {most} rows of a group leaves none to pick; give a whole number from 1 up")


def costs_in(table: pa.Table, name: str, first_row: int = 1) -> np.ndarray:
    """The costs in a column, which are positive numbers."""
    try:
        costs = column_values.numbers(name, table[name], first_row)[0]
    except UserError as error:
        found = str(error).partition(";")[0].partition(", which was")[0]
        raise UserError(f"{found}: costs must be positive numbers; mend it, or name another column") from error
    check_costs(costs, f"column {name!r}", first_row)
    return costs


def groups_in(table: pa.Table, name: str, first_row: int = 1) -> np.ndarray:
    """The names of groups in a column, as text; every row must have one."""
    named = column_values.text(name, table[name])
    if named.null_count:
        row = first_row + int(np.argmax(column_values.missing_in(named)))
        raise UserError(f"row {row} of the pool has no group in column {name!r}; give every row one")
    return np.array(named.to_pylist(), str)


def among_first(groups: np.ndarray, most: int) -> np.ndarray:
    """Which items are among the first ``most`` of their group.

    >>> among_first(np.array(["a", "b", "a", "a", "b"]), 2)
    array([ True,  True,  True, False,  True])
    """
    codes = np.unique(groups, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], codes[order])
    found = np.empty(len(groups), bool)
    found[order] = np.arange(len(groups)) - starts < most
    return found


def score_for_cost(scores: np.ndarray, cost: np.ndarray | None, score: str | Score, temperature: float) -> np.ndarray:
    """Scores that take costs into account, for rows to be picked by the highest or, with a temperature, drawn.

    The highest are what is gained for each unit of cost. In a draw from the softmax of ``scores / temperature``, a row
    that costs twice as much is drawn half as often. Neither depends on the unit of the costs.

    Args:
        scores: Scores of rows ``[rows]``.
        cost: What their labels cost ``[rows]``; None if all cost the same.
        score: Name or function of the score.
        temperature: Of the softmax; 0 takes the highest scores.

    Raises:
        UserError: If scores below 0 would have to be divided by costs.
    """
    scores = scores / (temperature or 1.0)
    if cost is None:
        return scores
    logarithm = not callable(score) and SCORES[score].logarithm
    if temperature or logarithm:
        return np.asarray(scores - np.log(cost))
    if (scores < 0).any():
        name = getattr(score, "__name__", score)
        raise UserError(f"{name} gives scores below 0, which cannot be divided by costs; choose another acquisition")
    return np.asarray(scores / cost)
