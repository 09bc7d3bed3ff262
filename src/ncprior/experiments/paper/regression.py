"""The paper's regression of flight delays on all training rows (Section 5.4): Table 1.

The paper trains one network with three layers of 1,000 units for each method, and does not say for how many epochs. The
recipe ``paper`` trains for a fixed number of epochs at the paper's learning rate; ``tuned`` has lower errors, see
`RECIPES`. No recipe uses test rows. With ``validation`` in the schedule, the last part of the training rows, in the
order of the split, chooses the epoch. Networks are trained one after the other, as a step uses every core.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ncprior.core.effects import OF_CHOICE, Learned, why_same
from ncprior.core.methods import methods
from ncprior.core.metrics import METRICS
from ncprior.core.settings import PRESETS, Settings
from ncprior.data import flights
from ncprior.data.dataset import Dataset
from ncprior.errors import UserError, check_limits
from ncprior.experiments.paper.data_parallel import Regression, Schedule, steps_in_epoch
from ncprior.experiments.paper.seed_by_seed import Progress, train_seeds
from ncprior.experiments.records import Records, summary
from ncprior.experiments.runs import MethodFiles, unfinished_methods

NAME = "regression"
DEFAULT_METHODS = ("bbb", "bbb+ncp", "odc+ncp", "det")
"""The three models of Table 1, and Det."""
SEEDS = 3
BATCH_SIZE = 256
"""Rows in a mini batch. The paper does not say how many it used on all rows."""
UNUSED = OF_CHOICE
"""Settings about the choice of labels, which have no effect here: all rows have labels."""


@dataclass(frozen=True)
class Config:
    """The configuration of a run, which determines its results."""

    preset: str
    settings: Settings
    schedule: Schedule
    recipe: str
    source: str
    split: str
    paths: tuple[str, ...] = ()
    planes: str | None = None
    methods: tuple[str, ...] = DEFAULT_METHODS
    seeds: int = SEEDS
    times: str = "hhmm"
    """Form of the times of day in the inputs of the networks; see `ncprior.data.flights.load`."""
    rows: int | None = None
    """Number of training rows to use, drawn at random; None for all."""

    def __post_init__(self) -> None:
        available = methods(self.settings)
        for name in self.methods:
            if name not in available:
                raise UserError(f"unknown method {name!r}: choose from {', '.join(available)}")
        if not self.methods:
            raise UserError(f"no method given: choose from {', '.join(available)}")
        check_limits(seeds=self.seeds)
        if self.settings.remainder == "filled":
            raise UserError("remainder=filled is not for networks on all rows: choose smaller or dropped")
        if self.rows is not None and self.rows < 1:
            raise UserError(f"rows must be at least 1, got {self.rows}")

    def why_same(self, other: Settings) -> str | None:
        """Why no method of the run learns anything else with these settings; None if one does."""
        return why_same((Learned(name, self.settings), Learned(name, other)) for name in self.methods)


class Recipe(NamedTuple):
    """A way to train the networks: schedule, changes to the settings of the preset, and form of the times of day."""

    schedule: Schedule
    settings: dict[str, Any]
    times: str = "hhmm"


RECIPES = {
    "paper": Recipe(Schedule(epochs=10), {"hidden": (1000,) * 3, "learning_rate": 1e-4}),
    "tuned": Recipe(
        Schedule(epochs=30, decay="cosine", bins=128, beta=0.5),
        {"hidden": (512,) * 3, "learning_rate": 1e-3, "expectation": "exact", "odc_noised_nll": False},
        times="minutes",
    ),
}
"""``paper``: the paper's learning rate; the number of epochs is ours. ``tuned``: times in minutes, inputs in bins, a
likelihood in closed form that does not neglect late flights, and a learning rate that decays; ODC+NCP as in the text of
the paper. Its settings were chosen on the last eighth of the training rows. 30 epochs suit the split ``plane-order``;
``temporal`` overfits with more than 8."""

_FLIGHTS = {
    "paper": {"input_noise_std": 0.1**0.5, "gamma": 1.0, "weight_kl": 1.0},
    "reference": {"input_noise_std": 0.1, "gamma": 0.1, "weight_kl": 1.0, "noise_prior_std": None},
}
"""Settings of the presets on flights. Of ``Normal(0, 0.1)``, 0.1 is the variance in the paper, the std in its code."""


def configure(
    source: str = "nyc2013",
    split: str = "temporal",
    paths: tuple[str, ...] = (),
    planes: str | None = None,
    *,
    preset: str = "reference",
    recipe: str = "paper",
    methods: tuple[str, ...] = DEFAULT_METHODS,
    epochs: int | None = None,
    batch_size: int | None = None,
    seeds: int | None = None,
    quick: bool = False,
) -> Config:
    """The configuration of the experiment.

    Args:
        source: Where the flights come from; see `ncprior.data.flights.load`, also for the next three.
        split: How they are split.
        paths: Their files.
        planes: The table of planes.
        preset: Name of the settings; see `ncprior.core.settings.PRESETS`.
        recipe: How networks are trained: one of `RECIPES`.
        methods: Names of the methods to run.
        epochs: Number of epochs; None for that of the recipe.
        batch_size: Rows in a mini batch; None for the default.
        seeds: Number of seeds; None for the default.
        quick: Whether to run a shorter version: one seed, narrow networks, 50,000 rows.

    Raises:
        UserError: If a value has no meaning.
    """
    if recipe not in RECIPES:
        raise UserError(f"unknown recipe {recipe!r}: choose from {', '.join(RECIPES)}")
    schedule, changes, times = RECIPES[recipe]
    if epochs is not None:
        schedule = dataclasses.replace(schedule, epochs=epochs)
    if batch_size is None:
        batch_size = BATCH_SIZE
    changes = {"batch_size": batch_size, **_FLIGHTS[preset], **changes, **({"hidden": (100,) * 3} if quick else {})}
    settings = dataclasses.replace(PRESETS[preset], **changes)
    rows, seeds = 50_000 if quick else None, seeds if seeds is not None else 1 if quick else SEEDS
    return Config(preset, settings, schedule, recipe, source, split, paths, planes, methods, seeds, times, rows)


def baselines(data: Dataset) -> tuple[dict[str, dict[str, float]], list[str]]:
    """Train and score simpler models: the mean, linear regression, boosted trees.

    Each predicts a normal whose variance is that of its errors on the training rows.

    Returns:
        RMSE and NLPD on training and test rows by model, in units of the target, and notes on models left out.
    """
    inputs, targets = data.train_inputs.astype(np.float64), data.train_targets[:, 0].astype(np.float64)
    tests = data.test_inputs.astype(np.float64)
    with_one, tests_with_one = (np.column_stack([rows, np.ones(len(rows))]) for rows in (inputs, tests))
    weights = np.linalg.lstsq(with_one, targets, rcond=None)[0]
    predictions = {
        "mean": (np.full(len(inputs), targets.mean()), np.full(len(tests), targets.mean())),
        "linear": (with_one @ weights, tests_with_one @ weights),
    }
    notes = []
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
    except ImportError:
        notes.append("boosted trees are left out: scikit-learn is not installed (pip install scikit-learn)")
    else:
        # No early stopping: all 400 iterations are wanted.
        trees = HistGradientBoostingRegressor(max_iter=400, max_leaf_nodes=63, early_stopping=False, random_state=0)
        trees.fit(data.train_inputs, targets)
        predictions["boosting"] = (trees.predict(data.train_inputs), trees.predict(data.test_inputs))
    scores: dict[str, dict[str, float]] = {}
    for name, (train, test) in predictions.items():
        variance = np.mean((train - targets) ** 2)
        scores[name] = {}
        for part, mean, truth in (("train", train, targets), ("test", test, data.test_targets[:, 0])):
            squares = np.mean((mean - truth) ** 2)
            scores[name][f"{part}_rmse"] = float(data.target_scale * np.sqrt(squares))
            density = 0.5 * np.log(2 * np.pi * variance) + 0.5 * squares / variance
            scores[name][f"{part}_nlpd"] = float(np.log(data.target_scale) + density)
    return scores, notes


def load(config: Config, times: str | None = None) -> Dataset:
    """The flights of a configuration.

    Args:
        config: The configuration.
        times: Form of the times of day, in place of that of the configuration.

    Raises:
        UserError: If they cannot be read, or are too few for a mini batch.
    """
    times = config.times if times is None else times
    data = flights.load(config.source, config.paths, split=config.split, planes=config.planes, times=times)
    data = data if config.rows is None else draw_rows(data, config.rows)
    steps_in_epoch(config.schedule.training_rows(data), config.settings)
    return data


def experiment(
    config: Config, data: Dataset, records: Records, show: Callable[[Progress], None] = lambda _: None
) -> None:
    """Run the methods and seeds that have not been recorded yet.

    Args:
        config: The configuration.
        data: What `load` returned.
        records: Where results are recorded.
        show: Called with the progress.
    """
    # Baselines always have the inputs of the benchmark.
    _compare(lambda: data if config.times == "hhmm" else load(config, "hhmm"), records)
    run(config, data, records, show)


def _compare(load: Callable[[], Dataset], records: Records) -> None:
    """Train the baselines and write their scores, unless they have been recorded."""
    if not records.exists("baselines.json"):
        found, notes = baselines(load())
        records.write_json("baselines.json", {"values": found, "notes": notes})


def draw_rows(data: Dataset, rows: int) -> Dataset:
    """The data with this many of its training rows, in their order, drawn at random with a fixed seed."""
    count = len(data.train_inputs)
    drawn = np.sort(np.random.default_rng(0).choice(count, min(count, rows), replace=False))
    return data._replace(train_inputs=data.train_inputs[drawn], train_targets=data.train_targets[drawn])


def run(config: Config, data: Dataset, records: Records, show: Callable[[Progress], None] = lambda _: None) -> None:
    """Train the methods and seeds that have not been recorded yet, each from its checkpoint if there is one."""
    table = methods(config.settings)
    regressions = {
        name: Regression(table[name], config.settings, config.schedule, data, seed=0)
        for name in unfinished_methods(records, config.methods)
    }
    _compare(lambda: data, records)
    for name, regression in regressions.items():
        train_seeds(MethodFiles(records, name), regression, config.seeds, show)
    write_results(records)


def final(records: Records) -> dict[str, dict[str, np.ndarray]]:
    """Metrics ``[seeds]`` by method and name, at the epoch whose weights were kept; NaN if a seed stopped early."""
    found = {}
    for name in records.config["methods"]:
        files = MethodFiles(records, name)
        notes = files.model_notes()
        if not files.has_metrics:  # no seed finished an epoch
            nothing = np.full(len(notes["seeds"]), np.nan)
            found[name] = {f"{part}_{key}": nothing for part in ("train", "test") for key in METRICS}
            continue
        columns = files.metrics()
        values = {
            key: np.full(len(notes["seeds"]), np.nan)
            for key in columns
            if key.startswith(("train_", "valid_", "test_"))
        }
        for i, (seed, epoch) in enumerate(zip(notes["seeds"], notes["epochs"], strict=True)):
            if str(seed) not in notes["failed"]:
                (kept,) = np.flatnonzero((columns["seed"] == seed) & (columns["epoch"] == epoch))
                for key in values:
                    values[key][i] = columns[key][kept]
        found[name] = values
    return found


def write_results(records: Records) -> None:
    """Write ``results.json``: values of every method over the seeds, each at the epoch whose weights were kept."""
    config = records.config
    if "seeds" not in config:
        raise UserError(f"{records.folder} is a run of an earlier version, which had one seed: run it again")
    notes = {name: MethodFiles(records, name).model_notes() for name in config["methods"]}
    results = {
        name: {key: summary(values) for key, values in metrics.items()} | {"epochs": notes[name]["epochs"]}
        for name, metrics in final(records).items()
    }
    comparison = records.read_json("baselines.json")
    records.write_json(
        "results.json",
        {
            "experiment": records.experiment,
            "methods": results,
            "runs": dict.fromkeys(results, config["seeds"]),
            "failed_seeds": {name: found["failed"] for name, found in notes.items() if found["failed"]},
            "baselines": comparison["values"],
            "notes": comparison["notes"],
            "config": config,
            "versions": records.versions,
        },
    )
