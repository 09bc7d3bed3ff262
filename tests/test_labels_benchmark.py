"""`benchmarks/labels.py` in a small size: runs on record, runs that go on, the table and the figure."""

import json

import numpy as np
import pytest
from benchmarks import labels

from ncprior.experiments import simulate
from ncprior.experiments.labels_saved import Saving, labels_saved

SMALL = ["--tables", "toy", "--batch", "3,6", "--initial", "4", "--labels", "16", "--members", "1", "--processes", "1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two seeds on 60 rows."""
    folder = tmp_path_factory.mktemp("labels")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    rows = "".join(f"{a:.4f},{b:.4f},{a + b * b:.4f}\n" for a, b in x)
    (folder / "tables").mkdir()
    (folder / "tables" / "toy.csv").write_text(f"a,b,y\n{rows}")
    labels.main([str(folder), *SMALL, "--seeds", "2"])
    return folder


def records(folder):
    return {str(file.relative_to(folder)): file.read_text() for file in sorted(folder.rglob("runs/**/0*.json"))}


def test_every_table_rule_size_and_seed_is_a_record(folder):
    found = records(folder)
    rules = (labels.DEFAULT_RULE, "random")
    assert set(found) == {
        f"runs/toy-{size}/runs/{rule}/{seed:03d}.json" for size in (3, 6) for rule in rules for seed in (0, 1)
    }
    for name, text in found.items():
        run = json.loads(text)
        assert [one["labels"] for one in run["rounds"]] == ([4, 7, 10, 13, 16] if "toy-3" in name else [4, 10, 16])
        assert len(set(run["labels"]) - set(run["test"])) == 16


def test_a_stopped_run_goes_on_and_a_finished_one_is_left_alone(folder, monkeypatch, capsys):
    before = records(folder)
    name = f"runs/toy-6/runs/{labels.DEFAULT_RULE}/001.json"
    stopped = json.loads(before[name])
    stopped = {**stopped, "labels": stopped["labels"][:10], "rounds": stopped["rounds"][:1]}
    (folder / name).write_text(json.dumps(stopped))
    trained = []
    advance = simulate.advance
    monkeypatch.setattr(simulate, "advance", lambda *parts: trained.append(parts) or advance(*parts))
    labels.main([str(folder), *SMALL, "--seeds", "2"])
    assert len(trained) == 2
    assert capsys.readouterr().out.count("seed") == 1

    def timeless(found):
        runs = {key: json.loads(text) for key, text in found.items()}
        for run in runs.values():
            for one in run["rounds"]:
                del one["seconds"]
        return runs

    assert timeless(records(folder)) == timeless(before)


def test_the_table_has_the_savings_of_the_records(folder, capsys):
    labels.main([str(folder), *SMALL, "--seeds", "2", "--print"])
    lines = capsys.readouterr().out.splitlines()
    header, row = lines[0], next(line for line in lines if line.startswith("| toy"))
    assert header.count(labels.DEFAULT_RULE) == 6
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    runs = {
        rule: [
            json.loads((folder / f"runs/toy-3/runs/{rule}/{seed:03d}.json").read_text())["rounds"] for seed in (0, 1)
        ]
        for rule in (labels.DEFAULT_RULE, "random")
    }
    curve, control = (np.array([[one["nlpd"] for one in run] for run in runs[rule]]).mean(0) for rule in runs)
    saved = labels_saved(np.array([4.0, 7, 10, 13, 16]), curve, control).saved
    assert cells[1] == cells[4] == "2"
    assert f"{saved:+.0%}" in cells[3]
    assert "unclear on 1" in lines[-1]
    assert (folder / "labels.png").stat().st_size > 5_000


def test_other_options_than_those_of_the_records_are_refused(folder):
    with pytest.raises(Exception, match="other settings"):
        labels.main([str(folder), *SMALL, "--seeds", "2", "--initial", "5"])


def test_what_the_seeds_settle_is_bold():
    assert labels.cell(Saving(0.2, 0.1, 0.3, 1.0), 5) == ("**+20% (+10% to +30%)**", "better")
    assert labels.cell(Saving(-0.2, -0.3, 0.1, 1.0), 5) == ("-20% (-30% to +10%)", "unclear")
    assert labels.cell(Saving(0.2, 0.1, 0.3, 1.0), 4)[1] == "unclear"


def test_unknown_names_and_missing_tables_are_named(tmp_path):
    with pytest.raises(SystemExit):
        labels.main([str(tmp_path), "--tables", "iris"])
    with pytest.raises(SystemExit, match="boston: there is no"):
        labels.main([str(tmp_path), "--tables", "boston"])
