"""How many labels a rule saves: a comparison of its learning curve with that of a control."""

from typing import NamedTuple

import numpy as np

_LEVELS = 100
"""Points of the control's curve at which labels are compared."""
_RESAMPLES = 1_000
"""Times that the seeds are drawn with replacement."""


class Saving(NamedTuple):
    """Share of the control's labels that a rule saves.

    Attributes:
        mean: The share, from the mean curves over the seeds.
        low: Its 5% quantile over resampled seeds; NaN with one seed.
        high: Its 95% quantile.
    """

    mean: float
    low: float
    high: float


def labels_saved(labels: np.ndarray, curve: np.ndarray, control: np.ndarray) -> float:
    """Share of the control's labels that a rule saves for the same value of a metric, averaged along the curve.

    The average is over numbers of labels of the control, up to the first at which it has its best value. Curves are
    interpolated linearly, and replaced by their running minima. A value that the rule never reaches counts as reached
    with its last label, so the result is then an upper bound.

    Args:
        labels: Numbers of labels after which models were tested ``[rounds]``.
        curve: The metric of the rule ``[rounds]``; lower is better.
        control: The metric of the control ``[rounds]``.

    Returns:
        The share: 0.3 if the rule needs 30% fewer labels, negative if it needs more, NaN if a curve does not end in a
        finite number.

    >>> labels = np.array([10.0, 20.0, 40.0])
    >>> labels_saved(labels, curve=np.array([4.0, 1.0, 1.0]), control=np.array([4.0, 2.0, 1.0])) > 0.3
    True
    """
    curve, control = np.minimum.accumulate(curve), np.minimum.accumulate(control)
    if not np.isfinite([curve[-1], control[-1]]).all():
        return float("nan")
    last = reach(labels, control, control[-1])
    levels = np.interp(np.linspace(labels[0], last, _LEVELS + 1)[1:], labels, control)
    needed, by_control = (sum(reach(labels, one, level) for level in levels) for one in (curve, control))
    return float(1 - needed / by_control)


def reach(labels: np.ndarray, curve: np.ndarray, level: float) -> float:
    """The number of labels at which a falling curve first is at most ``level``; the last one if it never is."""
    if curve[-1] > level:
        return float(labels[-1])
    after = int(np.argmax(curve <= level))
    if after == 0 or not np.isfinite(curve[after - 1]):
        return float(labels[after])
    part = (curve[after - 1] - level) / (curve[after - 1] - curve[after])
    return float(labels[after - 1] + part * (labels[after] - labels[after - 1]))


def bootstrap_saving(labels: np.ndarray, rule: np.ndarray, control: np.ndarray) -> Saving:
    """Labels saved by the mean curve of a rule, with an interval by resampling the seeds.

    Args:
        labels: Numbers of labels after which models were tested ``[rounds]``.
        rule: The metric of the rule ``[seeds, rounds]``.
        control: The metric of the control ``[seeds, rounds]``.
    """
    seeds = len(rule)
    mean = labels_saved(labels, rule.mean(0), control.mean(0))
    if seeds == 1:
        return Saving(mean, float("nan"), float("nan"))
    rng = np.random.default_rng(0)
    # The rule and the control are resampled together: with one seed they share test rows and first labels.
    draws = rng.integers(seeds, size=(_RESAMPLES, seeds))
    found = np.array([labels_saved(labels, rule[draw].mean(0), control[draw].mean(0)) for draw in draws])
    low, high = np.quantile(found[~np.isnan(found)], [0.05, 0.95]) if np.isfinite(found).any() else (np.nan, np.nan)
    return Saving(mean, float(low), float(high))
