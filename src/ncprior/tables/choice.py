"""Which rows of a pool to label next: by a rule for batches, or by scores of rows one by one."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from jax import Array
from numpy.typing import ArrayLike

from ncprior.core.acquisition import Acquisition, Draw, Score
from ncprior.errors import UserError
from ncprior.tables import candidates
from ncprior.tables.batch_features import pick_batch
from ncprior.tables.batches import RULES, acquisitions
from ncprior.tables.constraints import Constraints, score_for_cost
from ncprior.tables.fitted import Fitted
from ncprior.tables.predictions import Distribution


@dataclass(frozen=True, kw_only=True)
class Request:
    """How many rows of a pool are wanted, and how they are chosen.

    Attributes:
        count: How many rows.
        acquisition: The name of a rule or a score, or the function of a score.
        temperature: Temperature of the softmax of scores from which rows are drawn; 0 picks the highest scores.
        excluded: True for rows that must not be picked ``[rows]``.
        constraints: Costs and groups of the rows.
        output_weights: How much each output counts, with an average of 1; None if all count the same.
        seed: Seed of what is drawn.
    """

    count: int
    acquisition: str | Score
    temperature: float
    excluded: np.ndarray
    constraints: Constraints
    output_weights: np.ndarray | None
    seed: int

    def __post_init__(self) -> None:
        left = self.constraints.most(~self.excluded)
        if not left:
            raise UserError("cannot pick a row: the pool has none that may be picked; give more, or exclude fewer")
        if not 1 <= self.count <= left:
            limit = f", {self.constraints.per_group} of a group at most" if self.constraints.groups is not None else ""
            raise UserError(
                f"cannot pick {self.count} rows: {left} rows can be picked{limit}; choose n from 1 to {left}"
            )
        if not self.temperature >= 0:
            raise UserError(f"temperature must be at least 0, got {self.temperature}")
        if callable(self.acquisition):
            return
        if self.acquisition not in acquisitions():
            names = ", ".join(acquisitions())
            raise UserError(
                f"unknown acquisition {self.acquisition!r}: choose from {names}, or give a score's function"
            )
        if self.acquisition in RULES and self.temperature:
            raise UserError(
                f"temperature is for scores of rows, and {self.acquisition} is a rule for batches; leave it out"
            )

    @property
    def key(self) -> Array:
        """The random key of the seed."""
        return jax.random.key(self.seed)


def excluded_rows(rows: int, exclude: ArrayLike | None) -> np.ndarray:
    """True for rows that must not be picked ``[rows]``: none if nothing is given.

    >>> excluded_rows(3, None)
    array([False, False, False])

    Raises:
        UserError: If there is not one value for each row.
    """
    excluded = np.zeros(rows, bool) if exclude is None else np.asarray(exclude, bool)
    if excluded.shape != (rows,):
        raise UserError(f"exclude has shape {excluded.shape}; give one value for each of {rows} rows")
    return excluded


def choose(fitted: Fitted, table: pa.Table, request: Request, *, labelled: np.ndarray | None = None) -> np.ndarray:
    """Choose rows of a pool that are most worth a label.

    Args:
        fitted: The fitted estimator.
        table: The pool.
        request: What is wanted.
        labelled: Encoded rows with labels, which some rules keep away from; by default the training rows.

    Returns:
        The numbers of the rows in the pool, best first.

    Raises:
        UserError: If the method does not have what the rule needs, or scores are no numbers.
    """
    if not callable(request.acquisition) and request.acquisition in RULES:
        return _by_rule(fitted, table, request, labelled)
    return _by_score(fitted, table, request)


def _by_rule(fitted: Fitted, table: pa.Table, request: Request, labelled: np.ndarray | None) -> np.ndarray:
    """The rows that a rule picks, from candidates if the pool is large."""
    excluded, constraints = request.excluded, request.constraints
    pick = partial(
        pick_batch,
        RULES[str(request.acquisition)],
        fitted,
        count=request.count,
        key=request.key,
        labelled=labelled,
        output_weights=request.output_weights,
    )
    most = max(candidates.CANDIDATES, request.count)
    if table.num_rows <= most:
        return pick(table, excluded=excluded, constraints=constraints)
    drawn = candidates.of_table(fitted, table, most, excluded=excluded, labelled=labelled, seed=request.seed)
    among = constraints.take(drawn.rows)
    among.check_enough(request.count)
    return drawn.rows[pick(table.take(drawn.rows), weights=drawn.weights, constraints=among)]


def _by_score(fitted: Fitted, table: pa.Table, request: Request) -> np.ndarray:
    """The rows with the highest scores, or those drawn by them."""
    score, constraints = request.acquisition, request.constraints
    pieces = (table.slice(start, candidates.PIECE) for start in range(0, table.num_rows, candidates.PIECE))
    scores = np.concatenate([Distribution.of(fitted, piece).score(score, request.output_weights) for piece in pieces])
    if np.isnan(scores).any():
        raise UserError(f"acquisition {score!r} gives scores that are no numbers; mend it")
    logits = score_for_cost(scores.astype(np.float32), constraints.cost, score, request.temperature)
    draw: Draw = "without_replacement" if request.temperature or score == "random" else "greedy"
    # With groups some of the best are left out, so that all rows are put in order.
    ordered = request.count if constraints.groups is None else int((~request.excluded).sum())
    by_score = Acquisition(draw=draw)
    order = by_score.pick(jnp.asarray(logits, jnp.float32), jnp.asarray(request.excluded), ordered, key=request.key)
    return constraints.within(np.asarray(order))[: request.count]
