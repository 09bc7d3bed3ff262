"""Pools that are searched shard by shard, and tables that are predicted unit by unit, by the commands."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from ncprior.data import table_files
from ncprior.errors import UserError
from ncprior.tables import candidates, table_predictions
from ncprior.tables.estimator import NCPRegressor
from ncprior.tables.pool_parts import Shard
from test_table_commands import run  # noqa: F401

ROWS = 900


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model, a pool as one file of nine row groups, and the same as a folder of three files."""
    folder = tmp_path_factory.mktemp("pool")
    random = np.random.default_rng(0)
    inputs = random.normal(size=(50, 2))
    table = pa.table({"x": inputs[:, 0], "z": inputs[:, 1]})
    NCPRegressor(members=2, epochs=3, hidden=(8,), random_state=0).fit(table, inputs.sum(1)).save(folder / "m.ncp")
    x, z = random.normal(size=(2, ROWS))
    pool = pa.table({"id": [f"r{i}" for i in range(ROWS)], "x": x, "z": z, "y": x + z + 0.1})
    pq.write_table(pool, folder / "pool.parquet", row_group_size=100)
    (folder / "pool").mkdir()
    for i in range(3):
        pq.write_table(pool.slice(300 * i, 300), folder / "pool" / f"{i}.parquet", row_group_size=100)
    pa_csv.write_csv(pool, folder / "pool.csv")
    pa_csv.write_csv(pool.slice(0, 40), folder / "labelled.csv")
    return folder


@pytest.fixture
def few(monkeypatch):
    """A pool of 900 rows is a large one."""
    monkeypatch.setattr(candidates, "CANDIDATES", 60)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("how", [[], ["--acquisition", "information_gain", "--temperature", "0.3"]])
@pytest.mark.parametrize(("pool", "shards"), [("pool.parquet", 4), ("pool", 3), ("pool", 7)])
def test_shards_give_the_rows_of_the_whole(how, pool, shards, place, tmp_path, run):  # noqa: F811
    options = [*how, "-n", 5, "--id", "id", "--exclude", place / "labelled.csv", "--seed", 4, "--json"]
    whole = json.loads(run("suggest", place / "m.ncp", place / "pool.csv", *options))
    told = [
        json.loads(
            run(
                *("suggest", place / "m.ncp", place / pool, *options),
                *("--shard", f"{i}/{shards}", "--out", tmp_path / f"{i}.parquet"),
            )
        )
        for i in range(1, shards + 1)
    ]
    assert sum(one["rows"] for one in told) == ROWS
    assert sum(one["kept"] for one in told) < ROWS / 2
    merged = json.loads(run("merge", place / "m.ncp", tmp_path, "-n", 5, "--id", "id", "--json"))
    assert merged == whole
    out = tmp_path / "to_label.csv"
    run("merge", place / "m.ncp", *tmp_path.glob("*.parquet"), "-n", 3, "--id", "id", "--out", out)
    picked = table_files.read(out)["id"].to_pylist()
    if how:  # by their scores, the first ones; a batch of three is another one
        assert picked == [row["id"] for row in whole["suggestions"][:3]]
    assert len(picked) == 3


@pytest.fixture
def parts(place, tmp_path, run):  # noqa: F811
    for i in (1, 2):
        run(
            *("suggest", place / "m.ncp", place / "pool", "-n", 5, "--id", "id"),
            *("--shard", f"{i}/2", "--out", tmp_path / f"{i}.parquet"),
        )
    return tmp_path


def test_parts_that_do_not_belong_together_are_refused(parts, place, tmp_path, run):  # noqa: F811
    def refused(*arguments, model="m.ncp"):
        return run("merge", place / model, *arguments, code=2)

    asked = ["-n", 5, "--id", "id"]
    assert "these are missing: 2;" in refused(parts / "1.parquet", *asked)
    assert "give each one once" in refused(parts, parts / "1.parquet", *asked)
    assert "no such file" in refused(parts / "9.parquet", *asked)
    assert "is not what `ncprior suggest --shard` wrote" in refused(place / "pool.parquet", *asked)
    (tmp_path / "1.csv").write_text("x\n1\n")
    assert "is not what `ncprior suggest --shard` wrote" in refused(tmp_path / "1.csv", *asked)
    assert "searched for -n 5" in refused(parts, "-n", 6, "--id", "id")
    assert "searched with --id id" in refused(parts, "-n", 5, "--id", "x")
    other = NCPRegressor.load(place / "m.ncp")
    other.calibration_.share[:] = [0.25, 0.75]
    other.save(place / "other.ncp")
    assert "with another model" in refused(parts, *asked, model="other.ncp")
    run(
        *("suggest", place / "m.ncp", place / "pool", "-n", 5, "--id", "id", "--seed", 1),
        *("--shard", "2/2", "--out", parts / "2.parquet", "--force"),
    )
    assert "has the seed 1 and that of" in refused(parts, *asked)
    (parts / "2.parquet").write_bytes((parts / "2.parquet").read_bytes()[:-40])
    assert "or damaged" in refused(parts, *asked)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no file of a shard" in refused(empty, *asked)


def test_shards_that_mean_nothing_are_refused(place, tmp_path, run):  # noqa: F811
    def refused(*arguments):
        return run("suggest", place / "m.ncp", *arguments, code=2)

    out = ["--out", tmp_path / "1.parquet"]
    for text in ("0/3", "4/3", "1", "a/b", "1/0"):
        assert "such as 3/64" in refused(place / "pool", "--id", "id", "--shard", text, *out)
    assert "needs --id" in refused(place / "pool", "--shard", "1/3", *out)
    assert "needs --out FILE.parquet" in refused(place / "pool", "--id", "id", "--shard", "1/3")
    assert "needs --out FILE.parquet" in refused(place / "pool", "--id", "id", "--shard", "1/3", "--out", "a.csv")
    assert "has only 9 parts" in refused(place / "pool.parquet", "--id", "id", "--shard", "1/10", *out)
    assert "has only 1 parts" in refused(place / "pool.csv", "--id", "id", "--shard", "1/2", *out)
    assert "standard input is none" in refused("-", "--id", "id", "--shard", "1/2", *out)
    assert "for --engine ray" in refused(place / "pool", "--address", "auto")
    assert "choose from local, ray" in refused(place / "pool", "--engine", "dask")


@pytest.mark.parametrize("command", ["predict", "suggest", "evaluate", "simulate", "toy", "flights", "ablations"])
def test_engines_that_mean_nothing_are_refused(command, place, tmp_path, run, monkeypatch):  # noqa: F811
    monkeypatch.setattr("ncprior.cli.paper.use_all_cores", lambda: None)
    table = place / "pool.csv"
    arguments = {
        **{name: [name, place / "m.ncp", table] for name in ("predict", "suggest")},
        **{name: [name, table, "--target", "y", "--out", tmp_path / "run"] for name in ("evaluate", "simulate")},
    }.get(command, ["paper", command, "--quick", "--out", tmp_path / "run"])
    assert "choose from local, ray" in run(*arguments, "--engine", "dask", code=2)
    assert "is for --engine ray" in run(*arguments, "--address", "auto", code=2)
    assert not (tmp_path / "run").exists()


def test_shards_are_all_of_the_pool_and_each_unit_is_in_one(place):
    units = [unit for i in range(1, 5) for unit in Shard(i, 4).units(place / "pool")]
    assert sorted(units) == sorted(table_files.units(place / "pool", least=4))
    assert sum(unit.rows for unit in units) == ROWS
    assert [unit.rows for unit in table_files.units(place / "pool.parquet", rows=250)] == [200, 200, 200, 200, 100]
    assert [unit.rows for unit in table_files.units(place / "pool.csv")] == [None]
    streamed = pa.concat_tables(table_files.stream(place / "pool", ["id"], units=[units[0], units[3]]))
    assert streamed.num_rows == units[0].rows + units[3].rows
    with pytest.raises(UserError, match="no such file"):
        table_files.units(place / "nowhere.parquet")


def test_a_folder_of_predictions_has_those_of_the_file(place, tmp_path, run, monkeypatch):  # noqa: F811
    monkeypatch.setattr(table_predictions, "UNIT_ROWS", 250)
    folder = tmp_path / "predicted"
    folder.mkdir()
    one = json.loads(run("predict", place / "m.ncp", place / "pool.parquet", "--out", tmp_path / "p.parquet", "--json"))
    many = json.loads(run("predict", place / "m.ncp", place / "pool.parquet", "--out", folder, "--json"))
    assert sorted(file.name for file in folder.iterdir()) == [f"part-{i:06d}.parquet" for i in range(5)]
    assert table_files.read(folder).equals(table_files.read(tmp_path / "p.parquet"))
    assert {**one, "out": ""} == {**many, "out": ""}
    assert one["scores"]["y"]["rows"] == ROWS
    error = run("predict", place / "m.ncp", place / "pool.parquet", "--out", folder, code=2)
    assert "is a folder with files in it" in error
    inside = place / "pool" / "inside"
    inside.mkdir()
    assert "would become part of it" in run("predict", place / "m.ncp", place / "pool", "--out", inside, code=2)
    inside.rmdir()
