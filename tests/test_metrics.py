"""Metrics: against numbers worked out by hand, integrals and SciPy, and their limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from ncprior.core.metrics import METRICS, coverage, crps
from ncprior.core.prediction import MixturePrediction, Prediction

# Three rows, two outputs.
MEAN = np.array([[0.0, 1.0], [2.0, -1.0], [0.5, 0.5]])
NOISE = np.array([[0.6, 1.0], [0.3, 2.0], [1.2, 0.5]])
UNCERTAINTY = np.array([[0.8, 0.0], [0.4, 1.5], [0.5, 1.2]])
STD = np.array([[1.0, 1.0], [0.5, 2.5], [1.3, 1.3]])
Y = np.array([[1.0, 1.0], [2.0, 1.0], [-1.5, 2.5]])
LEVELS = np.arange(1, 20) / 20


@jax.jit
def all_metrics(prediction, y, weights):
    return {name: metric(prediction, y, weights) for name, metric in METRICS.items()}


# The rows of mixtures of three normals, for every outcome.
MIXTURES = [
    ([1.0, 0.0, 0.0], [0.3, 0.0, 1.0], [0.5, 1.0, 1.0]),
    ([0.2, 0.8, 0.0], [-1.0, 1.5, 0.0], [0.3, 1.0, 1.0]),
    ([0.5, 0.3, 0.2], [0.0, 0.0, 4.0], [1.0, 0.1, 2.0]),
]
OUTCOMES = [-2.0, 0.1, 3.0]


def array(values):
    return jnp.asarray(np.asarray(values, np.float32))


def measure(mean=MEAN, noise=NOISE, uncertainty=UNCERTAINTY, y=Y, weights=None, scale=1.0, shift=0.0):
    """Every metric by name, of the prediction in units ``shift + scale * y``."""
    prediction = Prediction(array(mean), array(noise), array(uncertainty)).rescale(scale, shift)
    weights = None if weights is None else array(weights)
    return {name: float(v) for name, v in all_metrics(prediction, shift + scale * array(y), weights).items()}


@pytest.fixture(scope="module")
def hand():
    return measure()


@pytest.fixture(scope="module")
def spread():
    """Every metric of predictions whose std is right, or wrong by a factor."""
    rng = np.random.default_rng(5)
    mean, std = rng.normal(size=(20_000, 1)), np.exp(rng.normal(size=(20_000, 1)))
    y = mean + std * rng.normal(size=(20_000, 1))
    factors = (0.1, 0.7, 1.0, 1.4, 3.0)
    return {factor: measure(mean, factor * std, 0 * std, y) for factor in factors}


def test_rmse_by_hand(hand):
    # Squared errors of the rows: 1 + 0, 0 + 4, 4 + 4.
    assert hand["rmse"] == pytest.approx(np.sqrt(13 / 3), rel=1e-6)


def test_nlpd_is_that_of_scipy(hand):
    assert hand["nlpd"] == pytest.approx(-stats.norm.logpdf(Y, MEAN, STD).sum(-1).mean(), rel=1e-5)


def test_sharpness_by_hand(hand):
    # Variances of the rows: 1 + 1, 0.25 + 6.25, 1.69 + 1.69.
    assert hand["sharpness"] == pytest.approx(np.sqrt(11.88 / 3), rel=1e-6)


@pytest.mark.parametrize(("level", "share"), [(0.9, 6 / 6), (0.8, 4 / 6), (0.5, 2 / 6)])
def test_coverage_by_hand(level, share):
    # |y - mean| / std is 1, 0; 0, 0.8; 1.54, 1.54: within 1.645, 1.282 and 0.674 are all, four and two of six.
    prediction = Prediction(array(MEAN), array(NOISE), array(UNCERTAINTY))
    assert float(coverage(prediction, array(Y), level=level)) == pytest.approx(share)


def test_coverage_in_the_table_is_that_of_nine_tenths(hand):
    assert hand["coverage"] == pytest.approx(1.0)
    # With 0.65 of the std the two at 1.54 are out.
    assert measure(noise=0.65 * NOISE, uncertainty=0.65 * UNCERTAINTY)["coverage"] == pytest.approx(4 / 6)


def test_calibration_error_by_hand(hand):
    z = np.abs(Y - MEAN) / STD
    shares = np.array([(z <= stats.norm.ppf(0.5 + level / 2)).mean() for level in LEVELS])
    assert hand["calibration_error"] == pytest.approx(np.abs(shares - LEVELS).mean(), rel=1e-5)


def test_crps_of_a_normal_is_the_known_closed_form(hand):
    z = (Y - MEAN) / STD
    scores = STD * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    assert hand["crps"] == pytest.approx(scores.sum(-1).mean(), rel=1e-5)


def test_scores_are_those_of_other_packages(hand):
    """Of the same six normals: ``crps_gaussian`` of properscoring 0.1, the rest of uncertainty-toolbox 0.1.1."""
    each = [[0.60244136, 0.23369498], [0.11684749, 1.19056221], [1.33631481, 1.33631481]]
    np.testing.assert_allclose(hand["crps"], np.sum(each) / 3, rtol=1e-5)
    np.testing.assert_allclose(hand["nlpd"], 2 * 1.5747278641, rtol=1e-5)  # they take means over rows and outputs
    np.testing.assert_allclose(hand["sharpness"], 2**0.5 * 1.4071247279, rtol=1e-5)


@pytest.fixture(scope="module")
def mixture_crps():
    """The CRPS of every mixture for every outcome."""
    weights, means, stds = (array(np.repeat(field, 3, axis=0)[:, None]) for field in zip(*MIXTURES, strict=True))
    prediction = MixturePrediction(weights, Prediction(means, stds, jnp.zeros_like(stds)))
    y = array(np.tile(OUTCOMES, 3)[:, None])
    # A weight on one row alone gives the score of that row.
    scores = jax.jit(jax.vmap(lambda row: crps(prediction, y, row)))(jnp.eye(9))
    return np.asarray(scores).reshape(3, 3)


@pytest.mark.parametrize("mixture", range(3))
@pytest.mark.parametrize("outcome", range(3))
def test_crps_of_a_mixture_is_the_integral_of_the_squared_distance_of_cdfs(mixture_crps, mixture, outcome):
    weights, means, stds = MIXTURES[mixture]
    y = OUTCOMES[outcome]

    def squared(t):
        return (np.dot(weights, stats.norm.cdf(t, means, stds)) - (y <= t)) ** 2

    below, _ = integrate.quad(squared, -15, y, limit=100)
    above, _ = integrate.quad(squared, y, 20, limit=100)
    assert mixture_crps[mixture, outcome] == pytest.approx(below + above, rel=1e-4)


@pytest.mark.parametrize("mixture", range(3))
def test_crps_of_a_mixture_is_its_definition_over_samples(mixture_crps, mixture):
    rng = np.random.default_rng(0)
    weights, means, stds = (np.array(field) for field in MIXTURES[mixture])
    part = rng.choice(3, (2, 100_000), p=weights)
    first, second = means[part] + stds[part] * rng.normal(size=part.shape)
    scores = np.abs(first - OUTCOMES[1]) - 0.5 * np.abs(first - second)
    assert abs(mixture_crps[mixture, 1] - scores.mean()) < 4 * scores.std() / np.sqrt(scores.size)


def test_crps_of_a_point_is_the_absolute_error():
    found = measure(noise=np.full_like(MEAN, 1e-6), uncertainty=np.zeros_like(MEAN))
    assert found["crps"] == pytest.approx(np.abs(Y - MEAN).sum(-1).mean(), rel=1e-5)


def test_calibrated_predictions_are_found_to_be(spread):
    assert abs(spread[1.0]["coverage"] - 0.9) < 4 * np.sqrt(0.09 / 20_000)
    assert spread[1.0]["calibration_error"] < 0.01


@pytest.mark.parametrize("factor", [0.1, 0.7, 1.4, 3.0])
def test_a_wrong_std_costs_what_theory_says(spread, factor):
    shares = 2 * stats.norm.cdf(factor * stats.norm.ppf(0.5 + LEVELS / 2)) - 1
    assert spread[factor]["calibration_error"] == pytest.approx(np.abs(shares - LEVELS).mean(), abs=0.01)
    share = 2 * stats.norm.cdf(factor * stats.norm.ppf(0.95)) - 1
    assert spread[factor]["coverage"] == pytest.approx(share, abs=0.015)


def test_overconfidence_is_badly_calibrated(spread):
    assert spread[0.1]["calibration_error"] > 0.4


@pytest.mark.parametrize("score", ["nlpd", "crps"])
def test_scores_are_proper(spread, score):
    # Being right about the spread is better than being wrong either way.
    assert spread[1.0][score] < min(spread[0.7][score], spread[1.4][score])


def test_coverage_agrees_with_the_interval_of_a_mixture():
    rng = np.random.default_rng(2)
    first = rng.uniform(0.1, 0.9, (500, 1))
    stds = array(rng.uniform(0.2, 2, (500, 1, 2)))
    parts = Prediction(array(rng.normal(size=(500, 1, 2))), stds, jnp.zeros_like(stds))
    y = array(rng.normal(size=(500, 1)))

    @jax.jit
    def both(mixture):
        low, high = mixture.interval(0.7)
        return jnp.mean((low <= y) & (y <= high)), coverage(mixture, y, level=0.7)

    inside, covered = both(MixturePrediction(array(np.stack([first, 1 - first], -1)), parts))
    assert 0.3 < float(inside) < 0.95
    assert float(covered) == pytest.approx(float(inside), abs=1e-6)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("left_out", ["ordinary", "huge"])
def test_weights_count_rows_and_leave_them_out(name, left_out):
    rows = np.array([0, 0, 2])
    expected = measure(MEAN[rows], NOISE[rows], UNCERTAINTY[rows], Y[rows])[name]
    mean, y = MEAN.copy(), Y.copy()
    if left_out == "huge":
        # So far off that neither its squared error nor its log density is finite in float32.
        mean[1], y[1] = 1e30, -1e30
    assert measure(mean=mean, y=y, weights=[2.0, 0.0, 1.0])[name] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", METRICS)
def test_equal_weights_are_no_weights(hand, name):
    assert measure(weights=[3.0, 3.0, 3.0])[name] == pytest.approx(hand[name], rel=1e-6)


@pytest.mark.parametrize("name", METRICS)
def test_metrics_follow_the_unit(hand, name):
    expected = {
        "rmse": 60 * hand["rmse"],
        "crps": 60 * hand["crps"],
        "sharpness": 60 * hand["sharpness"],
        "nlpd": hand["nlpd"] + 2 * np.log(60),  # two outputs
        "coverage": hand["coverage"],
        "calibration_error": hand["calibration_error"],
    }
    assert measure(scale=60.0, shift=-7.0)[name] == pytest.approx(expected[name], rel=1e-5)
