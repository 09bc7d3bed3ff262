"""Quantiles of mixtures of normals, which have no closed form."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import ndtri
from jaxtyping import Bool, Float, Int

_ITERATIONS = 64
"""Iterations, at most. Each of them halves the error, or is followed by one that halves the bracket, so that one of the
two is then below the precision of float32."""

_PRECISION = 2e-6
"""Accepted error of a quantile, in standard deviations of a normal with the same slope."""


class _Search(NamedTuple):
    """A bracket of every quantile, and the last two points tried with their normal scores ``ndtri(cdf(point))``."""

    low: Float[Array, "*shape"]
    high: Float[Array, "*shape"]
    point: Float[Array, "*shape"]
    before: Float[Array, "*shape"]
    score_before: Float[Array, "*shape"]
    found: Bool[Array, "*shape"]
    iteration: Int[Array, ""]


def invert_cdf(
    cdf: Callable[[Float[Array, "*shape"]], Float[Array, "*shape"]],
    probability: Float[Array, ""],
    low: Float[Array, "*shape"],
    high: Float[Array, "*shape"],
    *,
    mean: Float[Array, "*shape"],
    std: Float[Array, "*shape"],
) -> Float[Array, "*shape"]:
    """The points between ``low`` and ``high`` at which an increasing ``cdf`` comes to ``probability``.

    ``mean`` and ``std``, those of the distribution, say where to begin.

    A secant method on the scale of normal scores, on which a normal is a straight line and mixtures of normals are
    nearly one: four or five steps are enough for most. Where a step would leave the bracket, or the last one has not
    halved the error, the bracket is halved instead.
    """
    wanted = ndtri(probability)

    def unfinished(state: _Search) -> Bool[Array, ""]:
        return jnp.any(~state.found) & (state.iteration < _ITERATIONS)

    def step(state: _Search) -> _Search:
        below = cdf(state.point)
        score = ndtri(below)
        low = jnp.where(below < probability, state.point, state.low)
        high = jnp.where(below < probability, state.high, state.point)
        slope = jnp.where(state.iteration == 0, std, (state.point - state.before) / (score - state.score_before))
        secant = state.point + slope * (wanted - score)
        middle = 0.5 * (low + high)
        error, error_before = jnp.abs(score - wanted), jnp.abs(state.score_before - wanted)
        converging = (state.iteration == 0) | (error <= 0.5 * error_before)
        usable = (secant > low) & (secant < high) & converging
        found = (error <= _PRECISION) | ~((middle > low) & (middle < high)) | state.found
        point = jnp.where(found, state.point, jnp.where(usable, secant, middle))
        keep = state.found
        return _Search(
            jnp.where(keep, state.low, low),
            jnp.where(keep, state.high, high),
            point,
            jnp.where(keep, state.before, state.point),
            jnp.where(keep, state.score_before, score),
            found,
            state.iteration + 1,
        )

    begin = jnp.clip(mean + std * wanted, low, high)
    first = _Search(low, high, begin, begin, jnp.zeros_like(low), low >= high, jnp.zeros((), jnp.int32))
    return jax.lax.while_loop(unfinished, step, first).point
