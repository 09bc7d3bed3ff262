"""Baselines that people would use instead of a network, each with a predictive variance.

They are trained on the same encoded columns as the networks.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import BayesianRidge, LinearRegression
from threadpoolctl import threadpool_limits

from ncprior.core.registry import Style
from ncprior.data.encoding import Encoder
from ncprior.experiments.conformal import fit_conformal_quantiles, fit_cross_conformal
from ncprior.experiments.forecasts import Doubt, Fitted, Forecast, held_out_error
from ncprior.experiments.gaussian_process import fit_gaussian_process
from ncprior.experiments.neighbours import fit_neighbours
from ncprior.experiments.regressors import fit_regressor, is_path
from ncprior.experiments.scores import Standardised
from ncprior.tables.recipe import shift_and_scale

_TREES = 200
_ENOUGH = 20_000
"""Rows that a quick comparison learns from: two seconds of a core."""
_MANY = 100_000
"""From this many rows on, boosting uses all cores; with fewer, threads would mostly wait for each other."""


def fit(name: str, inputs: pa.Table, targets: np.ndarray, seed: int) -> Callable[[pa.Table], Standardised]:
    """Train the baseline of this name, or the regressor at this import path.

    Returns:
        A function that predicts the rows of a table.
    """
    encoder = Encoder.fit(inputs)
    train = partial(fit_regressor, name) if is_path(name) else {**BASELINES, **CONFORMAL}[name].fit
    fitted = train(encoder.transform(inputs).astype(np.float64), targets, seed)
    shift, scale = (float(part[0]) for part in shift_and_scale(targets[:, None], None))

    def predict(rows: pa.Table) -> Standardised:
        found = fitted(encoder.transform(rows).astype(np.float64))
        return Standardised(found.standardised(shift, scale), shift, scale, found.doubt)

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
    return lambda rows: Forecast(np.full(len(rows), mean), np.full(len(rows), std), np.zeros(len(rows)))


def fit_linear(inputs: np.ndarray, targets: np.ndarray, seed: int) -> Fitted:  # noqa: ARG001
    """Bayesian ridge regression (MacKay, 1992). Noise and weight uncertainty follow from the evidence."""
    model = BayesianRidge().fit(inputs, targets)
    noise = 1 / np.sqrt(model.alpha_)

    def predict(rows: np.ndarray) -> Forecast:
        mean, std = model.predict(rows, return_std=True)
        uncertainty = np.sqrt(np.maximum(std**2 - noise**2, 0))
        return Forecast(mean, np.full(len(rows), noise), uncertainty, Doubt("std of the line", uncertainty))

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

    def errors_after(rows: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        guess = train(rows)
        return lambda held: targets[held] - guess(inputs[held])

    noise, guess = held_out_error(errors_after, len(targets), seed), train(np.arange(len(targets)))
    return lambda rows: Forecast(guess(rows), np.full(len(rows), noise), np.zeros(len(rows)))


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
    repeated = count >= 2
    if not repeated.any():
        return fit_mean(inputs, targets, seed)
    mean = total[repeated] / count[repeated]
    spread = np.maximum(squares[repeated] / count[repeated] - mean**2, 0)
    errors = (targets[repeated] - centre - mean) ** 2
    columns = np.stack([np.full(len(errors), errors.mean()), spread], axis=1)
    constant, slope = LinearRegression(positive=True, fit_intercept=False).fit(columns, errors).coef_
    # At least 1%: with ``a`` of 0, rows on which all trees agree would have no variance.
    noise = np.sqrt(max(constant, 0.01) * errors.mean())

    def predict(rows: np.ndarray) -> Forecast:
        total, squares = np.zeros((2, len(rows)))
        for tree in forest.estimators_:
            guess = tree.predict(rows)
            total += guess
            squares += guess**2
        mean = total / _TREES
        spread = np.maximum(squares / _TREES - mean**2, 0)
        doubt = Doubt("disagreement of the trees", spread)
        return Forecast(centre + mean, np.full(len(rows), noise), np.sqrt(slope * spread), doubt)

    return predict


class Baseline(NamedTuple):
    """A baseline: how it is written and drawn, ``fit(inputs, targets, seed)``, and the module that it needs, if any."""

    style: Style
    fit: Callable[[np.ndarray, np.ndarray, int], Fitted]
    needs: str = ""


BASELINES = {
    "mean": Baseline(Style("train mean", "#999999", ":", "x"), fit_mean),
    "linear": Baseline(Style("linear", "#56B4E9", "-.", "v"), fit_linear),
    "boosting": Baseline(Style("boosted trees", "#000000", "--", "D"), fit_boosting),
    "forest": Baseline(Style("random forest", "#882255", "-.", "^"), fit_forest),
    "neighbours": Baseline(Style("nearest neighbours", "#117733", "--", "s"), fit_neighbours),
    "gp": Baseline(Style("Gaussian process", "#AA4499", "-", "P"), fit_gaussian_process),
}
"""Every baseline by name."""
CONFORMAL = {
    "mapie": Baseline(Style("MAPIE, CV+", "#DDAA33", "-.", "<"), fit_cross_conformal, "mapie"),
    "mapie-cqr": Baseline(Style("MAPIE, quantiles", "#997700", "--", ">"), fit_conformal_quantiles, "mapie"),
}
"""Conformal intervals by name, which need an extra."""
