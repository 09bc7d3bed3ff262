"""Risk-coverage curves: the error of the rows that are kept if the most uncertain are refused."""

from typing import NamedTuple

import numpy as np

SHARES = tuple(round(0.05 * i, 2) for i in range(1, 21))
"""Shares of the rows that are kept, at which the curve is recorded."""


class RiskCoverage(NamedTuple):
    """The root mean square error of the rows that are kept if the most uncertain are refused.

    Attributes:
        curve: At each of `SHARES`.
        area: Its mean over all numbers of rows kept; lower is better.
        best: The area if the largest errors were refused first, which no method can know.
    """

    curve: list[float]
    area: float
    best: float


def risk_coverage(error: np.ndarray, std: np.ndarray) -> RiskCoverage:
    """The curve of rows with these errors, refused by this standard deviation ``[rows]``, the largest first.

    Rows of equal standard deviation are refused in random order, of which this is the expectation.

    >>> found = risk_coverage(np.array([0.0, 4.0, 3.0, 0.0]), np.array([1.0, 9.0, 5.0, 2.0]))
    >>> dict(zip(SHARES, found.curve, strict=True))[0.5], found.curve[-1]  # half of the rows kept, and all
    (0.0, 2.5)
    """
    kept = _kept(error, std)
    indices = np.maximum(np.ceil(np.array(SHARES) * len(error) - 1e-9).astype(int), 1) - 1
    return RiskCoverage(kept[indices].tolist(), float(kept.mean()), float(_kept(error, np.abs(error)).mean()))


def _kept(error: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Root mean square error of the first 1, 2, ... rows in this order; ties count as their mean."""
    _, group, counts = np.unique(order, return_inverse=True, return_counts=True)
    squares = np.bincount(group, error**2) / counts
    return np.sqrt(np.cumsum(np.repeat(squares, counts)) / np.arange(1, len(error) + 1))


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's rank correlation; NaN if one of the two is constant.

    >>> rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([1.0, 10.0, 100.0]))
    1.0
    """
    ranks = [_ranks(values) for values in (first, second)]
    if any(np.ptp(rank) == 0 for rank in ranks):
        return float("nan")
    return float(np.corrcoef(np.stack(ranks))[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    """The place of each value in ascending order; equal ones share the mean of their indices."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - 0.5 * (counts - 1))[group]
