"""``evaluate`` and ``simulate``: scores, baselines, records, pages, and the commands through real processes."""

import dataclasses
import html
import json
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.model_selection import KFold, cross_val_predict
from threadpoolctl import threadpool_limits

from ncprior.cli.main import main
from ncprior.core.prediction import MixturePrediction, Prediction
from ncprior.data.labelled import Labelled
from ncprior.data.splits import Split
from ncprior.errors import UserError
from ncprior.experiments import baselines, evaluate, simulate
from ncprior.experiments.evaluate_results import run_file
from ncprior.experiments.forecasts import Doubt
from ncprior.experiments.labels_saved import bootstrap_saving, labels_saved
from ncprior.experiments.pool_map import principal_components
from ncprior.experiments.records import Records
from ncprior.experiments.scores import LEVELS, Standardised, detection, scores
from ncprior.experiments.variants import expand
from ncprior.report.evaluate import verdict
from ncprior.report.page import report
from ncprior.report.simulate import savings, settled

# The command, with contrast networks as they begin, as in the tests' own process.
NCPRIOR = [
    *(sys.executable, "-c"),
    "from ncprior.cli.main import main; from ncprior.tables import contrast; contrast.STEPS = 0; main()",
]
TINY = {"members": 2, "epochs": 3, "hidden": (8,)}
SET = ["--set", "members=2", "--set", "epochs=3", "--set", "hidden=8"]


def prediction(mean, noise, uncertainty=0.0):
    parts = np.broadcast_arrays(mean, noise, uncertainty)
    return Standardised(Prediction(*(jnp.asarray(part, jnp.float32)[:, None] for part in parts)), 0.0, 1.0)


def in_units(found):
    return found.prediction.rescale(found.scale, found.shift)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Sixty rows with numbers, text, and a date."""
    path = tmp_path_factory.mktemp("data") / "small.csv"
    rng = np.random.default_rng(0)
    lines = ["a,b,word,day,y"]
    for i in range(60):
        a, b = rng.normal(size=2)
        lines.append(f"{a:.4f},{b:.4f},{'xyz'[i % 3]},2020-{1 + i // 28:02d}-{1 + i % 28:02d},{10 * a + b**2:.4f}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_scores_against_published_values():
    # N(0, 1) at 0 and 1: densities ln sqrt(2 pi) and that plus 1/2; the CRPS as properscoring.crps_gaussian gives it.
    found = scores(prediction([0.0, 0.0], 0.6, 0.8), np.array([0.0, 1.0]))
    assert found["rmse"] == pytest.approx(0.5**0.5)
    assert found["nlpd"] == pytest.approx(0.918938533 + 0.25, rel=1e-6)
    assert found["crps"] == pytest.approx((0.233694977 + 0.602440942) / 2, rel=1e-5)
    # 1 is at the edge of the interval of level 0.6827: inside of those from 70% on. 0 is inside of all.
    np.testing.assert_allclose(found["calibration"], [0.5 if level < 0.6827 else 1.0 for level in LEVELS])
    assert found["coverage"] == 1.0


def test_bins_go_from_the_least_to_the_most_uncertain():
    std = np.arange(20, 0, -1.0)
    found = scores(prediction(np.zeros(20), std), std * 3)["bins"]
    assert [one["rows"] for one in found] == [2] * 10
    assert found[0]["std"] == pytest.approx((0.5 * (1 + 4)) ** 0.5)
    assert found[-1]["rmse"] == pytest.approx(3 * (0.5 * (19**2 + 20**2)) ** 0.5)
    assert len(scores(prediction(np.zeros(3), [1.0, 2.0, 3.0]), np.zeros(3))["bins"]) == 3


def test_a_calibrated_model_is_near_the_diagonal():
    rng = np.random.default_rng(0)
    noise, uncertainty = rng.uniform(0.1, 2, (2, 20_000))
    mean = rng.normal(size=20_000)
    truth = mean + np.hypot(noise, uncertainty) * rng.normal(size=20_000)
    found = scores(prediction(mean, noise, uncertainty), truth)
    np.testing.assert_allclose(found["calibration"], LEVELS, atol=0.012)
    for one in found["bins"]:
        assert one["rmse"] == pytest.approx(one["std"], rel=0.06)
    # More than one block of rows gives the same means.
    weights = jnp.full((20_000, 1, 2), 0.5)
    parts = Prediction(*(jnp.repeat(part[..., None], 2, -1) for part in prediction_leaves(mean, noise, uncertainty)))
    same = scores(Standardised(MixturePrediction(weights, parts), 0.0, 1.0), truth)
    assert same["crps"] == pytest.approx(found["crps"], rel=1e-4)
    assert same["nlpd"] == pytest.approx(found["nlpd"], rel=1e-4)
    # One that is too sure of itself is below.
    sure = scores(prediction(mean, 0.5 * noise, 0.5 * uncertainty), truth)
    assert (np.array(sure["calibration"]) < np.array(LEVELS)).all()


def prediction_leaves(*parts):
    whole = prediction(*parts).prediction
    return whole.mean, whole.noise, whole.uncertainty


def test_detection_against_brute_force():
    rng = np.random.default_rng(1)
    outside, inside = rng.integers(0, 6, 40) / 4 + 0.25, rng.integers(0, 6, 30) / 4  # with many ties
    pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a in outside for b in inside]
    assert detection(Doubt("", outside), Doubt("", inside)) == pytest.approx(np.mean(pairs))
    assert detection(Doubt("", np.ones(4)), Doubt("", np.ones(4))) == 0.5


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(2)
    inputs = rng.normal(size=(120, 3))
    targets = 1000 + 5 * inputs[:, 0] + np.where(inputs[:, 1] > 0, 1.0, 0.1) * rng.normal(size=120)
    return pa.table({f"x{i}": inputs[:, i] for i in range(3)}), targets


def test_the_mean_and_linear_baselines(rows):
    inputs, targets = rows
    mean = in_units(baselines.fit("mean", inputs, targets, 0)(inputs))
    np.testing.assert_allclose(mean.mean, targets.mean(), rtol=1e-5)
    np.testing.assert_allclose(mean.std, targets.std(), rtol=1e-5)
    predict = baselines.fit("linear", inputs, targets, 0)
    line = predict(inputs)
    assert scores(line, targets)["rmse"] < 0.9
    np.testing.assert_allclose(in_units(line).noise, 0.7, atol=0.15)
    far = in_units(predict(pa.table({f"x{i}": [0.0, 30.0] for i in range(3)})))
    assert far.uncertainty[1, 0] > 3 * far.uncertainty[0, 0]


def test_a_quick_comparison_with_boosting_learns_from_other_rows_alone(rows):
    inputs, targets = rows
    held_out = np.arange(0, 120, 5)
    error = baselines.boosting_error(inputs, targets, held_out)
    assert 0.5 < error < targets.std()
    changed = targets.copy()
    changed[held_out] += 1000.0
    assert baselines.boosting_error(inputs, changed, held_out) == pytest.approx(1000, abs=5 * error)


def test_boosting_has_the_variance_of_its_errors_in_cross_validation(rows):
    inputs, targets = rows
    found = in_units(baselines.fit("boosting", inputs, targets, 0)(inputs))
    folds = KFold(5, shuffle=True, random_state=0)
    plain = np.column_stack([inputs[name].to_numpy() for name in inputs.column_names])
    with threadpool_limits(1):
        guesses = cross_val_predict(HistGradientBoostingRegressor(random_state=0), plain, targets, cv=folds)
    np.testing.assert_allclose(found.std, np.sqrt(np.mean((guesses - targets) ** 2)), rtol=0.02)


def test_a_forest_has_the_variance_of_its_errors_out_of_the_bag(rows):
    inputs, targets = rows
    plain = np.column_stack([inputs[name].to_numpy() for name in inputs.column_names])
    forest = RandomForestRegressor(200, oob_score=True, random_state=0).fit(plain, targets)
    errors = np.mean((forest.oob_prediction_ - targets) ** 2)
    predict = baselines.fit("forest", inputs, targets, 0)
    rng = np.random.default_rng(3)
    fresh = pa.table({f"x{i}": rng.normal(size=2000) for i in range(3)})
    found = in_units(predict(fresh))
    assert 0.5 * errors < np.mean(np.asarray(found.std) ** 2) < 2 * errors
    assert found.uncertainty.std() > 0


def config_of(table, **changes):
    values = {"split": "gap", "fingerprint": "x", "estimator": TINY, "methods": ("ncp", "mean", "linear")} | changes
    return evaluate.Config(str(table), "y", **values)


@pytest.mark.parametrize("method", ["ncp", *baselines.BASELINES])
def test_test_rows_reach_nothing_that_is_learnt(method):
    """Scaling, early stopping and calibration would show it: the test rows become huge, and nothing may change."""
    rng = np.random.default_rng(4)
    inputs, targets = rng.normal(size=(80, 2)), rng.normal(size=80)
    split = Split("last", np.arange(60), np.arange(60, 80))
    leaking, spoilt = inputs.copy(), targets.copy()
    leaking[60:], spoilt[60:] = 1e6, -1e9
    config = config_of("no table", estimator={"members": 2, "hidden": (8,)})  # how long to train is found by the rows
    found = []
    for x, y in ((inputs, targets), (leaking, spoilt)):
        data = Labelled(pa.table({"a": x[:, 0], "b": x[:, 1]}), y, pa.table({}), 0)
        predict = evaluate.fit(config, data, split, method, 0)
        found.append(predict(pa.table({"a": inputs[:60, 0], "b": inputs[:60, 1]})))
    for part in ("mean", "noise", "uncertainty"):
        np.testing.assert_array_equal(*(np.asarray(getattr(in_units(one), part)) for one in found))


@pytest.mark.parametrize("method", ["ncp", *baselines.BASELINES])
def test_units_of_the_target_do_not_matter(method):
    """A large shift must cost no digits: what is said about the rows is the same, in the other unit."""
    rng = np.random.default_rng(5)
    inputs = rng.normal(size=(60, 2))
    targets = np.round(inputs[:, 0] + 0.1 * rng.normal(size=60), 6)
    split = Split("last", np.arange(40), np.arange(40, 60))
    columns = pa.table({"a": inputs[:, 0], "b": inputs[:, 1]})
    plain, moved = (
        evaluate.evaluate(
            config_of("no table"), Labelled(columns, 2 * targets + shift, pa.table({}), 0), split, method, 0
        )
        for shift in (0.0, 1e9)
    )
    for metric in ("rmse", "nlpd", "crps", "coverage"):
        assert moved[metric] == pytest.approx(plain[metric], rel=0.02)


def test_targets_that_differ_by_rounding_alone_are_constant():
    targets = np.full(80, 0.1)
    assert targets.std() > 0
    inputs = pa.table({"a": np.arange(80.0)})
    found = baselines.fit("mean", inputs, targets, 0)(inputs)
    assert (found.shift, found.scale) == (pytest.approx(0.1), 1.0)
    assert scores(found, np.full(80, 0.2))["rmse"] == pytest.approx(0.1)


def test_held_out_rows_are_not_trained_on_and_the_same_for_all(table):
    config = config_of(table)
    _, splits = evaluate.load(config)
    assert [split.name for split in splits] == ["gap in a", "gap in b"]
    train, held = evaluate.hold_out(config, splits[0])
    assert len(held) == 4
    np.testing.assert_array_equal(np.sort(np.concatenate([train.train, held])), splits[0].train)
    np.testing.assert_array_equal(evaluate.hold_out(config, splits[0])[1], held)
    assert len(evaluate.hold_out(config_of(table, split="time:day"), splits[0])[1]) == 4
    for other in (config_of(table, held_out=0.0), config_of(table, split="random")):
        assert len(evaluate.hold_out(other, splits[0])[1]) == 0


def test_splits_that_are_asked_for(table):
    assert len(evaluate.load(config_of(table, split="random", splits=4))[1]) == 4
    assert [s.name for s in evaluate.load(config_of(table, split="tail", splits=1))[1]] == ["tail of a"]
    (split,) = evaluate.load(config_of(table, split="time:day"))[1]
    np.testing.assert_array_equal(split.test, np.arange(48, 60))
    (split,) = evaluate.load(config_of(table, split="time:day", inputs=("a",)))[1]
    np.testing.assert_array_equal(split.test, np.arange(48, 60))
    with pytest.raises(UserError, match="no input is a number"):
        evaluate.load(config_of(table, inputs=("word",)))


def test_groups_of_methods():
    assert expand(["ncp", "baselines", "mean"]) == ("ncp", "mean", "linear", "boosting", "forest", "neighbours", "gp")
    assert expand(["ablations"])[:2] == ("ncp", "no-ncp")


class Stop(Exception):
    pass


def stop_after(count):
    def show(progress):
        if progress.done == count:
            raise Stop

    return show


def numbers(records, pattern):
    """All that is on record, but for the time that it took."""

    def untimed(value):
        if isinstance(value, dict):
            return {key: untimed(item) for key, item in value.items() if key != "seconds"}
        return [untimed(item) for item in value] if isinstance(value, list) else value

    files = sorted(records.folder.glob(pattern))
    assert files
    return {str(file.relative_to(records.folder)): untimed(json.loads(file.read_text())) for file in files}


def run_in_two(module, config, folder):
    """The records of a run that was stopped, and of one that was not."""
    loaded, found = module.load(config), []
    for name, stops in (("whole", [10**6]), ("broken", [3, 10**6])):
        for count in stops:
            plain = dataclasses.asdict(config)
            records = Records.create(folder / name, module.NAME, plain, resume=count > 3 and len(stops) > 1)
            try:
                module.experiment(config, loaded, records, stop_after(count))
            except Stop:
                assert module.unfinished(records)
                with pytest.raises(UserError, match="is not finished"):
                    report(records.folder)
        assert not module.unfinished(records)
        found.append(records)
    return found


def test_evaluate_goes_on_to_the_same_numbers(table, tmp_path):
    whole, broken = run_in_two(evaluate, config_of(table, inputs=("a", "b"), seeds=2), tmp_path)
    assert len(numbers(whole, "runs/*/*.json")) == 2 * (2 + 1 + 1)
    assert numbers(whole, "runs/*/*.json") == numbers(broken, "runs/*/*.json")
    assert numbers(whole, "results.json") == numbers(broken, "results.json")
    results = broken.read_json("results.json")
    runs = [broken.read_json(run_file(i, "mean", 0)) for i in range(2)]
    assert results["methods"]["mean"]["nlpd"]["mean"] == pytest.approx(np.mean([run["nlpd"] for run in runs]))
    assert "detection" not in results["methods"]["mean"]  # which is as sure of every row as of any other
    for name in ("ncp", "linear"):
        assert all(0 <= results["methods"][name][kind]["mean"] <= 1 for kind in ("detection", "shuffled", "far"))
    ncp = results["methods"]["ncp"]
    assert ncp["runs"] == 4
    assert np.mean(ncp["values"]["rmse"]) == pytest.approx(ncp["rmse"]["mean"])
    assert ncp["risk"]["1.0"] == pytest.approx(ncp["rmse"]["mean"])


@pytest.mark.usefixtures("undrawn")
def test_simulate_goes_on_to_the_same_numbers(table, tmp_path):
    config = simulate.Config(
        str(table), "y", "x", inputs=("a", "b"), seeds=2, initial=5, batch=(2, 4), labels=9, estimator=TINY
    )
    whole, broken = run_in_two(simulate, config, tmp_path)
    assert numbers(whole, "runs/*/*/*.json") == numbers(broken, "runs/*/*/*.json")
    counts = {"2": [5, 7, 9], "4": [5, 9]}
    assert whole.read_json("about.json")["counts"] == counts
    found = simulate.recorded_arms(whole)
    assert [arm.name for arm in found] == ["kmeans_greedy/2", "random/2", "kmeans_greedy/4", "random/4"]
    for arm in found:
        run = whole.read_json(simulate.run_file(arm, 1))
        assert [one["labels"] for one in run["rounds"]] == counts[str(arm.batch)]
        assert len(set(run["labels"])) == 9
        assert not set(run["labels"]) & set(run["test"])
        # Every rule begins with the same labels and is tested on the same rows.
        control = whole.read_json("runs/random/2/001.json")
        assert run["labels"][:5] == control["labels"][:5]
        assert run["rounds"][0]["rmse"] == control["rounds"][0]["rmse"]
    results = whole.read_json("results.json")["rules"]
    assert {name: of["counts"] for name, of in results.items()} == {arm.name: counts[str(arm.batch)] for arm in found}
    assert all(results[f"random/{size}"]["saved"]["rmse"]["mean"] == 0 for size in (2, 4))
    page = report(whole.folder).read_text()
    assert "greedy k-means++ (2 at a time)" in page
    assert "chooses up to 2 or 4 more at a time, up to 9" in page
    chosen = simulate.chosen_rows(whole, found[0], 1)
    assert chosen.before.tolist() == [0] * 5 + [5] * 2 + [7] * 2
    assert chosen.rows.tolist() == whole.read_json(simulate.run_file(found[0], 1))["labels"]
    assert "Where the rules look" in page
    assert (whole.folder / "figures" / "map.png").exists()


def test_a_map_has_most_of_the_variance():
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=(3, 300))
    words = rng.choice(["u", "v"], 300)
    found = principal_components(pa.table({"a": a, "b": a + 0.1 * b, "c": 0.5 * c, "d": words}))
    variances = np.var([found.first, found.second], axis=1)
    assert variances[0] > variances[1] > 0
    np.testing.assert_allclose(np.cov(found.first, found.second)[0, 1], 0, atol=1e-9)
    np.testing.assert_allclose(variances[0] / variances[1], found.shares[0] / found.shares[1])
    assert sum(found.shares) < 1
    assert np.corrcoef(found.first, a)[0, 1] > 0.95  # what two inputs share comes first, with their sign
    alone = principal_components(pa.table({"a": a}))
    assert alone.shares == pytest.approx((1, 0))
    assert not alone.second.any()


@pytest.mark.parametrize(
    ("changes", "used"), [({}, True), ({"unlabelled": False}, False), ({"estimator": {"method": "det"}}, False)]
)
def test_simulated_models_know_the_inputs_of_the_pool_and_no_test_rows(table, monkeypatch, changes, used):
    config = simulate.Config(str(table), "y", "print", initial=10, batch=2, labels=12, **changes)
    data, _ = simulate.load(config)
    run = simulate.start(config, len(data.targets), simulate.arms(["random"], 2)[0], 0)
    given = []

    def fit_subset(*_, X_unlabelled):
        given.append(X_unlabelled)
        raise KeyboardInterrupt

    monkeypatch.setattr(simulate.NCPRegressor, "fit_subset", fit_subset)
    with pytest.raises(KeyboardInterrupt):
        simulate.advance(config, data, run, 2)
    if not used:
        assert given == [None]
        return
    rows = np.setdiff1d(np.arange(len(data.targets)), [*run["test"], *run["labels"]])
    assert given[0].equals(data.take(rows)[0])


@pytest.mark.usefixtures("undrawn")
def test_a_fit_that_fails_does_not_stop_the_others(table, tmp_path, monkeypatch):
    def diverge(*_):
        raise UserError("the loss was not finite")

    monkeypatch.setitem(baselines.BASELINES, "linear", baselines.BASELINES["linear"]._replace(fit=diverge))
    config = config_of(table, methods=("mean", "linear"))
    records = Records.create(tmp_path / "run", evaluate.NAME, dataclasses.asdict(config), resume=False)
    results = evaluate.experiment(config, evaluate.load(config), records)
    assert list(results["methods"]) == ["mean"]
    assert [run["failed"] for run in results["failed"]] == ["the loss was not finite"] * 2
    assert "the loss was not finite" in report(records.folder).read_text()
    alone = config_of(table, methods=("linear",))
    records = Records.create(tmp_path / "alone", evaluate.NAME, dataclasses.asdict(alone), resume=False)
    evaluate.experiment(alone, evaluate.load(alone), records)
    with pytest.raises(UserError, match="every run failed, the first one because the loss was not finite"):
        report(records.folder)


def test_labels_saved_by_hand():
    labels = np.array([10.0, 20.0, 30.0])
    good, control = np.array([4.0, 2.0, 0.0]), np.array([4.0, 3.0, 2.0])
    # The control ends with 2 after 30 labels, which the other reaches after 20; on the way it needs 20 and 15.
    found = labels_saved(labels, good, control)
    assert found.saved == found.cautious == pytest.approx(1 - 15 / 20, abs=0.01)
    assert found.reached == 1
    # The other way round it needs 20 instead of 15 on the first half, and never comes to the values of the second:
    # it needs 30 labels at least.
    found = labels_saved(labels, control, good)
    assert found.saved == pytest.approx(1 - (20 + 30) / (15 + 25), abs=0.01)
    assert found.cautious == pytest.approx(1 - (20 + 60) / (15 + 25), abs=0.02)
    assert found.reached == pytest.approx(0.5)
    for worse in ([4.0, 5.0, 6.0], [4.0, 5.0, 3.999]):
        found = labels_saved(labels, np.array(worse), control)
        assert found.saved == pytest.approx(1 - 30 / 20, abs=0.02)
        assert found.reached == 0
    assert labels_saved(labels, control, control) == (0, 0, 1)
    # A value counts from the first time that it is reached, for both.
    assert labels_saved(labels, np.array([4.0, 2.0, 9.0]), control).saved == pytest.approx(0.25, abs=0.01)
    level = np.array([4.0, 3.0, 3.0])
    assert labels_saved(labels, level, level) == (0, 0, 1)
    assert np.isnan(labels_saved(labels, np.array([np.nan, 1.0, 1.0]), control)).all()
    # Before the first finite value, there is nothing to compare.
    late = labels_saved(labels, np.array([np.inf, 2.0, 2.0]), np.array([np.inf, np.inf, 2.0]))
    assert late == pytest.approx((1 - 20 / 30, 1 - 20 / 30, 1))


@pytest.mark.parametrize("reached", [0.0, 0.3, 0.9, 1.0])
def test_labels_never_reached_are_no_labels_saved(reached):
    """A rule that is ahead until it stops learning: the less it reached, the less is settled."""
    labels, rng = np.linspace(20, 400, 20), np.random.default_rng(0)
    control = 1 - labels / 400 + 0.001 * rng.normal(size=(10, 20))
    rule = np.maximum(1 - labels / 250, control[:, :1].mean() * (1 - reached)) + 0.001 * rng.normal(size=(10, 20))
    found = bootstrap_saving(labels, rule, control)
    assert found.reached == pytest.approx(reached, abs=0.06)
    assert (found.low > 0) == (reached >= 0.9)
    if reached < 0.5:
        assert found.high < 0  # even if it needed no more than its last label
    if reached < 1:
        assert found.low < found.mean - 0.15


def test_the_sentence_about_labels_saved():
    def said(seeds=5, **rules):
        saved = {"random": (0.0, 0.0, 0.0, 1.0), **rules}
        keys = ("mean", "low", "high", "reached")
        found = {
            name: {"rule": name, "batch": 5, "saved": {"rmse": dict(zip(keys, of, strict=True))}}
            for name, of in saved.items()
        }
        return savings({"rules": found, "config": {"seeds": seeds}})

    assert said(lcmd=(0.2, 0.1, 0.3, 1.0)).endswith("LCMD needed 20% fewer on average; the seeds settle it.")
    assert said(lcmd=(-0.07, -0.56, 0.36, 1.0)).endswith("LCMD needed 7% more on average; the seeds do not settle it.")
    assert said(lcmd=(0.07, -0.56, 0.36, 0.7)).endswith(
        "LCMD needed at most 7% fewer on average (it never came to the last 30% of what random came to); "
        "the seeds do not settle it."
    )
    assert "LCMD needed at least 20% more" in said(lcmd=(-0.2, -0.5, -0.1, 0.999))
    assert "the last 1% of what" in said(lcmd=(-0.2, -0.5, -0.1, 0.999))
    # Fewer than five seeds settle nothing, whatever range they span.
    assert said(seeds=4, lcmd=(0.2, 0.1, 0.3, 1.0)).endswith(
        "unclear, as 4 seeds settle nothing (five are needed at least)."
    )
    assert "one seed settles nothing" in said(seeds=1, lcmd=(0.2, None, None, 1.0))
    two = said(lcmd=(0.2, 0.1, 0.3, 1.0), bait=(0.1, 0.0, 0.2, 1.0))
    assert "LCMD needed 20% fewer on average, which is the most" in two
    assert said() == "There is no rule to compare with random."


def test_a_rule_is_better_or_worse_if_all_of_the_range_says_so_and_five_seeds():
    def verdict(low, high, seeds=5):
        return settled({"mean": 0.1, "low": low, "high": high, "reached": 1.0}, seeds)

    assert verdict(0.01, 0.3) == "better"
    assert verdict(-0.3, -0.01) == "worse"
    assert verdict(-0.01, 0.3) == verdict(0.01, 0.3, seeds=4) == verdict(None, None, seeds=1) == "unclear"


def evaluated(shares, splits=10, failed=(), **densities):
    """What `evaluate` came to: shares of rows in the intervals of the default model, and NLPDs on the splits."""
    calibration = {str(level): shares.get(level, level) for level in LEVELS}
    methods = {
        name: {"runs": splits, "coverage": {"mean": calibration["0.9"]}, "calibration": calibration}
        for name in ("ncp", *densities)
    }
    results = {
        "rows": 1000,
        "methods": methods,
        "failed": [{"method": name} for name in failed],
        "splits": [{"test": 100}] * splits,
    }
    return verdict(results, {name: np.array(densities.get(name, [1.0] * splits)) for name in methods})


def test_intervals_are_close_to_what_they_promise_at_several_levels_or_not_at_all():
    said = evaluated({})
    assert said == (
        "Of the rows, 90% were inside the 90% intervals of NCP (default), and its intervals of 20%, 50%, 80%, 90% and "
        "95% are close to what they promise."
    )
    assert "close to" in evaluated({0.8: 0.76, 0.2: 0.26})
    # Half of the rows in the 20% interval is not close, whatever the 90% interval holds.
    said = evaluated({0.2: 0.5})
    assert "close to" not in said
    assert said.endswith("; it is too unsure at 20% (50% of the rows are inside).")
    said = evaluated({0.8: 0.7, 0.9: 0.8, 0.2: 0.3})
    assert "too sure of itself at 80% (70% of the rows are inside) and 90% (80% of the rows are inside)" in said
    assert "too unsure at 20% (30% of the rows are inside)" in said
    # Ten rows say less than a thousand.
    assert "close to" in evaluated({0.5: 0.6, 0.9: 0.8}, splits=1)
    assert "close to" not in evaluated({0.5: 0.6, 0.9: 0.8})


def test_the_best_density_is_settled_by_the_splits_or_unclear():
    assert evaluated({}, mean=[2.0] * 10).endswith("; it has the best density of 2 methods.")
    said = evaluated({}, mean=[0.0] * 4 + [9.0] * 6)
    assert said.endswith(
        "it has the best mean density of 2 methods, which is unclear, as it is the best on 6 of 10 splits."
    )
    assert evaluated({}, splits=2, mean=[2.0] * 2).endswith("which is unclear, as 2 splits settle nothing.")
    assert evaluated({}, mean=[0.5] * 10).endswith("; train mean has the best density of 2 methods.")
    # A method that failed on some splits is not the best for what it has on the others.
    said = evaluated({}, failed=["ncp"] * 3, mean=[0.5] * 5 + [np.nan] * 5)
    assert "3 of its 13 runs failed" in said
    assert "train mean has" not in said


def test_the_spread_of_labels_saved():
    labels, rng = np.arange(20.0, 120, 20), np.random.default_rng(0)
    control = 5 - 0.02 * labels + 0.05 * rng.normal(size=(10, 5))
    better = 5 - 0.03 * labels + 0.05 * rng.normal(size=(10, 5))
    found = bootstrap_saving(labels, better, control)
    assert found.low < found.mean < found.high
    # For the same value 0.02 x control's labels = 0.03 x the rule's, 20 at the least.
    assert found.mean == pytest.approx(1 / 4, abs=0.1)
    assert found.low > 0
    assert np.isnan(bootstrap_saving(labels, better[:1], control[:1]).low)


def ncprior(*arguments):
    command = [*NCPRIOR, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_evaluate_in_a_real_process(table, tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    options = ["--target", "y", "--split", "gap", "--methods", "ncp,mean,linear", *SET, "--out", str(out)]
    done = ncprior("evaluate", table, *options)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    heads = [line.split() for line in lines if line.startswith("method")]
    assert heads == [
        ["method", "rmse", "nlpd", "crps", "coverage", "seconds"],
        ["method", "detection", "shuffled", "far", "rank", "rank_doubt", "aurc"],
    ]
    findings = lines[: lines.index(next(line for line in lines if line.startswith("method")))]
    assert len(findings) == 5
    assert findings[0].startswith("Predictions of y of cases unlike those that it learnt from are typically off by ")
    assert findings[0].endswith("This rests on 2 splits: take it as a first impression.")
    assert all(line.startswith(("good: ", "unclear: ", "not so good: ")) for line in findings[1:])
    assert sum("but 2 splits settle nothing" in line for line in findings) == 3
    assert done.stdout.splitlines()[-1] == f"report: {out / 'report.html'}"
    assert "left in all" in done.stderr
    page, figure = (out / "report.html").read_bytes(), (out / "figures" / "trust.svg").read_bytes()
    assert b"gap in b" in page
    for name in ("detection", "familiarity"):
        assert (out / "figures" / f"{name}.png").exists()
    assert page.index(b'class="lead"') < page.index(b"<li>") < page.index(b"Coverage by familiarity")
    assert html.escape(findings[0]).encode() in page
    assert b"What the words mean" in page
    assert b'<th title="negative log predictive density' in page
    assert b"https://" not in page
    for name in ("report.html", "results.json", "figures/trust.svg"):
        (out / name).unlink()
    # Nothing is run again, and the report is drawn from the records alone.
    monkeypatch.setattr(sys, "argv", ["ncprior", "evaluate", str(table), *options, "--resume", "--json"])
    with pytest.raises(SystemExit) as stop:
        main()
    told = capsys.readouterr()
    assert stop.value.code == 0
    assert told.err == ""
    assert json.loads(told.out)["methods"]["ncp"]["runs"] == 2
    assert (out / "report.html").read_bytes() == page
    assert (out / "figures" / "trust.svg").read_bytes() == figure


def test_simulate_in_a_real_process(table, tmp_path):
    out = tmp_path / "run"
    small = ["--inputs", "a,b", "--seeds", 1, "--initial", 5, "--batch", 5, "--labels", 10, *SET]
    done = ncprior("simulate", table, "--target", "y", "--rules", "information_gain", *small, "--json", "--out", out)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert results["counts"] == {"5": [5, 10]}
    assert (out / "runs" / "information_gain" / "000.json").exists()
    assert set(results["rules"]) == {"information_gain", "random"}
    assert results["report"] == str(out / "report.html")
    page = report(out).read_text()
    assert "information gain" in page
    assert (out / "figures" / "simulation.png").exists()


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """The command in this process, whose results are one JSON object."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["ncprior", *map(str, arguments), "--json", "--out", str(tmp_path / "run")])
        with pytest.raises(SystemExit) as stop:
            main()
        told = capsys.readouterr()
        assert stop.value.code == 0, told.err
        return json.loads(told.out)

    return run


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("options", "inputs"),
    [
        ([], ["a", "b", "word, or words", "day"]),
        (["--exclude-columns", "word, or words", "--exclude-columns", "day"], ["a", "b"]),
        (["--exclude-columns", "day, a", "--split", "time:day"], ["b", "word, or words"]),
        (["--inputs", "word, or words", "--inputs", "b, a"], ["word, or words", "b", "a"]),
    ],
)
def test_inputs_are_chosen_as_by_fit(table, tmp_path, run, options, inputs):
    renamed = tmp_path / "commas.csv"
    renamed.write_text(table.read_text().replace("word", '"word, or words"'))
    assert run("evaluate", renamed, "--target", "y", "--methods", "mean", *options)["inputs"] == inputs


@pytest.mark.usefixtures("undrawn")
def test_simulate_leaves_out_columns(table, run):
    small = ["--seeds", 1, "--initial", 5, "--batch", 5, "--labels", 10, "--rules", "random", *SET]
    assert run("simulate", table, "--target", "y", "--exclude-columns", "day,word", *small)["inputs"] == ["a", "b"]


@pytest.mark.usefixtures("undrawn")
def test_some_rows_of_a_table_are_no_mistake_of_the_whole(tmp_path, run):
    """A column of some numbers with commas is text, also where the rows that are learnt from have nothing else."""
    words = [f'"{i},5"' if i % 5 else f"none{i}" for i in range(100)]
    path = tmp_path / "commas.csv"
    path.write_text("\n".join(["a,b,y", *(f"{word},{i % 7},{i}" for i, word in enumerate(words))]) + "\n")
    small = ["--seeds", 3, "--initial", 12, "--batch", 2, "--labels", 14, "--rules", "random", *SET]
    assert run("simulate", path, "--target", "y", *small)["counts"] == {"2": [12, 14]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "TABLE", "--target", "word"], "text 'x' in the target 'word', row 1; a target must be numbers"),
        (["evaluate", "TABLE", "--target", "day"], "the target 'day' holds dates; a target must be numbers"),
        (["evaluate", "TABLE", "--target", "y", "--inputs", "a,y"], "column 'y' is in --inputs and in --target"),
        (["simulate", "TABLE", "--target", "y", "--exclude-columns", "c"], "has no column 'c'; it has a, b, word, day"),
        (["evaluate", "TABLE", "--target", "price"], "no column 'price'; it has 'a', 'b', 'word', 'day', 'y'"),
        (["evaluate", "nowhere.csv", "--target", "y"], "nowhere.csv: no such file or folder"),
        (["evaluate", "TABLE", "--target", "y", "--split", "half"], "unknown split 'half': choose random, gap, tail"),
        (["evaluate", "TABLE", "--target", "y", "--split", "time:"], "unknown split 'time:'"),
        (["evaluate", "TABLE", "--target", "y", "--split", "time:when"], "no column 'when'"),
        (["evaluate", "TABLE", "--target", "y", "--split", "time:word"], "neither dates nor numbers"),
        (["evaluate", "TABLE", "--target", "y", "--methods", "ncp,magic"], "unknown method 'magic': choose from ncp,"),
        (
            ["evaluate", "TABLE", "--target", "y", "--methods", "no.such.Model"],
            "no.such.Model cannot be imported (Module",
        ),
        (
            ["evaluate", "TABLE", "--target", "y", "--methods", "os.path"],
            "os.path is no regressor: it needs fit, predict",
        ),
        (["evaluate", "TABLE", "--target", "y", "--seeds", "0"], "seeds must be at least 1"),
        (["evaluate", "TABLE", "--target", "y", "--set", "member=2"], "--set member=2: give NAME=VALUE with one of"),
        (["evaluate", "TABLE", "--target", "y", "--set", "members=few"], "--set members=few: expected a whole number"),
        (["evaluate", "TABLE", "--target", "y", "--set", "members=0"], "members must be at least 1"),
        (
            ["evaluate", "TABLE", "--target", "y", "--set", "gamma=-1"],
            "gamma must be a number from 0 to 1e+09, got -1",
        ),
        (
            ["evaluate", "TABLE", "--target", "y", "--set", "learning_rate=0"],
            "learning_rate must be a number above 0 and up",
        ),
        (["evaluate", "TABLE", "--target", "y", "--set", "input_scale=-1"], "input_scale must be a number from 0 up"),
        (["simulate", "TABLE", "--target", "y", "--initial", "5", "--set", "hidden=0"], "hidden must be whole numbers"),
        (["evaluate", "TABLE", "--target", "y", "--held-out", "1"], "held_out must be at least 0 and below 1"),
        (
            ["simulate", "TABLE", "--target", "y", "--rules", "luck"],
            "unknown rule 'luck': choose from kmeans_inputs",
        ),
        (["simulate", "TABLE", "--target", "y"], "the table has too few rows (60)"),
        (["simulate", "TABLE", "--target", "y", "--batch", "5,few"], "--batch 5,few: give a whole number, or several"),
        (["simulate", "TABLE", "--target", "y", "--batch", "5,0"], "batch must be at least 1, got 0"),
        (["simulate", "TABLE", "--target", "y", "--labels", "10"], "labels (10) must be more than the initial ones"),
    ],
)
def test_mistakes_get_one_clear_line(table, tmp_path, monkeypatch, capsys, arguments, message):
    words = [str(table) if word == "TABLE" else word for word in arguments]
    monkeypatch.setattr(sys, "argv", ["ncprior", *words, "--out", str(tmp_path / "run")])
    with pytest.raises(SystemExit) as stop:
        main()
    errors = capsys.readouterr().err
    assert stop.value.code == 2
    assert errors.count("\n") == 1
    assert message in errors
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("undrawn")
def test_a_run_does_not_go_on_with_another_table(table, tmp_path, monkeypatch, capsys):
    copy = tmp_path / "copy.csv"
    copy.write_bytes(table.read_bytes())
    words = [
        "ncprior",
        "evaluate",
        copy,
        "--target",
        "y",
        "--methods",
        "mean",
        "--splits",
        2,
        "--out",
        tmp_path / "run",
    ]
    monkeypatch.setattr(sys, "argv", [*map(str, words)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    copy.write_text(copy.read_text().replace("2020-01-01", "2020-01-02"))
    monkeypatch.setattr(sys, "argv", [*map(str, words), "--resume"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert "other settings (fingerprint was" in capsys.readouterr().err
