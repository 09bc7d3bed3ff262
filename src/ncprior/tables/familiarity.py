"""Familiarity: how much a row is like the training rows, as a p-value."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ncprior.core.prediction import MixturePrediction, Predictive, mix
from ncprior.tables.calibration import Calibration

MAX_SCORES = 1_000
"""Scores that a model keeps, at most: more would change a familiarity by less than 0.001."""

_TAIL = 0.5
"""Share of the scores, the largest, that the tail is fitted to."""


class Familiarity(NamedTuple):
    r"""Scores of rows that are like the training rows, with which those of other rows are compared.

    The score of a row is its uncertainty. Its familiarity is the share of reference rows that have at least this score,
    the row itself included: $(1 + \#\{s_i \ge s\}) / (k + 1)$ for $k$ rows. If the reference rows were held out from
    training this is a conformal p-value: whatever the model, about 5% of new rows like them are below 0.05. Above the
    largest score it follows a Pareto tail, so that it stays informative with few reference rows.

    Uncertainty over noise is a worse score: nothing determines the noise far from the data, and where it is large such
    rows look familiar.

    >>> familiarity = Familiarity.of(np.arange(1.0, 10.0))
    >>> familiarity(np.array([0.5, 5.0, 9.0, 90.0])).round(2).tolist()
    [1.0, 0.6, 0.2, 0.0]
    """

    scores: np.ndarray  # of the reference rows, in ascending order
    decay: float  # exponent of the tail

    @classmethod
    def of(cls, scores: ArrayLike) -> "Familiarity":
        """From the scores of reference rows, in any order."""
        ordered = np.sort(np.asarray(scores, np.float64))
        if len(ordered) > MAX_SCORES:
            ordered = np.quantile(ordered, np.linspace(0, 1, MAX_SCORES), method="higher")
        return cls(ordered, _tail_exponent(ordered))

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """The familiarity of rows with these scores, from 1 (as training rows) to 0 (unlike any)."""
        below = np.searchsorted(self.scores, scores, side="left")
        share = (1 + len(self.scores) - below) / (len(self.scores) + 1)
        if not len(self.scores):
            return share
        beyond = np.maximum(scores / np.maximum(self.scores[-1], 1e-12), 1.0)
        return share * beyond**-self.decay


def _tail_exponent(ordered: np.ndarray) -> float:
    """Hill's estimate of the exponent of a Pareto tail, from the largest of these scores."""
    count = max(1, int(_TAIL * len(ordered)))
    if len(ordered) <= count:
        return 1.0
    logs = np.log(np.maximum(ordered[-count - 1 :], 1e-12))
    return float(1 / max(np.mean(logs[1:] - logs[0]), 1e-2))


def novelty(uncertainty: ArrayLike) -> np.ndarray:
    """The score of every row, from its uncertainty ``[rows, outputs]``: the root of the mean square."""
    return np.sqrt(np.mean(np.square(uncertainty), axis=-1, dtype=np.float64))


def held_out_novelty(
    calibration: Calibration, predictions: Predictive, contrast: np.ndarray | None, in_gap: np.ndarray
) -> np.ndarray:
    """The scores of held-out rows, by the members that were trained on their surroundings.

    Args:
        calibration: Of the members that searched.
        predictions: Of these members ``[members, rows, outputs]``.
        contrast: Output of their contrast networks ``[members, rows]``, if there are any.
        in_gap: ``[members, rows]``, True where a row lies in the range of values that the member holds out.

    Returns:
        One score for each row that lies in no gap of at least one member.
    """
    mixture = mix(calibration.apply(predictions, contrast), calibration.share)
    return novelty(with_known_surroundings(mixture, in_gap).uncertainty)[~in_gap.all(0)]


def with_known_surroundings(mixture: MixturePrediction, in_gap: np.ndarray) -> MixturePrediction:
    """The mixture of the members that were trained on the surroundings of a row; of all members, where none was.

    ``in_gap`` is as for `held_out_novelty`.
    """
    parts = mixture.weights.shape[-1] // len(in_gap)
    trained_near = np.repeat((~in_gap | in_gap.all(0)).T, parts, axis=1)[:, None]
    weights = mixture.weights * trained_near
    total = weights.sum(-1, keepdims=True)
    return MixturePrediction(weights / np.where(total > 0, total, 1.0), mixture.parts)
