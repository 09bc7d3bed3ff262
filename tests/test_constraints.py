"""Costs of labels, limits of groups and weights of outputs: by the estimator, the command, and in shards."""

import json

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncprior import NCPRegressor
from ncprior.errors import UserError
from ncprior.tables import candidates
from ncprior.tables.batches import RULES, acquisitions
from ncprior.tables.constraints import Constraints, among_first, score_for_cost

ROWS = 90
GROUPS = np.array(list("abc"))[np.arange(ROWS) % 3]


@pytest.fixture(scope="module")
def model():
    """Two outputs of two inputs; the second is noisy at one end, where the first is not."""
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-1, 1, size=(60, 2))
    noise = np.exp(2 * inputs[:, 1]) * rng.normal(size=60)
    table = pa.table({"x": inputs[:, 0], "z": inputs[:, 1]})
    model = NCPRegressor(members=2, epochs=40, hidden=(8,), early_stopping=False, random_state=0)
    return model.fit(table, pa.table({"p": np.sin(3 * inputs[:, 0]), "q": inputs[:, 0] + noise}))


@pytest.fixture(scope="module")
def pool():
    rng = np.random.default_rng(1)
    return pa.table({"x": rng.uniform(-2, 2, ROWS), "z": rng.uniform(-2, 2, ROWS)})


COST = np.random.default_rng(2).choice([0.5, 1.0, 4.0, 20.0], ROWS)


def test_the_highest_gains_for_each_unit_of_cost(model, pool):
    gain, uncertainty = (model.predict_piece(pool).score(name) for name in ("information_gain", "uncertainty"))
    found = model.suggest(pool, 8, acquisition="information_gain", cost=COST)
    np.testing.assert_array_equal(found, np.argsort(-gain / COST)[:8])
    assert set(found) != set(model.suggest(pool, 8, acquisition="information_gain"))
    # Which is a logarithm.
    found = model.suggest(pool, 8, acquisition="uncertainty", cost=COST)
    np.testing.assert_array_equal(found, np.argsort(COST / np.exp(uncertainty))[:8])


@pytest.mark.parametrize("name", acquisitions())
def test_cheap_rows_are_preferred_and_units_do_not_matter(name, model, pool):
    def cost_of(rows):
        return COST[rows].sum()

    plain, paid = (model.suggest(pool, 10, acquisition=name, random_state=0, cost=cost) for cost in (None, COST))
    assert cost_of(paid) < cost_of(plain)
    np.testing.assert_array_equal(paid, model.suggest(pool, 10, acquisition=name, random_state=0, cost=2 * COST))
    same = model.suggest(pool, 10, acquisition=name, random_state=0, cost=np.full(ROWS, 8.0))
    np.testing.assert_array_equal(plain, same)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    st.lists(st.floats(0, 100), min_size=4, max_size=4),
    st.lists(st.floats(0.01, 100), min_size=4, max_size=4),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from(["information_gain", "uncertainty", "random"]),
)
def test_scores_for_costs_have_no_unit(scores, cost, temperature, name):
    scores, cost = np.array(scores), np.array(cost)
    plain = score_for_cost(scores, None, name, temperature)
    same, one, two = (score_for_cost(scores, paid, name, temperature) for paid in (np.full(4, 3.0), cost, 2 * cost))
    if name == "information_gain" and not temperature:
        np.testing.assert_allclose(3 * same, plain)
        np.testing.assert_allclose(2 * two, one)
    else:  # differences of logits are what a draw depends on
        np.testing.assert_allclose(same - plain, -np.log(3), atol=1e-9)
        np.testing.assert_allclose(two - one, -np.log(2), atol=1e-9)


def test_rows_drawn_at_random_are_drawn_less_often_if_they_cost_more(model, pool):
    cost = np.where(np.arange(ROWS) % 2, 1.0, 4.0)
    for how in ({"acquisition": "random"}, {"acquisition": "predictive_std", "temperature": 100.0}):
        first = [model.suggest(pool, 1, cost=cost, random_state=seed, **how)[0] % 2 for seed in range(60)]
        assert np.mean(first) == pytest.approx(0.8, abs=0.15)


@pytest.mark.parametrize(
    "how", [*({"acquisition": name} for name in acquisitions()), {"acquisition": "predictive_std", "temperature": 1.0}]
)
def test_no_group_has_more_rows_than_it_may(how, model, pool):
    excluded = np.arange(ROWS) < 20
    free = model.suggest(pool, 9, exclude=excluded, random_state=0, **how)
    found = model.suggest(pool, 9, exclude=excluded, per=(GROUPS, 3), random_state=0, **how)
    assert sorted(GROUPS[found]) == sorted("aaabbbccc")
    assert len(set(found.tolist())) == 9
    assert not excluded[found].any()
    assert found[0] == free[0]
    loose = model.suggest(pool, 9, exclude=excluded, per=(GROUPS, 9), random_state=0, **how)
    np.testing.assert_array_equal(loose, free)


def test_groups_of_a_large_pool(model, pool, monkeypatch):
    monkeypatch.setattr(candidates, "CANDIDATES", 30)
    found = model.suggest(pool, 6, per=(GROUPS, 2), cost=COST, random_state=0)
    assert sorted(GROUPS[found]) == sorted("aabbcc")
    few = np.where(np.arange(ROWS) < 2, np.arange(ROWS), 2)  # of which the candidates have hardly any
    with pytest.raises(UserError, match=r"of 30 candidates . can be picked together, 1 of a group at most"):
        model.suggest(pool, 3, per=(few, 1), random_state=1)


def test_a_rule_that_does_not_keep_to_groups_is_refused(model, pool, monkeypatch):
    monkeypatch.setitem(RULES, "first", lambda pool, labelled, count, *, key: jnp.arange(count))  # noqa: ARG005
    with pytest.raises(UserError, match="picked more than 2 rows of a group"):
        model.suggest(pool, 4, acquisition="first", per=(np.sort(GROUPS), 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cost": COST[:-1]}, r"cost has shape \(89,\); give one positive number for each of 90 rows"),
        ({"cost": np.where(np.arange(ROWS) == 4, 0, COST)}, "that of row 5 is 0; mend row 5"),
        (
            {"cost": np.where(np.arange(ROWS) > 80, -1.5, COST)},
            "row 82 is -1.5; mend rows 82, 83, 84, 85, 86 and 4 more",
        ),
        ({"cost": np.where(np.arange(ROWS) == 4, np.inf, COST)}, "row 5 is inf"),
        ({"cost": np.where(np.arange(ROWS) == 4, np.nan, COST)}, "row 5 is missing"),
        ({"cost": ["much"] * ROWS}, "cost must be a positive number for each of 90 rows"),
        ({"per": (GROUPS, 0)}, "at most 0 rows of a group"),
        ({"per": (GROUPS, 2.5)}, "per must be a pair"),
        ({"per": GROUPS}, "per must be a pair"),
        ({"per": (GROUPS[:5], 2)}, r"groups of shape \(5,\); give one for each of 90"),
        ({"per": (GROUPS, 3)}, "10 rows: 9 rows can be picked, 3 of a group at most"),
        ({"cost": COST, "acquisition": lambda p: -p.std[:, 0]}, "scores below 0, which cannot be divided by costs"),
        ({"output_weights": [1, 2]}, "kmeans_greedy does not look at outputs"),
        ({"output_weights": [1, 2], "acquisition": "random"}, "random does not look at outputs"),
        ({"output_weights": [1, 2, 3], "acquisition": "lcmd"}, "must be 2 numbers from 0 up"),
        ({"output_weights": [1, -1], "acquisition": "lcmd"}, "must be 2 numbers from 0 up"),
        ({"output_weights": [0, 0], "acquisition": "uncertainty"}, "not all of them 0"),
    ],
)
def test_what_has_no_meaning_is_refused(options, message, model, pool):
    with pytest.raises(UserError, match=message):
        model.suggest(pool, 10, **options)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 4))
def test_the_first_of_each_group(groups, most):
    found = among_first(np.array(groups, int), most)
    seen: list[int] = []
    for group, among in zip(groups, found, strict=True):
        assert among == (seen.count(group) < most)
        seen.append(group)
    whole = Constraints(groups=np.array(groups, int), per_group=most)
    assert whole.most(np.ones(len(groups), bool)) == found.sum()


@pytest.mark.parametrize("name", ["information_gain", "uncertainty", "predictive_std"])
def test_scores_are_weighted_averages_over_outputs(name, model, pool):
    prediction = model.predict_piece(pool)
    each = [prediction.score(name, np.eye(2)[i]) for i in range(2)]
    assert not np.allclose(*each)
    np.testing.assert_allclose(prediction.score(name, np.array([1.0, 1.0])), prediction.score(name), rtol=1e-5)
    np.testing.assert_allclose(prediction.score(name, np.array([0.5, 1.5])), (each[0] + 3 * each[1]) / 4, rtol=1e-5)
    found = model.suggest(pool, 5, acquisition=name, output_weights=[0, 3])
    np.testing.assert_array_equal(found, np.argsort(-each[1])[:5])


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.compares != "inputs"])
def test_rules_go_by_the_outputs_that_count(name, model, pool):
    def picked(weights):
        return model.suggest(pool, 12, acquisition=name, output_weights=weights, random_state=0).tolist()

    assert picked([1, 1]) == picked([5, 5]) == picked(None)
    assert picked([1, 0]) != picked([0, 1])


def test_a_batch_of_one_goes_by_the_variance_and_noise_of_the_outputs_that_count(model, pool):
    prediction = model.predict_piece(pool)
    for weights in ([1, 0], [0, 1], [1, 3]):
        noise, believed = (
            np.average((part / model.target_scale_) ** 2, axis=1, weights=weights)
            for part in (prediction.noise, prediction.uncertainty)
        )
        (found,) = model.suggest(pool, 1, acquisition="max_det", output_weights=weights)
        ratio = believed / noise
        assert ratio[found] > 0.97 * ratio.max()


def test_one_output_has_no_weights():
    x = np.linspace(-1, 1, 40)[:, None]
    model = NCPRegressor(members=1, epochs=1, hidden=(8,), random_state=0).fit(x, x[:, 0])
    with pytest.raises(UserError, match="no effect on a model with one output"):
        model.suggest(x, 3, acquisition="lcmd", output_weights=[1.0])


@pytest.fixture(scope="module")
def place(model, pool, tmp_path_factory):
    """The model and the pool as files, with costs and groups."""
    folder = tmp_path_factory.mktemp("costs")
    model.save(folder / "m.ncp")
    more = {"id": [f"r{i}" for i in range(ROWS)], "price": COST, "plate": GROUPS}
    whole = pa.table({**more, **{name: pool[name] for name in pool.column_names}})
    pq.write_table(whole, folder / "pool.parquet", row_group_size=15)
    bad = np.where(np.arange(ROWS) == 40, -2.0, COST)
    pq.write_table(whole.set_column(1, "price", pa.array(bad)), folder / "bad.parquet")
    plates = pa.array([None if i == 7 else name for i, name in enumerate(GROUPS)])
    pq.write_table(whole.set_column(2, "plate", plates), folder / "no_plate.parquet")
    return folder


PAID = ["-n", 6, "--id", "id", "--cost", "price", "--per", "plate", 2, "--json"]


@pytest.mark.parametrize("how", [[], ["--acquisition", "information_gain"], ["--acquisition", "random", "--seed", 3]])
def test_the_command_picks_by_costs_and_groups_in_shards_too(how, place, tmp_path, run):
    whole = json.loads(run("suggest", place / "m.ncp", place / "pool.parquet", *PAID, *how))
    rows = whole["suggestions"]
    assert sorted(row["plate"] for row in rows) == sorted("aabbcc")
    assert whole["total_cost"] == sum(row["price"] for row in rows)
    plain = json.loads(run("suggest", place / "m.ncp", place / "pool.parquet", "-n", 6, "--id", "id", "--json", *how))
    assert "total_cost" not in plain
    costs = {f"r{i}": cost for i, cost in enumerate(COST)}
    assert whole["total_cost"] < sum(costs[row["id"]] for row in plain["suggestions"])
    for i in (1, 2, 3):
        out = ["--shard", f"{i}/3", "--out", tmp_path / f"{i}.parquet"]
        run("suggest", place / "m.ncp", place / "pool.parquet", *PAID, *how, *out)
    merged = json.loads(run("merge", place / "m.ncp", tmp_path, "-n", 6, "--id", "id", "--json"))
    assert merged == whole


def test_the_command_weighs_outputs(place, model, pool, run):
    options = ["-n", 5, "--acquisition", "information_gain", "--weight", "q=0", "--json"]
    rows = json.loads(run("suggest", place / "m.ncp", place / "pool.parquet", *options))["suggestions"]
    found = model.suggest(pool, 5, acquisition="information_gain", output_weights=[1, 0])
    assert [row["row"] - 1 for row in rows] == found.tolist()


def test_people_are_told_what_labels_cost(place, run):
    said = run("suggest", place / "m.ncp", place / "pool.parquet", *PAID[:-1])
    assert "their labels cost" in said


@pytest.mark.parametrize(
    ("file", "options", "message"),
    [
        ("bad", ["--cost", "price"], "column 'price': costs must be positive numbers, and that of row 41 is -2"),
        ("pool", ["--cost", "prise"], "no column 'prise'; did you mean 'price'?"),
        ("pool", ["--cost", "plate"], "text 'a' in column 'plate', row 1: costs must be positive numbers"),
        ("no_plate", ["--per", "plate", 2], "row 8 of the pool has no group in column 'plate'"),
        ("pool", ["--per", "plate", 0], "--per plate 0: give a whole number from 1 up"),
        ("pool", ["--per", "plate", 2, "-n", 7], "of 90 candidates 6 can be picked together, 2 of a group at most"),
        ("pool", ["--per", "plate", 2, "-n", 7, "--acquisition", "uncertainty"], "only 6 rows that can be picked"),
        ("pool", ["--weight", "r=2"], "--weight r=2: give NAME=VALUE with one of the targets p, q"),
        ("pool", ["--weight", "q=much"], "'much' is no number"),
        ("pool", ["--weight", "q=2"], "kmeans_greedy does not look at outputs"),
    ],
)
def test_mistakes_get_one_line(file, options, message, place, run):
    assert message in run("suggest", place / "m.ncp", place / f"{file}.parquet", *options, code=2)
