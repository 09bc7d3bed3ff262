import builtins
import dataclasses
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh

from ncprior.data.dataset import Dataset, standardised
from ncprior.errors import UserError
from ncprior.experiments import regression
from ncprior.experiments.records import Records
from ncprior.experiments.regression import (
    Bins,
    Progress,
    Regression,
    Schedule,
    baselines,
    configure,
    draw_rows,
    run,
    write_results,
)
from ncprior.methods import methods
from ncprior.networks import MLP
from ncprior.objectives import Batch
from ncprior.optimizers import adam
from ncprior.report import regression as pictures

ROWS, TESTS = 600, 150
TINY = {"hidden": (32, 16), "learning_rate": 3e-3, "batch_size": 64}
SCHEDULE = Schedule(epochs=3)


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)
    inputs = random.normal(size=(ROWS + TESTS, 3))
    targets = 40 * np.sin(2 * inputs[:, :1]) + 10 * inputs[:, 1:2] + 5 * random.normal(size=(ROWS + TESTS, 1)) + 7
    return standardised(inputs[:ROWS], targets[:ROWS], inputs[ROWS:], targets[ROWS:], target_unit="minutes")


@pytest.fixture(autouse=True)
def split_small_arrays(monkeypatch):
    """Moments of arrays as small as those here are split over the devices, too."""
    monkeypatch.setattr(regression, "_SCATTERED", 256)


@pytest.fixture(autouse=True)
def no_trees(monkeypatch):
    """Boosted trees are slow to import and have a test of their own."""
    found = builtins.__import__

    def without_sklearn(name, *rest):
        if name.startswith("sklearn"):
            raise ImportError(name)
        return found(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_sklearn)


def tiny(schedule=SCHEDULE, names=("bbb", "bbb+ncp"), preset="reference", **changes):
    config = configure(preset=preset, methods=tuple(names))
    settings = dataclasses.replace(config.settings, **(TINY | changes))
    return dataclasses.replace(config, settings=settings, schedule=schedule)


def trained(data, name="bbb+ncp", config=None, epochs=1):
    config = config or tiny()
    one = Regression(methods(config.settings)[name], config.settings, config.schedule, data, config.seed)
    state = one.start()
    for epoch in range(1, epochs + 1):
        for now, _ in one.train(state, epoch):
            state = now
    return one, state


def create(folder, config, *, resume=False):
    return Records.create(folder, regression.NAME, dataclasses.asdict(config), resume=resume)


def test_configuration_follows_the_preset_and_the_recipe():
    reference, paper = configure(), configure(preset="paper", recipe="tuned", epochs=4, batch_size=128, seed=3)
    assert reference.settings.hidden == paper.settings.hidden == (1000, 1000, 1000)
    assert (reference.settings.input_noise_std, reference.settings.gamma) == (0.1, 0.1)
    assert (reference.settings.weight_kl, reference.settings.noise_prior_std) == (1.0, None)
    assert reference.settings.learning_rate == 1e-4
    assert reference.schedule.decay == "none"
    assert paper.settings.input_noise_std == pytest.approx(0.1**0.5)
    assert (paper.settings.gamma, paper.settings.batch_size, paper.seed) == (1.0, 128, 3)
    assert paper.schedule == dataclasses.replace(regression.RECIPES["tuned"].schedule, epochs=4)
    assert configure(quick=True).rows is not None


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: configure(recipe="secret"), "unknown recipe 'secret'"),
        (lambda: configure(methods=("gp",)), "unknown method 'gp'"),
        (lambda: configure(methods=()), "no method given"),
        (lambda: configure(epochs=0), "epochs must be at least 1"),
        (lambda: configure(seed=-1), "seed must be at least 0"),
        (lambda: Schedule(validation=1.0), "validation must be at least 0 and below 1"),
        (lambda: Schedule(bins=-1), "bins must not be negative"),
    ],
)
def test_mistakes_are_explained(mistake, message):
    with pytest.raises(UserError, match=message):
        mistake()


def test_a_mini_batch_must_fit(data):
    with pytest.raises(UserError, match="do not fill a mini batch of 1024"):
        trained(data, config=tiny(batch_size=1024))


def test_bins_are_places_among_quantiles():
    edges = Bins.find(np.array([[0.0, 5.0], [1.0, 5.0], [3.0, 5.0]]), bins=2)
    assert edges == ((0.0, 1.0, 3.0), (5.0, 6.0))
    seen = Bins(edges, lambda x: x)
    # Between 1 and 3 the second number grows; outside of the data the first and the last go on without end.
    np.testing.assert_allclose(seen(jnp.array([2.0, 5.0])), [1.0, 0.5, 0.0])
    np.testing.assert_allclose(seen(jnp.array([-1.0, 5.5])), [-1.0, 0.0, 0.5])
    np.testing.assert_allclose(seen(jnp.array([5.0, 4.0])), [1.0, 2.0, -1.0])


def test_bins_take_examples_as_columns():
    random = np.random.default_rng(0)
    x = random.normal(size=(50, 3)).astype(np.float32)
    edges = Bins.find(x, 4)
    trunk = Bins(edges, MLP.init(12, (8,), key=jax.random.key(0)))
    np.testing.assert_allclose(trunk(x.T).T, jax.vmap(trunk)(x), rtol=1e-5, atol=1e-6)


def test_edges_are_no_weights(data):
    _, state = trained(data, config=tiny(Schedule(epochs=1, bins=5)), epochs=0)
    sizes = sorted(leaf.size for leaf in jax.tree.leaves(state.params))
    assert sizes == sorted([15 * 32, 32, 32 * 16, 16, 16, 1, 16, 16, 1])


@pytest.mark.parametrize("name", ["det", "bbb+ncp", "odc+ncp"])
def test_every_method_learns(data, name):
    config = tiny(Schedule(epochs=30), learning_rate=1e-2)
    one, state = trained(data, name, config, epochs=1)
    before = one.evaluate(state)
    for epoch in range(2, 31):
        for now, _ in one.train(state, epoch):
            state = now
    after = one.evaluate(state)
    assert after["loss_nll"] < before["loss_nll"] - 0.1
    assert after["test_nlpd"] < before["test_nlpd"]
    assert after["test_rmse"] < 0.8 * float(np.std(data.test_targets) * data.target_scale)


@pytest.mark.parametrize("preset", ["reference", "paper"])
def test_devices_change_results_by_rounding_only(data, preset, monkeypatch):
    """The preset paper ends an epoch with a mini batch of 24 rows, and none of them is the second device's."""
    config = tiny(preset=preset, clip=0.5)
    two, split = trained(data, config=config)
    assert two.mesh.size == 2
    assert any(not leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(split.optimizer))
    monkeypatch.setattr(regression, "row_mesh", lambda _: Mesh(np.array(jax.devices()[:1]), ("rows",)))
    one, whole = trained(data, config=config)
    assert one.mesh.size == 1
    for a, b in zip(jax.tree.leaves(split), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)


def test_a_step_is_one_of_adam_on_the_loss_of_the_method(data):
    """Of one mini batch of all rows, so that their order does not matter."""
    config = tiny(Schedule(epochs=1), batch_size=ROWS)
    one, state = trained(data, "det", config)
    method = methods(config.settings)["det"]
    network = one._init()
    params, static = eqx.partition(network, eqx.is_inexact_array)
    batch = Batch(jnp.asarray(data.train_inputs), jnp.asarray(data.train_targets), jnp.ones(ROWS), jnp.asarray(ROWS))

    def loss(params):
        return method.loss(eqx.combine(params, static), batch, key=jax.random.key(0))[0]

    rule = adam(config.settings.learning_rate, clip=config.settings.clip, epsilon_hat=True)
    updates, _ = rule.update(jax.grad(loss)(params), rule.init(params))
    wanted = optax.apply_updates(params, updates)
    for a, b in zip(jax.tree.leaves(state.params), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5)


def test_the_learning_rate_falls_along_a_cosine(data):
    one, _ = trained(data, config=tiny(Schedule(epochs=4, decay="cosine")), epochs=0)
    steps = 4 * one.steps
    rates = [float(one.learning_rate(step)) for step in (0, steps // 2, steps)]
    np.testing.assert_allclose(rates, [3e-3, 1.5e-3, 0], atol=1e-9)


def test_each_program_is_compiled_once(data, compiled):
    one, state = trained(data, epochs=3)
    one.evaluate(state)
    one.evaluate(state)
    for program in ("_train_steps", "_shuffle_rows", "_measure_parts"):
        assert sum(program in name for name in compiled) == 1, (program, compiled)


def test_metrics_are_in_units_of_the_target(data):
    config = tiny(Schedule(epochs=1, validation=0.25))
    one, state = trained(data, "det", config)
    values = one.evaluate(state)
    network = regression.combine(jax.device_get(state.params), one.static)
    mean = data.target_shift + data.target_scale * np.asarray(one.method(network, data.train_inputs).mean)
    truth = data.target_shift + data.target_scale * data.train_targets
    assert one.rows == 450
    assert values["train_rmse"] == pytest.approx(np.sqrt(np.mean((mean - truth)[:450] ** 2)), rel=1e-4)
    assert values["valid_rmse"] == pytest.approx(np.sqrt(np.mean((mean - truth)[450:] ** 2)), rel=1e-4)


def test_drawn_rows_keep_their_order(data):
    few = draw_rows(data, 50, seed=0)
    places = [np.flatnonzero((data.train_inputs == row).all(1))[0] for row in few.train_inputs]
    assert len(few.train_inputs) == len(few.train_targets) == 50
    assert places == sorted(places)
    assert draw_rows(data, 10**6, seed=0).train_inputs.shape == data.train_inputs.shape


def test_baselines_against_numpy(data):
    found, notes = baselines(data)
    assert list(found) == ["mean", "linear"]
    assert "scikit-learn is not installed" in notes[0]
    truth = (data.target_shift + data.target_scale * data.test_targets[:, 0]).astype(np.float64)
    train = (data.target_shift + data.target_scale * data.train_targets[:, 0]).astype(np.float64)
    error, std = truth - train.mean(), train.std()
    assert found["mean"]["test_rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-5)
    density = np.exp(-0.5 * (error / std) ** 2) / (std * np.sqrt(2 * np.pi))
    assert found["mean"]["test_nlpd"] == pytest.approx(-np.mean(np.log(density)), rel=1e-5)
    fit = np.poly1d([1.0, 0.0])  # a line through one input that is the target itself has no error
    exact = data._replace(train_inputs=data.train_targets, test_inputs=fit(data.test_targets))
    assert baselines(exact)[0]["linear"]["test_rmse"] < 1e-4


def test_boosted_trees_are_a_baseline_where_there_is_scikit_learn(data, monkeypatch):
    monkeypatch.undo()
    pytest.importorskip("sklearn")
    found, notes = baselines(data)
    assert notes == []
    assert found["boosting"]["test_rmse"] < 0.8 * found["linear"]["test_rmse"]


def test_a_run_leaves_complete_records(tmp_path, data):
    config = tiny(Schedule(epochs=3, validation=0.25, decay="cosine", bins=4))
    records, heard = create(tmp_path / "run", config), []
    assert run(config, data, records, heard.append) == {}
    results = json.loads((records.folder / "results.json").read_text())
    assert results["experiment"] == "regression"
    assert list(results["methods"]) == ["bbb", "bbb+ncp"]
    for name, values in results["methods"].items():
        columns = records.read_table(f"metrics/{name}.parquet")
        assert columns["epoch"].tolist() == [1, 2, 3]
        best = int(np.argmin(columns["valid_nlpd"]))
        assert values["epoch"] == best + 1
        assert values["test_rmse"]["mean"] == columns["test_rmse"][best]
        assert {"test_nlpd", "train_rmse", "train_nlpd"} <= values.keys()
        assert records.read_notes(f"models/{name}.safetensors")["epoch"] == best + 1
        assert not records.exists(f"checkpoints/{name}.safetensors")
    assert set(results["baselines"]) == {"mean", "linear"}
    assert isinstance(heard[0], Progress)
    assert heard[0].epoch < 1
    assert heard[-1]._replace(rows_per_second=0, test_rmse=0, test_nlpd=0) == ("bbb+ncp", 3, 3, 0, 0, 0, 0, None)
    assert all(progress.rows_per_second > 0 for progress in heard)


def test_an_interrupted_run_goes_on_to_the_same_numbers(tmp_path, data):
    config = tiny(Schedule(epochs=3, validation=0.25), names=("bbb+ncp",))
    whole, parts = create(tmp_path / "whole", config), create(tmp_path / "parts", config)
    run(config, data, whole)

    def interrupt(progress):
        if progress.epoch > 1.4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config, data, parts, interrupt)
    assert parts.read_notes("checkpoints/bbb+ncp.safetensors")["epoch"] == 1
    run(config, data, create(tmp_path / "parts", config, resume=True))
    for name, values in whole.read_table("metrics/bbb+ncp.parquet").items():
        np.testing.assert_array_equal(parts.read_table("metrics/bbb+ncp.parquet")[name], values)
    _, state = trained(data, config=config, epochs=0)
    for a, b in zip(
        *(jax.tree.leaves(r.read_tree("models/bbb+ncp.safetensors", state.params)) for r in (whole, parts)),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
    assert whole.read_json("results.json")["methods"] == parts.read_json("results.json")["methods"]


def test_a_method_whose_loss_is_not_finite_stops_and_the_others_go_on(tmp_path, data):
    config = tiny(Schedule(epochs=2), names=("bbb", "det"), weight_kl=1.0)
    config = dataclasses.replace(config, settings=dataclasses.replace(config.settings, weight_prior_std=1e-30))
    records, heard = create(tmp_path / "run", config), []
    stopped = run(config, data, records, heard.append)
    assert stopped == {"bbb": "the loss was not finite in epoch 1 (term weight_kl)"}
    assert [progress.failed for progress in heard if progress.failed] == [stopped["bbb"]]
    results = records.read_json("results.json")
    assert results["methods"]["bbb"]["test_rmse"]["mean"] is None
    assert results["methods"]["det"]["test_rmse"]["mean"] > 0
    rows = {row.title: row for row in pictures.collect_table(records)}
    assert rows["BBB"].note == f"stopped: {stopped['bbb']}"
    assert rows["BBB"].rmse is None
    curves = pictures.collect_curves(records)
    assert list(curves["test_rmse"]) == ["det"]
    pictures.draw_curves(curves, pictures.collect_baselines(records)).savefig(tmp_path / "curves.png")


def test_table_and_curves_are_collected_from_records(tmp_path, data):
    config = tiny(Schedule(epochs=2), names=("det",))
    records = create(tmp_path / "run", config)
    run(config, data, records)
    write_results(records)
    rows = pictures.collect_table(records)
    assert [row.kind for row in rows] == ["published"] * 8 + ["baseline"] * 2 + ["this run"]
    assert rows[0][:5] == ("gPoE (Deisenroth & Ng 2015)", "published", "authors' split", 8.1, None)
    columns = records.read_table("metrics/det.parquet")
    assert rows[-1] == (
        *("Det", "this run", "nyc2013, temporal, epoch 2 of 2"),
        *(columns[key][-1] for key in ("test_nlpd", "test_rmse", "train_nlpd", "train_rmse")),
    )
    curve = pictures.collect_curves(records)["train_nlpd"]["det"]
    np.testing.assert_array_equal(curve.values, columns["train_nlpd"])
    assert (curve.epochs.tolist(), curve.chosen) == ([1, 2], 2)
    figure = pictures.draw_curves(pictures.collect_curves(records), pictures.collect_baselines(records))
    assert [axis.get_title() for axis in figure.axes][2] == "Test RMSE (minutes)"
    drawn = figure.axes[1].get_lines()[0]
    np.testing.assert_array_equal(drawn.get_ydata(), columns["train_nlpd"])


def test_the_experiment_loads_the_flights_it_is_told_to(tmp_path, data, monkeypatch):
    asked = []

    def load(source, paths, *, split, planes):
        asked.append((source, list(paths), split, planes))
        return Dataset(*data)

    monkeypatch.setattr(regression.flights, "load", load)
    config = configure("dataexpo", "plane-order", ("2008.csv",), "planes.csv", methods=("det",), epochs=1, quick=True)
    config = dataclasses.replace(config, settings=dataclasses.replace(config.settings, **TINY), rows=100)
    records = create(tmp_path / "run", config)
    assert regression.experiment(config, records) == {}
    assert asked == [("dataexpo", ["2008.csv"], "plane-order", "planes.csv")]
    assert records.read_table("metrics/det.parquet")["epoch"].tolist() == [1]
