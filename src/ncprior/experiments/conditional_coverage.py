"""Coverage by familiarity: whether intervals are as wide as they need be, near the training rows and far from them."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, TypedDict

import numpy as np

EDGES = (0.0, 0.05, 0.2, 0.5, 1.0)
"""Familiarities between which groups lie; of rows like those of training 5% are in the first, 15% in the second."""
RANGES = tuple(pairwise(EDGES))
"""The lowest and the highest familiarity of each group."""


class UnseenRows(NamedTuple):
    """Rows that were not trained on, one number for each: ``[rows]``."""

    familiarity: np.ndarray
    error: np.ndarray
    half_width: np.ndarray  # of the 90% interval
    covered: np.ndarray  # whether the target is inside


class Group(TypedDict):
    """Rows of similar familiarity."""

    low: float
    high: float
    test: int
    """Number of test rows."""
    like: int
    """Number of held-out rows like those of training; 0 if none are held out."""
    coverage: float
    """Share of targets inside the 90% intervals."""
    width: float
    """Mean half width of the 90% intervals."""
    need: float
    """The half width that would have covered 90%: that quantile of the absolute errors."""


def p_values(doubt: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """The share of reference rows that are at least as doubtful, the row itself included: a conformal p-value.

    >>> p_values(np.array([0.0, 2.5, 9.0]), np.array([1.0, 2.0, 3.0]))
    array([1.  , 0.5 , 0.25])
    """
    below = np.searchsorted(np.sort(reference), doubt, side="left")
    return (1 + len(reference) - below) / (len(reference) + 1)


def by_familiarity(test: UnseenRows, like: UnseenRows | None) -> list[Group]:
    """The rows in groups, from the least to the most familiar; groups without rows are left out."""
    parts = [test] if like is None else [test, like]
    rows = UnseenRows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    is_test = np.arange(len(rows.error)) < len(test.error)
    place = np.clip(np.searchsorted(EDGES, rows.familiarity, side="right") - 1, 0, len(EDGES) - 2)
    groups: list[Group] = []
    for i, (low, high) in enumerate(RANGES):
        if not (in_bin := place == i).any():
            continue
        groups.append(
            {
                "low": low,
                "high": high,
                "test": int((in_bin & is_test).sum()),
                "like": int((in_bin & ~is_test).sum()),
                "coverage": float(rows.covered[in_bin].mean()),
                "width": float(rows.half_width[in_bin].mean()),
                "need": float(np.quantile(np.abs(rows.error[in_bin]), 0.9)),
            }
        )
    return groups


def pool_groups(runs: Sequence[Sequence[Group]]) -> list[Group]:
    """Merge the groups of several runs: means weighted by the numbers of rows."""
    pooled: list[Group] = []
    for low, high in RANGES:
        same = [group for groups in runs for group in groups if group["low"] == low]
        if same:
            rows = np.array([group["test"] + group["like"] for group in same], float)
            coverage, width, need = (
                float(rows @ np.array(values, float) / rows.sum())
                for values in (
                    [group["coverage"] for group in same],
                    [group["width"] for group in same],
                    [group["need"] for group in same],
                )
            )
            counts = (sum(group["test"] for group in same), sum(group["like"] for group in same))
            pooled.append(
                {
                    "low": low,
                    "high": high,
                    "test": counts[0],
                    "like": counts[1],
                    "coverage": coverage,
                    "width": width,
                    "need": need,
                }
            )
    return pooled
