"""Results in sentences, as golden text: each says the right thing for numbers worked out by hand."""

import numpy as np
import pyarrow as pa
import pytest

from ncprior.cli import summaries
from ncprior.cli.evaluate import spreads
from ncprior.cli.progress import TimeLeft
from ncprior.cli.sentences import (
    explained,
    familiarity_sentence,
    fit_sentence,
    kept_promise,
    number,
    order_sentence,
    share,
)
from ncprior.experiments.runs import RunProgress
from ncprior.report.headline import in_words, lead, settled
from ncprior.report.terms import TERMS, explanation
from ncprior.tables.table_predictions import Totals

HELD_OUT = {"rmse": 4.23, "nlpd": 2.81, "coverage": 0.912, "rows": 103}


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "118")


def test_numbers_and_shares():
    assert [number(value) for value in (4.23, 11.6, 0.0123, 1234.5, 0, 1e-9, 99.96)] == [
        *("4.2", "11.6", "0.012", "1,234", "0", "1e-09", "100.0")
    ]
    assert [share(value) for value in (0.9, 0.91, 0.87, 0.61, 0.99, 1.0, 0.5, 0.01)] == [
        *("9 in 10", "9 in 10", "87 in 100", "6 in 10", "99 in 100", "all", "5 in 10", "1 in 100")
    ]


def test_after_fit():
    assert fit_sentence(HELD_OUT, 4.61) == (
        "Typical error ± 4.2 (boosted trees: 4.6). 9 in 10 true values fall inside the 90% interval, for rows like "
        "these."
    )
    assert fit_sentence({**HELD_OUT, "coverage": 1.0}, None) == (
        "Typical error ± 4.2. All true values fall inside the 90% interval, for rows like these."
    )
    assert fit_sentence({**HELD_OUT, "coverage": 0.875, "rows": 8}, None) == (
        "Typical error ± 4.2. 7 of 8 true values fall inside the 90% interval, for rows like these."
    )


def test_after_predict():
    """A new user's case: told 99% inside at fit, and 61% came."""
    promised = {"rmse": 4.2, "coverage": 0.99, "nlpd": 2.8, "rows": 70}
    assert kept_promise({"rmse": 11.6, "coverage": 0.61, "rows": 330}, 0.9, promised) == (
        "Promised: 90% of the true values inside the interval and a typical error of ± 4.2. Came: 61% inside, and "
        "± 11.6, in 330 rows. The promise was not kept: these rows differ from those of training, or the world has "
        "changed."
    )
    assert kept_promise({"rmse": 4.3, "coverage": 0.89, "rows": 330}, 0.9, promised).endswith("The promise was kept.")
    assert kept_promise({"rmse": 4.3, "coverage": 0.79, "rows": 10}, 0.9, promised).endswith("The promise was kept.")
    assert kept_promise({"rmse": 9.0, "coverage": 0.9, "rows": 330}, 0.9, promised).endswith(
        "Errors are larger than promised, but the intervals allow for it."
    )
    assert kept_promise({"rmse": 4.0, "coverage": 0.99, "rows": 330}, 0.9, None) == (
        "Promised: 90% of the true values inside the interval. Came: 99% inside, and ± 4.0, in 330 rows. "
        "The promise was kept; the intervals are wider than they need be."
    )


def test_familiarity():
    values = np.linspace(0, 1, 1_000)
    assert familiarity_sentence(values) == "These rows are like the training rows (see column familiarity)."
    values[:120] = 0.01
    unlike = "12% of these rows are unlike the training rows (see column familiarity)."
    assert familiarity_sentence(np.r_[np.full(120, 0.01), np.full(880, 0.5)]) == unlike
    counted = Totals(["y"])
    assert counted.unlike is None
    for unlike, rows in ((120, 120), (0, 880)):
        unit = Totals(["y"])
        unit.unlike_rows, unit.rows = unlike, rows
        counted.merge(unit)
    assert counted.unlike == pytest.approx(0.12)


def test_after_suggest():
    assert order_sentence("kmeans_inputs", "rows spread over the pool", rule=True) == (
        "Chosen by kmeans_inputs: rows spread over the pool. They are in the order in which they were picked: each is "
        "unlike those above it, so begin at the top."
    )
    assert "The highest comes first" in order_sentence("uncertainty", "x", rule=False)
    assert "drawn at random" in order_sentence("uncertainty", "x", rule=False, temperature=0.5)
    assert "drawn at random" in order_sentence("random", "x", rule=False)


def test_every_term_is_explained_once():
    assert explained(["NLPD"]) == [f"NLPD: {TERMS['NLPD']}"]
    assert explanation("RMSE") == TERMS["typical error"]
    assert explanation("Detection (AUROC)") == TERMS["detection"]
    assert explanation("Method") == ""


# Whole summaries


def test_the_summary_of_fit(capsys):
    columns = [{"name": "t", "kind": "number", "treatment": "number, median 380 (in K)"}]
    columns += [{"name": "n", "kind": "left out", "treatment": "left out: constant"}]
    summaries.print_fit(
        {
            "model": "m.ncp",
            "method": "bbb+ncp",
            "read": "read with ';'",
            "targets": ["y"],
            "rows": 1030,
            "rows_with_target": 1030,
            "rows_without_target": 2,
            "unlabelled_rows": 0,
            "rows_set_apart": 0,
            "columns": columns,
            "look_at": ["'n': the same in every row, so nothing can be learned from it"],
            "steps": [760, 1140],
            "seconds": 12.34,
            "held_out": HELD_OUT,
            "boosted_trees": {"y": 4.61},
        },
        explain=True,
    )
    assert (
        capsys.readouterr().out
        == f"""\
┏━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━━┓
┃ column ┃ treatment                 ┃
┡━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━━┩
│ t      │ number, median 380 (in K) │
│ n      │ left out: constant        │
└────────┴───────────────────────────┘
Please look at:
  - 'n': the same in every row, so nothing can be learned from it
1,030 rows (2 more have no value of y and were left out), up to 1,140 training steps, 12.3 s
Typical error ± 4.2 (boosted trees: 4.6). 9 in 10 true values fall inside the 90% interval, for rows like these.
held-out rows: RMSE 4.23, NLPD 2.81; the 90% interval holds 91.2% of 103 rows
(a little optimistic: these rows also said when to stop; `ncprior evaluate` is the fair test)
  typical error: {TERMS["typical error"]}
  boosted trees: {TERMS["boosted trees"]}
  interval: {TERMS["interval"]}
  coverage: {TERMS["coverage"]}
  NLPD: {TERMS["NLPD"]}
  held-out rows: {TERMS["held-out rows"]}
model: m.ncp
"""
    )


def test_the_summary_of_predict(capsys):
    """True values stand beside predictions, and the numbers of a column have as many decimals."""
    scores = {"rmse": 11.6, "nlpd": 3.9, "coverage": 0.61, "rows": 330}
    first = pa.table(
        {"a": [1.0, 2.0], "b": ["x", "y"], "y": ["10.5", "11"], "mean": [9.123456, 100.5], "std": [0.1, 2]}
    )
    summaries.print_predict(
        {
            "rows": 330,
            "read": "",
            "columns": ["mean", "std"],
            "targets": ["y"],
            "level": 0.9,
            "guaranteed": None,
            "unlike": 0.12,
            "promised": HELD_OUT,
            "scores": {"y": scores},
            "not_scored": {},
        },
        first,
    )
    assert (
        capsys.readouterr().out
        == """\
┏━━━┳━━━┳━━━━━━━┳━━━━━━━┳━━━━━━━┓
┃ a ┃ b ┃ y     ┃ mean  ┃ std   ┃
┡━━━╇━━━╇━━━━━━━╇━━━━━━━╇━━━━━━━┩
│ 1 │ x │ 10.50 │ 9.1   │ 0.100 │
│ 2 │ y │ 11.00 │ 100.5 │ 2.000 │
└───┴───┴───────┴───────┴───────┘
12% of these rows are unlike the training rows (see column familiarity).
PROMISE
y: RMSE 11.6, NLPD 3.9; the 90% interval holds 61.0% of 330 rows
the first of 330 rows; --out FILE writes all
""".replace("PROMISE", kept_promise(scores, 0.9, HELD_OUT))
    )


def test_the_summary_of_suggest(capsys):
    rows = pa.table(
        {"rank": [1, 2], "row": [7, 3], "uncertainty": [0.5, 0.25], "why": ["far from all labelled rows in age", "x"]}
    )
    said = {
        "pool_rows": 330,
        "read": "",
        "excluded": 30,
        "rule": "Chosen by k_center: the farthest.",
        "suggestions": [],
    }
    summaries.print_suggest({**said, "out": "a.csv"}, rows)
    assert (
        capsys.readouterr().out
        == """\
┏━━━━━━┳━━━━━┳━━━━━━━━━━━━━┓
┃ rank ┃ row ┃ uncertainty ┃
┡━━━━━━╇━━━━━╇━━━━━━━━━━━━━┩
│ 1    │ 7   │ 0.5000      │
│ 2    │ 3   │ 0.2500      │
└──────┴─────┴─────────────┘
   1. far from all labelled rows in age
   2. x
Chosen by k_center: the farthest.
from a pool of 330 rows, 30 of them excluded
rows to label: a.csv
"""
    )
    summaries.print_suggest({**said, "out": "-"}, rows, stderr=True)
    assert capsys.readouterr().out == ""


def method(rmse, nlpd, coverage, detection=None, splits=5, seeds=1, values=None, rank=0.3):
    """A method with the same numbers on every split, but for the ``values`` of some metrics ``[splits][seeds]``."""
    means = {"rmse": rmse, "nlpd": nlpd, "coverage": coverage, "crps": 1.0, "seconds": 1.0}
    means |= {} if detection is None else {"detection": detection}
    found = {name: {"mean": value, "std": 0.1} for name, value in means.items()}
    return found | {
        "rank": {"mean": rank, "std": 0.1},
        "runs": splits * seeds,
        "values": {name: [[value] * seeds] * splits for name, value in means.items()} | (values or {}),
        "risk": {"0.8": None if rmse is None else 0.75 * rmse},
    }


def evaluated(methods, split="gap", rows=1000):
    count = len(next(iter(methods.values()))["values"]["rmse"])
    splits = [{"name": str(i), "train": rows, "test": rows} for i in range(count)]
    return {"methods": methods, "rows": rows, "splits": splits, "config": {"target": "price", "split": split}}


def test_the_headline_of_evaluate():
    methods = {
        "ncp": method(4.2, 2.8, 0.91, 0.62),
        "boosting": method(4.6, 3.0, 0.84),
        "forest": method(5.0, 3.1, 0.88, 0.80),
    }
    assert in_words(evaluated(methods)) == [
        "good: the typical error is ± 4.2, 9% lower than that of boosted trees (± 4.6), the best of the others",
        "good: 91% of the true values were inside the 90% intervals (a random forest: 88%)",
        "good: in errors and honest uncertainty taken together (NLPD), it is ahead of boosted trees by 0.2 nats",
        "not so good: rows unlike those of training are more uncertain than others in 62% of pairs (50% is chance); "
        "a random forest is better at that: 80%",
    ]
    methods |= {"ncp": method(5.0, 3.3, 0.75)}
    assert in_words(evaluated(methods)) == [
        "not so good: the typical error is ± 5, 9% higher than that of boosted trees (± 4.6), the best of the others",
        "not so good: 75% of the true values were inside the 90% intervals, which are too narrow "
        "(a random forest: 88%)",
        "not so good: in errors and honest uncertainty taken together (NLPD), boosted trees are ahead of it by "
        "0.3 nats",
    ]
    assert in_words(evaluated({"ncp": method(5.0, 3.3, 0.97)})) == [
        "good: the typical error is ± 5",
        "not so good: 97% of the true values were inside the 90% intervals, which are wider than they need be",
    ]
    failed = {**method(5.0, 3.3, 0.9), "rmse": {"mean": None, "std": None}, "nlpd": {"mean": None, "std": None}}
    assert len(in_words(evaluated({"ncp": method(5.0, 3.3, 0.9), "mean": failed}))) == 1


def test_few_splits_settle_nothing():
    methods = {"ncp": method(4.2, 2.8, 0.91, 0.9, splits=4), "gp": method(4.6, 3.0, 0.88, 0.8, splits=4)}
    said = in_words(evaluated(methods))
    assert said == [
        "good: 91% of the true values were inside the 90% intervals (a Gaussian process: 88%)",
        "unclear: the typical error is ± 4.2, 9% lower than that of a Gaussian process (± 4.6), the best of the "
        "others, but 4 splits settle nothing",
        "unclear: rows unlike those of training are more uncertain than others in 90% of pairs (50% is chance); next "
        "is a Gaussian process with 80%, but 4 splits settle nothing",
        "unclear: in errors and honest uncertainty taken together (NLPD), it is ahead of a Gaussian process by 0.2 "
        "nats, but 4 splits settle nothing",
    ]
    same = {"ncp": method(4.2, 2.8, 0.91, splits=1), "mean": method(4.21, 3.0, 0.88, splits=1)}
    assert in_words(evaluated(same))[1].endswith("the best of the others, but one split settles nothing")
    assert in_words(evaluated({"ncp": method(4.2, 2.8, 0.8)}, rows=20))[1] == (
        "unclear: 80% of the true values were inside the 90% intervals, and 20 rows settle nothing"
    )


def test_splits_or_seeds_that_disagree_settle_nothing():
    other = method(4.6, 3.0, 0.9)
    torn = method(4.2, 2.8, 0.9, values={"rmse": [[4.0]] * 3 + [[4.7]] * 2})
    assert settled(torn, other, "rmse") == ("unclear", "it is better on 3 of 5 splits")
    # Each seed alone would settle it, but they say the opposite of each other.
    seeds = method(4.5, 2.8, 0.9, values={"rmse": [[4.0, 5.0]] * 5}, seeds=2)
    assert settled(seeds, other, "rmse") == ("unclear", "it is better on 5 of 10 runs")
    agreed = method(4.2, 2.8, 0.9, values={"rmse": [[4.0, 4.3]] * 4 + [[4.0, 4.9]]}, seeds=2)
    assert settled(agreed, other, "rmse") == ("holds", "")
    assert settled(other, agreed, "rmse") == ("does not hold", "")
    # The mean may be better by one split alone.
    lucky = method(4.2, 2.8, 0.9, values={"rmse": [[4.7]] * 4 + [[2.2]]})
    assert in_words(evaluated({"ncp": lucky, "mean": other}))[-1].startswith(
        "unclear: the typical error is ± 4.2, 9% lower"
    )
    assert in_words(evaluated({"ncp": lucky, "mean": other}))[-1].endswith("but most splits say otherwise")
    # More is better for detection, and nearer is better for coverage. A run that failed is worse than any other.
    assert settled(method(1, 1, 0.9, 0.9), method(1, 1, 0.9, 0.8), "detection").verdict == "holds"
    assert settled(method(1, 1, 0.85), method(1, 1, 1.0), "coverage", 0.9).verdict == "holds"
    assert settled(method(1, 1, 0.9, values={"rmse": [[None]] * 5}), other, "rmse").verdict == "does not hold"


def test_the_lead_of_evaluate_needs_no_statistics():
    assert lead(evaluated({"ncp": method(4.2, 2.8, 0.91, 0.97)})) == (
        "Predictions of price of cases unlike those that it learnt from are typically off by 4.2, and in 91 of 100 "
        "cases the truth is inside the range that should hold 90. It nearly always notices that such a case is new to "
        "it (right in 97 of 100 comparisons; chance is 50). If a person takes the fifth of the cases of which it is "
        "least sure, the typical error of the others is 3.15, 25% less."
    )
    few = lead(evaluated({"boosting": method(4.2, 2.8, 0.9, splits=2)}, split="random"))
    assert few.startswith("Predictions of price are typically off by 4.2, and in 90 of 100")
    assert few.endswith("This rests on 2 splits: take it as a first impression.")
    assert "notices" not in few
    assert "If a person takes" in few
    same = evaluated({"boosting": method(4.2, 2.8, 0.9, rank=None)}, split="random")
    assert lead(same).endswith("inside the range that should hold 90.")  # it is as sure of every row as of any other
    assert "It often misses" in lead(evaluated({"ncp": method(4.2, 2.8, 0.91, 0.6)}))


def test_columns_of_evaluate_have_as_many_decimals():
    assert spreads([{"mean": 12.345, "std": 1.0}, None, {"mean": 0.5, "std": 0.25}, {"mean": None, "std": None}]) == [
        *("12.35 ± 1.00", "-", "0.50 ± 0.25", "-")
    ]


def test_the_time_left_knows_that_methods_take_their_time():
    left = TimeLeft()
    left.last = 0.0
    plan = ["slow", "quick"] * 3
    took = {"slow": 60.0, "quick": 1.0}
    now, said = 0.0, []
    for done, kind in enumerate(plan, 1):
        now += took[kind]
        ahead = {name: plan[done:].count(name) for name in took}
        said.append(left.after(RunProgress(done, len(plan), "", kind, ahead), now))
    assert said[1:] == [122, 62, 61, 1, 0]
    assert said == sorted(said, reverse=True)
