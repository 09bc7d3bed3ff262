"""Loss terms: values worked out by hand, gradients against finite differences, limits."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

from ncprior.core.distributions import Bernoulli, Normal
from ncprior.core.input_priors import Gaussian, Uniform
from ncprior.core.networks import MLP, BayesianMean, LeakyReLU, Linear, Network, Noise, Ood, PointMean
from ncprior.core.objectives import (
    NLL,
    Batch,
    InDistribution,
    MeanNCP,
    NoisedNLL,
    NoiseNCP,
    OutOfDistribution,
    PredictiveNCP,
    View,
    Weighted,
    WeightKL,
    total,
)
from ncprior.core.output_priors import OutputPrior
from ncprior.core.table_priors import NoisedShare, PerColumn
from ncprior.core.table_terms import AwayFromData, NoiseTie

KEY = jax.random.key(0)

# Three rows and two outputs of a network that there is no need to have.
TARGETS = np.array([[0.0, 1.0], [2.0, -1.0], [0.5, 0.5]])
MEAN = np.array([[0.5, 1.0], [1.0, 0.0], [0.0, 2.0]])
STD = np.array([[0.5, 2.0], [1.0, 0.1], [0.3, 0.7]])
NOISE = np.array([[0.4, 1.0], [2.0, 0.5], [0.1, 0.3]])
LOGIT = np.array([[0.0, 3.0], [-2.0, 5.0], [1.0, -1.0]])
SHIFT = 0.3  # what the network says at the noised rows differs by this


def array(values):
    return jnp.asarray(np.asarray(values, np.float32))


def says(shift=0.0):
    """What the heads say, all numbers larger by a shift."""
    return {
        "mean": Normal(array(MEAN + shift), array(STD + shift)),
        "noise": array(NOISE + shift),
        "ood": Bernoulli(array(LOGIT + shift)),
    }


def batch(weights=(1.0, 1.0, 1.0), num_visible=7, outputs=2):
    return Batch(jnp.zeros((3, 1)), array(TARGETS[:, :outputs]), array(weights), jnp.asarray(num_visible))


def view(weights=(1.0, 1.0, 1.0), network=None, num_visible=7):
    return View(network, batch(weights, num_visible), jnp.zeros((3, 1)), says(), says(SHIFT), KEY)


def kl(mean_p, std_p, mean_q, std_q):
    return np.log(std_q / std_p) + (std_p**2 + (mean_p - mean_q) ** 2) / (2 * std_q**2) - 0.5


def softplus(x):
    return np.logaddexp(0.0, x)


def expected_nll(shift):
    log_prob = stats.norm.logpdf(TARGETS, MEAN + shift, NOISE + shift)
    return (-log_prob + (STD + shift) ** 2 / (2 * (NOISE + shift) ** 2)).sum(-1)


BY_HAND = {
    "nll": (NLL(), expected_nll(0.0)),
    "mean_ncp": (MeanNCP(), kl(TARGETS, 1.0, MEAN + SHIFT, STD + SHIFT).sum(-1)),
    "mean_ncp_wide": (MeanNCP(OutputPrior(3.0)), kl(TARGETS, 3.0, MEAN + SHIFT, STD + SHIFT).sum(-1)),
    "mean_ncp_constant": (MeanNCP(OutputPrior(1.0, 0.2)), kl(0.2, 1.0, MEAN + SHIFT, STD + SHIFT).sum(-1)),
    "mean_ncp_prediction": (MeanNCP(OutputPrior(1.0, "prediction")), kl(0.0, 1.0, 0.0, STD + SHIFT).sum(-1)),
    "predictive_ncp_prediction": (
        PredictiveNCP(OutputPrior(1.0, "prediction", "reverse")),
        kl(0.0, NOISE + SHIFT, 0.0, 1.0).sum(-1),
    ),
    "mean_ncp_reverse": (
        MeanNCP(OutputPrior(direction="reverse")),
        kl(MEAN + SHIFT, STD + SHIFT, TARGETS, 1.0).sum(-1),
    ),
    "predictive_ncp": (PredictiveNCP(), kl(TARGETS, 1.0, MEAN + SHIFT, NOISE + SHIFT).sum(-1)),
    "predictive_ncp_reverse": (
        PredictiveNCP(OutputPrior(2.0, direction="reverse")),
        kl(MEAN + SHIFT, NOISE + SHIFT, TARGETS, 2.0).sum(-1),
    ),
    "noise_ncp": (NoiseNCP(0.1), kl(0.0, 0.1, 0.0, NOISE + SHIFT).sum(-1)),
    "noised_nll": (NoisedNLL(), expected_nll(SHIFT)),
    "in_distribution": (InDistribution(), softplus(LOGIT).sum(-1)),
    "out_of_distribution": (OutOfDistribution(), softplus(-(LOGIT + SHIFT)).sum(-1)),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_term_by_hand(name):
    term, expected = BY_HAND[name]
    found = term(view())
    assert found.shape == (3,)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_weight_kl_by_hand():
    rho = np.log(np.expm1(0.2))
    head = BayesianMean(array([[0.1], [-0.3]]), array([[rho], [rho]]), jnp.ones(1), None)
    expected = (kl(0.1, 0.2, 0.0, 0.5) + kl(-0.3, 0.2, 0.0, 0.5)) / 7
    found = WeightKL(0.5)(view(network=Network(lambda x: x, {"mean": head})))
    assert found.shape == ()
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_noise_ncp_is_zero_where_the_noise_is_the_prior():
    there = view()._replace(noised={"noise": jnp.full((3, 2), 0.1)})
    np.testing.assert_allclose(NoiseNCP(0.1)(there), np.zeros(3), atol=1e-6)


def test_loss_is_the_weighted_sum_of_the_mean_terms():
    head = BayesianMean.init(2, 1, key=KEY)
    looking = view(network=Network(lambda x: x, {"mean": head}))
    objective = {
        "first": Weighted(2.0, NLL()),
        "second": Weighted(0.5, InDistribution()),
        "third": Weighted(0.1, WeightKL(0.2)),
    }
    loss, terms = total(objective, looking)
    expected = {
        "first": BY_HAND["nll"][1].mean(),
        "second": BY_HAND["in_distribution"][1].mean(),
        "third": float(head.kl(0.2)) / 7,
    }
    assert list(terms) == list(objective)
    for name, value in expected.items():
        np.testing.assert_allclose(terms[name], value, rtol=1e-4)
    by_hand = 2 * expected["first"] + 0.5 * expected["second"] + 0.1 * expected["third"]
    np.testing.assert_allclose(loss, by_hand, rtol=1e-4)


def test_rows_of_weight_zero_do_not_count():
    objective = {"nll": Weighted(1.0, NLL())}
    loss, terms = total(objective, view(weights=(1.0, 0.0, 1.0)))
    expected = BY_HAND["nll"][1][[0, 2]].mean()
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    np.testing.assert_allclose(terms["nll"], expected, rtol=1e-4)


def test_weights_of_rows_do_not_change_the_weight_kl():
    network = Network(lambda x: x, {"mean": BayesianMean.init(2, 1, key=KEY)})
    objective = {"weight_kl": Weighted(1.0, WeightKL(0.1))}
    few, all_rows = (total(objective, view(weights, network))[0] for weights in ((1.0, 0.0, 0.0), (1.0, 1.0, 1.0)))
    assert float(few) == float(all_rows) > 0


def test_weight_kl_shrinks_with_the_number_of_visible_labels():
    network = Network(lambda x: x, {"mean": BayesianMean.init(2, 1, key=KEY)})
    few, many = (float(WeightKL(0.1)(view(network=network, num_visible=count))) for count in (10, 1000))
    assert few == pytest.approx(100 * many, rel=1e-5)


def tiny_network():
    """Two inputs, two outputs, and every head, with numbers that are nowhere special."""
    rng = np.random.default_rng(3)

    def linear(inputs, outputs):
        return Linear(array(rng.normal(size=(inputs, outputs))), array(rng.normal(size=outputs)))

    mean = BayesianMean(*(array(rng.normal(size=shape)) for shape in ((4, 2), (4, 2), 2, 2)))
    heads = {"mean": mean, "noise": Noise(linear(4, 2), 1e-6), "ood": Ood(linear(4, 2))}
    return Network(MLP((linear(2, 4), linear(4, 4)), LeakyReLU(0.2)), heads)


def tiny_batch():
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(3, 2)), rng.normal(size=(3, 2))
    return Batch(array(inputs), array(targets), array([1.0, 0.5, 0.0]), jnp.asarray(7))


def noised(inputs, *, key):
    """An input prior that needs no random numbers."""
    del key
    return inputs + array([[0.5, -0.2], [-0.4, 0.3], [0.1, 0.7]])


TERMS = {
    "nll": NLL(),
    "nll_sampled": NLL("sampled"),
    "weight_kl": WeightKL(0.3),
    "mean_ncp": MeanNCP(),
    "mean_ncp_reverse": MeanNCP(OutputPrior(0.7, 0.2, "reverse")),
    "predictive_ncp": PredictiveNCP(),
    "predictive_ncp_reverse": PredictiveNCP(OutputPrior(0.7, direction="reverse")),
    "noise_ncp": NoiseNCP(0.1),
    "noised_nll": NoisedNLL(),
    "in_distribution": InDistribution(),
    "out_of_distribution": OutOfDistribution(),
}
# The parts of the network that each term teaches.
TEACHES = {
    "nll": {"trunk", "mean", "rho", "noise"},
    "nll_sampled": {"trunk", "mean", "rho", "noise"},
    "weight_kl": {"mean", "rho"},
    "mean_ncp": {"trunk", "mean", "rho"},
    "mean_ncp_reverse": {"trunk", "mean", "rho"},
    "predictive_ncp": {"trunk", "mean", "noise"},
    "predictive_ncp_reverse": {"trunk", "mean", "noise"},
    "noise_ncp": {"trunk", "noise"},
    "noised_nll": {"trunk", "mean", "rho", "noise"},
    "in_distribution": {"trunk", "ood"},
    "out_of_distribution": {"trunk", "ood"},
}


@pytest.fixture(scope="module")
def gradients():
    """Of every term by name: the gradient, and central differences, in float64."""
    with jax.enable_x64(True):
        params, static = eqx.partition(tiny_network(), eqx.is_inexact_array)
        flat, unravel = ravel_pytree(jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), params))
        rows = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), tiny_batch())

        def terms(flat):
            network = eqx.combine(unravel(flat), static)
            looking = View.of(network, rows, noised, key=KEY)
            values = total({name: Weighted(1.0, term) for name, term in TERMS.items()}, looking)[1]
            return jnp.stack([values[name] for name in TERMS])

        @jax.jit
        def both(flat):
            return terms(flat), jax.jacrev(terms)(flat)

        exact = np.asarray(both(flat)[1])
        steps = 1e-5 * np.eye(len(flat))
        differences = np.stack([both(flat + step)[0] - both(flat - step)[0] for step in steps], axis=-1) / 2e-5
        assert exact.dtype == differences.dtype == np.float64
        trees = [jax.device_get(unravel(row)) for row in exact]
    return {name: (exact[i], differences[i], trees[i]) for i, name in enumerate(TERMS)}


@pytest.mark.parametrize("name", TERMS)
def test_gradient_is_the_limit_of_differences(gradients, name):
    exact, differences, _ = gradients[name]
    np.testing.assert_allclose(exact, differences, rtol=1e-5, atol=1e-7 * np.abs(exact).max())
    assert np.abs(exact).max() > 1e-3


@pytest.mark.parametrize("name", TERMS)
def test_term_teaches_what_it_is_about(gradients, name):
    _, _, tree = gradients[name]
    parts = {
        "trunk": tree.trunk,
        "mean": (tree.heads["mean"].mean, tree.heads["mean"].bias),
        "rho": (tree.heads["mean"].rho, tree.heads["mean"].bias_rho),
        "noise": tree.heads["noise"],
        "ood": tree.heads["ood"],
    }
    taught = {part for part, leaves in parts.items() if any(np.any(leaf) for leaf in jax.tree.leaves(leaves))}
    assert taught == TEACHES[name]


def test_exact_expectation_is_the_mean_of_sampled_ones():
    looking = View.of(tiny_network(), tiny_batch(), None, key=KEY)
    draws = 20_000
    keys = jax.random.split(KEY, draws)
    sampled = jax.jit(jax.vmap(lambda key: NLL("sampled")(looking._replace(key=key))))(keys)
    exact = NLL("exact")(looking)
    error = np.std(sampled, axis=0) / np.sqrt(draws)
    assert (error > 0).all()
    assert (np.abs(np.mean(sampled, axis=0) - exact) < 4 * error).all()


def test_expectations_of_a_point_estimate_agree():
    network = tiny_network()
    point = Network(network.trunk, {**network.heads, "mean": PointMean(network.heads["noise"].linear)})
    looking = View.of(point, tiny_batch(), None, key=KEY)
    np.testing.assert_allclose(NLL("sampled")(looking), NLL("exact")(looking), rtol=1e-6)


def test_one_layer_is_sampled_for_all_rows():
    # Two rows that are the same, with the same target, must have the same loss.
    rows = tiny_batch()
    same = rows._replace(inputs=rows.inputs[jnp.array([0, 0, 1])], targets=rows.targets[jnp.array([0, 0, 1])])
    found = NLL("sampled")(View.of(tiny_network(), same, None, key=KEY))
    assert float(found[0]) == pytest.approx(float(found[1]), rel=1e-5)
    assert float(found[0]) != pytest.approx(float(found[2]), rel=1e-2)


def assert_says(found, inputs):
    expected = jax.vmap(tiny_network())(inputs)
    assert set(found) == set(expected)
    for leaf, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(leaf, other, rtol=1e-4, atol=1e-5)


def test_view_holds_what_the_network_says_at_clean_and_noised_rows():
    rows = tiny_batch()
    looking = View.of(tiny_network(), rows, noised, key=KEY)
    assert_says(looking.clean, rows.inputs)
    assert_says(looking.noised, noised(rows.inputs, key=KEY))
    np.testing.assert_allclose(looking.features, jax.vmap(tiny_network().trunk)(rows.inputs), rtol=1e-5, atol=1e-6)


def test_without_input_prior_there_is_nothing_noised():
    looking = View.of(tiny_network(), tiny_batch(), None, key=KEY)
    assert looking.noised == {}
    assert_says(looking.clean, tiny_batch().inputs)


@pytest.mark.parametrize(
    "prior", [Gaussian(0.0), Uniform(0.0), PerColumn([])], ids=["gaussian", "uniform", "no columns"]
)
def test_without_noise_the_noised_rows_are_the_clean_ones(prior):
    looking = View.of(tiny_network(), tiny_batch(), prior, key=KEY)
    for clean, noised in zip(jax.tree.leaves(looking.clean), jax.tree.leaves(looking.noised), strict=True):
        np.testing.assert_array_equal(clean, noised)


def test_noise_and_layer_are_drawn_with_keys_of_their_own():
    first, second = (View.of(tiny_network(), tiny_batch(), Gaussian(0.5), key=key) for key in (KEY, jax.random.key(1)))
    assert not np.allclose(first.noised["noise"], second.noised["noise"])
    assert not np.array_equal(jax.random.key_data(first.key), jax.random.key_data(second.key))
    assert not np.array_equal(jax.random.key_data(first.key), jax.random.key_data(KEY))


def test_linear_head_of_a_user_can_be_judged_by_a_term_of_a_user():
    # Heads and terms find each other by name alone.
    network = Network(lambda x: x, {"score": Linear(jnp.ones((2, 1)), jnp.zeros(1))})

    def term(looking):
        return looking.clean["score"][:, 0] ** 2

    loss, _ = total({"mine": Weighted(1.0, term)}, View.of(network, tiny_batch(), None, key=KEY))
    sums = np.asarray(tiny_batch().inputs.sum(-1))
    np.testing.assert_allclose(loss, (sums[0] ** 2 + 0.5 * sums[1] ** 2) / 2, rtol=1e-5)


@pytest.mark.parametrize(
    "term", [MeanNCP(), PredictiveNCP(), NoiseTie(), NoisedNLL(), AwayFromData(MeanNCP())], ids=str
)
def test_fewer_noised_rows_are_copies_of_the_first_clean_ones(term):
    """What a term comes to for the first rows, which alone count, does not depend on how many rows are noised."""

    def copied(inputs, *, key):  # noqa: ARG001
        return 1.5 * inputs

    inputs = jnp.asarray(np.random.default_rng(0).normal(size=(8, 2)), jnp.float32)
    rows = Batch(inputs, inputs[:, :1] ** 2, jnp.arange(1.0, 9.0), jnp.asarray(8))
    keys = jax.random.split(KEY, 3)
    heads = {"mean": BayesianMean.init(5, 1, key=keys[1]), "noise": Noise.init(5, 1, key=keys[2])}
    network = Network(MLP.init(2, (5,), key=keys[0]), heads)
    of_all, of_some = (View.of(network, rows, prior, key=KEY) for prior in (copied, NoisedShare(copied, 0.5)))
    np.testing.assert_allclose(term(of_some), term(of_all)[:4], rtol=1e-5)
    _, terms = total({"term": Weighted(1.0, term), "nll": Weighted(1.0, NLL())}, of_some)
    np.testing.assert_allclose(terms["term"], np.mean(rows.weights[:4] * term(of_all)[:4]), rtol=1e-5)
    np.testing.assert_allclose(terms["nll"], np.mean(rows.weights * NLL()(of_all)), rtol=1e-5)
