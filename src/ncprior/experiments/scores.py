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
from ncprior.experiments.conditional_coverage import UnseenRows
from ncprior.experiments.forecasts import Doubt
from ncprior.experiments.risk_coverage import rank_correlation, risk_coverage
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
    doubt: Doubt | None = None  # what says how unsure the method is of each row
    familiarity: np.ndarray | None = None  # of each row, if the method has its own


def predict(model: NCPRegressor, inputs: pa.Table) -> Standardised:
    """The prediction of an estimator with one target."""
    found = model.predict_distribution(inputs)
    doubt = Doubt("uncertainty", found.uncertainty)
    shift, scale = float(found.shift[0]), float(found.scale[0])
    return Standardised(heavy_tailed(found.standardised), shift, scale, doubt, found.familiarity)


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
    rank: float
    aurc: float
    aurc_best: float
    risk: list[float]


def scores(standardised: Standardised, truth: np.ndarray) -> Scores:
    """Score a prediction.

    Args:
        standardised: The prediction.
        truth: The targets ``[rows]``, in their own unit.

    Returns:
        RMSE, NLPD, CRPS and 90% ``coverage``; ``std``, the root mean square of the predicted standard deviation;
        ``calibration``, the coverage at each of `LEVELS`; ``bins``, groups of equal size by predicted standard
        deviation; ``rank``, Spearman's correlation of that and the absolute error; ``risk``, ``aurc`` and
        ``aurc_best``, the curve and areas of `ncprior.experiments.risk_coverage`.
    """
    prediction, shift, scale, *_ = standardised
    truth = (truth - shift) / scale
    values = _metrics(prediction, truth)
    error, std = scale * (values["mean"] - truth), scale * values["std"]
    groups = np.array_split(np.argsort(std, kind="stable"), min(BINS, len(std)))
    risk = risk_coverage(error, std)
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
        "rank": rank_correlation(np.abs(error), std),
        "aurc": risk.area,
        "aurc_best": risk.best,
        "risk": risk.curve,
    }


def detection(outside: Doubt, inside: Doubt) -> float:
    """How well doubt separates rows unlike the training rows from rows like them: area under the ROC curve.

    It is the probability that a row of ``outside`` is more doubtful than one of ``inside``, where a tie counts half.
    0.5 is chance.
    """
    labels = np.repeat([1, 0], [len(outside.values), len(inside.values)])
    return float(roc_auc_score(labels, np.nan_to_num(np.concatenate([outside.values, inside.values]))))


def unseen_rows(standardised: Standardised, truth: np.ndarray, familiarity: np.ndarray) -> UnseenRows:
    """The rows with what conditional coverage needs of them, in units of the target."""
    prediction, shift, scale, *_ = standardised
    truth = (truth - shift) / scale
    values = _metrics(prediction, truth)
    half_width = scale * np.asarray(chunked(_half_widths, prediction), np.float64)[:, 0]
    return UnseenRows(familiarity, scale * (values["mean"] - truth), half_width, values["centrality"] <= 0.9)


@jax.jit
@jax.vmap
def _row_metrics(prediction: Predictive, y: Array) -> dict[str, Array]:
    """Metrics of one row; ``centrality`` is the level of the smallest central interval that contains ``y``."""
    row = jax.tree.map(lambda leaf: leaf[None], prediction)
    values = {name: getattr(prediction, name)[0] for name in ("mean", "std")}
    values |= {name: metrics.METRICS[name](row, y[None]) for name in ("nlpd", "crps")}
    return values | {"centrality": jnp.abs(2 * prediction.cdf(y)[0] - 1)}


def _metrics(prediction: Predictive, truth: np.ndarray) -> dict[str, np.ndarray]:
    """`_row_metrics` of all rows, as float64."""
    values = chunked(_row_metrics, prediction, np.asarray(truth, np.float32)[:, None])
    return {name: np.asarray(column, np.float64) for name, column in values.items()}


@jax.jit
def _half_widths(prediction: Predictive) -> Array:
    """Half the width of the central 90% interval, ``[rows, 1]``."""
    lower, upper = prediction.interval(0.9)
    return 0.5 * (upper - lower)


def _root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))
