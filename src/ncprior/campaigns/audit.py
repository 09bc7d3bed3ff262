"""The error of the models, measured on audit rows: drawn at random, and predicted before their label came.

Rows that a model picked are no fair sample: it picks what it knows least. Audit rows are drawn from the rows that have
no label yet, so their errors estimate that of the model on what is left of the pool, without bias.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist
from typing import NamedTuple

from sqlalchemy import Connection, select

from ncprior.campaigns.labels import current_labels
from ncprior.campaigns.predicted import LEVEL, Predicted
from ncprior.campaigns.schema import item, label, lease, model, prediction

RECENT = 50
"""Audit rows, at most, that stand for the present error: the last third of them, so that old models do not count."""

_FEWEST = 10
"""Audit rows, at least, of a point of the curve."""


class AuditRow(NamedTuple):
    """A target of an audit row: what was predicted, and what came."""

    row: str
    target: str
    model: int
    labels: int  # rows that the model had learned from
    value: float  # the average, if several people labelled the row
    predicted: Predicted

    @property
    def squared_error(self) -> float:
        """Of the predicted mean."""
        return (self.value - self.predicted.mean) ** 2


class Scores(NamedTuple):
    """Scores of predictions on audit rows."""

    rows: int
    labels: float  # that the models had learned from, on average
    rmse: float
    rmse_low: float
    rmse_high: float
    coverage: float  # of the 90% interval
    nlpd: float


def audit_rows(connection: Connection, campaign_id: int) -> list[AuditRow]:
    """Audit rows with a label and an earlier prediction, in the order in which their labels came."""
    marked = select(lease.c.item).where(lease.c.campaign == campaign_id, lease.c.audit)
    query = (
        current_labels()
        .add_columns(item.c.row_key, model.c.metrics["rows"].as_integer().label("learned"), prediction.c["values"])
        .join(item, item.c.id == label.c.item)
        .join(model, model.c.id == label.c.model)
        .join(prediction, (prediction.c.model == label.c.model) & (prediction.c.row_key == item.c.row_key))
        .where(label.c.campaign == campaign_id, label.c.item.in_(marked))
        .order_by(label.c.id)
    )
    found: dict[tuple[str, str], list[AuditRow]] = {}
    for one in connection.execute(query):
        predicted = Predicted.from_json(one.values[one.target])
        row = AuditRow(one.row_key, one.target, one.model, one.learned, one.value, predicted)
        found.setdefault((one.row_key, one.target), []).append(row)
    # Of several people, who told first had the prediction of a model that knew none of their labels.
    firsts = (min(rows, key=lambda row: row.model) for rows in found.values())
    averages = (sum(row.value for row in rows) / len(rows) for rows in found.values())
    return [first._replace(value=average) for first, average in zip(firsts, averages, strict=True)]


def scores(rows: Sequence[AuditRow]) -> Scores:
    """RMSE with its 90% confidence interval, coverage and NLPD of rows of one target."""
    errors = [row.squared_error for row in rows]
    low, high = rmse_interval(errors)
    count = len(rows)
    return Scores(
        count,
        sum(row.labels for row in rows) / count,
        math.sqrt(sum(errors) / count),
        low,
        high,
        sum(row.predicted.covers(row.value) for row in rows) / count,
        -sum(row.predicted.log_prob(row.value) for row in rows) / count,
    )


def curve(rows: Sequence[AuditRow], most: int = 8) -> list[Scores]:
    """Scores over labels: rows in the order of their labels, in up to ``most`` groups of about equal size."""
    if not rows:
        return []
    groups = max(1, min(most, len(rows) // _FEWEST))
    bounds = [round(i * len(rows) / groups) for i in range(groups + 1)]
    return [scores(rows[low:high]) for low, high in pairwise(bounds)]


def rmse_interval(squared_errors: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """A confidence interval of the RMSE.

    A mean of squared errors is about a scaled chi-square variable, whose degrees of freedom follow from the variance
    of the squared errors (Satterthwaite); normal errors have one for each row. Its quantiles are those of Wilson and
    Hilferty (1931).

    >>> low, high = rmse_interval([1.0, 0.5, 2.0, 0.1, 1.4, 0.3, 0.9, 1.8])
    >>> low < 1.0 < high
    True
    """
    count = len(squared_errors)
    mean = sum(squared_errors) / count
    if count < 2 or mean == 0:
        return 0.0, (0.0 if count > 1 else math.inf)
    variance = sum((one - mean) ** 2 for one in squared_errors) / (count - 1)
    freedom = min(count, 2 * mean**2 / (variance / count)) if variance else float(count)
    ends = []
    for probability in (0.5 + level / 2, 0.5 - level / 2):
        z = NormalDist().inv_cdf(probability)
        cube = 1 - 2 / (9 * freedom) + z * math.sqrt(2 / (9 * freedom))
        ends.append(math.sqrt(mean / cube**3) if cube > 0 else math.inf)
    return ends[0], ends[1]
