"""The noise contrastive prior as a prior over functions, before there are labels (Equation 3).

BBB+NCP is trained on the toy inputs without the likelihood term. The belief over weights then fits the data prior
alone, and functions drawn from it are draws from the function prior. If the centre ``mu_y`` of the output prior is a
constant, the divergence is an expectation over drawn targets in closed form, ``KL(p || q) = -E_p[ln q(y~)] + const``.
If it is the target of the clean row, as in the paper, every seed draws targets of its own.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import PyTree

from ncprior.core.active import Schedule, Simulation, Snapshot
from ncprior.core.effects import OF_CHOICE, Learned, why_same
from ncprior.core.methods import Method, methods
from ncprior.core.networks import BayesianMean
from ncprior.core.optimizers import adam
from ncprior.core.settings import PRESETS, Settings
from ncprior.core.training import Learner, Trainer, combine, seed_keys
from ncprior.data import toy
from ncprior.data.dataset import Dataset
from ncprior.errors import UserError, check_limits
from ncprior.experiments.paper.learning_curves import Progress, failures
from ncprior.experiments.records import Records, summary

NAME = "prior"

STAGES = {
    "initial": "Before training",
    "ncp": "NCP alone, centred at a constant",
    "fantasised": "NCP alone, fantasised targets",
    "data": "NCP and data",
}
"""Stages whose beliefs functions are drawn from, and how they are written."""

SCHEDULE = Schedule(epochs=10_000, initial=60, select=1, select_every=10_000, evaluate_every=500)
"""60 rows, with or without their labels, for 60,000 steps. The prior alone is learned in a tenth of them."""
QUICK = Schedule(epochs=2_000, initial=60, select=1, select_every=2_000, evaluate_every=200)
"""A fifth of the epochs."""

UNUSED = OF_CHOICE | {"select", "select_every"}
"""Settings about the choice of labels, which have no effect here: all rows have labels from the start."""

_FUNCTIONS = 24
"""Functions that are recorded for each stage, drawn from the seeds in turn."""


@dataclass(frozen=True)
class Config:
    """The configuration of a run, which determines its results."""

    preset: str
    settings: Settings
    schedule: Schedule
    seeds: int = 8

    def __post_init__(self) -> None:
        check_limits(seeds=self.seeds)

    def why_same(self, other: Settings) -> str | None:
        """Why nothing else is learned with these settings; None if it is."""
        return why_same([(Learned("bbb+ncp", self.settings), Learned("bbb+ncp", other))])

    def trainer(self, stage: str) -> Trainer:
        """Method, optimiser and mini batches of this stage."""
        s = self.settings
        optimizer = adam(s.learning_rate, clip=s.clip, epsilon_hat=s.epsilon_hat)
        return Trainer(self.method(stage), optimizer, s.batch_size, s.remainder)

    def method(self, stage: str) -> Method:
        """BBB+NCP with the loss terms of this stage."""
        settings = self.settings
        if stage == "ncp" and settings.output_centre == "target":
            settings = dataclasses.replace(settings, output_centre=0.0)
        method = methods(settings)["bbb+ncp"]
        if stage == "data":
            return method
        return dataclasses.replace(method, objective={k: v for k, v in method.objective.items() if k != "nll"})


def configure(preset: str = "reference", seeds: int | None = None, *, quick: bool = False) -> Config:
    """The configuration of the experiment or, with ``quick``, of a shorter version."""
    seeds = seeds if seeds is not None else 4 if quick else 8
    return Config(preset, PRESETS[preset], QUICK if quick else SCHEDULE, seeds)


def unfinished(records: Records) -> list[str]:
    """The stages that have not been recorded."""
    return [stage for stage in STAGES if not records.exists(f"functions/{stage}.parquet")]


def check(config: Config) -> None:
    """Raise if the schedule does not suit the toy data. The command checks it before it makes the folder of a run.

    Raises:
        UserError: If there are too few rows for the labels, or too few labels for a mini batch.
    """
    rows = len(labelled_toy(config.schedule.initial).train_inputs)
    for stage in STAGES:
        config.schedule.check(config.trainer(stage), rows)


def experiment(config: Config, records: Records, show: Callable[[Progress], None] = lambda _: None) -> None:
    """Run the stages that have not been recorded yet.

    Args:
        config: The configuration.
        records: Where results are recorded.
        show: Called with the progress at every evaluation.
    """
    records.write_table("inputs.parquet", {"x": toy.load().train_inputs[:, 0]})
    for stage in unfinished(records):
        _run_stage(stage, config, records, show)
    write_results(records)


def _run_stage(stage: str, config: Config, records: Records, show: Callable[[Progress], None]) -> None:
    labels, trainer = config.schedule.initial, config.trainer(stage)
    data = labelled_toy(labels)
    if stage == "fantasised":
        data = _fantasised(data, config.seeds, config.settings)
    simulation = Simulation(trainer, data, config.schedule, list(range(config.seeds)))
    clock, learners = simulation.start()
    # Every seed sees all rows, or its own ones of the rows with drawn targets.
    first = labels * np.arange(config.seeds)[:, None] * (stage == "fantasised")
    visible = np.zeros((config.seeds, trainer.buffer(labels)), np.int32)
    visible[:, :labels] = first + np.arange(labels)
    learners = simulation.place(simulation.real(learners)._replace(visible=jnp.asarray(visible)))
    failed: dict[int, str] = {}
    for snapshot, evaluation in simulation.run(Snapshot(clock, learners)) if stage != "initial" else ():
        learners = snapshot.learners
        failed = failures(simulation, learners)
        error, density = (summary(evaluation.values[name])["median"] for name in ("test_rmse", "test_nlpd"))
        show(Progress(stage, config.seeds, evaluation.epoch, config.schedule.epochs, labels, error, density, failed))
    if len(failed) == config.seeds:
        raise UserError(f"every seed stopped: {failed[0]}; choose a smaller learning_rate")
    _record(stage, simulation, learners, failed, records)


def labelled_toy(labels: int) -> Dataset:
    """The toy data with this many of its training rows, drawn at random and the same for every seed.

    Raises:
        UserError: If there are fewer rows.
    """
    data = toy.load()
    if labels > len(data.train_inputs):
        raise UserError(f"initial must be at most {len(data.train_inputs)}, the number of training rows; got {labels}")
    numbers = np.sort(np.random.default_rng(0).choice(len(data.train_inputs), labels, replace=False))
    return data._replace(train_inputs=data.train_inputs[numbers], train_targets=data.train_targets[numbers])


def _fantasised(data: Dataset, seeds: int, settings: Settings) -> Dataset:
    """The rows repeated for each seed, with targets drawn from the output prior."""
    centre = 0.0 if isinstance(settings.output_centre, str) else float(settings.output_centre)
    shape = (seeds * len(data.train_inputs), 1)
    targets = centre + settings.output_std * np.random.default_rng(1).normal(size=shape)
    return data._replace(train_inputs=np.tile(data.train_inputs, (seeds, 1)), train_targets=targets.astype(np.float32))


def _record(
    stage: str,
    simulation: Simulation,
    learners: Learner,
    failed: dict[int, str],
    records: Records,
) -> None:
    """Write the beliefs of the seeds over the mean, and functions drawn from them in turn."""
    seeds = simulation.seeds
    x = np.linspace(*toy.DOMAIN, 301, dtype=np.float32)
    each = -(-_FUNCTIONS // len(seeds))

    def one(params: PyTree, key: Array) -> tuple[Array, Array, Array]:
        network = combine(params, simulation.static)
        features = jax.vmap(network.trunk)(jnp.asarray(x[:, None]))
        head = network.heads["mean"]
        assert isinstance(head, BayesianMean), "BBB+NCP has a belief over its last layer"
        belief = jax.vmap(head)(features)

        def function(key: Array) -> Array:
            return jnp.asarray(jax.vmap(head.sample(key=key))(features).mean)[:, 0]

        mean, std = (jnp.asarray(part)[:, 0] for part in (belief.mean, belief.std))
        return mean, std, jax.vmap(function)(jax.random.split(key, each))

    keys = jax.vmap(lambda key: jax.random.fold_in(key, 1))(seed_keys(seeds))
    mean, std, functions = jax.jit(jax.vmap(one))(simulation.real(learners).params, keys)
    records.write_table(
        f"beliefs/{stage}.parquet",
        {
            "seed": np.repeat(seeds, len(x)),
            "x": np.tile(x, len(seeds)),
            "mean": np.asarray(mean).ravel(),
            "uncertainty": np.asarray(std).ravel(),
        },
    )
    alive = np.setdiff1d(np.arange(len(seeds)), list(failed))
    in_turn = np.asarray(functions)[alive].transpose(1, 0, 2).reshape(-1, len(x))[:_FUNCTIONS]
    data = simulation.data
    records.write_table(f"targets/{stage}.parquet", {"x": data.train_inputs[:, 0], "y": data.train_targets[:, 0]})
    records.write_json(f"failed/{stage}.json", failed)
    # Written last: the stage counts as done once this file exists.
    records.write_table(
        f"functions/{stage}.parquet",
        {
            "number": np.repeat(np.arange(len(in_turn)), len(x)),
            "x": np.tile(x, len(in_turn)),
            "y": in_turn.ravel(),
        },
    )


def write_results(records: Records) -> None:
    """Write ``results.json``: mean and spread of the functions of every stage, in the bands and elsewhere."""
    stages = {}
    for stage in STAGES:
        x, mean, std = marginal(records, stage)
        inside = in_bands(records, x)
        stages[stage] = {
            place: {
                "mean": float(np.sqrt(np.mean(mean[rows] ** 2))),
                "std": float(np.sqrt(np.mean(std[rows] ** 2))),
            }
            for place, rows in (("bands", inside), ("elsewhere", ~inside))
        }
    failed = {stage: records.read_json(f"failed/{stage}.json") for stage in STAGES}
    records.write_json(
        "results.json",
        {
            "experiment": records.experiment,
            "stages": stages,
            "failed_seeds": {stage: seeds for stage, seeds in failed.items() if seeds},
            "config": records.config,
            "versions": records.versions,
        },
    )


def marginal(records: Records, stage: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, and mean and standard deviation of the functions there, over all seeds that finished."""
    columns = records.read_table(f"beliefs/{stage}.parquet")
    failed = {int(seed) for seed in records.read_json(f"failed/{stage}.json")}
    kept = ~np.isin(columns["seed"], list(failed)) if failed else np.ones(len(columns["x"]), bool)
    x = np.unique(columns["x"])
    mean, std = (columns[name][kept].reshape(-1, len(x)).astype(float) for name in ("mean", "uncertainty"))
    return x, mean.mean(0), np.sqrt((std**2).mean(0) + mean.var(0))


def in_bands(records: Records, x: np.ndarray) -> np.ndarray:
    """Whether inputs lie within the two bands that labels come from."""
    inputs = np.sort(records.read_table("inputs.parquet")["x"])
    split = int(np.argmax(np.diff(inputs))) + 1
    return np.logical_or.reduce([(x >= band.min()) & (x <= band.max()) for band in (inputs[:split], inputs[split:])])
