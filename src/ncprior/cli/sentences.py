"""Results as sentences for people who are no statisticians; the numbers for those who are stand beside them."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ncprior.report.terms import TERMS
from ncprior.tables.table_predictions import UNLIKE

_FEW_ROWS = 50
"""With fewer rows, shares are given as counts."""


def explained(names: Sequence[str]) -> list[str]:
    """One line for each term."""
    return [f"{name}: {TERMS[name]}" for name in names]


def share(value: float) -> str:
    """A share in words.

    >>> share(0.91), share(0.87), share(0.995)
    ('9 in 10', '87 in 100', 'all')
    """
    if value > 0.994:
        return "all"
    tenths = round(10 * value)
    return f"{tenths} in 10" if abs(10 * value - tenths) < 0.25 and 0 < tenths < 10 else f"{100 * value:.0f} in 100"


def number(value: float) -> str:
    """A number with one decimal, or two digits that count if it is small.

    >>> number(4.237), number(11.63), number(0.0123), number(1234.5)
    ('4.2', '11.6', '0.012', '1,234')
    """
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    decimals = max(0, 1 - math.floor(math.log10(abs(value)))) or int(abs(value) < 100)
    return f"{value:,.{decimals}f}" if decimals <= 6 else f"{value:.2g}"


def fit_sentence(held_out: Mapping[str, float], boosting: float | None) -> str:
    """Error and coverage of a model on held-out rows, beside the error of boosted trees."""
    trees = f" (boosted trees: {number(boosting)})" if boosting is not None else ""
    rows = held_out["rows"]
    few = rows < _FEW_ROWS
    inside = f"{round(held_out['coverage'] * rows)} of {rows}" if few else share(held_out["coverage"])
    return (
        f"Typical error ± {number(held_out['rmse'])}{trees}. {inside.capitalize()} true values fall inside the 90% "
        "interval, for rows like these."
    )


def familiarity_sentence(familiarity: np.ndarray) -> str:
    """How many rows are unlike the training rows, by their familiarity.

    >>> familiarity_sentence(np.repeat([0.01, 0.5, 0.9, 0.3], 10))
    '25% of these rows are unlike the training rows (see column familiarity).'
    """
    return unlike_sentence(float(np.mean(familiarity < UNLIKE)), len(familiarity))


def unlike_sentence(unlike: float, rows: int) -> str:
    """`familiarity_sentence` from the share of the rows whose familiarity is below `UNLIKE`."""
    # Of rows like those of training, as many are below as that number says.
    if unlike <= UNLIKE + 2 * math.sqrt(UNLIKE * (1 - UNLIKE) / rows):
        return "These rows are like the training rows (see column familiarity)."
    return f"{_percent(unlike)} of these rows are unlike the training rows (see column familiarity)."


def kept_promise(scores: Mapping[str, float], level: float, promised: Mapping[str, float] | None) -> str:
    """Coverage and error for rows whose target is known, beside what the held-out rows promised.

    Args:
        scores: ``rmse``, ``coverage`` and ``rows`` of these predictions.
        level: The probability that the intervals promise.
        promised: Scores of the held-out rows of training, if there were any.
    """
    rows, inside, error = scores["rows"], scores["coverage"], scores["rmse"]
    tolerance = 2 * math.sqrt(level * (1 - level) / rows) + 0.03
    before = f" and a typical error of ± {number(promised['rmse'])}" if promised else ""
    sentence = f"Promised: {100 * level:.4g}% of the true values inside the interval{before}. "
    sentence += f"Came: {_percent(inside)} inside, and ± {number(error)}, in {rows:,} rows. "
    worse = promised is not None and error > (1.25 + 1 / math.sqrt(rows)) * promised["rmse"]
    if inside < level - tolerance:
        return (
            f"{sentence}The promise was not kept: these rows differ from those of training, or the world has changed."
        )
    if worse:
        return f"{sentence}Errors are larger than promised, but the intervals allow for it."
    if inside > level + tolerance and level < 0.99:
        return f"{sentence}The promise was kept; the intervals are wider than they need be."
    return f"{sentence}The promise was kept."


def guarantee_sentence(level: float, rows: int, *, refitted: bool) -> str:
    """The guarantee of conformal intervals, and the rows that it rests on.

    >>> guarantee_sentence(0.9, 120, refitted=False).partition(": ")[2]
    'of new rows like those of training they hold 90% or more, however wrong the model is.'
    """
    promise = f"of new rows like those of training they hold {100 * level:.4g}% or more"
    if not refitted:
        rest = f"{rows:,} rows that nothing was learned from"
        return f"Intervals are conformal, by {rest}: {promise}, however wrong the model is."
    rest = f"{rows:,} rows held out in the search, and learned from after it"
    return f"Intervals are conformal, by {rest}: {promise}, if that has not made the model worse."


def order_sentence(name: str, about: str, *, rule: bool, temperature: float = 0.0) -> str:
    """How rows to label were chosen, and what their order means."""
    if rule:
        order = "They are in the order in which they were picked: each is unlike those above it, so begin at the top"
    elif temperature > 0 or name == "random":
        order = "They are drawn at random, rows with high scores more often; the first was drawn first"
    else:
        order = "The highest comes first; rows next to each other may be much alike"
    return f"Chosen by {name}: {about or 'a score of its own'}. {order}."


def _percent(value: float) -> str:
    return f"{100 * value:.0f}%" if value >= 0.005 or value == 0 else "under 1%"
