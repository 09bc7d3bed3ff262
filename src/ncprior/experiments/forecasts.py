"""Predictions of methods that are not networks: mean, spread and doubt."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from sklearn.model_selection import KFold

from ncprior.core.distributions import Normal
from ncprior.core.prediction import Prediction, Predictive

_FOLDS = 5
_NARROWEST = 0.01
"""Smallest standard deviation that an interval stands for, in standard deviations of the training targets: quantiles
may meet or cross, and the density there would be infinite."""
_NORMAL_90 = 1.6448536
"""Half the width of the central 90% interval of a standard normal."""


class Doubt(NamedTuple):
    """A method's measure of doubt about each row ``[rows]``, in a unit of its own, and its name."""

    name: str
    values: np.ndarray


class Forecast(NamedTuple):
    """Mean, noise and uncertainty of rows, each ``[rows]`` in units of the target.

    ``doubt`` is what tells rows unlike the training rows from others, if the method has anything that does. ``centre``
    is the middle of the distribution, if the point that is predicted (``mean``) is another one.
    """

    mean: np.ndarray
    noise: np.ndarray
    uncertainty: np.ndarray
    doubt: Doubt | None = None
    centre: np.ndarray | None = None

    def standardised(self, shift: float, scale: float) -> Predictive:
        """The prediction of ``(y - shift) / scale`` ``[rows, 1]``."""

        def column(values: np.ndarray) -> Array:
            return jnp.asarray(values, jnp.float32)[:, None]

        # A perfect fit has noise 0, and its density would be infinite.
        noise = column(np.maximum(self.noise / scale, 1e-6))
        mean, uncertainty = column((self.mean - shift) / scale), column(self.uncertainty / scale)
        if self.centre is None:
            return Prediction(mean, noise, uncertainty)
        return PointAndInterval(mean, column((self.centre - shift) / scale), noise, uncertainty)


Fitted = Callable[[np.ndarray], Forecast]
"""Predicts the rows of a matrix."""


class PointAndInterval(Predictive):
    """A predicted point, and a normal whose middle may be another one: what quantiles and conformal intervals say."""

    mean: Array
    centre: Array
    noise: Array
    uncertainty: Array

    def components(self) -> tuple[Array, Normal]:
        """One normal of weight 1 around the centre."""
        centre = self.centre[..., None]
        return jnp.ones_like(centre), Normal(centre, self.std[..., None])

    def inflate(self, noise: ArrayLike, uncertainty: ArrayLike) -> "PointAndInterval":
        """Multiply noise and uncertainty by these numbers."""
        spread = jnp.asarray(noise) * self.noise, jnp.asarray(uncertainty) * self.uncertainty
        return PointAndInterval(self.mean, self.centre, *spread)

    def rescale(self, scale: ArrayLike, shift: ArrayLike = 0.0) -> "PointAndInterval":
        """The prediction of ``shift + scale * y``."""
        scale = jnp.asarray(scale)
        mean, centre = (jnp.asarray(shift + scale * part) for part in (self.mean, self.centre))
        return PointAndInterval(mean, centre, scale * self.noise, scale * self.uncertainty)


def from_interval(mean: np.ndarray, lower: np.ndarray, upper: np.ndarray, doubt: str, targets: np.ndarray) -> Forecast:
    """A forecast with this 90% interval: the normal that has it. Its width is the doubt.

    Args:
        mean: The predicted points ``[rows]``.
        lower: Lower ends.
        upper: Upper ends.
        doubt: What the width is called.
        targets: The training targets, which say what is too narrow.
    """
    width = upper - lower
    noise = np.maximum(0.5 * width / _NORMAL_90, _NARROWEST * targets.std())
    return Forecast(mean, noise, np.zeros(len(mean)), Doubt(doubt, width), 0.5 * (lower + upper))


def held_out_error(train: Callable[[np.ndarray], Callable[[np.ndarray], np.ndarray]], rows: int, seed: int) -> float:
    """Root mean square of five-fold errors: the constant spread of a method that has no other.

    Args:
        train: Trains on rows of these numbers, and returns a function that gives the errors for rows of other numbers.
        rows: Number of rows.
        seed: Of the folds.
    """
    errors = np.empty(rows)
    for others, held in KFold(min(_FOLDS, rows), shuffle=True, random_state=seed).split(np.arange(rows)):
        errors[held] = train(others)(held)
    return float(np.sqrt(np.mean(errors**2)))
