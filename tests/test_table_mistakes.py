"""Mistakes with people's own tables: each gets one line that says what, where and what to do, and changes no file."""

import sys
import warnings
from functools import partial

import numpy as np
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from ncprior.cli.main import main
from ncprior.data import table_files
from ncprior.tables.estimator import NCPRegressor
from test_table_commands import houses


@pytest.fixture(scope="module")
def model():
    table = houses().filter(houses()["price"].is_valid())
    model = NCPRegressor("det", hidden=(4,), members=1, epochs=1, random_state=0)
    return model.fit(table.drop_columns(["house", "price"]), table["price"].to_numpy())


@pytest.fixture
def mistake(run):
    return partial(run, code=2)


@pytest.fixture
def bad(tmp_path, model):
    """Files with something wrong in them, and their folder."""
    model.save(tmp_path / "model.ncp")
    pa_csv.write_csv(houses(), tmp_path / "houses.csv")
    lines = (tmp_path / "houses.csv").read_text().splitlines()
    (tmp_path / "text.csv").write_text("x,y\n1,2\n2,\n3,much\n")
    (tmp_path / "two.csv").write_text("x,y\n1,2\n2,\n3,4\n")
    (tmp_path / "underscore.csv").write_text("x,y\n1,2\n2,\n3,1_000\n")
    (tmp_path / "large.csv").write_text("\n".join(["x,y", *(f"{i},{-i}e30" for i in range(30))]))
    (tmp_path / "infinite.csv").write_text("x,y\n1,2\n2,\n3,inf\n")
    (tmp_path / "infinite-input.csv").write_text("x,y\n1,2\n2,\n-inf,3\n")
    (tmp_path / "unlabelled.csv").write_text("x,y\n1,\n2,NA\n")
    (tmp_path / "dates.csv").write_text("x,y\n1,2020-01-01\n2,2020-01-02\n")
    (tmp_path / "one-column.csv").write_text("y\n1\n2\n")
    (tmp_path / "latin-1.csv").write_bytes(b"h\xf6he,y\n1,2\n2,3\n")
    (tmp_path / "commas.csv").write_text("\n".join(["x,y", *(f'"{i},123",{i}' for i in range(1, 20))]))
    (tmp_path / "typo.csv").write_text("\n".join(["x,y", *(f"{i}.5,{i}" for i in range(30)), "oops,30"]))
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("x,y\n")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "notes.doc").write_text("mine")
    pq.write_table(houses(), tmp_path / "houses.parquet")
    (tmp_path / "foreign.ncp").write_bytes(b"PK\x03\x04 not a model")
    (tmp_path / "damaged.ncp").write_bytes((tmp_path / "model.ncp").read_bytes()[:1000])
    (tmp_path / "no-size.csv").write_text("\n".join(line.partition(",")[2].partition(",")[2] for line in lines))
    (tmp_path / "no-id.csv").write_text("\n".join([*lines[:5], lines[5][lines[5].index(",") :]]))
    (tmp_path / "words.csv").write_text("\n".join([*lines[:9], lines[9].replace(lines[9].split(",")[1], "big")]))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("fit nowhere.csv --target y --out new.ncp", "nowhere.csv: no such file or folder"),
        ("fit notes.doc --target y --out new.ncp", "notes.doc: unknown kind of file"),
        (
            "fit latin-1.csv --target y --encoding utf-8 --out new.ncp",
            "latin-1.csv: has letters that are not utf-8; giv",
        ),
        (
            "evaluate latin-1.csv --target y --encoding utf-8 --out new",
            "latin-1.csv: has letters that are not utf-8; gi",
        ),
        (
            "fit commas.csv --target y --out new.ncp",
            "column 'x' has numbers such as '1,123', which may be 1123 or 1.12",
        ),
        (
            "evaluate commas.csv --target y --out new",
            "column 'x' has numbers such as '1,123', which may be 1123 or 1.1",
        ),
        (
            "fit houses.parquet --target price --sep ; --out new.ncp",
            "--sep is not for Parquet files, such as houses.par",
        ),
        ("predict model.ncp houses.parquet --sheet May", "--sheet is not for Parquet files"),
        ("fit houses.csv --target price --sheet May --out new.ncp", "--sheet is not for CSV files"),
        ("fit houses.csv --target price --decimal x --out new.ncp", "--decimal 'x': give . or ,"),
        ("fit houses.csv --target price --dates ymd --out new.ncp", "--dates 'ymd': give dmy if the day comes first"),
        ("fit houses.csv --target price --header-row -1 --out new.ncp", "--header-row -1: give the number of a line"),
        ("fit houses.csv --target price --out new.ncp --quiet --json", "--quiet says nothing, and --json does"),
        ("fit houses.csv --target price --out -", "--out -: a model is no text for standard output"),
        ("evaluate - --target price --out new", "-: a run keeps the place of its table"),
        ("predict model.ncp houses.csv --out - --json", "--out - and --json both write to standard output"),
        ("suggest model.ncp houses.csv --exclude -", "--exclude -: only the pool can come in on standard input"),
        ("fit typo.csv --target y --out new.ncp", "text 'oops' in column 'x', row 31, where most values are numbers"),
        ("simulate typo.csv --target y --out new", "text 'oops' in column 'x', row 31, where most values are numbers"),
        ("fit empty.csv --target y --out new.ncp", "empty.csv: the file is empty"),
        ("fit header.csv --target y --out new.ncp", "has columns but no rows"),
        ("fit houses.csv --target prise --out new.ncp", "no column 'prise'; did you mean 'price'?"),
        ("fit houses.csv --target price --inputs sise --out new.ncp", "no column 'sise'; did you mean 'size'?"),
        ("fit houses.csv --target price --exclude-columns hause --out new.ncp", "has no column 'hause'; it has house,"),
        ("fit houses.csv --target price --inputs size,price --out new.ncp", "'price' is in --inputs and in --target"),
        ("fit one-column.csv --target y --out new.ncp", "no column is left to predict from"),
        ("fit text.csv --target y --out new.ncp", "text 'much' in the target 'y', row 3; a target must be numbers"),
        ("fit underscore.csv --target y --out new.ncp", "text '1_000' in the target 'y', row 3; a target must be num"),
        ("fit large.csv --target y --out new.ncp", "-2e+30 in the target 'y', row 3 is too large to compute with"),
        ("evaluate large.csv --target y --out new", "-2e+30 in the target 'y', row 3 is too large to compute with"),
        ("simulate large.csv --target y --out new", "-2e+30 in the target 'y', row 3 is too large to compute with"),
        ("fit infinite.csv --target y --out new.ncp", "infinite value in column 'y', row 3"),
        ("fit infinite-input.csv --target y --out new.ncp", "infinite value in column 'x', row 3"),
        ("fit unlabelled.csv --target y --out new.ncp", "the target 'y' has no value in any row"),
        ("fit dates.csv --target y --out new.ncp", "the target 'y' holds dates"),
        (
            "fit houses.csv --target price --method magic --out new.ncp",
            "unknown method 'magic': choose from ncp, det, ",
        ),
        ("fit houses.csv --target price --members 0 --out new.ncp", "members must be at least 1"),
        ("fit houses.csv --target price --epochs 0 --out new.ncp", "epochs must be at least 1"),
        ("fit houses.csv --target price --seed -1 --out new.ncp", "--seed -1: give a whole number from 0"),
        ("fit houses.csv --target price --out model.ncp", "model.ncp: exists already"),
        ("fit houses.csv --target price --out houses.csv --force", "a model is not a table"),
        ("fit houses.csv --target price --out nowhere/new.ncp", "there is no folder nowhere"),
        ("predict nowhere.ncp houses.csv", "nowhere.ncp"),
        ("predict foreign.ncp houses.csv", "foreign.ncp"),
        ("predict damaged.ncp houses.csv", "damaged.ncp"),
        ("predict houses.csv houses.csv", "houses.csv"),
        ("predict model.ncp nowhere.csv", "nowhere.csv: no such file or folder"),
        ("predict model.ncp houses.csv --out houses.csv", "houses.csv: exists already"),
        (
            "predict model.ncp houses.csv --out new.xlsx",
            "new.xlsx: cannot be written; choose the name of a .parquet or",
        ),
        ("predict model.ncp . --out new.csv", "lies in the folder that is read"),
        ("predict model.ncp houses.csv --level 90", "--level 90: give a probability between 0 and 1"),
        ("predict model.ncp houses.csv --flag-below 5", "--flag-below 5: give a familiarity above 0 and at most 1"),
        ("predict model.ncp no-size.csv", "lacks columns of training: 'size'"),
        ("predict model.ncp words.csv", "big' in column 'size', line 10"),
        ("suggest model.ncp houses.csv -n 151", "-n 151: the pool has only 150 rows"),
        ("suggest model.ncp houses.csv -n 51 --id house --exclude houses.csv", "only 0 rows that can be picked"),
        ("suggest model.ncp houses.csv -n 0", "-n 0: ask for at least one row"),
        (
            "suggest model.ncp houses.csv --acquisition luck",
            "unknown acquisition 'luck': choose from kmeans_inputs,",
        ),
        ("suggest model.ncp houses.csv --temperature 1", "add --acquisition information_gain"),
        ("suggest model.ncp houses.csv --temperature -1", "--temperature -1: give a number from 0 up"),
        ("suggest model.ncp houses.csv --greedy", "--greedy is for scores of rows, and kmeans_greedy is none"),
        ("suggest model.ncp houses.csv --acquisition uncertainty --greedy --temperature 1", "leave one of them out"),
        ("suggest model.ncp houses.csv --greedy --acquisition random", "leave one of them out"),
        (
            "fit two.csv --target y --out new.ncp",
            "nothing can be learned from 2 samples with a target: give at least 3",
        ),
        ("fit two.csv --target y --min-rows 0 --out new.ncp", "min_rows must be at least 1 and a whole number, got 0"),
        ("suggest model.ncp houses.csv --id hause", "no column 'hause'; did you mean 'house'?"),
        ("suggest model.ncp no-id.csv -n 2 --id house", "row 5 of the pool has no id in column 'house'"),
        ("suggest model.ncp no-size.csv", "no column 'size'"),
        ("suggest model.ncp houses.csv --exclude nowhere.csv", "nowhere.csv: no such file or folder"),
        ("suggest model.ncp houses.csv --exclude text.csv", "text.csv: no column"),
        ("suggest model.ncp houses.csv --out notes.txt", "notes.txt: exists already"),
        ("suggest model.ncp houses.csv --out new.txt", "new.txt: cannot be written"),
    ],
)
def test_mistakes_get_one_clear_line(arguments, message, bad, mistake, monkeypatch):
    monkeypatch.chdir(bad)
    before = {path.name: path.read_bytes() for path in bad.iterdir()}
    assert message in mistake(*arguments.split())
    assert {path.name: path.read_bytes() for path in bad.iterdir()} == before


def test_warnings_are_one_line_too(tmp_path, capsys, monkeypatch):
    (tmp_path / "flat.csv").write_text("x,y\n" + "1,2\n1,3\n1,4\n" * 3)
    options = ["--members", "1", "--epochs", "1", "--out", tmp_path / "new.ncp", "--json"]
    monkeypatch.setattr(
        sys, "argv", ["ncprior", "fit", str(tmp_path / "flat.csv"), "--target", "y", *map(str, options)]
    )
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda *what, **_: sys.stderr.write(warnings.formatwarning(*what[:4]))
        with pytest.raises(SystemExit):
            main()
    lines = [line for line in capsys.readouterr().err.splitlines() if "varies" in line]
    assert len(lines) == 1
    assert lines[0].startswith("ncprior: no column varies that a model can use")


def test_errors_of_later_pieces_name_the_row_of_the_file(model, tmp_path, mistake, monkeypatch):
    table = houses()
    size = table["size"].to_numpy().copy()
    size[99] = np.inf
    pq.write_table(table.set_column(1, "size", [size]), tmp_path / "pool.parquet")
    monkeypatch.setattr(table_files, "stream", partial(table_files.stream, rows=32))
    model.save(tmp_path / "model.ncp")
    for command in ("predict", "suggest"):
        arguments = [tmp_path / "model.ncp", tmp_path / "pool.parquet", "--out", tmp_path / "out.csv"]
        assert "'size', row 100" in mistake(command, *arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.ncp", "pool.parquet"]
