"""Batch rules: every pick against determinants, inverses and distances in float64, worked out from dense matrices."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncprior.core.acquisition import information_gain
from ncprior.core.prediction import Prediction
from ncprior.tables import batches
from ncprior.tables.batches import RULES, Pool, sketch

examples = settings(max_examples=50, deadline=None, derandomize=True)

KEY = jax.random.key(0)
ROWS, LABELS, FEATURES, COUNT = 12, 4, 3, 5

DRAWN = ("kmeans_inputs", "kmeans_greedy", "kmeans_pp")

# One compiled program for each rule, count and shape.
COMPILED = {name: jax.jit(partial(rule.function, key=KEY), static_argnums=2) for name, rule in RULES.items()}
rules = pytest.mark.parametrize("name", RULES)
certain = pytest.mark.parametrize("name", [name for name in RULES if name not in DRAWN])
BY_DISTANCE = ("lcmd", "k_center", *DRAWN)


def pick(name, pool, labelled, noise, excluded, count=COUNT, **more):
    """The rows that a rule picks, in float32."""
    rows = Pool.of(np.asarray(pool, np.float32), noise, excluded, **more)
    return np.asarray(COMPILED[name](rows, jnp.asarray(labelled, jnp.float32), count))


def more_log_det(pool, labelled, noise, excluded, picked):  # noqa: ARG001
    """By how much each row, added to the batch, raises ``ln det(I + K / noise^2)``."""
    scaled = pool / noise[:, None]

    def log_det(batch):
        return np.linalg.slogdet(np.eye(len(batch)) + scaled[batch] @ scaled[batch].T)[1]

    return np.array([log_det([*picked, row]) for row in range(len(pool))]) - log_det(picked)


def less_trace(pool, labelled, noise, excluded, picked):  # noqa: ARG001
    """By how much each row, added to the batch, lowers the mean variance of all rows."""
    scaled = pool / noise[:, None]
    fisher = pool.T @ pool / len(pool)

    def trace(batch):
        return np.trace(np.linalg.inv(np.eye(pool.shape[1]) + scaled[batch].T @ scaled[batch]) @ fisher)

    return trace(picked) - np.array([trace([*picked, row]) for row in range(len(pool))])


def squared_distances(pool, labelled, picked):
    """From every row to every centre, or to the origin if there are none."""
    centres = np.concatenate([labelled, pool[picked]])
    centres = centres if len(centres) else np.zeros((1, pool.shape[1]))
    return ((pool[:, None] - centres) ** 2).sum(-1)


def cluster_distance(pool, labelled, noise, excluded, picked):  # noqa: ARG001
    """Distances of the rows in the largest cluster, nothing for others."""
    squares = squared_distances(pool, labelled, picked)
    left = ~excluded & ~np.isin(np.arange(len(pool)), picked)
    cluster, distance = squares.argmin(1), squares.min(1)
    sizes = [distance[left & (cluster == centre)].sum() for centre in range(squares.shape[1])]
    return np.where(cluster == np.argmax(sizes), distance, -np.inf)


def distance(pool, labelled, noise, excluded, picked):  # noqa: ARG001
    """Distances from the nearest centre."""
    return squared_distances(pool, labelled, picked).min(1)


TRUTH = {"max_det": more_log_det, "bait": less_trace, "lcmd": cluster_distance, "k_center": distance}


def brute_force(name, pool, labelled, noise, excluded, count=COUNT):
    """The rows that a rule should pick, in float64."""
    picked: list[int] = []
    for _ in range(count):
        scores = np.where(excluded, -np.inf, TRUTH[name](pool, labelled, noise, excluded, picked))
        scores[picked] = -np.inf
        picked.append(int(scores.argmax()))
    return picked


def problem(seed, rows=ROWS, labels=LABELS, features=FEATURES):
    """A random pool with labelled rows, noise of 0.1 to 1 and some rows excluded."""
    rng = np.random.default_rng(seed)
    pool = rng.normal(size=(rows, features)) * rng.uniform(0.2, 2, features)
    # As the program sees them.
    pool = pool.astype(np.float32).astype(np.float64)
    labelled = rng.normal(size=(labels, features)).astype(np.float32).astype(np.float64)
    return pool, labelled, rng.uniform(0.1, 1, rows), rng.permutation(rows) < rows // 6


@certain
@pytest.mark.parametrize("seed", range(10))
def test_picks_are_those_of_dense_matrices(name, seed):
    parts = problem(seed)
    assert pick(name, *parts).tolist() == brute_force(name, *parts)


@certain
@pytest.mark.parametrize("seed", range(3))
def test_picks_without_labelled_rows(name, seed):
    parts = problem(seed, labels=0)
    assert pick(name, *parts).tolist() == brute_force(name, *parts)


@pytest.mark.parametrize("name", ["max_det", "lcmd", "k_center"])
def test_first_pick_without_labelled_rows_has_the_largest_norm(name):
    pool, labelled, _, excluded = problem(0, labels=0)
    found = pick(name, pool, labelled, np.ones(ROWS), excluded)
    assert found[0] == np.where(excluded, -1, (pool**2).sum(1)).argmax()


@pytest.mark.parametrize("name", ["lcmd", "k_center"])
def test_pools_of_several_blocks(name):
    parts = problem(0, rows=600, labels=37, features=8)
    assert pick(name, *parts, 20).tolist() == brute_force(name, *parts, 20)


def test_repeats_of_labelled_rows_make_no_difference():
    pool, labelled, noise, excluded = problem(0, rows=600, labels=37, features=8)
    filled = np.concatenate([labelled, np.repeat(labelled[5:6], 62 - 37, axis=0)])
    for name in ("lcmd", "k_center"):
        expected = brute_force(name, pool, labelled, noise, excluded, 20)
        assert pick(name, pool, filled, noise, excluded, 20).tolist() == expected


@pytest.mark.parametrize("labels", [0, LABELS])
def test_rows_are_drawn_in_proportion_to_squared_distances(labels):
    pool, labelled, noise, excluded = problem(0, labels=labels)
    rows, seen = Pool.of(np.float32(pool), noise, excluded), jnp.asarray(labelled, jnp.float32)
    draw = jax.jit(jax.vmap(lambda key: RULES["kmeans_pp"].function(rows, seen, 2, key=key)))
    first, second = np.asarray(draw(jax.random.split(KEY, 20_000))).T
    shares = np.where(excluded, 0, squared_distances(pool, labelled, []).min(1))
    shares /= shares.sum()
    np.testing.assert_allclose(np.bincount(first, minlength=ROWS) / 20_000, shares, atol=0.015)
    common = int(shares.argmax())
    then = np.where(excluded, 0, squared_distances(pool, labelled, [common]).min(1))
    among = second[first == common]
    np.testing.assert_allclose(np.bincount(among, minlength=ROWS) / len(among), then / then.sum(), atol=0.03)


def greedy_by_distance(pool, labelled, excluded, weights, cost, count):
    """The rows that most lower the sum of all squared distances, for each unit of cost, in float64."""
    picked: list[int] = []
    for _ in range(count):
        before = weights @ squared_distances(pool, labelled, picked).min(1)
        after = [weights @ squared_distances(pool, labelled, [*picked, row]).min(1) for row in range(len(pool))]
        gains = np.where(excluded, -np.inf, (before - np.array(after)) / cost)
        gains[picked] = -np.inf
        picked.append(int(gains.argmax()))
    return picked


@pytest.mark.parametrize("seed", range(5))
def test_of_all_rows_the_one_that_brings_the_pool_nearest_to_labels_is_picked(seed, monkeypatch):
    """Excluded rows count, as predictions are asked for there, too."""
    monkeypatch.setattr(batches, "_TRIALS", ROWS)
    pool, labelled, noise, excluded = problem(seed)
    rng = np.random.default_rng(seed)
    weights, cost = rng.integers(1, 5, ROWS), rng.choice([1.0, 3.0], ROWS)
    rows = Pool.of(np.float32(pool), noise, excluded, weights=weights, cost=cost)
    rule = jax.jit(lambda: RULES["kmeans_greedy"].function(rows, jnp.float32(labelled), COUNT, key=KEY))
    assert rule().tolist() == greedy_by_distance(pool, labelled, excluded, weights, cost, COUNT)


def test_the_rows_that_are_tried_are_drawn_in_proportion_to_squared_distances(monkeypatch):
    monkeypatch.setattr(batches, "_TRIALS", 1)
    pool, labelled, noise, excluded = problem(0)
    rows, rule = Pool.of(np.float32(pool), noise, excluded), RULES["kmeans_greedy"].function
    draw = jax.jit(jax.vmap(lambda key: rule(rows, jnp.float32(labelled), 1, key=key)[0]))
    shares = np.where(excluded, 0, squared_distances(pool, labelled, []).min(1))
    found = np.bincount(draw(jax.random.split(KEY, 20_000)), minlength=ROWS) / 20_000
    np.testing.assert_allclose(found, shares / shares.sum(), atol=0.015)


def test_a_row_amid_many_is_taken_before_one_that_is_far_from_all():
    """Ten rows together have a smaller distance from the label than one alone, and more in sum."""
    pool = np.concatenate([3 + 0.01 * np.arange(10.0), [-5.0]])[:, None]
    rows, labelled = Pool.of(np.float32(pool)), jnp.zeros((1, 1))

    def picks(name):
        rule, keys = RULES[name].function, jax.random.split(KEY, 300)
        return np.asarray(jax.vmap(lambda key: rule(rows, labelled, 1, key=key)[0])(keys))

    assert (picks("k_center") == 10).all()
    assert (picks("kmeans_greedy") < 10).all()


def test_rows_of_no_weight_do_not_count():
    """Such as those that fill a pool up: the picks are those without them."""
    pool, labelled, noise, excluded = problem(0, rows=40)
    weights = np.ones(40)
    found = pick("bait", pool, labelled, noise, excluded, weights=weights)
    fill = 7 * np.ones((5, FEATURES))
    more = np.concatenate([pool, fill]), labelled, np.append(noise, np.ones(5)), np.append(excluded, np.ones(5, bool))
    np.testing.assert_array_equal(found, pick("bait", *more, weights=np.append(weights, np.zeros(5))))


def test_a_batch_of_one_is_the_best_information_gain():
    pool, labelled, noise, excluded = problem(3)
    arrays = (jnp.asarray(part)[:, None] for part in (noise, np.linalg.norm(pool, axis=1)))
    gain = information_gain(Prediction(jnp.zeros((ROWS, 1)), *arrays))
    assert pick("max_det", pool, labelled, noise, excluded, 1) == np.where(excluded, -1, gain).argmax()


@rules
def test_noise_counts_for_rules_of_information_only(name):
    pool, labelled, noise, excluded = problem(1)
    first = pick(name, pool, labelled, noise, excluded)
    noise[first[0]] = 100.0
    again = pick(name, pool, labelled, noise, excluded)
    assert (again[0] == first[0]) == (name in BY_DISTANCE)


@pytest.mark.parametrize("name", ["max_det", "bait"])
def test_labelled_rows_are_in_the_belief_already(name):
    pool, labelled, noise, excluded = problem(2)
    found = pick(name, pool, labelled, noise, excluded)
    np.testing.assert_array_equal(found, pick(name, pool, 10 * labelled[::-1], noise, excluded))


@rules
def test_duplicates_wait_until_distinct_rows_are_picked(name):
    rng = np.random.default_rng(0)
    distinct = 10 * np.linalg.qr(rng.normal(size=(4, 4)))[0] * np.array([1.0, 1.1, 1.2, 1.3])[:, None]
    pool = np.tile(distinct, (3, 1))[:, :FEATURES]
    found = pick(name, pool, np.zeros((LABELS, FEATURES)), np.full(ROWS, 0.1), np.zeros(ROWS, bool))
    # Three directions are all there are for the variance; the fourth row is their combination.
    assert len(set((found % 4)[:3].tolist())) == 3
    if name in BY_DISTANCE:
        assert len(set((found % 4)[:4].tolist())) == 4


def test_rounding_of_near_duplicates_is_not_uncertainty():
    """Their variance ratio of 10^8 leaves about 1 given one label; differences in float32 would leave it wrong by 8."""
    rng = np.random.default_rng(0)
    pool, noise = np.zeros((ROWS, FEATURES)), np.ones(ROWS)
    pool[:9, 0], noise[:9] = 1 + 1e-6 * rng.normal(size=9), 0.0
    pool[9, 1], pool[10, 2] = 1.5**0.5, 1.2**0.5
    found = pick("max_det", pool, np.zeros((LABELS, FEATURES)), noise, np.zeros(ROWS, bool))
    assert found[0] < 9
    assert found[1:3].tolist() == [9, 10]
    assert (found[3:] < 9).all()


@certain
def test_zero_features_give_different_rows(name):
    excluded = np.arange(ROWS) % 2 == 0
    found = pick(name, np.zeros((ROWS, FEATURES)), np.zeros((LABELS, FEATURES)), np.zeros(ROWS), excluded)
    assert found.tolist() == [1, 3, 5, 7, 9]


@rules
def test_the_whole_pool_is_a_permutation(name):
    pool, labelled, noise, _ = problem(4)
    found = pick(name, pool, labelled, noise, np.zeros(ROWS, bool), ROWS)
    np.testing.assert_array_equal(np.sort(found), np.arange(ROWS))
    # A smaller batch is the beginning of a larger one.
    np.testing.assert_array_equal(found[:COUNT], pick(name, pool, labelled, noise, np.zeros(ROWS, bool)))


@rules
def test_more_rows_than_the_pool_has_are_refused(name):
    pool, labelled, noise, excluded = problem(0)
    with pytest.raises(ValueError, match="a batch of 13 different rows cannot come from a pool of 12"):
        RULES[name].function(Pool.of(pool, noise, excluded), jnp.asarray(labelled), ROWS + 1, key=KEY)


masks = st.lists(st.booleans(), min_size=ROWS, max_size=ROWS).filter(lambda mask: mask.count(False) >= COUNT)
whole = st.lists(st.integers(-2, 2), min_size=ROWS * FEATURES, max_size=ROWS * FEATURES)
scales = st.integers(-6, 6).map(lambda exponent: 10.0**exponent)


@rules
@examples
@given(excluded=masks, features=whole, scale=scales, noise=st.one_of(st.just(0.0), scales))
def test_rows_are_different_and_never_excluded(name, excluded, features, scale, noise):
    """Also of pools where most rows tie with another."""
    pool = scale * np.reshape(features, (ROWS, FEATURES))
    found = pick(name, pool, pool[:LABELS], np.full(ROWS, noise), excluded)
    assert len(set(found.tolist())) == COUNT
    assert found.min() >= 0
    assert found.max() < ROWS
    assert not np.array(excluded)[found].any()


@certain
@examples
@given(seed=st.integers(0, 2**32 - 1), order=st.permutations(range(ROWS)))
def test_the_order_of_the_pool_makes_no_difference(name, seed, order):
    pool, labelled, noise, excluded = problem(seed)
    found = pick(name, pool[order], labelled, noise[order], excluded[order])
    np.testing.assert_array_equal(np.array(order)[found], pick(name, pool, labelled, noise, excluded))


def test_sketches_keep_products_on_average():
    features = jax.random.normal(KEY, (2, 40))
    sketches = jax.vmap(lambda key: sketch(features, 10, key=key))(jax.random.split(KEY, 2_000))
    assert sketches.shape == (2_000, 2, 10)
    products = np.einsum("kad,kbd->kab", sketches, sketches)
    exact = np.asarray(features @ features.T)
    norms = np.diag(exact)
    error = np.sqrt((norms[:, None] * norms + exact**2) / 10 / 2_000)
    assert (np.abs(products.mean(0) - exact) < 4 * error).all()


def test_narrow_features_are_not_sketched():
    features = jnp.ones((2, 4))
    assert sketch(features, 4, key=KEY) is features


@certain
@examples
@given(st.integers(0, 1000))
def test_a_row_of_weight_three_is_as_good_as_three_equal_rows(name, seed):
    """The rows of a weighted pool, picked one by one, are those of the pool in which they are repeated."""
    pool, labelled, noise, excluded = problem(seed)
    weights = np.random.default_rng(seed).permutation(np.arange(ROWS) % 4 + 1)  # of one sum, so of one shape
    few = pick(name, pool, labelled, noise, excluded, 3, weights=weights)
    repeat = np.repeat(np.arange(len(pool)), weights)
    found = pick(name, pool[repeat], labelled, noise[repeat], excluded[repeat], 3)
    if name in ("bait", "max_det"):  # which may pick a row again, if that is noisy
        assert few[0] == repeat[found[0]]
    else:
        assert few.tolist() == repeat[found].tolist()


def first_draws(rows, draws=2000):
    """How often each row is the first that `kmeans_pp` draws."""
    none = jnp.zeros((0, rows.features.shape[1]))
    draw = jax.jit(jax.vmap(lambda key: RULES["kmeans_pp"].function(rows, none, 1, key=key)[0]))
    return np.bincount(draw(jax.random.split(KEY, draws)), minlength=len(rows.features)) / draws


def test_rows_are_drawn_as_often_as_they_count():
    found = first_draws(Pool.of([[1.0], [2.0], [3.0]], weights=[9.0, 1.0, 2.0]))
    np.testing.assert_allclose(found, np.array([9.0, 4.0, 18.0]) / 31, atol=0.03)


def test_rows_that_cost_twice_as_much_are_drawn_half_as_often():
    found = first_draws(Pool.of([[1.0], [2.0], [3.0]], cost=[0.5, 1.0, 3.0]))
    np.testing.assert_allclose(found, np.array([2.0, 4.0, 3.0]) / 9, atol=0.03)


@certain
@pytest.mark.parametrize("seed", range(3))
def test_each_pick_gains_most_for_each_unit_of_cost(name, seed):
    parts = problem(seed)
    cost = np.random.default_rng(seed).choice([0.5, 1.0, 4.0, 16.0], ROWS)
    picked = []
    for row in pick(name, *parts, cost=cost):
        gains = np.where(parts[3], -np.inf, TRUTH[name](*parts, picked)) / cost
        gains[picked] = -np.inf
        assert row == gains.argmax()
        picked.append(row)
    assert picked != pick(name, *parts).tolist()


costs = st.lists(st.integers(1, 9), min_size=ROWS, max_size=ROWS)
fewer = settings(parent=examples, max_examples=20)


@rules
@fewer
@given(seed=st.integers(0, 2**32 - 1), cost=costs)
def test_the_unit_of_costs_makes_no_difference(name, seed, cost):
    parts, cost = problem(seed), np.array(cost, float)
    np.testing.assert_array_equal(pick(name, *parts, cost=cost), pick(name, *parts, cost=4 * cost))
    np.testing.assert_array_equal(pick(name, *parts, cost=2.0), pick(name, *parts))


@rules
@fewer
@given(
    seed=st.integers(0, 2**32 - 1),
    group=st.lists(st.integers(0, 4), min_size=ROWS, max_size=ROWS),
    most=st.integers(1, 3),
)
def test_never_more_rows_of_a_group_than_there_is_room_for(name, seed, group, most):
    parts, group = problem(seed), np.array(group)
    free = np.bincount(group[~parts[3]], minlength=5)
    count = min(COUNT, int(np.minimum(free, most).sum()))
    found = pick(name, *parts, group=group, group_limit=np.full(5, most))[:count]
    assert len(set(found.tolist())) == count
    assert not parts[3][found].any()
    assert np.bincount(group[found], minlength=5).max() <= most
    # A limit that no group comes to changes nothing.
    np.testing.assert_array_equal(pick(name, *parts, group=group, group_limit=np.full(5, COUNT)), pick(name, *parts))
