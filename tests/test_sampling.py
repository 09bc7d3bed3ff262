"""Rows drawn in one pass, and training on tables that have more rows than it can visit."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncprior.data import labelled
from ncprior.data.sampling import draw_rows, numbered
from ncprior.errors import UserError
from ncprior.tables import recipe
from ncprior.tables.estimator import NCPRegressor


def cut(table, size):
    return numbered(table.slice(start, size) for start in range(0, table.num_rows, size))


@given(rows=st.integers(1, 200), most=st.integers(1, 250), size=st.integers(1, 60), seed=st.integers(0, 9))
def test_the_same_rows_are_drawn_however_the_table_is_cut(rows, most, size, seed):
    table = pa.table({"x": np.arange(rows)})
    drawn = draw_rows(cut(table, size), most, np.random.default_rng(seed))
    keys = np.random.default_rng(seed).random(rows)
    expected = np.sort(np.argsort(keys)[:most])
    assert drawn.rows.table["x"].to_pylist() == drawn.rows.numbers.tolist() == expected.tolist()
    assert drawn.seen == rows


def test_every_row_is_as_likely_as_any_other():
    table = pa.table({"x": np.arange(20)})
    counts = np.zeros(20)
    for seed in range(2_000):
        counts[draw_rows(cut(table, 3), 5, np.random.default_rng(seed)).rows.numbers] += 1
    assert np.abs(counts - 500).max() < 5 * np.sqrt(2_000 * 0.25 * 0.75)


def test_few_rows_wait_to_be_drawn():
    """Once there are enough, pieces are not kept whole: memory does not grow with the table."""
    alive = []

    def pieces():
        for _ in range(200):
            alive.append(pa.total_allocated_bytes() - before)
            yield pa.table({"x": pa.array(np.zeros(1_000)).take(pa.array(np.arange(1_000)))})

    before = pa.total_allocated_bytes()
    drawn = draw_rows(numbered(pieces()), 2_000, np.random.default_rng(0))
    assert drawn.seen == 200_000
    assert max(alive) < 5 * 8_000  # bytes, of 200 pieces with 8,000 each


def test_dictionaries_stay_small_and_may_differ():
    """Of files with categories of their own, as pandas writes them, whose index has no room for all of them."""
    index, whole = pa.int8(), []
    for i in range(30):
        values = pa.array([f"{i} {j}" for j in range(50)])
        codes = pa.array(np.arange(100) % 50, index)
        whole.append(pa.table({"x": pa.DictionaryArray.from_arrays(codes, values)}))
    drawn = draw_rows(numbered(whole), 20, np.random.default_rng(0))
    column = drawn.rows.table["x"]
    assert column.type == pa.dictionary(index, pa.string())
    assert column.to_pylist() == [f"{row // 100} {row % 50}" for row in drawn.rows.numbers]
    assert sum(len(chunk.dictionary) for chunk in column.chunks) <= 20


def test_preferred_rows_come_first():
    def even(table):
        return table["x"].to_numpy() % 2 == 0

    for most in (1, 30, 50, 70, 100, 120):
        whole = pa.table({"x": np.arange(100)})
        drawn = draw_rows(cut(whole, 9), most, np.random.default_rng(0), preferred=even)
        assert (drawn.seen, drawn.preferred) == (100, 50)
        assert len(drawn.rows.numbers) == min(most, 100)
        assert np.sum(drawn.rows.numbers % 2 == 0) == min(most, 50)


def test_no_pieces_and_no_rows():
    assert draw_rows([], 3, np.random.default_rng(0)) is None
    assert draw_rows(numbered([pa.table({"x": []})]), 3, np.random.default_rng(0)).seen == 0


def table(rows=300):
    random = np.random.default_rng(0)
    x, z = random.normal(size=(2, rows))
    return pa.table({"x": x, "z": z, "y": pa.array(x + z, mask=np.arange(rows) % 10 == 3)})


@pytest.fixture
def small(monkeypatch):
    """A table is read in pieces of 64 rows, of which 100 are kept."""
    monkeypatch.setattr(recipe, "_MOST_VISITED", 100)
    monkeypatch.setattr(labelled, "_PIECE", 64)


@pytest.fixture
def fitted(monkeypatch, tmp_path, run):
    """What `fit` learns from, without learning: the table and the targets, and what it printed."""

    def fit(_, rows, targets, **__):
        fitted.learned = rows, targets
        raise UserError("enough")

    monkeypatch.setattr(NCPRegressor, "fit_subset", fit)

    def fitted(path, *options):
        said = run("fit", path, "--target", "y", *options, "--out", tmp_path / "m.ncp", code=2)
        return fitted.learned if said == "ncprior: enough\n" else said

    return fitted


TINY = ["--target", "y", "--members", "1", "--epochs", "1"]


@pytest.mark.usefixtures("small")
def test_fit_draws_rows_of_a_larger_table(tmp_path, run):
    folder = tmp_path / "parts"
    folder.mkdir()
    for i in range(3):
        pq.write_table(table().slice(100 * i, 100), folder / f"{i}.parquet")
    pq.write_table(table(), tmp_path / "whole.parquet")
    models = []
    for name, seed in (("parts", 0), ("whole.parquet", 0), ("whole.parquet", 1)):
        out = tmp_path / f"{len(models)}.ncp"
        said = json.loads(run("fit", tmp_path / name, *TINY, "--seed", seed, "--out", out, "--json"))
        assert (said["rows"], said["rows_with_target"], said["rows_without_target"]) == (100, 270, 30)
        models.append(NCPRegressor.load(out))
    rows = [np.sort(model.fitted_.training_sample[:, 0]) for model in models]
    assert len(rows[0]) == 100
    assert (rows[0] == rows[1]).all()
    assert (rows[0] != rows[2]).any()
    said = run("fit", tmp_path / "whole.parquet", *TINY, "--out", tmp_path / "3.ncp")
    assert "100 rows, drawn at random from 270 (30 more have no value of y and were left out)" in said


def test_the_number_of_rows_can_be_set(tmp_path, run, fitted):
    pq.write_table(table(), tmp_path / "t.parquet")
    for most, kept in ((50, 50), (280, 270), (1_000, 270)):
        assert len(fitted(tmp_path / "t.parquet", "--max-rows", most)[1]) == kept
    said = run("fit", tmp_path / "t.parquet", *TINY, "--max-rows", 2, "--out", tmp_path / "m.ncp", code=2)
    assert "--max-rows 2 are too few to learn from; see --min-rows" in said


def test_how_many_rows_are_kept():
    numbers = pa.table({f"x{i}": np.zeros(3) for i in range(9)})
    assert recipe.most_rows(numbers.select(["x0", "x1"])) == 10_000 * 512  # what a member visits
    assert recipe.most_rows(numbers) == 30_000_000 // 9
    words = pa.table({"word": [f"{i}" for i in range(60)], "few": ["a", "b", "c"] * 20})
    assert recipe.most_rows(words) == 30_000_000 // (50 + 3)
    assert recipe.most_rows(pa.table({f"x{i}": [0.0] for i in range(2_000)})) == 100_000


def test_what_is_learned_from_is_what_is_in_the_file(fitted, monkeypatch, tmp_path):
    pq.write_table(table(), tmp_path / "t.parquet")
    rows, targets = fitted(tmp_path / "t.parquet")
    whole, there = labelled.read_targets(table(), ["y"])
    assert rows.equals(table().select(["x", "z"]).filter(there))
    assert (targets == whole[there, 0]).all()
    monkeypatch.setattr(labelled, "_PIECE", 64)
    again, same = fitted(tmp_path / "t.parquet")
    assert again.equals(rows)
    assert (same == targets).all()


@pytest.mark.parametrize("options", [[], ["--max-rows", "50"]])
def test_counters_without_a_name_are_left_out_also_of_some_rows(fitted, tmp_path, options):
    pq.write_table(table().add_column(0, "", pa.array(np.arange(300))), tmp_path / "t.parquet")
    assert fitted(tmp_path / "t.parquet", *options)[0].column_names == ["x", "z"]


@pytest.mark.parametrize("options", [[], ["--max-rows", "290"]])
def test_text_targets_are_read_as_a_whole(fitted, monkeypatch, tmp_path, options):
    """One cell says what the comma and the point mean in all the others."""
    monkeypatch.setattr(labelled, "_PIECE", 64)
    cells = [None, "-", *(f"{1 + i % 9}.{i:03d}" for i in range(2, 300))]
    cells[250] = "3.456,7"
    pq.write_table(table().set_column(2, "y", pa.array(cells)), tmp_path / "t.parquet")
    targets = fitted(tmp_path / "t.parquet", *options)[1]
    assert targets.min() >= 1_000
    assert 3456.7 in targets


@pytest.mark.usefixtures("small")
def test_mistakes_have_the_row_numbers_of_the_file(fitted, tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(table(), path)
    drawn = labelled.draw_labelled(path, ["y"], ["x", "z"], most=recipe.most_rows, seed=0)
    row = int(drawn.rows.numbers[-1]) + 1
    assert row > 200
    for column, values, said in [
        ("x", table()["x"].to_pylist(), (np.inf, f"infinite value in column 'x', row {row}")),
        (
            "x",
            [f"{value:.6f}" for value in table()["x"].to_pylist()],
            ("odd", f"'odd' in column 'x', row {row}, where"),
        ),
        ("y", [f"{value:.6f}" for value in table()["x"].to_pylist()], ("odd", f"'odd' in the target 'y', row {row};")),
        ("y", table()["x"].to_pylist(), (1e33, f"1e+33 in the target 'y', row {row} is too large")),
    ]:
        values[row - 1], line = said
        place = table().column_names.index(column)
        pq.write_table(table().set_column(place, column, pa.array(values)), path)
        assert line in fitted(path)


@pytest.mark.usefixtures("small")
def test_a_target_that_is_missing_in_every_row(fitted, tmp_path):
    pq.write_table(table().set_column(2, "y", pa.nulls(300, pa.float64())), tmp_path / "t.parquet")
    assert "the target 'y' has no value in any row" in fitted(tmp_path / "t.parquet")
