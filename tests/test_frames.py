"""Tables of other libraries in Python: taken as they are, their columns by name."""

import warnings

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.dataset as pa_dataset
import pytest

from ncprior.data.frames import as_table, is_frame
from ncprior.errors import UserError
from ncprior.tables.estimator import NCPRegressor

X = np.linspace(-1, 1, 40)
TABLE = pa.table({"a": X, "b": X**2, "c": ["u", "v"] * 20})


def new_model():
    return NCPRegressor("det", hidden=(4,), members=1, epochs=1, random_state=0)


@pytest.fixture(scope="module")
def model():
    return new_model().fit(TABLE, X)


def duckdb_relation(table):
    return duckdb.connect().from_arrow(table)


def polars_frame(table):
    return polars.from_arrow(table)


KINDS = {
    "Arrow": lambda table: table,
    "reader": pa.Table.to_reader,
    "data set": pa_dataset.dataset,
    "dictionary": pa.Table.to_pydict,
    "pandas": pa.Table.to_pandas,
    "polars": polars_frame,
    "lazy polars": lambda table: polars_frame(table).lazy(),
    "DuckDB": duckdb_relation,
}


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_taken_by_name(model, kind):
    expected = model.predict(TABLE)
    mixed = TABLE.select(["c", "a", "b"]).append_column("more", [X])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(model.predict(KINDS[kind](mixed)), expected, rtol=1e-5)
        with pytest.raises(UserError, match="the table lacks columns of training: 'b'; add them"):
            model.predict(KINDS[kind](TABLE.drop_columns(["b"])))


@pytest.mark.parametrize("kind", ["reader", "lazy polars", "DuckDB", "dictionary"])
def test_models_are_trained_on_them(model, kind):
    found = new_model().fit(KINDS[kind](TABLE), KINDS[kind](TABLE.select(["a"])))
    assert list(found.feature_names_in_) == ["a", "b", "c"]
    assert found.target_names_ == ["a"]
    np.testing.assert_allclose(found.predict(TABLE)[:, 0], model.predict(TABLE), rtol=1e-5)


def test_columns_that_were_left_out_need_not_be_there():
    model = new_model().fit(TABLE.append_column("k", [["same"] * 40]), X)
    assert model.predict(TABLE).shape == (40,)


def test_what_has_columns_with_names():
    for frame in (TABLE, TABLE.to_reader(), {"a": [1]}, TABLE.to_pandas(), polars_frame(TABLE).lazy()):
        assert is_frame(frame)
    for other in (X, X[:, None], [[1.0]], TABLE["a"], TABLE.to_pandas()["a"], polars_frame(TABLE)["a"]):
        assert not is_frame(other)


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_of_the_table(kind):
    assert as_table(KINDS[kind](TABLE)).to_pydict() == TABLE.to_pydict()
