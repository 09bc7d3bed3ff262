"""Simulated active learning on a labelled table: how many of the labels would have been enough?

    about.json                 number of rows, and the numbers of labels after which models are tested
    map.parquet                the first two principal components of all rows
    runs/RULE/SEED.json        the rows that a rule chose with one seed, in order, and the scores of every round; with
                               several batch sizes runs/RULE/SIZE/SEED.json
    results.json               learning curves, and labels saved against random

A run is written after every round, from which it can be resumed.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
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
from ncprior.experiments.pool_map import principal_components
from ncprior.experiments.records import Records
from ncprior.experiments.runs import RunProgress, loaded_once
from ncprior.experiments.scores import predict, scores
from ncprior.schema import JsonObject
from ncprior.tables.batches import DEFAULT_RULE, acquisitions
from ncprior.tables.estimator import NCPRegressor
from ncprior.tables.options import Arguments, FitOptions

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
    batch: int | tuple[int, ...] = 20
    """Labels to choose at a time; every rule runs with each of several sizes."""
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
        least_batch = min(_sizes(self.batch), default=0)
        for name, value, least in (("initial", self.initial, 2), ("batch", least_batch, 1), ("labels", self.labels, 3)):
            if value < least:
                raise UserError(f"{name} must be at least {least}, got {value}")
        if self.labels <= self.initial:
            raise UserError(f"labels ({self.labels}) must be more than the initial ones ({self.initial})")


class Arm(NamedTuple):
    """A rule with a batch size, whose learning curve is one of those that are compared.

    Attributes:
        rule: Name of the rule.
        batch: Labels that it chooses at a time.
        name: Of its folder and its results: ``RULE``, or ``RULE/SIZE`` if there are several sizes.
        control: The name of random labels with the same batch size.
    """

    rule: str
    batch: int
    name: str
    control: str


def arms(rules: Sequence[str], batch: int | Sequence[int]) -> list[Arm]:
    """Every rule with every batch size.

    >>> [arm.name for arm in arms(["lcmd", "random"], 20)], [arm.name for arm in arms(["lcmd"], (1, 5))]
    (['lcmd', 'random'], ['lcmd/1', 'lcmd/5'])
    """
    sizes = _sizes(batch)
    endings = {size: f"/{size}" if len(sizes) > 1 else "" for size in sizes}
    return [Arm(rule, size, rule + endings[size], CONTROL + endings[size]) for size in sizes for rule in rules]


def _sizes(batch: int | Sequence[int]) -> tuple[int, ...]:
    return (batch,) if isinstance(batch, int) else tuple(dict.fromkeys(batch))


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
    batch: int
    seed: int
    test: list[int]
    labels: list[int]
    rounds: list[Round]


class Chosen(NamedTuple):
    """The rows that a rule labelled with one seed, in order, and how many labels there were before each."""

    rows: np.ndarray
    before: np.ndarray


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

    rule: str
    batch: int
    counts: list[int]
    """Numbers of labels after which models were tested."""
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
    map_shares: tuple[float, float]
    """Share of the variance of the inputs that is on the map."""
    counts: dict[str, list[int]]
    """Numbers of labels after which models were tested, by batch size."""
    rules: dict[str, RuleResult]
    """By `Arm.name`."""
    config: JsonObject
    versions: dict[str, str]


def rule_style(name: str) -> Style:
    """How a rule or score is written and drawn; one that is not registered is grey."""
    return style_of(name, acquisitions())


def counts(config: Config, rows: int) -> dict[int, list[int]]:
    """Numbers of labels after which models are tested, by batch size, for a table with this many rows.

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
    return {size: [*range(config.initial, most, size), most] for size in _sizes(config.batch)}


def load(config: Config) -> tuple[Labelled, dict[int, list[int]]]:
    """Read the table of a configuration.

    Returns:
        Its labelled rows, and the numbers of labels after which models are tested, by batch size.

    Raises:
        UserError: If the table cannot be read, or has too few rows.
    """
    options = DialectOptions(**config.dialect)  # type: ignore[arg-type]
    data = labelled.load(config.table, config.target, config.inputs, rows=config.rows, options=options)
    return data, counts(config, len(data.targets))


def experiment(
    config: Config,
    loaded: tuple[Labelled, dict[int, list[int]]],
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
    place = principal_components(data.inputs)
    records.write_table("map.parquet", {"first": place.first, "second": place.second})
    about = {"rows": rows, "rows_without_target": data.dropped, "inputs": data.inputs.column_names, "counts": steps}
    records.write_json("about.json", {**about, "map_shares": place.shares})
    runs = [(arm, seed) for seed in range(config.seeds) for arm in arms(config.rules, config.batch)]
    began: list[Run] = [
        records.read_json(file) if records.exists(file := run_file(arm, seed)) else start(config, rows, arm, seed)
        for arm, seed in runs
    ]
    total = sum(len(steps[arm.batch]) for arm, _ in runs)
    done = sum(len(run["rounds"]) for run in began)
    # Rounds with as many labels take about as long as each other.
    ahead = Counter(
        str(count)
        for (arm, _), run in zip(runs, began, strict=True)
        for count in steps[arm.batch][len(run["rounds"]) :]
    )
    left = [number for number, (arm, _) in enumerate(runs) if len(began[number]["rounds"]) < len(steps[arm.batch])]
    if engine is not None:
        for number, finished in engine.run(run_to_the_end, [RunTask(config, began[one]) for one in left]):
            before = began[left[number]]
            records.write_json(run_file(*runs[left[number]]), finished)
            done += len(finished["rounds"]) - len(before["rounds"])
            show(RunProgress(done, total, _state(finished), finished["rule"], {finished["rule"]: total - done}))
        return write_results(records)
    for number in left:
        (arm, seed), run = runs[number], began[number]
        for count in steps[arm.batch][len(run["rounds"]) :]:
            run = advance(config, data, run, _batch(steps[arm.batch], count))
            records.write_json(run_file(arm, seed), run)
            done += 1
            ahead[str(count)] -= 1
            show(RunProgress(done, total, _state(run), str(count), dict(ahead)))
    return write_results(records)


class RunTask(NamedTuple):
    """A run with the rounds that it has so far, for an engine."""

    config: Config
    run: Run


def run_to_the_end(task: RunTask) -> Run:
    """All rounds of a run that are left, on the table, which a process reads once."""
    data, steps = loaded_once(load, task.config)
    run = task.run
    label_counts = steps[run["batch"]]
    for count in label_counts[len(run["rounds"]) :]:
        run = advance(task.config, data, run, _batch(label_counts, count))
    return run


def _batch(steps: list[int], count: int) -> int:
    """The size of the next batch, after so many labels."""
    return steps[steps.index(count) + 1] - count if count < steps[-1] else 0


def _state(run: Run) -> str:
    """The last round of a run, in words."""
    last = run["rounds"][-1]
    state = f"{last['labels']} labels, RMSE {last['rmse']:.3g}, NLPD {last['nlpd']:.3g}"
    return f"{run['rule'].replace('_', ' ')}, {run['batch']} at a time, seed {run['seed']}: {state}"


def start(config: Config, rows: int, arm: Arm, seed: int) -> Run:
    """A run before its first round. Test rows and initial labels depend on the seed, not on rule and batch size."""
    order = np.random.default_rng([seed, 0]).permutation(rows)
    test = _test_rows(config, rows)
    labels = order[test : test + config.initial]
    return {
        "rule": arm.rule,
        "batch": arm.batch,
        "seed": seed,
        "test": np.sort(order[:test]).tolist(),
        "labels": labels.tolist(),
        "rounds": [],
    }


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


def run_file(arm: Arm, seed: int) -> str:
    """The file of the run of a rule and batch size with a seed."""
    return f"runs/{arm.name}/{seed:03d}.json"


def recorded_arms(records: Records) -> list[Arm]:
    """The rules and batch sizes of a run on record."""
    return arms(records.config["rules"], records.config["batch"])


def unfinished(records: Records) -> list[str]:
    """The rules with runs that have not been recorded to their end."""
    found = recorded_arms(records)
    if not records.exists("about.json"):
        return [arm.name for arm in found]
    steps = records.read_json("about.json")["counts"]

    def finished(arm: Arm, seed: int) -> bool:
        file = run_file(arm, seed)
        return records.exists(file) and len(records.read_json(file)["rounds"]) == len(steps[str(arm.batch)])

    seeds = range(records.config["seeds"])
    return [arm.name for arm in found if not all(finished(arm, seed) for seed in seeds)]


def curves(records: Records) -> dict[str, dict[str, np.ndarray]]:
    """Learning curves ``[seeds, rounds]`` by `Arm.name` and metric."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for arm in recorded_arms(records):
        seeds = [records.read_json(run_file(arm, seed))["rounds"] for seed in range(records.config["seeds"])]
        found[arm.name] = {
            metric: np.array([[one[metric] for one in rounds] for rounds in seeds], float)
            for metric in (*METRICS, "seconds")
        }
    return found


def chosen_rows(records: Records, arm: Arm, seed: int) -> Chosen:
    """The rows that were labelled in a run; before the first ones, which were drawn at random, there were 0 labels."""
    run: Run = records.read_json(run_file(arm, seed))
    tested = np.array([one["labels"] for one in run["rounds"]])
    numbers = np.arange(len(run["labels"]))
    before = np.concatenate([[0], tested])[np.searchsorted(tested, numbers, side="right")]
    return Chosen(np.array(run["labels"]), before)


def write_results(records: Records) -> Results:
    """Write ``results.json``: learning curves, and labels saved against random with the same batch size."""
    about, found = records.read_json("about.json"), curves(records)
    rules: JsonObject = {}
    for arm in recorded_arms(records):
        values, steps = found[arm.name], about["counts"][str(arm.batch)]
        rules[arm.name] = {
            "rule": arm.rule,
            "batch": arm.batch,
            "counts": steps,
            "seconds": float(values["seconds"].sum(1).mean()),
            **{
                metric: {"mean": values[metric].mean(0).tolist(), "std": values[metric].std(0).tolist()}
                for metric in METRICS
            },
            "saved": {
                metric: bootstrap_saving(np.array(steps, float), values[metric], found[arm.control][metric])._asdict()
                for metric in COMPARED
            },
        }
    results = {"experiment": NAME, **about, "rules": rules, "config": records.config, "versions": records.versions}
    records.write_json("results.json", results)
    written: Results = records.read_json("results.json")  # in which numbers that are not finite are null
    return written


def _test_rows(config: Config, rows: int) -> int:
    return max(1, round(config.test * rows))
