"""Acquisition: scores worked out by hand on small predictions, and drawing against exact probabilities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ncprior.core import acquisition
from ncprior.core.acquisition import SCORES, Acquisition, draw_with_replacement, gumbel_top_k
from ncprior.core.prediction import MixturePrediction, Prediction

examples = settings(max_examples=50, deadline=None, derandomize=True)

KEY = jax.random.key(0)
DRAWS = ["without_replacement", "with_replacement", "greedy"]


def array(values):
    return jnp.asarray(np.asarray(values, np.float32))


def fake(noise, uncertainty):
    """A prediction for rows of one output with these noises and uncertainties."""
    noise, uncertainty = array(noise)[:, None], array(uncertainty)[:, None]
    return Prediction(jnp.zeros_like(noise), noise, uncertainty)


# Four rows: nothing known about the first, everything about the last.
ROWS = fake(noise=[1.0, 2.0, 0.5, 1.0], uncertainty=[3.0**0.5, 2.0, 1.0, 0.0])
# Two rows and two outputs, with OOD probabilities 0.3, 0.8; 0.5, 0.0.
PI = array([[0.3, 0.8], [0.5, 0.0]])
OOD = MixturePrediction(
    jnp.stack([1 - PI, PI], -1),
    Prediction(
        jnp.zeros((2, 2, 2)),
        array([[[0.1, 0.0], [0.2, 0.0]], [[1.0, 0.0], [2.0, 0.0]]]),
        array([[[0.0, 1.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]]),
    ),
)


def test_information_gain_by_hand():
    # Var / sigma^2 is 3, 1, 4, 0.
    np.testing.assert_allclose(
        acquisition.information_gain(ROWS), 0.5 * np.log([4.0, 2.0, 5.0, 1.0]), rtol=1e-5, atol=1e-7
    )


def test_information_gain_does_not_know_the_unit():
    np.testing.assert_allclose(
        acquisition.information_gain(ROWS.rescale(60.0)), acquisition.information_gain(ROWS), rtol=1e-5
    )


def test_scores_of_several_outputs_are_averages():
    both = Prediction(jnp.zeros((1, 2)), array([[1.0, 0.5]]), array([[3.0**0.5, 1.0]]))
    np.testing.assert_allclose(acquisition.information_gain(both), [0.25 * np.log(20)], rtol=1e-5)
    np.testing.assert_allclose(acquisition.predictive_variance(both), [(4 + 1.25) / 2], rtol=1e-5)
    np.testing.assert_allclose(acquisition.predictive_std(both), [(2 + 1.25**0.5) / 2], rtol=1e-5)
    np.testing.assert_allclose(acquisition.uncertainty(both), [0.25 * np.log(3)], rtol=1e-5)


def test_ood_information_gain_by_hand():
    # pi / sigma^2 is 30, 20; 0.5, 0: of the network's own noise, not of the mixture's.
    expected = [0.25 * np.log(31 * 21), 0.25 * np.log(1.5)]
    np.testing.assert_allclose(acquisition.ood_information_gain(OOD), expected, rtol=1e-5)


def test_ood_information_gain_of_the_blend():
    """The released code's blend has the OOD probability as its uncertainty."""
    prediction = Prediction(jnp.zeros((1, 1)), jnp.full((1, 1), 0.5), jnp.full((1, 1), 0.75))
    np.testing.assert_allclose(acquisition.ood_information_gain(prediction), [0.5 * np.log(1 + 0.75 / 0.25)], rtol=1e-5)


def test_ood_probability_by_hand():
    np.testing.assert_allclose(acquisition.ood_probability(OOD), [0.55, 0.25], rtol=1e-6)
    # The released code's blend keeps it as its uncertainty.
    blend = Prediction(jnp.zeros((2, 2)), jnp.ones((2, 2)), PI)
    np.testing.assert_allclose(acquisition.ood_probability(blend), [0.55, 0.25], rtol=1e-6)


def test_uncertainty_by_hand():
    found = acquisition.uncertainty(ROWS)
    np.testing.assert_allclose(found, np.log([3.0**0.5, 2.0, 1.0, 1e-8]), rtol=1e-5, atol=1e-6)


def test_predictive_scores_by_hand():
    np.testing.assert_allclose(acquisition.predictive_variance(ROWS), [4, 8, 1.25, 1], rtol=1e-5)
    np.testing.assert_allclose(acquisition.predictive_std(ROWS), np.sqrt([4, 8, 1.25, 1]), rtol=1e-5)


def test_random_makes_no_difference_between_rows():
    np.testing.assert_array_equal(acquisition.random(ROWS), np.zeros(4))
    np.testing.assert_array_equal(acquisition.random(OOD), np.zeros(2))


@pytest.mark.parametrize("name", SCORES)
def test_every_score_gives_a_finite_number_for_each_row(name):
    found = SCORES[name].function(OOD)
    assert found.shape == (2,)
    assert np.isfinite(found).all()


def test_noise_without_bound_below_gives_a_finite_gain():
    found = acquisition.information_gain(fake([0.0, 1e-6, 1e6], [1.0, 0.0, 1e-6]))
    np.testing.assert_allclose(found, [0.5 * np.log1p(1e8), 0, 0], rtol=1e-5, atol=1e-10)


@pytest.mark.parametrize("tau", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(("exponent", "power"), [(2.0, lambda tau: 1 / tau), (1.0, lambda tau: 1 / (2 * tau))])
def test_probabilities_are_the_power_of_one_plus_the_variance_ratio(tau, exponent, power):
    rule = Acquisition(exponent=exponent, temperature=tau)
    found = jax.nn.softmax(rule.logits(ROWS))
    expected = np.array([4.0, 2.0, 5.0, 1.0]) ** power(tau)
    np.testing.assert_allclose(found, expected / expected.sum(), rtol=1e-5)


def test_rule_without_arguments_is_that_of_the_paper():
    found = jax.nn.softmax(Acquisition().logits(ROWS))
    np.testing.assert_allclose(found, np.array([16, 4, 25, 1]) / 46, rtol=1e-5)


PROBABILITIES = np.array([0.4, 0.1, 0.0, 0.3, 0.2])
LOGITS = jnp.log(array(PROBABILITIES)) + 3.0  # any constant will do


@pytest.fixture(scope="module")
def pairs():
    """Twenty thousand times two rows drawn without replacement."""
    keys = jax.random.split(KEY, 20_000)
    return np.asarray(jax.jit(jax.vmap(lambda key: gumbel_top_k(LOGITS, 2, key=key)[0]))(keys))


def test_first_of_gumbel_top_k_has_the_softmax_probabilities(pairs):
    counts = np.bincount(pairs[:, 0], minlength=5)
    assert counts[2] == 0
    live = PROBABILITIES > 0
    assert stats.chisquare(counts[live], len(pairs) * PROBABILITIES[live]).pvalue > 0.01


def test_second_of_gumbel_top_k_is_drawn_from_what_is_left(pairs):
    p = PROBABILITIES
    exact = p[:, None] * p / (1 - p)[:, None]
    live = (p[:, None] > 0) & (p > 0) & ~np.eye(5, dtype=bool)
    counts = np.zeros((5, 5))
    np.add.at(counts, (pairs[:, 0], pairs[:, 1]), 1)
    assert counts[~live].sum() == 0
    assert stats.chisquare(counts[live], len(pairs) * exact[live]).pvalue > 0.01


def test_gumbel_top_k_gives_the_best_first():
    rows, values = gumbel_top_k(jnp.zeros(50), 50, key=KEY)
    assert (np.diff(values) < 0).all()
    np.testing.assert_array_equal(np.sort(rows), np.arange(50))


def test_perturbed_logits_of_a_large_pool_do_not_tie():
    # Of rows that tie the first would always win, whatever the score says about the others.
    _, values = gumbel_top_k(jnp.zeros(2**19), 64, key=KEY)
    assert len(np.unique(values)) == 64


def test_draws_with_replacement_are_independent_draws_from_the_softmax():
    rows = np.asarray(draw_with_replacement(LOGITS, 40_000, key=KEY))
    live = PROBABILITIES > 0
    counts = np.bincount(rows, minlength=5)
    assert counts[2] == 0
    assert stats.chisquare(counts[live], len(rows) * PROBABILITIES[live]).pvalue > 0.01
    repeated = (rows[::2] == rows[1::2]).mean()
    assert repeated == pytest.approx((PROBABILITIES**2).sum(), abs=4 * np.sqrt(0.21 / 20_000))


@pytest.mark.parametrize("live", [0, 2, 4])
def test_the_only_row_left_is_drawn_every_time(live):
    logits = jnp.full(5, -jnp.inf).at[live].set(-70.0)
    np.testing.assert_array_equal(draw_with_replacement(logits, 40_000, key=KEY), np.full(40_000, live))
    assert int(gumbel_top_k(logits, 1, key=KEY)[0][0]) == live


@pytest.mark.parametrize("mark", [0.0, 1.0 - 2.0**-24])
def test_the_least_and_the_largest_random_number_draw_rows_with_a_probability(monkeypatch, mark):
    monkeypatch.setattr(jax.random, "uniform", lambda _, shape: jnp.full(shape, mark, jnp.float32))
    logits = array([-np.inf, 0.3, 0.1, -np.inf, 1.2, -np.inf])
    rows = np.asarray(draw_with_replacement(logits, 5, key=KEY))
    np.testing.assert_array_equal(rows, np.full(5, 1 if mark == 0.0 else 4))


def test_excluded_rows_of_a_large_pool_are_never_drawn_with_replacement():
    # Running sums of many numbers are rounded: an excluded row must not get a share of the rounding.
    rng = np.random.default_rng(0)
    excluded = rng.random(2**19) < 0.5
    logits = jnp.where(excluded, -jnp.inf, array(rng.normal(size=2**19)))
    rows = np.asarray(draw_with_replacement(logits, 500_000, key=KEY))
    assert not excluded[rows].any()


POOL = 12


@pytest.fixture(scope="module")
def drawn():
    """Thirty times three rows of a pool of twelve, by the way of drawing."""

    def function(draw):
        rule = Acquisition(temperature=0.1, draw=draw)

        @jax.jit
        def many(noise, uncertainty, excluded):
            prediction = Prediction(jnp.zeros((POOL, 1)), noise[:, None], uncertainty[:, None])
            return jax.vmap(lambda key: rule(prediction, excluded, 3, key=key))(jax.random.split(KEY, 30))

        return many

    return {draw: function(draw) for draw in DRAWS}


scales = st.floats(-6, 6).map(lambda exponent: 10**exponent)


@pytest.mark.parametrize("draw", DRAWS)
@examples
@given(
    excluded=st.lists(st.booleans(), min_size=POOL, max_size=POOL).filter(lambda mask: mask.count(False) >= 3),
    noise=st.lists(scales, min_size=POOL, max_size=POOL),
    uncertainty=st.lists(scales, min_size=POOL, max_size=POOL),
)
def test_excluded_rows_are_never_drawn(drawn, draw, excluded, noise, uncertainty):
    excluded = np.array(excluded)
    rows = np.asarray(drawn[draw](array(noise), array(uncertainty), excluded))
    assert rows.shape == (30, 3)
    assert rows.min() >= 0
    assert rows.max() < POOL
    assert not excluded[rows].any()
    if draw != "with_replacement":
        assert all(len(set(batch)) == 3 for batch in rows.tolist())


def test_rows_repeat_only_with_replacement(drawn):
    noise, excluded = jnp.ones(POOL), np.arange(POOL) >= 4
    uncertainty = array([1.0] * POOL)
    repeats = {
        draw: sum(len(set(batch)) < 3 for batch in drawn[draw](noise, uncertainty, excluded).tolist()) for draw in DRAWS
    }
    assert repeats["without_replacement"] == repeats["greedy"] == 0
    # Three draws from four rows are different with probability 3/8.
    assert 10 <= repeats["with_replacement"] <= 28


def test_greedy_takes_the_best_rows_that_are_left():
    rule = Acquisition(draw="greedy")
    excluded = jnp.array([False, False, True, False])
    np.testing.assert_array_equal(rule(ROWS, excluded, 2, key=KEY), [0, 1])
    np.testing.assert_array_equal(rule(ROWS, jnp.zeros(4, bool), 3, key=jax.random.key(1)), [2, 0, 1])


@pytest.mark.parametrize("draw", DRAWS)
def test_a_row_that_is_far_better_is_drawn_first(drawn, draw):
    # Its odds are 10^6 to the power of 2 / 0.1.
    uncertainty = jnp.ones(POOL).at[7].set(1e3)
    np.testing.assert_array_equal(drawn[draw](jnp.ones(POOL), uncertainty, np.zeros(POOL, bool))[:, 0], np.full(30, 7))


def test_a_high_temperature_is_random():
    logits = Acquisition(temperature=1e6).logits(ROWS)
    np.testing.assert_allclose(jax.nn.softmax(logits), np.full(4, 0.25), rtol=1e-5)
