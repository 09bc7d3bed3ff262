"""The losses for PyTorch have the terms and gradients of the JAX code, with weights copied both ways."""

import dataclasses
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

from ncprior.core import output_priors, table_priors
from ncprior.core.methods import methods
from ncprior.core.networks import MLP, BayesianMean, LeakyReLU, Linear, Network, Noise, Ood, PointMean
from ncprior.core.objectives import Batch
from ncprior.core.settings import Settings
from ncprior.torch import BayesianLinear, NCPLoss, NoisedShare, OODLoss, OutputPrior, Prediction

ROWS, INPUTS, OUTPUTS, LABELS = 12, 3, 2, 40
HIDDEN, SLOPE, FLOOR = (8, 6), 0.2, 0.01
rng = np.random.default_rng(0)
X, Y = rng.normal(size=(ROWS, INPUTS)).astype(np.float32), rng.normal(size=(ROWS, OUTPUTS)).astype(np.float32)
NOISE = rng.normal(size=X.shape).astype(np.float32)
WEIGHTS = np.float32([1, 2, 0.5, 0, 1, 1, 0, 3, 1, 1, 1, 0.1])
SETTINGS = Settings(hidden=HIDDEN, leaky_slope=SLOPE, noise_floor=FLOOR, belief_std=0.5, output_std=0.7, gamma=1.3)


class Net(nn.Module):
    """The network of the paper's methods in PyTorch."""

    def __init__(self, kind):
        super().__init__()
        sizes = (INPUTS, *HIDDEN)
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        belief = kind.startswith("bbb")
        self.mean = BayesianLinear(HIDDEN[-1], OUTPUTS) if belief else nn.Linear(HIDDEN[-1], OUTPUTS)
        self.noise = nn.Linear(HIDDEN[-1], OUTPUTS)
        self.ood = nn.Linear(HIDDEN[-1], OUTPUTS) if kind.startswith("odc") else None

    def forward(self, x):
        for layer in self.hidden:
            x = nn.functional.leaky_relu(layer(x), SLOPE)
        noise = nn.functional.softplus(self.noise(x)) + FLOOR
        mean, uncertainty = self.mean(x) if isinstance(self.mean, BayesianLinear) else (self.mean(x), None)
        return Prediction(mean, noise, uncertainty, None if self.ood is None else self.ood(x))


def pairs(net, network):
    """Every parameter of the one, and that of the other with its gradient's transpose."""
    for layer, other in zip(net.hidden, network.trunk.layers, strict=True):
        yield layer.weight, other.kernel
        yield layer.bias, other.bias
    yield net.noise.weight, network.heads["noise"].linear.kernel
    yield net.noise.bias, network.heads["noise"].linear.bias
    mean = network.heads["mean"]
    if isinstance(mean, BayesianMean):
        yield from [(net.mean.weight, mean.mean), (net.mean.rho, mean.rho)]
        yield from [(net.mean.bias, mean.bias), (net.mean.bias_rho, mean.bias_rho)]
    else:
        yield from [(net.mean.weight, mean.linear.kernel), (net.mean.bias, mean.linear.bias)]
    if net.ood is not None:
        yield from [
            (net.ood.weight, network.heads["ood"].linear.kernel),
            (net.ood.bias, network.heads["ood"].linear.bias),
        ]


def to_torch(network, kind):
    """The PyTorch network with the weights of the JAX one."""
    net = Net(kind)
    with torch.no_grad():
        for parameter, array in pairs(net, network):
            parameter.copy_(
                torch.from_numpy(np.array(array)).T if parameter.ndim == 2 else torch.from_numpy(np.array(array))
            )
    return net


def to_jax(net):
    """The JAX network with the weights of the PyTorch one."""

    def array(parameter):
        return jnp.asarray(parameter.detach().numpy().T)

    def linear(layer):
        return Linear(array(layer.weight), array(layer.bias))

    heads = {"noise": Noise(linear(net.noise), FLOOR)}
    if isinstance(net.mean, BayesianLinear):
        heads["mean"] = BayesianMean(
            *(array(part) for part in (net.mean.weight, net.mean.rho, net.mean.bias, net.mean.bias_rho))
        )
    else:
        heads["mean"] = PointMean(linear(net.mean))
    if net.ood is not None:
        heads["ood"] = Ood(linear(net.ood))
    return Network(MLP(tuple(linear(layer) for layer in net.hidden), LeakyReLU(SLOPE)), heads)


def same_noise(inputs, **_):
    return inputs + NOISE[: len(inputs)] if isinstance(inputs, jax.Array) else inputs + torch.from_numpy(NOISE)


# What differs from the defaults: as settings of the JAX side, and as arguments of the loss.
BELIEF = {
    "forward": ({}, {}),
    "reverse": ({"direction": "reverse"}, {"direction": "reverse"}),
    "prediction": ({"output_centre": "prediction"}, {"centre": "prediction"}),
    "prediction_reverse": (
        {"output_centre": "prediction", "direction": "reverse"},
        {"centre": "prediction", "direction": "reverse"},
    ),
    "constant": ({"output_centre": 0.4}, {"centre": 0.4}),
    "away": ({"ncp_away": True}, {"away": True}),
    "tie": ({"noise_tie": 2.0}, {"noise_tie": 2.0}),
    "tie_away": ({"noise_tie": 2.0, "ncp_away": True}, {"noise_tie": 2.0, "away": True}),
    "noise_prior": ({"noise_prior_std": 0.3}, {"noise_prior_std": 0.3}),
    "weight_kl": ({"ncp_weight_kl": 0.8, "weight_prior_std": 0.2}, {"weight_kl": 0.8, "weight_prior_std": 0.2}),
    "fading": (
        {"gamma_per_label": True, "noise_tie": 2.0},
        {"gamma": lambda n: 1.3 / n, "noise_tie": lambda n: 2.0 / n},
    ),
}
POINT = {name: BELIEF[name] for name in ("forward", "reverse", "prediction", "constant", "away")}
CLASSIFIER = {"classifier": ({}, {}), "noised_nll": ({"odc_noised_nll": True}, {"noised_nll": True})}
CASES = {
    **{f"bbb-{name}": ("bbb+ncp", *case, None) for name, case in BELIEF.items()},
    **{f"bbb-{name}-weighted": ("bbb+ncp", *BELIEF[name], WEIGHTS) for name in ("forward", "tie_away")},
    **{f"det-{name}": ("det+ncp", *case, None) for name, case in POINT.items()},
    **{f"odc-{name}": ("odc+ncp", *case, None) for name, case in CLASSIFIER.items()},
    "odc-weighted": ("odc+ncp", *CLASSIFIER["noised_nll"], WEIGHTS),
}


def weighted_terms(method, network, batch):
    """Every term times its weight, and the gradient of each, in JAX."""
    params, static = eqx.partition(network, eqx.is_array)

    def terms(params):
        _, found = method.loss(eqx.combine(params, static), batch, key=jax.random.key(0))
        return {name: jnp.asarray(method.objective[name].weight) * value for name, value in found.items()}

    return terms(params), jax.jacrev(terms)(params)


@pytest.mark.parametrize("case", CASES)
def test_every_term_and_gradient_is_that_of_the_jax_code(case):
    kind, settings, options, weights = CASES[case]
    method = methods(dataclasses.replace(SETTINGS, **settings))[kind]
    method = dataclasses.replace(method, input_prior=same_noise)
    network = method.init(INPUTS, OUTPUTS, key=jax.random.key(1))
    net = to_torch(network, kind)
    network = to_jax(net)  # and back
    if kind == "odc+ncp":
        loss = OODLoss(same_noise, output_std=0.7, **options)
    else:
        loss = NCPLoss(same_noise, output_std=0.7, **{"gamma": 1.3, "rows": LABELS} | options)

    ones = np.ones(ROWS, np.float32) if weights is None else weights
    batch = Batch(jnp.asarray(X), jnp.asarray(Y), jnp.asarray(ones), jnp.asarray(LABELS))
    expected, slopes = weighted_terms(method, network, batch)
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    given = None if weights is None else torch.from_numpy(weights)
    found = {name: loss.term_weights()[name] * value for name, value in loss.terms(net, x, y, weights=given).items()}

    assert found.keys() == expected.keys() == loss.term_weights().keys()
    for name, value in found.items():
        assert value.item() == pytest.approx(float(expected[name]), rel=1e-5, abs=1e-5), name
        gradients = torch.autograd.grad(value, list(net.parameters()), allow_unused=True, retain_graph=True)
        of = dict(zip(map(id, net.parameters()), gradients, strict=True))
        for parameter, other in pairs(net, slopes[name]):
            mine = torch.zeros_like(parameter) if of[id(parameter)] is None else of[id(parameter)]
            np.testing.assert_allclose(mine.numpy().T, other, rtol=1e-5, atol=1e-5, err_msg=name)
    total = loss(net, x, y, weights=given)
    assert total.item() == pytest.approx(float(sum(expected.values())), rel=1e-5)


@pytest.mark.parametrize("centre", ["target", "prediction", 0.3])
@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_the_divergence_of_samples_is_that_of_the_jax_code(direction, centre):
    samples = (1 + 0.5 * rng.normal(size=(9, 4, 2))).astype(np.float32)
    targets = rng.normal(size=(4, 2)).astype(np.float32)
    drawn = torch.from_numpy(samples).requires_grad_()
    found = OutputPrior(0.7, centre, direction).estimated_divergence(torch.from_numpy(targets), drawn)
    prior = output_priors.OutputPrior(0.7, centre, direction)
    expected, back = jax.vjp(lambda s: prior.estimated_divergence(jnp.asarray(targets), s), jnp.asarray(samples))
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-5, atol=1e-5)
    found.sum().backward()
    np.testing.assert_allclose(drawn.grad.numpy(), back(jnp.ones_like(expected))[0], rtol=1e-5, atol=1e-5)


def test_a_belief_over_a_layer_is_that_of_the_jax_code():
    layer = BayesianLinear(5, 2, std=0.3)
    with torch.no_grad():
        layer.rho += torch.randn(2, 5, generator=torch.Generator().manual_seed(0))
    arrays = [jnp.asarray(part.detach().numpy().T) for part in (layer.weight, layer.rho, layer.bias, layer.bias_rho)]
    head, features = BayesianMean(*arrays), rng.normal(size=(7, 5)).astype(np.float32)
    belief, expected = layer(torch.from_numpy(features)), jax.vmap(head)(jnp.asarray(features))
    np.testing.assert_allclose(belief.mean.detach().numpy(), expected.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(belief.std.detach().numpy(), expected.std, rtol=1e-5)
    assert layer.kl(0.2).item() == pytest.approx(float(head.kl(0.2)), rel=1e-5)
    deviations = layer.deviations(torch.from_numpy(features)).detach().numpy()
    np.testing.assert_allclose(deviations, jax.vmap(head.deviations)(jnp.asarray(features)), rtol=1e-5)


def test_a_share_of_noised_rows_is_that_of_the_jax_code():
    method = dataclasses.replace(methods(SETTINGS)["bbb+ncp"], input_prior=table_priors.NoisedShare(same_noise, 0.5))
    network = method.init(INPUTS, OUTPUTS, key=jax.random.key(1))
    batch = Batch(jnp.asarray(X), jnp.asarray(Y), jnp.ones(ROWS), jnp.asarray(LABELS))
    _, expected = method.loss(network, batch, key=jax.random.key(0))
    half = NoisedShare(lambda x: x + torch.from_numpy(NOISE)[: len(x)], 0.5)
    found = NCPLoss(half, output_std=0.7).terms(to_torch(network, "bbb+ncp"), torch.from_numpy(X), torch.from_numpy(Y))
    for name, value in found.items():
        assert value.item() == pytest.approx(float(expected[name]), rel=1e-5), name
