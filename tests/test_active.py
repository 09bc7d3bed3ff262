import dataclasses
from itertools import islice

import jax
import numpy as np
import pytest

from ncprior.core.acquisition import Acquisition, random
from ncprior.core.active import Schedule, Simulation
from ncprior.core.blocks import predict_in_blocks
from ncprior.core.methods import methods
from ncprior.core.optimizers import adam
from ncprior.core.settings import PAPER, REFERENCE
from ncprior.core.training import Trainer
from ncprior.data import toy
from ncprior.data.dataset import Dataset
from ncprior.errors import UserError

SMALL = dataclasses.replace(REFERENCE, hidden=(16,))
SHORT = Schedule(epochs=12, initial=10, select=2, select_every=4, evaluate_every=2)


def simulate(settings=SMALL, name="bbb+ncp", schedule=SHORT, seeds=(0, 1, 2), data=None, **changes):
    method = dataclasses.replace(methods(settings)[name], **changes)
    trainer = Trainer(method, adam(1e-3, clip=settings.clip), settings.batch_size, settings.remainder)
    return Simulation(trainer, data or toy.load(), schedule, seeds, evaluate_unseen=True)


def test_schedule_counts_labels():
    assert Schedule().labels == 59
    assert SHORT.labels == 14
    assert [SHORT.ends_round(epoch) for epoch in (2, 4, 6, 12)] == [False, True, False, True]


@pytest.mark.parametrize(
    "change", [{"epochs": 0}, {"select": 0}, {"evaluate_every": 3}, {"epochs": 1001, "evaluate_every": 500}]
)
def test_schedules_that_cannot_be_are_refused(change):
    with pytest.raises(UserError):
        dataclasses.replace(SHORT, **change)


@pytest.mark.usefixtures("few_metrics")
@pytest.mark.parametrize("name", list(methods()))
@pytest.mark.parametrize("settings", [SMALL, dataclasses.replace(PAPER, hidden=(16,))], ids=["reference", "paper"])
def test_a_run_of_every_method(name, settings):
    """The contract of a run: growing labels that are valid and, where drawn without replacement, different."""
    simulation = simulate(settings, name)
    history = list(simulation.run())
    counts = [(evaluation.epoch, evaluation.labels) for _, evaluation in history]
    for _, evaluation in history:
        assert all(value.shape == (3,) for value in evaluation.values.values())
        assert np.isfinite(evaluation.values["test_rmse"]).all()
        assert np.isfinite(evaluation.values["test_nlpd"]).all()
    assert counts == [(2, 10), (4, 10), (6, 12), (8, 12), (10, 14), (12, 14)]
    visible = np.asarray(history[-1][0].learners.visible)[:3, :14]
    assert visible.min() >= 0
    assert visible.max() < 400
    if settings.draw == "without_replacement":
        assert all(len(set(row)) == 14 for row in visible)
    else:
        # New labels are never among those visible before them, though the two drawn together may be the same.
        for row in visible:
            assert not set(row[10:12]) & set(row[:10])
            assert not set(row[12:14]) & set(row[:12])
    assert len({tuple(row) for row in visible}) == 3


@pytest.mark.usefixtures("few_metrics")
def test_growing_labels_compile_once(compiled):
    run = simulate(schedule=Schedule(epochs=10, initial=10, select=2, select_every=2, evaluate_every=1)).run()
    for _ in islice(run, 3):
        pass
    assert [name for name in compiled if "stretch" in name] == ["jit(_run_stretch)"]
    # Nothing at all compiles after the first round.
    del compiled[:]
    for _ in run:
        pass
    assert compiled == []


@pytest.fixture(scope="module")
def simulation():
    """One whose program is compiled once for several tests."""
    return simulate()


def test_a_seed_runs_the_same_alone_and_among_others(simulation):
    """Bit for bit, labels and metrics included."""
    (*_, (a, x)), (*_, (b, y)) = simulate(seeds=[2]).run(), simulation.run()
    np.testing.assert_array_equal(np.asarray(a.learners.visible)[0], np.asarray(b.learners.visible)[2])
    for name, value in x.values.items():
        np.testing.assert_array_equal(value[0], y.values[name][2], err_msg=name)


def test_metrics_are_those_of_the_rows_that_are_not_visible(simulation):
    _, (snapshot, evaluation) = islice(simulation.run(), 2)
    data = toy.load()
    x = np.concatenate([data.train_inputs, data.test_inputs])
    y = np.concatenate([data.train_targets, data.test_targets])
    prediction = simulation.predict(snapshot.learners, x)
    for seed in range(3):
        seen = np.zeros(1000, bool)
        seen[np.asarray(snapshot.learners.visible)[seed, :10]] = True
        error = (np.asarray(prediction.mean)[seed] - y)[~seen]
        np.testing.assert_allclose(evaluation.values["test_rmse"][seed], np.sqrt(np.mean(error**2)), rtol=1e-5)
        density = np.asarray(jax.vmap(lambda p: p.log_prob(y))(prediction))[seed][~seen]
        np.testing.assert_allclose(evaluation.values["test_nlpd"][seed], -density.mean(), rtol=1e-4)
        # Of visible rows drawn with replacement, those drawn twice count twice.
        rows = np.asarray(snapshot.learners.visible)[seed, :10]
        error = (np.asarray(prediction.mean)[seed] - y)[rows]
        np.testing.assert_allclose(evaluation.values["train_rmse"][seed], np.sqrt(np.mean(error**2)), rtol=1e-5)


def test_metrics_are_in_units_of_the_target(simulation):
    data = toy.load()
    scaled = data._replace(target_scale=10.0, target_shift=3.0)
    (*_, (_, a)), (*_, (_, b)) = simulation.run(), simulate(data=scaled).run()
    np.testing.assert_allclose(b.values["test_rmse"], 10 * a.values["test_rmse"], rtol=1e-4)
    np.testing.assert_allclose(b.values["test_nlpd"], a.values["test_nlpd"] + np.log(10), rtol=1e-4)
    np.testing.assert_allclose(b.values["test_coverage"], a.values["test_coverage"], atol=2e-3)


@pytest.mark.usefixtures("few_metrics")
def test_greedy_labels_are_the_highest_scores():
    simulation = simulate(
        schedule=Schedule(epochs=4, initial=10, select=3, select_every=2, evaluate_every=2),
        acquisition=Acquisition(draw="greedy"),
    )
    # Labels 10 to 12 were chosen after epoch 2; with none trained on since, they score higher than all other rows.
    snapshot, _ = next(simulation.run())
    prediction = simulation.predict(snapshot.learners, toy.load().train_inputs)
    for seed in range(3):
        one = jax.tree.map(lambda leaf, seed=seed: leaf[seed], prediction)
        score = np.array(Acquisition().score(one))
        score[np.asarray(snapshot.learners.visible)[seed, :10]] = -np.inf
        chosen = np.asarray(snapshot.learners.visible)[seed, 10:13]
        np.testing.assert_allclose(np.sort(score[chosen]), np.sort(score)[-3:], rtol=1e-4)


@pytest.mark.usefixtures("few_metrics")
def test_random_acquisition_ignores_the_model():
    draws = [
        np.asarray(snapshot.learners.visible)
        for name in ("det", "bbb+ncp")
        for *_, (snapshot, _) in [
            simulate(name=name, acquisition=Acquisition(random, draw="without_replacement")).run()
        ]
    ]
    np.testing.assert_array_equal(*draws)


def test_too_many_labels_or_too_few_for_a_batch_are_refused():
    with pytest.raises(UserError, match="only 400 rows"):
        simulate(schedule=Schedule(epochs=1000, initial=10, select=1, select_every=1, evaluate_every=1))
    with pytest.raises(UserError, match="mini batch"):
        simulate(schedule=dataclasses.replace(SHORT, initial=5))


def test_blocks_equal_the_whole():
    x = np.random.default_rng(0).normal(size=(1301, 3)).astype(np.float32)
    network = methods(SMALL)["bbb+ncp"].init(3, 2, key=jax.random.key(0))
    predict = jax.jit(lambda rows: methods(SMALL)["bbb+ncp"](network, rows))
    blocks, whole = predict_in_blocks(predict, x, 100), predict(x)
    for a, b in zip(jax.tree.leaves(blocks), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("few_metrics")
def test_two_outputs():
    data = toy.load()
    double = Dataset(*(np.concatenate([part, -part], axis=1) if i % 2 else part for i, part in enumerate(data[:4])))
    *_, (_, evaluation) = simulate(data=double).run()
    assert np.isfinite(evaluation.values["test_nlpd"]).all()


@pytest.mark.usefixtures("few_metrics")
def test_ncp_is_more_uncertain_off_the_data_than_bbb():
    """A short statistical check of the paper's point, on the real network's little sister and three seeds."""
    settings = dataclasses.replace(REFERENCE, hidden=(32, 32), learning_rate=1e-2)
    schedule = Schedule(epochs=450, initial=20, select=10, select_every=150, evaluate_every=150)
    off = np.linspace(-1.2, 1.2, 49, dtype=np.float32)
    off = off[(off < -0.65) | (off > 0.65) | (np.abs(off) < 0.15)][:, None]
    uncertainty = {}
    for name in ("bbb", "bbb+ncp"):
        trainer = Trainer(methods(settings)[name], adam(settings.learning_rate, clip=100.0), 10, "dropped")
        simulation = Simulation(trainer, toy.load(), schedule, [0, 1, 2], evaluate_unseen=True)
        *_, (snapshot, _) = simulation.run()
        uncertainty[name] = np.asarray(simulation.predict(snapshot.learners, off).uncertainty).mean((1, 2))
    assert np.all(uncertainty["bbb+ncp"] > 2 * uncertainty["bbb"])
