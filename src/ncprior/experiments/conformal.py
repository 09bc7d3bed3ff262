"""Conformal intervals of MAPIE around boosted trees: ``pip install "ncprior[conformal]"``."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from ncprior.experiments.forecasts import Fitted, Forecast, from_interval

_LEVEL = 0.9
_SHARE = 0.2
"""Share of the training rows by which quantiles are corrected."""
_BLOCK = 500
"""Rows that are predicted at a time: each is compared with every training row."""
_WIDTH = "width of the interval"


@contextmanager
def _quiet() -> Iterator[None]:
    """One thread, and no messages about quantiles that cross: these are widened."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with threadpool_limits(1, "openmp"), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            yield
    finally:
        logging.disable(before)


def fit_cross_conformal(inputs: np.ndarray, targets: np.ndarray, seed: int) -> Fitted:
    """CV+ intervals (Barber et al., 2021) of boosted trees, five folds. Their widths hardly differ between rows."""
    from mapie.regression import CrossConformalRegressor

    model = CrossConformalRegressor(
        HistGradientBoostingRegressor(random_state=seed), confidence_level=_LEVEL, method="plus", random_state=seed
    )
    with _quiet():
        model.fit_conformalize(inputs, targets)

    def predict(rows: np.ndarray) -> Forecast:
        with _quiet():
            starts = range(0, len(rows), _BLOCK)
            parts = [model.predict_interval(rows[start : start + _BLOCK]) for start in starts]
        mean = np.concatenate([part[0] for part in parts])
        ends = np.concatenate([part[1][:, :, 0] for part in parts])
        return from_interval(mean, ends[:, 0], ends[:, 1], _WIDTH, targets)

    return predict


def fit_conformal_quantiles(inputs: np.ndarray, targets: np.ndarray, seed: int) -> Fitted:
    """Conformalized quantile regression (Romano et al., 2019) of boosted trees. A fifth of the rows corrects it."""
    from mapie.regression import ConformalizedQuantileRegressor

    order = np.random.default_rng(seed).permutation(len(targets))
    held, rest = np.split(order, [max(1, round(_SHARE * len(order)))])
    trees = HistGradientBoostingRegressor(loss="quantile", quantile=0.5, random_state=seed)
    model = ConformalizedQuantileRegressor(trees, confidence_level=_LEVEL)
    with _quiet():
        model.fit(inputs[rest], targets[rest]).conformalize(inputs[held], targets[held])

    def predict(rows: np.ndarray) -> Forecast:
        with _quiet():
            mean, ends = model.predict_interval(rows)
        return from_interval(mean, ends[:, 0, 0], ends[:, 1, 0], _WIDTH, targets)

    return predict
