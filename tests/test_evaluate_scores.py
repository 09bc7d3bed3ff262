"""What ``evaluate`` measures of uncertainty: detection of shifted rows, refusal, coverage by familiarity."""

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from ncprior.core.prediction import Prediction
from ncprior.data.labelled import Labelled
from ncprior.data.splits import Split
from ncprior.experiments import evaluate, shifts
from ncprior.experiments.conditional_coverage import UnseenRows, by_familiarity, p_values, pool_groups
from ncprior.experiments.forecasts import Doubt, Forecast, PointAndInterval, from_interval
from ncprior.experiments.risk_coverage import SHARES, rank_correlation, risk_coverage
from ncprior.experiments.scores import Standardised, detection, scores, unseen_rows


def table(rows=200, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=rows)
    return pa.table(
        {
            "a": a,
            "b": 100 + 10 * a,
            "n": pa.array(rng.integers(0, 9, rows)),
            "word": ["xyz"[i % 3] for i in range(rows)],
            "same": np.ones(rows),
        }
    )


def test_shuffled_rows_have_the_same_values_in_new_combinations():
    rows = table()
    found = shifts.shuffled(rows, rows)
    assert found.schema == rows.schema
    for name in rows.column_names:
        assert sorted(found[name].to_pylist()) == sorted(rows[name].to_pylist())
    a, b = (found[name].to_numpy() for name in "ab")
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.2  # which was 1
    assert shifts.shuffled(rows, rows).equals(found)
    assert shifts.shuffled(rows.select(["a"]), rows) is None
    assert shifts.shuffled(rows[:1], rows) is None


def test_far_rows_have_one_number_moved_by_four_standard_deviations_of_training():
    rows, train = table(), table(500, seed=1)
    found = shifts.far(rows, train)
    moved = np.stack([found[name].to_numpy() - rows[name].to_numpy() for name in "abn"], axis=1)
    steps = [4 * train[name].to_numpy().std() for name in "abn"]
    assert ((np.abs(moved) > 1e-9).sum(1) == 1).all()
    np.testing.assert_allclose(np.abs(moved).max(0), steps)
    assert min(np.unique(np.abs(moved).argmax(1), return_counts=True)[1]) > 40  # each column in its turn
    assert 60 < (moved.sum(1) > 0).sum() < 140  # up and down
    assert found["word"].equals(rows["word"])
    assert found["same"].to_pylist() == rows["same"].to_pylist()  # there is no standard deviation to move it by


def test_far_rows_with_missing_cells():
    rows = pa.table({"a": pa.array([1.0, None, None, 2.0]), "b": pa.array([None, 3, None, 5])})
    found = shifts.far(rows, rows)
    assert found.num_rows == 3  # the third has no number
    assert [value is None for value in found["a"].to_pylist()] == [False, True, False]
    assert found["a"].to_pylist()[0] in (pytest.approx(1 + 2), pytest.approx(1 - 2))
    assert shifts.far(rows.select([]), rows) is None
    words = pa.table({"word": ["x", "y"]})
    assert shifts.far(words, words) is None


def test_refusing_by_the_error_itself_is_the_best_and_at_random_is_no_gain():
    rng = np.random.default_rng(0)
    error = rng.normal(size=500)
    rmse = np.sqrt(np.mean(error**2))
    best = risk_coverage(error, np.abs(error))
    assert best.area == pytest.approx(best.best)
    assert np.all(np.diff(best.curve) > 0)
    assert best.curve[-1] == pytest.approx(rmse)
    constant = risk_coverage(error, np.ones(500))
    np.testing.assert_allclose(constant.curve, rmse)
    assert constant.area == pytest.approx(rmse)
    worst = risk_coverage(error, -np.abs(error))
    assert worst.area > rmse > best.area
    some = risk_coverage(error, np.abs(error) + rng.normal(size=500))
    assert best.area < some.area < rmse


def test_the_curve_by_hand():
    found = risk_coverage(np.array([3.0, 0.0, 1.0, 2.0]), np.array([4.0, 1.0, 2.0, 3.0]))
    by_share = dict(zip(SHARES, found.curve, strict=True))
    assert [by_share[share] for share in (0.05, 0.25, 0.5, 0.75, 1.0)] == pytest.approx(
        [0, 0, 0.5**0.5, (5 / 3) ** 0.5, 3.5**0.5]
    )
    assert found.area == pytest.approx(np.mean([0, 0.5**0.5, (5 / 3) ** 0.5, 3.5**0.5]))
    tied = risk_coverage(np.array([0.0, 2.0]), np.array([1.0, 1.0]))  # either may be refused first
    np.testing.assert_allclose(tied.curve, 2**0.5)


few = st.integers(0, 5).map(float)


@given(hnp.arrays(float, 12, elements=few), hnp.arrays(float, 12, elements=few))
def test_the_rank_correlation_is_that_of_scipy(first, second):
    found = rank_correlation(first, second)
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        assert np.isnan(found)
    else:
        assert found == pytest.approx(stats.spearmanr(first, second).statistic)


def standardised(mean, noise, uncertainty=0.0, scale=1.0):
    parts = np.broadcast_arrays(mean, noise, uncertainty)
    columns = Prediction(*(jnp.asarray(part, jnp.float32)[:, None] for part in parts))
    return Standardised(columns, 0.0, scale, Doubt("uncertainty", scale * parts[2]))


def test_scores_say_whether_errors_follow_the_standard_deviation():
    std = np.arange(1.0, 21.0)
    found = scores(standardised(np.zeros(20), std), 2 * std)
    assert found["rank"] == 1
    assert found["aurc"] == found["aurc_best"] < found["rmse"]
    assert found["risk"][-1] == pytest.approx(found["rmse"])
    assert np.isnan(scores(standardised(np.zeros(20), 1.0), std)["rank"])


def test_p_values_of_rows_like_the_reference_are_uniform():
    rng = np.random.default_rng(0)
    found = p_values(rng.normal(size=20_000), rng.normal(size=999))
    for level in (0.05, 0.2, 0.5):
        assert np.mean(found <= level) == pytest.approx(level, abs=0.03)
    assert p_values(np.array([99.0]), rng.normal(size=999))[0] == pytest.approx(1 / 1000)


def test_coverage_by_familiarity():
    rng = np.random.default_rng(0)
    familiarity = np.repeat([0.01, 0.1, 0.3, 0.9], 1000)
    spread = np.repeat([4.0, 3.0, 2.0, 1.0], 1000)
    error = spread * rng.normal(size=4000)
    half_width = np.repeat(1.645 * np.array([4.0, 3.0, 1.0, 1.0]), 1000)  # too narrow in the third group
    rows = UnseenRows(familiarity, error, half_width, np.abs(error) <= half_width)
    groups = by_familiarity(rows, UnseenRows(*(part[3000:3500] for part in rows)))
    assert [(group["test"], group["like"]) for group in groups] == [(1000, 0), (1000, 0), (1000, 0), (1000, 500)]
    np.testing.assert_allclose([group["coverage"] for group in groups], [0.9, 0.9, 0.59, 0.9], atol=0.03)
    ratios = [group["width"] / group["need"] for group in groups]
    np.testing.assert_allclose(ratios, [1, 1, 0.5, 1], atol=0.08)
    # Groups of several runs are merged by their numbers of rows.
    only = by_familiarity(UnseenRows(*(part[:100] for part in rows)), None)
    merged = pool_groups([groups, only, []])
    assert merged[0]["test"] == 1100
    expected = (groups[0]["coverage"] * 1000 + only[0]["coverage"] * 100) / 1100
    assert merged[0]["coverage"] == pytest.approx(expected)
    assert merged[1:] == groups[1:]


def test_half_widths_are_those_of_the_90_percent_interval():
    rows = unseen_rows(standardised(np.zeros(3), [1.0, 2.0, 3.0], scale=10.0), np.array([0.0, 30.0, 60.0]), np.ones(3))
    np.testing.assert_allclose(rows.half_width, 16.4485 * np.arange(1, 4), rtol=1e-4)
    np.testing.assert_array_equal(rows.covered, [True, True, False])
    np.testing.assert_allclose(rows.error, [0, -30, -60])


def test_an_interval_around_another_middle():
    targets = np.array([0.0, 20.0])
    found = from_interval(np.array([1.0, 1.0]), np.array([0.0, 3.0]), np.array([4.0, 3.0]), "width", targets)
    prediction = found.standardised(0.0, 1.0)
    assert isinstance(prediction, PointAndInterval)
    np.testing.assert_allclose(prediction.mean[:, 0], 1)
    lower, upper = prediction.interval(0.9)
    np.testing.assert_allclose([lower[0, 0], upper[0, 0]], [0, 4], atol=1e-5)
    assert float(prediction.std[1, 0]) == pytest.approx(0.1)  # a hundredth of the targets' standard deviation, not 0
    np.testing.assert_array_equal(found.doubt.values, [4, 0])
    moved = prediction.rescale(10.0, 5.0)
    np.testing.assert_allclose([moved.mean[0, 0], moved.interval(0.9)[1][0, 0]], [15, 45], rtol=1e-5)
    wide = prediction.inflate(2.0, 1.0).interval(0.9)
    np.testing.assert_allclose([wide[0][0, 0], wide[1][0, 0]], [-2, 6], atol=1e-5)


def data_of(inputs, targets):
    return Labelled(inputs, targets, pa.table({}), 0)


def knows(inputs):
    """A method that is unsure by |a|, and predicts 0."""
    a = inputs["a"].to_numpy()
    found = Forecast(np.zeros(len(a)), np.ones(len(a)), np.abs(a), Doubt("size of a", np.abs(a)))
    return Standardised(found.standardised(0.0, 1.0), 0.0, 1.0, found.doubt)


def test_rows_are_compared_with_held_out_rows_like_those_of_training():
    rng = np.random.default_rng(0)
    a = np.concatenate([rng.uniform(-1, 1, 150), rng.uniform(2, 3, 50)])
    inputs = pa.table({"a": a, "b": rng.normal(size=200)})
    split = Split("tail of a", np.arange(100), np.arange(150, 200))
    like = np.arange(100, 150)
    found = evaluate.score_rows(knows, data_of(inputs, a**2), split, like)
    assert found["detection"] == 1  # all test rows are beyond all others
    assert found["shuffled"] == 0.5  # the same values of a
    # Half of the far rows have a moved, by 4 of its standard deviations, and these are detected; the others are not.
    assert found["far"] == pytest.approx(0.75, abs=0.06)
    assert found["unsure_by"] == "size of a"
    assert found["rank_doubt"] == pytest.approx(1)
    groups = {group["low"]: group for group in found["groups"]}
    assert groups[0.0]["test"] == 50
    assert sum(group["like"] for group in groups.values()) == 50
    assert found["inside"]["rmse"] < found["rmse"]
    # Test rows of random splits are themselves like those of training, so that they are not detected.
    drawn = split._replace(name="random 1", test=like)
    random = evaluate.score_rows(knows, data_of(inputs, a**2), drawn, drawn.test)
    assert "detection" not in random
    assert "inside" not in random
    assert random["far"] == found["far"]
    assert all(group["like"] == 0 for group in random["groups"])
    # With nothing to compare with there is no detection.
    alone = evaluate.score_rows(knows, data_of(inputs, a**2), split, np.array([], int))
    assert not {"detection", "far", "shuffled", "groups"} & set(alone)
    assert alone["rmse"] == found["rmse"]


def test_a_method_without_doubt_detects_nothing():
    def unaware(inputs):
        return knows(inputs)._replace(doubt=None)

    rng = np.random.default_rng(0)
    inputs = pa.table({"a": rng.normal(size=60), "b": rng.normal(size=60)})
    split = Split("gap in a", np.arange(40), np.arange(40, 50))
    found = evaluate.score_rows(unaware, data_of(inputs, np.zeros(60)), split, np.arange(50, 60))
    assert not {"detection", "far", "shuffled", "groups", "unsure_by"} & set(found)
    assert "inside" in found


def test_detection_by_hand():
    outside, inside = Doubt("d", np.array([2.0, 3.0])), Doubt("d", np.array([1.0, 2.0]))
    assert detection(outside, inside) == pytest.approx((1 + 0.5 + 1 + 1) / 4)
