"""The page of ``evaluate``: its tables, and figures for any mix of methods."""

import copy
import dataclasses

import numpy as np
import pytest

from ncprior.experiments import evaluate
from ncprior.experiments.evaluate_results import METRICS
from ncprior.experiments.records import Records
from ncprior.report import evaluate_figures
from ncprior.report.evaluate_tables import tables
from ncprior.report.page import report

METHODS = ("mean", "linear", "neighbours", "sklearn.linear_model.BayesianRidge")


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """A run of methods that take no time, on five splits."""
    folder = tmp_path_factory.mktemp("page")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 5))
    y = x[:, 0] + 0.3 * rng.normal(size=90)
    rows = [",".join(f"{value:.4f}" for value in (*inputs, target)) for inputs, target in zip(x, y, strict=True)]
    (folder / "t.csv").write_text("\n".join(["a,b,c,d,e,y", *rows]) + "\n")
    config = evaluate.Config(str(folder / "t.csv"), "y", "tail", "x", methods=METHODS)
    records = Records.create(folder / "run", evaluate.NAME, dataclasses.asdict(config), resume=False)
    evaluate.experiment(config, evaluate.load(config), records)
    return records


@pytest.fixture
def results(records):
    return copy.deepcopy(records.read_json("results.json"))


def by_title(results):
    return {table.title: table for table in tables(results, "tail rows")}


def test_the_page_has_it_all(records):
    page = report(records.folder).read_text()
    for words in (
        "Predictions of y of cases unlike those that it learnt from",
        "distance to the 5 nearest rows",
        "BayesianRidge<br><small>sklearn.linear_model.BayesianRidge",
        "Does it notice rows unlike those of training?",
        "Are intervals as wide as they need be?",
        "Refusing uncertain rows",
        "risk-coverage",
    ):
        assert words in page


def test_what_each_method_goes_by_is_named(results):
    table = by_title(results)["Rows unlike those of training"]
    assert table.header == ["Method", "Detection (AUROC)", "Shuffled (AUROC)", "Far (AUROC)", "Doubt"]
    said = {row[0].text: row[-1].text for row in table.rows}
    assert said == {
        "train mean": "–",
        "linear": "std of the line",
        "nearest neighbours": "distance to the 5 nearest rows",
        "BayesianRidge": "predicted std",
    }
    assert [cell.text for cell in table.rows[0][1:]] == ["–"] * 4


def test_refusing_at_random_is_no_gain(results):
    table = by_title(results)["Refusing uncertain rows"]
    gains = {row[0].text: row[table.header.index("Of the possible")].text for row in table.rows}
    assert gains["train mean"] == "0%"


def test_every_number_with_and_without_ncp(results):
    assert "With and without NCP" not in by_title(results)
    results["methods"] = {"ncp": results["methods"]["linear"], "no-ncp": results["methods"]["neighbours"]}
    table = by_title(results)["With and without NCP"]
    assert len(table.rows) == len(METRICS) - 1  # not the seconds
    said = {row[0].text: row for row in table.rows}
    own, other = (results["methods"][name]["rmse"]["mean"] for name in ("ncp", "no-ncp"))
    assert own < other
    assert said["RMSE"][3].text == f"{own - other:.3f}"
    assert said["RMSE"][-1].text == "NCP is better"
    assert {row[-1].text.partition(":")[0] for row in table.rows} <= {"NCP is better", "NCP is worse", "unclear"}
    results["splits"] = results["splits"][:4]
    for of in results["methods"].values():
        of["values"] = {metric: values[:4] for metric, values in of["values"].items()}
    table = by_title(results)["With and without NCP"]
    assert {row[-1].text for row in table.rows} == {"unclear: 4 splits settle nothing"}


def test_groups_count_every_row_once(results):
    for name, of in results["methods"].items():
        counts = [group["test"] + group["like"] for group in of["groups"]]
        held = [round(0.1 * (split["train"] / 0.9)) for split in results["splits"]]
        expected = sum(split["test"] for split in results["splits"]) + sum(held)
        assert sum(counts) == (0 if name == "mean" else pytest.approx(expected, abs=5))


@pytest.mark.parametrize("narrow", [False, True])
def test_figures_of_methods_that_have_little_to_show(results, narrow):
    methods = {"mean": results["methods"]["mean"]}
    assert evaluate_figures.detected(methods) == []
    assert len(evaluate_figures.draw_trust(methods, "y", narrow=narrow).axes) == 3
    methods = results["methods"]
    for group in methods["linear"]["groups"]:
        group["coverage"] = group["need"] = None  # as records have what is not finite
    assert len(evaluate_figures.draw_familiarity(methods, narrow=narrow).axes) == 2
    figure = evaluate_figures.draw_detection(methods, "tail rows", narrow=narrow)
    assert [axis.get_title() for axis in figure.axes] == ["Tail rows", "Shuffled rows", "Far rows"]
    assert len(figure.axes[0].patches) == 3  # bars of the methods that have a doubt
