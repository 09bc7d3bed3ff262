"""Predictions of held-out rows, and the scales and shares of members that suit them."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from ncprior.core.prediction import Prediction, Predictive
from ncprior.core.row_weights import effective_number
from ncprior.tables.calibration import (
    BestExponent,
    Calibration,
    ContrastFit,
    Densities,
    SquaredErrors,
    best_exponent,
    best_scales,
    best_share,
    log_density,
    log_mean_density,
)
from ncprior.tables.families import Family
from ncprior.tables.holdout import GAP, RANDOM


class HeldOutPredictions(NamedTuple):
    """Predictions of the rows that members hold out, in a gap and at random, in a unit that all share."""

    prediction: Predictive  # [members, 2 * n, outputs]
    targets: np.ndarray  # likewise
    counts: np.ndarray  # [members, 2, n]: weights of the rows, 0 for padding
    copies: np.ndarray  # how many copies of each row there are
    indices: np.ndarray  # of the rows
    familiar: np.ndarray  # [members, n]: 1 for rows at random that do not lie where the member's gap is
    contrast: np.ndarray | None = None  # [members, 2 * n]: output of the contrast networks
    seen_error: float | None = None  # the members' mean squared error on rows that they have learned from

    def of(self, members: np.ndarray) -> "HeldOutPredictions":
        """The predictions of some members."""
        return jax.tree.map(lambda leaf: leaf[members], self._replace(seen_error=None))

    def best_scales(self) -> tuple[float, float]:
        """The factors of noise and uncertainty that predict these rows best."""
        total = self.counts.sum(2, keepdims=True)
        shares = self.counts / np.where(total > 0, total, 1.0)
        return best_scales(self.prediction, self.targets, shares.reshape(len(shares), -1).astype(np.float32))

    def best_exponent(self, scale: float, pairs: Sequence[np.ndarray]) -> BestExponent:
        """The noise scale and the exponent of the contrast that predict these rows best.

        Rows of a gap are predicted by the members that hold it out, ``pairs``, and rows at random by those that
        were trained on their surroundings.
        """
        assert self.contrast is not None
        assert isinstance(self.prediction, Prediction)
        members, size = self.counts.shape[0], self.counts.shape[2]
        groups, weights = np.zeros((len(pairs) + 1, members, 2 * size)), np.zeros((len(pairs) + 1, 2 * size))
        in_use = [self.counts[pair[0], GAP] for pair in pairs]
        filled = sum(count.any() for count in in_use)
        for number, (pair, count) in enumerate(zip(pairs, in_use, strict=True)):
            groups[number, pair, :size] = 1
            if count.any():
                weights[number, :size] = 0.5 * count / count.sum() / filled
        groups[-1, :, size:] = self.familiar
        weights[-1, size:] = (
            (0.5 if filled else 1.0) * self.counts[0, RANDOM] / max(self.counts[0, RANDOM].sum(), 1e-12)
        )
        groups[groups.sum(1, keepdims=True).repeat(members, 1) == 0] = 1  # of no weight
        held = ContrastFit(self.prediction, self.targets, self.contrast, groups, weights)
        return best_exponent(jax.tree.map(np.float32, held), scale, float(self.errors().noise_scale))

    def errors(self) -> SquaredErrors:
        """Squared errors of the members' mean on rows at random, beside those on rows that they have learned from."""
        size = self.counts.shape[2]
        at = self.counts[0, RANDOM] > 0
        if self.seen_error is None or not at.any():
            return SquaredErrors(1.0, 1.0, 1.0, 0.0)
        shares = (self.familiar / self.familiar.sum(0))[:, at, None]
        mean, noise = (np.asarray(part)[:, size:][:, at] for part in (self.prediction.mean, self.prediction.noise))
        error = (np.sum(shares * mean, 0) - self.targets[0, size:][at]) ** 2
        weights = self.counts[0, RANDOM, at]
        unseen, expected = (
            np.average(part.mean(-1), weights=weights) for part in (error, np.sum(shares * noise**2, 0))
        )
        rows = effective_number(weights, self.copies[0, RANDOM, at])
        return SquaredErrors(self.seen_error, float(unseen), float(expected), float(rows))

    def best_share(self, calibration: Calibration, smooth: Family, sharp: Family) -> float:
        """The total share of the sharp members that predicts these rows best.

        Rows of a gap are predicted by the pair of a smooth and a sharp member that holds it out, rows at random by all
        members.
        """
        density = log_density(calibration.apply(self.prediction, self.contrast), self.targets).reshape(
            *self.counts.shape, -1
        )
        pairs = smooth.members[: len(sharp.members)]  # the last smooth member may have no partner
        inside, at = self.counts[pairs, GAP] > 0, self.counts[0, RANDOM] > 0
        gap = [density[pairs, GAP][inside], density[sharp.members, GAP][inside]]
        random = [log_mean_density(density[family.members, RANDOM][:, at]) for family in (smooth, sharp)]
        kinds = [
            (*gap, self.counts[pairs, GAP][inside], self.copies[pairs, GAP][inside]),
            (*random, self.counts[0, RANDOM, at], self.copies[0, RANDOM, at]),
        ]
        outputs = density.shape[-1]
        return best_share(
            [
                Densities(a.ravel(), b.ravel(), np.repeat(weight, outputs), outputs * effective_number(weight, many))
                for a, b, weight, many in kinds
                if len(weight)
            ]
        )
