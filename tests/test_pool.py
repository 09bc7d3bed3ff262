"""The best rows of a pool, with a small fake in place of a trained model."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from ncprior.core.acquisition import score_names
from ncprior.core.prediction import MixturePrediction, Prediction
from ncprior.data.encoding import Encoder
from ncprior.errors import UserError
from ncprior.tables.estimator import Distribution
from ncprior.tables.familiarity import Familiarity
from ncprior.tables.pool import Picker, row_noise

ROWS = 150


def pool(rows=ROWS):
    random = np.random.default_rng(0)
    return pa.table(
        {"name": [f"r{i}" for i in range(rows)], "x": random.normal(size=rows), "z": random.normal(size=rows)}
    )


def predict(table, first_row):  # noqa: ARG001
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
    first = [best(Picker(1, "information_gain", 0.7, seed), model, [table])["row"][0].as_py() for seed in range(1000)]
    np.testing.assert_allclose(np.bincount(first, minlength=4)[1:] / 1000, expected, atol=0.05)
