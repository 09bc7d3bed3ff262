"""Guaranteed intervals: the share of new rows that they hold, what they rest on, and when they are refused."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ncprior import NCPRegressor
from ncprior.errors import UserError
from ncprior.tables.conformal import MAX_SCORES, NOTHING, Conformal
from ncprior.tables.fitting import conformal_of, set_apart
from ncprior.tables.recipe import LabelledTable

LEVELS = st.floats(0.01, 0.99)


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=40), LEVELS)
def test_of_any_exchangeable_scores_at_least_the_share_is_below_what_the_others_say(scores, level):
    """Each score in turn is the new one: what is true of all of them on average is the guarantee itself."""
    assume(np.ceil(level * len(scores)) < len(scores))  # else the others are too few
    below = [
        one <= Conformal.of(np.delete(scores, i)[:, None], seed=0).factor(level)[0] for i, one in enumerate(scores)
    ]
    assert np.mean(below) >= level - 1e-9


@given(st.integers(1, 200), LEVELS)
def test_of_different_scores_no_more_than_one_is_below_in_vain(rows, level):
    """Intervals are no wider than they must be: coverage is less than 1 / (n + 1) above the level."""
    assume(level * (rows + 1) <= rows)
    rank = Conformal.of(np.arange(1.0, rows + 1)[:, None], seed=0).factor(level)[0]
    assert level - 1e-9 <= rank / (rows + 1) < level + 1 / (rows + 1)


@pytest.mark.parametrize(("level", "enough"), [(0.5, 1), (0.7, 3), (0.9, 9), (0.95, 19), (0.99, 99)])
def test_too_few_rows_are_refused_with_how_many_are_needed(level, enough):
    assert Conformal.of(np.ones((enough, 1)), seed=0).factor(level) == [1.0]
    if enough > 1:
        with pytest.raises(UserError, match=rf"of {level} needs {enough} rows .* there are {enough - 1}: fit"):
            Conformal.of(np.ones((enough - 1, 1)), seed=0).factor(level)


def test_what_is_no_level_is_refused():
    for level in (0.0, 1.0, 90, float("nan")):
        with pytest.raises(UserError, match="above 0 and below 1"):
            NOTHING.factor(level)


def test_of_many_rows_some_are_drawn():
    many = np.random.default_rng(0).exponential(size=(50_000, 2))
    conformal = Conformal.of(many, seed=0)
    assert conformal.scores.shape == (MAX_SCORES, 2)
    np.testing.assert_allclose(conformal.factor(0.9), np.quantile(many, 0.9, axis=0), rtol=0.1)


def table(rng, rows):
    """Noise with heavy tails that differs from row to row."""
    X = rng.uniform(-1, 1, (rows, 2))
    return X, 5e6 + 1e6 * (np.sin(3 * X[:, 0]) + (0.05 + np.abs(X[:, 1])) * rng.standard_t(3, rows))


TINY = {"method": "det", "members": 1, "hidden": (4,), "epochs": 1}


def labelled(X, y):
    return LabelledTable(pa.table({"a": X[:, 0], "b": X[:, 1]}), y.reshape(len(y), -1), None)


@pytest.fixture(scope="module")
def bad_model():
    """It has hardly learned anything, and that from targets of another kind."""
    X, y = table(np.random.default_rng(0), 60)
    return NCPRegressor(**TINY, random_state=0).fit(pa.table({"a": X[:, 0], "b": X[:, 1]}), np.sqrt(np.abs(y)))


@pytest.mark.parametrize(("rows", "level"), [(9, 0.9), (25, 0.9), (99, 0.5)])
def test_the_guarantee_holds_for_a_bad_model_on_average_over_tables(bad_model, rows, level):
    rng = np.random.default_rng(rows)
    covered = []
    for _ in range(40):
        conformal = conformal_of(bad_model.fitted_, labelled(*table(rng, rows)), seed=0)
        new = labelled(*table(rng, 60))
        prediction = bad_model.predict_distribution(new.table)._replace(conformal=conformal)
        low, high = prediction.interval(level, guaranteed=True)
        covered.append(np.mean((low <= new.targets[:, 0]) & (new.targets[:, 0] <= high)))
    error = np.std(covered) / np.sqrt(len(covered))
    exact = np.ceil(level * (rows + 1) - 1e-9) / (rows + 1)
    assert abs(np.mean(covered) - exact) < 3 * error
    assert exact >= level


def test_the_guarantee_holds_over_whole_fits():
    rng = np.random.default_rng(0)
    covered = []
    for seed in range(25):
        X, y = table(rng, 60)
        model = NCPRegressor(**TINY, conformal_fraction=0.4, random_state=seed).fit(X, y)
        new, truth = table(rng, 200)
        low, high = model.predict_distribution(new).interval(0.9, guaranteed=True)
        covered.append(np.mean((low <= truth) & (truth <= high)))
    assert np.mean(covered) > 0.9 - 2 * np.std(covered) / np.sqrt(len(covered))
    assert np.mean(covered) < 0.97  # 24 rows make it 92%


def test_rows_set_apart_are_drawn_whatever_their_order_and_learned_from_by_nothing():
    X, y = table(np.random.default_rng(1), 80)
    parts = set_apart(labelled(X, y), 0.25, seed=3)
    assert len(parts.conformal.targets) == 20
    both = np.concatenate([parts.training.targets, parts.conformal.targets])
    np.testing.assert_array_equal(np.sort(both[:, 0]), np.sort(y))
    np.testing.assert_array_equal(parts.training.targets[:, 0], y[parts.rows])
    order = np.random.default_rng(2).permutation(80)
    again = set_apart(labelled(X[order], y[order]), 0.25, seed=3)
    np.testing.assert_array_equal(np.sort(again.conformal.targets[:, 0]), np.sort(parts.conformal.targets[:, 0]))
    other = set_apart(labelled(X, y), 0.25, seed=4)
    assert not np.array_equal(np.sort(other.conformal.targets[:, 0]), np.sort(parts.conformal.targets[:, 0]))


@pytest.fixture(scope="module")
def model():
    X, y = table(np.random.default_rng(1), 80)
    y = np.column_stack([y, X[:, 0]])
    return NCPRegressor(**TINY, conformal_fraction=0.25, random_state=0).fit(X, y)


def test_the_model_is_that_of_the_other_rows(model):
    X, y = table(np.random.default_rng(1), 80)
    y = np.column_stack([y, X[:, 0]])
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    rows = set_apart(LabelledTable(pa.table({"a": X[:, 0], "b": X[:, 1]}), y, None), 0.25, seed).rows
    alone = NCPRegressor(**TINY, random_state=0).fit(X[rows], y[rows])
    np.testing.assert_array_equal(alone.predict(X), model.predict(X))
    assert model.n_rows_ == 60
    assert len(model.fitted_.conformal.scores) == 20
    assert not model.fitted_.conformal.refitted


def test_every_output_has_an_interval_of_its_own(model):
    X, _ = table(np.random.default_rng(2), 30)
    prediction = model.predict_distribution(X)
    low, high = prediction.interval(0.8, guaranteed=True)
    factor = model.fitted_.conformal.factor(0.8)
    assert factor.shape == (2,)
    assert factor[0] != factor[1]
    np.testing.assert_allclose(high - prediction.mean, factor * prediction.std)
    np.testing.assert_allclose(prediction.mean - low, factor * prediction.std)


def test_intervals_are_kept_in_files(model, tmp_path):
    model.save(tmp_path / "m.ncp")
    again = NCPRegressor.load(tmp_path / "m.ncp")
    X, _ = table(np.random.default_rng(2), 30)
    found, wanted = (one.predict_distribution(X).interval(0.9, guaranteed=True) for one in (again, model))
    np.testing.assert_array_equal(found, wanted)
    assert again.fitted_.conformal.refitted == model.fitted_.conformal.refitted
    assert again.conformal_fraction == 0.25


def test_training_that_goes_on_ends_the_guarantee():
    X, y = table(np.random.default_rng(1), 80)
    y = np.column_stack([y, X[:, 0]])
    growing = NCPRegressor(**TINY, conformal_fraction=0.25, random_state=0, warm_start=True).fit(X, y)
    growing.predict_distribution(X).interval(0.5, guaranteed=True)
    for go_on in (growing.partial_fit, growing.fit):
        growing.set_params(conformal_fraction=0.25)
        with pytest.raises(UserError, match=r"conformal_fraction sets rows apart from a first training.* set it to 0"):
            go_on(X, y)
        growing.set_params(conformal_fraction=0)
        go_on(X, y)
        with pytest.raises(UserError, match="needs rows that the model was fitted without, and there are none: fit"):
            growing.predict_distribution(X).interval(0.5, guaranteed=True)


def test_rows_that_do_not_count_the_same_are_not_set_apart():
    X, y = table(np.random.default_rng(1), 40)
    for weights in (np.linspace(0.1, 1, 40), np.arange(40) % 3):
        with pytest.raises(UserError, match="conformal_fraction is for rows that count the same"):
            NCPRegressor(**TINY, conformal_fraction=0.25).fit(X, y, weights)
    kept = NCPRegressor(**TINY, conformal_fraction=0.25).fit(X, y, np.arange(40) % 2)  # which leaves rows out
    assert len(kept.fitted_.conformal.scores) == 5


@pytest.mark.parametrize("fraction", [-0.1, 0.6, "all", float("nan")])
def test_fractions_that_mean_nothing(fraction):
    with pytest.raises(UserError, match="conformal_fraction must be"):
        NCPRegressor(**TINY, conformal_fraction=fraction).fit([[0.0]] * 9, np.arange(9))


@pytest.mark.usefixtures("short_search")
def test_rows_held_out_in_the_search_are_enough():
    rng = np.random.default_rng(0)
    X, y = table(rng, 120)
    model = NCPRegressor(members=2, hidden=(4,), validation_fraction=0.2, random_state=0).fit(X, y)
    conformal = model.fitted_.conformal
    assert conformal.refitted
    assert len(conformal.scores) == len(model.fitted_.held_out) == 24
    new, truth = table(rng, 2000)
    low, high = model.predict_distribution(new).interval(0.9, guaranteed=True)
    assert 0.78 < np.mean((low <= truth) & (truth <= high)) < 0.99
    weighted = NCPRegressor(members=2, hidden=(4,), validation_fraction=0.2, random_state=0)
    weighted.fit(X, y, 1 + np.arange(120) % 2)
    with pytest.raises(UserError, match="without weights"):
        weighted.predict_distribution(X).interval(guaranteed=True)
    # Copies are held out together, and one of them counts.
    model.fit(np.repeat(X, 2, 0), np.repeat(y, 2))
    assert len(model.fitted_.conformal.scores) == 24
    assert len(model.fitted_.held_out) == 48
