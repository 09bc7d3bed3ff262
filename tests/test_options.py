"""Arguments and settings of the estimator: each changes what it says it changes, or is refused."""

import dataclasses
import inspect
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

from ncprior import NCPRegressor
from ncprior.core.effects import USED
from ncprior.core.input_priors import Gaussian
from ncprior.core.methods import methods
from ncprior.core.objectives import Batch
from ncprior.core.settings import Settings
from ncprior.data.encoding import Encoder
from ncprior.errors import UserError
from ncprior.experiments import evaluate
from ncprior.tables.input_features import principal_components
from ncprior.tables.options import FitOptions
from ncprior.tables.preset import TABLES
from ncprior.tables.programs import Engine, Spec, make_method
from ncprior.tables.recipe import contrast_spec, make_input_prior, make_spec, number_columns

KEY = jax.random.key(0)


def settings_of(model, rows):
    """The settings that an estimator's parameters stand for."""
    return FitOptions.of(model).settings_for(rows)


def collinear(rows=4000):
    """Three columns: two that go together and one that has little to do with them."""
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=(3, rows))
    return pa.table({"x0": a, "x1": a + 0.05 * b, "x2": 0.3 * a + c})


@pytest.mark.parametrize("prior", ["gaussian", "radial", "uniform"])
@pytest.mark.parametrize(
    "scale",
    [
        2.0,
        0.5,
        {"x0": 0, "x1": 2},
        {"x0": 0.1, "x1": 3.0, "x2": 1.0},
        {"x2": 0.0},
        dict.fromkeys(["x0", "x1", "x2"], 0),
    ],
)
def test_noise_has_the_scale_of_its_column(scale, prior):
    table = collinear()
    encoder = Encoder.fit(table)
    inputs = encoder.transform(table)
    columns = inputs[:, number_columns(encoder.groups)]
    options, method = FitOptions(input_scale=scale, input_prior=prior), SimpleNamespace(input_prior=prior)
    noised = make_input_prior(options, method, encoder, principal_components(columns), len(columns))
    noise = np.asarray(noised(jnp.asarray(inputs), key=KEY) - inputs)[:, :3]
    wanted = np.array([scale.get(name, 2.0) if isinstance(scale, dict) else scale for name in table.column_names])
    np.testing.assert_array_equal(noise[:, wanted == 0], 0)
    # The uniform noise of scale s fills 2 s on both sides.
    factor = 2 / np.sqrt(3) if prior == "uniform" else 1.0
    np.testing.assert_allclose(noise.std(0), factor * wanted, rtol=0.08)


def wave(rows=60):
    x = np.random.default_rng(0).uniform(-2, 2, rows)
    return x[:, None], np.sin(2 * x)


@pytest.mark.parametrize(
    ("rows", "arguments", "left"),
    [(30, {"epochs": 2}, 30), (80, {"batch_size": 64}, 48), (15, {"batch_size": 16}, 15)],
    ids=["all rows", "rows that are not held out", "too few to search"],
)
def test_dropped_rows_that_would_never_train_are_refused(rows, arguments, left):
    model = NCPRegressor(members=2, hidden=(4,), settings={"remainder": "dropped"}, random_state=0, **arguments)
    with pytest.raises(UserError, match=f"{left} rows to train on do not fill a mini batch of"):
        model.fit(*wave(rows))


def test_steps_that_dropped_rows_train_for_change_the_networks():
    X, y = wave(20)
    arguments = {
        "members": 1,
        "hidden": (4,),
        "batch_size": 16,
        "settings": {"remainder": "dropped"},
        "random_state": 0,
    }
    few, more = (NCPRegressor(epochs=epochs, **arguments).fit(X, y) for epochs in (1, 8))
    assert (few.steps_, more.steps_) == ((2,), (10,))
    assert (few.predict(X) != more.predict(X)).all()
    with pytest.raises(UserError, match="5 rows to train on do not fill a mini batch of 16"):
        more.partial_fit(X[:5], y[:5])


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        (
            "bbb+ncp",
            [
                {"gamma": 3},
                {"learning_rate": 0.01},
                {"output_scale": 2.0},
                {"settings": {"noise_tie": 2}},
                {"settings": {"ncp_weight_kl": 2.0}},
                {"settings": {"weight_prior_std": 0.5}},
            ],
        ),
        ("bbb", [{"settings": {"weight_kl": 3.0}}]),
    ],
)
def test_numbers_are_arguments_of_programs(method, changes, compiled):
    """Other values compile nothing, and give what a program that was compiled with them alone gives."""
    X, y = wave()

    def train(change):
        model = NCPRegressor(method, members=1, hidden=(4,), epochs=60, random_state=0, **change)
        return model.fit(X, y).predict_distribution(X).std

    default = train({})
    del compiled[:]
    found = [train(change) for change in changes]
    assert not compiled
    assert len({tuple(std) for std in [default, *found]}) == len(found) + 1
    Engine.clear_cache()
    np.testing.assert_array_equal(train(changes[0]), found[0])


OTHER = {
    "hidden": (3,),
    "learning_rate": 0.1,
    "batch_size": 7,
    "activation": "leaky_relu",
    "leaky_slope": 0.5,
    "noise_floor": 0.5,
    "belief_std": 0.3,
    "bias_belief": False,
    "expectation": "sampled",
    "weight_prior_std": 0.5,
    "weight_kl": 3.0,
    "ncp_weight_kl": 3.0,
    "input_noise": "uniform",
    "input_noise_std": 0.7,
    "gamma": 3.0,
    "gamma_per_label": False,
    "ncp_away": False,
    "noise_tie": 1.0,
    "output_std": 3.0,
    "output_centre": 1.0,
    "direction": "reverse",
    "noise_prior_std": 0.3,
    "odc_noised_nll": True,
    "odc_prediction": "blend",
    "gain_exponent": 1.0,
    "det_score": "predictive_std",
    "temperature": 0.1,
    "draw": "greedy",
    "clip": 1e-3,
    "epsilon_hat": True,
    "remainder": "smaller",
}
"""Another value of every setting than that of tables."""

BESIDE = {"leaky_slope": {"activation": "leaky_relu"}}
"""Settings that have an effect only beside another one."""

ELSEWHERE = {
    "input_noise": "input_prior",
    "input_noise_std": "input_scale",
    "temperature": "suggest",
    "gain_exponent": "suggest",
    "det_score": "suggest",
    "draw": "suggest",
}
"""Settings that are refused with any method, and what the line names instead."""


SMALL = {"members": 1, "hidden": (4,), "epochs": 1, "random_state": 0}
TRAINING = {"learning_rate", "batch_size", "clip", "epsilon_hat", "remainder"}


def outcome(method, settings):
    """What settings could change of a method: the loss of a mini batch, and the prediction of its rows, by a key."""
    parts = make_method(Spec(settings, method, None, None, groups=(), width=2, outputs=1, bins=0))
    rng = np.random.default_rng(0)
    inputs, targets = (jnp.asarray(rng.normal(size=(9, n)), jnp.float32) for n in (2, 1))
    batch = Batch(inputs, targets, jnp.ones(9), jnp.array(9.0))

    def run(key):
        network = parts.init(2, 1, key=key)
        prediction = parts(network, inputs)
        return parts.loss(network, batch, key=key)[0], prediction.mean, prediction.std

    return run


def program(run):
    """What a function of a key consists of, without computing it."""
    return re.sub("0x[0-9a-f]+", "", str(jax.make_jaxpr(run)(KEY)))


OF_CONTRAST = {"gamma", "output_std"}
"""Settings of the contrast networks."""


def of_contrast(model):
    """What the contrast networks of an estimator are given."""
    options = FitOptions.of(model)
    return options.contrast_settings, options.contrast_scale


@pytest.mark.parametrize("method", USED)
def test_every_setting_has_an_effect_or_is_refused(method):
    base = dataclasses.replace(TABLES, hidden=(4,))
    before = outcome(method, base)
    consists_of = program(before)
    assert set(OTHER) == {field.name for field in dataclasses.fields(Settings)}
    for name, value in OTHER.items():
        assert getattr(TABLES, name) != value
        beside = BESIDE.get(name, {})
        model = NCPRegressor(method, settings={**beside, name: value})
        if name in ELSEWHERE:
            with pytest.raises(UserError, match=f"settings: {name} is .*{ELSEWHERE[name]}"):
                settings_of(model, 100)
            continue
        if name in USED[method]:
            assert getattr(settings_of(model, 100), name) == value
        else:
            with pytest.raises(UserError, match=f"settings: {name} has no effect with method '{re.escape(method)}'"):
                settings_of(model, 100)
        if method == "ncp" and name in OF_CONTRAST:
            assert of_contrast(model) != of_contrast(NCPRegressor(method))
        elif name not in TRAINING:
            after = outcome(method, dataclasses.replace(base, **beside, **{name: value}))
            same = program(after) == (
                program(outcome(method, dataclasses.replace(base, **beside))) if beside else consists_of
            )
            if name not in USED[method] and not same:  # another way to the same numbers
                same = all(np.array_equal(a, b) for a, b in zip(before(KEY), after(KEY), strict=True))
            assert same != (name in USED[method]), name


def test_the_slope_of_leaky_units_is_refused_where_there_are_none():
    with pytest.raises(UserError, match="settings: leaky_slope has no effect with activation 'gelu'"):
        settings_of(NCPRegressor(settings={"leaky_slope": 0.5}), 100)


def test_settings_of_training_change_it():
    def trainer(settings):
        return Engine(Spec(settings, "det", None, None, groups=(), width=2, outputs=1, bins=0)).ensemble.trainer

    def update(trainer):
        params = jnp.ones(3)
        # Far smaller than Adam's epsilon, and far larger than any limit.
        updates = [
            trainer.optimizer.update(size * params, trainer.optimizer.init(params), params) for size in (1e-9, 1e3)
        ]
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(updates)])

    base = dataclasses.replace(TABLES, hidden=(4,))
    before = trainer(base)
    for name in TRAINING:
        after = trainer(dataclasses.replace(base, **{name: OTHER[name]}))
        same = (after.batch_size, after.remainder) == (before.batch_size, before.remainder)
        assert not (same and np.array_equal(update(after), update(before))), name


ARGUMENTS = {
    "hidden": (3,),
    "learning_rate": 0.1,
    "batch_size": 7,
    "gamma": 3.0,
    "gamma_per_label": False,
    "input_prior": "uniform",
    "input_scale": 0.7,
    "output_scale": 3.0,
    "flip": 0.5,
    "trunk": lambda inputs, *, key: lambda x: jnp.tanh(x),  # noqa: ARG005
    "members": 3,
    "min_rows": 1,
    "epochs": 5,
    "early_stopping": False,
    "validation_fraction": 0.2,
    "conformal_fraction": 0.2,
    "warm_start": True,
    "random_state": 3,
    "verbose": True,
}
"""Another value of every argument."""

OF_THE_PRIOR = {"input_prior", "input_scale", "flip"}
IDLE = {
    "det": {"gamma", "gamma_per_label", "output_scale"} | OF_THE_PRIOR,
    "bbb": {"gamma", "gamma_per_label", "output_scale"} | OF_THE_PRIOR,
    "odc+ncp": {"gamma", "gamma_per_label"},
    "ncp": {"gamma_per_label"},
}
"""Arguments that mean nothing to a method; the paper's classifier has no weight on its prior (Equation 9)."""


@pytest.mark.parametrize("method", USED)
def test_every_argument_has_an_effect_or_is_refused(method):
    known = set(inspect.signature(NCPRegressor).parameters)
    assert known == set(ARGUMENTS) | {"method", "settings", "callbacks"}
    table = collinear(50)
    encoder = Encoder.fit(table)
    inputs = encoder.transform(table)

    def noise(model):
        components = principal_components(inputs[:, :3])
        prior = make_input_prior(FitOptions.of(model), make_method(spec(model)), encoder, components, len(inputs))
        return None if prior is None else prior(jnp.asarray(inputs), key=KEY)

    def spec(model):
        prior = FitOptions.of(model).own_input_prior
        if model.method == "ncp":
            members = make_spec(FitOptions.of(model), encoder, rows=100, outputs=1)
            return contrast_spec(FitOptions.of(model), members)
        return Spec(settings_of(model, 100), model.method, model.trunk, prior, groups=(), width=2, outputs=1, bins=0)

    plain = NCPRegressor(method)
    for name, value in ARGUMENTS.items():
        model = NCPRegressor(method, **{name: value})
        if name in IDLE.get(method, ()):
            with pytest.raises(UserError, match=f"^{name} has no effect with method '{re.escape(method)}'; leave it"):
                settings_of(model, 100)
        elif name in OF_THE_PRIOR:
            assert not np.array_equal(noise(model), noise(plain))
        elif name in ("hidden", "learning_rate", "batch_size", "gamma", "gamma_per_label", "output_scale"):
            assert settings_of(model, 100) != settings_of(plain, 100)
        elif name == "trunk":
            own = make_spec(FitOptions.of(model), encoder, rows=100, outputs=1)
            assert make_method(own).init(own.width, 1, key=KEY).trunk is not None
        else:
            settings_of(model, 100)


def test_options_have_the_defaults_of_the_estimator():
    parameters = NCPRegressor().get_params()
    options = {field.name: getattr(FitOptions(), field.name) for field in dataclasses.fields(FitOptions)}
    assert set(parameters) - set(options) == {"random_state", "verbose", "callbacks"}
    assert options == {name: parameters[name] for name in options}


def test_arguments_beside_ones_own_parts():
    own, trunk, prior = methods(TABLES)["bbb+ncp"], ARGUMENTS["trunk"], Gaussian(0.5)
    for name in ("gamma", "gamma_per_label", "output_scale", "hidden", "input_prior", "input_scale", "flip", "trunk"):
        with pytest.raises(UserError, match=f"{name} has no effect with a Method of your own"):
            settings_of(NCPRegressor(own, **{name: ARGUMENTS[name]}), 100)
    for name in set(OTHER) - set(ELSEWHERE) - TRAINING:
        with pytest.raises(UserError, match=f"settings: {name} has no effect with a Method of your own"):
            settings_of(NCPRegressor(own, settings={name: OTHER[name]}), 100)
    for name in ("learning_rate", "batch_size"):
        assert getattr(settings_of(NCPRegressor(own, **{name: OTHER[name]}), 100), name) == OTHER[name]
    settings_of(NCPRegressor(own, input_prior=prior), 100)
    with pytest.raises(UserError, match="input_prior has no effect"):  # on a method that noises nothing
        settings_of(NCPRegressor(methods(TABLES)["bbb"], input_prior=prior), 100)
    with pytest.raises(UserError, match="hidden has no effect with a trunk of your own"):
        settings_of(NCPRegressor(trunk=trunk, hidden=(8,)), 100)
    assert settings_of(NCPRegressor("deep+ncp", trunk=trunk, hidden=(8,)), 100).hidden == (8,)
    for name in ("input_scale", "flip"):
        with pytest.raises(UserError, match=f"{name} has no effect with an input_prior of your own"):
            settings_of(NCPRegressor(input_prior=prior, **{name: ARGUMENTS[name]}), 100)


def test_what_is_given_twice_must_agree():
    for argument, setting in (("gamma", "gamma"), ("output_scale", "output_std"), ("hidden", "hidden")):
        value = ARGUMENTS[argument]
        agreed = NCPRegressor(**{argument: value}, settings={setting: value})
        assert getattr(settings_of(agreed, 100), setting) == value
        other = (9,) if argument == "hidden" else 9.0
        with pytest.raises(UserError, match=f"{argument} is .*, and .* as {setting} in settings; give one of them"):
            settings_of(NCPRegressor(**{argument: value}, settings={setting: other}), 100)
    assert settings_of(NCPRegressor(hidden=(8,), settings={"hidden": [8]}), 100).hidden == (8,)


def test_arguments_of_evaluate_are_for_the_networks_that_have_a_use_for_them():
    config = evaluate.Config(
        "t.csv", "y", "random", "", ("ncp", "det", "no-ncp"), estimator={"gamma": 3.0, "members": 2}
    )
    found = {name: evaluate.network(config.estimator, name) for name in config.methods}
    assert {name: model.gamma for name, model in found.items()} == {"ncp": 3.0, "det": None, "no-ncp": 0.0}
    assert {model.members for model in found.values()} == {2}
    for model in found.values():
        assert not FitOptions.of(model, check_effects=False).without_effect()
    with pytest.raises(UserError, match="gamma has no effect on any of det, bbb, linear"):
        dataclasses.replace(config, methods=("det", "bbb", "linear"))


def test_subclasses_with_arguments_of_their_own():
    class Mine(NCPRegressor):
        def __init__(self, members=2, random_state=None):
            super().__init__("bbb", members=members, epochs=1, hidden=(4,), random_state=random_state)

    assert Mine(random_state=0).fit(np.arange(8.0)[:, None], np.arange(8.0)).steps_ == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"validation_fraction": 0.2, "epochs": 2}, "a number of epochs"),
        ({"validation_fraction": 0.2, "early_stopping": False}, "early_stopping=False"),
        ({"method": "odc+ncp", "output_scale": 5.0, "settings": {"odc_prediction": "blend"}}, "odc_prediction 'blend'"),
        ({"method": "bbb+ncp", "settings": {"weight_prior_std": 0.3, "ncp_weight_kl": 0.0}}, "ncp_weight_kl 0"),
        ({"method": "bbb", "settings": {"weight_prior_std": 0.3, "weight_kl": 0.0}}, "weight_kl 0"),
    ],
)
def test_arguments_without_effect_beside_others_are_refused(arguments, why):
    with pytest.raises(UserError, match=f"has no effect with {why}"):
        FitOptions.of(NCPRegressor(**arguments))


def test_weights_that_leave_hardly_a_row_are_refused():
    inputs = np.arange(20.0)[:, None]
    with pytest.raises(UserError, match="20 samples whose weights make them worth 1 of equal weight"):
        NCPRegressor(members=1, epochs=1).fit(inputs, inputs[:, 0], sample_weight=np.r_[1e6, np.full(19, 0.5)])


def test_rows_that_count_several_times_are_no_more_rows():
    with pytest.raises(UserError, match="nothing can be learned from 2 samples with a target"):
        NCPRegressor(members=1, epochs=1).fit([[0.0], [1.0]], [0.0, 4.0], sample_weight=[5, 5])
