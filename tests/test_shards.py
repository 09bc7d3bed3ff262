"""Pools that are searched shard by shard, and tables that are predicted unit by unit, by the commands."""

import json

import pyarrow as pa
import pytest

from ncprior.data import table_files
from ncprior.errors import UserError
from ncprior.tables import candidates, table_predictions
from ncprior.tables.estimator import NCPRegressor
from ncprior.tables.pool_parts import Shard

ROWS = 900


@pytest.fixture
def few(monkeypatch):
    """A pool of 900 rows is a large one."""
    monkeypatch.setattr(candidates, "CANDIDATES", 60)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("how", [[], ["--acquisition", "information_gain", "--temperature", "0.3"]])
@pytest.mark.parametrize(("pool", "shards"), [("pool.parquet", 4), ("pool", 3), ("pool", 7)])
def test_shards_give_the_rows_of_the_whole(how, pool, shards, pools, tmp_path, run):
    options = [*how, "-n", 5, "--id", "id", "--exclude", pools / "labelled.csv", "--seed", 4, "--json"]
    whole = json.loads(run("suggest", pools / "m.ncp", pools / "pool.csv", *options))
    told = [
        json.loads(
            run(
                *("suggest", pools / "m.ncp", pools / pool, *options),
                *("--shard", f"{i}/{shards}", "--out", tmp_path / f"{i}.parquet"),
            )
        )
        for i in range(1, shards + 1)
    ]
    assert sum(one["rows"] for one in told) == ROWS
    assert sum(one["kept"] for one in told) < ROWS / 2
    merged = json.loads(run("merge", pools / "m.ncp", tmp_path, "-n", 5, "--id", "id", "--json"))
    assert merged == whole
    out = tmp_path / "to_label.csv"
    run("merge", pools / "m.ncp", *tmp_path.glob("*.parquet"), "-n", 3, "--id", "id", "--out", out)
    picked = table_files.read(out)["id"].to_pylist()
    if how:  # by their scores, the first ones; a batch of three is another one
        assert picked == [row["id"] for row in whole["suggestions"][:3]]
    assert len(picked) == 3


@pytest.fixture
def parts(pools, tmp_path, run):
    for i in (1, 2):
        run(
            *("suggest", pools / "m.ncp", pools / "pool", "-n", 5, "--id", "id"),
            *("--shard", f"{i}/2", "--out", tmp_path / f"{i}.parquet"),
        )
    return tmp_path


def test_parts_that_do_not_belong_together_are_refused(parts, pools, tmp_path, run):
    def refused(*arguments, model="m.ncp"):
        return run("merge", pools / model, *arguments, code=2)

    asked = ["-n", 5, "--id", "id"]
    assert "these are missing: 2;" in refused(parts / "1.parquet", *asked)
    assert "give each one once" in refused(parts, parts / "1.parquet", *asked)
    assert "no such file" in refused(parts / "9.parquet", *asked)
    assert "is not what `ncprior suggest --shard` wrote" in refused(pools / "pool.parquet", *asked)
    (tmp_path / "1.csv").write_text("x\n1\n")
    assert "is not what `ncprior suggest --shard` wrote" in refused(tmp_path / "1.csv", *asked)
    assert "searched for -n 5" in refused(parts, "-n", 6, "--id", "id")
    assert "searched with --id id" in refused(parts, "-n", 5, "--id", "x")
    other = NCPRegressor.load(pools / "m.ncp")
    other.calibration_.share[:] = [0.25, 0.75]
    other.save(pools / "other.ncp")
    assert "with another model" in refused(parts, *asked, model="other.ncp")
    run(
        *("suggest", pools / "m.ncp", pools / "pool", "-n", 5, "--id", "id", "--seed", 1),
        *("--shard", "2/2", "--out", parts / "2.parquet", "--force"),
    )
    assert "has the seed 1 and that of" in refused(parts, *asked)
    (parts / "2.parquet").write_bytes((parts / "2.parquet").read_bytes()[:-40])
    assert "or damaged" in refused(parts, *asked)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no file of a shard" in refused(empty, *asked)


def test_shards_that_mean_nothing_are_refused(pools, tmp_path, run):
    def refused(*arguments):
        return run("suggest", pools / "m.ncp", *arguments, code=2)

    out = ["--out", tmp_path / "1.parquet"]
    for text in ("0/3", "4/3", "1", "a/b", "1/0"):
        assert "such as 3/64" in refused(pools / "pool", "--id", "id", "--shard", text, *out)
    assert "needs --id" in refused(pools / "pool", "--shard", "1/3", *out)
    assert "needs --out FILE.parquet" in refused(pools / "pool", "--id", "id", "--shard", "1/3")
    assert "needs --out FILE.parquet" in refused(pools / "pool", "--id", "id", "--shard", "1/3", "--out", "a.csv")
    assert "has only 9 parts" in refused(pools / "pool.parquet", "--id", "id", "--shard", "1/10", *out)
    assert "has only 1 parts" in refused(pools / "pool.csv", "--id", "id", "--shard", "1/2", *out)
    assert "standard input is none" in refused("-", "--id", "id", "--shard", "1/2", *out)
    assert "for --engine ray" in refused(pools / "pool", "--address", "auto")
    assert "choose from local, ray" in refused(pools / "pool", "--engine", "dask")


@pytest.mark.parametrize("command", ["predict", "suggest", "evaluate", "simulate", "toy", "flights", "ablations"])
def test_engines_that_mean_nothing_are_refused(command, pools, tmp_path, run, monkeypatch):
    monkeypatch.setattr("ncprior.cli.paper.use_all_cores", lambda: None)
    table = pools / "pool.csv"
    arguments = {
        **{name: [name, pools / "m.ncp", table] for name in ("predict", "suggest")},
        **{name: [name, table, "--target", "y", "--out", tmp_path / "run"] for name in ("evaluate", "simulate")},
    }.get(command, ["paper", command, "--quick", "--out", tmp_path / "run"])
    assert "choose from local, ray" in run(*arguments, "--engine", "dask", code=2)
    assert "is for --engine ray" in run(*arguments, "--address", "auto", code=2)
    assert not (tmp_path / "run").exists()


def test_shards_are_all_of_the_pool_and_each_unit_is_in_one(pools):
    units = [unit for i in range(1, 5) for unit in Shard(i, 4).units(pools / "pool")]
    assert sorted(units) == sorted(table_files.units(pools / "pool", least=4))
    assert sum(unit.rows for unit in units) == ROWS
    assert [unit.rows for unit in table_files.units(pools / "pool.parquet", rows=250)] == [
        200,
        200,
        200,
        200,
        100,
    ]
    assert [unit.rows for unit in table_files.units(pools / "pool.csv")] == [None]
    streamed = pa.concat_tables(table_files.stream(pools / "pool", ["id"], units=[units[0], units[3]]))
    assert streamed.num_rows == units[0].rows + units[3].rows
    with pytest.raises(UserError, match="no such file"):
        table_files.units(pools / "nowhere.parquet")


def test_a_folder_of_predictions_has_those_of_the_file(pools, tmp_path, run, monkeypatch):
    monkeypatch.setattr(table_predictions, "UNIT_ROWS", 250)
    folder = tmp_path / "predicted"
    folder.mkdir()
    one = json.loads(run("predict", pools / "m.ncp", pools / "pool.parquet", "--out", tmp_path / "p.parquet", "--json"))
    many = json.loads(run("predict", pools / "m.ncp", pools / "pool.parquet", "--out", folder, "--json"))
    assert sorted(file.name for file in folder.iterdir()) == [f"part-{i:06d}.parquet" for i in range(5)]
    assert table_files.read(folder).equals(table_files.read(tmp_path / "p.parquet"))
    assert {**one, "out": ""} == {**many, "out": ""}
    assert one["scores"]["y"]["rows"] == ROWS
    error = run("predict", pools / "m.ncp", pools / "pool.parquet", "--out", folder, code=2)
    assert "is a folder with files in it" in error
    inside = pools / "pool" / "inside"
    inside.mkdir()
    assert "would become part of it" in run("predict", pools / "m.ncp", pools / "pool", "--out", inside, code=2)
    inside.rmdir()
