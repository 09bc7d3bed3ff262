"""Unlabelled rows as contrast points: the model is unsure where they are, and its mean stays what it is."""

from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncprior import NCPRegressor
from ncprior.core.table_priors import FromPool
from ncprior.data.encoding import Encoder
from ncprior.errors import UserError
from ncprior.tables import contrast, search, unlabelled
from ncprior.tables.families import families
from ncprior.tables.holdout import Stopping, hold_out
from ncprior.tables.options import FitOptions
from ncprior.tables.recipe import RowOrder, TrainingRows, make_spec, shift_and_scale
from ncprior.tables.unlabelled import WEIGHT, best_weight, combined, contrast_pool, draw

TINY = {"members": 1, "hidden": (4,), "epochs": 2, "random_state": 0}


def rows_of(count, seed, *, middle=False):
    """Rows to learn from, which leave out the middle of the first column, or those of the middle."""
    rng = np.random.default_rng(seed)
    first = rng.uniform(0.0, 0.2, count) if middle else rng.uniform(0.4, 1.0, count)
    X = np.column_stack([first * rng.choice([-1, 1], count), *rng.normal(size=(2, count))])
    return X, X[:, 0] + 0.1 * rng.normal(size=count)


@pytest.fixture(scope="module")
def models(long_training_in_module):  # noqa: ARG001
    """Without and with unlabelled rows, half of which lie where training rows do not."""
    X, y = rows_of(150, 0)
    pool = np.concatenate([rows_of(100, 1)[0], rows_of(100, 2, middle=True)[0]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contrast, "STEPS", 600)
        return NCPRegressor(**TINY).fit(X, y), NCPRegressor(**TINY).fit(X, y, X_unlabelled=pool)


def test_the_model_is_unsure_where_unlabelled_rows_are_also_at_others_there(models):
    on, off = rows_of(200, 3)[0], rows_of(200, 4, middle=True)[0]

    def detection(model):
        inside, outside = (model.predict_distribution(rows).uncertainty for rows in (on, off))
        return np.mean(inside[:, None] < outside)

    without, asked = map(detection, models)
    assert asked > 0.95
    assert asked > without + 0.05


def test_mean_and_noise_are_the_same(models):
    rows = np.concatenate([rows_of(50, 3)[0], rows_of(50, 4, middle=True)[0]])
    without, asked = (model.predict_distribution(rows) for model in models)
    np.testing.assert_array_equal(asked.mean, without.mean)
    np.testing.assert_array_equal(asked.noise, without.noise)
    assert not np.array_equal(asked.uncertainty, without.uncertainty)


def test_functions_and_covariances_spread_as_the_uncertainty(models):
    model, rows = models[1], np.concatenate([rows_of(20, 3)[0], rows_of(20, 4, middle=True)[0]])
    uncertainty = model.predict_distribution(rows).uncertainty / model.target_scale_
    features = np.asarray(model.fitted_.covariance_features(model.encoder_.transform(model._table(rows))))
    np.testing.assert_allclose(np.sqrt((features**2).sum(1)), uncertainty, rtol=1e-3)
    drawn = model.sample_functions(rows, 40, random_state=0) / model.target_scale_
    assert np.median(drawn.std(0) / uncertainty) == pytest.approx(1.0, abs=0.25)


def test_it_is_kept_in_files(models, tmp_path):
    model, rows = models[1], rows_of(50, 4, middle=True)[0]
    assert (model.fitted_.unlabelled, model.fitted_.contrast.unlabelled_weight) == (200, WEIGHT)
    model.save(tmp_path / "m.ncp")
    again = NCPRegressor.load(tmp_path / "m.ncp")
    np.testing.assert_array_equal(
        again.predict_distribution(rows).uncertainty, model.predict_distribution(rows).uncertainty
    )
    assert again.fitted_.unlabelled == 200


def test_training_that_goes_on_has_them_or_not_as_before(models, tmp_path):
    X, y = rows_of(40, 5)
    models[1].save(tmp_path / "m.ncp")
    growing = NCPRegressor.load(tmp_path / "m.ncp")
    with pytest.raises(UserError, match=r"no unlabelled rows are given, and some were when .* X_unlabelled"):
        growing.partial_fit(X, y)
    growing.partial_fit(X, y, X_unlabelled=X[:10])
    assert growing.fitted_.unlabelled == 10
    assert growing.fitted_.contrast.unlabelled_weight == WEIGHT
    models[0].save(tmp_path / "m.ncp")
    with pytest.raises(UserError, match="some unlabelled rows are given, and none were"):
        NCPRegressor.load(tmp_path / "m.ncp").partial_fit(X, y, X_unlabelled=X)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"method": "bbb+ncp"}, "method 'bbb\\+ncp'"),
        ({"method": "det"}, "method 'det'"),
        ({"gamma": 0.0}, "gamma 0"),
        ({"input_prior": lambda inputs, *, key: inputs}, "an input_prior of your own"),  # noqa: ARG005
    ],
)
def test_they_are_refused_where_they_have_no_effect(arguments, why):
    X, y = rows_of(30, 0)
    with pytest.raises(UserError, match=f"unlabelled rows .* have no effect with {why}; leave them out"):
        NCPRegressor(**{**TINY, **arguments}).fit(X, y, X_unlabelled=X)


def test_columns_are_those_of_the_training_rows():
    X, y = rows_of(30, 0)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "colour": np.where(X[:, 2] > 0, "red", "blue"), "same": 1})
    model = NCPRegressor(**TINY)
    with pytest.raises(UserError, match=r"unlabelled rows: the table lacks columns of training: 'colour'; add them"):
        model.fit(frame, y, X_unlabelled=frame[["b", "a"]])
    with pytest.raises(UserError, match="X_unlabelled has 2 columns, and X has 3"):
        model.fit(X, y, X_unlabelled=X[:, :2])
    with pytest.raises(UserError, match="no unlabelled rows"):
        model.fit(frame, y, X_unlabelled=frame[:0])
    # In any order, without what is left out, with values that training has not.
    other = frame.assign(colour="green", more=0.0).drop(columns="same")[["more", "colour", "b", "a"]]
    other.loc[3, "a"] = np.nan
    model.fit(frame, y, X_unlabelled=other)
    assert model.fitted_.unlabelled == 30


@given(st.lists(st.integers(0, 7), min_size=1, max_size=8), st.integers(1, 12), st.integers(0, 3))
def test_rows_are_drawn_in_one_pass_and_each_once(sizes, most, seed):
    rows = pa.table({"x": np.arange(sum(sizes))})
    ends = np.cumsum([0, *sizes])
    pieces = [rows.slice(start, size) for start, size in zip(ends, sizes, strict=False)]
    if not sum(sizes):
        with pytest.raises(UserError, match="no unlabelled rows"):
            draw(pieces, seed, most)
        return
    drawn = draw(pieces, seed, most).table["x"].to_numpy()
    assert len(drawn) == min(most, sum(sizes))
    assert (np.diff(drawn) > 0).all()
    np.testing.assert_array_equal(drawn, draw([rows], seed, most).table["x"].to_numpy())  # whatever the pieces


def test_messages_have_the_numbers_of_rows_in_the_whole_table(monkeypatch):
    """Of which some are drawn."""
    monkeypatch.setattr("ncprior.tables.estimator.draw", partial(draw, most=40))
    X, y = rows_of(30, 0)
    pool = rows_of(400, 1)[0]
    pool[300:, 1] = np.inf
    table, pool = (pa.table(dict(zip("abc", rows.T, strict=True))) for rows in (X, pool))
    numbers = draw([pool], int(np.random.RandomState(0).randint(2**31 - 1)), 40).numbers
    with pytest.raises(UserError, match=rf"infinite value in column 'b', row {numbers[numbers >= 300][0] + 1}: "):
        NCPRegressor(**TINY).fit(table, y, X_unlabelled=pool)


def test_every_row_is_drawn_as_often():
    counts = np.zeros(40)
    for seed in range(400):
        counts[draw([pa.table({"x": np.arange(40)})], seed, 10).table["x"].to_numpy()] += 1
    assert abs(counts - 100).max() < 4 * np.sqrt(400 * 0.25 * 0.75)


def test_a_pool_has_as_many_rows_of_each_part_and_one_of_few_sizes(monkeypatch):
    few, many = np.full((3, 2), 1.0), np.full((900, 2), 2.0)
    pool = contrast_pool([few, many, few[:0]], 300, seed=0)
    assert pool.shape == (1024, 2)
    assert (pool[:, 0] == 1).sum() == 512
    assert contrast_pool([few], 3, seed=0).shape == (256, 2)
    assert contrast_pool([many], 10**6, seed=0).shape == (unlabelled.MAX_ROWS, 2)
    monkeypatch.setattr(unlabelled, "_MAX_NUMBERS", 1_024)
    assert contrast_pool([many], 10**6, seed=0).shape == (512, 2)


def test_variances_are_weighted():
    noised, asked = np.array([3.0, 1.0]), np.array([4.0, 1.0])
    np.testing.assert_allclose(combined(noised, asked, 0.5), [np.sqrt(12.5), 1.0])
    np.testing.assert_allclose(combined(noised, asked, 0.0), noised)
    np.testing.assert_allclose(combined(noised, asked, 1.0), asked)


def test_the_largest_weight_that_costs_little_is_chosen():
    assert best_weight(lambda weight: -((weight - 0.1) ** 2)) == 0.1
    assert best_weight(lambda weight: -10 * weight) == 0.0
    assert best_weight(lambda weight: -0.009 * weight) == 1.0


def test_in_the_search_the_inputs_of_a_gap_are_unlabelled_rows_for_who_holds_it_out():
    X, y = rows_of(80, 0)
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]})
    encoder = Encoder.fit(table)
    inputs = encoder.transform(table)
    order = RowOrder.of(inputs, y[:, None], None)
    inputs, targets = inputs[order.indices], y[order.indices, None]
    pool = pa.table({name: np.full(5, 9.0) for name in "abc"})
    training = TrainingRows(table, encoder, order, inputs, targets, *shift_and_scale(targets, None), pool)
    options = FitOptions(members=4, hidden=(8,))
    spec = make_spec(options, encoder, rows=80, outputs=1)
    held = hold_out(inputs[:, :3], 4, Stopping(), np.random.default_rng(0), per_gap=2)
    data = search.member_data(training, options, spec, held, families=families(4, quantiles=True)).contrast
    for member, one in enumerate(held):
        prior = data.unlabelled_tables[member].input_prior
        assert isinstance(prior, FromPool)
        own = np.asarray(data.rows[member].inputs)
        found = {tuple(row) for row in np.asarray(prior.pool)}
        gap = {tuple(row) for row in own[one.gap]}
        others = {tuple(row) for row in own[np.concatenate([one.train, one.random])]}
        assert gap <= found
        assert not others & found
        assert len(found) == len(gap) + 1
        assert not isinstance(data.tables[member].input_prior, FromPool)


@pytest.mark.usefixtures("short_search")
def test_held_out_rows_choose_the_weight(monkeypatch):
    chosen = iter([0.5, 0.5, 0.1, 0.1])
    monkeypatch.setattr(search, "best_weight", lambda score: next(chosen) if np.isfinite(score(0.5)) else 0.0)
    X, y = rows_of(60, 0)
    model = NCPRegressor(members=2, hidden=(4,), random_state=0).fit(X, y, X_unlabelled=rows_of(30, 1, middle=True)[0])
    assert model.fitted_.contrast.unlabelled_weight == 0.1
    assert model.validation_ is not None
