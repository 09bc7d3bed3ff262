"""What an ensemble believes about functions: covariances that agree with its predictions."""

import dataclasses

import equinox as eqx
import jax
import numpy as np
import pytest

from ncprior import NCPRegressor
from ncprior.core.methods import methods
from ncprior.core.networks import BayesianMean, Network
from ncprior.errors import UserError
from ncprior.tables.batch_features import pool_ranks
from ncprior.tables.calibration import Calibration
from ncprior.tables.preset import TABLES
from ncprior.tables.programs import Engine, Spec


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("method", ["det", "det+ncp", "bbb", "bbb+ncp", "deep+ncp"])
def test_batch_features_have_the_variance_of_the_mean_in_every_method(method, outputs):
    spec = Spec(
        dataclasses.replace(TABLES, hidden=(6,)), method, None, None, groups=(), width=2, outputs=outputs, bins=0
    )
    engine, inputs = Engine(spec), np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)
    init = jax.vmap(lambda key: eqx.filter(engine.method.init(2, outputs, key=key), eqx.is_inexact_array))
    weights = init(jax.random.split(jax.random.key(0), 3))
    calibration = Calibration.equal(3)._replace(
        noise_scale=np.float32([1.0, 0.8, 1.2]),
        uncertainty_scale=np.float32([1.7, 1.0, 3.0]),
        share=np.float32([0.5, 0.3, 0.2]),
    )
    phi = np.asarray(engine.features(weights, calibration, inputs))
    wanted = np.asarray(engine.predict(engine.on_device(weights), calibration, inputs).uncertainty)
    np.testing.assert_allclose((phi**2).sum(1), (wanted**2).mean(1), rtol=1e-3)


def test_a_head_without_covariances_is_refused_by_rules_that_need_them():
    class Plain(eqx.Module):
        head: BayesianMean

        def __call__(self, features):
            return self.head(features)

    X = np.linspace(-1, 1, 40)[:, None]
    own = methods(dataclasses.replace(TABLES, hidden=(8,)))["bbb+ncp"]

    def init(inputs, outputs, *, key):
        network = own.init(inputs, outputs, key=key)
        return Network(network.trunk, {**network.heads, "mean": Plain(network.heads["mean"])})

    objective = {name: own.objective[name] for name in ("nll", "ncp")}
    method = dataclasses.replace(own, name="mine", init=init, objective=objective)
    model = NCPRegressor(method, members=1, epochs=2, random_state=0).fit(X, X[:, 0])
    with pytest.raises(UserError, match="'mean' of mine \\(Plain\\) has no `deviations`"):
        model.suggest(X, n=3, acquisition="bait")
    assert len(model.suggest(X, n=3, acquisition="lcmd")) == 3


@pytest.fixture(scope="module")
def unlearned():
    """A model of two rows, of which nothing can be learned."""
    return NCPRegressor(min_rows=1, epochs=2, members=2, hidden=(8,), random_state=0).fit([[0.0], [1.0]], [0.0, 4.0])


def test_functions_of_models_that_learned_nothing_spread_as_their_predictions(unlearned):
    X = np.array([[-1.0], [0.0], [4.0]])
    p, functions = unlearned.predict_distribution(X), unlearned.sample_functions(X, n=300, random_state=0)
    assert (p.std >= 2 - 1e-5).all()  # that of the targets
    np.testing.assert_allclose(functions.std(0), p.uncertainty, rtol=0.1)
    np.testing.assert_allclose(functions.mean(0), p.mean, atol=4 * p.uncertainty.max() / 300**0.5)


def test_models_that_learned_nothing_take_batch_rules_too(unlearned):
    assert len(unlearned.suggest(np.linspace(-2, 2, 12)[:, None], 3, acquisition="max_det", random_state=0)) == 3


def test_ranks_count_rows_as_often_as_their_weights_say():
    random = np.random.default_rng(0)
    pool, rows = random.integers(0, 9, (12, 2)).astype(float), random.integers(-1, 11, (7, 2)).astype(float)
    weights = random.integers(1, 4, 12)
    np.testing.assert_allclose(pool_ranks(rows, pool, weights), pool_ranks(rows, np.repeat(pool, weights, axis=0)))
