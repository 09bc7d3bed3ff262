"""Every type that Arrow has, in an input, in a target and in a kept column: used, converted or refused in one line."""

import decimal
import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from ncprior.cli.main import main
from ncprior.data import frames, table_files
from ncprior.data.column_types import check_held, csv_table, plain, python_rows
from ncprior.data.encoding import Encoder
from ncprior.data.inspection import look_at
from ncprior.data.labelled import check_inputs, read_targets
from ncprior.errors import UserError
from ncprior.tables.estimator import NCPRegressor

TEXT = pa.array(["1", "2", None])
COUNTS = pa.array([1, 2, None])
BYTES = TEXT.cast(pa.binary())
NUMBERS, FLAG, CATEGORY, DATE, REFUSED = "number", "flag", "category", "date", "refused"


def of_every_type() -> dict[str, tuple[pa.Array, str]]:
    """Three values of every type, the last missing, and what becomes of them as an input."""
    found: dict[str, tuple[pa.Array, str]] = {}
    for size in (8, 16, 32, 64):
        for kind in (f"int{size}", f"uint{size}"):
            found[kind] = COUNTS.cast(getattr(pa, kind)()), NUMBERS
    for size in (16, 32, 64):
        found[f"float{size}"] = pa.array([1, 2, None], getattr(pa, f"float{size}")()), NUMBERS
    for size in (32, 64, 128, 256):
        exact = [decimal.Decimal("1.0"), decimal.Decimal("2.0"), None]
        found[f"decimal{size}"] = pa.array(exact, getattr(pa, f"decimal{size}")(6, 2)), NUMBERS
    found["bool"] = pa.array([True, False, None]), FLAG
    found["bool8"] = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None], pa.int8())), FLAG
    for kind in ("string", "large_string", "string_view"):
        found[kind] = TEXT.cast(getattr(pa, kind)()), CATEGORY
    found["json"] = pa.ExtensionArray.from_storage(pa.json_(), TEXT), CATEGORY
    for unit in ("s", "ms", "us", "ns"):
        found[f"duration {unit}"] = COUNTS.cast(pa.duration(unit)), NUMBERS
        found[f"timestamp {unit}"] = COUNTS.cast(pa.timestamp(unit)), DATE
        found[f"zoned {unit}"] = COUNTS.cast(pa.timestamp(unit, "Asia/Kolkata")), DATE
        found[f"unknown zone {unit}"] = COUNTS.cast(pa.timestamp(unit, "Mars/Phobos")), DATE
    for unit in ("s", "ms"):
        found[f"time {unit}"] = COUNTS.cast(pa.int32()).cast(pa.time32(unit)), DATE
    for unit in ("us", "ns"):
        found[f"time {unit}"] = COUNTS.cast(pa.time64(unit)), DATE
    found["date32"] = COUNTS.cast(pa.int32()).cast(pa.date32()), DATE
    found["date64"] = found["date32"][0].cast(pa.date64()), DATE
    found["late date"] = pa.array([2**31 - 1, -(2**31), None], pa.int32()).cast(pa.date32()), DATE
    found["late timestamp"] = pa.array([2**62, -(2**62), None]).cast(pa.timestamp("us")), DATE
    for kind in ("int64", "float64", "bool", "string", "date32", "timestamp us", "decimal128"):
        values, becomes = found[kind]
        found[f"runs of {kind}"] = pc.run_end_encode(values), becomes
    runs = pa.array([1, 2, 3], pa.int32())
    found["runs of views"] = pa.RunEndEncodedArray.from_arrays(runs, TEXT.cast(pa.string_view())), CATEGORY
    found["runs of dictionaries"] = pa.RunEndEncodedArray.from_arrays(runs, TEXT.dictionary_encode()), CATEGORY
    for kind in ("binary", "large_binary", "binary_view"):
        found[kind] = BYTES.cast(getattr(pa, kind)()), REFUSED
    found["fixed bytes"] = BYTES.cast(pa.binary(1)), REFUSED
    found["uuid"] = (
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"a" * 16, b"b" * 16, None], pa.binary(16))),
        REFUSED,
    )
    found["interval"] = pa.array([(1, 2, 3), (2, 3, 4), None], pa.month_day_nano_interval()), REFUSED
    lists = (pa.list_, pa.large_list, pa.list_view, pa.large_list_view)
    for kind in (*(make(pa.int64()) for make in lists), pa.list_(pa.int64(), 1), pa.list_(pa.string_view())):
        items = ["a"] if kind.value_type == pa.string_view() else [1]
        found[str(kind)] = pa.array([items, items, None], kind), REFUSED
    found["struct"] = pa.array([{"a": 1}, {"a": 2}, None]), REFUSED
    found["map"] = pa.array([[("a", 1)], [("b", 2)], None], pa.map_(pa.string(), pa.int64())), REFUSED
    found["sparse union"] = pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), [COUNTS, TEXT]), REFUSED
    places = pa.array([0, 0, 2], pa.int32())
    found["dense union"] = pa.UnionArray.from_dense(pa.array([0, 1, 0], pa.int8()), places, [COUNTS, TEXT]), REFUSED
    tensor = pa.fixed_shape_tensor(pa.int64(), [1])
    found["tensor"] = pa.ExtensionArray.from_storage(tensor, pa.array([[1], [2], None], tensor.storage_type)), REFUSED
    found["opaque"] = pa.ExtensionArray.from_storage(pa.opaque(pa.int64(), "a", "b"), COUNTS), REFUSED
    for kind, (values, becomes) in list(found.items()):
        if not isinstance(values.type, pa.BaseExtensionType) and not pa.types.is_run_end_encoded(values.type):
            places = pa.array([0, 1, None], pa.int8())
            becomes = REFUSED if becomes == REFUSED else CATEGORY
            found[f"dictionary of {kind}"] = pa.DictionaryArray.from_arrays(places, values), becomes
    found["null"] = pa.nulls(3), "left out"
    return found


TYPES = of_every_type()


def column_of(kind: str) -> pa.Table:
    """A table of 12 rows, in chunks, one of which begins within its values."""
    values, _ = TYPES[kind]
    return pa.table({"x": pa.chunked_array([values, values, values, values.slice(1), values.slice(0, 1)])})


def refusal(function, *arguments) -> str:
    """The line of a refusal, or nothing if there was none."""
    try:
        function(*arguments)
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", TYPES)
def test_inputs_of_every_type_are_used_or_refused(kind):
    table, becomes = column_of(kind), TYPES[kind][1]
    if becomes == REFUSED:
        for check in (Encoder.fit, check_inputs):
            assert "column 'x' holds " in refusal(check, table)
        return
    check_inputs(frames.as_table(table))
    encoder = Encoder.fit(table)
    assert encoder.columns[0].kind == becomes
    assert np.isfinite(encoder.transform(table)).all()
    assert "rows are few" in look_at(frames.as_table(table), {"y": np.zeros(table.num_rows)}, encoder)[-1]
    # Rows of any other type are read in the same way, or refused with the column.
    for other in ("string_view", "runs of int64", "late date", "dictionary of struct", "binary_view"):
        said = refusal(encoder.transform, column_of(other))
        assert not said or "'x'" in said


@pytest.mark.parametrize("kind", TYPES)
def test_targets_of_every_type_are_used_or_refused(kind):
    table = frames.as_table(column_of(kind))
    said = refusal(read_targets, table, ["x"])
    becomes = TYPES[kind][1]
    if becomes in (NUMBERS, FLAG) or kind in ("string_view", "runs of views", "dictionary of int64"):
        assert not said
        assert read_targets(table, ["x"])[1].sum() == 8
    else:
        assert not said or "'x'" in said


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", ["t.arrow", "t.parquet"])
def test_files_of_every_type_are_read_and_written(tmp_path, kind, name):
    table = pa.table({"x": TYPES[kind][0], "y": [1.0, 2.0, 3.0]})
    path, out = tmp_path / name, tmp_path / "out.csv"
    if name == "t.arrow":
        feather.write_feather(table, str(path))
    elif refusal(check_held, path, table.schema):
        return
    else:
        pq.write_table(plain(table), path)
    read = table_files.read(path)
    if name == "t.arrow":  # Parquet has fewer types
        assert python_rows(read.select(["x"])) == python_rows(plain(table).select(["x"]))
    if refusal(check_held, out, read.schema):
        return
    with table_files.write(out) as append:
        append(read)
    assert table_files.read(out).num_rows == 3


def test_what_csv_cannot_hold_is_refused_before_any_work(tmp_path):
    lists, union = (pa.schema([("a", pa.int64()), ("x", TYPES[kind][0].type)]) for kind in ("struct", "dense union"))
    assert "column 'x' holds struct<a: int64>, which CSV cannot hold; write a .parquet" in refusal(
        check_held, tmp_path / "p.csv", lists
    )
    assert not refusal(check_held, tmp_path / "p.parquet", lists)
    for name in ("p.csv", "p.parquet"):
        assert "cannot hold; take it out of the table" in refusal(check_held, tmp_path / name, union)


def test_bytes_in_csv_are_text():
    table = pa.table({"x": [b"word", b"\xff", None], "id": TYPES["uuid"][0]})
    assert csv_table(table)["x"].to_pylist() == ["word", "\\xff", None]
    assert csv_table(table)["id"][0].as_py() == "61616161-6161-6161-6161-616161616161"


def test_rows_that_python_has_no_values_for():
    table = pa.table({"d": TYPES["late date"][0], "z": TYPES["unknown zone us"][0], "x": [1, 2, 3]})
    first, _, last = python_rows(table)
    assert "2147483647" in first["d"]
    assert "1970-01-01 00:00:00.000001" in first["z"]
    assert last == {"d": None, "z": None, "x": 3}


@pytest.fixture
def run(monkeypatch, capsys):
    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["ncprior", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code, capsys.readouterr()

    return command


def test_commands_with_dates_that_python_does_not_have(tmp_path, run):
    """Years after 9999, views and lists, from fitting to suggestions."""
    random = np.random.default_rng(0)
    days = pa.array(random.integers(-(10**9), 10**9, 30), pa.int32()).cast(pa.date32())
    words = pa.array(["a", "b", "c"] * 10).cast(pa.string_view())
    table = pa.table({"day": days, "word": words, "y": random.normal(size=30)})
    feather.write_feather(table.append_column("tags", pa.array([[1]] * 30)), str(tmp_path / "t.arrow"))
    NCPRegressor("det", hidden=(4,), members=1, epochs=1, random_state=0).fit(
        table.drop_columns(["y"]), table["y"].to_numpy()
    ).save(tmp_path / "m.ncp")
    for name in ("picked.csv", "picked.parquet"):
        code, said = run(
            "suggest", tmp_path / "m.ncp", tmp_path / "t.arrow", "-n", 3, "--out", tmp_path / name, "--json"
        )
        assert code == 0, said.err
        assert len(json.loads(said.out)["suggestions"]) == 3
        assert (tmp_path / name).exists()
    code, said = run("suggest", tmp_path / "m.ncp", tmp_path / "t.arrow", "-n", 3, "--id", "day")
    assert code == 0, said.err
    code, said = run("predict", tmp_path / "m.ncp", tmp_path / "t.arrow")
    assert code == 0, said.err
    code, said = run("predict", tmp_path / "m.ncp", tmp_path / "t.arrow", "--out", tmp_path / "p.csv")
    assert code == 2
    assert "column 'tags' holds list<item: int64>, which CSV cannot hold" in said.err
    assert not (tmp_path / "p.csv").exists()
    code, said = run("predict", tmp_path / "m.ncp", tmp_path / "t.arrow", "--out", tmp_path / "p.parquet")
    assert code == 0, said.err
    assert pq.read_metadata(tmp_path / "p.parquet").num_rows == 30


def test_fit_refuses_a_column_that_is_no_input(tmp_path, run):
    table = pa.table({"tags": pa.array([["a"]] * 30, pa.list_(pa.string_view())), "y": np.arange(30.0)})
    feather.write_feather(table, str(tmp_path / "t.arrow"))
    code, said = run("fit", tmp_path / "t.arrow", "--target", "y", "--out", tmp_path / "m.ncp")
    assert code == 2
    assert said.err.startswith("ncprior: column 'tags' holds list<item: string_view>, which is no input")
