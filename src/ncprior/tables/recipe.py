"""The training data of members: order and weights of rows, units, input features and noise."""

import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
import pyarrow as pa
from jax import Array

from ncprior.core.input_priors import FlipCategories, InputPrior
from ncprior.core.methods import INPUT_NOISE, Method
from ncprior.core.row_weights import RowWeights, effective_number
from ncprior.core.table_priors import DataShaped, FromPool, NoisedShare, PerColumn
from ncprior.core.training import Rows
from ncprior.data.column_values import kind_of
from ncprior.data.encoding import MOST_CATEGORIES, Encoder, Group
from ncprior.data.sampling import NumberedRows
from ncprior.errors import UserError
from ncprior.tables.ensemble import TableInfo
from ncprior.tables.families import Family
from ncprior.tables.holdout import Stopping
from ncprior.tables.input_features import Components, InputFeatures, coloring_matrix, principal_components
from ncprior.tables.member_rows import MemberRows
from ncprior.tables.options import LARGEST_BATCH, FitOptions
from ncprior.tables.programs import CONTRAST, Engine, Spec, padded_size, training_numbers
from ncprior.tables.unlabelled import SHARE

_MAX_BINS, _MIN_BINS, _QUANTILE_FEATURES = 32, 8, 1_024
"""Quantile bins of a column: at most 32, and fewer in wide tables, so that a row has about 1,024 quantile features. No
fewer than 8, until these make 8,192 features: more take long and tell little."""

MANY_ROWS = 5_000
"""From this many rows on, four members search, and half of a mini batch is noised: the prior counts little then."""

MIN_ROWS = 3
"""Rows below which nothing can be learned: a line goes through any two."""

_NOISED_SHARE = 0.5
"""Share of a mini batch that is noised from `MANY_ROWS` on."""

_MOST_VISITED = Stopping.max_steps * LARGEST_BATCH
"""Rows that a member sees in the longest search."""

_MOST_KEPT, _ALWAYS_KEPT = 30_000_000, 100_000
"""Numbers in the encoded rows of a table that are kept to learn from, at most, but no fewer than so many rows. With a
copy for every gap of the search, 3.3 million rows of nine numbers take a process to 2.6 GB."""

_DATE_COLUMNS = 10
"""Numbers that a date is encoded by, or about as many."""

_SAMPLE_SIZE = 1_000
"""Training rows, at most, that a model keeps for batch rules."""

_MAX_WEIGHT = 2.0
"""Weight, of mean 1, above which a row is split into copies: one row that counts as much as a whole mini batch would
make gradients that are clipped, and come too seldom for Adam's running means."""


class LabelledTable(NamedTuple):
    """The training data as it is given to an estimator."""

    table: pa.Table
    targets: np.ndarray  # [rows, outputs]
    weights: np.ndarray | None  # relative; None if all are the same
    repeated: bool = False  # whether equal rows stand for whole-number weights
    flat: bool = False  # whether the targets had one axis
    target_names: list[str] | None = None
    unlabelled: NumberedRows | None = None  # without targets, as contrast points

    def take(self, rows: np.ndarray) -> "LabelledTable":
        """Some of the rows, by their numbers."""
        weights = None if self.weights is None else self.weights[rows]
        return self._replace(table=self.table.take(rows), targets=self.targets[rows], weights=weights)


class RowOrder(NamedTuple):
    """An order of the rows that does not depend on the table's, so that neither does what is learned.

    A row with a large relative weight is there several times, each copy with a part of its weight.
    """

    indices: np.ndarray  # rows of the table, copies next to each other
    weights: np.ndarray | None  # of mean 1; None if all are the same
    copies: np.ndarray  # how many copies there are of each row

    @classmethod
    def of(cls, inputs: np.ndarray, targets: np.ndarray, weights: np.ndarray | None) -> "RowOrder":
        """The order of encoded rows with relative weights, of which only the proportions count."""
        if weights is None or weights.min() == weights.max():
            order = np.lexsort((*targets.T, *inputs.T))
            return cls(order, None, np.ones(len(order), int))
        order = np.lexsort((weights, *targets.T, *inputs.T))
        relative = weights[order] / weights.mean()
        # A little less, so that rounding does not decide: multiples of weights are the same weights.
        copies = np.maximum(1, np.ceil(relative / _MAX_WEIGHT - 1e-9)).astype(int)
        each = np.repeat(relative / copies, copies)
        return cls(np.repeat(order, copies), (each / each.mean()).astype(np.float32), np.repeat(copies, copies))

    def effective_number(self, rows: np.ndarray) -> float:
        """The number of rows of equal weight that say as much as these; copies are one row."""
        if self.weights is None:
            return len(rows)
        return float(effective_number(self.weights[rows].astype(np.float64), self.copies[rows]))

    @property
    def first_copies(self) -> np.ndarray:
        """True for the first copy of every row of the table."""
        return np.concatenate([[True], self.indices[1:] != self.indices[:-1]])


class TrainingRows(NamedTuple):
    """A table, and its rows as members learn from them."""

    table: pa.Table
    encoder: Encoder
    order: RowOrder
    inputs: np.ndarray  # encoded, in that order
    targets: np.ndarray  # in their own unit, likewise
    shift: np.ndarray  # mean of every output
    scale: np.ndarray  # and its standard deviation
    unlabelled: pa.Table | None = None

    @property
    def standardised(self) -> np.ndarray:
        """The targets with mean 0 and standard deviation 1, in single precision."""
        return ((self.targets - self.shift) / self.scale).astype(np.float32)


def most_rows(first: pa.Table) -> int:
    """Rows of a table, at most, that are worth keeping to learn from, by the first of them."""
    width = 0
    for name, values in zip(first.column_names, first.slice(0, _ALWAYS_KEPT).columns, strict=True):
        kind = kind_of(name, values.type)
        category = min(MOST_CATEGORIES, len(values.unique())) if kind == "category" else 1
        width += _DATE_COLUMNS if kind == "date" else category
    return min(_MOST_VISITED, max(_ALWAYS_KEPT, _MOST_KEPT // width))


def check_rows(
    inputs: np.ndarray, targets: np.ndarray, order: RowOrder, min_rows: int, *, repeated: bool = False
) -> None:
    """Raise if there are fewer than ``min_rows`` rows, also by their weights; warn if no input tells them apart.

    The rows are in this order. If they are ``repeated`` to stand for weights, equal ones count once.
    """
    count = len(np.unique(order.indices))
    if repeated:
        count = int(duplicate_groups(np.column_stack([inputs, targets]))[-1]) + 1
    if count < min_rows:
        raise UserError(
            f"nothing can be learned from {count} sample{'s' if count > 1 else ''} with a target: give at least "
            f"{min_rows}, or ask for a model that has learned nothing with min_rows={count} (--min-rows {count})"
        )
    if (effective := order.effective_number(np.arange(len(order.indices)))) < min_rows:
        raise UserError(
            f"nothing can be learned from {count} samples whose weights make them worth {effective:.3g} of equal "
            f"weight: give weights that differ less, or ask for it with min_rows={int(effective)}"
        )
    if inputs.shape[1] == 1:  # the flag of unexpected values alone
        warnings.warn(
            "no column varies that a model can use: nothing is learned but the mean and the spread of the target",
            stacklevel=6,  # the line that calls `NCPRegressor.fit`
        )


def duplicate_groups(rows: np.ndarray) -> np.ndarray:
    """A number for every row, the same for rows that are equal; equal rows must be next to each other.

    >>> duplicate_groups(np.array([[1.0], [1.0], [2.0]])).tolist()
    [0, 0, 1]
    """
    return np.concatenate([[0], np.cumsum((rows[1:] != rows[:-1]).any(1))])


def subsample(rows: np.ndarray, seed: int) -> np.ndarray:
    """All rows, or 1,000 of them at random."""
    if len(rows) <= _SAMPLE_SIZE:
        return rows
    return rows[np.sort(np.random.default_rng(seed).choice(len(rows), _SAMPLE_SIZE, replace=False))]


def number_columns(groups: Sequence[Group]) -> list[int]:
    """The columns of the encoded rows that are numbers."""
    return [group.columns[0] for group in groups if group.kind == "number"]


def number_of_bins(columns: int) -> int:
    """How many quantile bins each of so many columns has."""
    if columns > _QUANTILE_FEATURES:
        return max(1, _MIN_BINS * _QUANTILE_FEATURES // columns)
    return min(_MAX_BINS, max(_MIN_BINS, _QUANTILE_FEATURES // columns)) if columns else 0


def shift_and_scale(targets: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every output.

    A constant output has standard deviation 1. Of fewer than `MIN_ROWS` rows, which do not say how it varies, it is the
    output's size.
    """
    shift = np.average(targets, axis=0, weights=weights)
    # In units of the largest deviation, whose square may be too small or too large for a number.
    largest = np.abs(targets - shift).max(0)
    largest = np.where(largest > 1e-12 * np.abs(shift), largest, 1.0)
    scale = largest * np.sqrt(np.average(((targets - shift) / largest) ** 2, axis=0, weights=weights))
    constant = np.where(shift == 0, 1.0, np.abs(shift)) if len(targets) < MIN_ROWS else 1.0
    return shift, np.where(scale > 1e-12 * np.abs(shift), np.maximum(scale, 1e-30), constant)


def padded_rows(
    inputs: np.ndarray,
    targets: np.ndarray,
    order: RowOrder,
    shift: np.ndarray | float = 0.0,
    scale: np.ndarray | float = 1.0,
    *,
    labels_before: int = 0,
) -> MemberRows:
    """Rows as arrays of a padded size, so that tables of about the same size share a program.

    ``shift + scale * target`` is the target in a unit that members with other rows share. ``labels_before`` counts the
    labels that were learned from earlier and are not among these rows.
    """
    count, outputs = targets.shape
    pad = ((0, padded_size(count) - count), (0, 0))
    weights = np.ones(count, np.float32) if order.weights is None else order.weights

    def padded(part: np.ndarray) -> Array:
        return jax.device_put(np.pad(part, pad[: part.ndim]))

    def for_outputs(unit: np.ndarray | float) -> Array:
        return jax.device_put(np.broadcast_to(np.asarray(unit, np.float32), (outputs,)))

    counts = RowWeights(padded(weights), padded(order.copies.astype(np.float32)), jax.device_put(labels_before))
    rows = Rows(padded(inputs), padded(targets), counts)
    return MemberRows(rows, for_outputs(shift), for_outputs(scale))


def make_spec(options: FitOptions, encoder: Encoder, *, rows: int, outputs: int) -> Spec:
    """The specification of the programs for so many encoded rows."""
    own_network = isinstance(options.method, Method) or options.trunk is not None
    return Spec(
        settings=options.settings_for(rows),
        method=options.method,
        trunk=options.trunk,
        input_prior=options.own_input_prior,
        groups=encoder.groups,
        width=encoder.width,
        outputs=outputs,
        bins=0 if own_network else number_of_bins(len(number_columns(encoder.groups))),
    )


def contrast_spec(options: FitOptions, spec: Spec) -> Spec | None:
    """The specification of the contrast networks beside members of this one; None if there are none."""
    if not options.has_contrast:
        return None
    return Spec(
        settings=options.contrast_settings,
        method=CONTRAST,
        trunk=None,
        input_prior=options.own_input_prior,
        groups=spec.groups,
        width=spec.width,
        outputs=1,
        bins=0,
    )


def table_info(
    options: FitOptions,
    spec: Spec,
    encoder: Encoder,
    inputs: np.ndarray,
    *,
    weights: np.ndarray | None,
    rows: int,
    pool: np.ndarray | None = None,
) -> TableInfo:
    """Input features and input prior of a table, from its encoded rows.

    ``rows`` is how many are learned from, and ``pool`` has encoded rows that are contrast points beside noised ones.
    """
    columns = inputs[:, number_columns(encoder.groups)]
    components = principal_components(columns, weights)
    has_features = spec.bins or spec.method == CONTRAST
    features = InputFeatures.fit(columns, spec.bins, components, weights) if has_features else None
    prior = make_input_prior(options, Engine.of(spec).method, encoder, components, rows, pool=pool)
    return TableInfo(features, prior, training_numbers(spec))


def for_families(tables: Sequence[TableInfo], families: Sequence[Family]) -> list[TableInfo]:
    """The information of every member: smooth members have no quantile features."""
    infos = list(tables)
    for member in (member for family in families if family.name == "smooth" for member in family.members):
        if (features := infos[member].features) is not None:
            smooth = eqx.tree_at(lambda features: features.quantile_scale, features, np.zeros((), np.float32))
            infos[member] = infos[member]._replace(features=smooth)
    return infos


def make_input_prior(
    options: FitOptions,
    method: Method,
    encoder: Encoder,
    components: Components,
    rows: int,
    *,
    pool: np.ndarray | None = None,
) -> InputPrior | None:
    """The input prior of a table: noise on numbers, and categories and flags that change now and then.

    Args:
        options: What kind of noise, and how much.
        method: The method, which may have no input prior.
        encoder: How the table is encoded.
        components: Principal components of the numbers, whose covariance the noise has.
        rows: How many rows there are to learn from.
        pool: Rows that take the place of noised ones now and then.

    Returns:
        None if the method has none, or the user gave one that is part of the method.
    """
    if isinstance(options.method, Method) or not isinstance(options.input_prior, str) or method.input_prior is None:
        return None
    scale, names = options.input_scale, encoder.names
    if isinstance(scale, Mapping):
        owners = {name: column.name for column in encoder.columns for _, many in column.layout for name in many}
        if unknown := [name for name in scale if name not in set(owners.values())]:
            raise UserError(f"input_scale names {unknown[0]!r}, which is no column that is used")
        stds = np.array([scale.get(owners[names[i]], 2.0) for i in number_columns(encoder.groups)], np.float32)
    else:
        stds = np.full(len(components.directions), scale, np.float32)
    parts: list[tuple[Sequence[int], InputPrior]] = []
    if len(stds):
        # Equal noise on all columns, which the shape of the data mixes, and then every column's own part of it.
        largest = np.full_like(stds, stds.max() or 1.0)
        equal = INPUT_NOISE[options.input_prior](largest)  # type: ignore[arg-type]
        noise = DataShaped(equal, coloring_matrix(components), stds / largest)
        parts.append((number_columns(encoder.groups), noise))
    for kind, columns in encoder.groups:
        if kind == "category" and len(columns) > 1:
            parts.append((columns, FlipCategories(len(columns), options.flip, one_hot=True)))
    flags = [column for kind, columns in encoder.groups if kind == "flag" for column in columns]
    parts.append((flags, FlipCategories(2, options.flip)))
    prior: InputPrior = PerColumn(parts)
    if pool is not None:
        prior = FromPool(pool, prior, np.float32(SHARE))
    return jax.device_put(NoisedShare(prior, _NOISED_SHARE) if rows >= MANY_ROWS else prior)
