"""Candidates of batch rules: what is drawn, by which weights, and that pieces and shards do not matter."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncprior.data.frames import as_table
from ncprior.tables import candidates
from ncprior.tables.candidates import Kept, Reservoir, RowWeights, best, draw, hashed, lowest_keys, row_keys, sizes
from ncprior.tables.estimator import NCPRegressor

ROWS = 20_000


def keyed(rows=ROWS, seed=0, weights=None):
    """Rows with keys, as a pass over a pool leaves them."""
    numbers = np.arange(rows, dtype=np.uint64)
    log_weights = np.zeros(rows) if weights is None else np.log(weights)
    return Kept(pa.table({"row": numbers}), numbers, row_keys(numbers, log_weights, seed))


def kept(whole, count, parts):
    reservoir = Reservoir(sizes(count))
    for rows in parts:
        reservoir.add(whole.take(np.asarray(rows, np.int64)))
    return reservoir.kept()


def numbers_of(found, drawn):
    return found.numbers[drawn.rows].tolist()


@pytest.fixture(scope="module")
def model():
    inputs = np.random.default_rng(0).normal(size=(60, 2))
    return NCPRegressor(members=2, epochs=5, hidden=(8,), random_state=0).fit(inputs, inputs.sum(1))


def test_all_rows_of_a_small_pool_are_candidates_and_stand_for_themselves():
    found = kept(keyed(50), 50, [np.arange(50)])
    drawn = draw(found, 50, 0)
    assert sorted(numbers_of(found, drawn)) == list(range(50))
    np.testing.assert_array_equal(drawn.weights, 1.0)


def test_half_is_uniform_and_the_other_half_is_drawn_by_weights():
    weights = np.ones(ROWS)
    weights[:200] = 100.0
    counts = np.zeros(ROWS)
    for seed in range(10):
        found = kept(keyed(seed=seed, weights=weights), 1000, [np.arange(ROWS)])
        drawn = draw(found, 1000, seed)
        assert len(drawn.rows) == 1000
        counts[numbers_of(found, drawn)] += 1
    # By hand: 500 of 20,000 uniformly. Of the others, rows of weight w with the chance 1 - exp(-w c), 500 in all:
    # 19,305 (1 - exp(-c)) + 195 (1 - exp(-100 c)) = 500 for c = 0.0177.
    rare = counts[:200].mean() / 10
    assert rare == pytest.approx(1 - 0.975 * np.exp(-1.77), abs=0.03)
    assert counts[200:].mean() / 10 == pytest.approx((1000 - 200 * rare) / (ROWS - 200), rel=0.02)


def test_weights_make_sums_over_candidates_those_over_the_pool():
    random = np.random.default_rng(0)
    weights = np.exp(random.uniform(0, np.log(100), ROWS))
    values = np.stack([np.ones(ROWS), weights, random.normal(3, 1, ROWS)])
    sums = []
    for seed in range(20):
        found = kept(keyed(seed=seed, weights=weights), 1000, [np.arange(ROWS)])
        drawn = draw(found, 1000, seed)
        sums.append(values[:, numbers_of(found, drawn)] @ drawn.weights)
    np.testing.assert_allclose(np.mean(sums, axis=0), values.sum(1), rtol=0.02)


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 400), max_size=8), st.integers(1, 40))
def test_pieces_and_their_order_do_not_matter(seed, cuts, count):
    """Also if rows of one id come several times, with other inputs and so other weighted keys."""
    random = np.random.default_rng(seed)
    numbers = random.integers(0, 120, 400).astype(np.uint64)
    keys = row_keys(numbers, random.choice([0.0, 1.0, 3.0], 400), seed % 7)
    whole = Kept(pa.table({"number": numbers}), numbers, keys)
    order = random.permutation(400)
    parts = np.split(order, sorted(cuts))
    found, alone = kept(whole, count, parts), kept(whole, count, [np.arange(400)])
    drawn, expected = draw(found, count, seed % 7), draw(alone, count, seed % 7)
    assert numbers_of(found, drawn) == numbers_of(alone, expected)
    np.testing.assert_array_equal(found.keys[drawn.rows], alone.keys[expected.rows])
    np.testing.assert_array_equal(drawn.weights, expected.weights)
    assert len(set(numbers_of(found, drawn))) == len(drawn.rows) == min(count, len(np.unique(numbers)))


@settings(max_examples=25)
@given(st.integers(0, 1000), st.integers(2, 300))
def test_keys_that_are_too_low_are_never_candidates(seed, count):
    random = np.random.default_rng(seed)
    whole = keyed(5_000, seed, np.exp(random.uniform(0, random.uniform(0, 4.6), 5_000)))
    worth = np.flatnonzero((whole.keys >= lowest_keys(5_000, count)).any(1))
    found, alone = kept(whole, count, [worth]), kept(whole, count, [np.arange(5_000)])
    assert numbers_of(found, draw(found, count, seed)) == numbers_of(alone, draw(alone, count, seed))


def test_shards_of_large_pools_keep_few_rows_in_all():
    """By the probability of a Gumbel number above the key: 1 - exp(-exp(-key))."""
    for rows in (10**8, 10**12):
        expected = -np.expm1(-np.exp(-np.array(lowest_keys(rows, 50_000)))) * rows
        np.testing.assert_allclose(expected, [1.25 * 25_001 + 8 * 158 + 64, 1.25 * 50_001 + 8 * 224 + 64], rtol=1e-3)
    assert lowest_keys(60_000, 50_000) == (lowest_keys(60_000, 50_000)[0], -np.inf)


def test_rows_far_from_the_labelled_ones_weigh_more(model):
    fitted = model.fitted_
    inputs = fitted.encoder.transform(as_table([[0.0, 0.0], [2.5, -2.5], [30.0, 30.0]]))
    weights = np.exp(RowWeights(fitted, fitted.training_sample)(inputs))
    assert weights[0] == pytest.approx(1.0, abs=1e-6)
    assert 1.0 < weights[1] < weights[2]
    assert weights[2] == pytest.approx(candidates.LARGEST_WEIGHT)
    labelled = RowWeights(fitted, fitted.encoder.transform(as_table([[30.0, 30.0], [31.0, 30.0]])))
    assert labelled(inputs)[2] == pytest.approx(0.0, abs=1e-6)


def test_the_weight_of_a_row_does_not_depend_on_the_rows_beside_it(model):
    inputs = np.random.default_rng(1).normal(size=(3000, model.fitted_.spec.width)).astype(np.float32) * 3
    weigh = RowWeights(model.fitted_, model.fitted_.training_sample)
    whole = weigh(inputs)
    for part in (slice(0, 1), slice(70, 190), slice(1500, 2900)):
        np.testing.assert_array_equal(weigh(inputs[part]), whole[part])


@pytest.mark.parametrize("acquisition", ["kmeans_inputs", "k_center"])
def test_a_region_with_few_rows_has_candidates(acquisition, model, monkeypatch):
    """Two rows of 30,000: of 3,000 uniform candidates they would be among with a chance of 0.19."""
    monkeypatch.setattr(candidates, "CANDIDATES", 3_000)
    pool = np.random.default_rng(2).normal(size=(30_000, 2))
    pool[[11_111, 22_222]] = [[30.0, 30.0], [31.0, 30.0]]
    fitted, table = model.fitted_, as_table(pool)
    excluded = np.zeros(30_000, bool)
    excluded[::2] = True
    seen = 0
    for seed in range(8):
        drawn = candidates.of_table(fitted, table, 3_000, excluded=excluded, seed=seed)
        assert not excluded[drawn.rows].any()
        assert len(drawn.rows) == 3_000
        seen += 11_111 in drawn.rows
    assert seen >= 7
    assert drawn.weights.sum() == pytest.approx(15_000, rel=0.1)
    picked = model.suggest(pool, 5, acquisition=acquisition, exclude=excluded, random_state=0)
    assert len(set(picked.tolist())) == 5
    assert not excluded[picked].any()
    np.testing.assert_array_equal(
        picked, model.suggest(pool, 5, acquisition=acquisition, exclude=excluded, random_state=0)
    )
    if acquisition == "k_center":  # which goes for what is farthest
        assert 11_111 in picked


def test_equal_keys_go_by_the_number_of_the_row():
    assert best(np.zeros((4, 1)), np.array([7, 3, 9, 3]), 2).tolist() == [1, 0]


def test_hashes_are_the_same_everywhere():
    """The first 8 bytes of BLAKE2b with a digest of 8, worked out with another program (b2sum -l 64)."""
    assert [f"{number:016x}" for number in hashed(["", "r1"])] == ["e4a6a0577479b2b4", "83dd8a0c5b69bd30"]
