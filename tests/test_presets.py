"""Presets: what each setting changes and what it leaves alone, and the losses of both presets by hand."""

import dataclasses
from fnmatch import fnmatch

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ncprior.core.active import Schedule
from ncprior.core.methods import activation_of, methods
from ncprior.core.metrics import nlpd
from ncprior.core.networks import MLP, BayesianMean, LeakyReLU, Linear, Network, Noise, Ood, PointMean
from ncprior.core.objectives import Batch
from ncprior.core.prediction import Prediction
from ncprior.core.settings import DIFFERENCES, FLIGHTS_PRESETS, PAPER, PRESETS, REFERENCE, Settings
from ncprior.errors import UserError
from ncprior.experiments.paper.flights import SCHEDULE as FLIGHTS_SCHEDULE
from ncprior.experiments.paper.learning_curves import Config

KEY = jax.random.key(0)
NAMES = ["det", "det+ncp", "bbb", "bbb+ncp", "odc+ncp"]
FIELDS = [field.name for field in dataclasses.fields(Settings)]


def array(values):
    return jnp.asarray(np.asarray(values, np.float32))


def softplus(x):
    return np.logaddexp(0.0, x)


def kl(mean_p, std_p, mean_q, std_q):
    return np.log(std_q / std_p) + (std_p**2 + (mean_p - mean_q) ** 2) / (2 * std_q**2) - 0.5


def test_presets_differ_in_what_differences_names():
    differing = {name for name in FIELDS if getattr(PAPER, name) != getattr(REFERENCE, name)}
    assert differing == set(DIFFERENCES)
    assert all(paper and reference for paper, reference in DIFFERENCES.values())


def test_presets_by_name():
    assert PRESETS == {"paper": PAPER, "reference": REFERENCE}
    assert Settings() == PAPER


def test_a_prediction_that_is_too_certain_is_scored_as_it_is():
    """See `NOT_FOLLOWED`: 1e-8 added to the variance would make it 5e7."""
    prediction = Prediction(array([[0.0]]), array([[1e-6]]), array([[0.0]]))
    assert float(nlpd(prediction, array([[1.0]]))) == pytest.approx(5e11, rel=1e-3)


@pytest.mark.parametrize(
    ("experiment", "every", "last", "labels"), [("toy", 1000, 50_000, 59), ("flights", 50, 2000, 400)]
)
def test_labels_are_drawn_and_runs_end_as_docs_say(experiment, every, last, labels):
    """See `NOT_FOLLOWED`."""
    schedule = {"toy": Schedule(), "flights": FLIGHTS_SCHEDULE}[experiment]
    assert schedule.ends_round(every)
    assert not schedule.ends_round(every + 1)
    assert (schedule.epochs, schedule.epochs % schedule.evaluate_every, schedule.labels) == (last, 0, labels)


def test_paper_by_the_text():
    # Section 5.1 and Equations 5, 7 and 9; Normal(0, 0.5) is read as a variance.
    assert (PAPER.hidden, PAPER.batch_size, PAPER.learning_rate) == ((200, 200), 10, 3e-4)
    assert PAPER.input_noise_std**2 == pytest.approx(0.5)
    assert (PAPER.temperature, PAPER.direction, PAPER.output_centre) == (0.5, "forward", "target")
    assert PAPER.noise_prior_std is PAPER.clip is None


def test_reference_by_the_released_code():
    expected = {
        "hidden": (200, 200),
        "learning_rate": 3e-4,
        "batch_size": 10,
        "leaky_slope": 0.2,
        "activation": "leaky_relu",
        "noise_floor": 1e-6,
        "belief_std": 0.1,
        "bias_belief": False,
        "expectation": "sampled",
        "weight_prior_std": 0.1,
        "weight_kl": 0.1,
        "ncp_weight_kl": 0.0,
        "input_noise": "gaussian",
        "input_noise_std": 0.5,
        "gamma": 0.1,
        "gamma_per_label": False,
        "ncp_away": False,
        "noise_tie": 0.0,
        "output_std": 1.0,
        "output_centre": "target",
        "direction": "forward",
        "noise_prior_std": 0.1,
        "odc_noised_nll": True,
        "odc_prediction": "blend",
        "gain_exponent": 1.0,
        "det_score": "predictive_std",
        "temperature": 0.5,
        "draw": "with_replacement",
        "clip": 100.0,
        "epsilon_hat": True,
        "remainder": "dropped",
    }
    assert dataclasses.asdict(REFERENCE) == expected


def test_flights_presets_differ_from_those_of_the_toy_data_in_what_the_paper_and_the_code_say():
    # Section 5.2: two layers of 50 units, learning rate 1e-4, Normal(0, 0.1).
    network = {"hidden": (50, 50), "learning_rate": 1e-4}
    expected = {
        "paper": network | {"input_noise_std": pytest.approx(0.1**0.5)},
        "reference": network | {"input_noise_std": 0.1, "weight_kl": 1.0, "noise_prior_std": None},
    }
    for preset, toy in PRESETS.items():
        flights = FLIGHTS_PRESETS[preset]
        changed = {name: getattr(flights, name) for name in FIELDS if getattr(flights, name) != getattr(toy, name)}
        assert changed == expected[preset]


@pytest.mark.parametrize(
    ("setting", "smallest"),
    [
        ("learning_rate", 1e-9),
        ("batch_size", 1),
        ("belief_std", 1e-9),
        ("weight_prior_std", 1e-9),
        ("output_std", 1e-9),
        ("temperature", 1e-9),
        ("noise_prior_std", 1e-9),
        ("clip", 1e-9),
        ("noise_floor", 0.0),
        ("weight_kl", 0.0),
        ("ncp_weight_kl", 0.0),
        ("input_noise_std", 0.0),
        ("gamma", 0.0),
    ],
)
def test_a_number_below_its_bound_is_refused(setting, smallest):
    assert getattr(Settings(**{setting: smallest}), setting) == smallest
    below = 0 if smallest else -1e-9
    for value in (below, -1, float("nan")):
        with pytest.raises(UserError, match=f"{setting} must .* got {value}"):
            Settings(**{setting: value})


@pytest.mark.parametrize("hidden", [(), (0,), (50, -1)])
def test_layers_without_units_are_refused(hidden):
    with pytest.raises(UserError, match="hidden"):
        Settings(hidden=hidden)


@pytest.mark.parametrize(
    "setting", ["expectation", "input_noise", "output_centre", "direction", "odc_prediction", "det_score", "draw"]
)
def test_an_unknown_word_is_refused(setting):
    # Otherwise a slip of the pen is another method, and nothing says so.
    with pytest.raises((UserError, ValueError, KeyError), match="something_else"):
        methods(Settings(**{setting: "something_else"}))


def test_settings_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PAPER.gamma = 0.5


# Every setting, another value for it, and all that it changes: initial weights, terms, their weights, predictions,
# the acquisition rule, and the optimiser's steps of small, large and tiny gradients.
TRUNK = ["*/term/nll", "*+ncp/term/ncp", "*/term/in_distribution", "*/prediction"]
CHANGES = {
    "hidden": ((2, 2), ["*/params", *TRUNK]),
    "learning_rate": (1e-2, ["step/*"]),
    "batch_size": (7, ["batch_size"]),
    "leaky_slope": (0.2, TRUNK),
    "noise_floor": (0.5, ["*/term/nll", "det+ncp/term/ncp", "*/prediction"]),
    "belief_std": (0.3, ["bbb*/params", "bbb*/term/*", "bbb*/prediction"]),
    "bias_belief": (False, ["bbb*/params", "bbb*/term/*", "bbb*/prediction"]),
    "expectation": ("sampled", ["bbb*/term/nll"]),
    "weight_prior_std": (1.0, ["bbb/term/weight_kl"]),
    "weight_kl": (0.1, ["bbb/weight/weight_kl"]),
    "ncp_weight_kl": (0.5, ["bbb+ncp/*/weight_kl"]),
    "input_noise": ("uniform", ["*+ncp/term/ncp"]),
    "input_noise_std": (0.1, ["*+ncp/term/ncp"]),
    "gamma": (0.1, ["det+ncp/weight/ncp", "bbb+ncp/weight/ncp"]),
    "output_std": (2.0, ["det+ncp/term/ncp", "bbb+ncp/term/ncp", "odc+ncp/prediction"]),
    "output_centre": (0.3, ["det+ncp/term/ncp", "bbb+ncp/term/ncp", "odc+ncp/prediction"]),
    "direction": ("reverse", ["det+ncp/term/ncp", "bbb+ncp/term/ncp"]),
    "noise_prior_std": (0.1, ["bbb+ncp/*/noise_ncp"]),
    "odc_noised_nll": (True, ["odc+ncp/*/noised_nll"]),
    "odc_prediction": ("blend", ["odc+ncp/prediction", "odc+ncp/score"]),
    "gain_exponent": (1.0, ["bbb/exponent", "bbb+ncp/exponent", "odc+ncp/exponent"]),
    "det_score": ("predictive_std", ["det/score", "det+ncp/score"]),
    "temperature": (2.0, ["*/temperature"]),
    "draw": ("greedy", ["*/draw"]),
    "clip": (100.0, ["step/large"]),
    "epsilon_hat": (True, ["step/tiny"]),
    "remainder": ("dropped", ["remainder"]),
    "activation": ("gelu", TRUNK),
    "gamma_per_label": (True, ["det+ncp/term/ncp", "bbb+ncp/term/ncp"]),
    "ncp_away": (True, ["det+ncp/term/ncp", "bbb+ncp/term/ncp"]),
    "noise_tie": (0.5, ["bbb+ncp/*/noise_tie"]),
}
# A prior of another std than the belief begins with, or the bias would add nothing to the weight KL.
SMALL = dataclasses.replace(PAPER, hidden=(2,), weight_prior_std=0.2)


def aspects(settings):
    """All that settings can change, by name, as lists of plain numbers and words."""
    rng = np.random.default_rng(0)
    batch = Batch(array(rng.normal(size=(2, 1))), array(rng.normal(size=(2, 1))), jnp.ones(2), jnp.asarray(3))
    found = {}
    for name, method in methods(settings).items():
        network = method.init(1, 1, key=KEY)
        found[f"{name}/params"] = jax.tree.leaves(eqx.filter(network, eqx.is_array))
        for term, value in method.loss(network, batch, key=KEY)[1].items():
            found[f"{name}/term/{term}"] = [value]
            found[f"{name}/weight/{term}"] = [method.objective[term].weight]
        prediction = method(network, batch.inputs)
        found[f"{name}/prediction"] = [prediction.mean, prediction.noise, prediction.uncertainty]
        for field in ("score", "exponent", "temperature", "draw"):
            found[f"{name}/{field}"] = [getattr(method.acquisition, field)]
    trainer = Config("paper", settings, Schedule()).trainer("det")
    found["batch_size"], found["remainder"] = [trainer.batch_size], [trainer.remainder]
    # The second of two steps: the size of one step alone says nothing about the gradient.
    for size, gradients in {"small": (1.0, 3.0), "large": (1.0, 1000.0), "tiny": (1e-8, 3e-8)}.items():
        state = trainer.optimizer.init(jnp.zeros(1))
        for gradient in gradients:
            update, state = trainer.optimizer.update(jnp.full(1, gradient), state)
        found[f"step/{size}"] = [update]
    return found


def same(one, other):
    if one is None or other is None or len(one) != len(other):
        return False
    for left, right in zip(one, other, strict=True):
        if not isinstance(left, (jax.Array, float)):
            if left != right:
                return False
        elif np.shape(left) != np.shape(right) or not np.allclose(left, right, rtol=1e-4, atol=1e-9):
            return False
    return True


@pytest.fixture(scope="module")
def before():
    return aspects(SMALL)


def test_every_setting_is_looked_at():
    assert list(CHANGES) == FIELDS


def test_nothing_changes_by_itself(before):
    again = aspects(SMALL)
    assert again.keys() == before.keys()
    assert all(same(before[name], again[name]) for name in before)


@pytest.mark.parametrize("setting", FIELDS)
def test_a_setting_changes_what_it_says_and_nothing_else(before, setting):
    value, patterns = CHANGES[setting]
    after = aspects(dataclasses.replace(SMALL, **{setting: value}))
    names = before.keys() | after.keys()
    changed = {name for name in names if not same(before.get(name), after.get(name))}
    assert changed == {name for name in names if any(fnmatch(name, pattern) for pattern in patterns)}


# One input, two features, one output, all numbers by hand.
X, NOISED, Y = np.array([[0.5], [-1.0]]), np.array([[0.9], [-1.7]]), np.array([[0.3], [-0.2]])
KERNEL, BIAS = np.array([[1.0, -2.0]]), np.array([0.1, 0.2])
MEAN, STD, MEAN_BIAS, BIAS_STD = np.array([[0.7], [-0.4]]), np.array([[0.15], [0.3]]), np.array([0.05]), np.array([0.2])
DRAWN = np.array([[0.75], [-0.3]])  # the kernel that is drawn from the belief
NOISE_KERNEL, NOISE_BIAS = np.array([[0.3], [0.2]]), np.array([-0.5])
OOD_KERNEL, OOD_BIAS = np.array([[-0.6], [0.8]]), np.array([0.3])
VISIBLE = 5


class KnownDraw(eqx.Module):
    """A belief of which everyone knows what will be drawn from it."""

    belief: BayesianMean
    layer: PointMean

    def __call__(self, features):
        return self.belief(features)

    def sample(self, *, key):
        del key
        return self.layer

    def kl(self, prior_std):
        return self.belief.kl(prior_std)


def known_network(settings, *, belief, ood):
    inverse = np.log(np.expm1(STD)), np.log(np.expm1(BIAS_STD))
    mean = BayesianMean(
        array(MEAN), array(inverse[0]), array(MEAN_BIAS), array(inverse[1]) if settings.bias_belief else None
    )
    layer = PointMean(Linear(array(DRAWN), array(MEAN_BIAS)))
    heads = {"mean": KnownDraw(mean, layer) if belief else layer}
    heads["noise"] = Noise(Linear(array(NOISE_KERNEL), array(NOISE_BIAS)), settings.noise_floor)
    if ood:
        heads["ood"] = Ood(Linear(array(OOD_KERNEL), array(OOD_BIAS)))
    return Network(MLP((Linear(array(KERNEL), array(BIAS)),), activation_of(settings)), heads)


def known_loss(settings, name):
    """The loss and the terms of the network above, with noised inputs that everyone knows."""
    method = methods(settings)[name]
    if method.input_prior is not None:
        method = dataclasses.replace(method, input_prior=lambda inputs, *, key: array(NOISED))  # noqa: ARG005
    network = known_network(settings, belief=name.startswith("bbb"), ood=name.startswith("odc"))
    batch = Batch(array(X), array(Y), jnp.ones(2), jnp.asarray(VISIBLE))
    return method.loss(network, batch, key=KEY)


def says(x, slope):
    """Mean and std of the belief without its bias, mean of the drawn layer, noise and OOD logit, in NumPy."""
    hidden = x @ KERNEL + BIAS
    hidden = np.where(hidden > 0, hidden, slope * hidden)
    variance = hidden**2 @ STD**2
    noise = softplus(hidden @ NOISE_KERNEL + NOISE_BIAS) + 1e-6
    return hidden @ MEAN + MEAN_BIAS, variance, hidden @ DRAWN + MEAN_BIAS, noise, hidden @ OOD_KERNEL + OOD_BIAS


def by_hand(preset):
    """The terms of every method, and what they count."""
    paper = preset == "paper"
    slope = 0.01 if paper else 0.2
    mean, variance, drawn, noise, logit = says(X, slope)
    mean_, variance_, drawn_, noise_, logit_ = says(NOISED, slope)
    if paper:  # the bias is believed too
        variance, variance_ = variance + BIAS_STD**2, variance_ + BIAS_STD**2
    point = -stats.norm.logpdf(Y, drawn, noise).mean()
    exact = (-stats.norm.logpdf(Y, mean, noise) + variance / (2 * noise**2)).mean()
    bayes = exact if paper else point
    weights = kl(MEAN, STD, 0.0, 0.1).sum()
    if paper:
        weights += kl(MEAN_BIAS, BIAS_STD, 0.0, 0.1).sum()
    gamma = 1.0 if paper else 0.1
    terms = {
        "det": {"nll": (1.0, point)},
        "det+ncp": {"nll": (1.0, point), "ncp": (gamma, kl(Y, 1.0, drawn_, noise_).mean())},
        "bbb": {"nll": (1.0, bayes), "weight_kl": (1.0 if paper else 0.1, weights / VISIBLE)},
        "bbb+ncp": {"nll": (1.0, bayes), "ncp": (gamma, kl(Y, 1.0, mean_, np.sqrt(variance_)).mean())},
        "odc+ncp": {
            "nll": (1.0, point),
            "in_distribution": (1.0, softplus(logit).mean()),
            "ncp": (1.0, softplus(-logit_).mean()),
        },
    }
    if not paper:
        terms["bbb+ncp"]["noise_ncp"] = (0.1, kl(0.0, 0.1, 0.0, noise_).mean())
        terms["odc+ncp"]["noised_nll"] = (1.0, -stats.norm.logpdf(Y, drawn_, noise_).mean())
    return terms


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("preset", PRESETS)
def test_loss_by_hand(preset, name):
    loss, terms = known_loss(PRESETS[preset], name)
    expected = by_hand(preset)[name]
    assert terms.keys() == expected.keys()
    for term, (_, value) in expected.items():
        np.testing.assert_allclose(terms[term], value, rtol=1e-4, err_msg=term)
    np.testing.assert_allclose(loss, sum(weight * value for weight, value in expected.values()), rtol=1e-4)


def known_prediction(preset, name):
    settings = PRESETS[preset]
    method = methods(settings)[name]
    network = known_network(settings, belief=name.startswith("bbb"), ood=name.startswith("odc"))
    return method, method(network, array(X))


def test_blend_of_the_released_code_by_hand():
    _, prediction = known_prediction("reference", "odc+ncp")
    _, _, mean, noise, logit = says(X, 0.2)
    pi = 1 / (1 + np.exp(-logit))
    np.testing.assert_allclose(prediction.mean, mean, rtol=1e-4)
    np.testing.assert_allclose(prediction.noise, (1 - pi) * noise + 0.1 * pi, rtol=1e-5)
    np.testing.assert_allclose(prediction.uncertainty, pi, rtol=1e-5)
    np.testing.assert_allclose(prediction.std, np.hypot((1 - pi) * noise + 0.1 * pi, pi), rtol=1e-5)


def test_mixture_of_the_paper_by_hand():
    _, prediction = known_prediction("paper", "odc+ncp")
    _, _, mean, noise, logit = says(X, 0.01)
    pi = 1 / (1 + np.exp(-logit))
    density = (1 - pi) * stats.norm.pdf(Y, mean, noise) + pi * stats.norm.pdf(Y, mean, 1.0)
    np.testing.assert_allclose(prediction.log_prob(array(Y)), np.log(density), rtol=1e-4)
    np.testing.assert_allclose(prediction.noise, np.sqrt(1 - pi) * noise, rtol=1e-5)
    np.testing.assert_allclose(prediction.uncertainty, np.sqrt(pi), rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("preset", PRESETS)
def test_odds_of_acquisition_by_hand(preset, name):
    method, prediction = known_prediction(preset, name)
    found = np.exp(np.diff(method.acquisition.logits(prediction)))
    paper = preset == "paper"
    _, variance, _, noise, logit = (field[:, 0] for field in says(X, 0.01 if paper else 0.2))
    pi = 1 / (1 + np.exp(-logit))
    if name.startswith("det"):
        weight = np.exp((noise**2 if paper else noise) / 0.5)
    elif name.startswith("bbb"):
        weight = (1 + (variance + BIAS_STD**2) / noise**2) ** 2 if paper else 1 + variance / noise**2
    elif paper:
        weight = (1 + pi / noise**2) ** 2
    else:
        weight = 1 + pi**2 / ((1 - pi) * noise + 0.1 * pi) ** 2
    np.testing.assert_allclose(found, [weight[1] / weight[0]], rtol=1e-4)


def test_reference_networks_begin_as_the_released_code_does():
    network = methods(REFERENCE)["bbb+ncp"].init(1, 1, key=KEY)
    first, second = network.trunk.layers
    head, noise = network.heads["mean"], network.heads["noise"]
    assert network.trunk.activation == LeakyReLU(0.2)
    for kernel, sizes in ((first.kernel, (1, 200)), (second.kernel, (200, 200)), (noise.linear.kernel, (200, 1))):
        limit = np.sqrt(6 / sum(sizes))
        assert kernel.shape == sizes
        assert np.abs(kernel).max() <= limit
        assert stats.kstest(np.ravel(kernel), stats.uniform(-limit, 2 * limit).cdf).pvalue > 0.01
    for bias in (first.bias, second.bias, noise.linear.bias, head.bias):
        np.testing.assert_array_equal(bias, np.zeros_like(bias))
    np.testing.assert_allclose(softplus(np.float64(head.rho)), np.full((200, 1), 0.1), rtol=1e-5)
    assert stats.kstest(np.ravel(head.mean), stats.norm(0, 0.1).cdf).pvalue > 0.01
    assert head.bias_rho is None
    assert noise.floor == 1e-6


def test_paper_networks_believe_in_a_distribution_of_the_bias():
    head = methods(SMALL)["bbb"].init(1, 2, key=KEY).heads["mean"]
    np.testing.assert_allclose(softplus(np.float64(head.bias_rho)), [0.1, 0.1], rtol=1e-5)
