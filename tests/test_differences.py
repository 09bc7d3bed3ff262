"""What pages say of runs that are not the paper's experiments."""

import dataclasses
import json
from types import SimpleNamespace

import pytest

from ncprior.cli.changes import apply_changes
from ncprior.experiments.paper import regression, toy
from ncprior.report.differences import active_learning_note, quick_note, regression_note


def records(config, experiment):
    return SimpleNamespace(config=json.loads(json.dumps(dataclasses.asdict(config))), experiment=experiment)


def regression_run(*changes, **options):
    config = apply_changes(regression.configure(**options), list(changes), unused=regression.UNUSED)
    return regression_note(records(config, regression.NAME))


@pytest.mark.parametrize("preset", ["reference", "paper"])
def test_the_papers_own_regression_has_no_note(preset):
    assert regression_run(preset=preset) == ""


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        (["gamma=9"], {}, "gamma 9 instead of 0.1"),
        (["learning_rate=0.1"], {}, "learning rate 0.1 instead of 0.0001"),
        ([], {"epochs": 1}, "epochs 1 instead of 10"),
        ([], {"batch_size": 7}, "batch size 7 instead of 256"),
        ([], {"seeds": 1}, "seeds 1 instead of 3"),
        (["validation=0.5"], {}, "validation 0.5 instead of 0"),
        (["beta=0.5"], {}, "beta 0.5 instead of 0"),
        ([], {"recipe": "tuned"}, "recipe tuned instead of paper, times minutes instead of hhmm"),
    ],
)
def test_what_was_changed_in_a_regression(changes, options, said):
    note = regression_run(*changes, **options)
    assert note.startswith("This run is not the paper's experiment (")
    assert said in note


def test_quick_runs_say_so():
    quick = regression_run(quick=True)
    assert quick.startswith("This is a quick run (rows 50000 instead of all")
    assert "hidden 100 x 100 x 100 instead of 1000 x 1000 x 1000" in quick
    note = active_learning_note(records(toy.configure(quick=True), toy.NAME))
    assert note.startswith("This is a quick run (epochs ")
    assert "about this run, not about the paper" in note
    config = {"splits": 2, "estimator": {"members": 2}}
    assert quick_note(config, {"splits": 2}, {"members": 2}).startswith("This is a quick run (splits 2, members 2)")
    assert quick_note(config, {"splits": 2}, {"members": 4}) == ""


def test_other_labels_than_the_papers():
    assert active_learning_note(records(toy.configure(), toy.NAME)) == ""
    note = active_learning_note(records(toy.configure(acquisition="random"), toy.NAME))
    assert "(labels by random)" in note
