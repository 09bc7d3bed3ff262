"""Predictions: moments, densities and quantiles of normals and of their mixtures, in any unit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from ncprior.core.prediction import MixturePrediction, Prediction, gather

examples = settings(max_examples=50, deadline=None, derandomize=True)

# All predictions here have two rows and two outputs, and mixtures have three components: one program for each kind.
SHAPE = (2, 2)
WEIGHTS = np.array([[[0.2, 0.5, 0.3], [1 / 3, 1 / 3, 1 / 3]], [[0.05, 0.9, 0.05], [0.6, 0.0, 0.4]]])
MEANS = np.array([[[-1.0, 0.5, 2.0], [0.0, 1.0, 4.0]], [[4.0, -0.3, 0.0], [2.0, 1.0, 3.0]]])
NOISES = np.array([[[0.3, 0.2, 1.0], [0.5, 0.5, 0.5]], [[0.1, 0.7, 0.4], [1.0, 2.0, 3.0]]])
UNCERTAINTIES = np.array([[[0.4, 0.1, 0.5], [0.2, 0.2, 0.9]], [[2.0, 0.6, 0.0], [0.7, 0.8, 0.9]]])
KINDS = ["normal", "mixture"]


def array(values):
    return jnp.asarray(np.asarray(values, np.float32))


def normal(mean, noise, uncertainty):
    return Prediction(*(array(np.broadcast_to(field, SHAPE)) for field in (mean, noise, uncertainty)))


def mixture(weights=WEIGHTS, means=MEANS, noises=NOISES, uncertainties=UNCERTAINTIES):
    """A mixture for every row and output; those of two parts get a third one of weight 0."""
    fields = [weights, means, noises, uncertainties]
    if np.shape(weights)[-1] == 2:
        fields = [np.append(field, fill) for field, fill in zip(fields, (0.0, 7.0, 1.0, 1.0), strict=True)]
    weights, *parts = (array(np.broadcast_to(field, (*SHAPE, 3))) for field in fields)
    return MixturePrediction(weights, Prediction(*parts))


def of_kind(kind):
    return mixture() if kind == "mixture" else normal(MEANS[..., 0], NOISES[..., 0], UNCERTAINTIES[..., 0])


@jax.jit
def summary(prediction, y, probability):
    """All that a prediction says about ``y``, compiled once for normals and once for mixtures."""
    fields = ("mean", "noise", "uncertainty", "std")
    numbers = {field: getattr(prediction, field) for field in fields}
    quantile = prediction.quantile(probability)
    numbers |= {"log_prob": prediction.log_prob(y), "cdf": prediction.cdf(y)}
    return numbers | {"quantile": quantile, "cdf_of_quantile": prediction.cdf(quantile)}


def summarise(prediction, y=0.0, probability=0.5):
    """The same as NumPy arrays."""
    return jax.device_get(summary(prediction, array(np.broadcast_to(y, SHAPE)), np.float32(probability)))


ordinary = st.floats(0.01, 10)
extreme = st.floats(-6, 6).map(lambda exponent: 10**exponent)


@st.composite
def mixtures(draw, scale=ordinary):
    """Weights, means, noises and uncertainties of three normals."""
    raw = np.array([draw(st.floats(0, 1)) for _ in range(3)]) + np.eye(3)[draw(st.integers(0, 2))] * 1e-3
    means = [draw(st.floats(-10, 10)) for _ in range(3)]
    noises, uncertainties = ([draw(scale) for _ in range(3)] for _ in range(2))
    return tuple(np.array(field, np.float32) for field in (raw / raw.sum(), means, noises, uncertainties))


def test_variances_of_noise_and_uncertainty_add_up():
    found = summarise(normal(1.0, [[3.0, 0.5], [0.0, 1e-6]], [[4.0, 0.0], [2.0, 0.0]]))
    np.testing.assert_allclose(found["std"], [[5.0, 0.5], [2.0, 1e-6]], rtol=1e-6)


def test_normal_prediction_is_the_normal_of_both_variances():
    y = np.array([[0.3, 1.0], [-2.0, 4.0]])
    found = summarise(normal(1.0, [[0.6], [0.5]], [[0.8], [0.0]]), y, 0.8)
    law = stats.norm(1.0, [[1.0], [0.5]])
    np.testing.assert_allclose(found["log_prob"], law.logpdf(y), rtol=1e-5)
    np.testing.assert_allclose(found["cdf"], law.cdf(y), rtol=1e-4)
    np.testing.assert_allclose(found["quantile"], np.broadcast_to(law.ppf(0.8), SHAPE), rtol=1e-5)


def test_mixture_moments_are_those_of_samples():
    rng = np.random.default_rng(0)
    draws = 100_000
    found = summarise(mixture())
    for at in np.ndindex(SHAPE):
        part = rng.choice(3, draws, p=WEIGHTS[at])
        mu = MEANS[at][part] + UNCERTAINTIES[at][part] * rng.normal(size=draws)
        y = mu + NOISES[at][part] * rng.normal(size=draws)
        assert abs(found["mean"][at] - y.mean()) < 4 * y.std() / np.sqrt(draws)
        np.testing.assert_allclose(found["std"][at], y.std(), rtol=0.01)
        # What labels can teach is the spread of mu, what they cannot is the noise around it.
        np.testing.assert_allclose(found["uncertainty"][at], mu.std(), rtol=0.01)
        np.testing.assert_allclose(found["noise"][at], (y - mu).std(), rtol=0.01)


@examples
@given(mixtures())
def test_law_of_total_variance(fields):
    found = summarise(mixture(*fields))
    weights, means, noises, uncertainties = (field.astype(np.float64) for field in fields)
    mean = weights @ means
    variance = weights @ (means**2 + noises**2 + uncertainties**2) - mean**2
    np.testing.assert_allclose(found["mean"], np.full(SHAPE, mean), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found["std"] ** 2, np.full(SHAPE, variance), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(found["noise"] ** 2 + found["uncertainty"] ** 2, found["std"] ** 2, rtol=1e-5)
    np.testing.assert_allclose(found["noise"] ** 2, np.full(SHAPE, weights @ noises**2), rtol=1e-5)


@examples
@given(mixtures(extreme), st.floats(-20, 20, width=32))
def test_mixture_density_holds_for_every_scale(fields, y):
    weights, means, noises, uncertainties = (field.astype(np.float64) for field in fields)
    log_probs = stats.norm.logpdf(y, means, np.hypot(noises, uncertainties))
    expected = special.logsumexp(log_probs, b=weights)
    found = summarise(mixture(*fields), y)["log_prob"]
    np.testing.assert_allclose(found, np.full(SHAPE, expected), rtol=1e-5, atol=2e-5)


def test_a_component_of_weight_zero_is_not_there():
    left_out = summarise(mixture([1.0, 0.0], [0.0, 1e3], [1.0, 1e-6], [0.0, 0.0]), 1e3, 0.9)
    alone = summarise(normal(0.0, 1.0, 0.0), 1e3, 0.9)
    for name, values in alone.items():
        np.testing.assert_allclose(left_out[name], values, rtol=1e-5, atol=1e-5)


def test_density_of_a_mixture_in_the_far_tail_is_that_of_the_widest_part():
    found = summarise(mixture([0.5, 0.5], [0.0, 0.0], [1.0, 2.0], [0.0, 0.0]), 500.0)["log_prob"]
    expected = np.log(0.5) + stats.norm.logpdf(500, 0, 2)
    np.testing.assert_allclose(found, np.full(SHAPE, expected), rtol=1e-6)


def test_equal_parts_are_one_normal():
    same = summarise(mixture([1 / 3] * 3, [0.4] * 3, [0.5] * 3, [0.1] * 3), [[0.0], [1.5]], 0.2)
    alone = summarise(normal(0.4, 0.5, 0.1), [[0.0], [1.5]], 0.2)
    for name, values in alone.items():
        np.testing.assert_allclose(same[name], values, rtol=1e-4, err_msg=name)


@pytest.mark.parametrize("kind", ["normal", "mixture"])
def test_several_quantiles_have_the_leading_axis(kind):
    prediction = of_kind(kind)
    found = prediction.quantile([0.1, 0.5, 0.9])
    assert found.shape == (3, *prediction.mean.shape)
    for value, probability in zip(found, (0.1, 0.5, 0.9), strict=True):
        np.testing.assert_allclose(value, prediction.quantile(probability), rtol=1e-6)


@examples
@given(mixtures(), st.sampled_from([0.001, 0.05, 0.3, 0.5, 0.9, 0.975]))
def test_quantile_inverts_cdf(fields, probability):
    found = summarise(mixture(*fields), probability=probability)
    weights, means, noises, uncertainties = (field.astype(np.float64) for field in fields)
    stds = np.hypot(noises, uncertainties)
    at = np.float64(found["quantile"][0, 0])

    def cdf(value):
        return weights @ stats.norm.cdf(value, means, stds)

    # The probability is passed within a step that float32 can make at this distance.
    step = 2e-6 * (1 + np.abs(at))
    assert cdf(at - step) - 2e-6 <= probability <= cdf(at + step) + 2e-6
    np.testing.assert_allclose(found["cdf_of_quantile"], np.full(SHAPE, cdf(at)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_interval_is_central(kind):
    prediction = of_kind(kind)
    low, high = prediction.interval(0.8)
    np.testing.assert_allclose(summarise(prediction, low)["cdf"], np.full(SHAPE, 0.1), atol=1e-5)
    np.testing.assert_allclose(summarise(prediction, high)["cdf"], np.full(SHAPE, 0.9), atol=1e-5)


def test_interval_holds_nine_tenths_unless_told_otherwise():
    low, high = normal(0.0, 1.0, 0.0).interval()
    np.testing.assert_allclose(low, np.full(SHAPE, -1.6448536), rtol=1e-5)
    np.testing.assert_allclose(high, np.full(SHAPE, 1.6448536), rtol=1e-5)


@pytest.mark.parametrize(
    ("probability", "expected"), [(0.2, -1e4 + stats.norm.ppf(0.8)), (0.5, 1e4 + stats.norm.ppf(1 / 3))]
)
def test_quantile_between_distant_components(probability, expected):
    # A quarter of the mass is left of the gap: 0.2 is 4/5 into the left part, 0.5 is 1/3 into the right one.
    far = mixture([0.25, 0.75], [-1e4, 1e4], [1.0, 1.0], [0.0, 0.0])
    found = summarise(far, probability=probability)["quantile"]
    np.testing.assert_allclose(found, np.full(SHAPE, expected), rtol=3e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_rescaled_prediction_is_that_of_the_rescaled_target(kind):
    y = np.array([[0.3, 1.0], [-2.0, 4.0]])
    before = summarise(of_kind(kind), y, 0.7)
    after = summarise(of_kind(kind).rescale(60.0, -7.0), -7 + 60 * y, 0.7)
    np.testing.assert_allclose(after["log_prob"], before["log_prob"] - np.log(60), rtol=1e-4)
    np.testing.assert_allclose(after["cdf"], before["cdf"], atol=1e-5)
    np.testing.assert_allclose(after["mean"], -7 + 60 * before["mean"], rtol=1e-4)
    np.testing.assert_allclose(after["quantile"], -7 + 60 * before["quantile"], rtol=1e-4)
    for field in ("noise", "uncertainty", "std"):
        np.testing.assert_allclose(after[field], 60 * before[field], rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_can_have_units_of_their_own(kind):
    before = summarise(of_kind(kind))
    scale, shift = array([60.0, 0.1]), array([-7.0, 2.0])
    after = summarise(of_kind(kind).rescale(scale, shift))
    np.testing.assert_allclose(after["mean"], shift + scale * before["mean"], rtol=1e-4)
    for field in ("noise", "uncertainty", "std"):
        np.testing.assert_allclose(after[field], scale * before[field], rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_gather_gives_plain_arrays_of_the_same_numbers(kind):
    found, expected = gather(of_kind(kind)), summarise(of_kind(kind))
    for field in ("mean", "noise", "uncertainty"):
        assert type(getattr(found, field)) is np.ndarray
        np.testing.assert_allclose(getattr(found, field), expected[field], rtol=1e-6)
