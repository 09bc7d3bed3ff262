"""Weights of rows: in training, in what is held out, and copies of rows that stand for them."""

import numpy as np
import pytest

from ncprior import NCPRegressor
from ncprior.errors import UserError
from ncprior.tables import search
from ncprior.tables.arguments import counts_of
from test_estimator import SMALL, wave


def test_weights_count_as_rows():
    X, y = wave(60)
    weights = np.random.default_rng(0).integers(0, 3, 60)
    rows = np.repeat(np.arange(60), weights)
    weighted = NCPRegressor(**SMALL).fit(X, y, sample_weight=weights)
    repeated = NCPRegressor(**SMALL).fit(X[rows], y[rows])
    np.testing.assert_array_equal(weighted.predict(X), repeated.predict(X))
    # Fractions: rows that count little have little to say.
    pull = np.where(np.arange(60) % 2, 5.0, -5.0)
    model = NCPRegressor(members=2, hidden=(8,), epochs=60, random_state=0)
    mean = model.fit(X, pull, sample_weight=np.where(np.arange(60) % 2, 1.5, 0.015)).predict(X)
    assert mean.mean() > 3
    with pytest.raises(ValueError, match="at least one non-zero"):
        model.fit(X, y, sample_weight=np.zeros(60))


@pytest.mark.parametrize(
    "weights",
    [
        np.r_[np.ones(20), np.full(10, 3)],
        np.r_[np.full(20, 2), np.full(10, 3)],
        np.r_[np.full(20, 0.5), np.full(10, 1.5)],
        np.r_[np.zeros(5), np.full(15, 0.25), np.full(10, 1)],
        np.r_[np.full(20, 0.5), np.full(10, 200.5)],
        np.r_[np.ones(20), np.full(10, 1.37)],
        np.random.default_rng(0).uniform(size=30),
        np.random.default_rng(0).integers(1, 500, 30),
        np.full(30, 7),
    ],
    ids=["counts", "2 and 3", "halves", "with zeros", "0.5 and 200.5", "mixed", "fractions", "whole", "equal"],
)
def test_only_proportions_of_weights_matter(weights):
    X, y = wave(30)
    model = NCPRegressor(**SMALL)
    found = model.fit(X, y, sample_weight=weights).predict(X, return_std=True)
    for factor in (2.0, 1 / 3, 1e-3, 1e20):
        again = model.fit(X, y, sample_weight=factor * weights).predict(X, return_std=True)
        np.testing.assert_allclose(again, found, rtol=1e-6)
    without = model.fit(X, y).predict(X)
    assert np.array_equal(found[0], without) == (weights == weights[0]).all()


def test_weights_in_the_proportions_of_whole_numbers_up_to_ten_are_counts():
    assert counts_of(np.array([1, 2, 10]) / 7).tolist() == [1, 2, 10]
    assert counts_of(np.array([0.1, 0.3, 0.7], np.float32)).tolist() == [1, 3, 7]
    assert counts_of(np.array([6, 9])).tolist() == [2, 3]
    assert counts_of(np.array([9, 10])).tolist() == [9, 10]
    for weights in ([1, 11], [1, 1.01], [10, 11], [1, np.pi], [1e-300, 1]):
        assert counts_of(np.array(weights)) is None
    X, y = wave(30)
    weights = np.where(np.arange(30) < 10, 1.5, 0.5)
    model = NCPRegressor(**SMALL).fit(X, y, sample_weight=weights)
    rows = np.repeat(np.arange(30), np.where(np.arange(30) < 10, 3, 1))
    assert model.n_rows_ == len(rows)
    np.testing.assert_array_equal(model.predict(X), NCPRegressor(**SMALL).fit(X[rows], y[rows]).predict(X))


@pytest.mark.parametrize("batch_size", [16, 64, 1024])
def test_relative_weights_count_over_the_table_whatever_the_mini_batch(batch_size):
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 2, (1000, 1)).astype(float), np.arange(1000) < 5
    X[:5, 0] = 0, 1, 0, 1, 0
    weights = np.where(y, 200.5, 0.5)
    model = NCPRegressor(members=2, hidden=(4,), epochs=max(10, batch_size // 6), batch_size=batch_size, random_state=0)
    found = model.fit(X, y.astype(float), sample_weight=weights).predict(X)
    assert found.mean() == pytest.approx(np.average(y, weights=weights), abs=0.03)  # 0.668
    assert model.n_rows_ == 1000
    if batch_size == 64:
        for factor in (1 / 3, 2.0):  # doubled, these are whole numbers: 1 and 401
            again = model.fit(X, y.astype(float), sample_weight=weights * factor).predict(X)
            np.testing.assert_array_equal(again, found)


@pytest.mark.usefixtures("short_search")
def test_relative_weights_count_in_what_held_out_rows_say():
    """Rows that count next to nothing are wild: the noise, the scores and the calibration are those of the others."""
    X, y = wave(120)
    light = np.arange(120) % 2 == 0
    wild = y + np.where(light, 30.0 * np.random.default_rng(1).normal(size=120), 0.0)
    model = NCPRegressor(members=2, hidden=(16,), random_state=0)
    found = model.fit(X, wild, sample_weight=np.where(light, 1e-6, 0.5))
    assert found.validation_["rmse"] < 1
    assert np.median(found.predict_distribution(X).std) < 2  # with the wild rows it would be more than 20
    assert found.validation_["rows"] <= 18
    first = found.validation_, found.predict(X)
    found.fit(X, wild, sample_weight=np.where(light, 2e-6, 1.0))
    assert found.validation_ == first[0]
    np.testing.assert_array_equal(found.predict(X), first[1])


def test_a_heavy_row_is_not_held_out_in_part():
    X, y = wave(60)
    weights = np.where(np.arange(60) < 6, 10.5, 0.5)
    parts = []
    kept = search.hold_out

    def watched(*arguments, equal, per_gap):
        parts.append((equal, kept(*arguments, equal=equal, per_gap=per_gap)))
        return parts[-1][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "hold_out", watched)
        NCPRegressor(members=2, hidden=(4,), random_state=0).fit(X, y, sample_weight=weights)
    ((equal, held),) = parts
    assert len(equal) > 70
    for part in held:
        assert not set(equal[part.train]) & set(equal[np.concatenate([part.gap, part.random])])


@pytest.mark.usefixtures("short_search")
def test_copies_of_a_row_are_held_out_together():
    X, y = wave(30)
    for times in (2, 3):
        model = NCPRegressor(members=2, hidden=(4,), random_state=0)
        heard = model.fit(np.repeat(X, times, 0), np.repeat(y, times))
        assert heard.validation_["rows"] % times == 0
        # Weights of 2 and 3, without a common divisor: some rows have one copy more.
        more = np.where(np.arange(30) < 10, times + 1, times)
        heard = model.fit(np.repeat(X, more, 0), np.repeat(y, more)).validation_
        assert model.fit(X, y, sample_weight=more).validation_ == heard
    # Weights that are all the same are no weights.
    without = model.fit(X, y).validation_
    assert model.fit(X, y, sample_weight=np.full(30, 2)).validation_ == without
    # A few copies are as likely among the rows to come, and may be parted.
    few = NCPRegressor(members=2, hidden=(4,), random_state=0).fit(np.vstack([X, X[:4]]), np.append(y, y[:4]))
    assert few.validation_["rows"] == 3


@pytest.mark.usefixtures("short_search")
def test_copies_that_stand_for_weights_give_nothing_away():
    """However few they are: noise cannot be predicted, and held-out rows must say so."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 2)), rng.normal(size=100)
    model = NCPRegressor(members=2, hidden=(32,), random_state=0)
    weights = np.where(np.arange(100) < 30, 2.0, 1.0)
    found = model.fit(X, y, sample_weight=weights).validation_
    held = found["rows"]
    same = model.fit(np.repeat(X, weights.astype(int), 0), np.repeat(y, weights.astype(int))).validation_
    assert held >= 13 == same["rows"]
    assert found["rmse"] > 0.8


@pytest.mark.usefixtures("short_search")
def test_weights_of_one_are_no_weights():
    """Copies of rows that the table has by itself do not stand for weights then, and may be parted."""
    X, y = wave(40)
    X, y = np.vstack([X, X[:8]]), np.append(y, y[:8])
    model = NCPRegressor(members=2, hidden=(4,), random_state=0)
    without = model.fit(X, y).predict(X)
    np.testing.assert_array_equal(model.fit(X, y, sample_weight=np.ones(48)).predict(X), without)
    dropped = np.arange(48) > 1
    without = model.fit(X[dropped], y[dropped]).predict(X)
    np.testing.assert_array_equal(model.fit(X, y, sample_weight=dropped).predict(X), without)


@pytest.mark.parametrize("weight", [1e31, 1e300, 1.7e308])
def test_weights_that_overflow_are_refused(weight):
    X, y = wave(20)
    with pytest.raises(UserError, match="sample_weight has values above 1e30"):
        NCPRegressor(**SMALL).fit(X, y, sample_weight=np.append(np.ones(19), weight))
