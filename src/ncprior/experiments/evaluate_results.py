"""What `ncprior.experiments.evaluate` finds: scores of each run, and of each method over all splits and seeds."""

from collections.abc import Sequence
from typing import Literal, NotRequired, TypedDict, cast

import numpy as np

from ncprior.experiments.conditional_coverage import Group, pool_groups
from ncprior.experiments.records import Records, Summary, summary
from ncprior.experiments.risk_coverage import SHARES
from ncprior.experiments.scores import LEVELS, Bin, Scores
from ncprior.experiments.variants import VARIANTS
from ncprior.schema import JsonObject

Metric = Literal[
    "rmse", "nlpd", "crps", "coverage", "detection", "shuffled", "far", "rank", "rank_doubt", "aurc", "seconds"
]
OF_PREDICTIONS: tuple[Metric, ...] = ("rmse", "nlpd", "crps", "coverage", "seconds")
OF_DOUBT: tuple[Metric, ...] = ("detection", "shuffled", "far", "rank", "rank_doubt", "aurc")
"""Metrics that say whether a method is unsure where it should be. ``detection``, ``shuffled`` and ``far`` are for
methods that have a doubt, the first only for splits whose test rows are unlike the training rows."""
METRICS = (*OF_PREDICTIONS, *OF_DOUBT)
"""All metrics in the summary of a method."""


class Run(TypedDict):
    """One method on one split with one seed: its scores, or why it failed."""

    split: str
    method: str
    seed: int
    failed: NotRequired[str]
    rmse: NotRequired[float]
    nlpd: NotRequired[float]
    crps: NotRequired[float]
    coverage: NotRequired[float]
    std: NotRequired[float]
    calibration: NotRequired[list[float]]
    bins: NotRequired[list[Bin]]
    seconds: NotRequired[float]
    rank: NotRequired[float]
    """Spearman's correlation of the absolute error and the predicted standard deviation."""
    aurc: NotRequired[float]
    """Area under the risk-coverage curve, in the unit of the target."""
    aurc_best: NotRequired[float]
    """The same if the largest errors were refused first."""
    risk: NotRequired[list[float]]
    """The risk-coverage curve, at each of `ncprior.experiments.risk_coverage.SHARES`."""
    unsure_by: NotRequired[str]
    """The name of the method's measure of doubt; absent if it has none."""
    rank_doubt: NotRequired[float]
    """Rank correlation of the doubt and the absolute error."""
    detection: NotRequired[float]
    """How well it separates test rows from held-out training rows."""
    shuffled: NotRequired[float]
    """How well it separates rows with each column permuted by itself from the rows that they are made of."""
    far: NotRequired[float]
    """How well it separates rows with one number moved by four standard deviations from the rows as they are."""
    groups: NotRequired[list[Group]]
    """Coverage by familiarity."""
    inside: NotRequired[Scores]
    """Scores on the held-out training rows."""


class MethodResult(TypedDict):
    """A method over all splits and seeds: summaries of its metrics, calibration curve, and bins of errors."""

    runs: int
    rmse: Summary
    nlpd: Summary
    crps: Summary
    coverage: Summary
    detection: NotRequired[Summary]
    shuffled: NotRequired[Summary]
    far: NotRequired[Summary]
    rank: Summary
    rank_doubt: NotRequired[Summary]
    aurc: Summary
    seconds: Summary
    unsure_by: str | None
    calibration: dict[str, float]
    """Share of the test rows inside the central interval, by its level."""
    bins: list[Bin]
    risk: dict[str, float | None]
    """Error of the rows that are kept, by their share."""
    risk_best: float | None
    """Area under that curve if the largest errors were refused first."""
    groups: list[Group]
    """Coverage by familiarity; empty if the method has no doubt."""
    values: dict[Metric, list[list[float | None]]]
    """Every metric of every split and seed; None where a run failed."""


class SplitSize(TypedDict):
    """The name of a split, and its numbers of training and test rows."""

    name: str
    train: int
    test: int


class Results(TypedDict):
    """The contents of ``results.json``."""

    experiment: str
    rows: int
    rows_without_target: int
    inputs: list[str]
    splits: list[SplitSize]
    methods: dict[str, MethodResult]
    failed: list[Run]
    config: JsonObject
    versions: dict[str, str]


def runs(records: Records) -> list[tuple[int, str, int]]:
    """All runs of an experiment: number of the split, method, seed."""
    config, splits = records.config, records.read_json("splits.json")["splits"]
    return [
        (number, method, seed)
        for number in range(len(splits))
        for method in config["methods"]
        for seed in range(config["seeds"] if method in VARIANTS else 1)
    ]


def run_file(number: int, method: str, seed: int) -> str:
    """The file of one of `runs`."""
    return f"runs/{method}/{number:03d}-{seed:03d}.json"


def write_results(records: Records) -> Results:
    """Write ``results.json``: mean and standard deviation over splits and seeds by method."""
    sizes = records.read_json("splits.json")
    by_split: dict[str, list[list[Run]]] = {name: [[] for _ in sizes["splits"]] for name in records.config["methods"]}
    for run in runs(records):
        by_split[run[1]][run[0]].append(records.read_json(run_file(*run)))
    failed = [run for splits in by_split.values() for seeds in splits for run in seeds if "failed" in run]
    methods = {name: found for name, splits in by_split.items() if (found := _over_splits(splits))}
    results = {
        "experiment": records.experiment,
        **sizes,
        "methods": methods,
        "failed": failed,
        "config": records.config,
        "versions": records.versions,
    }
    records.write_json("results.json", results)
    written: Results = records.read_json("results.json")  # in which numbers that are not finite are null
    return written


def _over_splits(splits: Sequence[Sequence[Run]]) -> MethodResult | None:
    """What a method comes to over its runs, by split and seed; None if all of them failed."""
    found = [run for seeds in splits for run in seeds if "failed" not in run]
    if not found:
        return None
    curves = np.array([run["calibration"] for run in found], float)
    risks = np.array([run["risk"] for run in found], float).mean(0)
    measured = [metric for metric in METRICS if any(metric in run for run in found)]
    return cast(
        "MethodResult",
        {
            "runs": len(found),
            **{metric: _over_runs(metric, found) for metric in measured},
            "unsure_by": found[0].get("unsure_by"),
            "calibration": dict(zip(map(str, LEVELS), curves.mean(0).tolist(), strict=True)),
            "bins": pool_bins([run["bins"] for run in found]),
            "risk": dict(zip(map(str, SHARES), risks.tolist(), strict=True)),
            "risk_best": float(np.mean([run["aurc_best"] for run in found])),
            "groups": pool_groups([run.get("groups", []) for run in found]),
            "values": {metric: [[run.get(metric) for run in seeds] for seeds in splits] for metric in measured},
        },
    )


def _over_runs(metric: Metric, runs: Sequence[Run]) -> Summary:
    """The summary of a metric over runs. A null on record, which was not finite, counts as NaN."""
    return summary(np.array([run[metric] for run in runs if metric in run], float))


def pool_bins(groups: Sequence[Sequence[Bin]]) -> list[Bin]:
    """Merge bins of several test sets: the first bins of all, the second bins of all, and so on.

    ``std`` and ``rmse`` are root mean squares, so their squares are averaged, weighted by the numbers of rows.

    >>> pool_bins([[{"std": 1.0, "rmse": 3.0, "rows": 5}], [{"std": 7.0, "rmse": 3.0, "rows": 5}]])
    [{'std': 5.0, 'rmse': 3.0, 'rows': 10}]
    """
    pooled: list[Bin] = []
    for place in range(max(map(len, groups))):
        bins = [bins[place] for bins in groups if place < len(bins)]
        rows = np.array([one["rows"] for one in bins], float)
        std, rmse = (
            float(np.sqrt(rows @ np.array(values, float) ** 2 / rows.sum()))
            for values in ([one["std"] for one in bins], [one["rmse"] for one in bins])
        )
        pooled.append({"std": std, "rmse": rmse, "rows": int(rows.sum())})
    return pooled
