"""Conformal intervals: their width comes from the errors of rows that were not learned from."""

import math
from typing import NamedTuple

import numpy as np

from ncprior.errors import UserError

MAX_SCORES = 4_096
"""Rows, at most, whose errors a model keeps: with more, the coverage would vary by less than half a percent."""


class Conformal(NamedTuple):
    r"""Errors of rows that were not learned from, and the intervals that follow from them.

    The score of a row is the error of its mean over its predicted standard deviation, $|y - m(x)| / s(x)$. If $n$ rows
    and a new one are exchangeable, and the predictions depend on none of them, the score of the new row is equally
    likely to have any rank among all $n + 1$: so with $q$ the $\lceil (n + 1) p \rceil$-th smallest of the scores, the
    interval $m(x) \pm q \, s(x)$ holds the target with a probability of at least $p$, whatever the model and the
    distribution (Vovk et al., 2005; Lei et al., 2018).

    >>> conformal = Conformal.of(np.arange(1.0, 20.0)[:, None], seed=0)
    >>> conformal.factor(0.9), conformal.factor(0.5)
    (array([18.]), array([10.]))
    """

    scores: np.ndarray  # [rows, outputs], of every output in ascending order
    refitted: bool = False  # whether the predictions come from networks that have learned from these rows since

    @classmethod
    def of(cls, scores: np.ndarray, *, seed: int, refitted: bool = False) -> "Conformal":
        """From the scores ``[rows, outputs]`` of rows, in any order; of many rows, those of some at random."""
        if len(scores) > MAX_SCORES:
            scores = np.random.default_rng(seed).permutation(scores)[:MAX_SCORES]
        return cls(np.sort(scores.astype(np.float64), axis=0), refitted)

    def factor(self, level: float) -> np.ndarray:
        """How many standard deviations intervals reach from the mean, for each output.

        Raises:
            UserError: If the rows are too few for an interval of this level.
        """
        if not 0 < level < 1:
            raise UserError(f"the level of an interval must be above 0 and below 1, got {level}")
        rows = len(self.scores)
        rank = max(1, math.ceil(level * (rows + 1) - 1e-9))  # less than rounding, such as that of 0.7 * 10
        if not rows:
            raise UserError(
                "a guaranteed interval needs rows that the model was fitted without, and there are none: fit it in one "
                "go (no partial_fit), without weights, and with conformal_fraction=0.1 (--conformal-fraction 0.1)"
            )
        if rank > rows:
            enough = math.ceil(level / (1 - level) - 1e-9)
            what = f"a guaranteed interval of {level:g} needs {enough} rows that the model was fitted without"
            raise UserError(f"{what}, and there are {rows}: fit with more rows, or ask for a lower level")
        return self.scores[rank - 1]


def scores_of(mean: np.ndarray, std: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The errors of predictions over their standard deviations, all in the same unit."""
    return np.abs(targets - mean.astype(np.float64)) / std.astype(np.float64)


NOTHING = Conformal(np.zeros((0, 1)))
"""Of a model that has learned from all rows."""
