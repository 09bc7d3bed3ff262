"""Normal and Bernoulli: closed forms against integrals, samples and float64, over the whole range of scales."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from ncprior.core.distributions import Bernoulli, Normal

examples = settings(max_examples=50, deadline=None, derandomize=True)

scales = st.floats(-6, 6).map(lambda exponent: np.float32(10**exponent))
means = st.floats(-1e6, 1e6, width=32).map(np.float32)
logits = st.floats(-1e4, 1e4, width=32).map(np.float32)

PAIRS = [((0.0, 1.0), (0.0, 2.0)), ((1.0, 0.5), (-0.5, 1.5)), ((-2.0, 3.0), (1.0, 0.7)), ((0.3, 0.1), (0.3, 0.1))]


def float64_kl(mean_p, std_p, mean_q, std_q):
    ratio = np.float64(std_p) / np.float64(std_q)
    z = (np.float64(mean_p) - np.float64(mean_q)) / np.float64(std_q)
    return 0.5 * (ratio**2 - 1 + z**2) - np.log(ratio)


def float64_log_sigmoid(logit):
    return -np.logaddexp(0.0, -np.float64(logit))


def test_log_density_is_that_of_scipy():
    value, mean, std = np.meshgrid([-3.0, 0.0, 0.7, 4.0], [-1.0, 0.0, 2.5], [0.1, 1.0, 7.0])
    expected = stats.norm.logpdf(value, mean, std)
    np.testing.assert_allclose(Normal(mean, std).log_prob(value), expected, rtol=1e-5, atol=1e-6)


def test_cdf_is_that_of_scipy():
    value, mean, std = np.meshgrid([-3.0, 0.0, 0.7, 4.0], [-1.0, 0.0, 2.5], [0.1, 1.0, 7.0])
    expected = stats.norm.cdf(value, mean, std)
    np.testing.assert_allclose(Normal(mean, std).cdf(value), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_cdf_knows_no_unit(scale):
    z = np.linspace(-5, 5, 21)
    found = Normal(np.float32(0), np.float32(scale)).cdf((scale * z).astype(np.float32))
    np.testing.assert_allclose(found, stats.norm.cdf(z), rtol=1e-4)


@examples
@given(means, means, scales)
def test_log_density_holds_for_every_scale(value, mean, std):
    z = (np.float64(value) - np.float64(mean)) / np.float64(std)
    expected = -0.5 * z**2 - np.log(np.float64(std)) - 0.5 * np.log(2 * np.pi)
    found = Normal(mean, std).log_prob(value)
    assert found.dtype == jnp.float32
    assert abs(float(found) - expected) <= 2e-6 * (z**2 + abs(np.log(std)) + 1)


@examples
@given(means, scales, st.floats(-8, 8))
def test_log_density_is_accurate_within_a_few_deviations(mean, std, z):
    value = np.float32(mean + z * std)
    expected = stats.norm.logpdf(np.float64(value), np.float64(mean), np.float64(std))
    np.testing.assert_allclose(Normal(mean, std).log_prob(value), expected, rtol=2e-6, atol=1e-5)


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_kl_is_the_integral_of_the_log_ratio_in_both_directions(p, q):
    for (mean_p, std_p), (mean_q, std_q) in ((p, q), (q, p)):
        left, right = stats.norm(mean_p, std_p), stats.norm(mean_q, std_q)

        def integrand(x, left=left, right=right):
            return left.pdf(x) * (left.logpdf(x) - right.logpdf(x))

        expected, _ = integrate.quad(integrand, mean_p - 12 * std_p, mean_p + 12 * std_p, epsabs=1e-12)
        found = Normal(mean_p, std_p).kl(Normal(mean_q, std_q))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_kl_is_not_symmetric():
    forward = float(Normal(0.0, 1.0).kl(Normal(0.0, 2.0)))
    reverse = float(Normal(0.0, 2.0).kl(Normal(0.0, 1.0)))
    # ln 2 - 3/8 and 3/2 - ln 2.
    assert forward == pytest.approx(0.31814718, rel=1e-6)
    assert reverse == pytest.approx(0.80685282, rel=1e-6)


@examples
@given(means, scales)
def test_kl_of_equal_normals_is_exactly_zero(mean, std):
    assert float(Normal(mean, std).kl(Normal(mean, std))) == 0.0


@examples
@given(means, scales, means, scales)
def test_kl_holds_for_every_scale(mean_p, std_p, mean_q, std_q):
    ratio = np.float64(std_p) / np.float64(std_q)
    z = (np.float64(mean_p) - np.float64(mean_q)) / np.float64(std_q)
    expected = float64_kl(mean_p, std_p, mean_q, std_q)
    found = float(Normal(mean_p, std_p).kl(Normal(mean_q, std_q)))
    assert abs(found - expected) <= 2e-6 * (ratio**2 + z**2 + abs(np.log(ratio)) + 1)
    assert found >= -1e-6


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("excess", [-1e-1, -1e-2, -1e-3, 1e-3, 1e-2, 1e-1])
def test_kl_is_accurate_where_the_scales_almost_agree(scale, excess):
    std_p, std_q = np.float32(scale * (1 + excess)), np.float32(scale)
    expected = float64_kl(0.0, std_p, 0.0, std_q)
    # Squares of float32 scales would be wrong by 10% here.
    np.testing.assert_allclose(Normal(0.0, std_p).kl(Normal(0.0, std_q)), expected, rtol=2e-3)


@jax.jit
def slopes(value, mean, std, noise):
    """Of the log density in the std, of its expectation in the noise, of the KL in the std of q and of p."""
    return (
        jax.grad(lambda x: Normal(mean, x).log_prob(value))(std),
        jax.grad(lambda x: Normal(mean, std).expected_log_prob(value, x))(noise),
        jax.grad(lambda x: Normal(mean, std).kl(Normal(value, x)))(noise),
        jax.grad(lambda x: Normal(mean, x).kl(Normal(value, noise)))(std),
    )


@examples
@given(means, means, scales, scales)
def test_gradients_hold_for_every_scale(value, mean, std, noise):
    log_prob, expected_log_prob, kl_q, kl_p = slopes(value, mean, std, noise)
    gap, s, n = np.float64(value) - np.float64(mean), np.float64(std), np.float64(noise)
    np.testing.assert_allclose(log_prob, (gap / s) ** 2 / s - 1 / s, rtol=1e-5, atol=2e-6 / s)
    expected = ((gap / n) ** 2 + (s / n) ** 2 - 1) / n
    np.testing.assert_allclose(expected_log_prob, expected, rtol=1e-5, atol=2e-6 * (1 + (s / n) ** 2) / n)
    np.testing.assert_allclose(kl_q, -expected, rtol=1e-5, atol=2e-6 * (1 + (s / n) ** 2) / n)
    np.testing.assert_allclose(kl_p, s / n**2 - 1 / s, rtol=1e-5, atol=2e-6 / s)


@pytest.mark.parametrize(
    ("mean", "std", "noise", "value"), [(0.0, 1.0, 1.0, 0.0), (1.0, 0.3, 0.5, -0.4), (-2.0, 2.0, 0.7, 1.5)]
)
def test_expected_log_density_is_the_mean_over_samples(mean, std, noise, value):
    draws = np.random.default_rng(0).normal(mean, std, 200_000)
    densities = stats.norm.logpdf(value, draws, noise)
    error = densities.std() / np.sqrt(densities.size)
    found = float(Normal(mean, std).expected_log_prob(value, noise))
    assert abs(found - densities.mean()) < 4 * error


@pytest.mark.parametrize(
    ("mean", "std", "noise", "value"), [(0.0, 1.0, 1.0, 0.0), (1.0, 0.3, 0.5, -0.4), (-2.0, 2.0, 0.7, 1.5)]
)
def test_expected_log_density_is_the_integral_over_the_belief(mean, std, noise, value):
    def integrand(mu):
        return stats.norm.pdf(mu, mean, std) * stats.norm.logpdf(value, mu, noise)

    expected, _ = integrate.quad(integrand, mean - 12 * std, mean + 12 * std)
    np.testing.assert_allclose(Normal(mean, std).expected_log_prob(value, noise), expected, rtol=1e-5)


def test_expected_log_density_of_a_point_is_the_log_density():
    value = np.linspace(-2, 2, 5, dtype=np.float32)
    found = Normal(np.float32(0.3), np.float32(0)).expected_log_prob(value, np.float32(0.7))
    np.testing.assert_array_equal(found, Normal(np.float32(0.3), np.float32(0.7)).log_prob(value))


@examples
@given(st.floats(-5, 5), st.floats(0.01, 5), st.floats(0.01, 5), st.floats(-5, 5))
def test_expected_log_density_lies_below_that_of_the_prediction(mean, std, noise, value):
    # Jensen: E[ln p] <= ln E[p], and E[p] is the normal of both variances.
    inner = float(Normal(mean, std).expected_log_prob(value, noise))
    outer = stats.norm.logpdf(value, mean, np.hypot(std, noise))
    assert inner <= outer + 1e-4 * (1 + abs(outer))


@examples
@given(logits)
def test_bernoulli_holds_for_every_logit(logit):
    one, zero = Bernoulli(logit).log_prob(1), Bernoulli(logit).log_prob(0)
    np.testing.assert_allclose(one, float64_log_sigmoid(logit), rtol=1e-5, atol=1e-30)
    np.testing.assert_allclose(zero, float64_log_sigmoid(-logit), rtol=1e-5, atol=1e-30)
    np.testing.assert_allclose(Bernoulli(logit).probability, np.exp(float64_log_sigmoid(logit)), rtol=1e-5, atol=1e-37)
    slope = jax.grad(lambda x: Bernoulli(x).log_prob(1))(logit)
    np.testing.assert_allclose(slope, np.exp(float64_log_sigmoid(-logit)), rtol=1e-5, atol=1e-37)


def test_bernoulli_loses_no_extreme_logit():
    assert float(Bernoulli(-1e30).log_prob(1)) == pytest.approx(-1e30, rel=1e-6)
    assert float(Bernoulli(1e30).log_prob(0)) == pytest.approx(-1e30, rel=1e-6)
    assert float(Bernoulli(1e30).log_prob(1)) == 0.0
    # The probability of 0 at logit 50 is lost in 1 - p, but not in the log density of 1.
    assert float(Bernoulli(50.0).log_prob(1)) == pytest.approx(-np.exp(-50), rel=1e-5)


@pytest.mark.parametrize(("p", "q"), [(0.0, 0.0), (0.0, 2.0), (-3.0, 1.0), (4.0, -4.0), (7.0, 6.9)])
def test_bernoulli_kl_is_the_sum_of_log_ratios_in_both_directions(p, q):
    for left, right in ((p, q), (q, p)):
        a, b = 1 / (1 + np.exp(-left)), 1 / (1 + np.exp(-right))
        expected = a * np.log(a / b) + (1 - a) * np.log((1 - a) / (1 - b))
        np.testing.assert_allclose(Bernoulli(left).kl(Bernoulli(right)), expected, rtol=1e-4, atol=1e-7)


@examples
@given(logits, logits)
def test_bernoulli_kl_holds_for_every_logit(p, q):
    ones = np.exp(float64_log_sigmoid(p)) * (float64_log_sigmoid(p) - float64_log_sigmoid(q))
    zeros = np.exp(float64_log_sigmoid(-p)) * (float64_log_sigmoid(-p) - float64_log_sigmoid(-q))
    found = float(Bernoulli(p).kl(Bernoulli(q)))
    assert abs(found - (ones + zeros)) <= 2e-6 * (abs(ones) + abs(zeros) + 1)
    assert found >= -1e-6


@examples
@given(logits)
def test_bernoulli_kl_of_equals_is_exactly_zero(logit):
    assert float(Bernoulli(logit).kl(Bernoulli(logit))) == 0.0


def test_bernoulli_kl_of_opposite_certainties_is_the_logit():
    assert float(Bernoulli(1e4).kl(Bernoulli(-1e4))) == pytest.approx(1e4, rel=1e-6)
    slopes = jax.grad(lambda p, q: Bernoulli(p).kl(Bernoulli(q)), argnums=(0, 1))(1e4, -1e4)
    np.testing.assert_allclose(slopes, (0.0, -1.0), atol=1e-6)
