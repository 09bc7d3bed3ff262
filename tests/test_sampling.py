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
    assert max(alive) < 8 * 8_000  # bytes: less than a tenth of the table


def test_no_pieces_and_no_rows():
    assert draw_rows([], 3, np.random.default_rng(0)) is None
    assert draw_rows(numbered([pa.table({"x": []})]), 3, np.random.default_rng(0)).seen == 0


def table(rows=300):
    random = np.random.default_rng(0)
    x, z = random.normal(size=(2, rows))
    return pa.table({"x": x, "z": z, "y": pa.array(x + z, mask=np.arange(rows) % 10 == 3)})


@pytest.fixture
def small(monkeypatch):
    """Training can visit 100 rows."""
    monkeypatch.setattr(recipe, "_MOST_VISITED", 100)
    monkeypatch.setattr(labelled, "_PIECE", 64)


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
    assert "100 rows, drawn at random from 270 (--max-rows sets how many) (30 more have no value" in said


def test_the_number_of_rows_can_be_set(tmp_path, run):
    pq.write_table(table(), tmp_path / "t.parquet")
    for most, kept in ((50, 50), (1_000, 270)):
        out = tmp_path / f"{most}.ncp"
        said = json.loads(run("fit", tmp_path / "t.parquet", *TINY, "--max-rows", most, "--out", out, "--json"))
        assert said["rows"] == NCPRegressor.load(out).n_rows_ == kept
    said = run("fit", tmp_path / "t.parquet", *TINY, "--max-rows", 0, "--out", tmp_path / "m.ncp", code=2)
    assert "--max-rows must be at least 1, got 0" in said


def test_wide_tables_are_kept_in_bounded_memory():
    assert recipe.most_rows(2) == 10_000 * 512  # what a member visits
    assert recipe.most_rows(1_000) == 30_000
    assert recipe.most_rows(10**6) == recipe.MANY_ROWS  # fewer would not be worth the name of a large table


def test_a_table_that_is_no_larger_is_learned_from_whole(monkeypatch, tmp_path):
    monkeypatch.setattr(labelled, "_PIECE", 64)
    pq.write_table(table(), tmp_path / "t.parquet")
    read = labelled.draw_labelled(tmp_path / "t.parquet", ["y"], ["x", "z"], most=270, seed=0)
    whole, there = labelled.read_targets(table(), ["y"])
    assert read.with_targets == 270
    assert (read.targets == whole[there]).all()
    assert (read.numbers == np.flatnonzero(there) + 1).all()
    assert read.inputs.equals(table().select(["x", "z"]).filter(there))


@pytest.mark.usefixtures("small")
def test_rows_that_are_not_drawn_are_checked_too(tmp_path, run):
    x = table()["x"].to_numpy().copy()
    read = labelled.draw_labelled(_written(tmp_path, x), ["y"], ["x", "z"], most=100, seed=0)
    row = next(i for i in range(200, 300) if i + 1 not in read.numbers)
    x[row] = np.inf
    _written(tmp_path, x)
    said = run("fit", tmp_path / "t.parquet", *TINY, "--out", tmp_path / "m.ncp", code=2)
    assert f"infinite value in column 'x', row {row + 1}" in said
    assert not (tmp_path / "m.ncp").exists()


def _written(folder, x):
    pq.write_table(table().set_column(0, "x", pa.array(x)), folder / "t.parquet")
    return folder / "t.parquet"


@pytest.mark.usefixtures("small")
def test_mistakes_have_the_row_numbers_of_the_file(tmp_path):
    text = [f"{value:.6f}" for value in table()["x"].to_numpy()]
    read = labelled.draw_labelled(_written(tmp_path, table()["x"].to_numpy()), ["y"], ["x"], most=100, seed=0)
    row = read.numbers[-1]
    text[row - 1] = "none of them"
    drawn = labelled.draw_labelled(_written(tmp_path, text), ["y"], ["x"], most=100, seed=0)
    with pytest.raises(UserError, match=f"text 'none of them' in column 'x', row {row}, where most values are numbers"):
        labelled.check_inputs(drawn.inputs, drawn.numbers)


@pytest.mark.usefixtures("small")
def test_a_target_that_is_missing_in_every_row(tmp_path):
    pq.write_table(table().append_column("w", pa.nulls(300, pa.float64())), tmp_path / "t.parquet")
    with pytest.raises(UserError, match="the target 'w' has no value in any row"):
        labelled.draw_labelled(tmp_path / "t.parquet", ["y", "w"], ["x"], most=100, seed=0)
