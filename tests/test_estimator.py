"""The estimator: scikit-learn's own checks, what it promises about uncertainty, mixed tables, and going on."""

import os
import signal
from contextlib import nullcontext

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ncprior import NCPRegressor
from ncprior.core import acquisition
from ncprior.core.input_priors import Gaussian
from ncprior.core.methods import methods
from ncprior.errors import UserError
from ncprior.tables import recipe, search
from ncprior.tables.batches import RULES
from ncprior.tables.ensemble import Ensemble
from ncprior.tables.holdout import Stopping
from ncprior.tables.options import FitOptions
from ncprior.tables.preset import TABLES

SMALL = {"members": 2, "hidden": (8,), "epochs": 3, "random_state": 0}


def wave(rows=200, seed=0):
    """A sine with noise 0.1 on both sides of a gap."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.5, 2.0, rows) * rng.choice([-1, 1], rows)
    return x[:, None], np.sin(2 * x) + 0.1 * rng.normal(size=rows)


@pytest.fixture(scope="module")
def fitted():
    X, y = wave()
    model = NCPRegressor(members=2, hidden=(64, 64), epochs=300, random_state=0).fit(X, 100 + 50 * y)
    model.calibration_.share[:] = 0.7, 0.3  # shares that differ, for what depends on them
    return model


def test_learns_and_tells_noise_from_uncertainty(fitted):
    X, y = wave(seed=1)
    y = 100 + 50 * y
    p = fitted.predict_distribution(X)
    assert np.sqrt(np.mean((p.mean - y) ** 2)) < 12  # the noise is 5, the spread 35
    low, high = p.interval(0.9)
    assert 0.8 < np.mean((low < y) & (y < high)) <= 1
    far = fitted.predict_distribution(np.array([[-6.0], [0.0], [6.0]]))
    assert (far.uncertainty[[0, 2]] > 3 * np.median(p.uncertainty)).all()
    assert fitted.validation_ is None  # nothing was held out


def test_finds_out_how_long_to_train_on_rows_that_it_holds_out():
    X, y = wave(100)
    model = NCPRegressor(members=2, hidden=(16,), random_state=0).fit(X, y)
    assert model.validation_["rows"] == 10
    assert 0.1 < model.validation_["rmse"] < 0.85 * y.std()  # a constant has 1
    assert 100 <= min(model.steps_) <= max(model.steps_) <= Stopping().max_steps
    assert {part.shape for part in model.calibration_} == {(2,)}
    assert model.calibration_.share.sum() == pytest.approx(1)


def test_what_a_distribution_says_agrees_with_itself(fitted):
    p = fitted.predict_distribution(np.linspace(-3, 3, 30)[:, None])
    np.testing.assert_allclose(p.std**2, p.noise**2 + p.uncertainty**2, rtol=1e-4)
    for probability in (0.05, 0.5, 0.9):
        np.testing.assert_allclose(p.cdf(p.quantile(probability)), probability, atol=1e-3)
    y = np.linspace(50, 150, 30)
    np.testing.assert_allclose(p.predictive.log_prob(y[:, None])[:, 0], p.log_prob(y), rtol=1e-3, atol=1e-3)
    slope = (p.cdf(y + 0.5) - p.cdf(y - 0.5)) / 1.0
    np.testing.assert_allclose(np.exp(p.log_prob(y)), slope, rtol=0.05, atol=1e-4)
    mean, std = fitted.predict(np.linspace(-3, 3, 30)[:, None], return_std=True)
    np.testing.assert_array_equal(mean, p.mean)
    np.testing.assert_array_equal(std, p.std)
    with pytest.raises(UserError, match="above 0 and below 1"):
        p.quantile(1.0)
    with pytest.raises(UserError, match="shape"):
        p.log_prob(np.zeros(3))


def test_predictions_do_not_depend_on_other_rows_nor_compile_again(fitted, compiled):
    X = np.random.default_rng(0).normal(size=(9000, 1))  # whose chunks no other test has
    whole, spread = fitted.predict(X), float(fitted.target_scale_[0])
    for rows in (1, 63, 64, 65, 700):
        np.testing.assert_allclose(fitted.predict(X[:rows]), whole[:rows], rtol=1e-6, atol=1e-6 * spread)
    assert [name for name in compiled if "predict" in name]
    del compiled[:]
    for rows in (2, 66, 900, 1800):
        fitted.predict(X[:rows], return_std=True)
    assert compiled == []


def test_a_row_is_predicted_by_one_program(fitted, monkeypatch):
    """Contrast networks and members together; mean, noise and uncertainty have nothing to compile."""
    fitted.predict([[0.0]])
    called = []
    whole = jax.stages.Compiled.__call__
    monkeypatch.setattr(jax.stages.Compiled, "__call__", lambda self, *args: called.append(self) or whole(self, *args))
    one = fitted.predict_distribution(np.zeros((1, 1)))
    assert np.isfinite([one.mean, one.std, one.noise, one.uncertainty, one.familiarity]).all()
    assert len(called) == 1


def test_numbers_are_predicted_the_same_as_an_array_a_frame_and_a_table(compiled):
    """Few rows of numbers take a shorter way, where they are as in training; all others are looked at as ever."""
    rng = np.random.default_rng(0)
    rows, y = rng.normal(size=(60, 3)), rng.normal(size=60)
    names = ["a", "b", "c"]
    frame = pd.DataFrame(rows, columns=names)
    models = [NCPRegressor(**SMALL).fit(x, y) for x in (rows, frame)]
    few = rows[:5].copy()
    few[1, 2] = np.nan
    as_array, as_frame = (
        models[0].predict_distribution(few),
        models[1].predict_distribution(frame.where(frame.notna())[:5]),
    )
    table = pa.table({f"x{i}": few[:, i] for i in range(3)})
    del compiled[:]
    for one in (few.astype(object), few.tolist(), np.asfortranarray(few)):
        np.testing.assert_array_equal(models[0].predict_distribution(one).std, as_array.std)
    np.testing.assert_array_equal(models[0].predict_piece(table).std, as_array.std)
    for one in (frame[:5][["c", "a", "b"]], frame[:5].assign(d=1.0), pa.table(frame[:5]), frame[:5].astype(object)):
        np.testing.assert_array_equal(models[1].predict(one), as_frame.mean)
    single = frame[:5].astype(np.float32)
    np.testing.assert_array_equal(models[1].predict(single), models[1].predict(single.astype(float)))
    assert compiled == []
    few[2, 0] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        models[0].predict(few)
    with pytest.raises(UserError, match="infinite value in column 'a', row 3"):
        models[1].predict(pd.DataFrame(few, columns=names))
    with pytest.raises(ValueError, match="expecting 3 features"):
        models[0].predict(rows[:, :2])
    with pytest.raises(ValueError, match="0 sample"):
        models[0].predict(rows[:0])
    with pytest.raises(UserError, match="lacks columns of training: 'c'"):
        models[1].predict(frame[["a", "b"]])
    with pytest.warns(UserWarning, match="feature names"):
        models[1].predict(rows[:1])


def test_models_that_take_turns_keep_their_own_weights():
    rng = np.random.default_rng(0)
    rows, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    models = [NCPRegressor(**SMALL | {"random_state": seed}).fit(rows, y) for seed in range(6)]
    first = [model.predict(rows[:1]) for model in models]
    assert len({float(one[0]) for one in first}) == 6
    for _ in range(2):
        np.testing.assert_array_equal([model.predict(rows[:1]) for model in models], first)


def test_suggests_rows_where_it_is_uncertain(fitted):
    pool = np.linspace(-5, 5, 101)[:, None]
    gain = fitted.information_gain(pool)
    picked = fitted.suggest(pool, n=5, acquisition="information_gain")
    np.testing.assert_array_equal(np.sort(gain[picked])[::-1], np.sort(gain)[::-1][:5])
    by_gain = {"acquisition": "information_gain", "temperature": 0.5, "random_state": 0}
    drawn = fitted.suggest(pool, n=50, **by_gain)
    assert len(set(drawn)) == 50
    np.testing.assert_array_equal(drawn, fitted.suggest(pool, n=50, **by_gain))
    for rule in (*RULES, "uncertainty", "random"):
        rows = fitted.suggest(pool, n=7, acquisition=rule, labelled=wave()[0], random_state=0)
        assert len(set(rows)) == 7
    # Rows that the model was trained on are known to it.
    np.testing.assert_array_equal(
        fitted.suggest(pool, n=7, random_state=0), fitted.suggest(pool, n=7, labelled=wave()[0], random_state=0)
    )
    with pytest.raises(UserError, match="kmeans_greedy is a rule for batches"):
        fitted.suggest(pool, temperature=0.5)
    # Whatever the networks see, labels are spread by the inputs' places in the pool, and no value is extreme.
    skewed = np.exp(pool)
    spread = np.sort(fitted.suggest(skewed, n=40, labelled=skewed[:1], random_state=0))
    assert 10 <= np.sum(spread < 50) <= 30
    assert np.diff(spread).max() <= 12
    left = np.ones(101, bool)
    left[:3] = False
    assert set(fitted.suggest(pool, n=3, exclude=left)) == {0, 1, 2}
    with pytest.raises(UserError, match="choose n from 1 to 3"):
        fitted.suggest(pool, n=4, exclude=left)
    with pytest.raises(UserError, match="the pool has none that may be picked"):
        fitted.suggest(pool, n=4, exclude=np.ones(101, bool))
    with pytest.raises(UserError, match="unknown acquisition 'best'"):
        fitted.suggest(pool, acquisition="best")


def test_scores_of_ones_own(fitted, monkeypatch):
    pool = np.linspace(-5, 5, 101)[:, None]

    def mine(prediction):
        return -jnp.abs(prediction.mean[:, 0])

    with pytest.raises(UserError, match=r"unknown acquisition 'mine'.* information_gain"):
        fitted.predict_distribution(pool).score("mine")
    monkeypatch.setitem(acquisition.SCORES, "mine", mine)
    nearest = np.argsort(np.abs(fitted.predict(pool) - fitted.target_shift_), kind="stable")[:4]
    assert set(fitted.suggest(pool, n=4, acquisition="mine")) == set(nearest)
    np.testing.assert_array_equal(
        fitted.suggest(pool, n=4, acquisition=mine), fitted.suggest(pool, n=4, acquisition="mine")
    )
    drawn = fitted.suggest(pool, n=4, acquisition=mine, temperature=1.0, random_state=0)
    assert len(set(drawn)) == 4
    with pytest.raises(UserError, match=r"one number for each of 101 rows.* gives float32 of shape"):
        fitted.suggest(pool, acquisition=lambda prediction: prediction.mean)
    mistakes = {
        "gives int32 of shape": lambda _: jnp.array(3),
        "gives int": lambda _: 3,
        r"written with jax.numpy.* failed \(TracerArrayConversionError": lambda prediction: np.asarray(prediction.mean),
        r"failed \(AttributeError": lambda prediction: prediction.means,
        r"failed \(TypeError": lambda: 0,
    }
    for line, mistake in mistakes.items():
        with pytest.raises(UserError, match=line):
            fitted.suggest(pool, acquisition=mistake)
    with pytest.raises(UserError, match="no numbers"):
        fitted.suggest(pool, acquisition=lambda prediction: jnp.sqrt(-1 - prediction.std[:, 0]))
    with pytest.raises(UserError, match="unknown acquisition 'ood_probability'"):  # of another kind of prediction
        fitted.predict_distribution(pool).score("ood_probability")


def test_several_quantiles_at_once(fitted):
    p = fitted.predict_distribution(np.linspace(-3, 3, 7)[:, None])
    both = p.quantile([0.1, 0.9])
    assert both.shape == (2, 7)
    np.testing.assert_array_equal(both, [p.quantile(0.1), p.quantile(0.9)])
    assert p.quantile(np.full((2, 3), 0.5)).shape == np.quantile(np.zeros((5, 7)), np.full((2, 3), 0.5), axis=0).shape
    with pytest.raises(UserError, match=r"above 0 and below 1, got 1\.0"):
        p.quantile([0.1, 1.0])
    np.testing.assert_array_equal(p.interval(0.8), both)


def test_batch_features_have_the_variance_of_the_mean(fitted):
    """Products of the features of the batch rules are the uncertainty of the predictions."""
    X = np.linspace(-3, 3, 20)[:, None]
    inner = fitted.fitted_
    phi = np.asarray(inner.covariance_features(inner.encoder.transform(X)))
    wanted = fitted.predict_distribution(X).uncertainty / fitted.target_scale_
    np.testing.assert_allclose(np.sqrt((phi**2).sum(1)), wanted, rtol=1e-3)


def test_sketches_hold_gradients_and_what_layers_get(fitted):
    inner, X = fitted.fitted_, np.linspace(-3, 3, 6)[:, None]
    inputs = inner.encoder.transform(X)

    def products(member):
        network = eqx.combine(jax.tree.map(lambda leaf: leaf[member], inner.weights), inner.engine.ensemble.static)

        def mean(weights, row):
            where = lambda net: (net.trunk.trunk.layers, net.heads["mean"].linear)  # noqa: E731
            return eqx.tree_at(where, network, weights)(row)["mean"].mean[0]

        weights = (network.trunk.trunk.layers, network.heads["mean"].linear)
        gradients = [jax.flatten_util.ravel_pytree(jax.grad(mean)(weights, row))[0] for row in inputs]
        *layers, _ = jax.vmap(lambda row: network.trunk.trunk.activations(network.trunk.expand(row)))(inputs)
        return np.inner(gradients, gradients) + sum(1 + np.inner(layer, layer) for layer in layers)

    exact = sum(share * products(member) for member, share in enumerate(inner.calibration.share))
    keys = jax.random.split(jax.random.key(0), 40)
    sketches = [
        np.asarray(inner.engine.sketches(inner.weights, inner.calibration, inputs, key, size=256)) for key in keys
    ]
    found = np.mean([phi @ phi.T for phi in sketches], axis=0)
    np.testing.assert_allclose(found, exact, rtol=0.1, atol=0.03 * exact.max())


def test_functions_spread_as_the_uncertainty_says(fitted):
    X = np.array([[-1.0], [0.0], [4.0]])
    functions = fitted.sample_functions(X, n=400, random_state=0)
    assert functions.shape == (400, 3)
    p = fitted.predict_distribution(X)
    np.testing.assert_allclose(functions.std(0), p.uncertainty, rtol=0.25)
    np.testing.assert_allclose(functions.mean(0), p.mean, atol=4 * p.uncertainty.max() / 20)


@pytest.mark.parametrize("method", ["det", "det+ncp", "bbb", "bbb+ncp", "odc+ncp", "deep+ncp"])
def test_every_method(method, tmp_path):
    X = wave(60)[0]
    y = 2 * X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=60)
    model = NCPRegressor(method, members=2, hidden=(16,), epochs=200, random_state=0).fit(X, y)
    new = wave(200, seed=9)[0]
    truth = 2 * new[:, 0]
    p = model.predict_distribution(new)
    assert np.sqrt(np.mean((p.mean - truth) ** 2)) < 0.5 * truth.std()  # a constant has 1
    constant = -0.5 * np.log(2 * np.pi * truth.var()) - 0.5
    assert p.log_prob(truth).mean() > constant + 0.2
    p = model.predict_distribution(X)
    assert (p.std > 0).all()
    functions = model.sample_functions(X, n=3)
    assert functions.shape == (3, 60)
    assert (np.corrcoef(functions, y)[-1] > 0.8).all()
    model.save(tmp_path / "model.ncp")
    np.testing.assert_array_equal(NCPRegressor.load(tmp_path / "model.ncp").predict(X), p.mean)
    if method == "odc+ncp":  # which says how uncertain it is, but not what rows have in common
        with pytest.raises(UserError, match=r"max_det goes by covariances .* odc\+ncp"):
            model.suggest(X, n=3, acquisition="max_det")
    else:
        assert len(set(model.suggest(X, n=3, acquisition="max_det"))) == 3


def test_a_method_a_trunk_and_noise_of_ones_own():
    X, y = wave(60)
    own = methods(TABLES)["bbb+ncp"]
    small = {"members": 1, "epochs": 3, "random_state": 0}
    assert np.isfinite(NCPRegressor(own, **small).fit(X, y).predict(X)).all()

    def trunk(inputs, *, key):
        return eqx.nn.MLP(inputs, 5, 8, 1, key=key)

    assert np.isfinite(NCPRegressor(trunk=trunk, **small).fit(X, y).predict(X)).all()
    model = NCPRegressor(input_prior=Gaussian(0.5), **small).fit(X, y)
    assert np.isfinite(model.predict(X)).all()
    for bad in ({"method": "nap"}, {"input_prior": "loud"}, {"members": 0}, {"epochs": 0}, {"flip": 2}):
        with pytest.raises(UserError, match=next(iter(bad))):
            NCPRegressor(**bad).fit(X, y)
    with pytest.raises(UserError, match="unknown setting 'gama'"):
        NCPRegressor(settings={"gama": 1}).fit(X, y)
    with pytest.raises(UserError, match="no column that is used"):
        NCPRegressor(input_scale={"z": 1.0}).fit(X, y)


def test_same_seed_same_numbers_and_members_do_not_depend_on_their_number():
    X, y = wave(60)
    one, two, more = (NCPRegressor(**dict(SMALL, members=n)).fit(X, y) for n in (2, 2, 3))
    np.testing.assert_array_equal(one.predict(X), two.predict(X))
    for a, b in zip(jax.tree.leaves(one.fitted_.weights), jax.tree.leaves(more.fitted_.weights), strict=True):
        np.testing.assert_array_equal(a, b[:2])
    other = NCPRegressor(**dict(SMALL, random_state=1)).fit(X, y)
    assert (other.predict(X) != one.predict(X)).any()


def test_the_order_of_rows_does_not_matter():
    X, y = wave(60)
    order = np.random.default_rng(1).permutation(60)
    one, two = NCPRegressor(**SMALL).fit(X, y), NCPRegressor(**SMALL).fit(X[order], y[order])
    np.testing.assert_array_equal(one.predict(X), two.predict(X))


def test_several_outputs_keep_their_units():
    X, y = wave(100)
    Y = np.column_stack([1000 * y, 1e-3 * y + 5])
    model = NCPRegressor(members=2, hidden=(32,), epochs=600, random_state=0).fit(X, Y)
    p = model.predict_distribution(X)
    assert p.mean.shape == p.std.shape == p.log_prob(Y).shape == (100, 2)
    assert (np.sqrt(np.mean((p.mean - Y) ** 2, axis=0)) < 0.75 * Y.std(axis=0)).all()  # a constant has 1
    assert model.sample_functions(X, n=2).shape == (2, 100, 2)
    assert model.information_gain(X).shape == (100,)


@pytest.mark.usefixtures("short_search")
def test_held_out_rows_of_several_outputs():
    X, y = wave(60)
    model = NCPRegressor(members=2, hidden=(8,), random_state=0)
    found = model.fit(X, np.column_stack([y, 1000 * y + 5])).validation_
    assert found["rmse"][1] == pytest.approx(1000 * found["rmse"][0], rel=0.5)
    assert found["nlpd"][1] == pytest.approx(np.log(1000) + found["nlpd"][0], abs=0.5)
    assert len(found["coverage"]) == 2
    assert found["rows"] == 6


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"members": 2.5}, "members must be at least 1 and a whole number, got 2.5"),
        ({"batch_size": 0}, "batch_size must be at least 1 and a whole number, got 0"),
        ({"epochs": 1.5}, "epochs must be at least 1"),
        ({"gamma": "a"}, "gamma must be a number, got 'a'"),
        ({"members": True}, "members must be at least 1 and a whole number, got True"),
        ({"hidden": 8}, "hidden must be whole numbers of units, one for each layer, .* got 8"),
        ({"hidden": "ab"}, "hidden must be whole numbers of units, one for each layer, .* got 'ab'"),
        ({"hidden": (8, 0)}, "hidden must be whole numbers of units"),
        ({"hidden": ()}, "hidden must be whole numbers of units"),
        ({"output_scale": -1}, "output_scale must be above 0 and finite, got -1"),
        ({"input_scale": "a"}, "input_scale must be a number from 0 up, or a dictionary of them, got 'a'"),
        ({"input_scale": {"x0": -1}}, "input_scale must be a number from 0 up, or a dictionary of them, got -1"),
        ({"settings": {"gamma": "a"}}, "gamma must be a number .* got 'a'"),
        ({"settings": {"hidden": "ab"}}, "hidden.* must be .* got"),
        ({"settings": {"batch_size": 2.5}}, "batch_size must be a whole number .* got 2.5"),
        ({"method": "bbb+ncp", "settings": {"direction": "up"}}, "direction must be .* got 'up'"),
        ({"min_rows": 0}, "min_rows must be at least 1 and a whole number, got 0"),
        ({"early_stopping": "no"}, "early_stopping must be True or False, got 'no'"),
        ({"settings": 3}, "settings must be a dictionary by the names of settings, got 3"),
    ],
)
def test_arguments_that_are_no_such_numbers(argument, message):
    with pytest.raises(UserError, match=message):
        NCPRegressor(**{**{name: value for name, value in SMALL.items() if name != "hidden"}, **argument}).fit(
            *wave(20)
        )


def test_the_tie_of_the_noise_follows_gamma_wherever_it_is_given():
    for arguments in ({"gamma": 0.5}, {"settings": {"gamma": 0.5}}):
        found = FitOptions.of(NCPRegressor("bbb+ncp", **arguments)).settings_for(100)
        assert (found.gamma, found.noise_tie) == (0.5, 0.5)
    own = FitOptions.of(NCPRegressor("bbb+ncp", settings={"gamma": 0.5, "noise_tie": 2.0}))
    assert own.settings_for(100).noise_tie == 2


def test_a_mini_batch_has_no_room_for_more_than_the_table():
    X, y = wave(40)
    large = NCPRegressor(**SMALL, batch_size=10**9).fit(X, y)
    np.testing.assert_array_equal(large.predict(X), NCPRegressor(**SMALL, batch_size=64).fit(X, y).predict(X))
    assert FitOptions.of(NCPRegressor(batch_size=10**9)).settings_for(1000).batch_size == 1024
    assert FitOptions.of(NCPRegressor(batch_size=100)).settings_for(1000).batch_size == 100


@pytest.mark.usefixtures("short_search")
@pytest.mark.parametrize("different", [1, 2, 3])
def test_few_different_rows_are_enough_to_search(different):
    X, y = wave(different)
    model = NCPRegressor(members=2, hidden=(4,), random_state=0)
    with nullcontext() if different > 1 else pytest.warns(UserWarning, match="no column varies"):
        model.fit(np.tile(X, (30, 1)), np.tile(y, 30))
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.usefixtures("short_search")
def test_few_members_search_on_many_rows(monkeypatch):
    for part in (search, recipe):  # which also noises fewer rows then
        monkeypatch.setattr(part, "MANY_ROWS", 40)
    monkeypatch.setattr(search, "_SEARCHERS", 2)
    X, y = wave(60)
    searched = []
    real = Ensemble.search
    monkeypatch.setattr(
        Ensemble,
        "search",
        lambda self, rows, held, *rest, **more: searched.append(len(held)) or real(self, rows, held, *rest, **more),
    )
    model = NCPRegressor(members=5, hidden=(4,), random_state=0).fit(X, np.column_stack([y, -y]))
    assert searched == [1, 1]
    assert len(model.steps_) == 5
    assert len(set(model.steps_[::2])) == len(set(model.steps_[1::2])) == 1
    shares = model.calibration_.share
    np.testing.assert_allclose(shares.sum(), 1, rtol=1e-6)
    assert len(set(shares[::2])) == len(set(shares[1::2])) == 1


@pytest.mark.usefixtures("short_search")
@pytest.mark.parametrize("method", ["det", "odc+ncp", "deep+ncp"])
def test_every_method_can_search(method):
    X, y = wave(60)
    model = NCPRegressor(method, members=2, hidden=(16,), random_state=0).fit(X, y)
    assert np.isfinite(model.predict_distribution(X).log_prob(y)).all()
    assert model.validation_["rows"] == 6


def test_names_on_one_side_only_go_by_position():
    X, y = wave(40)
    frame = pa.table({"a": X[:, 0]})
    named, plain = NCPRegressor(**SMALL).fit(frame.to_pandas(), y), NCPRegressor(**SMALL).fit(X, y)
    with pytest.warns(UserWarning, match="feature names"):
        np.testing.assert_array_equal(named.predict(X), plain.predict(X))
    with pytest.warns(UserWarning, match="feature names"):
        plain.predict(frame.to_pandas())
    np.testing.assert_array_equal(
        NCPRegressor(**SMALL).fit({"a": X[:, 0]}, y).predict({"a": X[:, 0]}), plain.predict(X)
    )
    rows = [[float(x), "red" if x > 0 else "blue"] for x in X[:, 0]]
    kinds = [column.kind for column in NCPRegressor(**SMALL).fit(rows, y).encoder_.columns]
    assert kinds == ["number", "category"]


def mixed(rows=120, seed=0):
    rng = np.random.default_rng(seed)
    colour = rng.choice(["red", "green", "blue"], rows)
    size = rng.normal(size=rows)
    y = size + 2.0 * (colour == "red") + 0.05 * rng.normal(size=rows)
    table = pa.table(
        {
            "size": pa.array(size, mask=rng.random(rows) < 0.1),
            "colour": colour,
            "made": np.datetime64("2020-01-01") + rng.integers(0, 900, rows).astype("timedelta64[D]"),
            "sold": rng.random(rows) < 0.5,
            "constant": np.ones(rows),
        }
    )
    return table, y


@pytest.mark.usefixtures("contrast_as_it_is", "long_training")
def test_mixed_tables_and_what_was_never_seen():
    table, y = mixed(250)
    model = NCPRegressor(members=2, hidden=(32,), epochs=60, random_state=0).fit(table, y)
    assert list(model.feature_names_in_) == table.column_names
    known = model.predict_distribution(table)
    assert np.corrcoef(known.mean, y)[0, 1] > 0.9
    odd = table.set_column(1, "colour", pa.array(["purple"] * 250))
    assert np.median(model.predict_distribution(odd).uncertainty) > 1.25 * np.median(known.uncertainty)
    missing = table.set_column(3, "sold", pa.nulls(250, pa.bool_()))
    assert np.median(model.predict_distribution(missing).uncertainty) > 1.1 * np.median(known.uncertainty)
    np.testing.assert_array_equal(model.predict(table.to_pandas()), known.mean)
    reordered = table.select(["colour", "size", "made", "sold", "constant"])
    np.testing.assert_array_equal(model.predict(reordered), known.mean)  # columns are taken by name
    with pytest.raises(UserError, match="infinite"):
        model.predict(table.set_column(0, "size", pa.array([np.inf] * 250)))


def test_progress_is_told(capsys):
    X, y = wave(60)
    heard = []
    NCPRegressor(members=1, hidden=(4,), random_state=0, callbacks=[heard.append]).fit(X[:30], y[:30])
    assert {one.stage for one in heard} == {"preparing", "searching", "training"}
    assert heard[-1].done == heard[-1].total
    NCPRegressor(verbose=True, **SMALL).fit(X, y)
    assert capsys.readouterr().out == ""


@pytest.mark.filterwarnings("ignore:no column varies")
@pytest.mark.parametrize("rows", [1, 2, 3, 5])
def test_few_rows(rows):
    X, y = wave(rows)
    model = NCPRegressor(members=1, hidden=(8,), random_state=0, epochs=2)
    if rows < 3:
        with pytest.raises(UserError, match=rf"nothing can be learned from {rows} samples? with.* min_rows={rows} "):
            model.fit(X, y)
        model.set_params(min_rows=rows)
    p = model.fit(X, y).predict_distribution(np.vstack([X, [[1000.0]]]))
    assert np.isfinite(p.mean).all()
    # Of one value nobody knows how it varies: as much as it is large.
    spread = y.std() if rows > 1 else abs(y[0])
    assert (p.std > (0.99 * spread if rows < 3 else 0)).all()


@pytest.mark.parametrize("y", [np.full(30, 7.0), 50 * np.sin(np.arange(30))], ids=["constant", "varied"])
def test_nothing_is_certain_without_inputs(y):
    X = pa.table({"a": np.ones(30), "b": ["x"] * 30})
    model = NCPRegressor(members=2, hidden=(8,), random_state=0, epochs=40)
    with pytest.warns(UserWarning, match=r"no column varies.* the mean and the spread of the target") as said:
        model.fit(X, y)
    assert said[0].filename == __file__
    p = model.predict_distribution(pa.table({"a": [1.0, 2.0, 1e9], "b": ["x", "y", None]}))
    assert p.mean == pytest.approx(np.full(3, y.mean()), abs=0.3 * (y.std() or 1))
    assert (p.std >= 0.99 * (y.std() or 1)).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:os.fork")
def test_a_fork_says_that_it_cannot_compute(fitted):
    prediction = fitted.predict_distribution([[0.0]])
    reader, writer = os.pipe()
    child = os.fork()
    if not child:  # nothing here may raise, or the tests would run twice
        signal.alarm(20)  # as it would hang
        heard = []
        for action in (
            lambda: fitted.predict([[0.0]]),
            lambda: prediction.quantile(0.5),
            lambda: fitted.suggest([[0.0]], n=1),
            lambda: NCPRegressor(**SMALL).fit([[0.0], [1.0], [2.0]], [0, 1, 2]),
        ):
            try:
                action()
            except UserError as error:
                heard.append(str(error))
            except BaseException as error:
                heard.append(repr(error))
        os.write(writer, "\n".join(heard).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as lines:
        heard = lines.read().splitlines()
    os.waitpid(child, 0)
    assert len(heard) == 4
    assert all("forked" in line and "'spawn' or 'forkserver'" in line for line in heard)
    assert np.isfinite(fitted.predict([[0.0]])).all()


def test_constant_and_extreme_targets():
    X, y = wave(40)
    for targets in (np.full(40, 7.0), 1e20 * y, 1e-20 * y, 1e9 + y):
        model = NCPRegressor(members=1, hidden=(8,), epochs=5, random_state=0).fit(X, targets)
        p = model.predict_distribution(X)
        assert np.isfinite(p.mean).all()
        assert (p.std > 0).all()
    assert NCPRegressor(**SMALL).fit(X, np.full(40, 7.0)).predict(X) == pytest.approx(np.full(40, 7.0), abs=0.5)
    with pytest.raises(UserError, match="1e30"):
        NCPRegressor(**SMALL).fit(X, 1e31 * y)


values = st.one_of(
    st.lists(st.floats(-1e9, 1e9) | st.none(), min_size=30, max_size=30),
    st.lists(st.booleans() | st.none(), min_size=30, max_size=30),
    st.lists(st.sampled_from(["a", "b", "c", "dé"]) | st.none(), min_size=30, max_size=30),
    st.lists(st.dates() | st.none(), min_size=30, max_size=30),
    st.just([3.0] * 30),
    st.lists(st.sampled_from([0.0, 1e300, -1e-300]), min_size=30, max_size=30),
)


@pytest.mark.filterwarnings("ignore:no column varies")
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(values, min_size=1, max_size=3))
def test_any_mix_of_columns(tmp_path_factory, columns):
    table = pa.table({f"c{i}": pa.array(column) for i, column in enumerate([*columns, columns[0]])})
    y = np.arange(30.0)
    model = NCPRegressor(members=1, hidden=(4,), epochs=1, random_state=0).fit(table, y)
    p = model.predict_distribution(table)
    assert np.isfinite(p.mean).all()
    assert np.isfinite(p.log_prob(y)).all()
    path = tmp_path_factory.mktemp("model") / "m.ncp"
    model.save(path)
    np.testing.assert_array_equal(NCPRegressor.load(path).predict(table), p.mean)
    assert NCPRegressor.load(path).predict_distribution(table.slice(0, 0)).mean.shape == (0,)


@pytest.mark.usefixtures("contrast_as_it_is", "long_training")
def test_gaps_along_a_small_principal_component_are_seen():
    """Few latent factors, many columns that follow them, and a gap where they differ least."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 6)) + 0.05 * rng.normal(size=(300, 6))
    standard = (X - X.mean(0)) / X.std(0)
    small = standard @ np.linalg.eigh(np.cov(standard.T))[1][:, 0]
    small /= small.std()
    y = standard[:, 0] + 1.5 * np.tanh(2 * small) + 0.05 * rng.normal(size=300)
    order = np.argsort(small)
    gap, rest = order[100:200], np.concatenate([order[:100], order[200:]])
    model = NCPRegressor(members=2, hidden=(64, 64), epochs=300, random_state=0).fit(X[rest], y[rest])
    inside, outside = model.predict_distribution(X[gap]), model.predict_distribution(X[rest])
    assert np.mean(np.abs(inside.mean - y[gap]) / inside.std) < 2
    assert np.median(inside.uncertainty) > np.median(outside.uncertainty)
