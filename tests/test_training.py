import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ncprior.core.methods import Method, methods, predict_normal
from ncprior.core.networks import Linear, Network, Noise, PointMean
from ncprior.core.objectives import NLL, Weighted
from ncprior.core.optimizers import adam
from ncprior.core.settings import PAPER, REFERENCE
from ncprior.core.training import (
    Clock,
    Rows,
    Trainer,
    combine,
    explain_failure,
    over_seeds,
    padded,
    seed_keys,
    seed_mesh,
    train_seeds,
)

SMALL = dataclasses.replace(PAPER, hidden=(8,), batch_size=4)


def rows(count=10, inputs=2):
    random = np.random.default_rng(0)
    x = random.normal(size=(count, inputs)).astype(np.float32)
    return Rows(jnp.asarray(x), jnp.asarray(x[:, :1] - 0.5 * x[:, 1:2]))


def trainer(settings=SMALL, name="bbb+ncp", optimizer=None):
    return Trainer(methods(settings)[name], optimizer or adam(1e-2), settings.batch_size, settings.remainder)


def learners(trainer, rows, seeds, labels=10):
    visible = jnp.arange(trainer.buffer(labels), dtype=jnp.int32) % len(rows.inputs)
    return jax.jit(jax.vmap(lambda key: trainer.start(rows, visible, key=key)))(seed_keys(seeds))


def first(trainer, rows, visible, seed=0):
    """One learner with the rows of these numbers."""
    start = jax.jit(lambda visible, key: trainer.start(rows, visible, key=key))
    return start(jnp.asarray(visible, jnp.int32), jax.random.key(seed))


def run(trainer, rows, seeds, epochs=5, labels=10, mesh=None):
    mesh = mesh or seed_mesh(len(seeds))
    static = trainer.static(rows.inputs.shape[1], 1)

    def program(many, rows, clock, epochs):
        return train_seeds(trainer, many, rows, static, clock=clock, epochs=epochs)

    start = learners(trainer, rows, padded(seeds, mesh), labels)
    return jax.jit(over_seeds(program, mesh))(start, rows, Clock(np.int32(0), np.int32(labels)), np.int32(epochs))


def test_one_epoch_is_the_same_as_steps_by_hand():
    """With one batch for each epoch and no noise, the loop is plain Adam on the whole data."""
    data = rows(4)
    engine = trainer(name="det")
    static = engine.static(2, 1)
    start = first(engine, data, np.arange(4), seed=3)
    done = jax.jit(lambda one: engine.train(one, data, static, Clock(0, 4), 3))(start)

    def loss(params):
        heads = jax.vmap(combine(params, static))(data.inputs)
        return -heads["mean"].expected_log_prob(data.targets, heads["noise"]).sum(-1).mean()

    @jax.jit
    def step(params, state):
        updates, state = engine.optimizer.update(jax.grad(loss)(params), state)
        return optax.apply_updates(params, updates), state

    params, state = start.params, engine.optimizer.init(start.params)
    for _ in range(3):
        params, state = step(params, state)
    for a, b in zip(jax.tree.leaves(done.params), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(("remainder", "sizes"), [("dropped", [4, 4]), ("smaller", [4, 4, 2]), ("filled", [4, 4, 4])])
def test_an_epoch_sees_every_visible_row(remainder, sizes):
    """With a loss that is the row's own number, the recorded terms tell which rows an epoch used."""
    data = Rows(jnp.zeros((10, 1)), jnp.arange(10.0)[:, None])
    seen = []

    def spy(view):
        jax.debug.callback(
            lambda y, w: seen.append((np.array(y), np.array(w))), view.batch.targets[:, 0], view.batch.weights
        )
        return view.clean["mean"].mean[:, 0] * 0

    base = methods(SMALL)["det"]
    method = dataclasses.replace(base, objective={"spy": Weighted(1.0, spy)})
    engine = Trainer(method, adam(1e-3), 4, remainder)
    start = first(engine, data, np.arange(12) % 10)
    jax.block_until_ready(engine.train(start, data, engine.static(1, 1), Clock(0, 10), 1))
    jax.effects_barrier()
    batches = [y[w > 0] for y, w in seen]
    assert sorted(map(len, batches), reverse=True) == sizes
    assert all(len(batch) == len(set(batch)) for batch in batches)
    assert len(set(np.concatenate(batches))) == min(10, sum(sizes))


def test_a_batch_that_all_rows_do_not_fill_is_smaller_in_any_case():
    data = rows(10)
    done = [
        run(trainer(dataclasses.replace(SMALL, remainder=one)), data, [0], labels=3) for one in ("smaller", "filled")
    ]
    for a, b in zip(*(jax.tree.leaves(one.params) for one in done), strict=True):
        np.testing.assert_array_equal(a, b)


def test_rows_beyond_the_visible_ones_never_matter():
    data = rows(10)
    spoiled = Rows(data.inputs.at[6:].set(jnp.nan), data.targets.at[6:].set(jnp.nan))
    a, b = (run(trainer(), part, [0], labels=6) for part in (data, spoiled))
    for x, y in zip(jax.tree.leaves(a.params), jax.tree.leaves(b.params), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("hidden", [(8,), (128, 128)], ids=["together", "one after the other"])
def test_a_seed_does_not_depend_on_other_seeds_or_devices(hidden):
    """Bit for bit: seed 2 alone on one device, and among five on two, which have three each."""
    engine = trainer(dataclasses.replace(SMALL, hidden=hidden))
    data = rows()
    one_device = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("seeds",))
    alone = run(engine, data, [2], mesh=one_device)
    spread = run(engine, data, [0, 1, 2, 3, 4])
    assert seed_mesh(5).size == 2
    for a, b in zip(*(jax.tree.leaves(x.params) for x in (alone, spread)), strict=True):
        np.testing.assert_array_equal(a[0], b[2])


def test_stretches_add_up():
    """Ten epochs at once are the same as four and then six."""
    engine, data = trainer(), rows()
    static = engine.static(2, 1)
    train = jax.jit(lambda one, epoch, epochs: engine.train(one, data, static, Clock(epoch, 10), epochs))
    start = first(engine, data, np.arange(12) % 10)
    whole = train(start, 0, 10)
    parts = train(train(start, 0, 4), 4, 6)
    for a, b in zip(jax.tree.leaves(whole.params), jax.tree.leaves(parts.params), strict=True):
        np.testing.assert_array_equal(a, b)


def test_terms_are_recorded_by_name():
    engine = trainer(dataclasses.replace(REFERENCE, hidden=(8,), batch_size=4))
    done = run(engine, rows(), [0, 1])
    assert set(done.terms) == {"nll", "ncp", "noise_ncp"}
    assert all(value.shape == (2,) and np.isfinite(value).all() for value in done.terms.values())


def test_a_loss_that_is_not_finite_stops_only_its_seed():
    def init(inputs, outputs, *, key):
        # Seed 1 begins with weights that overflow in the first step.
        keys = jax.random.split(key, 2)
        bad = jnp.all(jax.random.key_data(key) == jax.random.key_data(poisoned))
        linear = Linear.init(inputs, outputs, key=keys[0])
        linear = eqx.tree_at(lambda part: part.kernel, linear, linear.kernel * jnp.where(bad, 1e38, 1.0))
        return Network(lambda x: x, {"mean": PointMean(linear), "noise": Noise.init(inputs, outputs, key=keys[1])})

    poisoned = jax.random.split(seed_keys([1])[0])[0]
    method = Method(
        "mine",
        init,
        {"fine": Weighted(1.0, lambda view: view.batch.weights), "nll": Weighted(1.0, NLL())},
        predict_normal,
    )
    done = run(Trainer(method, adam(1e-2), 4), rows(), [0, 1, 2])
    failed = np.asarray(done.failed)[:3]
    np.testing.assert_array_equal(failed, [-1, 0, -1])
    assert all(np.isfinite(np.asarray(leaf)[[0, 2]]).all() for leaf in jax.tree.leaves(done.params))
    assert explain_failure(method, 0, int(done.nonfinite_terms[1])) == "the loss was not finite in epoch 0 (term nll)"


def test_any_function_can_be_a_trunk():
    def init(inputs, outputs, *, key):
        keys = jax.random.split(key, 2)
        heads = {
            "mean": PointMean.init(inputs, outputs, key=keys[0]),
            "noise": Noise.init(inputs, outputs, key=keys[1]),
        }
        return Network(jnp.sin, heads)

    method = Method("mine", init, {"nll": Weighted(1.0, NLL())}, predict_normal)
    done = run(Trainer(method, optax.sgd(1e-2), 4), rows(), [0, 1], epochs=50)
    assert np.all(np.asarray(done.failed) < 0)


def test_training_learns():
    engine, data = trainer(name="det"), rows(10)
    start, done = run(engine, data, [0], epochs=1), run(engine, data, [0], epochs=200)
    assert float(done.terms["nll"][0]) < float(start.terms["nll"][0]) - 1


def test_seed_keys_are_independent_of_the_list():
    raw = partial(jax.random.key_data)
    np.testing.assert_array_equal(raw(seed_keys([7]))[0], raw(seed_keys([3, 7]))[1])
