"""Evaluation of the estimator on a table: every method on splits of its rows, beside simple baselines.

    splits.json                       names and sizes of the splits, and number of rows
    runs/METHOD/SPLIT-SEED.json       scores of one method on one split; see `ncprior.experiments.scores`
    results.json                      mean and standard deviation over splits and seeds

Each run is written as soon as it ends, and is not repeated when the experiment is resumed.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple, NotRequired, TypedDict, cast

import numpy as np
import pyarrow as pa

from ncprior.data import labelled
from ncprior.data.formats.dialect import DialectOptions
from ncprior.data.labelled import Labelled
from ncprior.data.splits import Split, gap_splits, random_splits, tail_splits, time_split
from ncprior.engines.engine import Engine
from ncprior.errors import UserError, check_limits
from ncprior.experiments import baselines
from ncprior.experiments.conditional_coverage import Group, UnseenRows, by_familiarity, p_values, pool_groups
from ncprior.experiments.records import JsonObject, Records, Summary, summary
from ncprior.experiments.risk_coverage import SHARES, rank_correlation
from ncprior.experiments.runs import RunProgress, loaded_once
from ncprior.experiments.scores import LEVELS, Bin, Scores, Standardised, detection, predict, scores, unseen_rows
from ncprior.experiments.shifts import SHIFTS
from ncprior.experiments.variants import (
    DEFAULT_METHODS,
    GROUPS,
    METHODS,
    VARIANTS,
    Arguments,
    check_method,
    network,
)
from ncprior.tables.estimator import NCPRegressor
from ncprior.tables.options import FitOptions

NAME = "evaluate"
Metric = Literal[
    "rmse", "nlpd", "crps", "coverage", "detection", "shuffled", "far", "rank", "rank_doubt", "aurc", "seconds"
]
OF_PREDICTIONS: tuple[Metric, ...] = ("rmse", "nlpd", "crps", "coverage", "seconds")
OF_DOUBT: tuple[Metric, ...] = ("detection", "shuffled", "far", "rank", "rank_doubt", "aurc")
"""Metrics that say whether a method is unsure where it should be. ``detection``, ``shuffled`` and ``far`` are for
methods that have a doubt, the first only for splits whose test rows are unlike the training rows."""
METRICS = (*OF_PREDICTIONS, *OF_DOUBT)
"""All metrics in the summary of a method."""
UNLIKE = ("gap", "tail", "time")
"""Kinds of splits whose test rows are unlike the training rows."""
MOST_SPLITS = {"random": 10, "gap": 20, "tail": 20}
"""Default number of splits of each kind. ``gap`` and ``tail`` take evenly spaced columns of a table that has more."""
QUICK: dict[str, int] = {"rows": 5_000, "splits": 3}
"""What ``--quick`` changes in the configuration."""
QUICK_ESTIMATOR: dict[str, int] = {"members": 2}
"""Arguments of `NCPRegressor` that ``--quick`` changes."""


@dataclass(frozen=True)
class Config:
    """The configuration of a run, which determines its results."""

    table: str
    target: str
    split: str
    """``random``, ``gap``, ``tail``, or ``time:COLUMN``."""
    fingerprint: str
    """Hash of the contents of the table: a run is not resumed with another table."""
    methods: tuple[str, ...] = DEFAULT_METHODS
    inputs: tuple[str, ...] | None = None
    seeds: int = 1
    """Number of training seeds of the networks; baselines are run with one."""
    splits: int | None = None
    rows: int | None = None
    dialect: dict[str, str | int] = field(default_factory=dict)
    """What is known about the dialect of a text file: arguments of `DialectOptions`."""
    held_out: float = 0.1
    """Share of the training rows that is held out, unless the split is ``random``, to be compared with test rows."""
    estimator: Arguments = field(default_factory=dict)
    """Arguments of `NCPRegressor` for all networks, in addition to those of a variant."""

    def __post_init__(self) -> None:
        kind, _, column = self.split.partition(":")
        if kind not in (*MOST_SPLITS, "time") or (kind == "time") != bool(column):
            raise UserError(f"unknown split {self.split!r}: choose random, gap, tail, or time:COLUMN")
        for name in self.methods:
            check_method(name)
        if not self.methods:
            raise UserError(f"no method given: choose from {', '.join([*METHODS, *GROUPS])}")
        variants = [VARIANTS[name] for name in self.methods if name in VARIANTS]
        networks = [NCPRegressor(**{**self.estimator, **variant.arguments}) for variant in variants]
        for name in self.estimator if networks else ():
            if all(name in FitOptions.of(one, check_effects=False).without_effect() for one in networks):
                raise UserError(f"{name} has no effect on any of {', '.join(self.methods)}; leave it out")
        check_limits(seeds=self.seeds, splits=self.splits)
        if not 0 <= self.held_out < 1:
            raise UserError(f"held_out must be at least 0 and below 1, got {self.held_out}")


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
    """What says how unsure the method is of a row; absent if nothing does."""
    rank_doubt: NotRequired[float]
    """The rank correlation of that and the absolute error."""
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


def make_splits(config: Config, data: Labelled) -> list[Split]:
    """The splits of a configuration.

    Raises:
        UserError: If the table has no column of numbers to split by.
    """
    kind, _, column = config.split.partition(":")
    if kind == "time":
        return [time_split(column, data.beside[column])]
    most = config.splits or MOST_SPLITS[kind]
    if kind == "random":
        return random_splits(len(data.targets), most)
    found = (gap_splits if kind == "gap" else tail_splits)(data.inputs)
    if not found:
        raise UserError(f"--split {kind}: no input is a number with at least two values; use --split random")
    return [found[i] for i in np.unique(np.linspace(0, len(found) - 1, most).round().astype(int))]


def hold_out(config: Config, split: Split) -> tuple[Split, np.ndarray]:
    """Hold out some training rows of a split whose test rows are unlike them, the same for every method and seed.

    Returns:
        The split without them, and their numbers, of which there are none for random splits.
    """
    if config.split.partition(":")[0] not in UNLIKE or not config.held_out:
        return split, split.train[:0]
    count = max(1, round(config.held_out * len(split.train)))
    held = np.sort(np.random.default_rng(len(split.train)).choice(split.train, count, replace=False))
    return split._replace(train=np.setdiff1d(split.train, held)), held


def fit(config: Config, data: Labelled, split: Split, method: str, seed: int) -> Callable[[pa.Table], Standardised]:
    """Train a method on the training rows of a split.

    Returns:
        A function that predicts the rows of a table.
    """
    inputs, targets = data.take(split.train)
    if method not in VARIANTS:
        return baselines.fit(method, inputs, targets, seed)
    model = network(config.estimator, method).set_params(random_state=seed)
    return partial(predict, model.fit_subset(inputs, targets))  # `load` has checked the whole table


def evaluate(config: Config, data: Labelled, split: Split, method: str, seed: int) -> Run:
    """Train a method on a split and score it on the test rows. If training fails, the result says why."""
    split, held = hold_out(config, split)
    like = split.test if config.split == "random" else held
    about = {"split": split.name, "method": method, "seed": seed}
    started = time.monotonic()
    try:
        predicted = fit(config, data, split, method, seed)
        seconds = time.monotonic() - started
        found = score_rows(predicted, data, split, like)
    except UserError as error:  # such as a loss that is not finite; other methods go on
        return cast("Run", {**about, "failed": str(error)})
    return cast("Run", {**about, **found, "seconds": seconds})


def score_rows(
    predicted: Callable[[pa.Table], Standardised], data: Labelled, split: Split, like: np.ndarray
) -> JsonObject:
    """Score a trained method on test rows, on rows like those of training, and on rows made to be unlike these.

    Args:
        predicted: Predicts the rows of a table.
        data: The table.
        split: Numbers of training and test rows.
        like: Numbers of rows like those of training that were not trained on: the test rows themselves if the split is
            random, held-out rows otherwise. If there are none, the test rows are compared with no others.
    """
    inputs, targets = data.take(split.test)
    test = predicted(inputs)
    found: JsonObject = {**scores(test, targets)}
    inside, inside_inputs, inside_targets = test, inputs, targets
    apart = len(like) > 0 and like is not split.test
    if apart:
        inside_inputs, inside_targets = data.take(like)
        inside = predicted(inside_inputs)
        found["inside"] = scores(inside, inside_targets)
    if test.doubt is None or inside.doubt is None:
        return found
    error = targets - test.shift - test.scale * np.asarray(test.prediction.mean, np.float64)[:, 0]
    found |= {"unsure_by": test.doubt.name, "rank_doubt": rank_correlation(np.abs(error), test.doubt.values)}
    if apart:
        found["detection"] = detection(test.doubt, inside.doubt)
    if not len(like):
        return found
    for name, shift in SHIFTS.items():
        moved = shift(inside_inputs, data.inputs.take(pa.array(split.train)))
        if moved is not None and (doubt := predicted(moved).doubt):
            found[name] = detection(doubt, inside.doubt)
    groups = _unseen(inside, inside_targets, inside) if apart else None
    return found | {"groups": by_familiarity(_unseen(test, targets, inside), groups)}


def _unseen(rows: Standardised, targets: np.ndarray, inside: Standardised) -> UnseenRows:
    """Rows with their familiarity: the method's own, or the p-value of its doubt among rows like those of training."""
    familiarity = rows.familiarity
    if familiarity is None:
        assert rows.doubt is not None
        assert inside.doubt is not None
        familiarity = p_values(rows.doubt.values, inside.doubt.values)
    return unseen_rows(rows, targets, familiarity)


def load(config: Config) -> tuple[Labelled, list[Split]]:
    """Read the table of a configuration.

    Returns:
        Its labelled rows, and the splits.

    Raises:
        UserError: If the table cannot be read, or does not suit the configuration.
    """
    kind, _, column = config.split.partition(":")
    beside = (column,) if kind == "time" else ()
    options = DialectOptions(**config.dialect)  # type: ignore[arg-type]
    data = labelled.load(config.table, config.target, config.inputs, beside=beside, rows=config.rows, options=options)
    return data, make_splits(config, data)


class FitTask(NamedTuple):
    """One run, for an engine."""

    config: Config
    split: int
    method: str
    seed: int


def run_fit(task: FitTask) -> Run:
    """Trains and scores a method on a split of the table, which a process reads once."""
    data, splits = loaded_once(load, task.config)
    return evaluate(task.config, data, splits[task.split], task.method, task.seed)


def experiment(
    config: Config,
    loaded: tuple[Labelled, list[Split]],
    records: Records,
    show: Callable[[RunProgress], None] = lambda _: None,
    engine: Engine | None = None,
) -> Results:
    """Run what has not been recorded yet.

    Args:
        config: The configuration.
        loaded: What `load` returned.
        records: Where runs are recorded.
        show: Called with the progress after each run.
        engine: Runs a task for each fit, which reads the table where it runs; None for this process.

    Returns:
        The results of all runs.
    """
    data, splits = loaded
    sizes = {
        "rows": len(data.targets),
        "rows_without_target": data.dropped,
        "inputs": data.inputs.column_names,
        "splits": [{"name": s.name, "train": len(hold_out(config, s)[0].train), "test": len(s.test)} for s in splits],
    }
    records.write_json("splits.json", sizes)
    # One split after the other, so that progress bars can estimate the remaining time early.
    plan = runs(records)
    ahead = [run for run in plan if not records.exists(run_file(*run))]
    found_runs: Iterator[tuple[int, Run]]
    if engine is None:
        found_runs = enumerate(evaluate(config, data, splits[number], method, seed) for number, method, seed in ahead)
    else:
        found_runs = engine.run(run_fit, [FitTask(config, *run) for run in ahead])
    left = dict(enumerate(ahead))
    for i, found in found_runs:
        number, method, seed = left.pop(i)
        records.write_json(run_file(number, method, seed), found)
        state = found.get("failed") or f"RMSE {found['rmse']:.3g}, NLPD {found['nlpd']:.3g}"
        about = f"{method}, {splits[number].name}, seed {seed}: {state}"
        show(RunProgress(len(plan) - len(left), len(plan), about, method, Counter(run[1] for run in left.values())))
    return write_results(records)


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


def unfinished(records: Records) -> list[str]:
    """The methods with runs that have not been recorded."""
    if not records.exists("splits.json"):
        return list(records.config["methods"])
    return list(dict.fromkeys(run[1] for run in runs(records) if not records.exists(run_file(*run))))


def write_results(records: Records) -> Results:
    """Write ``results.json``: mean and standard deviation over splits and seeds by method."""
    sizes = records.read_json("splits.json")
    by_split: dict[str, list[list[Run]]] = {name: [[] for _ in sizes["splits"]] for name in records.config["methods"]}
    for run in runs(records):
        by_split[run[1]][run[0]].append(records.read_json(run_file(*run)))
    failed = [run for splits in by_split.values() for seeds in splits for run in seeds if "failed" in run]
    methods = {name: found for name, splits in by_split.items() if (found := _over_splits(splits))}
    results = {
        "experiment": NAME,
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
