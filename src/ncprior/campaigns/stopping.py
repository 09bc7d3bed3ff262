"""Stop rules: when a campaign has labels enough, and how many more it is likely to need."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ncprior.campaigns.audit import RECENT, AuditRow, Scores, scores
from ncprior.campaigns.spec import Spec

_FEWEST = 10
"""Audit rows, at least, by which a rule decides."""

_DRAWS = 200
_FARTHEST = 1e7
"""Labels beyond which a forecast says nothing."""


class Forecast(NamedTuple):
    """Labels that an error is expected to take, with the range of the middle 80% of resampled curves."""

    labels: float
    low: float
    high: float


class Rule(NamedTuple):
    """How near a stop rule is."""

    name: str  # budget, error or patience
    reached: bool
    text: str
    forecast: Forecast | None = None


def rules(spec: Spec, spent: int, labelled: int, audits: Sequence[AuditRow]) -> list[Rule]:
    """The state of every stop rule of a campaign.

    Args:
        spec: Which rules there are.
        spent: Rows labelled of the budget.
        labelled: Rows labelled in all.
        audits: Audit rows of the target, in the order of their labels.
    """
    found = []
    if spec.budget is not None:
        left = spec.budget - spent
        text = f"{spent} of {spec.budget} rows are labelled, {max(left, 0)} are left"
        found.append(Rule("budget", left <= 0, text))
    if spec.stop_error is not None:
        found.append(_error(spec.stop_error, labelled, audits))
    if spec.stop_patience is not None:
        found.append(_patience(spec.stop_patience, audits))
    return found


def present_scores(audits: Sequence[AuditRow]) -> Scores | None:
    """Scores of the last third of the audit rows: at least 10 of them, at most `RECENT`."""
    return scores(audits[-min(RECENT, max(_FEWEST, len(audits) // 3)) :]) if audits else None


def _error(wanted: float, labelled: int, audits: Sequence[AuditRow]) -> Rule:
    now = present_scores(audits)
    if now is None or now.rows < _FEWEST:
        count = 0 if now is None else now.rows
        return Rule(
            "error", False, f"{count} audit rows so far; {_FEWEST} are needed to judge an RMSE below {wanted:g}"
        )
    bound = f"the RMSE on audit rows is {now.rmse:.3g}, at most {now.rmse_high:.3g} with 95% confidence"
    if now.rmse_high <= wanted:
        return Rule("error", True, f"{bound}: below {wanted:g}")
    forecast = labels_until(wanted, audits)
    if forecast is None:
        return Rule("error", False, f"{bound}; it is not falling towards {wanted:g} so far")
    if forecast.high <= labelled:
        return Rule("error", False, f"{bound}; more audit rows must show that it is below {wanted:g}", forecast)
    more = " to ".join(_rounded(max(0.0, end - labelled)) for end in (forecast.low, forecast.high))
    return Rule("error", False, f"{bound}; for {wanted:g} about {more} more labels are expected", forecast)


def _patience(patience: int, audits: Sequence[AuditRow]) -> Rule:
    if not audits:
        return Rule("patience", False, "no audit rows so far")
    newest = audits[-1].labels
    late = [row for row in audits if row.labels > newest - patience]
    early = [row for row in audits if newest - 2 * patience < row.labels <= newest - patience]
    if min(len(late), len(early)) < _FEWEST:
        text = f"{len(early)} and {len(late)} audit rows before and in the last {patience} labels; {_FEWEST} are needed"
        return Rule("patience", False, text)
    before, now = scores(early).rmse, scores(late).rmse
    text = f"over the last {patience} labels the RMSE on audit rows went from {before:.3g} to {now:.3g}"
    return Rule("patience", now >= before, text)


def labels_until(wanted: float, audits: Sequence[AuditRow], seed: int = 0) -> Forecast | None:
    """When the RMSE is expected to reach a value, by a power law of the number of labels; None if it is not falling.

    Squared errors are taken as Gamma variables with mean ``exp(a + b log labels)``. The range comes from fits to
    audit rows drawn with replacement. A power law has no floor: noise in the labels can keep the error above a value.
    """
    logs = np.log([row.labels for row in audits])
    errors = np.array([row.squared_error for row in audits])
    if len(audits) < _FEWEST or logs.max() - logs.min() < math.log(1.2) or not errors.any():
        return None
    generator = np.random.default_rng(seed)
    draws = generator.integers(len(errors), size=(_DRAWS, len(errors)))
    reached = [_reached(wanted, logs[rows], errors[rows]) for rows in (np.arange(len(errors)), *draws)]
    if reached[0] is None:
        return None
    spread = [_FARTHEST if one is None else one for one in reached[1:]]
    return Forecast(reached[0], *(float(end) for end in np.quantile(spread, (0.1, 0.9))))


def _reached(wanted: float, logs: np.ndarray, errors: np.ndarray) -> float | None:
    """Labels at which a fitted power law reaches an RMSE: Gamma regression with a log link, by reweighting."""
    if np.ptp(logs) == 0 or errors.mean() == 0:
        return None
    centred = logs - logs.mean()
    level, slope = math.log(errors.mean()), 0.0
    for _ in range(25):
        fitted = level + slope * centred
        working = np.clip(errors * np.exp(-fitted) - 1, -1, 20)
        level += float(working.mean())
        slope = float(np.clip(slope + (working * centred).sum() / (centred**2).sum(), -10, 10))
    if slope >= -1e-3:
        return None
    return math.exp(min(logs.mean() + (2 * math.log(wanted) - level) / slope, math.log(_FARTHEST)))


def _rounded(labels: float) -> str:
    """A number of labels to two digits."""
    return "many" if labels >= _FARTHEST / 2 else f"{float(f'{labels:.2g}'):,.0f}"
