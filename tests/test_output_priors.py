"""Output priors: their centre, and the direction of the divergence from them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ncprior.core.distributions import Normal
from ncprior.core.output_priors import OutputPrior

TARGETS = np.array([[0.0, 1.0], [2.0, -1.0]], np.float32)
MODEL_MEAN = np.array([[0.5, 1.0], [1.0, 0.0]], np.float32)
MODEL_STD = np.array([[0.5, 2.0], [1.0, 3.0]], np.float32)


def kl(mean_p, std_p, mean_q, std_q):
    return np.log(std_q / std_p) + (std_p**2 + (mean_p - mean_q) ** 2) / (2 * std_q**2) - 0.5


def test_without_arguments_it_is_a_unit_normal_around_the_target_compared_forward():
    prior = OutputPrior()
    np.testing.assert_array_equal(prior(TARGETS, MODEL_MEAN).mean, TARGETS)
    assert prior(TARGETS, MODEL_MEAN).std == 1.0
    assert prior.direction == "forward"


def test_a_constant_centre_does_not_look_at_the_target():
    prior = OutputPrior(2.0, centre=0.5)
    first, second = prior(TARGETS, MODEL_MEAN), prior(TARGETS + 1, MODEL_MEAN + 1)
    assert first.mean == second.mean == 0.5
    assert first.std == 2.0


@pytest.mark.parametrize(("centre", "mean"), [("target", TARGETS), (0.5, 0.5), (np.float32([1, -2]), [1, -2])])
@pytest.mark.parametrize("std", [1.0, 0.3, np.float32([0.5, 2.0])], ids=["1", "0.3", "each"])
def test_divergence_in_both_directions(centre, mean, std):
    model = Normal(jnp.asarray(MODEL_MEAN), jnp.asarray(MODEL_STD))
    forward = OutputPrior(std, centre).divergence(TARGETS, model)
    reverse = OutputPrior(std, centre, "reverse").divergence(TARGETS, model)
    assert forward.shape == reverse.shape == TARGETS.shape
    np.testing.assert_allclose(forward, kl(np.array(mean), std, MODEL_MEAN, MODEL_STD), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(reverse, kl(MODEL_MEAN, MODEL_STD, np.array(mean), std), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_centred_at_the_prediction_only_the_spread_counts(direction):
    prior = OutputPrior(0.7, "prediction", direction)
    stds = (0.7, MODEL_STD) if direction == "forward" else (MODEL_STD, 0.7)
    expected = kl(0.0, stds[0], 0.0, stds[1])

    def loss(model):
        return prior.divergence(TARGETS, model).sum()

    model = Normal(jnp.asarray(MODEL_MEAN), jnp.asarray(MODEL_STD))
    np.testing.assert_allclose(prior.divergence(TARGETS, model), expected, rtol=1e-4)
    slopes = jax.grad(loss)(model)
    np.testing.assert_array_equal(slopes.mean, 0)
    assert (np.sign(slopes.std) == np.sign(MODEL_STD - 0.7)).all()


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_divergence_is_zero_for_a_model_that_is_the_prior(direction):
    model = Normal(jnp.asarray(TARGETS), jnp.full(TARGETS.shape, 0.7))
    prior = OutputPrior(jnp.float32(0.7), direction=direction)
    np.testing.assert_array_equal(prior.divergence(TARGETS, model), 0)
    assert (np.asarray(prior.divergence(TARGETS + 0.1, model)) > 0).all()


def test_forward_punishes_a_narrow_model_and_reverse_a_wide_one():
    forward, reverse = OutputPrior(), OutputPrior(direction="reverse")
    narrow, wide = Normal(TARGETS, 0.1), Normal(TARGETS, 10.0)
    assert (forward.divergence(TARGETS, narrow) > forward.divergence(TARGETS, wide)).all()
    assert (reverse.divergence(TARGETS, narrow) < reverse.divergence(TARGETS, wide)).all()


@pytest.mark.parametrize("direction", ["backward", "Forward", None])
def test_an_unknown_direction_is_refused(direction):
    with pytest.raises(ValueError, match=rf"direction.*{direction}"):
        OutputPrior(direction=direction)


def test_an_unknown_centre_is_refused():
    with pytest.raises(ValueError, match=r"centre.*mean"):
        OutputPrior(centre="mean")
