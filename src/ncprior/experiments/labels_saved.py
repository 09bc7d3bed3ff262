"""How many labels a rule saves: a comparison of its learning curve with that of a control."""

from typing import NamedTuple

import numpy as np

_LEVELS = 100
"""Points of the control's curve at which labels are compared."""
_RESAMPLES = 1_000
"""Times that the seeds are drawn with replacement."""
_NEVER = 2.0
"""A value that a rule never reaches may need any number of labels more. The lower end of a range takes it for reached
with this many times the last label, so that a few such values widen the range and many leave nothing settled."""


class Saving(NamedTuple):
    """Share of the control's labels that a rule saves.

    Attributes:
        mean: The share, from the mean curves over the seeds; an upper bound if ``reached`` is below 1.
        low: Its 5% quantile over resampled seeds, where values that are never reached count as reached with twice the
            last label; NaN with one seed.
        high: Its 95% quantile, where they count as reached with the last label.
        reached: Share of the control's values that the mean curve of the rule reaches.
    """

    mean: float
    low: float
    high: float
    reached: float


class Compared(NamedTuple):
    """A learning curve compared with a control's.

    Attributes:
        saved: Share of the control's labels that are saved; an upper bound if ``reached`` is below 1.
        cautious: The same, where values that are never reached count as reached with twice the last label.
        reached: Share of the control's values that are reached.
    """

    saved: float
    cautious: float
    reached: float


def labels_saved(labels: np.ndarray, curve: np.ndarray, control: np.ndarray) -> Compared:
    """Share of the control's labels that a rule saves for the same value of a metric, averaged along the curve.

    The average is over numbers of labels of the control, up to the first at which it has its best value. Curves are
    interpolated linearly, and replaced by their running minima. For a value that the rule never reaches, it needs more
    than its last label: with that one in its place the share is an upper bound, and there is no lower one.

    Args:
        labels: Numbers of labels after which models were tested ``[rounds]``.
        curve: The metric of the rule ``[rounds]``; lower is better.
        control: The metric of the control ``[rounds]``.

    Returns:
        The share: 0.3 if the rule needs 30% fewer labels, negative if it needs more, NaN if a curve does not end in a
        finite number.

    >>> labels = np.array([10.0, 20.0, 40.0])
    >>> ahead = labels_saved(labels, curve=np.array([4.0, 1.0, 1.0]), control=np.array([4.0, 2.0, 1.0]))
    >>> behind = labels_saved(labels, curve=np.array([4.0, 3.0, 2.0]), control=np.array([4.0, 2.0, 1.0]))
    >>> ahead.saved > 0.3, ahead.reached, behind.saved < -0.3, round(behind.reached, 2)
    (True, 1.0, True, 0.33)
    """
    curve, control = np.minimum.accumulate(curve), np.minimum.accumulate(control)
    if not np.isfinite([curve[-1], control[-1]]).all():
        return Compared(float("nan"), float("nan"), float("nan"))
    last = reach(labels, control, control[-1:])
    levels = np.interp(np.linspace(labels[0], last[0], _LEVELS + 1)[1:], labels, control)
    levels = levels[np.isfinite(levels)]
    needed, by_control = reach(labels, curve, levels), reach(labels, control, levels)
    never = np.isinf(needed)
    saved, cautious = (
        float(1 - np.where(never, most, needed).sum() / by_control.sum()) for most in (labels[-1], _NEVER * labels[-1])
    )
    return Compared(saved, cautious, float(1 - never.mean()))


def reach(labels: np.ndarray, curve: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """The numbers of labels at which a falling curve first is at most each level; infinite if it never is."""
    after = np.searchsorted(-curve, -levels)
    before, following = np.maximum(after - 1, 0), np.minimum(after, len(curve) - 1)
    fall = curve[before] - curve[following]
    # From a value that is not finite, and before the first, there is nothing to interpolate.
    between = (after > 0) & np.isfinite(fall) & (fall > 0)
    part = np.divide(curve[before] - levels, fall, out=np.ones(len(levels)), where=between)
    found = labels[before] + part * (labels[following] - labels[before])
    return np.where(after < len(curve), found, np.inf)


def bootstrap_saving(labels: np.ndarray, rule: np.ndarray, control: np.ndarray) -> Saving:
    """Labels saved by the mean curve of a rule, with an interval by resampling the seeds.

    Args:
        labels: Numbers of labels after which models were tested ``[rounds]``.
        rule: The metric of the rule ``[seeds, rounds]``.
        control: The metric of the control ``[seeds, rounds]``.
    """
    seeds = len(rule)
    estimate = labels_saved(labels, rule.mean(0), control.mean(0))
    low = high = float("nan")
    if seeds > 1:
        rng = np.random.default_rng(0)
        # The rule and the control are resampled together: with one seed they share test rows and first labels.
        draws = rng.integers(seeds, size=(_RESAMPLES, seeds))
        found = np.array([labels_saved(labels, rule[draw].mean(0), control[draw].mean(0)) for draw in draws])
        if len(finite := found[~np.isnan(found).any(1)]):
            saved, cautious, _ = finite.T
            low, high = float(np.quantile(cautious, 0.05)), float(np.quantile(saved, 0.95))
    return Saving(estimate.saved, low, high, estimate.reached)
