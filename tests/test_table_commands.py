"""The commands for people's own tables: real files, some through real processes, mistakes of every kind."""

import inspect
import io
import json
import re
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from datetime import date, timedelta
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from ncprior.cli import suggest as commands
from ncprior.cli import summaries
from ncprior.cli.interrupts import noted_interrupts
from ncprior.cli.simulate import simulate as simulate_command
from ncprior.core.acquisition import SCORES
from ncprior.core.methods import TITLES
from ncprior.data import table_files
from ncprior.tables.estimator import NCPRegressor
from test_commands import NCPRIOR

ROWS = 150
TINY = ["--members", "2", "--epochs", "3"]


def ncprior(*arguments):
    """In a process of its own, which like the tests compiles fast rather than well."""
    return subprocess.run([NCPRIOR, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def houses(rows=ROWS, seed=0):
    """Numbers, categories, flags, dates and missing values; 10 rows have no price."""
    random = np.random.default_rng(seed)
    size = random.normal(100, 20, rows)
    town = random.choice(["Aby", "Bex", "Cos"], rows)
    price = 3 * size + 50 * (town == "Bex") + random.normal(0, 5, rows)
    missing = np.arange(rows) % 15 == 4
    return pa.table(
        {
            "house": [f"{i:04d}" for i in range(rows)],
            "size": size,
            "rooms": pa.array(random.integers(1, 7, rows), mask=random.random(rows) < 0.1),
            "town": town,
            "garden": random.random(rows) < 0.5,
            "built": [date(1990, 1, 1) + timedelta(days=int(days)) for days in random.integers(0, 9000, rows)],
            "price": pa.array(price, mask=missing),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table as CSV and Parquet."""
    folder = tmp_path_factory.mktemp("houses")
    pa_csv.write_csv(houses(), folder / "houses.csv")
    pq.write_table(houses(), folder / "houses.parquet")
    return folder


@pytest.fixture(scope="module")
def trained(folder, in_process):
    """The path of a model that the command trained, and what it said."""
    options = ["--target", "price", "--exclude-columns", "house", *TINY, "--out", folder / "houses.ncp", "--json"]
    with redirect_stdout(io.StringIO()) as said:
        assert in_process("fit", folder / "houses.csv", *options) == 0
    return folder / "houses.ncp", json.loads(said.getvalue())


@pytest.fixture
def model(trained):
    return NCPRegressor.load(trained[0])


def hidden_files(folder):
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_fit_says_what_it_did(trained, folder):
    path, summary = trained
    assert summary["model"] == str(path)
    assert summary["targets"] == ["price"]
    assert (summary["rows"], summary["rows_without_target"]) == (140, 10)
    kinds = {column["name"]: column["kind"] for column in summary["columns"]}
    assert kinds == {"size": "number", "rooms": "number", "town": "category", "garden": "flag", "built": "date"}
    assert summary["held_out"] is None  # the epochs were given, so no rows were needed to find them
    assert summary["seconds"] > 0
    assert not hidden_files(folder)


def test_the_saved_model_is_that_of_the_estimator(model):
    table = houses().filter(houses()["price"].is_valid())
    inputs = table.drop_columns(["house", "price"])
    same = NCPRegressor(members=2, epochs=3, random_state=0).fit(inputs, table["price"].to_numpy())
    np.testing.assert_allclose(model.predict(inputs), same.predict(inputs), rtol=1e-4)
    assert model.target_names_ == ["price"]


def test_fit_for_people(folder, tmp_path, run):
    out = tmp_path / "two.ncp"
    inputs = ["--inputs", "size,rooms", "--inputs", "town,garden,built"]
    told = run("fit", folder / "houses.parquet", "--target", "price", *inputs, *TINY, "--out", out)
    assert "category with 3 values" in told
    assert "140 rows (10 more have no value of price and were left out)" in told
    assert str(out) in told
    assert [column.name for column in NCPRegressor.load(out).encoder_.columns] == houses().column_names[1:-1]


def test_held_out_rows_tell_how_good_a_model_is(folder, tmp_path, run, monkeypatch):
    scores = {"rmse": 12.34, "nlpd": 3.21, "coverage": 0.875, "rows": 14}

    def fit(self, X, y, X_unlabelled):  # noqa: ARG001
        NCPRegressor.partial_fit(self, X, y)
        self.fitted_ = self.fitted_._replace(validation=scores)
        return self

    monkeypatch.setattr(NCPRegressor, "fit_subset", fit)
    arguments = ["fit", folder / "houses.csv", "--target", "price", "--exclude-columns", "house", "--members", 1]
    told = run(*arguments, "--out", tmp_path / "a.ncp")
    assert "RMSE 12.34, NLPD 3.21; the 90% interval holds 87.5% of 14 rows" in " ".join(told.split())
    assert json.loads(run(*arguments, "--out", tmp_path / "b.ncp", "--json"))["held_out"] == scores


def test_rows_below_a_familiarity_are_marked(trained, folder, tmp_path, run):
    out = tmp_path / "marked.parquet"
    run("predict", trained[0], folder / "houses.parquet", "--flag-below", "0.3", "--out", out)
    table = pq.read_table(out)
    assert table.column_names[-2:] == ["familiarity", "unfamiliar"]
    marked = table["unfamiliar"].to_numpy(zero_copy_only=False)
    np.testing.assert_array_equal(marked, table["familiarity"].to_numpy() < 0.3)
    assert 0 < marked.sum() < len(marked)


def test_unlabelled_rows(folder, tmp_path, run):
    pool, model = tmp_path / "pool", tmp_path / "asked.ncp"
    pool.mkdir()
    others = houses(60, seed=5).drop_columns(["price"])
    pa_csv.write_csv(others.slice(0, 40), pool / "a.csv")
    pa_csv.write_csv(others.slice(40), pool / "b.csv")
    options = ["--target", "price", "--exclude-columns", "house", *TINY, "--out", model]
    done = json.loads(run("fit", folder / "houses.csv", *options, "--unlabelled", pool, "--json"))
    assert done["unlabelled_rows"] == 60
    loaded = NCPRegressor.load(model)
    assert loaded.fitted_.unlabelled == 60
    inputs = houses().filter(pa.array(np.isfinite(houses()["price"].to_numpy(zero_copy_only=False))))
    alone = NCPRegressor(members=2, epochs=3, random_state=0)
    columns = [name for name in inputs.column_names if name not in ("house", "price")]
    alone.fit(inputs.select(columns), inputs["price"].to_numpy(), X_unlabelled=others)
    found, wanted = (one.predict_distribution(others).uncertainty for one in (loaded, alone))
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    pa_csv.write_csv(others.drop_columns(["town"]), tmp_path / "lacks.csv")
    said = run("fit", folder / "houses.csv", *options, "--force", "--unlabelled", tmp_path / "lacks.csv", code=2)
    assert "lacks.csv" in said
    assert "'town'" in said
    many = houses(30_000, seed=6).drop_columns(["price"])
    size = many["size"].to_numpy(zero_copy_only=False).copy()
    size[20_000:] = np.inf
    pq.write_table(many.set_column(many.column_names.index("size"), "size", pa.array(size)), tmp_path / "many.parquet")
    said = run("fit", folder / "houses.csv", *options, "--force", "--unlabelled", tmp_path / "many.parquet", code=2)
    (row,) = re.findall(r"many.parquet: infinite value in column 'size', row (\d+):", said.replace("\n", " "))
    assert 20_000 < int(row) < 20_020  # of 16,384 drawn ones, the first that is infinite is the 10,900th or so
    said = run("fit", folder / "houses.csv", *options, "--force", "--unlabelled", "-", code=2)
    assert "--unlabelled -: only the table can come in on standard input" in said
    said = run("fit", folder / "houses.csv", *options, "--force", "--method", "det", "--unlabelled", pool, code=2)
    assert "have no effect with method 'det'" in said


def test_guaranteed_intervals(trained, folder, tmp_path, run):
    model, out = tmp_path / "apart.ncp", tmp_path / "out.parquet"
    houses = folder / "houses.parquet"
    said = run("predict", trained[0], houses, "--guaranteed", "--out", out, code=2)
    assert said.startswith("ncprior: a guaranteed interval needs rows that the model was fitted without")
    assert "--conformal-fraction 0.1" in said
    assert not out.exists()
    options = ["--target", "price", "--exclude-columns", "house", *TINY, "--conformal-fraction", "0.2"]
    done = json.loads(run("fit", houses, *options, "--out", model, "--json"))
    assert done["rows_set_apart"] == 28
    said = run("predict", model, houses, "--level", "0.99", "--guaranteed", code=2)
    assert "of 0.99 needs 99 rows that the model was fitted without, and there are 28" in said
    summary = json.loads(run("predict", model, houses, "--guaranteed", "--out", out, "--json"))
    assert summary["guaranteed"] == {"rows": 28, "refitted": False}
    found, prediction = pq.read_table(out), NCPRegressor.load(model).predict_distribution(pq.read_table(houses))
    for name, wanted in zip(("lower", "upper"), prediction.interval(0.9, guaranteed=True), strict=True):
        np.testing.assert_allclose(found[name], wanted)
    text = run("predict", model, houses, "--guaranteed")
    assert "Intervals are conformal, by 28 rows that nothing was learned from: of new rows like those of" in text
    assert "conformal" not in run("predict", model, houses)


def test_predictions_are_those_of_the_estimator(trained, model, folder, tmp_path, run):
    out = tmp_path / "predictions.csv"
    summary = json.loads(run("predict", trained[0], folder / "houses.csv", "--out", out, "--json"))
    table = table_files.read(out, schema={"house": pa.string()})
    assert table["house"].to_pylist() == houses()["house"].to_pylist()  # with the zeros that they begin with
    columns = ["mean", "std", "uncertainty", "noise", "lower", "upper", "familiarity"]
    assert table.column_names == [*houses().column_names, *columns]
    prediction = model.predict_distribution(houses().drop_columns(["house", "price"]))
    lower, upper = prediction.interval(0.9)
    values_of = {name: getattr(prediction, name) for name in ("mean", "std", "uncertainty", "noise", "familiarity")}
    expected = [(values_of | {"lower": lower, "upper": upper})[name] for name in columns]
    for name, values in zip(columns, expected, strict=True):
        np.testing.assert_allclose(table[name].to_numpy(), values, rtol=1e-4)
    truth = houses()["price"].to_numpy()
    known = ~np.isnan(truth)
    scores = summary["scores"]["price"]
    assert scores["rows"] == known.sum() == 140
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean((prediction.mean - truth)[known] ** 2)), rel=1e-4)
    assert scores["nlpd"] == pytest.approx(-np.mean(prediction.log_prob(truth)[known]), rel=1e-4)
    assert scores["coverage"] == pytest.approx(np.mean((lower <= truth)[known] & (truth <= upper)[known]))


def test_pieces_and_shards_predict_as_the_whole(trained, folder, tmp_path, run, monkeypatch):
    whole = json.loads(run("predict", trained[0], folder / "houses.parquet", "--out", tmp_path / "a.parquet", "--json"))
    shards(houses(), tmp_path / "shards", 40)
    monkeypatch.setattr(table_files, "stream", partial(table_files.stream, rows=32))
    pieces = json.loads(run("predict", trained[0], tmp_path / "shards", "--out", tmp_path / "b.parquet", "--json"))
    for name, score in whole["scores"]["price"].items():
        assert pieces["scores"]["price"][name] == pytest.approx(score, rel=1e-6)
    a, b = (pq.read_table(tmp_path / name) for name in ("a.parquet", "b.parquet"))
    assert a.select(houses().column_names).equals(b.select(houses().column_names))
    for name in ("mean", "std", "lower"):
        np.testing.assert_allclose(a[name], b[name], rtol=1e-6)


def shards(table, folder, rows):
    folder.mkdir()
    for i, start in enumerate(range(0, table.num_rows, rows)):
        pq.write_table(table.slice(start, rows), folder / f"part{i}.parquet")


def test_predict_without_a_file_shows_the_first_rows(trained, tmp_path, run):
    pool = houses(30).drop_columns(["price"]).append_column("mean", [["[red]x"] * 30])
    pq.write_table(pool, tmp_path / "pool.parquet")
    told = run("predict", trained[0], tmp_path / "pool.parquet")
    assert "the first of 30 rows" in told
    assert "RMSE" not in told
    summary = json.loads(run("predict", trained[0], tmp_path / "pool.parquet", "--json", "--level", "0.5"))
    assert (summary["rows"], len(summary["first_rows"])) == (30, 10)
    first = summary["first_rows"][0]
    assert first["mean"] == "[red]x"  # a column of the user's, which ours must not replace
    assert first["ncprior_lower"] < first["ncprior_mean"] < first["ncprior_upper"]


def test_a_target_that_cannot_be_compared_stops_nothing(trained, tmp_path, run):
    table = houses(20)
    pending = table.set_column(6, "price", [["pending"] * 20])
    pq.write_table(pending, tmp_path / "pending.parquet")
    told = run("predict", trained[0], tmp_path / "pending.parquet", "--out", tmp_path / "out.csv")
    assert "price: not compared with predictions (text 'pending' in column 'price', row 1" in " ".join(told.split())
    assert table_files.read(tmp_path / "out.csv").num_rows == 20


def test_several_targets(folder, tmp_path, run):
    out = tmp_path / "both.ncp"
    arguments = ["--target", "price", "--target", "size", "--inputs", "rooms,town", *TINY, "--out", out, "--json"]
    assert json.loads(run("fit", folder / "houses.csv", *arguments))["targets"] == ["price", "size"]
    summary = json.loads(run("predict", out, folder / "houses.csv", "--json"))
    assert {name: score["rows"] for name, score in summary["scores"].items()} == {"price": 140, "size": 150}
    assert summary["first_rows"][0]["lower_size"] < summary["first_rows"][0]["upper_size"]
    assert "mean_price" in summary["first_rows"][0]
    rows = json.loads(run("suggest", out, folder / "houses.csv", "-n", 2, "--json"))["suggestions"]
    assert {"information_gain", "uncertainty_price", "noise_size"} <= set(rows[0])


def test_held_out_rows_tell_of_every_target(folder, tmp_path, run):
    options = ["--target", "price", "--target", "size", "--inputs", "rooms,town", "--members", 1]
    told = " ".join(run("fit", folder / "houses.csv", *options, "--out", tmp_path / "both.ncp").split())
    price, size = (re.search(rf"held-out rows, {name}: RMSE (\S+), .* of 14 rows", told) for name in ("price", "size"))
    assert float(price[1]) > 2 * float(size[1])  # the deviation of a price is some 60, that of a size 20


def test_suggest_in_a_real_process(trained, model, folder, tmp_path):
    pa_csv.write_csv(houses().slice(0, 50), tmp_path / "labelled.csv")
    out = tmp_path / "to_label.csv"
    options = ["-n", 5, "--id", "house", "--exclude", tmp_path / "labelled.csv", "--out", out, "--json"]
    done = ncprior("suggest", trained[0], folder / "houses.csv", "--acquisition", "information_gain", *options)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["pool_rows"], summary["excluded"]) == (150, 50)
    inputs = houses().drop_columns(["house", "price"])
    best = model.suggest(inputs, 5, acquisition="information_gain", exclude=np.arange(150) < 50)
    assert [row["house"] for row in summary["suggestions"]] == [f"{i:04d}" for i in best]
    table = table_files.read(out, schema={"house": pa.string()})
    assert table["house"].to_pylist() == [f"{i:04d}" for i in best]
    assert table["rank"].to_pylist() == [1, 2, 3, 4, 5]
    assert table["town"].to_pylist() == inputs["town"].take(best).to_pylist()
    prediction = model.predict_distribution(inputs.take(best))
    np.testing.assert_allclose(table["information_gain"], model.information_gain(inputs.take(best)), rtol=1e-3)
    np.testing.assert_allclose(table["uncertainty"], prediction.uncertainty, rtol=1e-3)
    np.testing.assert_allclose(table["noise"], prediction.noise, rtol=1e-3)
    np.testing.assert_allclose(table["mean"], prediction.mean, rtol=1e-3)


@pytest.mark.parametrize("candidates", [50_000, 60])
def test_batches_are_picked_among_candidates(candidates, trained, folder, tmp_path, run, monkeypatch):
    monkeypatch.setattr("ncprior.tables.candidates.CANDIDATES", candidates)
    options = ["-n", 20, "--id", "house", "--json"]
    first = json.loads(run("suggest", trained[0], folder / "houses.csv", *options))["suggestions"]
    assert len({row["house"] for row in first}) == 20
    assert {"rank", "information_gain", "uncertainty"} <= set(first[0])
    assert "score" not in first[0]
    again, other = (
        json.loads(run("suggest", trained[0], folder / "houses.csv", *options, "--seed", seed))["suggestions"]
        for seed in (0, 1)
    )
    assert again == first
    assert {row["house"] for row in other} != {row["house"] for row in first}
    exclude = tmp_path / "labelled.csv"
    pa_csv.write_csv(houses().slice(0, 130), exclude)
    rest = json.loads(run("suggest", trained[0], folder / "houses.csv", *options, "--exclude", exclude))["suggestions"]
    assert sorted(row["house"] for row in rest) == [f"{i:04d}" for i in range(130, 150)]


def test_suggest_for_people(trained, folder, run):
    told = run("suggest", trained[0], folder / "houses.csv", "-n", 3, "--greedy", "--acquisition", "uncertainty")
    assert "information_gain" in told
    assert "from a pool of 150 rows" in told
    assert "garden" not in told  # the file has the inputs; a small table need not


@pytest.mark.parametrize("how", [[], ["--acquisition", "information_gain", "--temperature", 0.2]])
def test_shards_suggest_as_the_whole(how, trained, folder, tmp_path, run):
    shards(houses(), tmp_path / "shards", 40)
    options = ["-n", 20, *how, "--seed", 3, "--json"]
    whole, parts, other = (
        json.loads(run("suggest", trained[0], path, *options, *more))["suggestions"]
        for path, more in (
            (folder / "houses.parquet", []),
            (tmp_path / "shards", []),
            (tmp_path / "shards", ["--seed", 4]),
        )
    )
    assert whole == parts
    assert [row["row"] for row in whole] != [row["row"] for row in other]


def test_excluded_rows_without_ids_are_those_with_equal_inputs(trained, folder, tmp_path, run):
    """Whatever the type of file, and the order and number of its columns."""
    columns = ["town", "built", "garden", "rooms", "size"]
    pa_csv.write_csv(houses().slice(20, 100).select(columns), tmp_path / "labelled.csv")
    options = ["--exclude", tmp_path / "labelled.csv", "--json"]
    summary = json.loads(run("suggest", trained[0], folder / "houses.parquet", "-n", 50, *options))
    assert summary["excluded"] == 100
    assert sorted(row["row"] for row in summary["suggestions"]) == [*range(1, 21), *range(121, 151)]


def test_defaults_are_those_of_the_estimator():
    theirs = inspect.signature(NCPRegressor.suggest).parameters
    ours = inspect.signature(commands.suggest).parameters
    assert ours["temperature"].default == theirs["temperature"].default
    assert ours["acquisition"].default == theirs["acquisition"].default
    assert ours["count"].default == theirs["n"].default
    assert inspect.signature(simulate_command).parameters["rules"].default == theirs["acquisition"].default
    assert inspect.signature(NCPRegressor).parameters["members"].default == 8  # as the help says


def test_a_score_that_was_added_has_a_name_everywhere(trained, folder, run, monkeypatch):
    line = run("suggest", trained[0], folder / "houses.parquet", "--acquisition", "cheap", code=2)
    assert "unknown acquisition 'cheap': choose from kmeans_inputs" in line
    monkeypatch.setitem(SCORES, "cheap", lambda prediction: -prediction.mean[:, 0])
    options = ["-n", 5, "--acquisition", "cheap", "--json"]
    found = json.loads(run("suggest", trained[0], folder / "houses.parquet", *options))["suggestions"]
    means = NCPRegressor.load(trained[0]).predict(houses().drop_columns(["house", "price"]))
    np.testing.assert_allclose([row["mean"] for row in found], np.sort(means)[:5], rtol=1e-5)


def test_force_replaces(trained, folder, tmp_path, run):
    (tmp_path / "out.csv").write_text("old")
    run("predict", trained[0], folder / "houses.csv", "--out", tmp_path / "out.csv", "--force")
    assert table_files.read(tmp_path / "out.csv").num_rows == ROWS
    assert "old" not in (tmp_path / "out.csv").read_text()


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_leaves_nothing_behind(trained, folder, tmp_path, run, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("os._exit", sys.exit)
    monkeypatch.setattr(NCPRegressor, "predict_piece", interrupted)
    monkeypatch.setattr(NCPRegressor, "fit_subset", interrupted)
    monkeypatch.setattr("ncprior.report.page.report", interrupted)
    (tmp_path / "config.json").write_text("{}")
    assert run("report", tmp_path, code=130) == "ncprior: stopped; what was finished is kept\n"
    (tmp_path / "config.json").unlink()
    for command in (
        ["fit", folder / "houses.csv", "--target", "price", "--out", tmp_path / "new.ncp"],
        ["predict", trained[0], folder / "houses.csv", "--out", tmp_path / "new.csv"],
        ["suggest", trained[0], folder / "houses.csv", "--out", tmp_path / "new.csv"],
    ):
        assert run(*command, code=130) == "ncprior: stopped; nothing was written\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_after_the_model_is_written_does_not_deny_it(folder, tmp_path, run, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("os._exit", sys.exit)
    monkeypatch.setattr("ncprior.cli.summaries.print_fit", interrupted)
    out = tmp_path / "new.ncp"
    said = run("fit", folder / "houses.csv", "--target", "price", *TINY, "--out", out, code=130)
    assert said == f"ncprior: stopped; the model is in {out}\n"
    assert NCPRegressor.load(out).target_names_ == ["price"]


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_that_native_code_turns_into_another_error(folder, tmp_path, run, monkeypatch):
    def interrupted(*_, **__):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ValueError("not a valid PEP 3118 buffer format string") from None

    monkeypatch.setattr("os._exit", sys.exit)
    monkeypatch.setattr(NCPRegressor, "fit_subset", interrupted)
    monkeypatch.setattr("ncprior.experiments.baselines.fit", interrupted)
    monkeypatch.setattr("ncprior.report.page.report", interrupted)
    table = [folder / "houses.csv", "--target", "price", "--out", tmp_path / "new"]
    assert run("fit", *table, code=130) == "ncprior: stopped; nothing was written\n"
    assert not list(tmp_path.iterdir())
    said = run("evaluate", *table, "--methods", "mean", code=130)
    assert said == "ncprior: stopped; the same command with --resume goes on from the last finished round\n"
    assert run("report", tmp_path / "new", code=130) == "ncprior: stopped; what was finished is kept\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_that_python_drops(folder, tmp_path, run, monkeypatch):
    class Dropped:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    def interrupted(*_, **__):
        Dropped()
        for _ in range(200):
            time.sleep(0.05)

    monkeypatch.setattr("os._exit", sys.exit)
    monkeypatch.setattr(NCPRegressor, "fit_subset", interrupted)
    command = ["fit", folder / "houses.csv", "--target", "price", "--out", tmp_path / "new.ncp"]
    assert run(*command, code=130) == "ncprior: stopped; nothing was written\n"


@pytest.mark.usefixtures("interruptible")
def test_other_errors_and_an_ignored_ctrl_c_stay_what_they_are():
    with pytest.raises(ValueError, match="bad"), noted_interrupts():
        raise ValueError("bad")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with noted_interrupts():
            signal.raise_signal(signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    noted = noted_interrupts()
    with ThreadPoolExecutor(1) as pool:  # in whose thread no handler can be set
        pool.submit(noted(lambda: None)).result()


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_in_a_real_process(folder, tmp_path):
    arguments = ["fit", folder / "houses.csv", "--target", "price", "--epochs", 5000, "--out", tmp_path / "new.ncp"]
    process = subprocess.Popen([NCPRIOR, *map(str, arguments)], stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(4)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "ncprior: stopped; nothing was written"
    assert "Traceback" not in errors
    assert not list(tmp_path.iterdir())


@pytest.fixture
def busy():
    """A process that keeps others from writing a file, until it is killed."""
    code = (
        "import sys, pathlib; from ncprior.files import alone\n"
        "with alone(pathlib.Path(sys.argv[1])): print('begun', flush=True); input()"
    )
    started = []

    def start(path):
        command = [sys.executable, "-c", code, str(path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout.readline() == "begun\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("command", ["fit", "predict", "suggest"])
def test_a_file_that_another_process_writes_is_refused_before_any_work(
    trained, folder, tmp_path, run, monkeypatch, busy, command
):
    def work(*_, **__):
        raise AssertionError

    arguments = {
        "fit": [folder / "houses.csv", "--target", "price", *TINY],
        "predict": [trained[0], folder / "houses.csv"],
        "suggest": [trained[0], folder / "houses.csv"],
    }[command]
    out = tmp_path / ("new.ncp" if command == "fit" else "new.csv")
    first = busy(out)
    with monkeypatch.context() as patch:
        patch.setattr(table_files, "stream", work)
        patch.setattr(NCPRegressor, "load", work)
        said = run(command, *arguments, "--out", out, code=2)
    assert said.startswith(f"ncprior: --out {out}: is being written by process {first.pid}; wait until it is done, or")
    first.kill()
    first.wait(timeout=60)
    (tmp_path / f".{out.name}.0123456789abcdef.ncprior-part").write_text("half")
    run(command, *arguments, "--out", out)
    assert list(tmp_path.iterdir()) == [out]


def test_a_folder_that_another_process_works_in_is_refused(folder, tmp_path, run, busy):
    out = tmp_path / "run"
    out.mkdir()
    first = busy(out / "config.json")
    mean = ["--target", "price", "--methods", "mean", "--splits", 1, "--out", out]
    commands = [
        ["evaluate", folder / "houses.csv", *mean],
        ["evaluate", folder / "houses.csv", *mean, "--resume"],
        ["simulate", folder / "houses.csv", "--target", "price", "--out", out],
        ["paper", "toy", "--quick", "--out", out],
    ]
    for command in commands:
        said = run(*command, code=2)
        assert said.startswith(f"ncprior: {out}: is in use by process {first.pid}; wait until it is done, or choose")
    first.kill()
    first.wait(timeout=60)
    run("evaluate", folder / "houses.csv", *mean)  # a lock that a killed process left is no run
    busy(out / "config.json")
    assert "is in use by process" in run("report", out, code=2)
    assert hidden_files(out) == [".config.json.ncprior-lock"]


def test_a_full_disk_is_one_line(trained, folder, tmp_path, run):
    """Files are limited to a few bytes, which fails as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    options = ["--exclude-columns", "house", *TINY, "--out", tmp_path / "new.ncp"]
    commands = [
        ["fit", folder / "houses.csv", "--target", "price", *options],
        ["predict", trained[0], folder / "houses.csv", "--out", tmp_path / "new.csv"],
        ["suggest", trained[0], folder / "houses.csv", "-n", "99", "--out", tmp_path / "new.csv"],
    ]
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        for command in commands:
            assert "be written (File too large)" in run(*command, code=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


def test_help_has_examples(run):
    for command in ("fit", "predict", "suggest"):
        told = run(command, "--help")
        assert told.count(f"ncprior {command} ") >= 3  # the usage and two examples
        assert "--json" in told


def test_help_names_every_method(run):
    words = re.findall(r"[\w+]+", run("fit", "--help"))  # det is a word of its own, not a part of det+ncp
    assert [name for name in ("ncp", *TITLES, "deep+ncp") if name not in words] == []


def test_a_summary_of_many_columns_is_bounded(capsys):
    columns = [{"name": f"x{i}", "kind": "number", "treatment": "number, median 0"} for i in range(9_000)]
    columns += [{"name": f"w{i}", "kind": "left out", "treatment": "left out: constant"} for i in range(1_000)]
    about = {
        "targets": ["y"],
        "rows": 200,
        "rows_with_target": 200,
        "rows_without_target": 0,
        "steps": [100],
        "seconds": 1.0,
        "held_out": None,
    }
    about |= {"unlabelled_rows": 0, "rows_set_apart": 0}
    about |= {"look_at": [f"line {i}" for i in range(500)], "boosted_trees": {}}
    summaries.print_fit({**about, "columns": columns, "model": "m.ncp"})
    said = capsys.readouterr().out
    assert "and 9,980 more columns: 8,980 number, 1,000 left out" in said
    assert "x19" in said
    assert "x20" not in said
    assert "and 480 more" in said
    assert said.count("\n") < 60
