"""Evaluation of the estimator on a table: every method on splits of its rows, beside simple baselines.

    splits.json                       names and sizes of the splits, and number of rows
    runs/METHOD/SPLIT-SEED.json       scores of one method on one split; see `ncprior.experiments.scores`
    results.json                      mean and standard deviation over splits and seeds

Each run is written as soon as it ends, and is not repeated when the experiment is resumed.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa

from ncprior.data import labelled
from ncprior.data.formats.dialect import DialectOptions
from ncprior.data.labelled import Labelled
from ncprior.data.splits import Split, gap_splits, random_splits, tail_splits, time_split
from ncprior.engines.engine import Engine
from ncprior.errors import UserError, check_limits
from ncprior.experiments import baselines
from ncprior.experiments.conditional_coverage import UnseenRows, by_familiarity, p_values
from ncprior.experiments.evaluate_results import Results, Run, run_file, runs, write_results
from ncprior.experiments.records import Records
from ncprior.experiments.risk_coverage import rank_correlation
from ncprior.experiments.runs import RunProgress, loaded_once
from ncprior.experiments.scores import Standardised, detection, predict, scores, unseen_rows
from ncprior.experiments.shifts import SHIFTS
from ncprior.experiments.variants import (
    DEFAULT_METHODS,
    GROUPS,
    METHODS,
    VARIANTS,
    check_method,
    network,
)
from ncprior.schema import JsonObject
from ncprior.tables.estimator import NCPRegressor
from ncprior.tables.options import Arguments, FitOptions

NAME = "evaluate"
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


def make_splits(config: Config, data: Labelled) -> list[Split]:
    """The splits of a configuration.

    Raises:
        UserError: If the table has no column of numbers to split by.
    """
    kind, _, column = config.split.partition(":")
    if kind == "time":
        return [time_split(column, data.extra[column])]
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
    unlike = len(like) > 0 and like is not split.test
    if unlike:
        inside_inputs, inside_targets = data.take(like)
        inside = predicted(inside_inputs)
        found["inside"] = scores(inside, inside_targets)
    if test.doubt is None or inside.doubt is None:
        return found
    error = targets - test.shift - test.scale * np.asarray(test.prediction.mean, np.float64)[:, 0]
    found |= {"unsure_by": test.doubt.name, "rank_doubt": rank_correlation(np.abs(error), test.doubt.values)}
    if unlike:
        found["detection"] = detection(test.doubt, inside.doubt)
    if not len(like):
        return found
    for name, shift in SHIFTS.items():
        moved = shift(inside_inputs, data.inputs.take(pa.array(split.train)))
        if moved is not None and (doubt := predicted(moved).doubt):
            found[name] = detection(doubt, inside.doubt)
    groups = _unseen(inside, inside_targets, inside) if unlike else None
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
    extra = (column,) if kind == "time" else ()
    options = DialectOptions(**config.dialect)  # type: ignore[arg-type]
    data = labelled.load(config.table, config.target, config.inputs, extra=extra, rows=config.rows, options=options)
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


def unfinished(records: Records) -> list[str]:
    """The methods with runs that have not been recorded."""
    if not records.exists("splits.json"):
        return list(records.config["methods"])
    return list(dict.fromkeys(run[1] for run in runs(records) if not records.exists(run_file(*run))))
