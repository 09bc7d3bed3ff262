"""What training needs to know of a table, from its rows and the arguments: units, sight and noise."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from jax import Array

from ncprior.core.input_priors import FlipCategories, InputPrior
from ncprior.core.methods import INPUT_NOISE, Method
from ncprior.core.row_weights import RowWeights, effective_number
from ncprior.core.table_priors import DataShaped, NoisedShare, PerColumn
from ncprior.core.training import Rows
from ncprior.data.encoding import Encoder, Group
from ncprior.errors import UserError
from ncprior.tables.ensemble import Table
from ncprior.tables.families import Family
from ncprior.tables.input_features import Components, Sight, colours, principal
from ncprior.tables.member_rows import MemberRows
from ncprior.tables.programs import Engine, Spec

_BINS, _FEWEST_BINS, _PLACES = 32, 8, 1_024
"""Quantiles of a column that members with sharp sight see; in tables with many columns fewer, so that a row has about
as many places in bins as the last number says at most, or eight times as many where that would leave fewer bins than
the second number: more take long and tell little."""

MANY = 5_000
"""Rows from which on so many are held out that few members are enough to search with, though they see fewer gaps, and
the prior counts so little that few noised rows are enough."""

FEWEST = 3
"""Rows below which nothing can be learned: a line goes through any two."""

_NOISED = 0.5
"""Share of a mini batch that is noised if there are so many rows."""

_KNOWN = 1_000
"""Rows, at most, that a model keeps of those that it learned from."""


_HEAVIEST = 2.0
"""Weight, of mean 1, above which a row is taken as several: one row that counts as much as a whole mini batch would
make gradients that are clipped, and come too seldom for Adam's running means."""


class Arranged(NamedTuple):
    """Rows to learn from: in an order of their own, so that what is learned does not depend on the table's.

    Rows of relative weights that are heavy stand there several times, each time with a part of their weight.
    """

    places: np.ndarray  # the rows of the table, copies next to each other
    weights: np.ndarray | None  # of mean 1; None if all are the same
    copies: np.ndarray  # how often each of them stands there

    @classmethod
    def of(cls, inputs: np.ndarray, targets: np.ndarray, weights: np.ndarray | None) -> "Arranged":
        """From encoded rows and their relative weights, of which only the proportions count."""
        if weights is None or weights.min() == weights.max():
            order = np.lexsort((*targets.T, *inputs.T))
            return cls(order, None, np.ones(len(order), int))
        order = np.lexsort((weights, *targets.T, *inputs.T))
        relative = weights[order] / weights.mean()
        # A little less, so that rounding does not decide: multiples of weights are the same weights.
        copies = np.maximum(1, np.ceil(relative / _HEAVIEST - 1e-9)).astype(int)
        each = np.repeat(relative / copies, copies)
        return cls(np.repeat(order, copies), (each / each.mean()).astype(np.float32), np.repeat(copies, copies))

    def effective(self, rows: np.ndarray) -> float:
        """How many rows of equal weight these say as much as; copies are one row."""
        if self.weights is None:
            return len(rows)
        return float(effective_number(self.weights[rows].astype(np.float64), self.copies[rows]))

    @property
    def first(self) -> np.ndarray:
        """Which of them are the first of their copies: every row of the table once."""
        return np.concatenate([[True], self.places[1:] != self.places[:-1]])


class LearningRows(NamedTuple):
    """A table to learn from, and its rows as they are learned from."""

    table: pa.Table
    encoder: Encoder
    arranged: Arranged
    inputs: np.ndarray  # encoded,
    targets: np.ndarray  # in their unit, both as they are arranged
    shift: np.ndarray  # of the targets
    scale: np.ndarray


def check_rows(inputs: np.ndarray, arranged: Arranged, fewest: int) -> None:
    """Raise if there are fewer encoded rows than these, also by their weights; warn if no input tells them apart."""
    if (count := len(inputs)) < fewest:
        raise UserError(
            f"nothing can be learned from {count} sample{'s' if count > 1 else ''} with a target: give at least "
            f"{fewest}, or ask for a model that knows nothing with min_rows={count} (--min-rows {count})"
        )
    if (effective := arranged.effective(np.arange(len(arranged.places)))) < fewest:
        raise UserError(
            f"nothing can be learned from {count} samples whose weights make them worth {effective:.3g} of equal "
            f"weight: give weights that differ less, or ask for it with min_rows={int(effective)}"
        )
    if inputs.shape[1] == 1:  # the one that says whether something is unexpected
        warnings.warn(
            "no column varies that a model can use: nothing is learned but the mean and the spread of the target",
            stacklevel=5,  # the line that calls `NCPRegressor.fit`
        )


def equal_rows(rows: np.ndarray) -> np.ndarray:
    """A number for every row, the same for rows that are equal; these must stand next to each other."""
    return np.concatenate([[0], np.cumsum((rows[1:] != rows[:-1]).any(1))])


def some_rows(rows: np.ndarray, seed: int) -> np.ndarray:
    """All rows, or some at random if there are many."""
    if len(rows) <= _KNOWN:
        return rows
    return rows[np.sort(np.random.default_rng(seed).choice(len(rows), _KNOWN, replace=False))]


def number_columns(groups: Sequence[Group]) -> list[int]:
    """The columns of the encoded rows that are numbers."""
    return [group.columns[0] for group in groups if group.kind == "number"]


def bins_for(columns: int) -> int:
    """How many quantiles of each of so many columns are seen."""
    if columns > _PLACES:
        return max(1, _FEWEST_BINS * _PLACES // columns)
    return min(_BINS, max(_FEWEST_BINS, _PLACES // columns)) if columns else 0


def units(targets: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every output.

    A constant one has standard deviation 1, and of too few rows, which do not say how it varies, that of its size.
    """
    shift = np.average(targets, axis=0, weights=weights)
    # In units of the largest deviation, whose square may be too small or too large for a number.
    largest = np.abs(targets - shift).max(0)
    largest = np.where(largest > 1e-12 * np.abs(shift), largest, 1.0)
    scale = largest * np.sqrt(np.average(((targets - shift) / largest) ** 2, axis=0, weights=weights))
    constant = np.where(shift == 0, 1.0, np.abs(shift)) if len(targets) < FEWEST else 1.0
    return shift, np.where(scale > 1e-12 * np.abs(shift), np.maximum(scale, 1e-30), constant)


def room(rows: int) -> int:
    """The next of few numbers of rows, so that tables of about the same size share a program."""
    return max(64, 1 << (rows - 1).bit_length()) if rows <= 1 << 16 else -(-rows >> 16) << 16


def padded(
    inputs: np.ndarray,
    targets: np.ndarray,
    arranged: Arranged,
    shift: np.ndarray | float = 0.0,
    scale: np.ndarray | float = 1.0,
    *,
    labels_before: int = 0,
) -> MemberRows:
    """Rows with room for more, so that tables of about the same size share a program."""
    count, outputs = targets.shape
    pad = ((0, room(count) - count), (0, 0))
    weights = np.ones(count, np.float32) if arranged.weights is None else arranged.weights

    def filled(part: np.ndarray) -> Array:
        return jnp.asarray(np.pad(part, pad[: part.ndim]))

    def for_outputs(unit: np.ndarray | float) -> Array:
        return jnp.asarray(np.broadcast_to(np.asarray(unit, np.float32), (outputs,)))

    counts = RowWeights(filled(weights), filled(arranged.copies.astype(np.float32)), jnp.asarray(labels_before))
    rows = Rows(filled(inputs), filled(targets), counts)
    return MemberRows(rows, for_outputs(shift), for_outputs(scale))


def table_of(
    model: Any, spec: Spec, encoder: Encoder, inputs: np.ndarray, weights: np.ndarray | None, rows: int
) -> Table:
    """What members are told of a table whose encoded rows these are; ``rows`` is how many there are to learn from."""
    columns = inputs[:, number_columns(encoder.groups)]
    shape = principal(columns, weights)
    sight = Sight.find(columns, spec.bins, shape, weights) if spec.bins else None
    return Table(sight, noise_of(model, Engine.of(spec), encoder, shape, rows))


def for_members(tables: Sequence[Table], families: Sequence[Family]) -> list[Table]:
    """What each member is told of its table: smooth ones nothing of the quantiles."""
    told = list(tables)
    for member in (member for family in families if family.name == "smooth" for member in family.members):
        if (sight := told[member].sight) is not None:
            blunt = eqx.tree_at(lambda sight: sight.sharpness, sight, jnp.zeros(()))
            told[member] = told[member]._replace(sight=blunt)
    return told


def noise_of(model: Any, engine: Engine, encoder: Encoder, shape: Components, rows: int) -> InputPrior | None:
    """The input prior of a table: noise on the numbers, categories and flags that change now and then.

    The noise has the ``shape`` of the numbers; ``rows`` is how many there are to learn from.
    """
    if isinstance(model.method, Method) or not isinstance(model.input_prior, str):
        return None  # the user's own, which is part of the method
    if engine.method.input_prior is None:
        return None  # a method without
    scale, names = model.input_scale, encoder.names
    if isinstance(scale, dict):
        owners = {name: column.name for column in encoder.columns for _, many in column.layout for name in many}
        if unknown := [name for name in scale if name not in set(owners.values())]:
            raise UserError(f"input_scale names {unknown[0]!r}, which is no column that is used")
        stds = np.array([scale.get(owners[names[i]], 2.0) for i in number_columns(encoder.groups)], np.float32)
    else:
        stds = np.full(len(shape.directions), scale, np.float32)
    parts: list[tuple[Sequence[int], InputPrior]] = []
    if len(stds):
        # Equal noise on all columns, which the shape of the data mixes, and then every column's own part of it.
        largest = np.full_like(stds, stds.max() or 1.0)
        equal = INPUT_NOISE[model.input_prior](largest)  # type: ignore[arg-type]
        noise = DataShaped(equal, colours(shape), stds / largest)
        parts.append((number_columns(encoder.groups), noise))
    for kind, places in encoder.groups:
        if kind == "category" and len(places) > 1:
            parts.append((places, FlipCategories(len(places), model.flip, one_hot=True)))
    flags = [place for kind, places in encoder.groups if kind == "flag" for place in places]
    parts.append((flags, FlipCategories(2, model.flip)))
    prior = PerColumn(parts)
    return jax.tree.map(jnp.asarray, NoisedShare(prior, _NOISED) if rows >= MANY else prior)
