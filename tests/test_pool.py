"""The best rows of a pool, with a small fake in place of a trained model."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ncprior.core.acquisition import score_names
from ncprior.core.prediction import MixturePrediction, Prediction
from ncprior.data.encoding import Encoder
from ncprior.errors import UserError
from ncprior.tables import candidates
from ncprior.tables.candidates import row_noise
from ncprior.tables.estimator import Distribution, NCPRegressor
from ncprior.tables.familiarity import Familiarity
from ncprior.tables.pool import Picker

ROWS = 150


def pool(rows=ROWS):
    random = np.random.default_rng(0)
    return pa.table(
        {"name": [f"r{i}" for i in range(rows)], "x": random.normal(size=rows), "z": random.normal(size=rows)}
    )


def predict(table, first_row=1):  # noqa: ARG001
    """Mean, noise and uncertainty are simple functions of the columns."""
    x, z = (table[name].to_numpy().astype(np.float32)[:, None, None] for name in ("x", "z"))
    mixture = MixturePrediction(np.ones_like(x), Prediction(x, np.exp(z), np.exp(x)))
    return Distribution(mixture, np.zeros(1), np.ones(1), True, Familiarity.of([]))


@pytest.fixture
def model():
    encoder = Encoder.fit(pool().select(["x", "z"]))
    return SimpleNamespace(encoder_=encoder, target_names_=["y"], target_shift_=[0.0], predict_piece=predict)


def best(picker, model, pieces, excluded=frozenset()):
    return picker.pick(model, pieces, excluded).rows


def cut(table, rows):
    return [table.slice(start, rows) for start in range(0, table.num_rows, rows)]


def test_the_best_rows_come_first_with_the_reasons(model):
    rows = best(Picker(5, "information_gain", 0.0, seed=0), model, cut(pool(), 40))
    x, z = pool()["x"].to_numpy(), pool()["z"].to_numpy()
    gain = 0.5 * np.log1p(np.exp(2 * (x - z)))
    expected = np.argsort(-gain)[:5]
    assert rows.column_names == [
        "rank",
        "row",
        "score",
        "information_gain",
        "mean",
        "uncertainty",
        "noise",
        "name",
        "x",
        "z",
    ]
    assert rows["rank"].to_pylist() == [1, 2, 3, 4, 5]
    np.testing.assert_array_equal(rows["row"], expected + 1)
    for name, values in {
        "score": gain,
        "information_gain": gain,
        "mean": x,
        "uncertainty": np.exp(x),
        "noise": np.exp(z),
        "x": x,
    }.items():
        np.testing.assert_allclose(rows[name], values[expected], rtol=1e-5)


@pytest.mark.parametrize("acquisition", score_names())
@pytest.mark.parametrize("id_column", [None, "name"])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_pieces_of_any_size_give_what_the_whole_gives(acquisition, id_column, temperature, model):
    picker = Picker(20, acquisition, temperature, 3, id_column)
    whole = best(picker, model, [pool()])
    for rows in (1, 7, 64):
        assert best(picker, model, cut(pool(), rows)).equals(whole)
    same = best(Picker(20, acquisition, temperature, 4, id_column), model, [pool()]).equals(whole)
    assert same == (temperature == 0 and acquisition != "random")


def test_with_ids_shards_can_be_searched_apart_and_in_any_order(model):
    picker = Picker(8, "information_gain", 1.0, 0, "name")
    whole = best(picker, model, [pool()])
    order = np.random.default_rng(1).permutation(ROWS)
    assert best(picker, model, [pool().take(order)]).equals(whole)
    parts = pa.concat_tables([best(picker, model, [part]) for part in cut(pool(), 50)])
    merged = parts.sort_by([("score", "descending")]).slice(0, 8)
    assert merged.drop_columns("rank").equals(whole.drop_columns("rank"))


def test_rows_with_one_id_count_as_one(model):
    twice = pa.concat_tables([pool(), pool()])
    picker = Picker(ROWS, "uncertainty", 0.0, 0, "name")
    assert sorted(best(picker, model, cut(twice, 200))["name"].to_pylist()) == sorted(pool()["name"].to_pylist())
    with pytest.raises(UserError, match="only 150 rows that can be picked"):
        best(Picker(ROWS + 1, "uncertainty", 0.0, 0, "name"), model, cut(twice, 200))


def test_excluded_rows_are_never_picked(model):
    by_name = Picker(100, "uncertainty", 0.5, 0, "name")
    found = by_name.pick(model, cut(pool(), 40), {f"r{i}" for i in range(50)})
    assert (found.pool, found.excluded) == (150, 50)
    assert sorted(found.rows["name"].to_pylist()) == sorted(f"r{i}" for i in range(50, 150))
    by_inputs = Picker(100, "uncertainty", 0.5, 0)
    labelled = set(by_inputs.keys(model, pool().slice(100).select(["z", "x"]), 1))
    np.testing.assert_array_equal(np.sort(best(by_inputs, model, cut(pool(), 40), labelled)["row"]), np.arange(1, 101))


def test_noise_of_rows_is_gumbel_and_their_own():
    numbers = np.arange(2**40, 2**40 + 100_000)
    noise = row_noise(numbers, seed=5)
    assert noise.mean() == pytest.approx(np.euler_gamma, abs=0.02)
    assert noise.var() == pytest.approx(np.pi**2 / 6, abs=0.05)
    np.testing.assert_array_equal(noise[700:900], row_noise(numbers[700:900], seed=5))
    assert len(np.unique(noise)) == len(noise)
    assert abs(np.corrcoef(noise, row_noise(numbers, seed=6))[0, 1]) < 0.02
    assert abs(np.corrcoef(noise, row_noise(numbers - 2**32, seed=5))[0, 1]) < 0.02


def test_a_temperature_draws_from_the_softmax(model):
    table = pool(3)
    gain = predict(table, 1).score("information_gain")
    expected = np.exp(gain / 0.7) / np.exp(gain / 0.7).sum()
    first = [best(Picker(1, "information_gain", 0.7, seed), model, [table])["row"][0].as_py() for seed in range(300)]
    np.testing.assert_allclose(np.bincount(first, minlength=4)[1:] / 300, expected, atol=0.06)


@pytest.fixture(scope="module")
def trained():
    """A small model, and a larger pool: fifty ids twice, and some rows far from the others."""
    random = np.random.default_rng(1)
    inputs = random.normal(size=(50, 2))
    fitted = NCPRegressor(members=2, epochs=5, hidden=(8,), random_state=0).fit(
        pa.table({"x": inputs[:, 0], "z": inputs[:, 1]}), inputs.sum(1)
    )
    many = random.normal(size=(900, 2)) * np.where(np.arange(900) % 50, 1, 8)[:, None]
    names = [f"r{i % 850}" for i in range(900)]
    return fitted, pa.table({"name": names, "x": many[:, 0], "z": many[:, 1]})


@pytest.mark.parametrize("acquisition", ["kmeans_inputs", "lcmd", "information_gain"])
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_however_a_pool_is_parted_the_same_rows_are_picked(acquisition, trained, monkeypatch, data):
    """Shards of any sizes, in any order, each in pieces of any size; some rows have the id of others."""
    fitted, table = trained
    monkeypatch.setattr(candidates, "CANDIDATES", 40)
    picker = Picker(6, acquisition, 0.0, 3, "name")
    excluded = {f"r{i}" for i in range(0, 150, 3)}
    order = np.random.default_rng(data.draw(st.integers(0, 99))).permutation(table.num_rows)
    cuts = data.draw(st.lists(st.integers(0, table.num_rows), max_size=5))
    size = data.draw(st.integers(200, 900))
    found = [
        picker.search(fitted, cut(table.take(rows), size), excluded, part_of=table.num_rows)
        for rows in np.split(order, sorted(cuts))
    ]
    merged = picker.merge(found, table.num_rows, len(excluded))
    expected = picker.pick(fitted, [table], excluded)
    assert (merged.pool, merged.excluded) == (expected.pool, expected.excluded)
    assert picker.choose(fitted, merged).rows.equals(expected.rows)
    if acquisition in ("kmeans_inputs", "lcmd"):
        assert sum(len(part.kept.numbers) for part in found if part.kept) < 600  # of 900: all would be no proof


def test_parts_that_left_out_what_would_have_been_found_are_refused(trained, monkeypatch):
    fitted, table = trained
    monkeypatch.setattr(candidates, "CANDIDATES", 40)
    picker = Picker(6, "lcmd", 0.0, 3, "name")
    twenty = table.set_column(0, "name", pa.array([f"r{i % 20}" for i in range(900)]))
    found = [picker.search(fitted, [part], part_of=900) for part in cut(twenty, 300)]
    with pytest.raises(UserError, match="too few have an id of their own"):
        picker.merge(found, 900)


def test_rules_predict_only_what_they_compare(trained, monkeypatch):
    fitted, table = trained
    monkeypatch.setattr(candidates, "CANDIDATES", 40)
    predicted = []
    whole = type(fitted.fitted_).predict_encoded

    def counted(self, inputs):
        predicted.append(len(inputs))
        return whole(self, inputs)

    monkeypatch.setattr(type(fitted.fitted_), "predict_encoded", counted)
    Picker(6, "kmeans_inputs", id_column="name").pick(fitted, cut(table, 300))
    assert sum(predicted) == 40 + 6  # the candidates, and what is told about the rows that were picked
