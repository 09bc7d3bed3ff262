"""Seeds of an experiment as tasks: the records are those of one process, bit for bit."""

import dataclasses
import pickle

import numpy as np
import pytest
from safetensors.numpy import load_file

from ncprior.core.active import Schedule
from ncprior.core.settings import REFERENCE
from ncprior.data import toy
from ncprior.experiments.paper import learning_curves, robustness, seed_tasks
from ncprior.experiments.records import Records
from ncprior.experiments.runs import MethodFiles


class Elsewhere:
    """Runs tasks as a cluster does: what goes there and back is pickled, and the last may be done first."""

    def __init__(self):
        self.tasks = 0

    def run(self, function, tasks):
        self.tasks += len(tasks)
        for number in reversed(range(len(tasks))):
            there, task = pickle.loads(pickle.dumps((function, tasks[number])))
            yield number, pickle.loads(pickle.dumps(there(task)))


@pytest.fixture
def config(monkeypatch):
    monkeypatch.setattr(seed_tasks, "SEEDS", 2)
    settings = dataclasses.replace(REFERENCE, hidden=(4,))
    schedule = Schedule(epochs=6, select_every=2, evaluate_every=2)
    return learning_curves.Config("reference", settings, schedule, ("bbb+ncp",), seeds=2)


@pytest.mark.usefixtures("few_metrics")
def test_tasks_leave_the_records_of_one_process(config, tmp_path):
    sweep, data, engine, shown = robustness.make_sweep(np.array([0.1])), toy.load(), Elsewhere(), []
    found = {}
    for name, where in (("one", None), ("many", engine)):
        records = Records.create(tmp_path / name, "toy", dataclasses.asdict(config), resume=False)
        learning_curves.run(config, data, records, evaluate_unseen=True, sweep=sweep, show=shown.append, engine=where)
        found[name] = records
    assert engine.tasks == 2  # two seeds, each with two priors
    for table in ("metrics", "labels"):
        one, many = (records.read_table(f"{table}/bbb+ncp.parquet") for records in found.values())
        assert list(one) == list(many)
        for column in one:
            np.testing.assert_array_equal(one[column], many[column], err_msg=column)
    one, many = (load_file(records.folder / "models" / "bbb+ncp.safetensors") for records in found.values())
    assert one.keys() == many.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], many[name], err_msg=name)
    assert MethodFiles(found["many"], "bbb+ncp").finished
    assert shown[-1].epoch == config.schedule.epochs
