import dataclasses
import json
import sys
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh

from ncprior.cli.progress import describe
from ncprior.core.distributions import Normal
from ncprior.core.methods import methods
from ncprior.core.networks import MLP
from ncprior.core.objectives import Batch
from ncprior.core.optimizers import adam
from ncprior.core.training import combine
from ncprior.data.dataset import standardised
from ncprior.errors import UserError
from ncprior.experiments.paper import data_parallel, regression
from ncprior.experiments.paper.data_parallel import Bins, Regression, Schedule, balanced
from ncprior.experiments.paper.regression import Progress, baselines, configure, draw_rows, run
from ncprior.experiments.records import Records
from ncprior.report import regression as pictures
from ncprior.report.page import report

ROWS, TESTS = 600, 150
TINY = {"hidden": (32, 16), "learning_rate": 3e-3, "batch_size": 64}


def make_data():
    random = np.random.default_rng(0)
    inputs = random.normal(size=(ROWS + TESTS, 3))
    targets = 40 * np.sin(2 * inputs[:, :1]) + 10 * inputs[:, 1:2] + 5 * random.normal(size=(ROWS + TESTS, 1)) + 7
    return standardised(inputs[:ROWS], targets[:ROWS], inputs[ROWS:], targets[ROWS:], target_unit="minutes")


DATA = make_data()


@pytest.fixture(autouse=True)
def split_small_arrays(monkeypatch):
    """Moments of arrays as small as those here are split over the devices, too."""
    monkeypatch.setattr(data_parallel, "MIN_SPLIT_SIZE", 256)


@pytest.fixture(scope="module", autouse=True)
def no_trees():
    """Boosted trees take long to import and have a test of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "sklearn.ensemble", None)
        yield


def tiny(schedule=Schedule(epochs=3), names=("bbb+ncp",), preset="reference", seeds=1, **changes):  # noqa: B008
    config = configure(preset=preset, methods=tuple(names), seeds=seeds)
    settings = dataclasses.replace(config.settings, **(TINY | changes))
    return dataclasses.replace(config, settings=settings, schedule=schedule)


def prepared(name, config, seed=0):
    return Regression(methods(config.settings)[name], config.settings, config.schedule, DATA, seed)


def trained(one, first=1, last=1, state=None):
    state = state or one.start()
    for epoch in range(first, last + 1):
        for present, _ in one.train(state, epoch):
            state = present
    return state


def networks(records, name, one):
    """The networks of all seeds on record."""
    many = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], records.config["seeds"], 0), one.start().params)
    return records.read_tree(f"models/{name}.safetensors", many)


def create(folder, config, *, resume=False):
    return Records.create(folder, regression.NAME, dataclasses.asdict(config), resume=resume)


def test_configuration_follows_the_preset_and_the_recipe():
    reference, paper = configure(), configure(preset="paper", recipe="tuned", epochs=4, batch_size=128, seeds=5)
    assert (reference.settings.hidden, paper.settings.hidden) == ((1000, 1000, 1000), (512, 512, 512))
    assert (reference.settings.expectation, paper.settings.expectation) == ("sampled", "exact")
    assert (reference.settings.input_noise_std, reference.settings.gamma) == (0.1, 0.1)
    assert (reference.settings.weight_kl, reference.settings.noise_prior_std) == (1.0, None)
    assert reference.settings.learning_rate == 1e-4
    assert reference.schedule.decay == "none"
    assert paper.settings.input_noise_std == pytest.approx(0.1**0.5)
    assert (paper.settings.gamma, paper.settings.batch_size, paper.seeds) == (1.0, 128, 5)
    assert paper.schedule == dataclasses.replace(regression.RECIPES["tuned"].schedule, epochs=4)
    assert configure(quick=True).rows is not None
    assert (configure().seeds, configure(quick=True).seeds) == (3, 1)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: configure(recipe="secret"), "unknown recipe 'secret'"),
        (lambda: configure(methods=("gp",)), "unknown method 'gp'"),
        (lambda: configure(methods=()), "no method given"),
        (lambda: configure(epochs=0), "epochs must be at least 1"),
        (lambda: configure(seeds=0), "seeds must be at least 1"),
        (lambda: tiny(remainder="filled"), "choose smaller or dropped"),
        (lambda: Schedule(validation=1.0), "validation must be at least 0 and below 1"),
        (lambda: Schedule(bins=-1), "bins must be at least 0"),
        (lambda: Schedule(beta=1.5), "beta must be between 0 and 1"),
    ],
)
def test_mistakes_are_explained(mistake, message):
    with pytest.raises(UserError, match=message):
        mistake()


def test_a_mini_batch_must_fit():
    with pytest.raises(UserError, match="do not fill a mini batch of 1024"):
        prepared("det", tiny(batch_size=1024))


def test_bins_are_places_among_quantiles():
    edges = Bins.find(np.array([[0.0, 5.0], [1.0, 5.0], [3.0, 5.0]]), bins=2)
    assert edges == ((0.0, 1.0, 3.0), (5.0, 6.0))
    seen = Bins(edges, lambda x: x)
    # Between 1 and 3 the second number grows; outside of the data the first and the last go on without end.
    np.testing.assert_allclose(seen(jnp.array([2.0, 5.0])), [1.0, 0.5, 0.0])
    np.testing.assert_allclose(seen(jnp.array([-1.0, 5.5])), [-1.0, 0.0, 0.5])
    np.testing.assert_allclose(seen(jnp.array([5.0, 4.0])), [1.0, 2.0, -1.0])


def test_bins_take_examples_as_columns():
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    trunk = Bins(Bins.find(x, 4), MLP.init(12, (8,), key=jax.random.key(0)))
    np.testing.assert_allclose(trunk(x.T).T, jax.vmap(trunk)(x), rtol=1e-5, atol=1e-6)


def test_edges_are_no_weights():
    state = prepared("bbb+ncp", tiny(Schedule(bins=5))).start()
    sizes = sorted(leaf.size for leaf in jax.tree.leaves(state.params))
    assert sizes == sorted([15 * 32, 32, 32 * 16, 16, 16, 1, 16, 16, 1])


def test_a_balanced_likelihood_teaches_the_mean_as_squared_errors_do():
    """At beta 1 the gradient of the mean is the error itself, whatever the noise."""
    view = SimpleNamespace(batch=SimpleNamespace(targets=jnp.array([[1.0], [4.0]])))

    def loss(mean, method):
        view.clean = {"mean": Normal(mean, jnp.zeros((2, 1))), "noise": jnp.array([[0.5], [3.0]])}
        return jnp.sum(method.objective["nll"].term(view))

    plain = methods(tiny(expectation="exact").settings)["det"]
    mean = jnp.array([[0.0], [6.0]])
    np.testing.assert_allclose(jax.grad(loss)(mean, plain).ravel(), [-1 / 0.25, 2 / 9], rtol=1e-6)
    np.testing.assert_allclose(jax.grad(loss)(mean, balanced(plain, 1.0)).ravel(), [-1, 2], rtol=1e-6)


@pytest.mark.parametrize("name", ["bbb+ncp", "odc+ncp"])
def test_the_loss_falls_and_each_program_is_compiled_once(name, compiled):
    one = prepared(name, tiny(Schedule(epochs=30), learning_rate=1e-2))
    state = trained(one)
    before = one.evaluate(state)
    state = trained(one, 2, 30, state)
    after = one.evaluate(state)
    assert after["loss_nll"] < before["loss_nll"] - 0.1
    assert after["test_nlpd"] < before["test_nlpd"]
    assert after["test_rmse"] < 0.9 * np.std(DATA.test_targets) * DATA.target_scale
    for program in ("train_steps", "shuffle_rows", "measure_parts"):
        assert sum(program in compiled_name for compiled_name in compiled) == 1, (program, compiled)


def test_devices_change_results_by_rounding_only(monkeypatch):
    """The last mini batch has 24 rows, and none of them is the second device's; clipping sees all moments' shares."""
    config = tiny(preset="paper", clip=0.5)
    two = prepared("bbb+ncp", config)
    split = trained(two)
    assert two.mesh.size == 2
    assert any(not leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(split.optimizer))
    monkeypatch.setattr(data_parallel, "row_mesh", lambda _: Mesh(np.array(jax.devices()[:1]), ("rows",)))
    one = prepared("bbb+ncp", config)
    whole = trained(one)
    assert one.mesh.size == 1
    for a, b in zip(jax.tree.leaves(split), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)


def test_a_step_is_one_of_adam_on_the_loss_of_the_method():
    """Of one mini batch of all rows, so that their order does not matter."""
    config = tiny(Schedule(epochs=1), batch_size=ROWS)
    one, method = prepared("det", config), methods(config.settings)["det"]
    state = trained(one)
    params, static = eqx.partition(one.init(), eqx.is_inexact_array)
    batch = Batch(jnp.asarray(DATA.train_inputs), jnp.asarray(DATA.train_targets), jnp.ones(ROWS), jnp.asarray(ROWS))

    def loss(params):
        return method.loss(eqx.combine(params, static), batch, key=jax.random.key(0))[0]

    rule = adam(config.settings.learning_rate, clip=config.settings.clip, epsilon_hat=True)

    @jax.jit
    def step(params):
        updates, _ = rule.update(jax.grad(loss)(params), rule.init(params))
        return optax.apply_updates(params, updates)

    wanted = step(params)
    for a, b in zip(jax.tree.leaves(state.params), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5)


def test_the_learning_rate_falls_along_a_cosine():
    one = prepared("det", tiny(Schedule(epochs=4, decay="cosine")))
    steps = 4 * one.steps
    rates = [float(one.learning_rate(step)) for step in (0, steps // 2, steps)]
    np.testing.assert_allclose(rates, [3e-3, 1.5e-3, 0], atol=1e-9)


def test_drawn_rows_keep_their_order():
    few = draw_rows(DATA, 50)
    places = [np.flatnonzero((DATA.train_inputs == row).all(1))[0] for row in few.train_inputs]
    assert len(few.train_inputs) == len(few.train_targets) == 50
    assert places == sorted(places)
    assert draw_rows(DATA, 10**6).train_inputs.shape == DATA.train_inputs.shape


def test_baselines_against_numpy():
    found, notes = baselines(DATA)
    assert list(found) == ["mean", "linear"]
    assert "scikit-learn is not installed" in notes[0]
    test, train = (
        (DATA.target_shift + DATA.target_scale * targets[:, 0]).astype(np.float64)
        for targets in (DATA.test_targets, DATA.train_targets)
    )
    error, std = test - train.mean(), train.std()
    assert found["mean"]["test_rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-5)
    density = np.exp(-0.5 * (error / std) ** 2) / (std * np.sqrt(2 * np.pi))
    assert found["mean"]["test_nlpd"] == pytest.approx(-np.mean(np.log(density)), rel=1e-5)
    fit = np.polynomial.Polynomial.fit(DATA.train_inputs[:, 0], train, 1)
    line = DATA._replace(train_inputs=DATA.train_inputs[:, :1], test_inputs=DATA.test_inputs[:, :1])
    wanted = np.sqrt(np.mean((fit(DATA.test_inputs[:, 0]) - test) ** 2))
    assert baselines(line)[0]["linear"]["test_rmse"] == pytest.approx(wanted, rel=1e-5)


def test_boosted_trees_are_a_baseline_where_there_is_scikit_learn(monkeypatch):
    class Trees:
        def __init__(self, **options):
            self.options = options
            assert (options["max_iter"], options["max_leaf_nodes"]) == (400, 63)

        def fit(self, inputs, targets):
            assert inputs.shape == (ROWS, 3)
            self.value = targets.mean() + 1

        def predict(self, inputs):
            return np.full(len(inputs), self.value)

    monkeypatch.setitem(sys.modules, "sklearn.ensemble", SimpleNamespace(HistGradientBoostingRegressor=Trees))
    found, notes = baselines(DATA)
    assert notes == []
    # One standard deviation off everywhere: the training errors have variance 2.
    assert found["boosting"]["train_rmse"] == pytest.approx(DATA.target_scale * 2**0.5, rel=1e-5)
    assert found["boosting"]["train_nlpd"] == pytest.approx(
        np.log(DATA.target_scale) + 0.5 * np.log(4 * np.pi) + 0.5, rel=1e-5
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run in which BBB stops, as its prior makes its loss infinite, and Det goes on."""
    schedule = Schedule(epochs=3, validation=0.25, decay="cosine", bins=4, beta=0.5)
    config = tiny(schedule, ("bbb", "det"), weight_prior_std=1e-30)
    records, heard = create(tmp_path_factory.mktemp("regression") / "run", config), []
    run(config, DATA, records, heard.append)
    return config, records, heard


def test_a_run_leaves_complete_records(finished):
    _, records, heard = finished
    results = json.loads((records.folder / "results.json").read_text())
    assert results["experiment"] == "regression"
    assert list(results["methods"]) == ["bbb", "det"]
    assert set(results["baselines"]) == {"mean", "linear"}
    assert {"config", "versions"} <= results.keys()
    values, columns = results["methods"]["det"], records.read_table("metrics/det.parquet")
    best = int(np.argmin(columns["valid_nlpd"]))
    assert columns["epoch"].tolist() == [1, 2, 3]
    assert values["epochs"] == records.read_notes("models/det.safetensors")["epochs"] == [best + 1]
    for name in ("test_rmse", "test_nlpd", "train_rmse", "train_nlpd"):
        value = columns[name][best]
        assert values[name] == {"mean": value, "std": 0.0, "median": value}
    assert not records.exists("checkpoints/det.safetensors")
    last = heard[-1]
    assert isinstance(last, Progress)
    assert (last.method, last.epoch, last.epochs, last.seconds_left, last.failed) == ("det", 3, 3, 0, None)
    assert last.test_rmse == columns["test_rmse"][-1]
    assert all(progress.rows_per_second > 0 for progress in heard)


def test_metrics_are_those_of_the_kept_network_in_units_of_the_target(finished):
    config, records, _ = finished
    one = prepared("det", config)
    params = jax.tree.map(lambda leaf: leaf[0], networks(records, "det", one))
    mean = np.asarray(one.method(combine(params, one.static), DATA.train_inputs).mean)
    error = DATA.target_scale * (mean - DATA.train_targets)
    values = records.read_json("results.json")["methods"]["det"]
    assert one.rows == 450
    assert values["train_rmse"]["mean"] == pytest.approx(np.sqrt(np.mean(error[:450] ** 2)), rel=1e-4)
    assert values["valid_rmse"]["mean"] == pytest.approx(np.sqrt(np.mean(error[450:] ** 2)), rel=1e-4)


def test_a_method_whose_loss_is_not_finite_stops_and_the_others_go_on(finished):
    _, records, heard = finished
    reason = "the loss was not finite in epoch 1 (term weight_kl)"
    assert [progress.failed for progress in heard if progress.failed] == [reason]
    results = records.read_json("results.json")
    assert results["failed_seeds"] == {"bbb": {"0": reason}}
    assert results["methods"]["bbb"]["test_rmse"]["mean"] is None


def test_an_interrupted_run_goes_on_to_the_same_numbers(tmp_path, monkeypatch):
    """In the second seed, before its first epoch has ended and after; the first is not trained again."""
    config = tiny(Schedule(epochs=3, validation=0.25, decay="cosine"), seeds=2)
    whole, parts = create(tmp_path / "whole", config), create(tmp_path / "parts", config)
    one = prepared("bbb+ncp", config)  # the runs share their programs, which take long to compile, and nothing else
    monkeypatch.setattr(regression, "Regression", lambda *_, seed: one.with_seed(seed))
    run(config, DATA, whole)

    for most, standing in ((0.0, (0, 3)), (1.4, (1, 1))):

        def interrupt(progress, most=most):
            if progress.seed == 1 and progress.epoch > most:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(config, DATA, create(tmp_path / "parts", config, resume=True), interrupt)
        notes = parts.read_notes("checkpoints/bbb+ncp.safetensors")
        assert (len(notes["trained"]), notes["epoch"]) == standing
    heard = []
    run(config, DATA, create(tmp_path / "parts", config, resume=True), heard.append)
    assert {progress.seed for progress in heard} == {1}
    for name, values in whole.read_table("metrics/bbb+ncp.parquet").items():
        np.testing.assert_array_equal(parts.read_table("metrics/bbb+ncp.parquet")[name], values)
    for a, b in zip(*(jax.tree.leaves(networks(records, "bbb+ncp", one)) for records in (whole, parts)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert whole.read_json("results.json")["methods"] == parts.read_json("results.json")["methods"]


@pytest.fixture(scope="module")
def two_seeds(tmp_path_factory):
    config = tiny(Schedule(epochs=2), ("det",), seeds=2)
    records, heard = create(tmp_path_factory.mktemp("regression") / "seeds", config), []
    run(config, DATA, records, heard.append)
    return config, records, heard


def test_a_seed_does_not_depend_on_the_others(two_seeds):
    config, records, _ = two_seeds
    columns = records.read_table("metrics/det.parquet")
    assert columns["seed"].tolist() == [0, 0, 1, 1]
    assert columns["epoch"].tolist() == [1, 2, 1, 2]
    for seed in (0, 1):
        alone = prepared("det", config, seed)
        values = alone.evaluate(trained(alone, 1, 2))
        for name, value in values.items():
            assert columns[name][columns["seed"] == seed][-1] == value, name
    assert columns["test_rmse"][1] != columns["test_rmse"][3]


def test_results_are_over_the_seeds(two_seeds):
    _, records, heard = two_seeds
    values = records.read_json("results.json")["methods"]["det"]
    rmse = records.read_table("metrics/det.parquet")["test_rmse"][[1, 3]]
    assert values["epochs"] == [2, 2]
    assert values["test_rmse"] == {"mean": rmse.mean(), "std": rmse.std(), "median": np.median(rmse)}
    np.testing.assert_array_equal(regression.final(records)["det"]["test_rmse"], rmse)
    row = pictures.collect_table(records)[-1]
    assert row.rmse == (rmse.mean(), rmse.std(), np.median(rmse))
    assert row.note == "nyc2013, temporal, 2 seeds, epoch 2 of 2"
    assert [len(curve.values) for curve in pictures.collect_curves(records)["test_rmse"]["det"]] == [2, 2]
    assert describe(heard[-1])[:3] == ("det", 4, 4)
    assert "seed 1" in describe(heard[-1]).state


def test_a_seed_that_stops_is_on_record_and_the_next_goes_on(tmp_path, monkeypatch, compiled):
    config = tiny(Schedule(epochs=2), ("det",), seeds=3)
    records, one = create(tmp_path / "run", config), prepared("det", config)
    monkeypatch.setattr(regression, "Regression", lambda *_, seed: one.with_seed(seed))
    plain = Regression.failure
    monkeypatch.setattr(Regression, "failure", lambda self, state: "it must" if self.seed == 1 else plain(self, state))
    run(config, DATA, records)
    for program in ("train_steps", "shuffle_rows", "measure_parts"):
        assert sum(program in compiled_name for compiled_name in compiled) == 1  # for all seeds
    results = records.read_json("results.json")
    assert results["failed_seeds"] == {"det": {"1": "it must"}}
    found = regression.final(records)["det"]["test_rmse"]
    assert np.isnan(found).tolist() == [False, True, False]
    assert results["methods"]["det"]["test_rmse"]["mean"] == np.nanmean(found)
    row = pictures.collect_table(records)[-1]
    assert row.note == "nyc2013, temporal, 3 seeds, epoch 2 of 2; stopped: 1 of 3"
    page = report(records.folder).read_text()
    assert "Det, run 1: it must" in page
    assert "Det: 1 of 3 runs stopped" in page
    assert f"{found[0] / 2 + found[2] / 2:.3f} ± {abs(found[0] - found[2]) / 2:.3f}" in page


def test_the_table_is_collected_from_records(finished):
    _, records, _ = finished
    rows = pictures.collect_table(records)
    assert [row.kind for row in rows] == ["published"] * 8 + ["baseline"] * 2 + ["this run"] * 2
    assert rows[0][:5] == (
        "gPoE (Deisenroth & Ng 2015)",
        "published",
        "authors' split",
        (8.1,) + (None,) * 2,
        (None,) * 3,
    )
    assert (rows[-2].note, rows[-2].rmse.mean) == ("nyc2013, temporal, one seed; stopped: 1 of 1", None)
    values = records.read_json("results.json")["methods"]["det"]
    numbers = [(values[key]["mean"], None, None) for key in ("test_nlpd", "test_rmse", "train_nlpd", "train_rmse")]
    note = f"nyc2013, temporal, one seed, epoch {values['epochs'][0]} of 3"
    assert rows[-1] == ("Det", "this run", note, *numbers)


def test_curves_are_collected_and_drawn_from_records(finished, tmp_path):
    _, records, _ = finished
    columns = records.read_table("metrics/det.parquet")
    curves = pictures.collect_curves(records)
    assert {metric: list(methods) for metric, methods in curves.items()} == {key: ["det"] for key in curves}
    np.testing.assert_array_equal(curves["train_nlpd"]["det"][0].values, columns["train_nlpd"])
    figure = pictures.draw_curves(curves, pictures.collect_baselines(records))
    assert [axis.get_title() for axis in figure.axes][2] == "Test RMSE (minutes)"
    np.testing.assert_array_equal(figure.axes[1].get_lines()[0].get_ydata(), columns["train_nlpd"])
    figure.savefig(tmp_path / "curves.png")


def test_the_experiment_loads_the_flights_it_is_told_to(monkeypatch, tmp_path):
    asked = []

    def load(source, paths, *, split, planes, times):
        asked.append((source, list(paths), split, planes, times))
        return DATA

    monkeypatch.setattr(regression.flights, "load", load)
    ran = []
    monkeypatch.setattr(regression, "run", lambda _config, data, *_: ran.append(len(data.train_inputs)))
    config = configure(
        "dataexpo", "plane-order", ("2008.csv",), "p.csv", methods=("det",), recipe="tuned", batch_size=50, quick=True
    )
    config = dataclasses.replace(config, rows=100)
    records = create(tmp_path / "run", config)
    regression.experiment(config, regression.load(config), records)
    assert ran == [100]
    # The networks see the inputs of the recipe, the baselines the benchmark's; what is on record is not made again.
    asked_for = ("dataexpo", ["2008.csv"], "plane-order", "p.csv")
    assert asked == [(*asked_for, "minutes"), (*asked_for, "hhmm")]
    regression.experiment(config, regression.load(config), records)
    assert asked[2:] == [(*asked_for, "minutes")]


def test_progress_names_errors_only_when_they_are_known():
    def state(rmse, nlpd):
        return describe(Progress("bbb", 0, 1, 1.5, 10, 1e4, 3.0, rmse, nlpd, None)).state

    assert state(np.nan, np.nan) == "10,000 rows/s"
    assert state(44.7, 5.4) == "10,000 rows/s, test RMSE 44.7, NLPD 5.4"
