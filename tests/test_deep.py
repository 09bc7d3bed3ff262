"""A belief over every layer: its samples, its divergence from the output prior, its settings."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ncprior.core.deep import TRAINING_SAMPLES, DeepMean, ExpectedNLL, SampledMeanNCP, deep_ncp
from ncprior.core.distributions import Normal
from ncprior.core.methods import methods
from ncprior.core.networks import LeakyReLU, Network
from ncprior.core.objectives import NLL, Batch, View
from ncprior.core.output_priors import OutputPrior
from ncprior.tables.preset import TABLES

KEY = jax.random.key(0)
X = jnp.array([0.5, -1.0])


@functools.cache
def head_of(std=0.3):
    return eqx.filter_jit(DeepMean.init)(2, (8, 8), 1, activation=LeakyReLU(0.2), std=std, key=KEY)


def many(head, x, count=20_000):
    return np.asarray(eqx.filter_jit(head.functions)(x, jax.random.split(jax.random.key(7), count)))


def view_of(head, rows=3, *, targets=0.0, noise=1.0, key=KEY):
    inputs = jnp.tile(X, (rows, 1))
    batch = Batch(inputs, jnp.full((rows, 1), targets), jnp.ones(rows), jnp.asarray(rows))
    clean = {"mean": Normal(jnp.zeros((rows, 1)), 1.0), "noise": jnp.full((rows, 1), noise)}
    return View(Network(lambda x: x, {"mean": head}), batch, inputs, clean, {"inputs": inputs}, key)


@pytest.fixture(scope="module")
def noise():
    """Standard normal numbers, which take longer to draw than all that is done with them."""
    return jax.random.normal(KEY, (TRAINING_SAMPLES, 150_000))


@pytest.mark.parametrize("centre", ["target", "prediction"])
@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize(
    ("mean", "std"), [(0.0, 1.0), (0.5, 1.0), (0.0, 0.05), (1.5, 0.3), (-2.0, 4.0), (0.0, 20.0)], ids=str
)
def test_the_estimate_is_right_for_a_normal_at_the_number_of_samples_of_training(direction, mean, std, centre, noise):
    prior = OutputPrior(1.0, centre, direction)

    def values(std):
        return prior.estimated_divergence(jnp.zeros(150_000), mean + std * noise)

    found, slopes = (np.float64(part) for part in jax.jvp(values, (jnp.float32(std),), (jnp.float32(1.0),)))
    exact = lambda std: prior.divergence(jnp.zeros(()), Normal(mean, std))  # noqa: E731
    for part, wanted in ((found, exact(std)), (slopes, jax.grad(exact)(std))):
        error = part.std() / len(part) ** 0.5
        # Float32 sums of the samples' squares round to a millionth of the largest part.
        assert part.mean() == pytest.approx(float(wanted), abs=5 * error + 1e-5 * abs(float(wanted)))


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_centred_at_the_prediction_the_estimate_does_not_move_the_mean(direction):
    samples = jax.random.normal(KEY, (TRAINING_SAMPLES, 50))
    prior = OutputPrior(0.7, "prediction", direction)
    slopes = jax.grad(lambda shift: prior.estimated_divergence(jnp.zeros(50), samples + shift).sum())(jnp.ones(50))
    np.testing.assert_allclose(slopes, 0, atol=1e-5)


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_the_estimate_is_least_at_the_std_of_the_prior_and_0_there(direction):
    prior = OutputPrior(0.7, 0.0, direction)
    noise = jax.random.normal(KEY, (TRAINING_SAMPLES, 200_000))
    stds = 0.7 * np.float32([0.7, 0.85, 1.0, 1.15, 1.4])
    values = [float(prior.estimated_divergence(jnp.zeros(200_000), std * noise).mean()) for std in stds]
    assert np.argmin(values) == 2
    assert values[2] == pytest.approx(0.0, abs=0.01)


def test_too_few_samples_are_refused():
    with pytest.raises(ValueError, match="at least 8 samples, got 4"):
        SampledMeanNCP(samples=4)


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_on_a_real_head_the_estimate_is_what_many_samples_say(direction):
    head, prior = head_of(), OutputPrior(1.0, "target", direction)
    values = many(head, X)
    wanted = float(prior.divergence(jnp.ones(1), Normal(values.mean(0), values.std(0)))[0])
    found = np.asarray(eqx.filter_jit(SampledMeanNCP(prior))(view_of(head, 20_000, targets=1.0)))
    assert found.mean() == pytest.approx(wanted, rel=0.1)
    assert found.std() < 1.5 * wanted


def test_a_draw_is_distributed_as_a_sampled_network():
    head = head_of()
    values, draws = many(head, X), np.asarray(eqx.filter_jit(head.draws)(X[None], 20_000, key=KEY))[:, 0]
    assert draws.shape == values.shape
    np.testing.assert_allclose(draws.mean(), values.mean(), atol=5 * values.std() / 100)
    np.testing.assert_allclose(draws.std(), values.std(), rtol=0.04)
    levels = [0.05, 0.25, 0.75, 0.95]
    np.testing.assert_allclose(np.quantile(draws, levels), np.quantile(values, levels), atol=0.05 * values.std())


def test_rows_of_a_mini_batch_are_drawn_independently():
    draws = np.asarray(eqx.filter_jit(head_of().draws)(jnp.tile(X, (2, 1)), 4_000, key=KEY))[..., 0]
    assert abs(np.corrcoef(draws.T)[0, 1]) < 0.06


def test_without_spread_in_its_weights_it_is_a_point():
    head = head_of(std=1e-8)
    whole, sampled = eqx.filter_jit(lambda head: (head(X), head.sample(key=KEY)(X)))(head)
    np.testing.assert_allclose(whole.mean, sampled.mean, atol=1e-4)
    assert float(whole.std[0]) < 1e-3
    assert np.isfinite(np.asarray(eqx.filter_jit(SampledMeanNCP())(view_of(head)))).all()


def test_a_prediction_is_made_of_functions_and_their_deviations():
    head, other = head_of(), X + 0.3
    values = np.asarray(head.functions(X, jax.random.split(jax.random.key(0), 16)))
    np.testing.assert_allclose(head(X).mean, values.mean(0), rtol=1e-5)
    np.testing.assert_allclose(head(X).std, values.std(0, ddof=1), rtol=1e-4)
    here, there = np.asarray(head.deviations(X)), np.asarray(head.deviations(other))
    np.testing.assert_allclose((here**2).sum(0), np.asarray(head(X).std) ** 2, rtol=1e-4)
    with_other = np.asarray(head.functions(other, jax.random.split(jax.random.key(0), 16)))
    np.testing.assert_allclose((here * there).sum(), np.cov(values[:, 0], with_other[:, 0])[0, 1], rtol=1e-4)


def test_the_weight_prior_counts_kernels_and_biases():
    head = head_of()
    parts = []
    for layer, std in zip(head.layers, [1.0, 0.5, 0.1], strict=True):
        for mean, rho in ((layer.mean, layer.rho), (layer.bias, layer.bias_rho)):
            parts.append(np.sum(Normal(np.float64(mean), np.logaddexp(0, np.float64(rho))).kl(Normal(0.0, std))))
    kl = eqx.filter_jit(lambda head: head.kl(0.1))
    assert float(kl(head)) == pytest.approx(float(sum(parts)), rel=1e-4)
    wide = eqx.tree_at(lambda head: head.hidden[0].bias_rho, head, jnp.full(8, 50.0))
    assert float(kl(wide)) > float(kl(head)) + 8 * 1_000


def test_the_expected_likelihood_is_the_average_over_networks():
    head = head_of()
    values = many(head, X)
    wanted = -float(np.mean(Normal(values, 0.5).log_prob(0.8)))
    found = np.asarray(eqx.filter_jit(ExpectedNLL())(view_of(head, 5_000, targets=0.8, noise=0.5)))
    assert found.mean() == pytest.approx(wanted, abs=float(5 * found.std() / 5_000**0.5 + 0.01))


def method_of(**changes):
    return deep_ncp(dataclasses.replace(TABLES, hidden=(8,), **changes))


def test_settings_of_the_bayesian_network_hold():
    wanted = set(methods(TABLES)["bbb+ncp"].objective)
    assert set(method_of().objective) == wanted == {"nll", "ncp", "noise_tie", "weight_kl"}
    assert set(method_of(noise_prior_std=0.1, ncp_weight_kl=0.0).objective) == wanted - {"weight_kl"} | {"noise_ncp"}
    # Samples of every row's own, or one network for the mini batch.
    terms = [method_of(expectation=word).objective["nll"].term for word in ("exact", "sampled")]
    assert [type(term) for term in terms] == [ExpectedNLL, NLL]
    view = view_of(head_of(), 500, targets=0.8, noise=0.5)
    several, one = (eqx.filter_jit(term)(view) for term in terms)
    assert float(several.std()) > 0.01 > 1e-5 > float(one.std())
    ncp = method_of(direction="reverse", ncp_away=False, gamma_per_label=False, output_std=2.0).objective["ncp"].term
    assert (ncp.prior.direction, ncp.prior.std) == ("reverse", 2.0)


def test_biases_have_a_belief_if_the_settings_say_so():
    for wanted in (True, False):
        head = method_of(bias_belief=wanted).init(2, 1, key=KEY).heads["mean"]
        assert [layer.bias_rho is not None for layer in head.layers] == [wanted, wanted]
        drawn = [head.sample(key=key).trunk.layers[0].bias for key in jax.random.split(KEY)]
        assert bool((drawn[0] != drawn[1]).any()) == wanted
