"""Tasks on a Ray cluster of two nodes on this machine: the same rows and files as one process, whatever is lost."""

import dataclasses
import json
import os
import threading
import time
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

import ray_tasks
from ncprior.data.formats.dialect import PLAIN
from ncprior.engines.ray_core import RayCore
from ncprior.errors import UserError
from ncprior.experiments import evaluate, simulate
from ncprior.experiments.records import Records
from ncprior.tables import table_predictions

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of Ray's own
    pytest.mark.xdist_group("ray"),
]
FILES = 3  # of the pool


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """Two nodes, each with one core as far as Ray knows; their workers find the tasks of these tests."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    found.add_node(num_cpus=1)
    ray.init(address=found.address, log_to_driver=False, logging_level="error")
    yield found
    ray.shutdown()
    found.shutdown()
    os.environ.pop("PYTHONPATH")
    if before is not None:
        os.environ["PYTHONPATH"] = before


def test_results_come_as_they_are_done_and_mistakes_are_told():
    engine = RayCore()
    assert sorted(engine.run(ray_tasks.squared, list(range(20)))) == [(i, i * i) for i in range(20)]
    with pytest.raises(UserError, match="no root of -1"):
        list(engine.run(ray_tasks.root, [4, -1]))
    with pytest.raises(ZeroDivisionError):
        list(engine.run(ray_tasks.inverse, [0]))


def test_jax_is_not_there_before_a_worker_has_its_core():
    """Other workers on this machine may have taken all of them; see the tests of engines."""
    allowed = os.sched_getaffinity(0)
    for _, (with_jax, cores) in RayCore().run(ray_tasks.cores, [0, 1]):
        assert not with_jax
        assert len(cores) == 1 or cores == allowed


@pytest.mark.parametrize("how", [[], ["--acquisition", "information_gain"]])
@pytest.mark.parametrize("ids", [["--id", "id"], []])
def test_the_same_rows_are_suggested(how, ids, pools, run):
    options = ["-n", 5, *ids, *how, "--json"]
    expected = run("suggest", pools / "m.ncp", pools / "pool", *options)
    assert run("suggest", pools / "m.ncp", pools / "pool", *options, "--engine", "ray") == expected


def test_the_same_files_are_written(pools, tmp_path, run):
    options = [pools / "m.ncp", pools / "pool", "--json"]
    told = {}
    for engine in ("local", "ray"):
        (tmp_path / engine).mkdir()
        for out in (tmp_path / engine, tmp_path / f"{engine}.parquet", tmp_path / f"{engine}.csv"):
            told[engine, out.suffix] = json.loads(run("predict", *options, "--engine", engine, "--out", out))
    for suffix in ("", ".parquet", ".csv"):
        assert {**told["ray", suffix], "out": ""} == {**told["local", suffix], "out": ""}
    for suffix in (".parquet", ".csv"):
        assert (tmp_path / f"ray{suffix}").read_bytes() == (tmp_path / f"local{suffix}").read_bytes()
    names = sorted(file.name for file in (tmp_path / "local").iterdir())
    assert len(names) == FILES
    assert sorted(file.name for file in (tmp_path / "ray").iterdir()) == names
    for name in names:
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()
    shown = json.loads(run("predict", *options, "--engine", "ray"))
    assert shown["first_rows"] == json.loads(run("predict", *options))["first_rows"]
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")]


@pytest.mark.usefixtures("contrast_as_it_is")  # as in the tasks
def test_the_same_fits_are_evaluated_and_simulated(pools, tmp_path):
    table = {"table": str(pools / "trained.parquet"), "target": "y", "fingerprint": ""}
    small = {"members": 1, "epochs": 2, "hidden": (4,)}
    how = {"initial": 6, "batch": 4, "labels": 10, "seeds": 1}
    configs = {
        evaluate: evaluate.Config(**table, split="random", methods=("ncp", "linear"), splits=2, estimator=small),
        simulate: simulate.Config(**table, **how, estimator=small),
    }
    for experiment, config in configs.items():
        loaded, found, shown = experiment.load(config), {}, []
        for name, engine in (("local", None), ("ray", RayCore())):
            folder = tmp_path / f"{experiment.NAME}-{name}"
            records = Records.create(folder, experiment.NAME, dataclasses.asdict(config), resume=False)
            experiment.experiment(config, loaded, records, shown.append, engine)
            found[name] = {
                str(file.relative_to(folder)): without_seconds(json.loads(file.read_text()))
                for file in sorted((folder / "runs").rglob("*.json"))
            }
        assert found["ray"] == found["local"]
        assert len(found["ray"]) == (4 if experiment is evaluate else 2)
        assert shown[-1].done == shown[-1].total


def test_a_task_that_runs_twice_writes_once(pools, tmp_path):
    """As one does whose node seemed lost: both are under way at once."""
    job = table_predictions.Job(
        table_predictions.ModelFile.shared(pools / "m.ncp"),
        pools / "pool",
        {},
        PLAIN,
        0.9,
    )
    task = table_predictions.UnitTask(
        job, table_predictions.Unit(0), 1, table_predictions.unit_file(tmp_path, 0), shown_rows=3
    )
    first, again = (done for _, done in RayCore().run(table_predictions.predict_unit, [task, task]))
    assert first.first.equals(again.first)
    assert first.totals.scores.results() == again.totals.scores.results()
    file = table_predictions.unit_file(tmp_path, 0)
    written = file.stat()
    assert [one.name for one in tmp_path.iterdir()] == [file.name]
    list(RayCore().run(table_predictions.predict_unit, [task]))
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)


def test_what_was_lost_with_a_node_runs_again(cluster, tmp_path):
    """The node is killed as soon as a task has begun on it."""
    node = cluster.add_node(num_cpus=2)

    def kill():
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(f"*-{node.node_id}-*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        cluster.remove_node(node, allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    seen = list(RayCore().run(ray_tasks.slow, [(i, str(tmp_path)) for i in range(10)]))
    killer.join()
    assert sorted(seen) == [(i, i) for i in range(10)]
    begun = [file.name.split("-")[:2] for file in tmp_path.iterdir()]
    lost = {number for number, where in begun if where == node.node_id}
    assert lost
    assert lost <= {number for number, where in begun if where != node.node_id}  # and were begun again elsewhere


def without_seconds(value):
    if isinstance(value, dict):
        return {name: without_seconds(part) for name, part in value.items() if name != "seconds"}
    return [without_seconds(part) for part in value] if isinstance(value, list) else value
