"""Methods: one contract that every method keeps under both presets, and the limits in which methods are the same."""

import dataclasses
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

from ncprior.core.distributions import Bernoulli, Normal
from ncprior.core.input_priors import Gaussian, Uniform
from ncprior.core.methods import TITLES, Method, methods, predict_blend, predict_mixture, predict_normal, title
from ncprior.core.networks import Linear, Network, Noise, PointMean
from ncprior.core.objectives import NLL, Batch, View, Weighted
from ncprior.core.output_priors import OutputPrior
from ncprior.core.prediction import MixturePrediction, Prediction
from ncprior.core.settings import PAPER, PRESETS

KEY = jax.random.key(0)
ROWS, INPUTS, OUTPUTS = 3, 2, 2
SMALL = {name: dataclasses.replace(preset, hidden=(4, 4)) for name, preset in PRESETS.items()}

every_method = pytest.mark.parametrize("name", TITLES)
every_preset = pytest.mark.parametrize("preset", PRESETS)


def array(values):
    return jnp.asarray(np.asarray(values, np.float32))


def method_of(preset, name):
    return methods(SMALL[preset])[name]


@cache
def network_of(preset, name):
    return method_of(preset, name).init(INPUTS, OUTPUTS, key=KEY)


def batch():
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(ROWS, INPUTS)), rng.normal(size=(ROWS, OUTPUTS))
    return Batch(array(inputs), array(targets), jnp.ones(ROWS), jnp.asarray(ROWS))


def loss_of(settings, name, network):
    return methods(settings)[name].loss(network, batch(), key=KEY)


def test_the_methods_of_the_paper_are_there():
    table = methods()
    assert list(table) == list(TITLES) == ["det", "det+ncp", "bbb", "bbb+ncp", "odc+ncp"]
    assert all(method.name == name for name, method in table.items())


def test_titles_name_the_score_that_draws_labels():
    assert title("bbb+ncp") == "BBB+NCP"
    assert title("odc+ncp@ood_probability") == "ODC+NCP, OOD probability labels"


@every_preset
@every_method
@pytest.mark.parametrize("outputs", [1, 2])
def test_everything_has_the_shape_asked_for(preset, name, outputs):
    method = method_of(preset, name)

    def everything(key):
        network = method.init(INPUTS, outputs, key=key)
        inputs, targets = jnp.zeros((ROWS, INPUTS)), jnp.zeros((ROWS, outputs))
        loss, terms = method.loss(network, Batch(inputs, targets, jnp.ones(ROWS), jnp.asarray(ROWS)), key=key)
        prediction = method(network, inputs)
        fields = [prediction.mean, prediction.noise, prediction.uncertainty, prediction.std]
        return eqx.filter(network, eqx.is_array), loss, terms, [*fields, prediction.log_prob(targets)]

    network, loss, terms, fields = jax.eval_shape(everything, KEY)
    assert [layer.kernel.shape for layer in network.trunk.layers] == [(INPUTS, 4), (4, 4)]
    heads = {"mean", "noise", "ood"} if name == "odc+ncp" else {"mean", "noise"}
    assert set(network.heads) == heads
    assert network.heads["noise"].linear.kernel.shape == (4, outputs)
    if name.startswith("bbb"):
        assert network.heads["mean"].mean.shape == network.heads["mean"].rho.shape == (4, outputs)
    else:
        assert network.heads["mean"].linear.kernel.shape == (4, outputs)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(network))
    assert loss.shape == ()
    assert all(term.shape == () for term in terms.values())
    assert all(field.shape == (ROWS, outputs) for field in fields)


@every_preset
@every_method
def test_networks_are_a_function_of_the_key(preset, name):
    keys = (KEY, KEY, jax.random.key(1))
    first, same, other = (method_of(preset, name).init(INPUTS, OUTPUTS, key=key) for key in keys)
    # Of every kernel, but for the std of beliefs, which all begin the same.
    kernels = [
        [leaf for leaf in jax.tree.leaves(eqx.filter(one, eqx.is_array)) if np.std(leaf) > 1e-3]
        for one in (first, same, other)
    ]
    assert len(kernels[0]) >= 4
    for left, middle, right in zip(*kernels, strict=True):
        np.testing.assert_array_equal(left, middle)
        assert not np.any(left == right)


@every_preset
@every_method
def test_loss_is_finite_and_has_the_terms_of_the_objective(preset, name):
    method = method_of(preset, name)
    loss, terms = loss_of(SMALL[preset], name, network_of(preset, name))
    assert list(terms) == list(method.objective)
    assert all(np.isfinite(term) for term in terms.values())
    np.testing.assert_allclose(loss, sum(method.objective[key].weight * terms[key] for key in terms), rtol=1e-5)


@every_preset
@every_method
def test_predictions_have_a_positive_std(preset, name):
    prediction = method_of(preset, name)(network_of(preset, name), batch().inputs)
    mixture = (preset, name) == ("paper", "odc+ncp")
    assert isinstance(prediction, MixturePrediction if mixture else Prediction)
    for field in (prediction.mean, prediction.noise, prediction.uncertainty, prediction.std):
        assert np.isfinite(field).all()
    assert (np.asarray(prediction.noise) > 0).all()
    assert (np.asarray(prediction.std) >= np.asarray(prediction.noise)).all()
    uncertain = np.asarray(prediction.uncertainty) > 0
    assert not uncertain.any() if name.startswith("det") else uncertain.all()


@every_preset
@every_method
def test_acquisition_gives_rows_without_a_label(preset, name):
    method = method_of(preset, name)
    prediction = method(network_of(preset, name), batch().inputs)
    rows = np.asarray(method.acquisition(prediction, np.array([False, True, False]), 2, key=KEY))
    assert rows.shape == (2,)
    assert set(rows.tolist()) <= {0, 2}
    if preset == "paper":
        assert set(rows.tolist()) == {0, 2}
    assert np.isfinite(method.acquisition.logits(prediction)).all()


def shift(inputs, *, key):
    """An input prior of a user, which needs no random numbers."""
    del key
    return inputs + 1


@cache
def slopes(preset, name):
    """The loss and its gradient as a function of the weights in float64, and weights to begin with."""
    method = dataclasses.replace(method_of(preset, name), input_prior=shift)
    params, static = eqx.partition(network_of(preset, name), eqx.is_inexact_array)
    with jax.enable_x64(True):
        flat, unravel = ravel_pytree(jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), params))
        rows = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), batch())

        @jax.jit
        @jax.value_and_grad
        def loss(flat):
            return method.loss(eqx.combine(unravel(flat), static), rows, key=KEY)[0]

    def call(flat):
        with jax.enable_x64(True):
            return jax.device_get(loss(flat))

    return call, np.asarray(flat)


@every_preset
@every_method
def test_gradient_of_the_loss_is_the_limit_of_differences(preset, name):
    function, flat = slopes(preset, name)
    gradient = function(flat)[1]
    assert gradient.dtype == np.float64
    steps = 1e-5 * np.eye(len(flat))
    differences = np.array([function(flat + step)[0] - function(flat - step)[0] for step in steps]) / 2e-5
    np.testing.assert_allclose(gradient, differences, rtol=1e-5, atol=1e-7 * np.abs(gradient).max())


@every_preset
@every_method
def test_steps_against_the_gradient_lower_the_loss(preset, name):
    function, flat = slopes(preset, name)
    losses, norms = [], []
    for _ in range(5):
        loss, gradient = function(flat)
        losses.append(loss)
        norms.append(np.linalg.norm(gradient))
        flat = flat - 0.01 * gradient / norms[-1]
    assert (np.diff(losses) < 0).all()
    # A step of this length promises 0.01 |gradient|.
    assert losses[0] - losses[1] == pytest.approx(0.01 * norms[0], rel=0.2)


@pytest.mark.parametrize("kind", ["gaussian", "uniform"])
def test_input_prior_is_the_one_asked_for(kind):
    settings = dataclasses.replace(PAPER, input_noise=kind, input_noise_std=0.3)
    for name, method in methods(settings).items():
        if name.endswith("+ncp"):
            assert isinstance(method.input_prior, Gaussian if kind == "gaussian" else Uniform)
            assert method.input_prior.std == 0.3
        else:
            assert method.input_prior is None


@pytest.mark.parametrize("kind", ["gaussian", "uniform"])
@pytest.mark.parametrize("name", ["det+ncp", "bbb+ncp", "odc+ncp"])
def test_without_input_noise_the_noised_rows_are_the_clean_ones(kind, name):
    settings = dataclasses.replace(SMALL["paper"], input_noise=kind, input_noise_std=0.0)
    view = View.of(network_of("paper", name), batch(), methods(settings)[name].input_prior, key=KEY)
    for clean, noised in zip(jax.tree.leaves(view.clean), jax.tree.leaves(view.noised), strict=True):
        np.testing.assert_array_equal(clean, noised)


def test_small_input_noise_is_close_to_none():
    # The NCP term of BBB+NCP goes to that of the clean rows, in proportion to the noise.
    network = network_of("paper", "bbb+ncp")
    terms = {
        std: float(loss_of(dataclasses.replace(SMALL["paper"], input_noise_std=std), "bbb+ncp", network)[1]["ncp"])
        for std in (0.0, 1e-3, 1e-2)
    }
    near, far = abs(terms[1e-3] - terms[0.0]), abs(terms[1e-2] - terms[0.0])
    assert 0 < near < 0.2 * far
    assert near < 0.01 * terms[0.0]


@every_preset
@pytest.mark.parametrize(("name", "plain"), [("bbb+ncp", "bbb"), ("det+ncp", "det")])
def test_ncp_of_weight_zero_is_the_plain_method(preset, name, plain):
    settings = dataclasses.replace(SMALL[preset], gamma=0.0, weight_kl=0.0)
    network = network_of(preset, plain)
    with_ncp, terms = loss_of(settings, name, network)
    without, plain_terms = loss_of(settings, plain, network)
    np.testing.assert_allclose(with_ncp, without, rtol=1e-6)
    np.testing.assert_allclose(with_ncp, plain_terms["nll"], rtol=1e-6)
    assert float(terms["ncp"]) > 0


def test_both_priors_can_be_combined():
    settings = dataclasses.replace(SMALL["paper"], gamma=0.0, ncp_weight_kl=1.0)
    network = network_of("paper", "bbb")
    np.testing.assert_allclose(
        loss_of(settings, "bbb+ncp", network)[0], loss_of(settings, "bbb", network)[0], rtol=1e-6
    )


@every_preset
def test_a_belief_without_spread_is_a_point_estimate(preset):
    bayes = network_of(preset, "bbb")
    head = bayes.heads["mean"]
    certain = eqx.tree_at(lambda head: head.rho, head, jnp.full_like(head.rho, -40.0))
    if head.bias_rho is not None:
        certain = eqx.tree_at(lambda head: head.bias_rho, certain, jnp.full_like(head.bias_rho, -40.0))
    point = PointMean(Linear(head.mean, head.bias))
    losses = [
        loss_of(SMALL[preset], name, Network(bayes.trunk, {**bayes.heads, "mean": mean}))[1]["nll"]
        for name, mean in (("bbb", certain), ("det", point))
    ]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_bayesian_methods_begin_with_the_same_network():
    one, two = (jax.tree.leaves(network_of("paper", name)) for name in ("bbb", "bbb+ncp"))
    assert all(np.array_equal(left, right) for left, right in zip(one, two, strict=True) if hasattr(left, "shape"))


SAYS = {"mean": Normal(array([0.5, -1.0]), array([0.3, 0.2])), "noise": array([0.4, 2.0])}


def test_normal_prediction_keeps_noise_and_uncertainty_apart():
    found = predict_normal(SAYS)
    np.testing.assert_array_equal(found.mean, SAYS["mean"].mean)
    np.testing.assert_array_equal(found.noise, SAYS["noise"])
    np.testing.assert_array_equal(found.uncertainty, SAYS["mean"].std)


@pytest.mark.parametrize(
    ("centre", "means"), [("target", [0.5, -1.0]), ("prediction", [0.5, -1.0]), (0.25, [0.25, 0.25])]
)
def test_mixture_is_the_network_inside_and_the_output_prior_outside(centre, means):
    y = np.array([0.1, 0.7])
    network = stats.norm([0.5, -1.0], np.hypot([0.3, 0.2], [0.4, 2.0]))
    prior = stats.norm(means, 3.0)
    for logit in (-30.0, -1.0, 0.0, 30.0):
        pi = 1 / (1 + np.exp(-logit))
        outputs = SAYS | {"ood": Bernoulli(jnp.full(2, logit))}
        found = predict_mixture(outputs, OutputPrior(3.0, centre))
        expected = np.log((1 - pi) * network.pdf(y) + pi * prior.pdf(y))
        np.testing.assert_allclose(found.log_prob(array(y)), expected, rtol=1e-4)
        np.testing.assert_allclose(found.weights.sum(-1), [1.0, 1.0], rtol=1e-6)


def test_mixture_keeps_both_tiny_probabilities():
    for logit in (-60.0, 60.0):
        found = predict_mixture(SAYS | {"ood": Bernoulli(jnp.full(2, logit))}, OutputPrior())
        smaller = 1 if logit < 0 else 0
        np.testing.assert_allclose(found.weights[:, smaller], np.full(2, np.exp(-60)), rtol=1e-4)


@pytest.mark.parametrize(("logit", "noise", "uncertainty"), [(-40.0, [0.4, 2.0], 0.0), (40.0, [0.1, 0.1], 1.0)])
def test_blend_fades_from_the_network_into_a_tenth(logit, noise, uncertainty):
    found = predict_blend(SAYS | {"ood": Bernoulli(jnp.full(2, logit))})
    np.testing.assert_allclose(found.noise, noise, rtol=1e-6)
    np.testing.assert_allclose(found.uncertainty, np.full(2, uncertainty), atol=1e-6)
    np.testing.assert_array_equal(found.mean, SAYS["mean"].mean)


def test_a_users_own_method_is_as_good_as_any():
    def init(inputs, outputs, *, key):
        heads = {"mean": PointMean.init(inputs, outputs, key=key), "noise": Noise.init(inputs, outputs, key=key)}
        return Network(lambda x: x, heads)

    def consistency(view):
        return ((view.clean["mean"].mean - view.noised["mean"].mean) ** 2).sum(-1)

    objective = {"nll": Weighted(1.0, NLL()), "consistency": Weighted(0.5, consistency)}
    method = Method("mine", init, objective, predict_normal, input_prior=shift)
    network = method.init(INPUTS, OUTPUTS, key=KEY)
    loss, terms = method.loss(network, batch(), key=KEY)
    # A linear mean moves by the sum of its kernel when every input moves by 1.
    expected = np.sum(np.sum(network.heads["mean"].linear.kernel, axis=0) ** 2)
    np.testing.assert_allclose(terms["consistency"], expected, rtol=1e-4)
    np.testing.assert_allclose(loss, terms["nll"] + 0.5 * terms["consistency"], rtol=1e-6)
    assert method(network, batch().inputs).mean.shape == (ROWS, OUTPUTS)
