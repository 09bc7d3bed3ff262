"""Parts that claims about the end of a run share: final metrics, and comparisons of methods by them."""

from collections.abc import Iterable, Mapping

import numpy as np

from ncprior.core.methods import title
from ncprior.experiments.paper.learning_curves import final_values
from ncprior.experiments.records import Records
from ncprior.report.claims.verdicts import Claim, claim, lower, median

Final = Mapping[str, Mapping[str, np.ndarray]]
"""Metrics ``[seeds]`` by method and name; NaN for seeds that failed."""

METRICS = {"test_rmse": "RMSE", "test_nlpd": "NLPD"}
"""Metrics that claims are about, and how they are written."""


def final(records: Records, *, last: bool = True) -> dict[str, dict[str, np.ndarray]]:
    """Metrics of the last evaluation by method, or with ``last=False`` those of the first one."""
    return {name: final_values(records, name, last=last) for name in records.config["methods"]}


def present(found: Mapping[str, object], names: Iterable[str]) -> list[str]:
    """The names that are in ``found``, in their order: the methods that were run."""
    return [name for name in names if name in found]


def lower_than(found: Final, text: str, first: tuple[str, ...], second: tuple[str, ...], metric: str) -> list[Claim]:
    """The claim that each of the first methods has a lower metric than each of the second.

    Returns:
        A list with this claim; empty if one of the methods was not run.
    """
    if not {*first, *second} <= found.keys():
        return []
    parts = [lower(found[a][metric], found[b][metric]) for a in first for b in second]
    numbers = ", ".join(f"{title(name)} {median(found[name][metric])}" for name in (*first, *second))
    return [claim(text, f"medians: {numbers}", parts)]
