"""The files of a method: checkpoints, metrics that are ahead of them, and what says that a method is finished."""

import numpy as np
import pytest

from ncprior.experiments.records import Records
from ncprior.experiments.runs import MethodFiles, append_rows, unfinished_methods


@pytest.fixture
def files(tmp_path):
    return MethodFiles(Records.create(tmp_path / "run", "test", {}, resume=False), "det")


def rows(*epochs):
    return {"epoch": np.array(epochs), "test_rmse": 1.0 / np.array(epochs)}


def test_a_checkpoint_has_the_metrics_that_belong_to_it(files):
    assert files.load_checkpoint(lambda _: {"a": np.zeros(2)}) is None
    files.save_checkpoint({"a": np.array([1.0, 2.0])}, rows(1, 2), seconds=3.5)
    # The process ends after it has written the metrics of epoch 3, and before their checkpoint.
    files.records.write_table("metrics/det.parquet", rows(1, 2, 3))
    found = files.load_checkpoint(lambda notes: {"a": np.zeros(2)} if notes["seconds"] == 3.5 else {})
    np.testing.assert_array_equal(found.tree["a"], [1.0, 2.0])
    np.testing.assert_array_equal(found.metrics["epoch"], [1, 2])
    np.testing.assert_array_equal(files.metrics()["epoch"], [1, 2, 3])


def test_a_method_is_finished_when_its_networks_are_on_record(files):
    files.save_checkpoint({"a": np.zeros(2)}, rows(1), seconds=0.0)
    assert not files.finished
    assert unfinished_methods(files.records, ["det", "bbb"]) == ["det", "bbb"]
    files.finish({"a": np.ones(2)}, seeds=[0, 1])
    assert files.finished
    assert unfinished_methods(files.records, ["det", "bbb"]) == ["bbb"]
    assert files.load_checkpoint(lambda _: {"a": np.zeros(2)}) is None
    assert files.model_notes() == {"seeds": [0, 1]}
    np.testing.assert_array_equal(files.load_model({"a": np.zeros(2)})["a"], [1.0, 1.0])


def test_rows_are_added_at_the_end():
    table = append_rows(append_rows({}, rows(1)), rows(2, 3))
    np.testing.assert_array_equal(table["epoch"], [1, 2, 3])
    assert table["test_rmse"].dtype == np.float64
