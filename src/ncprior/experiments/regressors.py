"""Any installed regressor with scikit-learn's interface as a method, by its import path."""

import importlib
import inspect
import re
from collections.abc import Callable
from typing import Literal, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, clone, is_regressor
from threadpoolctl import threadpool_limits

from ncprior.errors import UserError
from ncprior.experiments.forecasts import Doubt, Fitted, Forecast, from_interval, held_out_error

_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)
_LOWER, _UPPER = 0.05, 0.95
"""Quantiles at the ends of the 90% interval."""
_MANY = 100_000
"""From this many rows on OpenMP uses all cores; with fewer, its threads would mostly wait for each other."""

Result = TypeVar("Result")

Spread = Literal["std", "quantiles", "quantile fits", "constant"]
"""Where the spread of a regressor comes from.

- ``std``: ``predict(rows, return_std=True)``.
- ``quantiles``: ``predict(rows, quantiles=[...])``.
- ``quantile fits``: it has a quantile loss, and is fitted once for each end of the interval.
- ``constant``: five-fold errors, the same for every row.
"""


def is_path(name: str) -> bool:
    """Whether a method is named by an import path.

    >>> is_path("sklearn.linear_model.BayesianRidge"), is_path("bbb+ncp")
    (True, False)
    """
    return bool(_PATH.fullmatch(name))


def load(path: str) -> BaseEstimator:
    """The regressor at an import path: that of a class, which is made without arguments, or of an instance.

    Raises:
        UserError: If it cannot be imported, or is no regressor.
    """
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except AttributeError:
        raise UserError(f"{path}: {module} has no {name!r}; give the import path of an installed regressor") from None
    except Exception as error:  # whatever goes wrong in a module of someone else
        reason = f"{type(error).__name__}: {error}".replace("\n", " ")
        raise UserError(f"{path} cannot be imported ({reason}); is it installed?") from error
    if inspect.isclass(found):
        try:
            found = found()
        except Exception as error:
            reason = str(error).replace("\n", " ")
            raise UserError(
                f"{path} cannot be made without arguments ({reason}); give the path of an instance"
            ) from None
    if not _regresses(found):
        raise UserError(f"{path} is no regressor: it needs fit, predict and get_params as scikit-learn's have them")
    return found


def _regresses(model: object) -> bool:
    if not all(callable(getattr(model, name, None)) for name in ("fit", "predict", "get_params", "set_params")):
        return False
    try:
        return bool(is_regressor(model))
    except Exception:  # without scikit-learn's tags
        return False


def spread_of(model: BaseEstimator) -> Spread:
    """Where the spread of a regressor comes from.

    >>> from sklearn.linear_model import BayesianRidge, QuantileRegressor, Ridge
    >>> [spread_of(model) for model in (BayesianRidge(), QuantileRegressor(), Ridge())]
    ['std', 'quantile fits', 'constant']
    """
    named = inspect.signature(model.predict).parameters
    if "return_std" in named:
        return "std"
    if "quantiles" in named:
        return "quantiles"
    return "quantile fits" if _quantile_arguments(model, _LOWER) else "constant"


def _quantile_arguments(model: BaseEstimator, level: float) -> dict[str, object]:
    """The arguments that make a regressor predict this quantile; none if there are no such."""
    arguments = model.get_params()
    # scikit-learn's declare what they take; GradientBoosting calls the level alpha.
    losses = getattr(model, "_parameter_constraints", {}).get("loss", [])
    if "loss" in arguments and any("'quantile'" in str(kind) for kind in losses):
        return {"loss": "quantile", "quantile" if "quantile" in arguments else "alpha": level}
    return {"quantile": level} if "quantile" in arguments and "loss" not in arguments else {}


def fit_regressor(path: str, inputs: np.ndarray, targets: np.ndarray, seed: int) -> Fitted:
    """Train the regressor at this path.

    Raises:
        UserError: If its training or its predictions fail.
    """
    model = load(path)
    if "random_state" in model.get_params():
        model.set_params(random_state=seed)
    fits = {
        "std": _fit_std,
        "quantiles": _fit_quantiles,
        "quantile fits": _fit_each_quantile,
        "constant": _fit_constant,
    }
    fitted = _guarded(path, lambda: fits[spread_of(model)](model, inputs, targets, seed), len(targets))

    def predict(rows: np.ndarray) -> Forecast:
        found: Forecast = _guarded(path, lambda: fitted(rows), len(rows))
        for part in (found.mean, found.noise, found.uncertainty):
            if part.shape != (len(rows),) or not np.isfinite(part).all():
                raise UserError(f"{path} must predict one finite number for each of {len(rows)} rows, and does not")
        return found

    return predict


def _guarded(path: str, run: Callable[[], Result], rows: int) -> Result:
    """Run code of another package; an error becomes a `UserError` of one line."""
    try:
        with threadpool_limits(None if rows >= _MANY else 1, "openmp"):
            return run()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".replace("\n", " ")
        raise UserError(f"{path} failed ({reason})") from error


def _numbers(values: object) -> np.ndarray:
    found = np.asarray(values, np.float64)
    return found[:, 0] if found.ndim == 2 and found.shape[1] == 1 else found


def _fit_std(model: BaseEstimator, inputs: np.ndarray, targets: np.ndarray, seed: int) -> Fitted:  # noqa: ARG001
    fitted = clone(model).fit(inputs, targets)

    def predict(rows: np.ndarray) -> Forecast:
        mean, std = (_numbers(part) for part in fitted.predict(rows, return_std=True))
        return Forecast(mean, np.zeros(len(rows)), std, Doubt("predicted std", std))

    return predict


def _fit_quantiles(model: BaseEstimator, inputs: np.ndarray, targets: np.ndarray, seed: int) -> Fitted:  # noqa: ARG001
    fitted = clone(model).fit(inputs, targets)

    def predict(rows: np.ndarray) -> Forecast:
        lower, median, upper = np.asarray(fitted.predict(rows, quantiles=[_LOWER, 0.5, _UPPER]), np.float64).T
        return from_interval(median, lower, upper, "width between quantiles", targets)

    return predict


def _fit_each_quantile(model: BaseEstimator, inputs: np.ndarray, targets: np.ndarray, seed: int) -> Fitted:  # noqa: ARG001
    # What has a loss predicts the mean by default; what only predicts quantiles predicts the median.
    point = clone(model) if "loss" in model.get_params() else clone(model).set_params(quantile=0.5)
    ends = [clone(model).set_params(**_quantile_arguments(model, level)) for level in (_LOWER, _UPPER)]
    fitted = [one.fit(inputs, targets) for one in (point, *ends)]

    def predict(rows: np.ndarray) -> Forecast:
        mean, lower, upper = (_numbers(one.predict(rows)) for one in fitted)
        return from_interval(mean, lower, upper, "width between quantiles", targets)

    return predict


def _fit_constant(model: BaseEstimator, inputs: np.ndarray, targets: np.ndarray, seed: int) -> Fitted:
    def errors_after(rows: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        trained = clone(model).fit(inputs[rows], targets[rows])
        return lambda others: targets[others] - _numbers(trained.predict(inputs[others]))

    noise = held_out_error(errors_after, len(targets), seed)
    fitted = clone(model).fit(inputs, targets)
    return lambda rows: Forecast(_numbers(fitted.predict(rows)), np.full(len(rows), noise), np.zeros(len(rows)))
