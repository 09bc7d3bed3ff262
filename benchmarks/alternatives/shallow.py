"""Boosted trees, a Gaussian process, and the mean of the training rows."""

import contextlib
import io
import warnings
from collections.abc import Callable

import numpy as np

from benchmarks.alternatives.metrics import Forecast, Piecewise, normal

Predict = Callable[[np.ndarray], Forecast]

QUANTILES = np.array([0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975])

_WIDTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Floors and tails that quantile boosting chooses from, in standard deviations of the training targets."""


def train_mean(inputs: np.ndarray, targets: np.ndarray, seed: int) -> Predict:  # noqa: ARG001
    """The mean and the variance of the training targets, whatever the inputs."""
    return lambda rows: normal(np.full(len(rows), targets.mean()), float(targets.std()))


def constant_boosting(inputs: np.ndarray, targets: np.ndarray, seed: int) -> Predict:
    """Boosted trees with scikit-learn's defaults, and one variance: that of the residuals in five folds at random."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.model_selection import KFold, cross_val_predict

    model = HistGradientBoostingRegressor(random_state=seed)
    residuals = targets - cross_val_predict(model, inputs, targets, cv=KFold(5, shuffle=True, random_state=seed))
    model.fit(inputs, targets)
    return lambda rows: normal(model.predict(rows), float(np.sqrt(np.mean(residuals**2))))


def quantile_boosting(inputs: np.ndarray, targets: np.ndarray, seed: int) -> Predict:
    """One model for each of 13 quantiles, and one of the squared error for the point prediction.

    scikit-learn's defaults, with its own early stopping, as 100 rounds are too many for quantiles of small tables.
    `Piecewise` makes a density of the quantiles. Its two widths are those with the best likelihood on a tenth of the
    rows that the models do not see, and the floor is never below the smallest difference between targets: on a target
    of whole numbers a continuous density could otherwise be made as high as one likes.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    held_out, rest = _tenth(len(targets), seed)

    def boost(**loss: float | str) -> "HistGradientBoostingRegressor":
        model = HistGradientBoostingRegressor(early_stopping=True, max_iter=500, random_state=seed, **loss)
        return model.fit(inputs[rest], targets[rest])

    point = boost()
    models = [boost(loss="quantile", quantile=float(level)) for level in QUANTILES]
    finest = float(np.diff(np.unique(targets)).min()) if len(np.unique(targets)) > 1 else 1.0

    def forecast(rows: np.ndarray, floor: float, tail: float) -> Piecewise:
        quantiles = np.column_stack([model.predict(rows) for model in models])
        return Piecewise(point.predict(rows), QUANTILES, quantiles, max(floor, finest), tail)

    first = forecast(inputs[held_out], 0.0, 0.0)
    scale = float(targets.std())
    tried = {}
    for floor in _WIDTHS:
        for tail in _WIDTHS:
            widths = (max(floor * scale, finest), tail * scale)
            guess = Piecewise(first.point, QUANTILES, first.quantiles, *widths)
            tried[widths] = float(np.mean(guess.log_prob(targets[held_out])))
    best = max(tried, key=tried.__getitem__)
    return lambda rows: forecast(rows, *best)


def ngboost(inputs: np.ndarray, targets: np.ndarray, seed: int) -> Predict:
    """NGBoost with its defaults: normal, log score, trees of depth 3, learning rate 0.01.

    The number of rounds, 2000 at most, is the best for held-out rows, and the model is then fitted anew on all rows
    with that number, as in the experiments of Duan et al. (2020); they hold out a fifth, here it is a tenth.
    """
    from ngboost import NGBRegressor

    held_out, rest = _tenth(len(targets), seed)
    search = NGBRegressor(n_estimators=2000, verbose=False, random_state=seed)
    with contextlib.redirect_stdout(io.StringIO()):
        search.fit(inputs[rest], targets[rest], inputs[held_out], targets[held_out], early_stopping_rounds=50)
        rounds = max(1, (search.best_val_loss_itr or 0) + 1)
        model = NGBRegressor(n_estimators=rounds, verbose=False, random_state=seed).fit(inputs, targets)

    def predict(rows: np.ndarray) -> Forecast:
        parameters = model.pred_dist(rows).params
        return normal(parameters["loc"], parameters["scale"])

    return predict


def gaussian_process(inputs: np.ndarray, targets: np.ndarray, seed: int) -> Predict:
    """scikit-learn's Gaussian process as in its user guide: a scaled RBF with a length for each input, white noise.

    Inputs are standardised, targets too (``normalize_y``); the marginal likelihood is climbed from two places.
    """
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(inputs)
    lengths = np.ones(inputs.shape[1])
    kernel = ConstantKernel(1.0) * RBF(lengths, (1e-2, 1e3)) + WhiteKernel(0.1, (1e-6, 1e1))
    model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=1, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lengths at their bound, which is how an input is left out
        model.fit(scaler.transform(inputs), targets)

    def predict(rows: np.ndarray) -> Forecast:
        mean, std = model.predict(scaler.transform(rows), return_std=True)
        return normal(mean, std)

    return predict


def _tenth(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A tenth of the rows at random, and the others."""
    order = np.random.default_rng(seed).permutation(rows)
    count = max(1, rows // 10)
    return order[:count], order[count:]
