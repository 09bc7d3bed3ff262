"""Active learning replayed on a table whose labels are all known: how many of them would have been enough?

    about.json                 how many rows there are, and after how many labels the models are tested
    runs/RULE/SEED.json        the labels of one seed in the order in which a rule chose them, and what they led to
    results.json               learning curves, and labels saved against random

A run is written after every round and goes on from there.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypedDict

import numpy as np

from ncprior.core.registry import Style, style_of
from ncprior.data import labelled
from ncprior.data.labelled import Labelled
from ncprior.errors import UserError, check_limits
from ncprior.experiments.evaluate import Arguments
from ncprior.experiments.records import JsonObject, Records
from ncprior.experiments.runs import RunProgress
from ncprior.experiments.scores import predict, scores
from ncprior.tables.batches import DEFAULT_RULE, acquisitions
from ncprior.tables.estimator import NCPRegressor

NAME = "simulate"
CONTROL = "random"
"""The rule that every other must beat; it is always run."""
Metric = Literal["rmse", "nlpd", "crps", "coverage"]
Compared = Literal["rmse", "nlpd"]
METRICS: tuple[Metric, ...] = ("rmse", "nlpd", "crps", "coverage")
COMPARED: tuple[Compared, ...] = ("rmse", "nlpd")
"""Metrics for which labels are counted."""
POOL_SHARE = 0.4
"""Share of the pool that may be labelled at most: rules cannot differ much once most rows have labels."""
ESTIMATOR: Arguments = {"members": 3}
"""Arguments of `NCPRegressor` that make each of the many fits faster."""
QUICK: dict[str, int] = {"seeds": 2, "labels": 100, "rows": 5_000}
QUICK_ESTIMATOR: Arguments = {"members": 2}
_LEVELS = 100
"""Points of the control's curve at which labels are compared."""
_RESAMPLES = 1_000
"""Draws of seeds with replacement that say how far the labels saved depend on the seeds."""


@dataclass(frozen=True)
class Config:
    """All that a run depends on."""

    table: str
    target: str
    fingerprint: str
    """Of the table's contents, so that a run does not go on with another table."""
    rules: tuple[str, ...] = (DEFAULT_RULE, CONTROL)
    inputs: tuple[str, ...] | None = None
    seeds: int = 5
    initial: int = 20
    batch: int = 20
    labels: int = 400
    test: float = 0.2
    """Share of the rows that are tested on, and never in the pool."""
    rows: int | None = 20_000
    """The most rows of the table to use, drawn at random."""
    estimator: Arguments = field(default_factory=lambda: dict(ESTIMATOR))
    """Arguments of `NCPRegressor`."""

    def __post_init__(self) -> None:
        for name in self.rules:
            if name not in acquisitions():
                raise UserError(f"unknown rule {name!r}: choose from {', '.join(acquisitions())}")
        if CONTROL not in self.rules:
            raise UserError(f"{CONTROL} must be among the rules, as it is what the others are compared with")
        for name, least in (("seeds", 1), ("initial", 2), ("batch", 1), ("labels", 3)):
            if (value := getattr(self, name)) < least:
                raise UserError(f"{name} must be at least {least}, got {value}")
        check_limits(seeds=self.seeds)
        if self.labels <= self.initial:
            raise UserError(f"labels ({self.labels}) must be more than the initial ones ({self.initial})")


class Round(TypedDict):
    """A model trained on so many labels: its scores on the test rows, and the seconds for training and choosing."""

    labels: int
    rmse: float
    nlpd: float
    crps: float
    coverage: float
    seconds: float


class Run(TypedDict):
    """The labels that a rule chose with one seed, in order, and the rounds so far; rows are numbers in the table."""

    rule: str
    seed: int
    test: list[int]
    labels: list[int]
    rounds: list[Round]


class Curve(TypedDict):
    """A metric after every round: mean and standard deviation over the seeds; None where it is not finite."""

    mean: list[float | None]
    std: list[float | None]


class LabelsSaved(TypedDict):
    """`Saving` on record; None where there is none."""

    mean: float | None
    low: float | None
    high: float | None


class RuleResult(TypedDict):
    """The learning curves of a rule, the labels that it saves, and the seconds that a seed took."""

    seconds: float
    rmse: Curve
    nlpd: Curve
    crps: Curve
    coverage: Curve
    saved: dict[Compared, LabelsSaved]


class Results(TypedDict):
    """What ``results.json`` holds."""

    experiment: str
    rows: int
    rows_without_target: int
    inputs: list[str]
    counts: list[int]
    rules: dict[str, RuleResult]
    config: JsonObject
    versions: dict[str, str]


class Saving(NamedTuple):
    """Labels saved against random: the share from the mean curves, and 5% and 95% quantiles over drawn seeds."""

    mean: float
    low: float
    high: float


def rule_style(name: str) -> Style:
    """How a rule or score is written and drawn; in grey if it is not registered in this process."""
    return style_of(name, acquisitions())


def counts(config: Config, rows: int) -> list[int]:
    """Numbers of labels after which the models are tested, for a table with this many rows."""
    pool = rows - _test_rows(config, rows)
    most = min(config.labels, int(POOL_SHARE * pool))
    if most <= config.initial:
        raise UserError(
            f"the table has too few rows ({rows}): {config.initial} initial labels leave nothing to choose within "
            f"{POOL_SHARE:.0%} of the pool; give --initial and --batch smaller numbers"
        )
    return [*range(config.initial, most, config.batch), most]


def load(config: Config) -> tuple[Labelled, list[int]]:
    """The rows of the table, and the numbers of labels after which models are tested."""
    data = labelled.load(config.table, config.target, config.inputs, rows=config.rows)
    return data, counts(config, len(data.targets))


def experiment(
    config: Config,
    loaded: tuple[Labelled, list[int]],
    records: Records,
    show: Callable[[RunProgress], None] = lambda _: None,
) -> Results:
    """Runs what is not on record yet, on what `load` gave, and gives the results."""
    data, steps = loaded
    rows = len(data.targets)
    about = {"rows": rows, "rows_without_target": data.dropped, "inputs": data.inputs.column_names, "counts": steps}
    records.write_json("about.json", about)
    total = config.seeds * len(config.rules) * len(steps)
    done = 0
    for seed in range(config.seeds):
        for rule in config.rules:
            file = run_file(rule, seed)
            run: Run = records.read_json(file) if records.exists(file) else start(config, rows, rule, seed)
            done += len(run["rounds"])
            for count in steps[len(run["rounds"]) :]:
                following = steps[steps.index(count) + 1] if count < steps[-1] else count
                run = advance(config, data, run, following - count)
                records.write_json(file, run)
                done += 1
                last = run["rounds"][-1]
                state = f"{count} labels, RMSE {last['rmse']:.3g}, NLPD {last['nlpd']:.3g}"
                show(RunProgress(done, total, f"{rule.replace('_', ' ')}, seed {seed}: {state}"))
    return write_results(records)


def start(config: Config, rows: int, rule: str, seed: int) -> Run:
    """A run before its first round: test rows and initial labels are the same for every rule with this seed."""
    order = np.random.default_rng([seed, 0]).permutation(rows)
    test = _test_rows(config, rows)
    labels = order[test : test + config.initial]
    return {"rule": rule, "seed": seed, "test": np.sort(order[:test]).tolist(), "labels": labels.tolist(), "rounds": []}


def advance(config: Config, data: Labelled, run: Run, batch: int) -> Run:
    """One round more: train on the labels, test, and choose the next batch, which may be of none."""
    seed, rule, number = run["seed"], run["rule"], len(run["rounds"])
    # Rules with the same seed differ in nothing but the labels.
    fit_seed, draw_seed = np.random.SeedSequence([seed, 1 + number]).generate_state(2)
    started = time.monotonic()
    labels = np.array(run["labels"])
    inputs, targets = data.take(labels)
    # A simulation may begin with two labels, of which nothing can be learned as yet.
    model = NCPRegressor(**{"min_rows": 1, **config.estimator}, random_state=int(fit_seed % 2**31))
    model.fit_subset(inputs, targets)  # `load` has checked the whole table
    test_inputs, test_targets = data.take(np.array(run["test"]))
    found = scores(predict(model, test_inputs), test_targets)
    chosen = labels[:0]
    if batch:
        taken = np.zeros(len(data.targets), bool)
        taken[run["test"]] = taken[labels] = True
        pool = np.flatnonzero(~taken)
        picked = model.suggest(
            data.take(pool)[0], batch, acquisition=rule, labelled=inputs, random_state=int(draw_seed % 2**31)
        )
        chosen = pool[np.asarray(picked)]
    result: Round = {
        "labels": len(labels),
        "rmse": found["rmse"],
        "nlpd": found["nlpd"],
        "crps": found["crps"],
        "coverage": found["coverage"],
        "seconds": time.monotonic() - started,
    }
    return {**run, "labels": [*run["labels"], *chosen.tolist()], "rounds": [*run["rounds"], result]}


def run_file(rule: str, seed: int) -> str:
    """Where the run of a rule with a seed is recorded."""
    return f"runs/{rule}/{seed:03d}.json"


def unfinished(records: Records) -> list[str]:
    """The rules that have runs which are not complete on record."""
    if not records.exists("about.json"):
        return list(records.config["rules"])
    rounds = len(records.read_json("about.json")["counts"])

    def whole(rule: str, seed: int) -> bool:
        file = run_file(rule, seed)
        return records.exists(file) and len(records.read_json(file)["rounds"]) == rounds

    config = records.config
    return [rule for rule in config["rules"] if not all(whole(rule, seed) for seed in range(config["seeds"]))]


def curves(records: Records) -> dict[str, dict[str, np.ndarray]]:
    """Values ``[seeds, rounds]`` by rule and metric."""
    config = records.config
    found: dict[str, dict[str, np.ndarray]] = {}
    for rule in config["rules"]:
        seeds = [records.read_json(run_file(rule, seed))["rounds"] for seed in range(config["seeds"])]
        found[rule] = {
            metric: np.array([[one[metric] for one in rounds] for rounds in seeds], float)
            for metric in (*METRICS, "seconds")
        }
    return found


def write_results(records: Records) -> Results:
    """Learning curves, and labels saved against random, as ``results.json``."""
    about, found = records.read_json("about.json"), curves(records)
    labels = np.array(about["counts"], float)
    rules = {
        rule: {
            "seconds": float(values["seconds"].sum(1).mean()),
            **{
                metric: {"mean": values[metric].mean(0).tolist(), "std": values[metric].std(0).tolist()}
                for metric in METRICS
            },
            "saved": {metric: saving(labels, values[metric], found[CONTROL][metric])._asdict() for metric in COMPARED},
        }
        for rule, values in found.items()
    }
    results = {"experiment": NAME, **about, "rules": rules, "config": records.config, "versions": records.versions}
    records.write_json("results.json", results)
    written: Results = records.read_json("results.json")  # where numbers that are not finite are null
    return written


def labels_saved(labels: np.ndarray, curve: np.ndarray, control: np.ndarray) -> float:
    """The share of the control's labels that a rule can do without for the same value, on average along the curve.

    The average is over numbers of labels of the control, up to where it comes to its best value. Values in between are
    interpolated, and a value counts from the first time that it is reached. The share is negative if the rule needs
    more. A value that it never comes to counts as if it did with its last label: it saves at most so much.
    """
    curve, control = np.minimum.accumulate(curve), np.minimum.accumulate(control)
    if not np.isfinite([curve[-1], control[-1]]).all():
        return float("nan")
    last = reach(labels, control, control[-1])
    levels = np.interp(np.linspace(labels[0], last, _LEVELS + 1)[1:], labels, control)
    needed, by_control = (sum(reach(labels, one, level) for level in levels) for one in (curve, control))
    return float(1 - needed / by_control)


def reach(labels: np.ndarray, curve: np.ndarray, level: float) -> float:
    """The number of labels, interpolated, after which a curve that never rises is as low as this, or the last one."""
    if curve[-1] > level:
        return float(labels[-1])
    after = int(np.argmax(curve <= level))
    if after == 0 or not np.isfinite(curve[after - 1]):
        return float(labels[after])
    part = (curve[after - 1] - level) / (curve[after - 1] - curve[after])
    return float(labels[after - 1] + part * (labels[after] - labels[after - 1]))


def saving(labels: np.ndarray, rule: np.ndarray, control: np.ndarray) -> Saving:
    """Labels saved from the mean of curves ``[seeds, rounds]``, and how far that depends on the seeds."""
    seeds = len(rule)
    mean = labels_saved(labels, rule.mean(0), control.mean(0))
    if seeds == 1:
        return Saving(mean, float("nan"), float("nan"))
    rng = np.random.default_rng(0)
    # The same seeds of both: they share test rows and first labels.
    draws = rng.integers(seeds, size=(_RESAMPLES, seeds))
    found = np.array([labels_saved(labels, rule[draw].mean(0), control[draw].mean(0)) for draw in draws])
    low, high = np.quantile(found[~np.isnan(found)], [0.05, 0.95]) if np.isfinite(found).any() else (np.nan, np.nan)
    return Saving(mean, float(low), float(high))


def _test_rows(config: Config, rows: int) -> int:
    return max(1, round(config.test * rows))
