"""What an ensemble believes about whole functions: samples of them, and the covariances that batch rules go by."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa

from ncprior.batches import Rule, sketch
from ncprior.engine import NOISE, chunked
from ncprior.fitting import Fitted


def sample(fitted: Fitted, table: pa.Table, count: int, key: Any) -> np.ndarray:
    """Functions drawn from the belief over the mean, members in turn: ``[count, rows, outputs]``."""
    inputs, members = fitted.encoder.transform(table), len(fitted.calibration)
    functions = []
    for i, one in enumerate(jax.random.split(key, count)):
        member = jax.tree.map(lambda leaf: leaf[i % members], fitted.weights)  # noqa: B023
        drawn, mean = chunked(lambda part: fitted.engine.sample(member, part, one), inputs)  # noqa: B023
        functions.append(mean + fitted.calibration[i % members, 1] * (drawn - mean))
    return fitted.shift + fitted.scale * np.stack(functions)


_WIDEST = 256
"""Features of a row, at most, that batch rules compare; wider ones are projected at random."""


def pick_batch(
    rule: Rule, fitted: Fitted, pool: pa.Table, labelled: pa.Table | None, excluded: np.ndarray, count: int, key: Any
) -> np.ndarray:
    """The rows of a pool that a batch rule picks."""
    key_sketch, key_rule = jax.random.split(key)

    def features(table: pa.Table) -> np.ndarray:
        inputs = fitted.encoder.transform(table)
        wide = chunked(lambda part: fitted.engine.features(fitted.weights, fitted.calibration, part), inputs)
        return np.asarray(sketch(jnp.asarray(wide), _WIDEST, key=key_sketch))

    phi = features(pool)
    seen = phi[:0] if labelled is None else features(labelled)
    noise = np.asarray(chunked(NOISE, fitted.predict(pool)).mean(-1), np.float32)
    picked = jax.jit(rule, static_argnames="count")(phi, seen, noise, excluded, count=count, key=key_rule)
    return np.asarray(picked)
