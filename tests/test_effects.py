"""Settings that are said to have no effect have none, and the others have one."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ncprior.core.effects import OF_CHOICE, TRAINING, Learned, why_same
from ncprior.core.methods import TITLES
from ncprior.core.objectives import Batch
from ncprior.core.settings import PAPER, REFERENCE, Settings
from ncprior.experiments.paper.learning_curves import Config
from ncprior.experiments.paper.toy import QUICK
from ncprior.tables.preset import TABLES
from test_options import OTHER

KEY = jax.random.key(0)


def other(settings, name):
    """Another value than that of these settings."""
    value = getattr(settings, name)
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return value / 2 + 0.3
    return next(one for one in (OTHER[name], getattr(PAPER, name), getattr(TABLES, name)) if one != value)


def numbers(name, settings):
    """Loss, prediction and chosen rows of a method as a function of a key."""
    method = Config("paper", settings, QUICK, (name,)).method(name)
    rng = np.random.default_rng(0)
    inputs, targets = (jnp.asarray(rng.normal(size=(9, n)), jnp.float32) for n in (2, 1))
    batch = Batch(inputs, targets, jnp.ones(9), jnp.array(9.0))

    def run(key):
        network = method.init(2, 1, key=key)
        prediction = method(network, inputs)
        chosen = method.acquisition(prediction, jnp.zeros(9, bool), 8, key=key)
        return method.loss(network, batch, key=key)[0], prediction.mean, prediction.std, chosen

    return run


def program(run):
    return re.sub("0x[0-9a-f]+", "", str(jax.make_jaxpr(run)(KEY)))


BASES = {
    "paper": PAPER,
    "reference": REFERENCE,
    "gamma 0": dataclasses.replace(REFERENCE, gamma=0.0),
    "tied": dataclasses.replace(PAPER, gamma=0.0, noise_tie=1.0),
    "gelu": dataclasses.replace(PAPER, activation="gelu"),
    "greedy": dataclasses.replace(PAPER, draw="greedy", weight_kl=0.0),
}


@pytest.mark.parametrize(
    ("name", "base"),
    [
        *((name, base) for name in TITLES for base in ("paper", "reference")),
        ("det+ncp", "gamma 0"),
        ("bbb+ncp", "gamma 0"),
        ("det+ncp", "tied"),
        ("bbb+ncp", "tied"),
        ("det", "gelu"),
        ("det", "greedy"),
        ("bbb", "greedy"),
        ("det@random", "reference"),
        ("bbb@uncertainty", "paper"),
        ("bbb+ncp@reverse", "paper"),
        ("bbb+ncp@weight_prior", "paper"),
    ],
)
def test_a_setting_has_an_effect_or_a_reason(name, base):
    base = dataclasses.replace(BASES[base], hidden=(4,))
    before = numbers(name, base)
    consists_of, gives = program(before), None
    for setting in sorted({field.name for field in dataclasses.fields(Settings)} - TRAINING):
        changed = dataclasses.replace(base, **{setting: other(base, setting)})
        assert changed != base
        why = Config("paper", changed, QUICK, (name,)).why_same(base)
        after = numbers(name, changed)
        if program(after) == consists_of:
            assert why, setting
        elif why:  # another way to the same numbers
            gives = gives or before(KEY)
            assert all(np.array_equal(a, b) for a, b in zip(gives, after(KEY), strict=True)), setting


def test_settings_of_training_are_used_by_every_method():
    for setting in TRAINING:
        changed = dataclasses.replace(PAPER, **{setting: OTHER[setting] if setting != "remainder" else "filled"})
        for name in TITLES:
            assert why_same([(Learned(name, changed), Learned(name, PAPER))]) is None


def test_a_setting_that_one_of_the_methods_uses_is_fine():
    changed = dataclasses.replace(REFERENCE, gamma=3.0)
    assert Config("reference", changed, QUICK, ("det", "bbb+ncp")).why_same(REFERENCE) is None
    assert Config("reference", changed, QUICK, ("det", "bbb")).why_same(REFERENCE) == "method 'det' and method 'bbb'"
    assert OF_CHOICE.isdisjoint(TRAINING)
