"""Active learning of several methods and seeds, with records: the runs behind Figures 1, 3 and 4."""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from ncprior.core.acquisition import SCORES
from ncprior.core.active import Schedule, Simulation, Snapshot
from ncprior.core.effects import Learned, why_same
from ncprior.core.methods import Method, acquire_by, methods, split_name
from ncprior.core.networks import Network
from ncprior.core.optimizers import adam
from ncprior.core.settings import ABLATIONS, Settings
from ncprior.core.training import Clock, Learner, Trainer, combine, explain_failure, seed_keys
from ncprior.data.dataset import Dataset
from ncprior.engines.engine import Engine
from ncprior.errors import UserError, check_limits
from ncprior.experiments.paper import seed_tasks
from ncprior.experiments.records import Records, Summary, summary
from ncprior.experiments.runs import Columns, MethodFiles, append_rows, unfinished_methods

DEFAULT_METHODS = ("bbb+ncp", "odc+ncp", "bbb", "det")
"""The four models of the paper, in the order of its legends."""
_METRICS = ("test_", "train_")
"""Prefixes of the columns that are metrics."""


@dataclass(frozen=True)
class Config:
    """The configuration of a run, which determines its results."""

    preset: str
    settings: Settings
    schedule: Schedule
    methods: tuple[str, ...] = DEFAULT_METHODS
    """Names of methods. ``NAME@SCORE`` draws labels by another score than the method's own, and ``bbb+ncp@ABLATION``
    is one of `ncprior.core.settings.ABLATIONS`."""
    seeds: int = 20
    acquisition: str | None = None
    """A score that replaces every method's own; None for no change."""
    data: object = None
    """Where the data comes from, for experiments with a choice."""

    def __post_init__(self) -> None:
        available = methods(self.settings)
        for name in self.methods:
            base, variant = split_name(name)
            if base not in available:
                raise UserError(f"unknown method {base!r}: choose from {', '.join(available)}")
            if variant in ABLATIONS and base != "bbb+ncp":
                raise UserError(f"{name!r}: {variant} is a variant of bbb+ncp alone")
            same = variant in ABLATIONS and ABLATIONS[variant].change(self.settings) == self.settings
            if same and "bbb+ncp" in self.methods:
                raise UserError(f"{name!r} does not differ from bbb+ncp with these settings; leave out one of the two")
            if variant and variant not in ABLATIONS and variant not in SCORES:
                raise UserError(f"unknown acquisition {variant!r}: choose from {', '.join(SCORES)}")
        if not self.methods:
            raise UserError(f"no method given: choose from {', '.join(available)}")
        check_limits(seeds=self.seeds)
        if self.acquisition is not None and self.acquisition not in SCORES:
            raise UserError(f"unknown acquisition {self.acquisition!r}: choose from {', '.join(SCORES)}")
        if self.acquisition is not None and all(split_name(name)[1] in SCORES for name in self.methods):
            names = ", ".join(self.methods)
            raise UserError(f"acquisition has no effect, as every method names a score ({names}); leave it out")

    def method(self, name: str) -> Method:
        """The method of this name, with the settings and the acquisition of the run.

        Raises:
            UserError: If the score needs an OOD classifier, which the method does not have.
        """
        base, settings, score = self._learned(name, self.settings)
        method = methods(settings)[base]
        if not score:
            return method
        if score.startswith("ood") and base != "odc+ncp":
            raise UserError(f"{score} needs the OOD classifier: use --methods odc+ncp")
        return dataclasses.replace(method, acquisition=acquire_by(score, settings))

    def why_same(self, other: Settings) -> str | None:
        """Why no method of the run learns anything else with these settings; None if one does."""
        return why_same((self._learned(name, self.settings), self._learned(name, other)) for name in self.methods)

    def _learned(self, name: str, settings: Settings) -> Learned:
        base, variant = split_name(name)
        if variant in ABLATIONS:
            return Learned(base, ABLATIONS[variant].change(settings), self.acquisition)
        return Learned(base, settings, variant or self.acquisition)

    def trainer(self, name: str) -> Trainer:
        """Method, optimiser and mini batches for the method of this name."""
        s = self.settings
        optimizer = adam(s.learning_rate, clip=s.clip, epsilon_hat=s.epsilon_hat)
        return Trainer(self.method(name), optimizer, s.batch_size, s.remainder)


class Progress(NamedTuple):
    """The progress of a method: epochs and labels so far, median test metrics, and why seeds have failed."""

    method: str
    seeds: int
    epoch: int
    epochs: int
    labels: int
    test_rmse: float
    test_nlpd: float
    failed: dict[int, str]


class Sweep(NamedTuple):
    """Input priors to compare: every seed of a method with NCP runs with each of them, all in one batch.

    Attributes:
        input_priors: One module, whose arrays have a leading axis of priors.
        tags: Columns that are recorded about each prior, such as its variance.
    """

    input_priors: PyTree
    tags: dict[str, np.ndarray]


def check(config: Config, data: Dataset) -> None:
    """Raise if the configuration does not suit the data. Commands check it before they make the folder of a run.

    Raises:
        UserError: If a method cannot be made, or the schedule does not suit the training rows.
    """
    for name in config.methods:
        config.schedule.check(config.trainer(name), len(data.train_inputs))


def run(
    config: Config,
    data: Dataset,
    records: Records,
    *,
    evaluate_unseen: bool = False,
    sweep: Sweep | None = None,
    show: Callable[[Progress], None] = lambda _: None,
    finish: Callable[[Simulation, Learner, str], None] = lambda *_: None,
    engine: Engine | None = None,
) -> None:
    """Run the methods that have not been recorded yet, each from its checkpoint if it has one.

    Args:
        config: The configuration.
        data: Training and test rows.
        records: Where results are recorded.
        evaluate_unseen: Whether training rows without a label count as test rows, as on the toy data.
        sweep: Input priors to compare, in place of the one in the settings.
        show: Called with the progress at every evaluation.
        finish: Called with the simulation, the trained learners and the name of every method, to record more.
        engine: Runs tasks of a few seeds each, for methods that have no checkpoint; None for this process.
    """
    runs: dict[str, _Runs] = {}
    for name in config.methods:
        trainer, seeds, priors, tags = config.trainer(name), np.arange(config.seeds), None, {}
        if sweep is not None and trainer.method.input_prior is not None:
            count = len(next(iter(sweep.tags.values())))
            priors = jax.tree.map(lambda leaf: np.repeat(leaf, config.seeds, axis=0), sweep.input_priors)
            tags = {key: np.repeat(value, config.seeds) for key, value in sweep.tags.items()}
            seeds = np.tile(seeds, count)
        simulation = Simulation(
            trainer,
            data,
            config.schedule,
            seeds.tolist(),
            evaluate_unseen=evaluate_unseen,
            input_priors=priors,
        )
        runs[name] = _Runs(simulation, {"seed": np.asarray(simulation.seeds), **tags})
    for name in unfinished_methods(records, config.methods):
        if engine is not None and not MethodFiles(records, name).has_checkpoint:
            _run_in_tasks(engine, MethodFiles(records, name), runs[name], partial(config.trainer, name), show)
        _run_method(MethodFiles(records, name), runs[name], show=show, finish=finish)
    write_results(records)


def load_networks(records: Records, name: str) -> tuple[Method, list[Network]]:
    """The method of this name in a finished run, and its trained networks, one for each seed.

    ``method(network, inputs)`` predicts rows ``[rows, inputs]``, which must be standardised as in training.
    """
    plain = dict(records.config)
    settings = Settings(**{**plain["settings"], "hidden": tuple(plain["settings"]["hidden"])})
    parts = {"settings": settings, "schedule": Schedule(**plain["schedule"]), "methods": tuple(plain["methods"])}
    config = Config(**{**plain, **parts})
    trainer = config.trainer(name)
    files = MethodFiles(records, name)
    notes = files.model_notes()
    inputs, outputs = notes["shape"]
    keys = seed_keys(notes["seeds"])
    like = jax.vmap(lambda key: eqx.filter(trainer.method.init(inputs, outputs, key=key), eqx.is_inexact_array))(keys)
    params, static = files.load_model(like), trainer.static(inputs, outputs)
    networks = [combine(jax.tree.map(lambda leaf, i=i: leaf[i], params), static) for i in range(len(notes["seeds"]))]
    return trainer.method, networks


def write_results(records: Records) -> None:
    """Write ``results.json``: final values over the seeds."""
    config = records.config
    results: dict[str, dict[str, Summary]] = {}
    failed = {}
    runs = {}
    for name in config["methods"]:
        values = final_values(records, name)
        results[name] = {key: summary(values[key]) for key in values if key.startswith(_METRICS)}
        runs[name], failed[name] = len(values["seed"]), failed_runs(records, name)
    records.write_json(
        "results.json",
        {
            "experiment": records.experiment,
            "methods": results,
            "runs": runs,
            "failed_seeds": {name: seeds for name, seeds in failed.items() if seeds},
            "config": config,
            "versions": records.versions,
        },
    )


def final_values(records: Records, name: str, *, last: bool = True) -> dict[str, np.ndarray]:
    """The columns of a method's last evaluation, one element for each run; with ``last=False``, of the first one.

    Metrics of runs that have stopped by then are NaN.
    """
    columns = MethodFiles(records, name).metrics()
    epoch = columns["epoch"].max() if last else columns["epoch"].min()
    values = {key: np.array(value[columns["epoch"] == epoch]) for key, value in columns.items()}
    if last:
        for key in values:
            if key.startswith(_METRICS):
                values[key][list(failed_runs(records, name))] = np.nan
    return values


def failed_runs(records: Records, name: str) -> dict[int, str]:
    """Why runs of a method have stopped early, by their position in its list (without a sweep, the seed)."""
    files = MethodFiles(records, name)
    notes = files.model_notes() if files.finished else {}
    return {int(place): reason for place, reason in notes.get("failed", {}).items()}


class _Runs(NamedTuple):
    """All runs of a method, and columns about them: seeds, and the tags of a sweep."""

    simulation: Simulation
    about: dict[str, np.ndarray]


class _Progress(NamedTuple):
    """The state of a method that has not finished."""

    snapshot: Snapshot | None  # None before the first round
    metrics: Columns
    seconds: float


def _run_method(
    files: MethodFiles,
    runs: _Runs,
    *,
    show: Callable[[Progress], None],
    finish: Callable[[Simulation, Learner, str], None],
) -> None:
    """Train a method to the end, from its checkpoint if there is one."""
    simulation, schedule = runs.simulation, runs.simulation.schedule
    begin, metrics, seconds = _resume(files, simulation)
    started, snapshot = time.monotonic() - seconds, begin
    for snapshot, evaluation in simulation.run(begin):
        new = seed_tasks.evaluation_columns(runs.about, evaluation.epoch, evaluation.labels, evaluation.values)
        metrics = append_rows(metrics, new)
        medians = {key: summary(evaluation.values[key])["median"] for key in ("test_rmse", "test_nlpd")}
        show(
            Progress(
                files.name,
                len(simulation.seeds),
                evaluation.epoch,
                schedule.epochs,
                evaluation.labels,
                **medians,
                failed=failures(simulation, snapshot.learners),
            )
        )
        if schedule.ends_round(evaluation.epoch):
            files.save_checkpoint(
                simulation.real(snapshot.learners),
                metrics,
                clock=[int(snapshot.clock.epoch), int(snapshot.clock.labels)],
                seconds=time.monotonic() - started,
            )
    assert snapshot is not None, "a run has at least one stretch, or a checkpoint"
    _write_labels(files, simulation, snapshot)
    finish(simulation, snapshot.learners, files.name)
    files.finish(
        simulation.real(snapshot.learners).params,
        seeds=simulation.seeds,
        shape=[simulation.data.train_inputs.shape[1], simulation.data.train_targets.shape[1]],
        failed=failures(simulation, snapshot.learners),
        seconds=time.monotonic() - started,
    )


def _run_in_tasks(
    engine: Engine,
    files: MethodFiles,
    runs: _Runs,
    trainer: Callable[[], Trainer],
    show: Callable[[Progress], None],
) -> None:
    """Train a method in tasks, and leave the checkpoint that one process has at its end."""
    simulation, done = runs.simulation, {}
    epochs, total = simulation.schedule.epochs, len(simulation.seeds)
    for number, part in seed_tasks.in_tasks(engine, simulation, trainer, runs.about):
        done[number] = part
        share = min(total, len(done) * seed_tasks.SEEDS) / total
        last = part.metrics["epoch"] == part.metrics["epoch"].max()
        medians = {key: summary(part.metrics[key][last])["median"] for key in ("test_rmse", "test_nlpd")}
        show(Progress(files.name, total, int(share * epochs), epochs, part.clock[1], **medians, failed={}))
    parts = [done[number] for number in sorted(done)]
    learners, metrics = seed_tasks.together(parts, simulation.real(simulation.start().learners))
    seconds = sum(part.seconds for part in parts)
    files.save_checkpoint(learners, metrics, clock=list(parts[0].clock), seconds=seconds)


def _resume(files: MethodFiles, simulation: Simulation) -> _Progress:
    """The state in the checkpoint, or the one before the first round."""
    checkpoint = files.load_checkpoint(lambda _: simulation.real(simulation.start().learners))
    if checkpoint is None:
        return _Progress(None, {}, 0.0)
    clock = Clock(*checkpoint.notes["clock"])
    snapshot = Snapshot(clock, simulation.place(checkpoint.tree))
    return _Progress(snapshot, checkpoint.metrics, checkpoint.notes["seconds"])


def _write_labels(files: MethodFiles, simulation: Simulation, snapshot: Snapshot) -> None:
    """Write the labels of every seed in the order in which they were drawn."""
    seeds = simulation.seeds
    visible = np.asarray(snapshot.learners.visible)[: len(seeds), : int(snapshot.clock.labels)]
    files.records.write_table(
        f"labels/{files.name}.parquet",
        {
            "seed": np.repeat(seeds, visible.shape[1]),
            "order": np.tile(np.arange(visible.shape[1]), len(seeds)),
            "row": visible.ravel(),
        },
    )


def failures(simulation: Simulation, learners: Learner) -> dict[int, str]:
    """Why runs have stopped, by their position in the list of seeds (without a sweep, the seed itself)."""
    epochs, nonfinite_terms = np.asarray(learners.failed), np.asarray(learners.nonfinite_terms)
    return {
        i: explain_failure(simulation.trainer.method, int(epochs[i]), int(nonfinite_terms[i]))
        for i in range(len(simulation.seeds))
        if epochs[i] >= 0
    }
