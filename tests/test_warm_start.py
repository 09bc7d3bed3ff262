"""Training that goes on: warm_start and partial_fit."""

import pickle

import equinox as eqx
import numpy as np
import pytest

from ncprior import NCPRegressor
from ncprior.errors import UserError
from ncprior.tables import contrast, recipe
from test_estimator import SMALL, wave


def test_going_on_keeps_what_was_learned():
    X, y = wave(200)
    model = NCPRegressor(members=2, hidden=(16,), epochs=100, warm_start=True, random_state=0).fit(X, y)
    before, steps = np.mean((model.predict(X) - y) ** 2), model.steps_
    encoder = model.encoder_
    model.fit(X, y)
    assert model.encoder_ is encoder
    assert model.steps_[0] > steps[0]
    assert np.mean((model.predict(X) - y) ** 2) < 1.5 * before
    model.partial_fit(X[:20], y[:20])
    assert np.mean((model.predict(X) - y) ** 2) < 2 * before


@pytest.fixture(scope="module", autouse=True)
def _some_steps():
    """Contrast networks that learn something, so that their arguments count."""
    before, contrast.STEPS = contrast.STEPS, 20
    yield
    contrast.STEPS = before


@pytest.fixture(scope="module")
def begun():
    """Training that can go on, its rows, and what it comes to if nothing is changed."""
    X, y = wave(40)
    model = NCPRegressor(**SMALL, warm_start=True).fit(X, y)
    return pickle.dumps(model), X, y, pickle.loads(pickle.dumps(model)).fit(X, y).predict(X, return_std=True)


@pytest.mark.parametrize(
    "changed",
    [
        {"method": "det"},
        {"hidden": (9,)},
        {"members": 3},
        {"trunk": lambda inputs, *, key: eqx.nn.Linear(inputs, 8, key=key), "hidden": (128, 128)},
        {"settings": {"activation": "leaky_relu"}},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_training_that_goes_on_refuses_other_networks(begun, changed):
    model, X, y, _ = begun
    model = pickle.loads(model)
    before = model.predict(X)
    for learn in (model.set_params(**changed).fit, model.partial_fit):
        with pytest.raises(UserError, match="training that goes on keeps it; set it back, or train anew"):
            learn(X, y)
    np.testing.assert_array_equal(model.predict(X), before)


def test_training_that_goes_on_wants_enough_rows(begun):
    model, X, y, _ = begun
    model = pickle.loads(model).set_params(min_rows=1_000)
    for learn, rows in ((model.fit, 40), (model.partial_fit, 80)):
        with pytest.raises(UserError, match=f"{rows} rows are fewer than min_rows=1000"):
            learn(X, y)


@pytest.mark.parametrize(
    "changed",
    [{"learning_rate": 0.1}, {"batch_size": 16}, {"gamma": 1000.0}, {"input_scale": 0.1}, {"epochs": 9}],
    ids=lambda changed: next(iter(changed)),
)
def test_training_that_goes_on_takes_arguments_as_they_are_now(begun, changed):
    model, X, y, unchanged = begun
    changed_model = pickle.loads(model).set_params(**changed).fit(X, y)
    assert not np.array_equal(changed_model.predict(X, return_std=True), unchanged)


def test_going_on_does_not_depend_on_the_order_of_the_rows():
    X, y = wave(60)
    order = np.random.default_rng(0).permutation(60)
    found = []
    for learn in ("fit", "partial_fit"):
        for places in (np.arange(60), order):
            model = NCPRegressor(**SMALL, warm_start=True).fit(X[:40], y[:40])
            found.append(getattr(model, learn)(X[places], y[places]).predict(X))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[2], found[3])


@pytest.mark.usefixtures("short_search")
def test_scores_of_earlier_networks_are_not_those_of_the_present_ones():
    X, y = wave(60)
    for learn in ("fit", "partial_fit"):
        model = NCPRegressor(members=2, hidden=(4,), warm_start=True, random_state=0).fit(X, y)
        assert model.validation_["rows"] == len(model.fitted_.held_out) == 6
        getattr(model, learn)(X, y)
        assert model.validation_ is model.fitted_.held_out is None


def test_noise_keeps_the_shape_of_the_rows_that_were_there_before(monkeypatch):
    """A column that is constant among a few new rows is still noised as far as it varies."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 2)), rng.normal(size=100)
    model = NCPRegressor(**SMALL).fit(X, y)
    found = []
    kept = recipe.coloring_matrix
    monkeypatch.setattr(recipe, "coloring_matrix", lambda *rows: found.append(kept(*rows)) or found[-1])
    model.partial_fit(np.column_stack([[0.1, 0.2, 0.3], [1.0, 1.0, 1.0]]), y[:3])
    (shape,) = found
    np.testing.assert_allclose(np.sqrt(np.diag(shape @ shape.T)), 1, atol=0.35)


@pytest.mark.parametrize("epochs", [0, 1.5])
def test_arguments_are_checked_when_training_goes_on(epochs):
    model = NCPRegressor(**SMALL, warm_start=True).fit(*wave(20))
    with pytest.raises(UserError, match="epochs must be at least 1 and a whole number"):
        model.set_params(epochs=epochs).fit(*wave(20))


def test_rows_that_come_in_change_a_model_trained_on_many_only_a_little():
    X, y = wave(100)
    model = NCPRegressor(**SMALL).fit(X, y)
    before, names = model.predict(X), model.target_names_
    with pytest.raises(UserError, match="axes or outputs"):
        model.partial_fit(X, np.column_stack([y, y]))
    np.testing.assert_array_equal(model.predict(X), before)
    model.partial_fit(X[:5], y[:5])
    assert model.n_rows_ == 105
    assert 0 < np.abs(model.predict(X) - before).max() < 0.3
    assert model.target_names_ is names
