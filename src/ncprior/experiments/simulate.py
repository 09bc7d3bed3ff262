"""Simulated active learning on a labelled table: how many of the labels would have been enough?

    about.json                 number of rows, and the numbers of labels after which models are tested
    runs/RULE/SEED.json        the rows that a rule chose with one seed, in order, and the scores of every round
    results.json               learning curves, and labels saved against random

A run is written after every round, from which it can be resumed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypedDict

import numpy as np

from ncprior.core.registry import Style, style_of
from ncprior.data import labelled
from ncprior.data.formats.dialect import DialectOptions
from ncprior.data.labelled import Labelled
from ncprior.engines.engine import Engine
from ncprior.errors import UserError, check_limits
from ncprior.experiments.labels_saved import bootstrap_saving
from ncprior.experiments.records import JsonObject, Records
from ncprior.experiments.runs import RunProgress, loaded_once
from ncprior.experiments.scores import predict, scores
from ncprior.experiments.variants import Arguments
from ncprior.tables.batches import DEFAULT_RULE, acquisitions
from ncprior.tables.estimator import NCPRegressor
from ncprior.tables.options import FitOptions

NAME = "simulate"
CONTROL = "random"
"""The rule that others are compared with; it is always run."""
Metric = Literal["rmse", "nlpd", "crps", "coverage"]
Compared = Literal["rmse", "nlpd"]
METRICS: tuple[Metric, ...] = ("rmse", "nlpd", "crps", "coverage")
"""Metrics that have a learning curve."""
COMPARED: tuple[Compared, ...] = ("rmse", "nlpd")
"""Metrics for which the labels saved are computed."""
POOL_SHARE = 0.4
"""Largest share of the pool that is labelled: rules cannot differ much once most rows have labels."""
ESTIMATOR: Arguments = {"members": 3}
"""Arguments of `NCPRegressor` that make each of the many fits faster."""
QUICK: dict[str, int] = {"seeds": 2, "labels": 100, "rows": 5_000}
"""What ``--quick`` changes in the configuration."""
QUICK_ESTIMATOR: Arguments = {"members": 2}
"""Arguments of `NCPRegressor` that ``--quick`` changes."""


@dataclass(frozen=True)
class Config:
    """The configuration of a run, which determines its results."""

    table: str
    target: str
    fingerprint: str
    """Hash of the contents of the table: a run is not resumed with another table."""
    rules: tuple[str, ...] = (DEFAULT_RULE, CONTROL)
    inputs: tuple[str, ...] | None = None
    seeds: int = 5
    initial: int = 20
    batch: int = 20
    labels: int = 400
    test: float = 0.2
    """Share of the rows that are test rows, which are never in the pool."""
    rows: int | None = 20_000
    """Largest number of rows to use, drawn at random; None for all."""
    dialect: dict[str, str | int] = field(default_factory=dict)
    """What is known about the dialect of a text file: arguments of `DialectOptions`."""
    unlabelled: bool = True
    """Whether models are taught to be unsure where the pool is, if their method can be."""
    estimator: Arguments = field(default_factory=lambda: dict(ESTIMATOR))
    """Arguments of `NCPRegressor`."""

    def __post_init__(self) -> None:
        for name in self.rules:
            if name not in acquisitions():
                raise UserError(f"unknown rule {name!r}: choose from {', '.join(acquisitions())}")
        if CONTROL not in self.rules:
            raise UserError(f"{CONTROL} must be among the rules, as it is what the others are compared with")
        check_limits(seeds=self.seeds)
        for name, least in (("initial", 2), ("batch", 1), ("labels", 3)):
            if (value := getattr(self, name)) < least:
                raise UserError(f"{name} must be at least {least}, got {value}")
        if self.labels <= self.initial:
            raise UserError(f"labels ({self.labels}) must be more than the initial ones ({self.initial})")


class Round(TypedDict):
    """One round: number of labels, scores on the test rows, and seconds for training and choosing."""

    labels: int
    rmse: float
    nlpd: float
    crps: float
    coverage: float
    seconds: float


class Run(TypedDict):
    """A rule with one seed: numbers of the test rows and of the labelled rows, in order, and the rounds so far."""

    rule: str
    seed: int
    test: list[int]
    labels: list[int]
    rounds: list[Round]


class Curve(TypedDict):
    """Mean and standard deviation of a metric over the seeds, for each round; None where it is not finite."""

    mean: list[float | None]
    std: list[float | None]


class LabelsSaved(TypedDict):
    """A `ncprior.experiments.labels_saved.Saving` on record, with None for NaN."""

    mean: float | None
    low: float | None
    high: float | None
    reached: float | None


class RuleResult(TypedDict):
    """The learning curves of a rule, the labels that it saves, and the mean seconds of a seed."""

    seconds: float
    rmse: Curve
    nlpd: Curve
    crps: Curve
    coverage: Curve
    saved: dict[Compared, LabelsSaved]


class Results(TypedDict):
    """The contents of ``results.json``."""

    experiment: str
    rows: int
    rows_without_target: int
    inputs: list[str]
    counts: list[int]
    rules: dict[str, RuleResult]
    config: JsonObject
    versions: dict[str, str]


def rule_style(name: str) -> Style:
    """How a rule or score is written and drawn; one that is not registered is grey."""
    return style_of(name, acquisitions())


def counts(config: Config, rows: int) -> list[int]:
    """Numbers of labels after which models are tested, for a table with this many rows.

    Raises:
        UserError: If the table has too few rows for the initial labels.
    """
    pool = rows - _test_rows(config, rows)
    most = min(config.labels, int(POOL_SHARE * pool))
    if most <= config.initial:
        raise UserError(
            f"the table has too few rows ({rows}): {config.initial} initial labels leave nothing to choose within "
            f"{POOL_SHARE:.0%} of the pool; give --initial and --batch smaller numbers"
        )
    return [*range(config.initial, most, config.batch), most]


def load(config: Config) -> tuple[Labelled, list[int]]:
    """Read the table of a configuration.

    Returns:
        Its labelled rows, and the numbers of labels after which models are tested.

    Raises:
        UserError: If the table cannot be read, or has too few rows.
    """
    options = DialectOptions(**config.dialect)  # type: ignore[arg-type]
    data = labelled.load(config.table, config.target, config.inputs, rows=config.rows, options=options)
    return data, counts(config, len(data.targets))


def experiment(
    config: Config,
    loaded: tuple[Labelled, list[int]],
    records: Records,
    show: Callable[[RunProgress], None] = lambda _: None,
    engine: Engine | None = None,
) -> Results:
    """Run what has not been recorded yet.

    Args:
        config: The configuration.
        loaded: What `load` returned.
        records: Where runs are recorded.
        show: Called with the progress after each round, or with an engine each run.
        engine: Runs a task for each rule and seed, which reads the table where it runs; None for this process, where a
            run is recorded after every round.

    Returns:
        The results of all runs.
    """
    data, steps = loaded
    rows = len(data.targets)
    about = {"rows": rows, "rows_without_target": data.dropped, "inputs": data.inputs.column_names, "counts": steps}
    records.write_json("about.json", about)
    total = config.seeds * len(config.rules) * len(steps)
    done = 0
    if engine is not None:
        began = [
            records.read_json(file) if records.exists(file := run_file(rule, seed)) else start(config, rows, rule, seed)
            for seed in range(config.seeds)
            for rule in config.rules
        ]
        done = sum(len(one["rounds"]) for one in began)
        ahead_runs = [one for one in began if len(one["rounds"]) < len(steps)]
        for number, whole in engine.run(run_to_the_end, [RunTask(config, one) for one in ahead_runs]):
            records.write_json(run_file(whole["rule"], whole["seed"]), whole)
            done += len(whole["rounds"]) - len(ahead_runs[number]["rounds"])
            show(RunProgress(done, total, _state(whole), whole["rule"], {whole["rule"]: total - done}))
        return write_results(records)
    for seed in range(config.seeds):
        for rule in config.rules:
            file = run_file(rule, seed)
            run: Run = records.read_json(file) if records.exists(file) else start(config, rows, rule, seed)
            done += len(run["rounds"])
            for count in steps[len(run["rounds"]) :]:
                run = advance(config, data, run, _batch(steps, count))
                records.write_json(file, run)
                done += 1
                # Rounds with as many labels take about as long as each other.
                runs_left = config.seeds * len(config.rules) - 1 - (seed * len(config.rules) + config.rules.index(rule))
                ahead = {str(one): runs_left + (one > count) for one in steps}
                show(RunProgress(done, total, _state(run), str(count), ahead))
    return write_results(records)


class RunTask(NamedTuple):
    """A run with the rounds that it has so far, for an engine."""

    config: Config
    run: Run


def run_to_the_end(task: RunTask) -> Run:
    """All rounds of a run that are left, on the table, which a process reads once."""
    data, steps = loaded_once(load, task.config)
    run = task.run
    for count in steps[len(run["rounds"]) :]:
        run = advance(task.config, data, run, _batch(steps, count))
    return run


def _batch(steps: list[int], count: int) -> int:
    """How many labels follow after so many."""
    return steps[steps.index(count) + 1] - count if count < steps[-1] else 0


def _state(run: Run) -> str:
    """The last round of a run, in words."""
    last = run["rounds"][-1]
    state = f"{last['labels']} labels, RMSE {last['rmse']:.3g}, NLPD {last['nlpd']:.3g}"
    return f"{run['rule'].replace('_', ' ')}, seed {run['seed']}: {state}"


def start(config: Config, rows: int, rule: str, seed: int) -> Run:
    """A run before its first round. Test rows and initial labels depend on the seed, not on the rule."""
    order = np.random.default_rng([seed, 0]).permutation(rows)
    test = _test_rows(config, rows)
    labels = order[test : test + config.initial]
    return {"rule": rule, "seed": seed, "test": np.sort(order[:test]).tolist(), "labels": labels.tolist(), "rounds": []}


def advance(config: Config, data: Labelled, run: Run, batch: int) -> Run:
    """One more round: train on the labels, test, and choose ``batch`` rows to label next, which may be 0."""
    seed, rule, number = run["seed"], run["rule"], len(run["rounds"])
    # The seeds do not depend on the rule, so that rules differ only in the labels that they choose.
    fit_seed, draw_seed = np.random.SeedSequence([seed, 1 + number]).generate_state(2)
    started = time.monotonic()
    labels = np.array(run["labels"])
    inputs, targets = data.take(labels)
    # A simulation may begin with two labels, which are too few to learn from.
    model = NCPRegressor(**{"min_rows": 1, **config.estimator}, random_state=int(fit_seed % 2**31))
    taken = np.zeros(len(data.targets), bool)
    taken[run["test"]] = taken[labels] = True
    pool = np.flatnonzero(~taken)
    asked = config.unlabelled and FitOptions.of(model, check_effects=False).why_no_unlabelled is None
    # `load` has checked the whole table.
    model.fit_subset(inputs, targets, X_unlabelled=data.take(pool)[0] if asked else None)
    test_inputs, test_targets = data.take(np.array(run["test"]))
    found = scores(predict(model, test_inputs), test_targets)
    chosen = labels[:0]
    if batch:
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
    """The file of the run of a rule with a seed."""
    return f"runs/{rule}/{seed:03d}.json"


def unfinished(records: Records) -> list[str]:
    """The rules with runs that have not been recorded to their end."""
    if not records.exists("about.json"):
        return list(records.config["rules"])
    rounds = len(records.read_json("about.json")["counts"])

    def whole(rule: str, seed: int) -> bool:
        file = run_file(rule, seed)
        return records.exists(file) and len(records.read_json(file)["rounds"]) == rounds

    config = records.config
    return [rule for rule in config["rules"] if not all(whole(rule, seed) for seed in range(config["seeds"]))]


def curves(records: Records) -> dict[str, dict[str, np.ndarray]]:
    """Learning curves ``[seeds, rounds]`` by rule and metric."""
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
    """Write ``results.json``: learning curves, and labels saved against random."""
    about, found = records.read_json("about.json"), curves(records)
    labels = np.array(about["counts"], float)
    rules = {
        rule: {
            "seconds": float(values["seconds"].sum(1).mean()),
            **{
                metric: {"mean": values[metric].mean(0).tolist(), "std": values[metric].std(0).tolist()}
                for metric in METRICS
            },
            "saved": {
                metric: bootstrap_saving(labels, values[metric], found[CONTROL][metric])._asdict()
                for metric in COMPARED
            },
        }
        for rule, values in found.items()
    }
    results = {"experiment": NAME, **about, "rules": rules, "config": records.config, "versions": records.versions}
    records.write_json("results.json", results)
    written: Results = records.read_json("results.json")  # in which numbers that are not finite are null
    return written


def _test_rows(config: Config, rows: int) -> int:
    return max(1, round(config.test * rows))
