"""The commands on files in other dialects, on standard input and output, and what a model remembers of its own."""

import io
import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ncprior.cli.main import main
from ncprior.data import table_files
from ncprior.data.encoding import Encoder
from ncprior.data.formats.dialect import DialectOptions
from ncprior.tables.estimator import NCPRegressor
from ncprior.tables.reasons import reasons

ROWS = 60
TINY = ["--method", "det", "--members", "1", "--epochs", "1"]


def lines(separator=";", decimal=",", unit=" K", header="t;yes;when;y"):
    """Temperatures, flags, dates of which some are after the 12th, and a target."""
    random = np.random.default_rng(0)
    rows = [header.replace(";", separator)]
    for i in range(ROWS):
        t, y = f"{300 + 10 * random.normal():.2f}{unit}", f"{random.normal():.3f}"
        cells = [t, "yes" if i % 3 else "no", f"{i % 28 + 1:02d}/0{i % 9 + 1}/2021", y]
        rows.append(separator.join(cell.replace(".", decimal) for cell in cells))
    return "\n".join(rows) + "\n"


@pytest.fixture
def run(monkeypatch, capfdbinary):
    def run(*arguments, stdin=None, code=0):
        monkeypatch.setattr("ncprior.cli.progress._PLAIN_SECONDS", 1e9)
        monkeypatch.setattr(sys, "argv", ["ncprior", *map(str, arguments)])
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfdbinary.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        assert (stop.value.code or 0) == code, err
        return out.decode(), err.decode()

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dialects")
    (folder / "train.csv").write_bytes(lines().encode("cp1252"))
    (folder / "plain.csv").write_text(lines(",", ".", ""))
    table = table_files.read(folder / "train.csv")
    model = NCPRegressor("det", hidden=(4,), members=1, epochs=1, random_state=0)
    model.fit(table.drop_columns(["y"]), table["y"].to_numpy()).target_names_ = ["y"]
    model.save(folder / "model.ncp")
    return folder


def test_fit_says_how_it_read_the_file_and_what_to_look_at(folder, tmp_path, run):
    out, err = run("fit", folder / "train.csv", "--target", "y", *TINY, "--out", tmp_path / "m.ncp", "--json")
    assert err == "train.csv: read with ';' and decimal commas\n"
    summary = json.loads(out)
    assert summary["read"] == "read with ';' and decimal commas"
    said = {column["name"]: column["treatment"] for column in summary["columns"]}
    assert "(in K, decimal commas)" in said["t"]
    assert said["yes"] == "true or false"
    assert "(written day/month/year)" in said["when"]
    assert summary["look_at"] == ["60 rows are few: how good the model is, is hardly known"]
    encoder = NCPRegressor.load(tmp_path / "m.ncp").encoder_
    assert (encoder.decimal, encoder.dates, encoder.columns[0].unit) == (",", "dmy", "K")


def test_counters_without_a_name_are_left_out_with_a_word(tmp_path, run):
    rows = [f"{i},{i % 7},{i % 5}" for i in range(40)]
    (tmp_path / "t.csv").write_text("\n".join([",x,y", *rows]))
    fit = ["fit", tmp_path / "t.csv", "--target", "y", *TINY, "--json"]
    summary = json.loads(run(*fit, "--out", tmp_path / "a.ncp")[0])
    assert [column["name"] for column in summary["columns"]] == ["x"]
    assert summary["look_at"][0] == "'unnamed 1' has no name and only counts the rows; it was left out"
    wanted = json.loads(run(*fit, "--inputs", "unnamed 1,x", "--out", tmp_path / "b.ncp")[0])
    assert [column["name"] for column in wanted["columns"]] == ["unnamed 1", "x"]


def test_columns_that_the_first_file_of_a_folder_lacks_are_left_out_with_a_word(tmp_path, run):
    (tmp_path / "t").mkdir()
    for name, more, rows in (("1.csv", "", range(20)), ("2.csv", ",late", range(20, 40))):
        lines = [f"{i % 7},{i % 5}{',1' * bool(more)}" for i in rows]
        (tmp_path / "t" / name).write_text("\n".join([f"x,y{more}", *lines]))
    fit = ["fit", tmp_path / "t", "--target", "y", *TINY, "--json", "--out", tmp_path / "m.ncp"]
    summary = json.loads(run(*fit)[0])
    assert [column["name"] for column in summary["columns"]] == ["x"]
    assert summary["look_at"][0] == "'late' is not in the first file of the folder, and was left out"


def test_quiet_says_nothing(folder, tmp_path, run, monkeypatch):
    monkeypatch.setattr("ncprior.experiments.baselines.boosting_error", None)  # must not be called
    said = run("fit", folder / "plain.csv", "--target", "y", *TINY, "--out", tmp_path / "m.ncp", "--quiet")
    assert said == ("", "")
    assert (tmp_path / "m.ncp").exists()


def predicted(run, folder, *arguments, **more):
    out = folder / "out.parquet"
    run("predict", folder / "model.ncp", *arguments, "--out", out, "--force", **more)
    return pq.read_table(out)


def test_predictions_do_not_depend_on_the_dialect(folder, run):
    same = predicted(run, folder, folder / "train.csv")
    plain = predicted(run, folder, folder / "plain.csv")
    np.testing.assert_allclose(same["mean"], plain["mean"], rtol=1e-6)
    assert plain["t"].to_pylist() == same["t"].to_pylist()


def test_a_model_settles_what_a_file_leaves_open(folder, tmp_path, run):
    (tmp_path / "open.csv").write_text("t;yes;when\n300,125;no;05/06/2021\n")
    (tmp_path / "clear.csv").write_text("t,yes,when\n300.125,no,2021-06-05\n")
    as_trained, clear = (predicted(run, folder, tmp_path / name)["mean"] for name in ("open.csv", "clear.csv"))
    np.testing.assert_allclose(as_trained, clear, rtol=1e-6)
    with pytest.raises(ValueError, match=r"which may be 300125 or 300\.125"):
        table_files.read(tmp_path / "open.csv")


def test_other_units_are_refused(folder, tmp_path, run):
    (tmp_path / "celsius.csv").write_text(lines(unit=" °C"))
    err = run("predict", folder / "model.ncp", tmp_path / "celsius.csv", code=2)[1]
    assert "column 't' is in °C, but was in K in training; convert it" in err


def test_standard_input_and_output(folder, run):
    content = (folder / "train.csv").read_bytes()
    out, err = run("predict", folder / "model.ncp", "-", "--out", "-", stdin=content)
    found = table_files.pa_csv.read_csv(io.BytesIO(out.encode()))
    assert found.num_rows == ROWS
    assert found.column_names[:4] == ["t", "yes", "when", "y"]
    np.testing.assert_allclose(found["mean"], predicted(run, folder, folder / "train.csv")["mean"], rtol=1e-5)
    assert "read with ';' and decimal commas" in err
    assert "Promised: 90%" in err
    parquet = io.BytesIO()
    pq.write_table(table_files.read(folder / "plain.csv"), parquet)
    out, err = run("suggest", folder / "model.ncp", "-", "-n", 2, "--out", "-", stdin=parquet.getvalue())
    assert len(out.splitlines()) == 3
    assert out.splitlines()[0].endswith('"why"')
    assert "Chosen by kmeans_greedy" in err


def test_mistakes_on_standard_input_are_told_as_such(folder, run, monkeypatch):
    content = b"t,yes,when\n" + b"300,no,2021-06-05\n" * 20 + b"300,no\n"
    err = run("predict", folder / "model.ncp", "-", stdin=content, code=2)[1]
    assert err == "ncprior: standard input: line 22 has 2 values, but the header has 3; mend or drop that line\n"
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    assert "nothing comes in there" in run("predict", folder / "model.ncp", "-", code=2)[1]


def test_large_files_in_other_dialects_come_in_pieces(folder, run, monkeypatch):
    from ncprior.data.formats import csv as csv_tables

    monkeypatch.setattr(csv_tables, "_BLOCK", 256)
    pieces = list(table_files.stream(folder / "train.csv", rows=16))
    assert [piece.num_rows for piece in pieces] == [16, 16, 16, 12]
    whole = predicted(run, folder, folder / "train.csv")
    monkeypatch.undo()
    np.testing.assert_allclose(whole["mean"], predicted(run, folder, folder / "plain.csv")["mean"], rtol=1e-6)


# Reasons


class Fitted:
    """What reasons need of a trained ensemble."""

    def __init__(self, table):
        self.encoder = Encoder.fit(table)
        self.training_sample = self.encoder.transform(table)


def test_reasons_name_the_columns_that_are_far():
    random = np.random.default_rng(0)
    table = pa.table({"cement": random.normal(size=200), "age": random.normal(size=200), "town": ["Aby", "Bex"] * 100})
    rows = pa.table(
        {
            "cement": [9.0, 0.0, 8.0, 0.0, table["cement"][3].as_py(), table["cement"][3].as_py() + 0.01],
            "age": [0.0, -7.0, 8.0, 0.0, table["age"][3].as_py(), table["age"][3].as_py()],
            "town": ["Aby", "Aby", "Bex", "Cos", "Bex", "Bex"],
        }
    )
    said = reasons(Fitted(table), rows, np.ones(6), np.full(6, 2.0))
    assert said[0] == "far from all labelled rows in cement"
    assert said[1] == "far from all labelled rows in age"
    assert said[2] in ("far from all labelled rows in cement and age", "far from all labelled rows in age and cement")
    assert said[3].startswith("has a value that no labelled row has")
    assert said[4] == "has the inputs of a labelled row: its label tells how much labels scatter"
    assert said[5] == "fills a space between labelled rows in cement"
    assert reasons(Fitted(table), rows.slice(5), np.ones(1), np.zeros(1)) == [
        "the networks disagree about it; differs from labelled rows in cement"
    ]


def test_options_of_a_dialect_are_checked_before_anything_is_read():
    assert DialectOptions("tab").separator == "\t"
    assert DialectOptions("space").separator == " "
