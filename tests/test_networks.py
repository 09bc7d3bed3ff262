"""Networks: initial values, layers worked out by hand, and the belief over the output layer against samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ncprior.core.distributions import Bernoulli, Normal
from ncprior.core.networks import (
    GELU,
    MLP,
    BayesianMean,
    LeakyReLU,
    Linear,
    Network,
    Noise,
    Ood,
    PointMean,
    glorot_uniform,
    transposed_kernels,
    with_transposed_layers,
)

KEY = jax.random.key(0)
FEATURES = jnp.array([0.5, -2.0, 0.0, 1.5])


def softplus(x):
    return np.logaddexp(0.0, np.float64(x))


def belief(bias_belief):
    """A belief of four features and two outputs with numbers of its own for every weight."""
    rng = np.random.default_rng(0)
    return BayesianMean(
        jnp.asarray(rng.normal(size=(4, 2)), jnp.float32),
        jnp.asarray(rng.uniform(-3, 1, size=(4, 2)), jnp.float32),
        jnp.array([0.3, -0.7]),
        jnp.array([-1.0, 0.5]) if bias_belief else None,
    )


@pytest.mark.parametrize(("inputs", "outputs"), [(1, 200), (200, 200), (200, 1)])
def test_glorot_kernels_are_uniform_within_their_limit(inputs, outputs):
    limit = np.sqrt(6 / (inputs + outputs))
    kernel = np.asarray(glorot_uniform(inputs, outputs, key=KEY))
    assert kernel.shape == (inputs, outputs)
    assert np.abs(kernel).max() <= limit
    assert stats.kstest(kernel.ravel(), stats.uniform(-limit, 2 * limit).cdf).pvalue > 0.01


def test_linear_by_hand():
    layer = Linear(jnp.array([[1.0, 2.0], [3.0, -1.0]]), jnp.array([0.5, -0.5]))
    np.testing.assert_allclose(layer(jnp.array([2.0, -1.0])), [2 - 3 + 0.5, 4 + 1 - 0.5])


def test_gelu_by_hand():
    trunk = MLP((Linear(jnp.eye(2), jnp.zeros(2)),), GELU())
    x = np.array([0.7, -1.3])
    np.testing.assert_allclose(trunk(jnp.asarray(x)), x * stats.norm.cdf(x), atol=1e-3)


def test_linear_begins_with_a_bias_of_zero():
    np.testing.assert_array_equal(Linear.init(4, 2, key=KEY).bias, np.zeros(2))


@pytest.mark.parametrize("slope", [0.01, 0.2])
def test_trunk_by_hand(slope):
    first = Linear(jnp.array([[1.0, -1.0]]), jnp.array([0.5, 0.5]))
    second = Linear(jnp.array([[1.0], [10.0]]), jnp.array([-1.0]))
    # At 2 the first layer gives 2.5 and -1.5, which leaks through as -1.5 slope; the second leaks too, if below 0.
    inner = 2.5 + 10 * slope * -1.5 - 1
    expected = inner if inner > 0 else slope * inner
    np.testing.assert_allclose(MLP((first, second), LeakyReLU(slope))(jnp.array([2.0])), [expected], rtol=1e-5)


def test_trunk_has_layers_of_the_sizes_asked_for():
    trunk = MLP.init(2, (4, 4, 4), activation=LeakyReLU(0.1), key=KEY)
    assert [layer.kernel.shape for layer in trunk.layers] == [(2, 4), (4, 4), (4, 4)]
    assert trunk.activation == LeakyReLU(0.1)
    assert not np.any(trunk.layers[1].kernel == trunk.layers[2].kernel)


def test_trunk_without_layers_gives_the_inputs():
    np.testing.assert_array_equal(MLP.init(4, (), key=KEY)(FEATURES), FEATURES)


def test_point_mean_is_a_belief_without_spread():
    head = PointMean.init(4, 2, key=KEY)
    found = head(FEATURES)
    np.testing.assert_array_equal(found.mean, head.linear(FEATURES))
    np.testing.assert_array_equal(found.std, np.zeros(2))
    assert head.sample(key=KEY) is head


@pytest.mark.parametrize("bias_belief", [False, True])
def test_belief_over_the_mean_by_hand(bias_belief):
    head = belief(bias_belief)
    found = head(FEATURES)
    features = np.float64(FEATURES)
    variance = features**2 @ softplus(head.rho) ** 2
    if bias_belief:
        variance = variance + softplus(head.bias_rho) ** 2
    np.testing.assert_allclose(found.mean, features @ np.float64(head.mean) + np.float64(head.bias), rtol=1e-5)
    np.testing.assert_allclose(found.std, np.sqrt(variance), rtol=1e-5)


@pytest.fixture(scope="module")
def samples():
    """The means that many layers drawn from the belief give, without and with a belief over the bias."""
    keys = jax.random.split(KEY, 20_000)
    heads = belief(False), belief(True)
    return np.asarray(jax.jit(jax.vmap(lambda key: [h.sample(key=key)(FEATURES).mean for h in heads]))(keys))


@pytest.mark.parametrize("bias_belief", [False, True])
def test_belief_over_the_mean_is_that_of_sampled_layers(samples, bias_belief):
    drawn = samples[int(bias_belief)]
    expected = belief(bias_belief)(FEATURES)
    error = np.asarray(expected.std) / np.sqrt(len(drawn))
    assert (np.abs(drawn.mean(0) - expected.mean) < 4 * error).all()
    # The relative standard error of a normal's std is 1 / sqrt(2 n).
    np.testing.assert_allclose(drawn.std(0), expected.std, rtol=4 / np.sqrt(2 * len(drawn)))
    standard = (drawn - np.asarray(expected.mean)) / np.asarray(expected.std)
    assert all(stats.kstest(output, stats.norm.cdf).pvalue > 0.01 for output in standard.T)


def test_a_sampled_layer_is_the_same_for_every_row():
    layer = belief(True).sample(key=KEY)
    origin, once, twice = (layer(scale * FEATURES).mean for scale in (0.0, 1.0, 2.0))
    np.testing.assert_allclose(twice - once, once - origin, rtol=1e-4)
    np.testing.assert_array_equal(origin, layer.linear.bias)


def test_a_bias_without_belief_is_not_sampled():
    np.testing.assert_array_equal(belief(False).sample(key=KEY).linear.bias, belief(False).bias)
    assert not np.array_equal(belief(True).sample(key=KEY).linear.bias, belief(True).bias)


@pytest.mark.parametrize("bias_belief", [False, True])
def test_belief_begins_with_its_std(bias_belief):
    head = BayesianMean.init(200, 1, std=0.1, bias_belief=bias_belief, key=KEY)
    np.testing.assert_allclose(softplus(head.rho), np.full((200, 1), 0.1), rtol=1e-5)
    assert stats.kstest(np.asarray(head.mean).ravel(), stats.norm(0, 0.1).cdf).pvalue > 0.01
    np.testing.assert_array_equal(head.bias, np.zeros(1))
    if bias_belief:
        np.testing.assert_allclose(softplus(head.bias_rho), np.full(1, 0.1), rtol=1e-5)
    else:
        assert head.bias_rho is None


@pytest.mark.parametrize("bias_belief", [False, True])
def test_weight_kl_is_the_sum_over_the_weights(bias_belief):
    head = belief(bias_belief)
    groups = [(head.mean, head.rho)] + ([(head.bias, head.bias_rho)] if bias_belief else [])
    expected = 0.0
    for mean, rho in groups:
        std = softplus(rho)
        expected += np.sum(np.log(0.3 / std) + (std**2 + np.float64(mean) ** 2) / (2 * 0.3**2) - 0.5)
    np.testing.assert_allclose(head.kl(0.3), expected, rtol=1e-5)


def test_weight_kl_of_the_prior_itself_is_zero():
    rho = np.log(np.expm1(0.3))
    head = BayesianMean(jnp.zeros((4, 2)), jnp.full((4, 2), rho), jnp.zeros(2), jnp.full(2, rho))
    assert float(head.kl(0.3)) == pytest.approx(0.0, abs=1e-6)
    assert float(head.kl(0.4)) > 0.1


def test_weights_are_the_beliefs_over_kernel_and_bias():
    kernel, bias = belief(True).weights()
    np.testing.assert_array_equal(kernel.mean, belief(True).mean)
    np.testing.assert_allclose(kernel.std, softplus(belief(True).rho), rtol=1e-5)
    np.testing.assert_array_equal(bias.mean, belief(True).bias)
    np.testing.assert_allclose(bias.std, softplus(belief(True).bias_rho), rtol=1e-5)
    assert len(belief(False).weights()) == 1


def test_zero_features_have_a_gradient():
    def std(head, features):
        return head(features).std.sum()

    slopes = jax.grad(std, argnums=(0, 1))(belief(False), jnp.zeros(4))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))
    assert (np.asarray(belief(False)(jnp.zeros(4)).std) > 0).all()


@pytest.mark.parametrize("logit", [-1e4, -30.0, 0.0, 2.0, 1e4])
def test_noise_is_softplus_above_its_floor(logit):
    head = Noise(Linear(jnp.ones((4, 1)), jnp.array([logit])), 1e-6)
    found = head(jnp.zeros(4))
    np.testing.assert_allclose(found, [softplus(logit) + 1e-6], rtol=1e-5)
    assert float(found[0]) > 0


def test_ood_head_gives_the_logit():
    head = Ood.init(4, 2, key=KEY)
    found = head(FEATURES)
    assert isinstance(found, Bernoulli)
    np.testing.assert_array_equal(found.logit, head.linear(FEATURES))


def test_network_reads_every_head_from_the_same_features():
    trunk = MLP.init(2, (4,), key=KEY)
    heads = {"mean": belief(True), "noise": Noise.init(4, 2, key=KEY), "double": lambda features: 2 * features}
    network = Network(trunk, heads)
    x = jnp.array([0.1, -0.2])
    features = trunk(x)
    found = network(x)
    assert set(found) == {"mean", "noise", "double"}
    assert isinstance(found["mean"], Normal)
    np.testing.assert_array_equal(found["mean"].mean, heads["mean"](features).mean)
    np.testing.assert_array_equal(found["noise"], heads["noise"](features))
    np.testing.assert_array_equal(found["double"], 2 * features)


def test_any_function_can_be_the_trunk():
    network = Network(lambda x: jnp.concatenate([x, x**2]), {"mean": PointMean(Linear(jnp.eye(4), jnp.zeros(4)))})
    np.testing.assert_allclose(network(jnp.array([2.0, -3.0]))["mean"].mean, [2, -3, 4, 9])


def test_many_rows_are_predicted_as_each_of_them():
    heads = {
        "mean": belief(True),
        "point": PointMean.init(4, 2, key=KEY),
        "noise": Noise.init(4, 2, key=KEY),
        "ood": Ood.init(4, 2, key=KEY),
    }
    network = Network(MLP.init(2, (4, 4), key=KEY), heads)
    rows = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2)), jnp.float32)
    found, expected = network.predict(rows), jax.vmap(network)(rows)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for leaf, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert leaf.shape == other.shape
        np.testing.assert_allclose(leaf, other, rtol=1e-4, atol=1e-5)


def test_transposed_kernels_give_the_same():
    """Also for the first inputs alone, for one row, and with several networks on a leading axis."""
    network = Network(MLP.init(5, (7, 4), key=KEY), {"mean": PointMean.init(4, 2, key=KEY)})
    rows = jnp.asarray(np.random.default_rng(0).normal(size=(3, 5)), jnp.float32)
    turned = transposed_kernels(network)
    assert [layer.kernel.shape for layer in turned.trunk.layers] == [(7, 5), (4, 7)]
    read = with_transposed_layers(turned)
    np.testing.assert_allclose(read.predict(rows)["mean"].mean, network.predict(rows)["mean"].mean, rtol=1e-5)
    np.testing.assert_allclose(read(rows[0])["mean"].mean, network(rows[0])["mean"].mean, rtol=1e-5)
    few = [whole.trunk.first_inputs_only(2)(rows[0, :2]) for whole in (read, network)]
    np.testing.assert_allclose(*few, rtol=1e-5)
    two = transposed_kernels(jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), network))
    np.testing.assert_array_equal(two.trunk.layers[0].kernel[1], 2 * network.trunk.layers[0].kernel.T)


@pytest.mark.parametrize(
    "head",
    [
        lambda features: features[:2],
        lambda features: features.sum(),
        lambda features: jnp.outer(features, features[:2]),
    ],
    ids=["vector", "scalar", "matrix"],
)
def test_many_rows_of_a_users_own_head_are_predicted_as_each_of_them(head):
    network = Network(lambda x: jnp.concatenate([x, x**2]), {"mine": head})
    rows = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2)), jnp.float32)
    expected = jax.vmap(network)(rows)["mine"]
    found = network.predict(rows)["mine"]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5)
