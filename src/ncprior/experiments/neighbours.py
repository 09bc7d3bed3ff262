"""Nearest neighbours: their mean is the prediction, and their distance the doubt."""

import numpy as np
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import NearestNeighbors

from ncprior.experiments.forecasts import Doubt, Fitted, Forecast

NEIGHBOURS = 5
MOST_ROWS = 20_000
"""Training rows among which neighbours are looked for, at most; of more, as many are drawn at random."""
_BLOCK = 5_000
"""Rows that are compared with the training rows at a time, which bounds the memory."""


def fit_neighbours(inputs: np.ndarray, targets: np.ndarray, seed: int) -> Fitted:
    """The mean of the five nearest training rows, with variance ``a + b d^2`` at mean distance ``d`` from them.

    ``a`` and ``b`` are fitted to squared errors on the training rows, none of which is a neighbour of itself, by
    non-negative least squares. ``d`` is the doubt, whatever ``b``.
    """
    if len(targets) > MOST_ROWS:
        kept = np.random.default_rng(seed).choice(len(targets), MOST_ROWS, replace=False)
        inputs, targets = inputs[kept], targets[kept]
    count = min(NEIGHBOURS, len(targets) - 1)
    index = NearestNeighbors(n_neighbors=count).fit(inputs)
    distance, nearest = index.kneighbors()
    errors = (targets - targets[nearest].mean(1)) ** 2
    squares = distance.mean(1) ** 2
    columns = np.stack([np.full(len(errors), errors.mean()), squares], axis=1)
    constant, slope = LinearRegression(positive=True, fit_intercept=False).fit(columns, errors).coef_
    # At least 1%: with ``a`` of 0, rows that are among the training rows would have no variance.
    noise = np.sqrt(max(constant, 0.01) * errors.mean())

    def predict(rows: np.ndarray) -> Forecast:
        parts = [index.kneighbors(rows[start : start + _BLOCK]) for start in range(0, len(rows), _BLOCK)]
        distance = np.concatenate([part[0].mean(1) for part in parts])
        mean = np.concatenate([targets[part[1]].mean(1) for part in parts])
        doubt = Doubt(f"distance to the {count} nearest rows", distance)
        return Forecast(mean, np.full(len(rows), noise), np.sqrt(slope) * distance, doubt)

    return predict
