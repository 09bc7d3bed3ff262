"""Quantiles of mixtures: a root for every row, whatever the components and however many iterations others take."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from ncprior.core.prediction import MixturePrediction, Prediction


def mixture(weights, means, stds):
    weights, means, stds = (jnp.asarray(part, jnp.float32) for part in (weights, means, stds))
    return MixturePrediction(weights, Prediction(means, stds, 0 * stds))


QUANTILE = jax.jit(lambda prediction, probability: prediction.quantile(probability))
COMPONENTS = 3
numbers = st.lists(st.floats(-100, 100, width=32), min_size=COMPONENTS, max_size=COMPONENTS)
logs = st.lists(st.floats(-6, 6, width=32), min_size=COMPONENTS, max_size=COMPONENTS)


@given(numbers, logs, logs, st.sampled_from([1e-4, 0.05, 0.5, 0.9, 0.999]))
@settings(max_examples=60, deadline=None)
def test_it_is_the_root_that_brent_finds(means, log_stds, log_weights, probability):
    means, stds = np.float32(means), np.exp(np.float32(log_stds))
    weights = np.exp(np.float32(log_weights))
    weights /= weights.sum()
    ends = norm.ppf(probability, means, stds)

    def cdf(y):
        return weights @ norm.cdf(y, means, stds)

    found = float(QUANTILE(mixture([weights], [means], [stds]), np.float32(probability))[0])
    if ends.min() == ends.max():
        expected = ends[0]
    else:
        expected = brentq(lambda y: cdf(y) - probability, ends.min() - 1e-9, ends.max() + 1e-9, xtol=1e-12)
    # The root, or a point with the same probability to the precision of float32: between components there are many.
    close = abs(found - expected) <= 1e-5 * max(1.0, abs(expected), stds.min())
    assert close or cdf(found) == pytest.approx(probability, rel=1e-4, abs=2e-6)


def test_a_row_does_not_depend_on_the_others():
    rng = np.random.default_rng(0)
    weights, means = rng.dirichlet(np.ones(24), 200), rng.normal(size=(200, 24))
    stds = np.exp(rng.normal(size=(200, 24)))
    means[:20] *= 100  # these take more iterations
    together = QUANTILE(mixture(weights, means, stds), 0.9)
    apart = QUANTILE(mixture(weights[20:], means[20:], stds[20:]), 0.9)
    np.testing.assert_array_equal(together[20:], apart)


def test_equal_components_are_one_normal():
    same = mixture(np.full((2, 4), 0.25), np.full((2, 4), 3.0), np.full((2, 4), 2.0))
    np.testing.assert_allclose(QUANTILE(same, 0.975), norm.ppf(0.975, 3.0, 2.0), rtol=1e-6)
