"""Adam as in the released code, with clipping and TensorFlow's epsilon; warm-up; averaged weights.

Any `optax.GradientTransformation` can be used in its stead. This Adam exists for two reasons. TensorFlow adds epsilon
to the root of the *uncorrected* second moment ("epsilon hat" in Kingma and Ba, 2015), which Optax cannot express.
And clipping by the global norm costs a sixth of a step of the paper's toy network when XLA reduces a gradient to a
scalar in one go; summing it in columns first is several times faster.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Float, PyTree, Scalar


class AdamState(NamedTuple):
    """Steps taken, and the running means of the gradients and of their squares."""

    steps: Scalar
    first: PyTree[Float[Array, "..."]]
    second: PyTree[Float[Array, "..."]]


def sum_of_squares(x: Float[Array, "..."]) -> Scalar:
    """``sum(x^2)``. Large arrays are summed by columns first, which is faster.

    >>> float(sum_of_squares(jnp.array([3.0, 4.0])))
    25.0
    """
    squares = x * x
    for width in (1024, 1000, 800, 512, 400, 256):
        if x.size >= 8 * width and x.size % width == 0:
            # The barrier keeps XLA from merging the two sums into one slow one.
            return jnp.sum(jax.lax.optimization_barrier(jnp.sum(squares.reshape(-1, width), axis=0)))
    return jnp.sum(squares)


def global_norm(grads: PyTree[Float[Array, "..."]]) -> Scalar:
    """Euclidean norm of all gradients as one vector."""
    return jnp.sqrt(sum((sum_of_squares(leaf) for leaf in jax.tree.leaves(grads)), jnp.zeros(())))


def adam(
    learning_rate: float | Scalar,
    *,
    clip: float | None = None,
    norm: Callable[[PyTree[Float[Array, "..."]]], Scalar] = global_norm,
    epsilon_hat: bool = True,
    b1: float = 0.9,
    b2: float = 0.999,
    epsilon: float = 1e-8,
) -> optax.GradientTransformation:
    """Adam (Kingma and Ba, 2015), with gradients clipped to a ``norm`` of at most ``clip`` if given.

    ``epsilon_hat`` is TensorFlow's form, ``m / (sqrt(v) + epsilon)`` with the bias corrections in the learning rate;
    without it the update is that of `optax.adam`.
    """

    def init(params: optax.Params) -> AdamState:
        # Two separate trees of zeros: a buffer that stands twice in the state cannot be donated.
        zeros = [jax.tree.map(jnp.zeros_like, params) for _ in range(2)]
        return AdamState(jnp.zeros((), jnp.int32), *zeros)

    def update(
        grads: optax.Updates, state: optax.OptState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.OptState]:
        del params
        assert isinstance(state, AdamState)
        shrink: float | Scalar = 1.0
        if clip is not None:
            shrink = jnp.minimum(1.0, clip / jnp.maximum(norm(grads), 1e-30))
        steps = state.steps + 1
        time = steps.astype(jnp.float32)
        root = jnp.sqrt(1 - b2**time)
        rate = learning_rate * root / (1 - b1**time)
        floor = epsilon if epsilon_hat else epsilon * root
        # Shrinking in the factors: no array of shrunk gradients, or of their squares, that several sums would share.
        one, two = (1 - b1) * shrink, (1 - b2) ** 0.5 * shrink
        first = jax.tree.map(lambda m, g: b1 * m + one * g, state.first, grads)
        second = jax.tree.map(lambda v, g: b2 * v + (two * g) ** 2, state.second, grads)
        updates = jax.tree.map(lambda m, v: -rate * m / (jnp.sqrt(v) + floor), first, second)
        return updates, AdamState(steps, first, second)

    return optax.GradientTransformation(init, update)


def adam_of_state(learning_rate: float, *, clip: float | None, epsilon_hat: bool) -> optax.GradientTransformation:
    """`adam` whose learning rate is part of its state, under this name, where it can be set without compiling again."""
    injected = optax.inject_hyperparams(adam, static_args=("clip", "norm", "epsilon_hat", "b1", "b2", "epsilon"))
    return injected(learning_rate=learning_rate, clip=clip, epsilon_hat=epsilon_hat)


class AveragedState(NamedTuple):
    """State of the inner optimiser, number of steps, and the average of the weights."""

    inner: optax.OptState
    steps: Scalar
    average: PyTree[Float[Array, "..."]]


def averaged(inner: optax.GradientTransformation, share: float = 0.1) -> optax.GradientTransformation:
    """An optimiser that also keeps the average of the weights over about the last ``share`` of its steps.

    The average does what a falling learning rate would, and training can stop after any step (Polyak and Juditsky,
    1992).
    """

    def init(params: optax.Params) -> AveragedState:
        return AveragedState(inner.init(params), jnp.zeros((), jnp.int32), jax.tree.map(jnp.copy, params))

    def update(
        grads: optax.Updates, state: optax.OptState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.OptState]:
        assert isinstance(state, AveragedState)
        updates, after = inner.update(grads, state.inner, params)
        steps = state.steps + 1
        rate = 1 / jnp.maximum(1.0, share * steps)
        weights = optax.apply_updates(params, updates)
        average = jax.tree.map(lambda mean, new: mean + rate * (new - mean), state.average, weights)
        return updates, AveragedState(after, steps, average)

    return optax.GradientTransformation(init, update)


def warmed_up(inner: optax.GradientTransformation, steps: int) -> optax.GradientTransformation:
    """An optimiser with linear warm-up: the learning rate rises from 0 to its value over the first ``steps``."""
    if not steps:
        return inner
    return optax.chain(inner, optax.scale_by_schedule(lambda step: jnp.minimum(1.0, (step + 1) / steps)))
