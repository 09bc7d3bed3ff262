"""Baselines that people would use instead of a network, each with a predictive variance.

They are trained on the same encoded columns as the networks.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import BayesianRidge, LinearRegression
from sklearn.model_selection import KFold
from threadpoolctl import threadpool_limits

from ncprior.core.prediction import Prediction
from ncprior.core.registry import Style
from ncprior.data.encoding import Encoder
from ncprior.experiments.scores import Standardised
from ncprior.tables.recipe import shift_and_scale

Fitted = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""Predicts the rows of a matrix: mean, noise and uncertainty, each ``[rows]``."""

_TREES = 200
_FOLDS = 5
_ENOUGH = 20_000
"""Rows that a quick comparison learns from: two seconds of a core."""
_MANY = 100_000
"""From this many rows on, boosting uses all cores; with fewer, threads would mostly wait for each other."""


def fit(name: str, inputs: pa.Table, targets: np.ndarray, seed: int) -> Callable[[pa.Table], Standardised]:
    """Train the baseline of this name.

    Returns:
        A function that predicts the rows of a table.
    """
    encoder = Encoder.fit(inputs)
    fitted = BASELINES[name].fit(encoder.transform(inputs).astype(np.float64), targets, seed)
    shift, scale = (float(part[0]) for part in shift_and_scale(targets[:, None], None))

    def predict(rows: pa.Table) -> Standardised:
        mean, noise, uncertainty = fitted(encoder.transform(rows).astype(np.float64))
        # A perfect fit has noise 0, and its density would be infinite.
        columns = ((mean - shift) / scale, np.maximum(noise / scale, 1e-6), uncertainty / scale)
        return Standardised(Prediction(*(jnp.asarray(part, jnp.float32)[:, None] for part in columns)), shift, scale)

    return predict


def boosting_error(inputs: pa.Table, targets: np.ndarray, held_out: np.ndarray, *, seed: int = 0) -> float:
    """Root mean square error of boosted trees on held-out rows, learned from all others, or from 20,000 of them.

    Args:
        inputs: The rows.
        targets: The target of each.
        held_out: The numbers of the rows that are held out.
        seed: Of the trees and of the rows that they learn from.
    """
    others = np.setdiff1d(np.arange(len(targets)), held_out)
    if len(others) > _ENOUGH:
        others = np.sort(np.random.default_rng(seed).choice(others, _ENOUGH, replace=False))
    train = inputs.take(pa.array(others))
    encoder = Encoder.fit(train)
    with threadpool_limits(1, "openmp"):
        model = HistGradientBoostingRegressor(random_state=seed).fit(encoder.transform(train), targets[others])
        errors = model.predict(encoder.transform(inputs.take(pa.array(held_out)))) - targets[held_out]
    return float(np.sqrt(np.mean(errors**2)))


def fit_mean(inputs: np.ndarray, targets: np.ndarray, seed: int) -> Fitted:  # noqa: ARG001
    """A normal with the mean and variance of the training targets."""
    mean, std = targets.mean(), targets.std()
    return lambda rows: (np.full(len(rows), mean), np.full(len(rows), std), np.zeros(len(rows)))


def fit_linear(inputs: np.ndarray, targets: np.ndarray, seed: int) -> Fitted:  # noqa: ARG001
    """Bayesian ridge regression (MacKay, 1992). Noise and weight uncertainty follow from the evidence."""
    model = BayesianRidge().fit(inputs, targets)
    noise = 1 / np.sqrt(model.alpha_)

    def predict(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        mean, std = model.predict(rows, return_std=True)
        return mean, np.full(len(rows), noise), np.sqrt(np.maximum(std**2 - noise**2, 0))

    return predict


def fit_boosting(inputs: np.ndarray, targets: np.ndarray, seed: int) -> Fitted:
    """Boosted trees with scikit-learn's defaults. The variance is constant: that of cross-validated errors."""

    def train(rows: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        with threadpool_limits(None if len(rows) >= _MANY else 1, "openmp"):
            model = HistGradientBoostingRegressor(random_state=seed).fit(inputs[rows], targets[rows])

        def guess(others: np.ndarray) -> np.ndarray:
            with threadpool_limits(None if len(others) >= _MANY else 1, "openmp"):
                return np.asarray(model.predict(others))

        return guess

    errors = np.empty(len(targets))
    for rows, held in KFold(min(_FOLDS, len(targets)), shuffle=True, random_state=seed).split(inputs):
        errors[held] = targets[held] - train(rows)(inputs[held])
    noise, guess = np.sqrt(np.mean(errors**2)), train(np.arange(len(targets)))
    return lambda rows: (guess(rows), np.full(len(rows), noise), np.zeros(len(rows)))


def fit_forest(inputs: np.ndarray, targets: np.ndarray, seed: int) -> Fitted:
    """A random forest with variance ``a + b v``, where ``v`` is the variance among the predictions of its trees.

    ``v`` is the only sign of uncertainty that a forest has, but it is not on the scale of errors. ``a`` and ``b`` are
    fitted to squared out-of-bag errors by non-negative least squares.
    """
    centre = targets.mean()  # subtracted, as sums of squares then lose the fewest digits
    forest = RandomForestRegressor(_TREES, random_state=seed).fit(inputs, targets - centre)
    count, total, squares = np.zeros((3, len(targets)))
    for tree, drawn in zip(forest.estimators_, forest.estimators_samples_, strict=True):
        unseen = np.ones(len(targets), bool)
        unseen[drawn] = False
        if unseen.any():
            guess = tree.predict(inputs[unseen])
            count[unseen] += 1
            total[unseen] += guess
            squares[unseen] += guess**2
    # A row needs two trees that were not trained on it for a variance among them.
    known = count >= 2
    if not known.any():
        return fit_mean(inputs, targets, seed)
    mean = total[known] / count[known]
    spread = np.maximum(squares[known] / count[known] - mean**2, 0)
    errors = (targets[known] - centre - mean) ** 2
    columns = np.stack([np.full(len(errors), errors.mean()), spread], axis=1)
    constant, slope = LinearRegression(positive=True, fit_intercept=False).fit(columns, errors).coef_
    # At least 1%: with ``a`` of 0, rows on which all trees agree would have no variance.
    noise = np.sqrt(max(constant, 0.01) * errors.mean())

    def predict(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        total, squares = np.zeros((2, len(rows)))
        for tree in forest.estimators_:
            guess = tree.predict(rows)
            total += guess
            squares += guess**2
        mean = total / _TREES
        spread = np.maximum(squares / _TREES - mean**2, 0)
        return centre + mean, np.full(len(rows), noise), np.sqrt(slope * spread)

    return predict


class Baseline(NamedTuple):
    """A baseline: how it is written and drawn, and ``fit(inputs, targets, seed)``."""

    style: Style
    fit: Callable[[np.ndarray, np.ndarray, int], Fitted]


BASELINES = {
    "mean": Baseline(Style("train mean", "#999999", ":", "x"), fit_mean),
    "linear": Baseline(Style("linear", "#56B4E9", "-.", "v"), fit_linear),
    "boosting": Baseline(Style("boosted trees", "#000000", "--", "D"), fit_boosting),
    "forest": Baseline(Style("random forest", "#882255", "-.", "^"), fit_forest),
}
"""Every baseline by name."""
