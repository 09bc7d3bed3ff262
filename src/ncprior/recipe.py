"""What training needs to know of a table, from its rows and the arguments: units, sight and noise."""

import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ncprior.data.encoding import Encoder, Group
from ncprior.engine import Engine, Spec
from ncprior.errors import UserError
from ncprior.input_priors import FlipCategories, InputPrior, PerColumn, Shaped, Some
from ncprior.methods import INPUT_NOISE, Method
from ncprior.training import Rows
from ncprior.trunks import Sight, colours

_BINS, _FEWEST_BINS, _PLACES = 32, 8, 1_024
"""Quantiles of a column that members with sharp sight see; in tables with many columns fewer, so that a row has about
as many places in bins as the last number says at most: more take long and tell little."""

MANY = 5_000
"""Rows from which on so many are held out that few members are enough to search with, though they see fewer gaps, and
the prior counts so little that few noised rows are enough."""

FEWEST = 3
"""Rows below which nothing can be learned: a line goes through any two."""

_NOISED = 0.5
"""Share of a mini batch that is noised if there are so many rows."""

_KNOWN = 1_000
"""Rows, at most, that a model keeps of those that it learned from."""


def in_order(
    inputs: np.ndarray, targets: np.ndarray, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The rows in an order of their own, so that what is learned does not depend on the table's."""
    order = np.lexsort((*targets.T, *inputs.T))
    return inputs[order], targets[order], None if weights is None else weights[order]


def check_rows(inputs: np.ndarray, fewest: int) -> None:
    """Raise if there are fewer encoded rows than these; warn if no input tells them apart."""
    if (count := len(inputs)) < fewest:
        raise UserError(
            f"nothing can be learned from {count} sample{'s' if count > 1 else ''} with a target: give at least "
            f"{fewest}, or ask for a model that knows nothing with min_rows={count} (--min-rows {count})"
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


def padded(inputs: np.ndarray, targets: np.ndarray, weights: np.ndarray | None) -> Rows:
    """Rows with room for more, so that tables of about the same size share a program."""
    count = len(inputs)
    pad = ((0, room(count) - count), (0, 0))
    ones = np.ones(count, np.float32) if weights is None else weights
    return Rows(*(jnp.asarray(part) for part in (np.pad(inputs, pad), np.pad(targets, pad), np.pad(ones, pad[0]))))


def sights(columns: np.ndarray, spec: Spec, members: int) -> Sight | None:
    """What every member sees of the table: every second one has sharp sight."""
    if not spec.bins:
        return None
    sight = Sight.find(columns, spec.bins)
    many = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], members, axis=0), sight)
    many.sharpness[::2] = 0
    return many


def noise_of(model: Any, engine: Engine, encoder: Encoder, columns: np.ndarray) -> InputPrior | None:
    """The input prior of a table: noise on the numbers, categories and flags that change now and then."""
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
        stds = np.full(columns.shape[1], scale, np.float32)
    parts: list[tuple[Sequence[int], InputPrior]] = []
    if columns.shape[1]:
        # Equal noise on all columns, which the shape of the data mixes, and then every column's own part of it.
        largest = np.full_like(stds, stds.max() or 1.0)
        noise = Shaped(INPUT_NOISE[model.input_prior](largest), colours(columns), stds / largest)  # type: ignore[arg-type]
        parts.append((number_columns(encoder.groups), noise))
    for kind, places in encoder.groups:
        if kind == "category" and len(places) > 1:
            parts.append((places, FlipCategories(len(places), model.flip, one_hot=True)))
    flags = [place for kind, places in encoder.groups if kind == "flag" for place in places]
    parts.append((flags, FlipCategories(2, model.flip)))
    prior = PerColumn(parts)
    return jax.tree.map(jnp.asarray, Some(prior, _NOISED) if len(columns) >= MANY else prior)
