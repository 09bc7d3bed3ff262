"""What an ensemble believes about whole functions: samples of them, and the covariances that batch rules go by."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa

from ncprior.core.registry import Entry
from ncprior.errors import UserError
from ncprior.tables.batches import Rule, sketch
from ncprior.tables.fitting import Fitted
from ncprior.tables.programs import NOISE, UNCERTAINTY, chunked
from ncprior.tables.recipe import room


def sample(fitted: Fitted, table: pa.Table, count: int, key: Any) -> np.ndarray:
    """Functions drawn from the belief over the mean, of members drawn by their shares: ``[count, rows, outputs]``."""
    inputs = fitted.encoder.transform(table)
    calibration = fitted.calibration
    functions = []
    for one in jax.random.split(key, count):
        key_member, key_function = jax.random.split(one)
        number = int(jax.random.choice(key_member, len(calibration.share), p=calibration.share))
        member = jax.tree.map(lambda leaf: leaf[number], fitted.weights)  # noqa: B023
        drawn, mean = chunked(lambda part: fitted.engine.sample(member, part, key_function), inputs)  # noqa: B023
        functions.append(mean + calibration.uncertainty_scale[number] * (drawn - mean))
    return fitted.shift + fitted.scale * np.stack(functions)


_WIDEST = 256
"""Features of a row, at most, that batch rules compare; wider ones are projected at random."""


def places(rows: np.ndarray, pool: np.ndarray) -> np.ndarray:
    """Where the values of rows stand among those of a pool, column by column: from -0.5, below all, to 0.5, above all.

    >>> places(np.array([[3.0], [9.0]]), np.array([[1.0], [3.0], [3.0], [8.0]]))
    array([[0. ],
           [0.5]], dtype=float32)
    """
    columns = zip(rows.T, np.sort(pool, axis=0).T, strict=True)
    # The middle of equal values.
    below = [
        np.searchsorted(known, values, "left") + np.searchsorted(known, values, "right") for values, known in columns
    ]
    return (np.stack(below, axis=1) / (2 * len(pool)) - 0.5).astype(np.float32)


def average(stds: np.ndarray) -> np.ndarray:
    """The root of the outputs' average variance ``[rows]``, from their standard deviations ``[rows, outputs]``."""
    return np.asarray(np.sqrt(np.mean(stds**2, axis=-1)), np.float32)


def pick_batch(
    rule: Entry[Rule], fitted: Fitted, pool: pa.Table, known: np.ndarray, excluded: np.ndarray, count: int, key: Any
) -> np.ndarray:
    """The rows of a pool that a batch rule picks; ``known`` are encoded rows that have labels."""
    key_sketch, key_rule = jax.random.split(key)
    engine, members = fitted.engine, (fitted.weights, fitted.calibration)
    inputs = fitted.encoder.transform(pool)
    prediction = fitted.predict_encoded(inputs)
    noise = average(chunked(NOISE, prediction))
    if rule.compares == "inputs":
        phi, seen = (places(rows, inputs) for rows in (inputs, known))
    elif rule.compares == "gradients":
        phi, seen = (
            chunked(lambda part: engine.sketches(*members, part, key_sketch, size=_WIDEST), rows)
            for rows in (inputs, known)
        )
    else:

        def narrow(part: np.ndarray) -> tuple[Any, Any]:
            whole = engine.features(*members, part)
            return sketch(whole, _WIDEST, key=key_sketch), jnp.sqrt(jnp.sum(whole**2, axis=1))

        phi, std = chunked(narrow, inputs)
        seen = phi[:0]  # the belief knows the labelled rows
        # What the members believe, before it is widened for what has learned nothing.
        believed = chunked(lambda part: UNCERTAINTY(engine.predict(*members, part)), inputs)
        if not np.allclose(std, average(believed), rtol=0.01, atol=1e-4):
            name = getattr(rule.function, "__name__", "the rule")
            raise UserError(
                f"{name} goes by covariances of the mean, and the uncertainty of {engine.method.name} is not that of a "
                "belief over functions; choose another acquisition, such as kmeans_inputs or information_gain"
            )
    # Filled up, so that pools and labels of about the same number share a program: with rows that cannot be picked,
    # and with repeats.
    more, again = room(len(phi)) - len(phi), room(len(seen)) - len(seen) if len(seen) else 0
    phi, noise, excluded = (
        np.pad(part, [(0, more), *[(0, 0)] * (part.ndim - 1)], constant_values=fill)
        for part, fill in ((phi, 0), (noise, 1), (excluded, True))
    )
    seen = np.pad(seen, ((0, again), (0, 0)), mode="edge" if again else "constant")
    return np.asarray(_PICK(rule.function, phi, seen, noise, excluded, count=count, key=key_rule))


_PICK = jax.jit(
    lambda rule, *arrays, count, key: rule(*arrays, count=count, key=key), static_argnums=0, static_argnames="count"
)
