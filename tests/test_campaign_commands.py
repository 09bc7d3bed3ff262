"""The commands of campaigns, from create to export, as people and scripts run them."""

import json
import re
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from typer.testing import CliRunner

from ncprior.cli.app import app
from ncprior.errors import UserError

runner = CliRunner()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NCPRIOR_STORAGE", raising=False)
    rows = {"sample": [f"s{i}" for i in range(50)], "x": np.linspace(0, 1, 50), "kind": ["a", "b"] * 25}
    pa_csv.write_csv(pa.table(rows), tmp_path / "pool.csv")
    return tmp_path


def run(*words):
    done = runner.invoke(app, ["campaign", *map(str, words)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def create(*more):
    return run("create", "first", "--pool", "pool.csv", "--id", "sample", "--target", "y", *more)


def in_json(*words):
    return json.loads(run(*words, "--json").stdout)


def test_from_create_to_export(folder):
    assert "50 rows" in create("--budget", "20").stdout
    asked = run("ask", "first", "-n", "3", "--person", "ann", "--lease", "2d")
    header, *rows = asked.stdout.splitlines()
    assert header == "sample,x,kind"
    ids = [row.split(",")[0] for row in rows]
    assert "3 rows, yours until" in asked.stderr
    assert run("tell", "first", "--id", ids[0], "--value", "-3.5", "--person", "ann").stdout == f"{ids[0]}: told\n"
    with pytest.raises(UserError, match=f"correct first --id {ids[0]} --value 4"):
        run("tell", "first", "--id", ids[0], "--value", "4", "--person", "ann")
    assert (
        "corrected" in run("correct", "first", "--id", ids[0], "--value", "4", "--person", "ann", "--note", "n").stdout
    )
    assert "skipped" in run("skip", "first", "--id", ids[1], "--person", "ann").stdout
    assert "failed" in run("fail", "first", "--id", "s40", "--person", "ann", "--note", "broke").stdout
    assert "yours until" in run("extend", "first", "--id", ids[2], "--person", "ann", "--lease", "1w").stdout
    assert "released" in run("release", "first", "--id", ids[2], "--person", "ann").stdout
    (folder / "results.csv").write_text(f"sample,y\n{ids[2]},1.5\ns41,2\n")
    assert "2 told" in run("tell", "first", "--from", "results.csv", "--person", "bob").stdout
    text = run("status", "first").stdout
    assert "3 of 50 rows labelled" in text
    assert "stop rule budget: 3 of 20" in text
    history = run("history", "first", "--id", ids[0]).stdout
    assert re.search(r"told\s+y\s+-3.5", history)
    assert re.search(r"corrected\s+y\s+4\s+n", history)
    assert "3 rows" in run("export", "first", "--out", "labels.csv").stdout
    assert (folder / "labels.csv").read_text().count("\n") == 4
    with pytest.raises(UserError, match="exists already"):
        run("export", "first", "--out", "labels.csv")
    assert run("list").stdout == "first\n"


@pytest.mark.usefixtures("folder")
def test_the_same_as_json():
    assert in_json("create", "first", "--pool", "pool.csv", "--id", "sample", "--target", "y")["labelled"] == 0
    asked = in_json("ask", "first", "--person", "ann")
    [row] = asked["rows"]
    assert set(row) == {"id", "inputs", "expires_at"}
    told = in_json("tell", "first", "--id", row["id"], "--value", "1", "--person", "ann", "--key", "k")
    assert told == {"id": row["id"], "outcome": "new", "missing": [], "notices": []}
    assert in_json("status", "first")["labelled"] == 1
    assert in_json("history", "first", "--id", row["id"])["events"][-1]["value"] == 1.0
    assert in_json("list") == {"campaigns": ["first"]}
    assert in_json("work", "first", "--once") == {"worked": None}
    assert in_json("change", "first", "--budget", "5")["budget"] == 5
    assert in_json("update-pool", "first")["came"] == 0
    assert in_json("export", "first", "--out", "all.parquet", "--history") == {"out": "all.parquet", "rows": 1}


@pytest.mark.usefixtures("folder")
def test_tokens_are_shown_once():
    create()
    token = run("token", "add", "ann", "--role", "viewer")
    assert re.fullmatch(r"\d+\.[\w-]{43}\n", token.stdout)
    assert token.stdout.strip() not in run("token", "list").stdout
    assert re.search(r"ann\s+viewer\s+yes", run("token", "list").stdout)
    run("token", "revoke", "ann")
    assert re.search(r"ann\s+viewer\s+revoked", run("token", "list").stdout)
    with pytest.raises(UserError, match="there is no person 'bob'"):
        run("token", "revoke", "bob")
    with pytest.raises(UserError, match="unknown role 'boss'"):
        run("token", "add", "bob", "--role", "boss")


@pytest.mark.usefixtures("folder")
def test_a_closed_campaign_hands_out_nothing_and_takes_labels():
    create()
    run("change", "first", "--close")
    with pytest.raises(UserError, match="is closed"):
        run("ask", "first", "--person", "ann")
    run("tell", "first", "--id", "s3", "--value", "1", "--person", "ann")
    run("change", "first", "--reopen")
    assert run("ask", "first", "--person", "ann").stdout


def test_the_storage_may_come_from_the_environment(folder, monkeypatch):
    monkeypatch.setenv("NCPRIOR_STORAGE", f"sqlite:///{folder / 'other.db'}")
    create()
    assert (folder / "other.db").exists()
    assert not (folder / "campaign.db").exists()


@pytest.mark.usefixtures("folder")
def test_several_targets_and_rows_outside_the_pool():
    run("create", "first", "--pool", "pool.csv", "--id", "sample", "--target", "y", "--target", "z")
    told = run("tell", "first", "--id", "s1", "--value", "y=1", "--person", "ann")
    assert "missing: z" in told.stdout
    words = ["--value", "y=1", "--value", "z=2", "--input", "x=0.5", "--input", "kind=c", "--person", "ann"]
    assert "told" in run("tell", "first", "--id", "outside", *words).stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tell", "first", "--person", "a"], "give --id and --value of one row, or --from"),
        (["tell", "first", "--id", "s1", "--person", "a"], "give --id and --value"),
        (["tell", "first", "--from", "x.csv", "--key", "k", "--person", "a"], "are for one row"),
        (["tell", "first", "--id", "s1", "--value", "y=1", "--value", "y=2", "--person", "a"], "each name once"),
        (["ask", "other", "--person", "a"], "there is no campaign 'other'"),
        (["ask", "first", "-n", "0", "--person", "a"], "ask for 1 to"),
        (["ask", "first", "--person", ""], "is no name of a person"),
        (["change", "first"], "give one of --budget"),
        (["change", "first", "--close", "--reopen"], "give one of --budget"),
        (["work", "first", "--every", "often"], "no length of time"),
        (["serve", "--port", "70000"], "--port 70000"),
        (["history", "first", "--id", "s1"], "never asked for"),
        (["create", "x", "--pool", "no.csv", "--id", "i", "--target", "y"], "no such file"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_mistakes_are_one_line(words, message):
    create()
    with pytest.raises(UserError, match=message) as caught:
        run(*words)
    assert "\n" not in str(caught.value)


def test_a_table_with_one_bad_result_tells_none(folder):
    create()
    (folder / "results.csv").write_text("sample,y\ns1,1\nnowhere,2\n")
    with pytest.raises(UserError, match=r"'nowhere' is not in the pool.*nothing was told"):
        run("tell", "first", "--from", "results.csv", "--person", "ann")
    assert in_json("status", "first")["labelled"] == 0


@pytest.mark.usefixtures("folder")
def test_without_the_extra_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    for words in (["list"], ["ask", "first", "--person", "a"], ["serve"], ["token", "list"]):
        with pytest.raises(UserError, match=r"pip install 'ncprior\[campaigns\]'"):
            run(*words)


def test_a_real_model_is_trained_and_its_rows_are_asked_for(folder):
    (folder / "known.csv").write_text("sample,y\n" + "".join(f"s{i},{np.sin(i / 8):.3f}\n" for i in range(0, 50, 2)))
    create("--labelled", "known.csv", "--members", "1", "--epochs", "2", "--audit", "0.5")
    worked = in_json("work", "first", "--once")["worked"]
    assert (worked["trained"], worked["rows"], worked["queued"]) == (True, 25, 25)
    for row in in_json("ask", "first", "-n", "12", "--person", "ann")["rows"]:
        run("tell", "first", "--id", row["id"], "--value", "0.5", "--person", "ann")
    status = in_json("status", "first")
    assert status["model"]["metrics"]["uncertainty"]["median"] > 0
    present = status["audits"][0]["present"]
    assert present["rows"] >= 1
    assert np.isfinite([present["rmse"], present["nlpd"]]).all()
