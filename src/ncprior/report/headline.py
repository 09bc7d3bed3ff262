"""The results of ``ncprior evaluate`` in plain sentences: what is good, what is not, and who does it better."""

from typing import Literal, NamedTuple

import numpy as np

from ncprior.experiments import evaluate
from ncprior.experiments.baselines import BASELINES
from ncprior.experiments.evaluate import MethodResult
from ncprior.experiments.variants import method_style

_SAME = 0.02
"""Errors that differ by less than this share are called the same."""
_CLOSE = 0.05
"""How far the share of rows inside 90% intervals may be off to be called right."""
_LEVEL = 0.9


class Finding(NamedTuple):
    """A sentence, and whether it is good news about the model."""

    good: bool
    text: str


def findings(results: evaluate.Results) -> list[Finding]:
    """What the numbers say about the first method that is not a baseline, compared with the best other method."""
    methods = results["methods"]
    name = next((name for name in methods if name not in BASELINES), next(iter(methods)))
    others = {other: of for other, of in methods.items() if other != name}
    found = [_error(methods[name], others), _intervals(methods[name], others)]
    if "detection" in methods[name]:
        found.append(_detection(methods[name], others))
    if others:
        found.append(_density(methods[name], others))
    return sorted((one for one in found if one), key=lambda one: not one.good)


def in_words(results: evaluate.Results) -> list[str]:
    """The findings as lines, the good ones first."""
    return [f"{'good' if one.good else 'not so good'}: {one.text}" for one in findings(results)]


def _error(of: MethodResult, others: dict[str, MethodResult]) -> Finding | None:
    error = _mean(of, "rmse")
    said = f"the typical error is ± {error:.3g}"
    if not others:
        return Finding(True, said)
    best = min(others, key=lambda name: _or_worst(_mean(others[name], "rmse")))
    other = _mean(others[best], "rmse")
    more = error / other - 1
    if not np.isfinite(more):
        return None
    compared = f"that of {_title(best)} (± {other:.3g}), the best of the others"
    if abs(more) < _SAME:
        return Finding(True, f"{said}, about {compared}")
    return Finding(more < 0, f"{said}, {abs(more):.0%} {'lower' if more < 0 else 'higher'} than {compared}")


def _intervals(of: MethodResult, others: dict[str, MethodResult]) -> Finding:
    inside = _mean(of, "coverage")
    good = abs(inside - _LEVEL) <= _CLOSE
    said = f"{inside:.0%} of the true values were inside the 90% intervals"
    if not good:
        said += ", which are too narrow" if inside < _LEVEL else ", which are wider than they need be"
    if others:
        best = min(others, key=lambda name: _or_worst(abs(_mean(others[name], "coverage") - _LEVEL)))
        said += f" ({_title(best)}: {_mean(others[best], 'coverage'):.0%})"
    return Finding(good, said)


def _detection(of: MethodResult, others: dict[str, MethodResult]) -> Finding:
    found = _mean(of, "detection")
    said = f"rows unlike those of training are more uncertain than others in {found:.0%} of pairs (50% is chance)"
    rivals = {name: one for name, one in others.items() if "detection" in one}
    if not rivals:
        return Finding(found > 0.6, said)
    best = max(rivals, key=lambda name: -_or_worst(-_mean(rivals[name], "detection")))
    other = _mean(rivals[best], "detection")
    if other > found + 0.01:
        return Finding(False, f"{said}; {_title(best)} is better at that: {other:.0%}")
    return Finding(found > 0.6, f"{said}; next is {_title(best)} with {other:.0%}")


def _density(of: MethodResult, others: dict[str, MethodResult]) -> Finding | None:
    metric: Literal["nlpd"] = "nlpd"
    best = min(others, key=lambda name: _or_worst(_mean(others[name], metric)))
    own, other = _mean(of, metric), _mean(others[best], metric)
    if not np.isfinite(own - other):
        return None
    better = own < other
    what = "errors and honest uncertainty taken together (NLPD)"
    whose = f"it is ahead of {_title(best)}" if better else f"{_title(best)} is ahead of it"
    return Finding(better, f"in {what}, {whose} by {abs(own - other):.2g} nats")


def _mean(of: MethodResult, metric: Literal["rmse", "coverage", "detection", "nlpd"]) -> float:
    value = of[metric]["mean"]
    return float("nan") if value is None else value


def _or_worst(value: float) -> float:
    return value if np.isfinite(value) else float("inf")


def _title(name: str) -> str:
    title = method_style(name).title
    return f"a {title}" if title in ("random forest", "linear") else title
