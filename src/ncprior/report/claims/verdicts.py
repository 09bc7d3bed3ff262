"""Verdicts on claims: holds, does not hold, or unclear. `RULE` states how they are reached."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np

FEWEST_SEEDS = 5
"""With fewer seeds every verdict is "unclear": four seeds agree by chance in one of eight cases."""
SHARE = 0.8
"""Share of the seeds for which a claim must be true to hold."""

_LISTED = 6
"""Up to this many parts of a claim are counted one by one in its numbers."""

RULE = (
    "A claim that one number is lower than another is checked seed by seed (the same seed begins with the same "
    f"labels). It holds if it is true of at least {SHARE:.0%} of the seeds, does not hold if it is true of at most "
    f"{1 - SHARE:.0%}, and is unclear in between or with fewer than five seeds. A seed that failed counts against its "
    "method: it is lower than nothing, and any seed that finished is lower than it. A claim with several parts (models "
    "or settings that are compared) holds if all of them do, and does not hold if one does not."
)

Verdict = Literal["holds", "does not hold", "unclear"]


class Claim(NamedTuple):
    """A claim of the paper and the verdict on it.

    Attributes:
        text: What the paper says, and in brackets how it is measured.
        numbers: What was measured, in words.
        verdict: Whether the two agree.
    """

    text: str
    numbers: str
    verdict: Verdict


def lower(first: np.ndarray | float, second: np.ndarray | float) -> np.ndarray:
    """Whether the first number is lower than the second, for each seed.

    NaN marks a seed that failed: it is never lower, and every finite number is lower than it.

    >>> lower(np.array([1.0, 3.0, np.nan]), np.array([2.0, 2.0, 2.0]))
    array([ True, False, False])
    """
    first, second = np.broadcast_arrays(np.asarray(first, float), np.asarray(second, float))
    return ~np.isnan(first) & (np.isnan(second) | (first < second))


def within(first: np.ndarray, second: np.ndarray, tolerance: np.ndarray | float) -> np.ndarray:
    """Whether two numbers differ by at most ``tolerance``, for each seed; False where one of them failed (NaN)."""
    return np.asarray(np.abs(np.asarray(first, float) - np.asarray(second, float)) <= tolerance)


def judge(true: np.ndarray) -> Verdict:
    """The verdict from whether a claim is true of each seed.

    >>> judge(np.array([True, True, True, True, False]))
    'holds'
    """
    if len(true) < FEWEST_SEEDS:
        return "unclear"
    return "holds" if np.mean(true) >= SHARE else "does not hold" if np.mean(~true) >= SHARE else "unclear"


def all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on a claim with several parts: it holds if all of them do, and fails if one fails."""
    parts = set(verdicts)
    return "does not hold" if "does not hold" in parts else "unclear" if "unclear" in parts or not parts else "holds"


def claim(text: str, numbers: str, parts: Sequence[np.ndarray]) -> Claim:
    """Make a claim and judge it.

    Args:
        text: What the paper says.
        numbers: What was measured, to which the numbers of seeds are added.
        parts: For each part of the claim, whether it is true of each seed ``[seeds]``.
    """
    found = [judge(part) for part in parts]
    return Claim(text, f"{numbers}; {_counted(parts, found)}", all_of(found))


def _counted(parts: Sequence[np.ndarray], found: Sequence[Verdict]) -> str:
    """For how many seeds each part is true or, if there are many parts, how many of them hold."""
    if not parts:
        return "nothing to compare"
    if len(parts) <= _LISTED:
        *most, last = [str(int(part.sum())) for part in parts]
        seeds = f"{len(parts[0])} seed{'s' if len(parts[0]) != 1 else ''}"
        return f"true of {', '.join(most)}{' and ' if most else ''}{last} of {seeds}"
    hold, unclear = found.count("holds"), found.count("unclear")
    return f"of {len(parts)} comparisons {hold} hold, {unclear} are unclear, {len(parts) - hold - unclear} do not hold"


def rounded(value: float, digits: int = 3) -> str:
    """A number with so many digits, as people write it.

    >>> rounded(0.63912), rounded(2100.0), rounded(1505.6), rounded(788_912.0), rounded(2.71e9)
    ('0.639', '2,100', '1,510', '789,000', '2.71e9')
    """
    if not 1e3 <= abs(value) < 1e6:
        return f"{value:.{digits}g}".replace("e+0", "e").replace("e+", "e")
    return f"{float(f'{value:.{digits}g}'):,.0f}"


def median(values: np.ndarray, digits: int = 3) -> str:
    """The median over the seeds that finished, as text, with the number of seeds that failed if there are any."""
    finished = values[~np.isnan(values)]
    shown = rounded(float(np.median(finished)), digits) if len(finished) else "none"
    failed = len(values) - len(finished)
    return f"{shown} ({failed} of {len(values)} seeds failed)" if failed else shown
