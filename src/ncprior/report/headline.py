"""The results of ``ncprior evaluate`` in plain sentences: what is good, what is not, and who does it better.

A difference between two methods is good or bad news only if the splits settle it; see `settled`.
"""

from typing import Literal, NamedTuple

import numpy as np

from ncprior.experiments import evaluate
from ncprior.experiments.evaluate_results import MethodResult, Results
from ncprior.experiments.variants import method_style, subject
from ncprior.report.claims.verdicts import FEWEST_SEEDS, Verdict, judge, lower

_SAME = 0.02
"""Errors that differ by less than this share are called the same."""
_CLOSE = 0.05
"""How far the share of rows inside 90% intervals may be off to be called right."""
_LEVEL = 0.9
_KEPT = 0.8
"""Share of the rows that are kept when the most uncertain are left to a person."""

Compared = Literal["rmse", "nlpd", "crps", "coverage", "detection", "shuffled", "far", "rank", "rank_doubt", "aurc"]


class Finding(NamedTuple):
    """A sentence, and whether it is good news about the model; None if that is unclear."""

    good: bool | None
    text: str


class Settled(NamedTuple):
    """Whether a method is better than another by a metric, and in words why that is unclear, if it is."""

    verdict: Verdict
    why: str


def lead(results: Results) -> str:
    """The results in two or three sentences for people who know no statistics."""
    methods, target = results["methods"], results["config"]["target"]
    name = subject(methods)
    of, error = methods[name], _mean(methods[name], "rmse")
    unlike = results["config"]["split"].partition(":")[0] in evaluate.UNLIKE
    rows = " of cases unlike those that it learnt from" if unlike else ""
    sentence = f"Predictions of {target}{rows} are typically off by {error:.3g}"
    sentence += (
        f", and in {_in_a_hundred(_mean(of, 'coverage'))} cases the truth is inside the range that should hold 90."
    )
    if "detection" in of:
        seen = _mean(of, "detection")
        how = "It nearly always notices" if seen > 0.95 else "It mostly notices" if seen > 0.75 else "It often misses"
        sentence += f" {how} that such a case is new to it (right in {_in_a_hundred(seen)} comparisons; chance is 50)."
    kept = of["risk"].get(str(_KEPT))
    differs = of["rank"]["mean"] is not None  # it is not as sure of every row as of any other
    if kept is not None and differs and np.isfinite(error) and error > 0:
        fewer = 1 - kept / error
        sentence += (
            " If a person takes the fifth of the cases of which it is least sure, the typical error of the others "
        )
        sentence += f"is {kept:.3g}" + (f", {fewer:.0%} less." if fewer >= 0.005 else ", which is no less.")
    count = len(results["splits"])
    if count < FEWEST_SEEDS:
        sentence += f" This rests on {_few(count)}: take it as a first impression."
    return sentence


def findings(results: Results) -> list[Finding]:
    """What the numbers say about the first network, compared with the best other method: good news first."""
    methods = results["methods"]
    name = subject(methods)
    others = {other: of for other, of in methods.items() if other != name}
    rows = min(results["rows"], sum(split["test"] for split in results["splits"]))
    found = [_error(methods[name], others), _intervals(methods[name], others, rows)]
    if "detection" in methods[name]:
        found.append(_detection(methods[name], others))
    if others:
        found.append(_density(methods[name], others))
    return sorted((one for one in found if one), key=lambda one: [True, None, False].index(one.good))


def in_words(results: Results) -> list[str]:
    """The findings as lines, the good ones first."""
    words = {True: "good", None: "unclear", False: "not so good"}
    return [f"{words[one.good]}: {one.text}" for one in findings(results)]


def settled(of: MethodResult, other: MethodResult, metric: Compared, goal: float | None = None) -> Settled:
    """Whether a method is better than another: on enough splits, and with every seed.

    Each seed is compared with the other method's mean over its seeds, split by split, and judged by the rule of
    `ncprior.report.claims.verdicts`. If there are fewer than five splits, or seeds come to different verdicts, it is
    unclear.

    Args:
        of: The method.
        other: The one that it is compared with.
        metric: What is compared.
        goal: The best value, if neither the smallest nor, for detection and ranks, the largest is.
    """
    ours, theirs = (_by_split(one, metric, goal) for one in (of, other))
    better = lower(ours, theirs.mean(1, keepdims=True))
    splits, seeds = better.shape
    if splits < FEWEST_SEEDS:
        return Settled("unclear", f"{_few(splits)} {'settles' if splits == 1 else 'settle'} nothing")
    verdicts = {judge(better[:, seed]) for seed in range(seeds)}
    if len(verdicts) == 1 and "unclear" not in verdicts:
        return Settled(verdicts.pop(), "")
    runs = f"{splits} splits" if seeds == 1 else f"{splits * seeds} runs"
    return Settled("unclear", f"it is better on {int(better.sum())} of {runs}")


def _by_split(of: MethodResult, metric: Compared, goal: float | None) -> np.ndarray:
    """How bad a method is, by split and seed; NaN where it failed."""
    values = np.array(of["values"][metric], float)
    if goal is not None:
        return np.abs(values - goal)
    return -values if metric in ("detection", "shuffled", "far", "rank", "rank_doubt") else values


def _error(of: MethodResult, others: dict[str, MethodResult]) -> Finding | None:
    error = _mean(of, "rmse")
    sentence = f"the typical error is ± {error:.3g}"
    if not others:
        return Finding(True, sentence)
    best = min(others, key=lambda name: _or_worst(_mean(others[name], "rmse")))
    other = _mean(others[best], "rmse")
    more = error / other - 1
    if not np.isfinite(more):
        return None
    compared = f"that of {_title(best)} (± {other:.3g}), the best of the others"
    verdict, why = settled(of, others[best], "rmse")
    if abs(more) < _SAME:
        return _judged(f"{sentence}, about {compared}", "holds" if _splits(of) >= FEWEST_SEEDS else "unclear", why)
    sentence = f"{sentence}, {abs(more):.0%} {'lower' if more < 0 else 'higher'} than {compared}"
    return _judged(sentence, verdict if (verdict == "holds") == (more < 0) else "unclear", why)


def _intervals(of: MethodResult, others: dict[str, MethodResult], rows: int) -> Finding:
    inside = _mean(of, "coverage")
    off, doubt = abs(inside - _LEVEL), 2 * np.sqrt(_LEVEL * (1 - _LEVEL) / rows)
    good = True if off <= _CLOSE and doubt <= 2 * _CLOSE else False if off > _CLOSE + doubt else None
    sentence = f"{inside:.0%} of the true values were inside the 90% intervals"
    if good is False:
        sentence += ", which are too narrow" if inside < _LEVEL else ", which are wider than they need be"
    if others:
        best = min(others, key=lambda name: _or_worst(abs(_mean(others[name], "coverage") - _LEVEL)))
        sentence += f" ({_title(best)}: {_mean(others[best], 'coverage'):.0%})"
    return Finding(good, sentence + f", and {rows} rows settle nothing" * (good is None))


def _detection(of: MethodResult, others: dict[str, MethodResult]) -> Finding:
    found = _mean(of, "detection")
    sentence = f"rows unlike those of training are more uncertain than others in {found:.0%} of pairs (50% is chance)"
    rivals = {name: one for name, one in others.items() if "detection" in one}
    if not rivals:
        return Finding(found > 0.6, sentence)
    best = max(rivals, key=lambda name: -_or_worst(-_mean(rivals[name], "detection")))
    other = _mean(rivals[best], "detection")
    verdict, why = settled(of, rivals[best], "detection")
    if other > found + 0.01:
        sentence = f"{sentence}; {_title(best)} {_is(best)} better at that: {other:.0%}"
        return _judged(sentence, "does not hold" if verdict == "does not hold" else "unclear", why)
    sentence = f"{sentence}; next is {_title(best)} with {other:.0%}"
    return _judged(sentence, verdict if found > 0.6 or verdict == "unclear" else "does not hold", why)


def _density(of: MethodResult, others: dict[str, MethodResult]) -> Finding | None:
    best = min(others, key=lambda name: _or_worst(_mean(others[name], "nlpd")))
    ours, other = _mean(of, "nlpd"), _mean(others[best], "nlpd")
    if not np.isfinite(ours - other):
        return None
    what = "errors and honest uncertainty taken together (NLPD)"
    leader = f"it is ahead of {_title(best)}" if ours < other else f"{_title(best)} {_is(best)} ahead of it"
    verdict, why = settled(of, others[best], "nlpd")
    sentence = f"in {what}, {leader} by {abs(ours - other):.2g} nats"
    return _judged(sentence, verdict if (verdict == "holds") == (ours < other) else "unclear", why)


def _judged(sentence: str, verdict: Verdict, why: str) -> Finding:
    """A comparison of means, as good news if it holds, bad news if it does not, and with a reason if it is unclear."""
    if verdict == "unclear":
        return Finding(None, f"{sentence}, but {why or 'most splits say otherwise'}")
    return Finding(verdict == "holds", sentence)


def _mean(of: MethodResult, metric: Compared) -> float:
    value = of[metric]["mean"]
    return float("nan") if value is None else value


def _or_worst(value: float) -> float:
    return value if np.isfinite(value) else float("inf")


def _in_a_hundred(share: float) -> str:
    return f"{100 * share:.0f} of 100"


def _few(splits: int) -> str:
    return "one split" if splits == 1 else f"{splits} splits"


def _splits(of: MethodResult) -> int:
    return len(of["values"]["rmse"])


_NOUNS = {
    "no-ncp": "the same without NCP",
    "linear": "a linear model",
    "forest": "a random forest",
    "gp": "a Gaussian process",
    "mean": "the mean",
}


def _title(name: str) -> str:
    return _NOUNS.get(name, method_style(name).title)


def _is(name: str) -> str:
    return "are" if name in ("boosting", "neighbours") else "is"
