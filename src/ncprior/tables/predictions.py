"""Predictions as NumPy arrays in units of the target."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
import pyarrow as pa
from jax import Array
from numpy.typing import ArrayLike

from ncprior.core.acquisition import Score, score_of
from ncprior.core.prediction import MixturePrediction, heavy_tailed
from ncprior.errors import UserError
from ncprior.tables.conformal import NOTHING, Conformal
from ncprior.tables.custom_parts import check_score
from ncprior.tables.familiarity import Familiarity, novelty
from ncprior.tables.fitted import Fitted
from ncprior.tables.programs import CDF, LOG_PROB, QUANTILES, chunked


class Distribution(NamedTuple):
    """Predictions in units of the target, as NumPy arrays ``[rows]``, or ``[rows, outputs]`` if y had two axes."""

    standardised: MixturePrediction  # of the standardised target; units are put back in double precision
    shift: np.ndarray
    scale: np.ndarray
    flat: bool
    reference: Familiarity  # scores of rows that are like those of training
    conformal: Conformal = NOTHING  # errors of such rows

    @classmethod
    def of(cls, fitted: Fitted, table: pa.Table, first_row: int = 1) -> "Distribution":
        """What a fitted estimator predicts for a table, whose first row has this number in error messages."""
        return cls.of_encoded(fitted, fitted.encoder.transform(table, first_row=first_row))

    @classmethod
    def of_encoded(cls, fitted: Fitted, inputs: np.ndarray) -> "Distribution":
        """The same for encoded rows."""
        unit = (fitted.target_shift, fitted.target_scale)
        return cls(fitted.predict_encoded(inputs), *unit, fitted.flat, fitted.familiarity, fitted.conformal)

    def _values(self, function: Callable[..., Array], *arrays: np.ndarray) -> np.ndarray:
        return np.asarray(chunked(function, self.standardised, *arrays), np.float64)

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return values[..., 0] if self.flat else values

    @property
    def mean(self) -> np.ndarray:
        """The expected target."""
        return self._shaped(self.shift + self.scale * self.standardised.mean.astype(np.float64))

    @property
    def noise(self) -> np.ndarray:
        """Standard deviation of the noise (aleatoric), which more labels do not lower."""
        return self._shaped(self.scale * self.standardised.noise.astype(np.float64))

    @property
    def uncertainty(self) -> np.ndarray:
        """Standard deviation of the belief over the mean (epistemic), which more labels lower."""
        return self._shaped(self.scale * self.standardised.uncertainty.astype(np.float64))

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of the prediction: noise and uncertainty together."""
        return self._shaped(self.scale * self.standardised.std.astype(np.float64))

    @property
    def familiarity(self) -> np.ndarray:
        """How much each row is like the training rows, from 1 (as they are) to 0 (unlike any): ``[rows]``.

        The share of held-out training rows that are at least as uncertain, relative to their noise: of new rows like
        those of training about 5% are below 0.05. See `ncprior.tables.familiarity.Familiarity`.
        """
        return self.reference(novelty(self.standardised.uncertainty))

    def interval(self, level: float = 0.9, *, guaranteed: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """The central interval that holds the target with this probability.

        Args:
            level: The probability.
            guaranteed: Whether it is the conformal interval, mean and so many standard deviations: of new rows like
                those of training it holds at least this share, of each output, however wrong the model is. The
                guarantee is for rows that are drawn as those of training were, all together, and neither for rows off
                the data nor for each row. See `ncprior.tables.conformal.Conformal`, and for what it takes the argument
                ``conformal_fraction`` of `NCPRegressor`.

        Raises:
            UserError: If a guarantee is asked for, and too few rows were held out for it.
        """
        if guaranteed:
            reach = self._shaped(self.conformal.factor(level)) * self.std
            return self.mean - reach, self.mean + reach
        lower, upper = self._quantiles([0.5 - 0.5 * level, 0.5 + 0.5 * level])
        return lower, upper

    def quantile(self, probability: ArrayLike) -> np.ndarray:
        """The quantile of the prediction at this probability.

        Several probabilities have the leading axes of the result, as in `numpy.quantile`.
        """
        if np.ndim(probability):
            return np.stack([self.quantile(one) for one in np.asarray(probability)])
        return self._quantiles([probability])[0]

    def _quantiles(self, probabilities: Sequence[ArrayLike]) -> list[np.ndarray]:
        """The quantiles at these probabilities, which one program computes together."""
        single = np.asarray(probabilities, np.float32)  # as which they are computed
        for given, one in zip(probabilities, single, strict=True):
            if not 0 < one < 1:
                raise UserError(f"a probability must be above 0 and below 1, got {np.asarray(given)}")
        values = self.shift[:, None] + self.scale[:, None] * self._values(lambda part: QUANTILES(part, single))
        return [self._shaped(values[..., i]) for i in range(len(single))]

    def log_prob(self, y: ArrayLike) -> np.ndarray:
        """Log density of these targets, in nats per unit of the target."""
        return self._shaped(self._values(LOG_PROB, self._targets(y)) - np.log(self.scale))

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """Probability that the target is at most this."""
        return self._shaped(self._values(CDF, self._targets(y)))

    @property
    def predictive(self) -> MixturePrediction:
        """The same as a mixture of normals in units of the target, rows and outputs first, components last."""
        return jax.tree.map(np.asarray, heavy_tailed(self.standardised).rescale(self.scale, self.shift))

    def score(self, score: str | Score, output_weights: np.ndarray | None = None) -> np.ndarray:
        """The acquisition score of every row, by its name in `ncprior.core.acquisition.SCORES` or by a function.

        A function gets the prediction of the standardised target, a mixture of the members, for some rows at a time:
        the score of a row must not depend on the others. With weights of outputs ``[outputs]``, it is the weighted
        average of the scores of the outputs, each on its own.
        """
        function = score_of(score)
        if output_weights is not None:
            alone = [
                self._replace(standardised=jax.tree.map(lambda leaf: leaf[:, [i]], self.standardised)).score(score)  # noqa: B023
                for i in range(len(output_weights))
            ]
            return np.asarray(np.average(alone, axis=0, weights=output_weights))
        check_score(function, score, self.standardised)
        return np.asarray(chunked(jax.jit(function), self.standardised), np.float64)

    def _targets(self, y: ArrayLike) -> np.ndarray:
        values = np.asarray(y, np.float64)
        values = values[..., None] if self.flat else values
        wanted = self.standardised.weights.shape[:-1]
        if values.shape != wanted:
            raise UserError(f"targets have shape {np.shape(y)}, and predictions {wanted[: 2 - self.flat]}")
        return ((values - self.shift) / self.scale).astype(np.float32)
