"""How far the uncertainty can be trusted on a table: every method on splits of its rows, beside simple baselines.

    splits.json                       names and sizes of the splits, and how many rows there are
    runs/METHOD/SPLIT-SEED.json       what one method came to on one split: see `ncprior.experiments.scores`
    results.json                      means and spreads over splits and seeds

Each run is written as soon as it is finished, and a run that is on record is not repeated.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict, cast

import numpy as np
import pyarrow as pa

from ncprior.core.methods import STYLES
from ncprior.core.registry import Style, style_of
from ncprior.data import labelled
from ncprior.data.labelled import Labelled
from ncprior.data.splits import Split, gap_splits, random_splits, tail_splits, time_split
from ncprior.errors import UserError, check_limits
from ncprior.experiments import baselines
from ncprior.experiments.baselines import BASELINES, Baseline
from ncprior.experiments.records import JsonObject, Records, Summary, summary
from ncprior.experiments.runs import RunProgress
from ncprior.experiments.scores import LEVELS, Bin, Scores, Standardised, detection, predict, scores
from ncprior.tables.estimator import NCPRegressor
from ncprior.tables.options import FitOptions

NAME = "evaluate"
Arguments = dict[str, Any]
"""Arguments of `NCPRegressor` by name."""


class Variant(NamedTuple):
    """A network: how it is written and drawn, and the arguments of `NCPRegressor` that make it."""

    style: Style
    arguments: Arguments


ABLATIONS = {
    "no-ncp": Variant(Style("without NCP", "#D55E00", "--", "v"), {"gamma": 0.0}),
    "one-member": Variant(Style("one member", "#E69F00", "-.", "D"), {"members": 1}),
    "no-early-stopping": Variant(Style("without early stopping", "#009E73", ":", "^"), {"early_stopping": False}),
    "constant-gamma": Variant(Style("constant gamma", "#CC79A7", "--", "P"), {"gamma_per_label": False, "gamma": 0.1}),
}
"""The default estimator without one of its parts."""
VARIANTS = {
    "ncp": Variant(Style("NCP (default)", "#0072B2", "-", "o"), {}),
    **{name: Variant(style, {"method": name}) for name, style in STYLES.items()},
    "bbb+ncp": Variant(STYLES["bbb+ncp"]._replace(dash=":"), {"method": "bbb+ncp"}),  # the solid line is that of ncp
    **ABLATIONS,
}
"""Every network by name; ``ncp`` is the default estimator."""
METHODS: dict[str, Variant | Baseline] = {**VARIANTS, **BASELINES}
"""Every method by name."""
GROUPS = {"baselines": tuple(BASELINES), "ablations": ("ncp", *ABLATIONS)}
"""Names that stand for several methods."""
DEFAULT_METHODS = ("ncp", *BASELINES)
Metric = Literal["rmse", "nlpd", "crps", "coverage", "detection", "seconds"]
METRICS: tuple[Metric, ...] = ("rmse", "nlpd", "crps", "coverage", "detection", "seconds")
"""What the summary has of every method; ``detection`` only where test rows are unlike the training rows."""
MOST_SPLITS = {"random": 10, "gap": 20, "tail": 20}
"""Splits of each kind if nothing else is said; the columns of a wide table are taken at even distances."""
QUICK: dict[str, int] = {"rows": 5_000, "splits": 3}
QUICK_ESTIMATOR: dict[str, int] = {"members": 2}


@dataclass(frozen=True)
class Config:
    """All that a run depends on."""

    table: str
    target: str
    split: str
    """``random``, ``gap``, ``tail``, or ``time:COLUMN``."""
    fingerprint: str
    """Of the table's contents, so that a run does not go on with another table."""
    methods: tuple[str, ...] = DEFAULT_METHODS
    inputs: tuple[str, ...] | None = None
    seeds: int = 1
    """Training seeds of the networks; baselines are run with the first one only."""
    splits: int | None = None
    rows: int | None = None
    held_out: float = 0.1
    """Share of the training rows of a gap or tail that is kept from training, to be told apart from test rows."""
    estimator: Arguments = field(default_factory=dict)
    """Arguments of `NCPRegressor` for all networks, beside those that make a variant."""

    def __post_init__(self) -> None:
        kind, _, column = self.split.partition(":")
        if kind not in (*MOST_SPLITS, "time") or (kind == "time") != bool(column):
            raise UserError(f"unknown split {self.split!r}: choose random, gap, tail, or time:COLUMN")
        for name in self.methods:
            if name not in METHODS:
                raise UserError(f"unknown method {name!r}: choose from {', '.join([*METHODS, *GROUPS])}")
        if not self.methods:
            raise UserError(f"no method given: choose from {', '.join([*METHODS, *GROUPS])}")
        variants = [VARIANTS[name] for name in self.methods if name in VARIANTS]
        networks = [NCPRegressor(**{**self.estimator, **variant.arguments}) for variant in variants]
        for name in self.estimator if networks else ():
            if all(name in FitOptions.of(one, check_effects=False).without_effect() for one in networks):
                raise UserError(f"{name} has no effect on any of {', '.join(self.methods)}; leave it out")
        for name in ("seeds", "splits"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise UserError(f"{name} must be at least 1, got {value}")
        check_limits(seeds=self.seeds, splits=self.splits)
        if not 0 <= self.held_out < 1:
            raise UserError(f"held_out must be at least 0 and below 1, got {self.held_out}")


class Run(TypedDict):
    """What one method came to on one split with one seed: its scores, or why it failed."""

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
    detection: NotRequired[float]
    """How well the uncertainty tells test rows from training rows that were held out."""
    inside: NotRequired[Scores]
    """Scores on those held-out rows."""


class MethodResult(TypedDict):
    """A method over all splits and seeds: summaries, the calibration curve and its bins."""

    runs: int
    rmse: Summary
    nlpd: Summary
    crps: Summary
    coverage: Summary
    detection: NotRequired[Summary]
    seconds: Summary
    calibration: dict[str, float]
    """Share of the test rows inside the central interval, by its level."""
    bins: list[Bin]


class SplitSize(TypedDict):
    """The name of a split, and its numbers of rows."""

    name: str
    train: int
    test: int


class Results(TypedDict):
    """What ``results.json`` holds."""

    experiment: str
    rows: int
    rows_without_target: int
    inputs: list[str]
    splits: list[SplitSize]
    methods: dict[str, MethodResult]
    failed: list[Run]
    config: JsonObject
    versions: dict[str, str]


def method_style(name: str) -> Style:
    """How a method is written and drawn; in grey if there is none of this name."""
    return style_of(name, METHODS)


def expand(names: Sequence[str]) -> tuple[str, ...]:
    """Names of methods, with groups such as ``ablations`` replaced by what they stand for, each once."""
    return tuple(dict.fromkeys(one for name in names for one in GROUPS.get(name, (name,))))


def make_splits(config: Config, data: Labelled) -> list[Split]:
    """The splits that the configuration asks for."""
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
    """The split without some of its training rows, and those rows; the same ones for every method and seed."""
    if config.split not in ("gap", "tail") or not config.held_out:
        return split, split.train[:0]
    count = max(1, round(config.held_out * len(split.train)))
    held = np.sort(np.random.default_rng(len(split.train)).choice(split.train, count, replace=False))
    return split._replace(train=np.setdiff1d(split.train, held)), held


def fit(config: Config, data: Labelled, split: Split, method: str, seed: int) -> Callable[[pa.Table], Standardised]:
    """A method trained on the training rows of a split, as a function that predicts; it sees no other rows."""
    inputs, targets = data.take(split.train)
    if method in BASELINES:
        return baselines.fit(method, inputs, targets, seed)
    model = network(config.estimator, method).set_params(random_state=seed)
    return partial(predict, model.fit_subset(inputs, targets))  # `load` has checked the whole table


def network(arguments: Arguments, method: str) -> NCPRegressor:
    """The network of a method, with those of the arguments for all networks that have an effect on it."""
    model = NCPRegressor(**{**arguments, **VARIANTS[method].arguments})
    idle = FitOptions.of(model, check_effects=False).without_effect()
    return model.set_params(**{name: NCPRegressor().get_params()[name] for name in idle})


def evaluate(config: Config, data: Labelled, split: Split, method: str, seed: int) -> Run:
    """Trains a method on a split and scores it on the test rows; says why if training failed."""
    split, held = hold_out(config, split)
    started = time.monotonic()
    try:
        predicted = fit(config, data, split, method, seed)
    except UserError as error:  # one that diverges must not stop the others
        return {"split": split.name, "method": method, "seed": seed, "failed": str(error)}
    seconds = time.monotonic() - started
    inputs, targets = data.take(split.test)
    prediction = predicted(inputs)
    about = {"split": split.name, "method": method, "seed": seed}
    found = cast("Run", {**about, **scores(prediction, targets), "seconds": seconds})
    if len(held):
        inputs, targets = data.take(held)
        inside = predicted(inputs)
        found |= {"detection": detection(prediction, inside), "inside": scores(inside, targets)}
    return found


def load(config: Config) -> tuple[Labelled, list[Split]]:
    """The rows of the table, and their splits."""
    kind, _, column = config.split.partition(":")
    beside = (column,) if kind == "time" else ()
    data = labelled.load(config.table, config.target, config.inputs, beside=beside, rows=config.rows)
    return data, make_splits(config, data)


def experiment(
    config: Config,
    loaded: tuple[Labelled, list[Split]],
    records: Records,
    show: Callable[[RunProgress], None] = lambda _: None,
) -> Results:
    """Runs what is not on record yet, on what `load` gave, and gives the results."""
    data, splits = loaded
    about = {
        "rows": len(data.targets),
        "rows_without_target": data.dropped,
        "inputs": data.inputs.column_names,
        "splits": [{"name": s.name, "train": len(hold_out(config, s)[0].train), "test": len(s.test)} for s in splits],
    }
    records.write_json("splits.json", about)
    # One split after the other, so that the time for the first of them tells how long the others will take.
    plan = runs(records)
    for done, (number, method, seed) in enumerate(plan):
        file = run_file(number, method, seed)
        if not records.exists(file):
            found = evaluate(config, data, splits[number], method, seed)
            records.write_json(file, found)
            state = found.get("failed") or f"RMSE {found['rmse']:.3g}, NLPD {found['nlpd']:.3g}"
            show(RunProgress(done + 1, len(plan), f"{method}, {splits[number].name}, seed {seed}: {state}"))
    return write_results(records)


def runs(records: Records) -> list[tuple[int, str, int]]:
    """All that a run consists of: number of the split, method, seed."""
    config, splits = records.config, records.read_json("splits.json")["splits"]
    return [
        (number, method, seed)
        for number in range(len(splits))
        for method in config["methods"]
        for seed in range(1 if method in BASELINES else config["seeds"])
    ]


def run_file(number: int, method: str, seed: int) -> str:
    """Where one of `runs` is recorded."""
    return f"runs/{method}/{number:03d}-{seed:03d}.json"


def unfinished(records: Records) -> list[str]:
    """The methods that have runs which are not on record."""
    if not records.exists("splits.json"):
        return list(records.config["methods"])
    return list(dict.fromkeys(run[1] for run in runs(records) if not records.exists(run_file(*run))))


def write_results(records: Records) -> Results:
    """Means and spreads over splits and seeds by method, as ``results.json``."""
    by_method: dict[str, list[Run]] = {name: [] for name in records.config["methods"]}
    failed: list[Run] = []
    for run in runs(records):
        one: Run = records.read_json(run_file(*run))
        (failed if "failed" in one else by_method[run[1]]).append(one)
    methods: dict[str, MethodResult] = {}
    for name, found in by_method.items():
        if not found:
            continue
        curves = np.array([run["calibration"] for run in found], float)
        methods[name] = {
            "runs": len(found),
            "rmse": _over_runs("rmse", found),
            "nlpd": _over_runs("nlpd", found),
            "crps": _over_runs("crps", found),
            "coverage": _over_runs("coverage", found),
            "seconds": _over_runs("seconds", found),
            "calibration": dict(zip(map(str, LEVELS), curves.mean(0).tolist(), strict=True)),
            "bins": pool_bins([run["bins"] for run in found]),
        }
        if any("detection" in run for run in found):
            methods[name]["detection"] = _over_runs("detection", found)
    results = {
        "experiment": NAME,
        **records.read_json("splits.json"),
        "methods": methods,
        "failed": failed,
        "config": records.config,
        "versions": records.versions,
    }
    records.write_json("results.json", results)
    written: Results = records.read_json("results.json")  # where numbers that are not finite are null
    return written


def _over_runs(metric: Metric, runs: Sequence[Run]) -> Summary:
    """The summary of a metric; null, where it was not finite, becomes NaN."""
    return summary(np.array([run[metric] for run in runs if metric in run], float))


def pool_bins(groups: Sequence[Sequence[Bin]]) -> list[Bin]:
    """Bins of several test sets as one: the least uncertain rows of all of them, and so on; squares are averaged."""
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
