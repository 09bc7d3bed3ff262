"""Contrast networks: they tell rows unlike the training rows apart, know no targets, and leave the mean alone."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ncprior import NCPRegressor
from ncprior.core.prediction import Prediction, add_uncertainty
from ncprior.data.frames import as_table
from ncprior.tables import contrast
from ncprior.tables.calibration import EXPONENT, Calibration, ContrastFit, SquaredErrors, best_exponent
from ncprior.tables.contrast import NETWORKS, contrast_method
from ncprior.tables.held_out import HeldOutPredictions
from ncprior.tables.holdout import Holdout, familiar
from ncprior.tables.preset import CONTRAST


@pytest.fixture(scope="module", autouse=True)
def _all_steps(long_training_in_module):  # noqa: ARG001
    few, contrast.STEPS = contrast.STEPS, 1_500
    yield
    contrast.STEPS = few


FEW = {"members": 2, "hidden": (8,), "epochs": 20, "random_state": 0}


def two_bands(rows=200):
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 1.5, rows) * rng.choice([-1, 1], rows)
    other = rng.normal(size=rows)
    return np.column_stack([x, other]), np.sin(3 * x) + 0.1 * rng.normal(size=rows)


@pytest.fixture(scope="module")
def model():
    return NCPRegressor(**FEW).fit(*two_bands())


@pytest.fixture
def few_steps(monkeypatch):
    """For tests of what holds after any number of steps."""
    monkeypatch.setattr(contrast, "STEPS", 60)


def said(model, rows):
    return np.asarray(model.fitted_.contrast.spread(model.fitted_.encoder.transform(as_table(np.asarray(rows)))))


def test_rows_off_the_data_are_told_from_others_also_between_the_bands(model):
    X, _ = two_bands()
    inside = said(model, X[:64])
    gap = said(model, np.column_stack([np.linspace(-0.2, 0.2, 64), X[:64, 1]]))
    far = said(model, X[:64] + np.array([0, 40]))
    assert np.mean(inside[:, None] < gap) > 0.95
    assert np.median(inside) < 0.6 * np.median(gap)
    assert 0.7 < np.median(far) < 1.6
    assert gap.max() < far.max()


def test_networks_have_no_mean(model):
    heads = model.fitted_.contrast.weights.heads
    np.testing.assert_array_equal(heads["mean"].mean, 0)
    assert len(heads["mean"].mean) == NETWORKS


@pytest.mark.usefixtures("few_steps")
def test_networks_know_no_targets():
    X, y = two_bands()
    one, other = (NCPRegressor(**FEW).fit(X, targets) for targets in (y, np.exp(y) * 1000))
    np.testing.assert_array_equal(said(other, X[:32]), said(one, X[:32]))


def test_the_prior_leaves_mean_and_noise_alone(model):
    X, y = two_bands()
    without = NCPRegressor(gamma=0.0, **FEW).fit(X, y)
    assert without.fitted_.contrast is None
    rows = np.concatenate([X, 5 * X])
    own, other = model.predict_distribution(rows), without.predict_distribution(rows)
    np.testing.assert_array_equal(own.mean, other.mean)
    np.testing.assert_array_equal(own.noise, other.noise)
    assert (own.uncertainty > other.uncertainty).all()


def test_uncertainty_is_what_members_disagree_about_and_what_networks_say(model):
    X, y = two_bands()
    without = NCPRegressor(gamma=0.0, **FEW).fit(X, y).predict_distribution(X[:64]).uncertainty
    scale = model.target_scale_[0]
    wanted = np.hypot(without, scale * said(model, X[:64]) ** EXPONENT)
    np.testing.assert_allclose(model.predict_distribution(X[:64]).uncertainty, wanted, rtol=1e-4)


@pytest.mark.usefixtures("few_steps")
def test_output_scale_is_the_uncertainty_far_from_the_data():
    X, y = two_bands()
    one, wide = (NCPRegressor(output_scale=scale, **FEW).fit(X, y) for scale in (1.0, 3.0))
    np.testing.assert_array_equal(said(wide, X[:32]), said(one, X[:32]))
    far = X[:32] + np.array([0, 40])
    ratio = wide.calibration_.contrast_scale / one.calibration_.contrast_scale
    np.testing.assert_allclose(ratio, 3.0)
    assert np.all(wide.predict_distribution(far).uncertainty > 1.5 * one.predict_distribution(far).uncertainty)


def test_functions_and_covariances_spread_as_the_uncertainty(model):
    X, _ = two_bands()
    rows = np.concatenate([X[:20], 3 * X[:20]])
    uncertainty = model.predict_distribution(rows).uncertainty / model.target_scale_
    encoded = model.fitted_.encoder.transform(as_table(rows))
    features = np.asarray(model.fitted_.covariance_features(encoded))
    np.testing.assert_allclose(np.sqrt((features**2).sum(1)), uncertainty, rtol=1e-3)
    drawn = model.sample_functions(rows, 300, random_state=0) / model.target_scale_
    assert np.median(drawn.std(0) / uncertainty) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("exponent", [0.5, 5.0])
def test_rows_at_any_distance_have_a_finite_uncertainty(model, exponent):
    """It grows on with the distance, not with a power of it."""
    sharp = np.full_like(model.calibration_.contrast_exponent, exponent)
    fitted = model.fitted_._replace(calibration=model.calibration_._replace(contrast_exponent=sharp))
    rows = np.outer([1e2, 1e3, 1e20], [1.0, 1.0])
    table = as_table(rows)
    near, far, farthest = np.asarray(fitted.predict(table).uncertainty)[:, 0]
    assert 1 < near < far < 20 * near
    assert np.isfinite(farthest)


def test_new_rows_are_no_longer_unlike_the_others(model):
    X, _ = two_bands()
    gap = np.column_stack([np.linspace(-0.3, 0.3, 60), np.random.default_rng(1).normal(size=60)])
    growing = copy.deepcopy(model)
    before_gap, before = said(growing, gap), said(growing, X[:60])
    growing.partial_fit(gap, np.sin(3 * gap[:, 0]))
    assert np.median(said(growing, gap)) < 0.8 * np.median(before_gap)
    assert np.median(said(growing, X[:60])) < 1.3 * np.median(before)  # of the old ones, it keeps some


@pytest.mark.parametrize(("exponent", "expected"), [(1.0, 2.0), (2.0, 1.5), (4.0, 3.0)])
def test_held_out_rows_find_the_exponent(exponent, expected):
    rng = np.random.default_rng(0)
    contrast = rng.uniform(0.2, 1.0, (2, 3000))
    noise = np.full((2, 3000, 1), 0.1)
    own = np.repeat(contrast[:1], 2, 0)  # what both members are told
    error = np.hypot(0.2, own[0] ** exponent)[:, None] * rng.standard_t(5, (3000, 1)) * np.sqrt(3 / 5)
    prediction = Prediction(np.zeros((2, 3000, 1)), noise, np.zeros((2, 3000, 1)))
    held = ContrastFit(prediction, np.stack([error] * 2), own, np.ones((1, 2, 3000)), np.full((1, 3000), 1 / 3000))
    scale, found, _ = best_exponent(jax.tree.map(np.float32, held), 1.0, expected)
    assert abs(np.log(found / exponent)) < 0.2
    assert abs(np.log(scale / 2)) < 0.35


def test_errors_on_seen_and_unseen_rows_tell_the_noise():
    """Least squares with 50 coefficients and 200 rows: fitted residuals are too small, new ones too large."""
    rng = np.random.default_rng(0)
    seen, unseen = [], []
    for _ in range(20):
        X, new = rng.normal(size=(2, 200, 50))
        truth = rng.normal(size=50)
        y, y_new = (rows @ truth + 0.5 * rng.normal(size=200) for rows in (X, new))
        found = np.linalg.lstsq(X, y)[0]
        seen.append(np.mean((y - X @ found) ** 2))
        unseen.append(np.mean((y_new - new @ found) ** 2))
    errors = SquaredErrors(np.mean(seen), np.mean(unseen), noise=1.0, rows=4_000)
    assert errors.noise_scale == pytest.approx(0.5, rel=0.05)
    assert errors._replace(rows=0).noise_scale == 1.0
    assert 1.0 > errors._replace(rows=4).noise_scale > errors.noise_scale


def test_rows_at_random_are_predicted_by_members_that_know_what_is_around_them():
    """One of two members is far off on the rows where its gap is; these say nothing about the noise of the others."""
    rng = np.random.default_rng(0)
    inside = np.arange(400) < 100
    error = 0.5 * rng.normal(size=400)
    mean = np.zeros((2, 800, 1))
    mean[0, 400:, 0] += 30.0 * inside
    ones = np.ones((2, 800, 1))
    held = HeldOutPredictions(
        Prediction(mean, ones, 0 * ones),
        np.stack([np.concatenate([np.zeros(400), error])[:, None]] * 2),
        np.stack([np.zeros((2, 400)), np.ones((2, 400))], 1),
        np.ones((2, 2, 400)),
        np.zeros((2, 2, 400), int),
        familiar([Holdout(np.arange(9), np.arange(0), np.arange(400), where) for where in (inside, inside < 0)], 400),
        seen_error=0.25,
    )
    assert held.errors().noise_scale == pytest.approx(0.5, rel=0.1)
    assert familiar([Holdout(np.arange(9), np.arange(0), np.arange(5), np.ones(5, bool))], 8).tolist() == [[1.0] * 8]


def test_held_out_rows_of_no_weight_leave_the_defaults():
    zeros = np.zeros((1, 4, 1))
    nothing = ContrastFit(
        Prediction(zeros, zeros + 1, zeros), zeros, zeros[..., 0] + 1, np.ones((1, 1, 4)), np.zeros((1, 4))
    )
    assert best_exponent(nothing, 1.0, 3.0)[:2] == (1.0, EXPONENT)


def test_calibration_adds_what_networks_say():
    ones = np.ones((2, 3, 1), np.float32)
    prediction = Prediction(0 * ones, ones, 0 * ones)
    scales = Calibration.equal(2)._replace(
        contrast_scale=np.float32([2, 4]), contrast_exponent=np.float32([1, 2]), noise_scale=np.float32([3, 5])
    )
    calibrated = scales.apply(prediction, np.float32([0.5, 1.0, 0.0]))
    np.testing.assert_allclose(calibrated.noise[..., 0], [[3, 3, 3], [5, 5, 5]])
    np.testing.assert_allclose(calibrated.uncertainty[..., 0], [[1, 2, 0], [1, 4, 0]])
    np.testing.assert_allclose(scales.apply(prediction).uncertainty, 0)


def test_independent_uncertainty_adds_in_squares():
    one = jnp.ones(2)
    np.testing.assert_allclose(add_uncertainty(Prediction(one, one, 3 * one), 4.0).uncertainty, 5.0)


def test_method_learns_from_the_prior_at_noised_rows():
    method = contrast_method(CONTRAST)
    assert set(method.objective) == {"nll", "ncp"}
    assert method.input_prior is not None


def test_noise_is_told_from_uncertainty():
    """Of 400 rows with noise 0.3: without NCP, gaps that are held out make the noise 1.8 times as large."""
    rng = np.random.default_rng([0, 400])
    X, new = rng.uniform(-1, 1, (2, 400, 4))

    def mean(x):
        return x[:, 0] + np.sin(2 * x[:, 1]) + 0.5 * x[:, 2]

    found = NCPRegressor(members=4, hidden=(32,), random_state=0).fit(X, mean(X) + 0.3 * rng.normal(size=400))
    prediction = found.predict_distribution(new)
    error = np.sqrt(np.mean((prediction.mean - mean(new)) ** 2))
    assert np.sqrt(np.mean(prediction.noise**2)) == pytest.approx(0.3, rel=0.2)
    assert 0.5 * error < np.sqrt(np.mean(prediction.uncertainty**2)) < 2.5 * error


@pytest.mark.usefixtures("contrast_as_it_is")
def test_very_many_numbers_are_learned_from_in_fewer_steps():
    assert [contrast.training_steps(numbers) for numbers in (1, 1_024, 3_072)] == [1_500, 1_500, 500]
