"""A Gaussian process on as many rows as it can learn from in seconds."""

import warnings
from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from threadpoolctl import threadpool_limits

from ncprior.experiments.forecasts import Doubt, Fitted, Forecast

MOST_ROWS = 2_000
"""Training rows that it learns from, at most; of more, as many are drawn at random."""
_SEARCH_ROWS = 500
"""Rows on which the kernel's parameters are found, at most."""
_MOST_LENGTHS = 20
"""Columns up to which each has a length of its own; with more, all share one."""
_EVALUATIONS = 100
"""Evaluations of the likelihood for that, at most: scikit-learn alone would go on for thousands on some tables."""
_BLOCK = 2_000
"""Rows that are predicted at a time, which bounds the memory."""


def fit_gaussian_process(inputs: np.ndarray, targets: np.ndarray, seed: int) -> Fitted:
    """scikit-learn's Gaussian process: a scaled RBF kernel, with a length for each column if there are few, and noise.

    Parameters by marginal likelihood. The uncertainty is that of the function; the noise is constant.
    """
    order = np.random.default_rng(seed).permutation(len(targets))[:MOST_ROWS]
    inputs, targets = inputs[order], targets[order]
    mean, scale = targets.mean(), targets.std() or 1.0
    lengths: np.ndarray | float = np.ones(inputs.shape[1]) if inputs.shape[1] <= _MOST_LENGTHS else 1.0
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * RBF(lengths * np.sqrt(inputs.shape[1]), (1e-2, 1e3))
    kernel += WhiteKernel(0.1, (1e-6, 1e1))
    standardised = (targets - mean) / scale
    # With a thread for each core, small matrices would mostly wait.
    with warnings.catch_warnings(), threadpool_limits(1, "blas"):
        warnings.simplefilter("ignore", ConvergenceWarning)  # lengths at their bound: that is how a column is left out
        search = GaussianProcessRegressor(kernel, optimizer=_climb)
        found = search.fit(inputs[:_SEARCH_ROWS], standardised[:_SEARCH_ROWS]).kernel_
        model = GaussianProcessRegressor(found, optimizer=None).fit(inputs, standardised)
    noise = float(np.sqrt(found.k2.noise_level))

    def predict(rows: np.ndarray) -> Forecast:
        with threadpool_limits(1, "blas"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Predicted variances smaller than 0")
            starts = range(0, len(rows), _BLOCK)
            parts = [model.predict(rows[start : start + _BLOCK], return_std=True) for start in starts]
        guess, std = (np.concatenate([part[i] for part in parts]) for i in range(2))
        uncertainty = scale * np.sqrt(np.maximum(std**2 - noise**2, 0))
        doubt = Doubt("std of the function", uncertainty)
        return Forecast(mean + scale * guess, np.full(len(rows), scale * noise), uncertainty, doubt)

    return predict


def _climb(
    objective: Callable[[np.ndarray], tuple[float, np.ndarray]], start: np.ndarray, bounds: np.ndarray
) -> tuple[np.ndarray, float]:
    """Minimise as scikit-learn does, with a bounded number of evaluations."""
    found = minimize(objective, start, method="L-BFGS-B", jac=True, bounds=bounds, options={"maxfun": _EVALUATIONS})
    return found.x, float(found.fun)
