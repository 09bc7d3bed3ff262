"""Adam: the same as Optax where it should be, the formula by hand where it should not."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ncprior.core.optimizers import adam, sum_of_squares

RATE = 0.01
STEPS = 6


def gradients(scale=1.0):
    """Gradients of six steps, which grow and change their signs, for a network of two arrays."""
    rng = np.random.default_rng(0)
    growth = scale * 2.0 ** np.arange(STEPS)[:, None, None]
    first, second = growth * rng.normal(size=(STEPS, 8, 200)), growth * rng.normal(size=(STEPS, 1, 3))
    return {"kernel": jnp.asarray(first, jnp.float32), "bias": jnp.asarray(second, jnp.float32)}


@partial(jax.jit, static_argnames=("kind", "clipped"))
def updates(kind, grads, epsilon, clip, clipped):
    if kind == "optax":
        optimizer = optax.adam(RATE, eps=epsilon)
        optimizer = optax.chain(optax.clip_by_global_norm(clip), optimizer) if clipped else optimizer
    else:
        optimizer = adam(RATE, clip=clip if clipped else None, epsilon_hat=kind == "hat", epsilon=epsilon)
    state = optimizer.init(jax.tree.map(lambda leaf: leaf[0], grads))
    return jax.lax.scan(lambda state, grad: optimizer.update(grad, state)[::-1], state, grads)[1]


def run(kind, grads, *, epsilon=1e-8, clip=None):
    """The updates of all steps: of ``optax``, or of ours with epsilon ``plain`` or ``hat``."""
    return jax.device_get(updates(kind, grads, epsilon, clip or 0.0, clip is not None))


def by_hand(grads, *, clip=np.inf, epsilon=1e-8, hat):
    """Kingma and Ba's Algorithm 1, or its variant with epsilon hat, in float64."""
    grads = {name: np.float64(leaf) for name, leaf in grads.items()}
    norms = np.sqrt(sum((leaf**2).sum((1, 2)) for leaf in grads.values()))
    factors = np.minimum(1, clip / norms)[:, None, None]
    updates = {}
    for name, leaf in grads.items():
        m, v, steps = 0.0, 0.0, []
        for t, g in enumerate(factors * leaf, start=1):
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            if hat:
                rate = RATE * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
                steps.append(-rate * m / (np.sqrt(v) + epsilon))
            else:
                steps.append(-RATE * m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + epsilon))
        updates[name] = np.stack(steps)
    return updates


def assert_same(found, expected):
    for name, leaf in expected.items():
        np.testing.assert_allclose(found[name], leaf, rtol=1e-4, atol=1e-7 * RATE)


@pytest.mark.parametrize("epsilon", [1e-8, 0.1])
def test_without_epsilon_hat_it_is_adam(epsilon):
    found = run("plain", gradients(), epsilon=epsilon)
    assert_same(found, run("optax", gradients(), epsilon=epsilon))
    assert_same(found, by_hand(gradients(), epsilon=epsilon, hat=False))


@pytest.mark.parametrize("epsilon", [1e-8, 0.1])
def test_epsilon_hat_is_added_to_the_uncorrected_root(epsilon):
    found = run("hat", gradients(), epsilon=epsilon)
    assert_same(found, by_hand(gradients(), epsilon=epsilon, hat=True))
    if epsilon == 0.1:
        # In the first step the corrected moments are g and g^2, the uncorrected root is |g| sqrt(0.001).
        g = np.float64(gradients()["bias"][0])
        expected = -RATE * g / (np.abs(g) + epsilon / np.sqrt(0.001))
        np.testing.assert_allclose(found["bias"][0], expected, rtol=1e-4)


@pytest.mark.parametrize("kind", ["plain", "hat"])
def test_first_step_has_the_size_of_the_learning_rate(kind):
    # Whatever the size of the gradient: that is what Adam is for.
    found = run(kind, gradients(scale=100.0))["kernel"][0]
    np.testing.assert_allclose(np.abs(found), RATE, rtol=1e-3)


def test_clipping_is_that_of_optax():
    # The norm of the gradients is about 40, 80, ..., so that the first steps are below 100 and the rest above.
    found = run("plain", gradients(), clip=100.0)
    assert_same(found, run("optax", gradients(), clip=100.0))
    assert_same(found, by_hand(gradients(), clip=100.0, hat=False))
    unclipped = run("plain", gradients())
    np.testing.assert_allclose(found["bias"][:2], unclipped["bias"][:2], rtol=1e-5)
    assert np.abs(found["bias"][-1] - unclipped["bias"][-1]).max() > 1e-4


def test_epsilon_hat_is_what_one_gets_without_asking():
    grads = {"a": jnp.full(2, 1e-8)}
    first, second = (
        optimizer.update(grads, optimizer.init(grads))[0]["a"]
        for optimizer in (adam(RATE), adam(RATE, epsilon_hat=True))
    )
    np.testing.assert_array_equal(first, second)


def test_clipped_moments_are_those_of_the_clipped_gradient():
    grads = {"a": jnp.array([30.0, 40.0]), "b": jnp.array([[120.0]])}
    optimizer = adam(RATE, clip=13.0)
    _, state = optimizer.update(grads, optimizer.init(grads))
    # The norm is 130: a tenth of the gradient is left, and a tenth of that is the first moment.
    np.testing.assert_allclose(state.first["a"], [0.3, 0.4], rtol=1e-5)
    np.testing.assert_allclose(state.first["b"], [[1.2]], rtol=1e-5)
    np.testing.assert_allclose(state.second["b"], [[0.144]], rtol=1e-5)
    assert int(state.steps) == 1


@pytest.mark.parametrize("epsilon_hat", [False, True])
def test_no_gradient_is_no_step(epsilon_hat):
    grads = {"a": jnp.zeros(3)}
    optimizer = adam(RATE, clip=1.0, epsilon_hat=epsilon_hat)
    updates, state = optimizer.update(grads, optimizer.init(grads))
    np.testing.assert_array_equal(updates["a"], np.zeros(3))
    np.testing.assert_array_equal(state.second["a"], np.zeros(3))


def test_the_moments_do_not_share_a_buffer():
    state = adam(RATE).init({"a": jnp.ones(3)})
    assert state.first["a"] is not state.second["a"]
    assert state.first["a"].unsafe_buffer_pointer() != state.second["a"].unsafe_buffer_pointer()


# For every width of column one size that it divides and no wider one does, then sizes without a fast path.
@pytest.mark.parametrize(
    "shape", [(64, 128), (200, 200), (9, 800), (9, 512), (9, 400), (9, 256), (50, 50), (200,), (3, 7, 1), ()]
)
def test_sum_of_squares_is_the_plain_sum(shape):
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    found = sum_of_squares(jnp.asarray(x))
    assert found.shape == ()
    np.testing.assert_allclose(found, np.sum(np.float64(x) ** 2), rtol=1e-5)


def test_sum_of_squares_can_be_batched():
    x = np.random.default_rng(1).normal(size=(3, 200, 200)).astype(np.float32)
    found = jax.vmap(sum_of_squares)(jnp.asarray(x))
    np.testing.assert_allclose(found, np.sum(np.float64(x) ** 2, axis=(1, 2)), rtol=1e-5)
