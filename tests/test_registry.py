"""A rule or a score that is registered once is known to the estimator, the commands, the report page and the docs."""

import json
import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from ncprior import NCPRegressor
from ncprior.core.acquisition import SCORES, score_names
from ncprior.core.registry import Entry, Registry, Style, style_of
from ncprior.errors import UserError
from ncprior.experiments import evaluate
from ncprior.report.page import report
from ncprior.tables.batches import RULES, acquisitions

DOCS = Path(__file__).parent.parent / "docs"
ROWS = 40


def first_rows(pool, labelled, count, *, key):  # noqa: ARG001
    """The first rows that can be picked."""
    return jnp.argsort(pool.excluded, stable=True)[:count]


def low_mean(prediction):
    """Rows with a low mean."""
    return -prediction.mean[:, 0]


FIRST = Entry(first_rows, Style("first come", "#ABCDEF", "-.", "h"), "the first rows of the pool", "inputs")


@pytest.fixture
def added(monkeypatch):
    """A rule with all its details, a rule and a score that are plain functions."""
    monkeypatch.setitem(RULES, "first", FIRST)
    monkeypatch.setitem(RULES, "plain_rule", first_rows)
    monkeypatch.setitem(SCORES, "low_mean", low_mean)


@pytest.fixture(scope="module")
def model():
    inputs = np.linspace(-1, 1, ROWS)[:, None]
    return NCPRegressor(members=2, epochs=3, hidden=(8,), random_state=0).fit(inputs, 3 * inputs[:, 0])


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("registry") / "table.csv"
    random = np.random.default_rng(0)
    path.write_text("a,y\n" + "".join(f"{x:.4f},{x**2:.4f}\n" for x in random.normal(size=ROWS)))
    return path


@pytest.mark.usefixtures("added")
def test_the_estimator_takes_what_is_added(model):
    pool = np.linspace(3, -3, 9)[:, None]
    for rule in ("first", "plain_rule"):
        assert list(model.suggest(pool, n=3, acquisition=rule, random_state=0)) == [0, 1, 2]
    lowest = np.argsort(model.predict(pool), kind="stable")[:3]
    assert list(model.suggest(pool, n=3, acquisition="low_mean")) == list(lowest)


@pytest.mark.usefixtures("added")
def test_the_command_suggest_takes_what_is_added(model, tmp_path, run):
    model.save(tmp_path / "model.ncp")
    pool = tmp_path / "pool.csv"
    pool.write_text("x0\n" + "".join(f"{x}\n" for x in np.linspace(-3, 3, 9)))
    found = {}
    for name in ("first", "plain_rule", "low_mean"):
        said = run("suggest", tmp_path / "model.ncp", pool, "-n", 9, "--acquisition", name, "--json")
        found[name] = [row["mean"] for row in json.loads(said)["suggestions"]]
    assert found["low_mean"] == sorted(found["low_mean"])
    assert found["first"] == found["plain_rule"] != found["low_mean"]
    said = run("suggest", tmp_path / "model.ncp", pool, "-n", 3, "--acquisition", "first", "--greedy", code=2)
    assert "--greedy is for scores of rows, and first is none" in said


@pytest.mark.usefixtures("added")
@pytest.mark.parametrize("command", ["suggest", "simulate"])
def test_help_names_all_that_there_is(command, run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    said = run(command, "--help")
    assert f"({', '.join(RULES)})" in said
    assert f"({', '.join(score_names())})" in said
    for name, entry in acquisitions().items():
        assert f"{name}: {entry.help}" in said
    assert "low_mean: Rows with a low mean." in said
    assert "ood_" not in said
    assert not re.search(r"\b(RULES|SCORES)\b", said)


def test_simulate_and_its_page_take_what_is_added(table, tmp_path, run, monkeypatch):
    out = tmp_path / "run"
    small = ["--seeds", 1, "--initial", 5, "--batch", 5, "--labels", 10]
    small += ["--set", "members=2", "--set", "epochs=3", "--set", "hidden=8"]
    with monkeypatch.context() as patch:
        patch.setitem(RULES, "first", FIRST)
        patch.setitem(SCORES, "low_mean", low_mean)
        said = run("simulate", table, "--target", "y", "--rules", "first,low_mean", *small, "--json", "--out", out)
    assert set(json.loads(said)["rules"]) == {"first", "low_mean", "random"}
    page, figure = (out / "report.html").read_text(), (out / "figures" / "simulation.svg").read_text()
    assert "first come" in page
    assert "low mean" in page
    assert "#abcdef" in figure.lower()
    # Another process, which does not know them, can still draw the page.
    page = report(out).read_text()
    assert "first come" not in page
    assert "low mean" in page


def test_every_rule_score_and_method_has_a_style_of_its_own():
    for entries in (RULES, SCORES, evaluate.METHODS):
        styles = [entry.style for entry in entries.values()]
        assert len(set(styles)) == len({style.title for style in styles}) == len(styles)
        assert all(re.fullmatch("#[0-9A-F]{6}", style.colour) for style in styles)
    drawn = [entry.style[1:] for entry in acquisitions().values()]
    assert len(set(drawn)) == len(drawn)
    assert style_of("gone_by_now", RULES) == Style("gone by now")


def test_entries_say_what_they_compare():
    assert all(entry.help and "\n" not in entry.help for entry in (*RULES.values(), *SCORES.values()))
    assert {entry.compares for entry in SCORES.values()} == {"prediction", "ood_prediction"}
    assert {entry.compares for entry in RULES.values()} == {"inputs", "gradients", "covariances"}


@pytest.mark.parametrize("name", ["", "a b", "a,b", "../a", "1st", "é"])
def test_names_fit_the_command_line_and_files(name):
    registry = Registry({}, compares="prediction")
    with pytest.raises(UserError, match="cannot be a name here"):
        registry[name] = low_mean
    assert not registry


def test_the_table_in_the_docs_is_that_of_the_registries():
    text = (DOCS / "guides" / "tables.md").read_text()
    for name, entry in acquisitions().items():
        assert f"| `{name}` | {entry.compares} | {entry.help} |" in text
    named = re.findall(r"^\| `(\w+)` \| (?:prediction|inputs|gradients|covariances) \|", text, re.MULTILINE)
    assert named == list(acquisitions())


def test_the_docstring_of_suggest_names_all():
    words = re.findall(r"``(\w+)``", NCPRegressor.suggest.__doc__)
    assert [name for name in acquisitions() if name not in words] == []


def test_the_help_of_evaluate_names_all(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    words = re.findall(r"[\w+-]+", run("evaluate", "--help"))
    assert [name for name in (*evaluate.METHODS, *evaluate.GROUPS) if name not in words] == []
