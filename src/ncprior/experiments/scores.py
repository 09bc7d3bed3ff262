"""Scores of predictions for rows whose targets are known."""

from typing import NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from jax import Array
from sklearn.metrics import roc_auc_score

from ncprior.core import metrics
from ncprior.core.prediction import Predictive, heavy_tailed
from ncprior.tables.estimator import NCPRegressor
from ncprior.tables.programs import chunked

LEVELS = tuple(round(0.05 * i, 2) for i in range(1, 20))
"""Levels of the central intervals whose coverage is the calibration curve."""
BINS = 10
"""Number of groups of rows, from the least to the most uncertain, in which errors and uncertainties are compared."""


class Standardised(NamedTuple):
    """A prediction ``[rows, 1]`` of ``(y - shift) / scale``, as float32 has too few digits for a large shift."""

    prediction: Predictive
    shift: float
    scale: float


def predict(model: NCPRegressor, inputs: pa.Table) -> Standardised:
    """The prediction of an estimator with one target."""
    found = model.predict_distribution(inputs)
    return Standardised(heavy_tailed(found.standardised), float(found.shift[0]), float(found.scale[0]))


class Bin(TypedDict):
    """A group of rows: root mean squares of the predicted standard deviation and of the error, and number of rows."""

    std: float
    rmse: float
    rows: int


class Scores(TypedDict):
    """Scores of a prediction in units of the target; see `scores`."""

    rmse: float
    nlpd: float
    crps: float
    coverage: float
    std: float
    calibration: list[float]
    bins: list[Bin]


def scores(standardised: Standardised, truth: np.ndarray) -> Scores:
    """Score a prediction.

    Args:
        standardised: The prediction.
        truth: The targets ``[rows]``, in their own unit.

    Returns:
        RMSE, NLPD, CRPS and 90% ``coverage``; ``std``, the root mean square of the predicted standard deviation;
        ``calibration``, the coverage at each of `LEVELS`; and ``bins``, groups of equal size by predicted standard
        deviation.
    """
    prediction, shift, scale = standardised
    truth = (truth - shift) / scale
    values = _metrics(prediction, truth)
    error, std = scale * (values["mean"] - truth), scale * values["std"]
    groups = np.array_split(np.argsort(std, kind="stable"), min(BINS, len(std)))
    return {
        "rmse": _root_mean_square(error),
        "nlpd": float(values["nlpd"].mean() + np.log(scale)),
        "crps": float(scale * values["crps"].mean()),
        "coverage": float(np.mean(values["centrality"] <= 0.9)),
        "std": _root_mean_square(std),
        "calibration": [float(np.mean(values["centrality"] <= level)) for level in LEVELS],
        "bins": [
            {"std": _root_mean_square(std[rows]), "rmse": _root_mean_square(error[rows]), "rows": len(rows)}
            for rows in groups
        ],
    }


def detection(outside: Standardised, inside: Standardised) -> float:
    """How well the uncertainty separates rows unlike the training rows from rows like them: area under the ROC curve.

    It is the probability that a row of ``outside`` is more uncertain than one of ``inside``, where a tie counts half.
    0.5 is chance.
    """
    parts = [_metrics(part.prediction, np.zeros(_rows(part.prediction)))["uncertainty"] for part in (outside, inside)]
    labels = np.repeat([1, 0], [len(part) for part in parts])
    return float(roc_auc_score(labels, np.nan_to_num(np.concatenate(parts))))


@jax.jit
@jax.vmap
def _row_metrics(prediction: Predictive, y: Array) -> dict[str, Array]:
    """Metrics of one row; ``centrality`` is the level of the smallest central interval that contains ``y``."""
    row = jax.tree.map(lambda leaf: leaf[None], prediction)
    values = {name: getattr(prediction, name)[0] for name in ("mean", "std", "uncertainty")}
    values |= {name: metrics.METRICS[name](row, y[None]) for name in ("nlpd", "crps")}
    return values | {"centrality": jnp.abs(2 * prediction.cdf(y)[0] - 1)}


def _metrics(prediction: Predictive, truth: np.ndarray) -> dict[str, np.ndarray]:
    """`_row_metrics` of all rows, as float64."""
    values = chunked(_row_metrics, prediction, np.asarray(truth, np.float32)[:, None])
    return {name: np.asarray(column, np.float64) for name, column in values.items()}


def _rows(prediction: Predictive) -> int:
    return len(jax.tree.leaves(prediction)[0])


def _root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))
