"""Scores and batch rules on tensors are those of the package."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from ncprior.core import acquisition
from ncprior.core.distributions import Bernoulli, Normal
from ncprior.core.methods import predict_mixture
from ncprior.core.output_priors import OutputPrior
from ncprior.core.prediction import Prediction as JaxPrediction
from ncprior.errors import UserError
from ncprior.tables.batch_features import pool_ranks
from ncprior.tables.batches import RULES, Pool
from ncprior.torch import Mixture, OODLoss, Prediction, Samples, draw, information_gain, pick, score

rng = np.random.default_rng(0)
MEAN, NOISE, UNCERTAINTY = rng.normal(size=(3, 30, 2)).astype(np.float32) ** 2 + 0.1
OUTPUT = tuple(map(torch.from_numpy, (MEAN, NOISE, UNCERTAINTY)))
SAME = JaxPrediction(*map(jnp.asarray, (MEAN, NOISE, UNCERTAINTY)))


@pytest.mark.parametrize("name", acquisition.score_names())
def test_scores_are_those_of_the_package(name):
    found = score(OUTPUT, name)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, acquisition.SCORES[name].function(SAME), rtol=1e-6)


def test_the_information_gain_takes_every_form_of_output():
    expected = information_gain(OUTPUT)
    as_grad = [part.clone().requires_grad_() for part in OUTPUT]
    assert not information_gain(as_grad).requires_grad
    torch.testing.assert_close(information_gain(tuple(part.double() for part in OUTPUT)), expected)
    torch.testing.assert_close(information_gain(Prediction(*OUTPUT)), expected)
    one = [part[:, 0] for part in OUTPUT]
    torch.testing.assert_close(information_gain(one), information_gain([part[:, :1] for part in OUTPUT]))
    means = torch.stack([OUTPUT[0], OUTPUT[0] + 2])
    noises = torch.stack([OUTPUT[1], OUTPUT[1]])
    by_hand = 0.5 * torch.log1p(1 / OUTPUT[1] ** 2).mean(1)
    torch.testing.assert_close(information_gain(Mixture(means, noises)), by_hand, rtol=1e-4, atol=1e-5)
    by_hand = 0.5 * torch.log1p(2 / OUTPUT[1] ** 2).mean(1)
    torch.testing.assert_close(information_gain(Samples(means, noises)), by_hand, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(score(OUTPUT[:2], "predictive_std"), OUTPUT[1].mean(1))


@pytest.mark.parametrize("centre", ["prediction", 0.3])
@pytest.mark.parametrize("name", ["information_gain", "ood_information_gain", "ood_probability"])
def test_the_classifiers_mixture_is_that_of_the_package(name, centre):
    logit = rng.normal(size=(30, 2)).astype(np.float32)
    found = OODLoss(lambda x: x, output_std=2.0, centre=centre).prediction(
        {"mean": OUTPUT[0], "noise": OUTPUT[1], "ood": torch.from_numpy(logit)}
    )
    heads = {"mean": Normal(SAME.mean, jnp.zeros((30, 2))), "noise": SAME.noise, "ood": Bernoulli(jnp.asarray(logit))}
    expected = predict_mixture(heads, OutputPrior(2.0, centre))
    for field in ("mean", "noise", "uncertainty"):
        np.testing.assert_allclose(getattr(found, field), getattr(expected, field), rtol=1e-5)
    np.testing.assert_allclose(score(found, name), acquisition.SCORES[name].function(expected), rtol=1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_batches_are_those_of_the_package(rule):
    pool, labelled = (rng.normal(size=(rows, 4)).astype(np.float32) for rows in (30, 5))
    excluded = np.arange(30) % 7 == 0
    found = pick(
        torch.from_numpy(pool),
        6,
        rule=rule,
        labelled=torch.from_numpy(labelled),
        noise=OUTPUT[1][:, 0],
        excluded=torch.from_numpy(excluded),
        seed=3,
    )
    ranks = pool_ranks(pool, pool), pool_ranks(labelled, pool)
    phi, seen = ranks if RULES[rule].compares == "inputs" else (pool, labelled)
    rows = Pool.of(phi, NOISE[:, 0], excluded)
    expected = RULES[rule].function(rows, jnp.asarray(seen), 6, key=jax.random.key(3))
    assert found.dtype == torch.int64
    np.testing.assert_array_equal(found, expected)
    assert len(set(found.tolist())) == 6
    assert not excluded[found].any()


def test_deviations_of_several_outputs_count_with_their_average_covariance():
    deviations = torch.from_numpy(rng.normal(size=(30, 4, 2)).astype(np.float32))
    found = pick(deviations, 4, rule="max_det", noise=OUTPUT[1])
    phi = jnp.asarray(deviations.numpy().reshape(30, 8) / np.sqrt(2))
    noise = jnp.asarray(np.sqrt((NOISE**2).mean(1)))
    expected = RULES["max_det"].function(Pool.of(phi, noise), phi[:0], 4, key=jax.random.key(0))
    np.testing.assert_array_equal(found, expected)


def test_rows_are_drawn_by_their_scores():
    excluded = torch.zeros(30, dtype=torch.bool)
    best = information_gain(OUTPUT).argsort(descending=True)
    torch.testing.assert_close(draw(OUTPUT, 3, how="greedy"), best[:3])
    excluded[best[:2]] = True
    torch.testing.assert_close(draw(OUTPUT, 3, how="greedy", excluded=excluded), best[2:5])
    cold = torch.cat([draw(OUTPUT, 3, temperature=0.05, seed=seed) for seed in range(30)])
    hot = torch.cat([draw(OUTPUT, 3, temperature=50.0, seed=seed) for seed in range(30)])
    gain = information_gain(OUTPUT)
    assert gain[cold].mean() > gain[hot].mean() > 0


REFUSED = {
    "point": (lambda: information_gain(OUTPUT[:2]), "needs a model with uncertainty"),
    "rule": (lambda: pick(OUTPUT[0], 2, rule="best"), "unknown rule 'best'"),
    "score": (lambda: score(OUTPUT, "best"), "unknown acquisition 'best'"),
    "noise": (lambda: pick(OUTPUT[0], 2, rule="max_det"), "give noise"),
    "noise rows": (lambda: pick(OUTPUT[0], 2, rule="bait", noise=torch.ones(3)), "noise has 3 rows"),
    "count": (lambda: pick(OUTPUT[0], 31), "31 rows were asked for and 30"),
    "excluded": (lambda: draw(OUTPUT, 2, excluded=torch.ones(30)), "2 rows were asked for and 0"),
    "excluded rows": (lambda: draw(OUTPUT, 2, excluded=torch.ones(3)), "excluded has shape"),
    "labelled": (lambda: pick(OUTPUT[0], 2, labelled=torch.ones(2, 5)), "labelled rows 5"),
    "features": (lambda: pick(torch.ones(5), 2), "rows of features"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_mistakes_are_one_line(case):
    mistake, message = REFUSED[case]
    with pytest.raises(UserError, match=message):
        mistake()
