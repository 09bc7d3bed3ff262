"""With gamma 0 there is no noise contrastive prior: what describes one has no effect, and is refused."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ncprior import NCPRegressor
from ncprior.core.objectives import Batch
from ncprior.core.settings import Settings
from ncprior.errors import UserError
from ncprior.experiments import evaluate
from ncprior.tables.options import FitOptions
from ncprior.tables.preset import TABLES
from ncprior.tables.programs import Spec, make_method

OF_THE_PRIOR = {
    "output_scale": 3.0,
    "input_scale": 0.7,
    "input_prior": "uniform",
    "flip": 0.5,
    "gamma_per_label": False,
}
SETTINGS = {
    "output_std": 3.0,
    "output_centre": 1.0,
    "direction": "reverse",
    "noise_prior_std": 0.3,
    "gamma_per_label": False,
    "ncp_away": False,
}


@pytest.mark.parametrize(
    ("method", "name"),
    [
        (method, name)
        for method in ("ncp", "det+ncp", "bbb+ncp", "deep+ncp")
        for name in OF_THE_PRIOR
        if (method, name) != ("ncp", "gamma_per_label")  # which `ncp` never has
    ],
)
def test_arguments_of_a_prior_without_weight_are_refused(method, name):
    arguments = {name: OF_THE_PRIOR[name]}
    FitOptions.of(NCPRegressor(method, **arguments))
    for none in ({"gamma": 0}, {"settings": {"gamma": 0.0}}):
        with pytest.raises(UserError, match=f"{name} has no effect with gamma 0; leave it out"):
            FitOptions.of(NCPRegressor(method, **arguments, **none))


def gradients(settings: Settings) -> np.ndarray:
    """By all weights, of the loss of a mini batch."""
    method = make_method(Spec(settings, "bbb+ncp", None, None, groups=(), width=2, outputs=1, bins=0))
    rng = np.random.default_rng(0)
    inputs, targets = (jnp.asarray(rng.normal(size=(9, n)), jnp.float32) for n in (2, 1))
    batch = Batch(inputs, targets, jnp.ones(9), jnp.array(9.0))
    key = jax.random.key(0)
    network = method.init(2, 1, key=key)
    found = jax.grad(lambda one: method.loss(one, batch, key=key)[0])(network)
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(found)])


@pytest.mark.parametrize("name", [*SETTINGS, "input_noise_std"])
@pytest.mark.parametrize("tie", [0.0, 5.0])
def test_settings_are_refused_just_where_they_change_nothing(name, tie):
    value = SETTINGS.get(name, 0.7)
    base = dataclasses.replace(TABLES, hidden=(4,), gamma=0.0, noise_tie=tie)
    same = np.array_equal(gradients(base), gradients(dataclasses.replace(base, **{name: value})))
    arguments = {"input_scale": value} if name == "input_noise_std" else {}
    settings = {} if arguments else {name: value}
    model = NCPRegressor(
        "bbb+ncp", gamma=0.0, **arguments, settings={**settings, **({"noise_tie": tie} if tie else {})}
    )
    if same:
        with pytest.raises(UserError, match="has no effect with gamma 0"):
            FitOptions.of(model)
    else:
        assert tie
        FitOptions.of(model)


def test_the_classifier_has_a_prior_whatever_gamma():
    FitOptions.of(NCPRegressor("odc+ncp", output_scale=3.0, input_scale=0.7))


def test_evaluate_gives_the_variant_without_a_prior_no_arguments_of_one():
    config = evaluate.Config("t.csv", "y", "random", "", ("ncp", "no-ncp"), estimator={"output_scale": 3.0})
    found = {name: evaluate.network(config.estimator, name).output_scale for name in config.methods}
    assert found == {"ncp": 3.0, "no-ncp": 1.0}
