"""What claims about the end of a run are made of: which methods were run, and which of them are lower than others."""

from collections.abc import Iterable, Mapping

import numpy as np

from ncprior.core.methods import title
from ncprior.experiments.paper.learning_curves import final_values
from ncprior.experiments.records import Records
from ncprior.report.claims.verdicts import Claim, claim, lower, median

Final = Mapping[str, Mapping[str, np.ndarray]]
"""Every metric of every seed by method; NaN for seeds that failed."""

METRICS = {"test_rmse": "RMSE", "test_nlpd": "NLPD"}


def final(records: Records, *, last: bool = True) -> dict[str, dict[str, np.ndarray]]:
    """The metrics of the last (or first) evaluation."""
    return {name: final_values(records, name, last=last) for name in records.config["methods"]}


def present(found: Mapping[str, object], names: Iterable[str]) -> list[str]:
    """Those of the methods that were run."""
    return [name for name in names if name in found]


def lower_than(found: Final, text: str, first: tuple[str, ...], second: tuple[str, ...], metric: str) -> list[Claim]:
    """The claim that all of some methods are lower than all of others, if they were run."""
    if not {*first, *second} <= found.keys():
        return []
    parts = [lower(found[a][metric], found[b][metric]) for a in first for b in second]
    numbers = ", ".join(f"{title(name)} {median(found[name][metric])}" for name in (*first, *second))
    return [claim(text, f"medians: {numbers}", parts)]
