import json
import resource
import signal

import jax
import numpy as np
import pytest

from ncprior.errors import UserError
from ncprior.experiments.records import Records, summary


@pytest.fixture
def records(tmp_path):
    return Records.create(tmp_path / "run", "toy", {"seeds": 3, "settings": {"gamma": 0.1}}, resume=False)


def test_config_is_kept_with_versions(records):
    content = json.loads((records.folder / "config.json").read_text())
    assert content["config"] == {"seeds": 3, "settings": {"gamma": 0.1}}
    assert {"ncprior", "python", "jax", "numpy"} <= content["versions"].keys()
    assert Records.open(records.folder).experiment == "toy"


def test_a_run_is_not_overwritten(records):
    with pytest.raises(UserError, match="add --resume"):
        Records.create(records.folder, "toy", records.config, resume=False)


def test_resuming_needs_the_same_settings(records):
    Records.create(records.folder, "toy", records.config, resume=True)
    with pytest.raises(UserError, match=r"settings.gamma was 0.1, now 0.2"):
        Records.create(records.folder, "toy", {"seeds": 3, "settings": {"gamma": 0.2}}, resume=True)
    with pytest.raises(UserError, match="holds a run of toy"):
        Records.create(records.folder, "other", records.config, resume=True)


def test_other_versions_are_told(tmp_path, capsys):
    Records.create(tmp_path / "run", "toy", {"seeds": 2}, resume=False)
    Records.create(tmp_path / "run", "toy", {"seeds": 2}, resume=True)
    assert capsys.readouterr().err == ""
    file = tmp_path / "run" / "config.json"
    content = json.loads(file.read_text())
    content["versions"]["jax"] = "0.0.1"
    file.write_text(json.dumps(content))
    Records.create(tmp_path / "run", "toy", {"seeds": 2}, resume=True)
    assert "begun with other versions of jax" in capsys.readouterr().err


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(UserError, match="not a run of ncprior"):
        Records.create(tmp_path, "toy", {}, resume=True)
    with pytest.raises(UserError, match="not a run of ncprior"):
        Records.create(tmp_path / "thesis.tex", "toy", {}, resume=False)
    with pytest.raises(UserError, match="no run of ncprior"):
        Records.open(tmp_path)


def test_tables_and_trees_come_back(records):
    records.write_table("t.parquet", {"a": [1, 2], "b": np.array([0.5, np.nan])})
    back = records.read_table("t.parquet")
    np.testing.assert_array_equal(back["b"], [0.5, np.nan])
    tree = {"key": jax.random.split(jax.random.key(0), 2), "x": [np.arange(3.0), np.int32(4)]}
    records.write_tree("t.safetensors", tree, note={"1": "why"})
    again = records.read_tree("t.safetensors", tree)
    assert records.read_notes("t.safetensors") == {"note": {"1": "why"}}
    np.testing.assert_array_equal(jax.random.key_data(again["key"]), jax.random.key_data(tree["key"]))
    np.testing.assert_array_equal(again["x"][0], tree["x"][0])


def test_numbers_that_json_does_not_have_become_null(records):
    records.write_json("r.json", {"a": float("nan"), "b": [np.float32("inf"), np.int64(3)]})
    assert json.loads((records.folder / "r.json").read_text()) == {"a": None, "b": [None, 3]}


@pytest.mark.parametrize("name", ["t.parquet", "t.safetensors", "t.json"])
def test_damaged_files_are_refused(records, name):
    (records.folder / name).write_bytes(b"\x00 not what it says")
    read = {
        "t.parquet": records.read_table,
        "t.safetensors": lambda file: records.read_tree(file, {"x": np.zeros(2)}),
        "t.json": records.read_json,
    }[name]
    with pytest.raises(UserError, match="cannot read"):
        read(name)


def test_a_tree_of_another_shape_is_refused(records):
    records.write_tree("t.safetensors", {"x": np.zeros(2)})
    with pytest.raises(UserError, match="not of this run"):
        records.read_tree("t.safetensors", {"x": np.zeros(3)})


def test_a_full_disk_loses_nothing(records):
    """A file that cannot be written whole leaves the old one in its place, and no rest beside it."""
    records.write_json("results.json", {"old": 1})
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails instead of ending the process
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
        with pytest.raises(UserError, match=r"results.json: cannot be written \(File too large\); .* kept"):
            records.write_json("results.json", {"new": list(range(10_000))})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, previous)
    assert records.read_json("results.json") == {"old": 1}
    assert sorted(path.name for path in records.folder.iterdir()) == ["config.json", "results.json"]


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot be written"):
        Records.create(tmp_path / "file" / "run", "toy", {}, resume=False)


def test_summary_leaves_out_seeds_that_stopped():
    assert summary([1.0, 3.0, np.nan]) == {"mean": 2.0, "std": 1.0, "median": 2.0}
    assert np.isnan(summary([np.nan])["mean"])
