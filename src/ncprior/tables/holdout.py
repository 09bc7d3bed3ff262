"""Rows held out to choose the number of training steps, and the scores of members on them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ncprior.tables.calibration import log_mean_density

_MAX_SCORED = 4_096
"""Held-out rows of each kind, at most, that a member is scored on."""


GAP, RANDOM = 0, 1
"""The two kinds of held-out rows, by their position on an axis."""


@dataclass(frozen=True)
class Stopping:
    """Which rows are held out, when members are scored on them, and when training stops."""

    gap: float = 0.3
    """Share of the rows that a member holds out by the values of a random column: those in a range, or at one end."""
    random: float = 0.1
    """Share of the rows that it holds out at random."""
    gap_share: float = 0.5
    """Share of the gap in the score; the rest is that of the rows at random."""
    together: float = 0.0
    """Share of the members' mixture in the score of the rows at random; the rest is that of each member alone. The
    mixture gains from members that overfit, up to a point."""
    first: int = 100
    """Steps before the first evaluation; the next comes after ``growth`` times as many, and so on."""
    growth: float = 1.5
    patience: int = 2
    """Evaluations in a row without a better score that end the search, but not before ``min_steps`` steps, and not
    while the score rises again: what is hard to learn can cost at first."""
    min_steps: int = 760
    min_delta: float = 0.003
    """Improvement of the score, in nats, that counts as better."""
    max_steps: int = 10_000
    """Steps that end the search in any case."""

    def evaluation_steps(self) -> list[int]:
        """Numbers of steps after which members are scored.

        >>> Stopping(first=100, growth=2.0, max_steps=700).evaluation_steps()
        [100, 200, 400, 700]
        """
        steps = [self.first]
        while steps[-1] < self.max_steps:
            steps.append(min(self.max_steps, round(steps[-1] * self.growth)))
        return steps


class Holdout(NamedTuple):
    """Row indices of a member: those that it trains on, those of its gap, and those held out at random."""

    train: np.ndarray
    gap: np.ndarray
    random: np.ndarray
    random_in_gap: np.ndarray | None = None  # which of the random ones have values within the gap


def hold_out(
    columns: np.ndarray,
    members: int,
    stopping: Stopping,
    rng: np.random.Generator,
    *,
    equal: np.ndarray | None = None,
    per_gap: int = 1,
) -> list[Holdout]:
    """Held-out rows for every member: a gap, and rows at random that are the same for all members.

    Args:
        columns: Values ``[rows, columns]`` of the columns that a gap can lie in.
        members: How many.
        stopping: Which shares of the rows to hold out.
        rng: Of the draws.
        equal: Group of each row, counted from 0; rows of a group are held out together or not at all, as a copy among
            the training rows would leak the target. If more than half of the rows are in one group, groups are ignored.
        per_gap: Members that share a gap: the first ones, the next ones, and so on.

    Returns:
        One `Holdout` for each member; all train on equally many rows. No gap takes all rows that are left.
    """
    count = len(columns)
    equal = np.arange(count) if equal is None or np.bincount(equal).max() > count / 2 else equal
    gap_size, num_random = int(stopping.gap * count), max(1, int(stopping.random * count))
    drawn = rng.permutation(equal.max() + 1)
    rank = np.empty_like(drawn)
    rank[drawn] = np.arange(len(drawn))
    order = np.argsort(rank[equal], kind="stable")
    num_random = int(np.sum(rank[equal] <= rank[equal[order[num_random - 1]]]))
    random, rest = order[:num_random], order[num_random:]
    parts = []
    random = np.sort(random)
    drawn_columns = rng.permutation(columns.shape[1])
    gap, in_gap = rest[:0], np.zeros(len(random), bool)
    for member in range(members):
        if columns.shape[1] and member % per_gap == 0:
            number = member // per_gap
            column = columns[:, drawn_columns[number % len(drawn_columns)]]
            start = _start(_POSITIONS[number % len(_POSITIONS)], len(rest), gap_size, rng)
            inside = rest[np.argsort(column[rest], kind="stable")[start : start + gap_size]]
            gap = rest[np.isin(equal[rest], equal[inside])]
            gap = gap if len(gap) < len(rest) else rest[:0]
            ends = (column[gap].min(), column[gap].max()) if len(gap) else (np.inf, -np.inf)
            in_gap = (column[random] >= ends[0]) & (column[random] <= ends[1])
        parts.append(Holdout(np.setdiff1d(rest, gap), np.sort(gap), random, in_gap))
    # All members train on as many rows as each other; copies can make gaps longer.
    least = max(1, min(len(part.train) for part in parts))
    return [
        part if len(part.train) == least else part._replace(train=np.sort(rng.choice(part.train, least, replace=False)))
        for part in parts
    ]


_POSITIONS = ("within", "above", "within", "below")
"""Where the rows of a gap lie among the values of its column; gaps take these in turn."""


def _start(position: str, rows: int, size: int, rng: np.random.Generator) -> int:
    """The rank of the first row of a gap; one ``within`` the values leaves a tenth of the rows on each side."""
    last = max(0, rows - size)
    if position == "within":
        side = min(rows // 10, last // 2)
        return int(rng.integers(side, last - side + 1))
    return last if position == "above" else 0


def holdout_indices(holdouts: Sequence[Holdout] | None, members: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Row indices ``[members, 2, n]`` that members are scored on, padded with zeros, and how many are in use.

    The padded size is half of the rows, which no kind of held-out rows exceeds: it depends on their number alone.
    """
    size = min(_MAX_SCORED, rows // 2)
    if holdouts is None:
        return np.zeros((members, 2, size), np.int32), np.zeros((members, 2), np.int32)
    parts = [[part[:: max(1, -(-len(part) // size))] for part in (one.gap, one.random)] for one in holdouts]
    numbers = np.array([[np.pad(part, (0, size - len(part))) for part in pair] for pair in parts], np.int32)
    return numbers, np.array([[len(part) for part in pair] for pair in parts], np.int32)


def familiar(holdouts: Sequence[Holdout], size: int) -> np.ndarray:
    """For rows at random ``[members, size]``, as in `holdout_indices`: 1 unless they lie where the member's gap is.

    Rows that lie in the gaps of all members count as familiar to all.
    """
    outside = np.ones((len(holdouts), size))
    for member, one in enumerate(holdouts):
        if one.random_in_gap is not None:
            in_gap = one.random_in_gap[:: max(1, -(-len(one.random) // size))]
            outside[member, : len(in_gap)] = ~in_gap
    return np.where(outside.any(0), outside, 1.0)


class Evaluation(NamedTuple):
    """Scores of the members on their held-out rows: weighted mean log densities ``[members]``."""

    step: int
    gap: np.ndarray
    random: np.ndarray
    mixture: float = math.nan  # of all members, on the rows at random

    @classmethod
    def at(cls, step: int, density: np.ndarray, counts: np.ndarray) -> "Evaluation":
        """From log densities ``[members, 2, n, outputs]`` and row weights ``[members, 2, n]``, 0 for padding."""
        in_use = counts > 0
        with np.errstate(invalid="ignore"):  # a kind may have no rows
            gap, random = (np.where(in_use, counts * density.sum(3), 0.0).sum(2) / counts.sum(2)).T
            shared = counts[0, RANDOM, in_use[0, RANDOM], None]
            mixture = (shared * log_mean_density(density[:, RANDOM, in_use[0, RANDOM]])).sum() / shared.sum()
        return cls(step, gap, random, float(mixture))

    def score(self, gap: float, together: float = 0.0) -> float:
        """The mean over the members.

        Args:
            gap: Share of the gap's rows; where one kind of rows has none, the other counts alone.
            together: Share of the mixture in the score of the rows at random.
        """
        random = (1 - together) * self.random.mean() + (together * self.mixture if together else 0.0)
        kinds = [(gap, self.gap.mean()), (1 - gap, random)]
        finite = [(share, value) for share, value in kinds if np.isfinite(value)]
        used = [pair for pair in finite if pair[0]] or [(1.0, value) for _, value in finite]
        return sum(share * value for share, value in used) / sum(share for share, _ in used) if used else -np.inf
