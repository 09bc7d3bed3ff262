# ruff: noqa: ARG005
"""Mistakes in a trunk, an input prior or a method of one's own get a line that says what was expected."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ncprior import NCPRegressor
from ncprior.core.input_priors import Gaussian
from ncprior.core.methods import methods
from ncprior.core.networks import Network
from ncprior.core.objectives import Weighted
from ncprior.core.table_priors import PerColumn
from ncprior.errors import UserError
from ncprior.tables.preset import TABLES
from ncprior.tables.programs import Spec, check_custom_parts

KEY = jax.random.key(0)
SMALL = dataclasses.replace(TABLES, hidden=(4,))


def check(method="bbb+ncp", trunk=None, input_prior=None):
    spec = Spec(SMALL, method, trunk, input_prior, groups=(), width=3, outputs=2, bins=0)
    check_custom_parts(spec)


def not_a_number(x):
    return x / 0 - x / 0


@pytest.mark.parametrize(
    ("trunk", "message"),
    [
        (lambda inputs: eqx.nn.MLP(inputs, 4, 4, 1, key=KEY), "trunk must be a function .inputs, ., key. -> module"),
        (eqx.nn.MLP(3, 4, 4, 1, key=KEY), "trunk must be a function .* that makes a network"),
        ("mlp", "trunk must be a function .*, got str"),
        (lambda inputs, *, key: jax.random.normal(key, (inputs, 4)), "and it made float32 of shape .3, 4."),
        (lambda inputs, *, key: eqx.nn.MLP(inputs + 1, 4, 4, 1, key=key), "must take one example, and failed .*Error"),
        (lambda inputs, *, key: lambda x: jnp.sum(x), "must give a vector of features for one .* float32 of shape .."),
        (lambda inputs, *, key: lambda x: (x, x), "must give a vector of features .* and it gave tuple"),
        (lambda inputs, *, key: lambda x: x.astype(int), "must give a vector of features .* gave int32 of shape .3."),
        (lambda inputs, *, key: not_a_number, "trunk: its module gives numbers that are not finite before any"),
    ],
)
def test_trunks(trunk, message):
    with pytest.raises(UserError, match=message):
        check(trunk=trunk)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (lambda rows: rows, "input_prior must be a function .inputs, ., key. -> noised"),
        (Gaussian, "input_prior must be a function .*Gaussian"),
        (
            lambda rows, *, key: rows[:, :2],
            r"must give rows of the shape that it gets, \[8, 3\], and it gave .* \[8, 2\]",
        ),
        (lambda rows, *, key: rows > 0, "must give rows of the shape .* gave bool of shape"),
        (lambda rows, *, key: jnp.concatenate([rows, rows]), r"must give rows .* shape \[16, 3\]"),
        (lambda rows, *, key: None, "must give rows of the shape .* gave NoneType"),
        (lambda rows, *, key: not_a_number(rows), "input_prior gives numbers that are not finite"),
        (PerColumn([((0, 7), Gaussian(0.5))]), r"and failed \(ValueError: no columns \[7\]"),
    ],
)
def test_input_priors(prior, message):
    with pytest.raises(UserError, match=message):
        check(input_prior=prior)
    with pytest.raises(UserError, match=message):
        check(dataclasses.replace(methods(SMALL)["bbb+ncp"], input_prior=prior))


def broken(**parts):
    return dataclasses.replace(methods(SMALL)["det"], **parts)


def of_terms(**terms):
    return broken(objective={name: Weighted(1.0, term) for name, term in terms.items()})


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (broken(init=lambda inputs, outputs: None), "method 'det': init must be a function .inputs, outputs, ., key."),
        (broken(init=lambda inputs, outputs, *, key: lambda x: x), "init must be .*-> Network, and it made <lambda>"),
        (broken(init=lambda inputs, outputs, *, key: Network(lambda x: x @ jnp.ones((5, 2)), {})), "rows of 3 inputs"),
        (broken(objective={"nll": lambda view: 0.0}), "term 'nll' must be Weighted"),
        (of_terms(mine=lambda view: view.batch.targets), r"term 'mine' must give one loss for .* shape \[8, 2\]"),
        (of_terms(mine=lambda view: 0), "term 'mine' must give one loss for each of 8 rows, or one number, .* int"),
        (of_terms(mine=lambda view: view.clean["meen"]), "term 'mine' must be a function .* failed .KeyError: 'meen'"),
        (of_terms(mine=lambda view: not_a_number(view.batch.targets).sum(-1)), "not finite before any training"),
        (broken(predict=lambda outputs: outputs["mean"].mean), "predict must give a Predictive.* float32 of shape .8"),
        (broken(predict=lambda outputs: outputs["sigma"]), "predict must take what the heads say, .*KeyError"),
    ],
)
def test_methods(method, message):
    with pytest.raises(UserError, match=message):
        check(method)


def test_what_is_right_passes():
    for name in ("det", "bbb+ncp", "odc+ncp"):
        check(methods(SMALL)[name])
    check(trunk=lambda inputs, *, key: jnp.tanh, input_prior=Gaussian(0.5))
    check(input_prior=lambda rows, *, key: rows[:3] + jax.random.normal(key, (3, rows.shape[1])))


def test_the_estimator_checks_them_before_it_trains():
    X, y = np.random.default_rng(0).normal(size=(2, 30, 2))
    heard = []
    model = NCPRegressor(trunk=eqx.nn.MLP(3, 4, 4, 1, key=KEY), callbacks=[heard.append])
    with pytest.raises(UserError, match="trunk must be a function"):
        model.fit(X, y)
    with pytest.raises(UserError, match=r"input_prior must be a name or a function .*, got 3"):
        NCPRegressor(input_prior=3).fit(X, y)
    assert not heard
