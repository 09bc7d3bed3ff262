"""Functions drawn from an ensemble, and the features of rows that batch rules compare."""

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from jax import Array
from numpy.typing import ArrayLike

from ncprior.core.acquisition import Score
from ncprior.core.registry import Entry
from ncprior.errors import UserError
from ncprior.tables.batches import RULES, Pool, Rule, sketch
from ncprior.tables.constraints import NO_CONSTRAINTS, Constraints
from ncprior.tables.fitted import Fitted
from ncprior.tables.programs import chunked, padded_size


def sample_functions(fitted: Fitted, table: pa.Table, count: int, key: Array) -> np.ndarray:
    """Draws mean functions from the members' beliefs, each from a member that is drawn by its share.

    Predictions of a model that has learned nothing are wider than its members' beliefs (`Fitted.predict_encoded`).
    Its functions are shifted at random by the difference, so that they spread as much.

    Args:
        fitted: The trained ensemble.
        table: Rows at which to evaluate the functions.
        count: How many functions to draw.
        key: Random key.

    Returns:
        Values ``[count, rows, outputs]`` in units of the targets.
    """
    inputs = fitted.encoder.transform(table)
    calibration = fitted.calibration
    predicted = fitted.predict_encoded(inputs).uncertainty
    shift = np.sqrt(np.maximum(predicted**2 - _believed(fitted, inputs) ** 2, 0))
    functions = []
    for one in jax.random.split(key, count):
        key_member, key_function = jax.random.split(one)
        number = int(jax.random.choice(key_member, len(calibration.share), p=calibration.share))
        member = jax.tree.map(lambda leaf: leaf[number], fitted.weights)  # noqa: B023
        drawn, mean = chunked(lambda part: fitted.engine.sample(member, part, key_function), inputs)  # noqa: B023
        own = calibration.uncertainty_scale[number] * (drawn - mean)
        key_contrast = jax.random.fold_in(key_function, 1)
        if fitted.contrast is not None:
            mean = mean + chunked(lambda part: fitted.sample_contrast(part, key_contrast), inputs)  # noqa: B023
        level = np.asarray(jax.random.normal(jax.random.fold_in(key_function, 0), (1, shift.shape[1])))
        functions.append(mean + own + level * shift)
    return fitted.target_shift + fitted.target_scale * np.stack(functions)


def _believed(fitted: Fitted, inputs: np.ndarray) -> np.ndarray:
    """The uncertainty ``[rows, outputs]`` of the members' beliefs, as it is if they have learned nothing, too."""
    return np.asarray(fitted.believe(inputs).uncertainty)


_MAX_FEATURES = 256
"""Features of a row, at most, that batch rules compare; more are projected at random."""


def pool_ranks(rows: np.ndarray, pool: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Ranks of values among those of a pool, column by column: from -0.5, below all, to 0.5, above all.

    Rows of the pool count as often as their weights say.

    >>> pool_ranks(np.array([[3.0], [9.0]]), np.array([[1.0], [3.0], [3.0], [8.0]]))
    array([[0. ],
           [0.5]], dtype=float32)
    """
    each = np.ones(len(pool)) if weights is None else np.asarray(weights, np.float64)
    total = each.sum()

    def ranks(values: np.ndarray, column: np.ndarray) -> np.ndarray:
        order = np.argsort(column, kind="stable")
        below = np.concatenate([[0.0], np.cumsum(each[order])])
        ordered = column[order]
        # The middle of equal values.
        ends = below[np.searchsorted(ordered, values, "left")] + below[np.searchsorted(ordered, values, "right")]
        return np.asarray(ends / (2 * total) - 0.5, np.float32)

    return np.stack([ranks(*columns) for columns in zip(rows.T, pool.T, strict=True)], axis=1)


def root_mean_square(stds: np.ndarray, output_weights: np.ndarray | None = None) -> np.ndarray:
    """The root of the outputs' average variance ``[rows]``, from their standard deviations ``[rows, outputs]``."""
    return np.asarray(np.sqrt(np.average(stds**2, axis=-1, weights=output_weights)), np.float32)


def pick_batch(
    rule: Entry[Rule],
    fitted: Fitted,
    pool: pa.Table,
    count: int,
    *,
    key: Array,
    labelled: np.ndarray | None = None,
    excluded: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    constraints: Constraints = NO_CONSTRAINTS,
    output_weights: np.ndarray | None = None,
) -> np.ndarray:
    """The indices of the rows of a pool that a batch rule picks.

    Args:
        rule: One of `ncprior.tables.batches.RULES`.
        fitted: The trained ensemble.
        pool: The rows to pick from.
        count: How many to pick.
        key: Of the draws.
        labelled: Encoded rows that have labels; None for those that the ensemble keeps of its training rows.
        excluded: True for rows that must not be picked ``[rows]``.
        weights: How many rows of a larger pool each row stands for ``[rows]``; None for one.
        constraints: Costs and groups of the rows; ``count`` rows must be there that can be picked together.
        output_weights: How much each output counts ``[outputs]``, on average 1; None for all the same.

    Raises:
        UserError: If the method does not have what the rule compares, or the rule does not keep to the groups.
    """
    labelled = fitted.training_sample if labelled is None else labelled
    excluded = np.zeros(pool.num_rows, bool) if excluded is None else excluded
    each = np.ones(pool.num_rows, np.float32) if weights is None else weights / weights.mean()
    key_sketch, key_rule = jax.random.split(key)
    engine, members = fitted.engine, (fitted.weights, fitted.calibration)
    inputs = fitted.encoder.transform(pool)
    name = getattr(rule.function, "__name__", "the rule")
    noise = root_mean_square(np.asarray(fitted.predict_encoded(inputs).noise), output_weights)
    if rule.compares == "inputs":
        phi, seen = (pool_ranks(rows, inputs, weights) for rows in (inputs, labelled))
    elif rule.compares == "gradients":
        phi, seen = (
            chunked(lambda part: engine.sketches(*members, part, key_sketch, output_weights, size=_MAX_FEATURES), rows)
            for rows in (inputs, labelled)
        )
    else:

        def sketched(part: np.ndarray) -> tuple[Array, Array]:
            whole = fitted.covariance_features(part, output_weights)
            return sketch(whole, _MAX_FEATURES, key=key_sketch), jnp.sqrt(jnp.sum(whole**2, axis=1))

        phi, std = (np.asarray(part) for part in chunked(sketched, inputs))
        seen = phi[:0]  # the belief knows the labelled rows
        if not np.allclose(std, root_mean_square(_believed(fitted, inputs), output_weights), rtol=0.01, atol=1e-4):
            raise UserError(
                f"{name} goes by covariances of the mean, and the uncertainty of {engine.method.name} is not that of a "
                "belief over functions; choose another acquisition, such as kmeans_greedy or information_gain"
            )
    # Padded, so that pools and labels of about the same number share a program: with rows that cannot be picked, and
    # with repeats.
    more, again = padded_size(len(phi)) - len(phi), padded_size(len(seen)) - len(seen) if len(seen) else 0
    cost = np.ones(len(phi)) if constraints.cost is None else constraints.cost / constraints.cost.mean()
    group, group_limit = np.zeros(len(phi), np.int32), np.full(1, count)
    if constraints.groups is not None:
        group = constraints.groups
        group_limit = np.full(padded_size(int(group.max()) + 1), constraints.per_group)

    def padded(part: np.ndarray, fill: float) -> np.ndarray:
        return np.pad(part, [(0, more), *[(0, 0)] * (part.ndim - 1)], constant_values=fill)

    whole = Pool.of(
        padded(phi, 0),
        padded(noise, 1),
        padded(excluded, True),
        weights=padded(each, 0),  # what fills the pool up stands for nothing
        cost=padded(cost, 1),
        group=padded(group, 0),
        group_limit=group_limit,
    )
    seen = np.pad(seen, ((0, again), (0, 0)), mode="edge" if again else "constant")
    picked = np.asarray(pick(rule.function, whole, seen, count, key=key_rule))
    if len(constraints.within(picked)) < count:
        raise UserError(f"{name} picked more than {constraints.per_group} rows of a group; choose another acquisition")
    return picked


def pick(rule: Rule, pool: Pool, labelled: ArrayLike, count: int, *, key: Array) -> Array:
    """What a rule picks, by a compiled program."""
    found: Array = _PICK(rule, pool, jnp.asarray(labelled), count=count, key=key)
    return found


_PICK = jax.jit(
    lambda rule, pool, labelled, *, count, key: rule(pool, labelled, count, key=key),
    static_argnums=0,
    static_argnames="count",
)


def output_weights_for(acquisition: str | Score, weights: ArrayLike | None, outputs: int) -> np.ndarray | None:
    """Weights of outputs with an average of 1; None if all count the same.

    Raises:
        UserError: If they are not positive numbers or 0, one for each output, or have no effect.
    """
    if weights is None:
        return None
    found = np.asarray(weights, np.float64)
    if outputs == 1:
        raise UserError("weights of outputs have no effect on a model with one output; leave them out")
    if found.shape != (outputs,) or not (np.isfinite(found) & (found >= 0)).all() or not found.sum() > 0:
        given = np.asarray(weights).tolist()
        raise UserError(f"weights of outputs must be {outputs} numbers from 0 up, not all of them 0; got {given}")
    rule = None if callable(acquisition) else RULES.get(acquisition)
    if acquisition == "random" or (rule is not None and rule.compares == "inputs"):
        raise UserError(
            f"{acquisition} does not look at outputs, so that their weights have no effect; choose another "
            "acquisition, such as kmeans_pp, or leave the weights out"
        )
    return np.asarray(found / found.mean(), np.float32)
