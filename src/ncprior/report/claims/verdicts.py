"""Each claim holds, does not hold, or is unclear, by one stated rule."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np

FEWEST_SEEDS = 5
"""With fewer seeds nothing is settled: two or three agree by chance too often (four do in one of eight cases)."""
SHARE = 0.8
"""Of the seeds, for a claim to hold."""

_LISTED = 6
"""Parts of a claim that are told one by one."""

RULE = (
    "A claim that one number is lower than another is checked seed by seed (the same seed begins with the same "
    f"labels). It holds if it is true of at least {SHARE:.0%} of the seeds, does not hold if it is true of at most "
    f"{1 - SHARE:.0%}, and is unclear in between or with fewer than five seeds. A seed that failed counts against its "
    "method: it is lower than nothing, and any seed that finished is lower than it. A claim with several parts (models "
    "or settings that are compared) holds if all of them do, and does not hold if one does not."
)

Verdict = Literal["holds", "does not hold", "unclear"]


class Claim(NamedTuple):
    """What the paper says, what was measured, and whether they agree."""

    text: str
    numbers: str
    verdict: Verdict


def lower(first: np.ndarray | float, second: np.ndarray | float) -> np.ndarray:
    """Of which seeds the first number is lower than the second; NaN is that of a seed that failed."""
    first, second = np.broadcast_arrays(np.asarray(first, float), np.asarray(second, float))
    return ~np.isnan(first) & (np.isnan(second) | (first < second))


def within(first: np.ndarray, second: np.ndarray, tolerance: np.ndarray | float) -> np.ndarray:
    """Of which seeds the numbers differ by no more than this; of none that failed."""
    return np.asarray(np.abs(np.asarray(first, float) - np.asarray(second, float)) <= tolerance)


def judge(true: np.ndarray) -> Verdict:
    """The verdict on what is true of some seeds and not of others."""
    if len(true) < FEWEST_SEEDS:
        return "unclear"
    return "holds" if np.mean(true) >= SHARE else "does not hold" if np.mean(~true) >= SHARE else "unclear"


def all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on a claim that has several parts."""
    parts = set(verdicts)
    return "does not hold" if "does not hold" in parts else "unclear" if "unclear" in parts or not parts else "holds"


def claim(text: str, numbers: str, parts: Sequence[np.ndarray]) -> Claim:
    """A claim with its verdict, from what is true of the seeds in each of its parts."""
    found = [judge(part) for part in parts]
    return Claim(text, f"{numbers}; {_counted(parts, found)}", all_of(found))


def _counted(parts: Sequence[np.ndarray], found: Sequence[Verdict]) -> str:
    """Of how many seeds a claim is true: in each of its parts, or, if they are many, how many of them hold."""
    if not parts:
        return "nothing to compare"
    if len(parts) <= _LISTED:
        *most, last = [str(int(part.sum())) for part in parts]
        return f"true of {', '.join(most)}{' and ' if most else ''}{last} of {len(parts[0])} seeds"
    hold, unclear = found.count("holds"), found.count("unclear")
    return f"of {len(parts)} comparisons {hold} hold, {unclear} are unclear, {len(parts) - hold - unclear} do not hold"


def median(values: np.ndarray, digits: int = 3) -> str:
    """The median over the seeds that finished, and how many of them did not."""
    finished = values[~np.isnan(values)]
    said = f"{np.median(finished):.{digits}g}" if len(finished) else "none"
    failed = len(values) - len(finished)
    return f"{said} ({failed} of {len(values)} seeds failed)" if failed else said
