"""Encoding of table columns as numbers for a network.

`Encoder.fit` chooses an encoding for each column from the training rows; `Encoder.transform` applies it to any rows.
The last column of the result flags rows with values that training never had, so that a network can be uncertain there.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ncprior.data import column_values
from ncprior.data.column_values import RowNumbers
from ncprior.data.formats.text_columns import habits, written
from ncprior.data.frames import as_table
from ncprior.data.number_columns import LARGEST, NumberColumns, compressed
from ncprior.errors import UserError
from ncprior.schema import Length, Range, conform

_NORMAL_IQR = 1.349  # the interquartile range of a normal distribution with standard deviation 1
_NAMED = 20  # columns that an error names, at most
_CYCLES = ("day of year", "weekday", "time of day")  # of a date, each as sine and cosine
MOST_CATEGORIES = 50
"""Values of a category that have columns of their own, unless another number is given."""

_MOST_COLUMNS, _MOST_TEXT = 20_000, 1 << 25  # of tables, and in the names of matrix columns


_FLOAT64 = pa.float64()


class Group(NamedTuple):
    """Columns of the matrix that belong together: a ``number``, the one-hot code of a ``category``, or a ``flag``."""

    kind: str
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Column:
    """How one column of a table is encoded.

    `kind` is ``number``, ``flag``, ``category``, ``date`` or ``left out``, and `treatment` says the same in words.
    `parts` are what varies: the ``value`` of a number or flag, the ``trend`` of a date, and its cycles. `values` have
    columns of their own in a one-hot code and `others` share one. `missing` is whether training rows had no value, and
    `bounds` whether some were only known to lie below or above what was written. `unit` is that of its numbers, if the
    table told it.
    """

    name: str
    kind: Literal["number", "flag", "category", "date", "left out"]
    treatment: str
    parts: tuple[str, ...] = ()
    centre: float = 0.0
    scale: Annotated[float, Range(0, LARGEST, above=True)] = 1.0
    values: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    missing: bool = False
    bounds: bool = False
    unit: str = ""

    def __post_init__(self) -> None:
        if self.bounds and self.kind != "number":
            raise UserError(f"column {self.name!r:.80} is a {self.kind} and cannot have bounds")
        possible = {"number": ("value",), "flag": ("value",), "date": ("trend", *_CYCLES)}.get(self.kind, ())
        if self.parts != tuple(part for part in possible if part in self.parts):
            raise UserError(f"column {self.name!r:.80} is a {self.kind} and cannot have these parts")
        every = (*self.values, *self.others)
        if (
            (self.kind == "category") != bool(self.values)
            or (every and not self.values)
            or len(set(every)) < len(every)
        ):
            raise UserError(f"column {self.name!r:.80} is a {self.kind} and cannot have these values")

    @cached_property
    def layout(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Kinds of groups, each with the names of its matrix columns."""
        if self.kind == "category":
            block = [*(f"{self.name} = {value}" for value in self.values)]
            block += [f"{self.name} other"] if self.others else []
            block += [f"{self.name} missing"] if self.missing else []
            return (("category", tuple(block)),)
        groups = []
        for part in self.parts:
            if part in _CYCLES:
                groups += [("number", (f"{self.name} {part} {wave}",)) for wave in ("sine", "cosine")]
            else:
                name = self.name if part == "value" else f"{self.name} {part}"
                groups.append(("flag" if self.kind == "flag" else "number", (name,)))
        flags = ["is a bound"] if self.bounds else []
        flags += ["missing"] if self.missing and self.kind != "left out" else []
        return (*groups, *(("flag", (f"{self.name} {flag}",)) for flag in flags))

    @cached_property
    def width(self) -> int:
        """How many matrix columns it has."""
        return sum(len(names) for _, names in self.layout)


@dataclass(frozen=True)
class Encoder:
    """The encoding of every column of the training table, in its order.

    >>> table = pa.table({"size": [1.0, 2.0, 3.0], "kind": ["a", "b", "a"]})
    >>> Encoder.fit(table).names
    ('size', 'kind = a', 'kind = b', 'unexpected')
    """

    columns: Annotated[tuple[Column, ...], Length(0, _MOST_COLUMNS)]
    decimal: Literal["", ".", ","] = ""
    """The decimal sign in the text of the training table, and"""
    dates: Literal["", "dmy", "mdy"] = ""
    """what came first in its dates, for other files that leave it open."""

    def __post_init__(self) -> None:
        if len({column.name for column in self.columns}) < len(self.columns):
            raise UserError("two columns have the same name")
        # Every matrix column has the name of its table column in its own.
        text = sum(len(c.name) * (8 + len(c.values)) + sum(map(len, c.values)) for c in self.columns)
        if text > _MOST_TEXT:
            raise UserError(f"the names of the matrix columns have {text:,} characters; the most are {_MOST_TEXT:,}")

    @classmethod
    def fit(cls, table: pa.Table, *, most_categories: int = MOST_CATEGORIES) -> "Encoder":
        """Choose the encoding of each column from the training rows; their order does not matter.

        At most `most_categories` values of a category have columns of their own: if there are more, the rarest share
        one. Constant columns, empty ones, and text that hardly ever repeats are left out.
        """
        table = as_table(table)
        if most_categories < 2:
            raise UserError(f"most_categories is {most_categories}; a category needs at least 2")
        if not table.num_rows:
            raise UserError("the table has no rows; give at least one to learn from")
        columns = zip(table.schema, table.columns, strict=True)
        return cls(tuple(_fit(field, values, most_categories) for field, values in columns), *habits(table.schema))

    def refit(self, table: pa.Table, rows: np.ndarray) -> "Refitted":
        """Fit centres, scales and values to some rows of the table, and keep the columns of the matrix.

        Categories and missing values that these rows do not have keep their columns, which stay 0. Other rows that have
        them are flagged as unexpected.
        """
        sample, columns, unseen, start = table.take(pa.array(rows)), [], [], 0
        for column in self.columns:
            width = column.width
            if width:
                column, lacking = _refit(column, sample[column.name], width)
                unseen += [start + position for position in lacking]
            columns.append(column)
            start += width
        return Refitted(dataclasses.replace(self, columns=tuple(columns)), unseen)

    @property
    def groups(self) -> tuple[Group, ...]:
        """Which columns of the matrix belong together, from the first to the last."""
        groups: list[Group] = []
        start = 0
        for kind, names in [*(group for column in self.columns for group in column.layout), ("flag", ("unexpected",))]:
            groups.append(Group(kind, tuple(range(start, start + len(names)))))
            start += len(names)
        return tuple(groups)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the matrix columns."""
        inside = (name for column in self.columns for _, names in column.layout for name in names)
        return (*inside, "unexpected")

    @cached_property
    def width(self) -> int:
        """The number of matrix columns."""
        return sum(column.width for column in self.columns) + 1

    @cached_property
    def _encoded_columns(self) -> tuple["_EncodedColumn", ...]:
        """The columns that are encoded, in the order of the matrix."""
        found, start, numbers = [], 0, 0
        for column in self.columns:
            if column.kind != "left out":
                plain = column.kind == "number" and not column.bounds
                found.append(_EncodedColumn(column, start, numbers if plain else None))
                start, numbers = start + column.width, numbers + plain
        return tuple(found)

    @cached_property
    def _numbers(self) -> NumberColumns:
        """The encoded columns that are plain numbers."""
        found = [one for one in self._encoded_columns if one.number is not None]
        value_at = [one.start if one.column.parts else -1 for one in found]
        missing_at = [one.start + one.column.width - 1 if one.column.missing else -1 for one in found]
        centre, scale = ([getattr(one.column, name) for one in found] for name in ("centre", "scale"))
        arrays = (np.array(centre), np.array(scale), np.array(value_at, int), np.array(missing_at, int))
        return NumberColumns(tuple(one.column.name for one in found), *arrays)

    @cached_property
    def only_numbers(self) -> bool:
        """Whether all columns that are encoded are plain numbers."""
        return all(one.number is not None for one in self._encoded_columns)

    @cached_property
    def _used(self) -> np.ndarray:
        """Which columns of the table are encoded."""
        return np.flatnonzero([column.kind != "left out" for column in self.columns])

    def transform(self, table: pa.Table, *, first_row: RowNumbers = 1) -> np.ndarray:
        """The rows as a float32 matrix ``[rows, width]``.

        Columns that were left out need not be there, and further columns are ignored. Errors count rows from
        `first_row`, which is for tables that are a piece of a larger one; or they are numbers of all rows.
        """
        table = as_table(table)
        values = dict(zip(table.column_names, table.columns, strict=True))
        if absent := [one.column.name for one in self._encoded_columns if one.column.name not in values]:
            more = f" and {len(absent) - _NAMED:,} more" if len(absent) > _NAMED else ""
            listed = ", ".join(map(repr, absent[:_NAMED])) + more
            raise UserError(f"the table lacks columns of training: {listed}; add them")
        matrix = np.zeros((table.num_rows, self.width), np.float32)
        fields = dict(zip(table.column_names, table.schema, strict=True))
        together: list[int] = []
        for column, start, number in self._encoded_columns:
            _check_unit(column, fields[column.name])
            if number is not None and values[column.name].type == _FLOAT64:
                together.append(number)
                continue
            unexpected = _encode(column, values[column.name], matrix[:, start : start + column.width], first_row)
            matrix[unexpected, -1] = 1
        if together:
            columns = self._numbers if len(together) == len(self._numbers.names) else self._numbers.of(together)
            columns.encode_table([values[name] for name in columns.names], matrix, first_row)
        return matrix

    def transform_numbers(self, rows: np.ndarray) -> np.ndarray:
        """What `transform` gives for an array ``[rows, columns]`` with the columns of training.

        For encoders with `only_numbers`: rows that come one by one are encoded in a tenth of the time.
        """
        numbers = rows.T[self._used].astype(np.float64, copy=False)
        matrix = np.zeros((len(rows), self.width), np.float32)
        self._numbers.encode(numbers, matrix)
        return matrix

    def to_json(self) -> dict[str, object]:
        """The encoder as plain JSON values."""
        columns = [_plain(dataclasses.asdict(column)) for column in self.columns]
        return {"columns": columns, "decimal": self.decimal, "dates": self.dates}

    @classmethod
    def from_json(cls, saved: object) -> "Encoder":
        """The encoder that `to_json` described."""
        try:
            return conform(saved, cls, "encoder")
        except UserError as error:
            raise UserError(f"this does not describe an encoder ({error}); save it anew") from error


class _EncodedColumn(NamedTuple):
    """A column that is encoded."""

    column: Column
    start: int  # its first column of the matrix
    number: int | None  # its index among the plain numbers; None for others


class Refitted(NamedTuple):
    """An encoding fitted to some rows of a table, see `Encoder.refit`."""

    encoder: Encoder
    unseen: list[int]  # columns of the matrix for what these rows lack

    def transform(self, table: pa.Table) -> np.ndarray:
        """The rows as a float32 matrix, with the columns that it has for the whole table."""
        matrix = self.encoder.transform(table)
        if self.unseen:
            matrix[(matrix[:, self.unseen] != 0).any(1), -1] = 1
            matrix[:, self.unseen] = 0
        return matrix


def _plain(values: Mapping[str, object]) -> dict[str, object]:
    """Tuples as lists, for JSON."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def _fit(field: pa.Field, values: pa.ChunkedArray, most_categories: int) -> Column:
    """Choose the encoding of one column."""
    name, about = field.name, written(field)
    kind = "number" if about.bounds else column_values.kind_of(name, values.type)
    if kind == "category":
        return _fit_category(name, column_values.text(name, values), most_categories)
    measured, missing = _measured(name, kind, values, 1)
    count = int(missing.sum())
    if count == len(missing):
        return Column(name, "left out", "left out: no values")
    present = {part: of[~missing] for part, of in measured.items()}
    parts = tuple(part for part, of in present.items() if of.min() < of.max())
    bounds = column_values.bounds_in(values)
    if not parts and not count and len(set(bounds)) < 2:
        return Column(name, "left out", "left out: constant")
    centre, scale = (0.0, 1.0) if kind == "flag" else _centre_and_scale(next(iter(present.values())))
    treatment = {
        "number": f"number, median {centre:.4g}" if parts else f"number, always {centre:.4g}",
        "flag": "true or false" if parts else "true or false, always the same",
        "date": f"date as {', '.join(parts)}" if parts else "date, always the same",
    }[kind]
    treatment += _share(count, len(missing), "missing")
    if bounds.any():
        example = values[int(np.argmax(bounds))].as_py().strip()
        treatment += _share(int(bounds.sum()), len(missing), f"bounds such as {example}")
    treatment += f" ({about.note})" if about.note else ""
    return Column(
        name,
        kind,
        treatment,
        parts,
        centre,
        scale,
        missing=count > 0,
        bounds=about.bounds and bool(bounds.any()),
        unit=about.unit,
    )


def _fit_category(name: str, text: pa.ChunkedArray, most_categories: int) -> Column:
    """Choose the values of a category that get their own columns."""
    present = text.drop_null()
    count = text.null_count
    found = [(-pair["counts"], pair["values"]) for pair in present.value_counts().to_pylist()]
    if not found:
        return Column(name, "left out", "left out: no values")
    if len(found) == 1 and not count:
        return Column(name, "left out", "left out: constant")
    # Few values may be a category of which a small table has no value twice.
    most = len(present) / 2 if len(found) > most_categories else max(column_values.FEW, 0.9 * len(present))
    if len(found) > most:
        all_differ = "every value is different text" if len(found) == len(present) else "most values are different text"
        return Column(name, "left out", f"left out: {all_differ}")
    ranked = tuple(value for _, value in sorted(found))  # the most frequent first, equally frequent ones by text
    num_own = len(ranked) if len(ranked) <= most_categories else most_categories - 1
    treatment = f"category with {len(ranked)} value{'s' if len(ranked) > 1 else ''}"
    treatment += f", of which the rarest {len(ranked) - num_own} count as one" if num_own < len(ranked) else ""
    treatment += _share(count, len(text), "missing")
    return Column(name, "category", treatment, values=ranked[:num_own], others=ranked[num_own:], missing=count > 0)


def _refit(column: Column, values: pa.ChunkedArray, width: int) -> tuple[Column, list[int]]:
    """Fit a column to these values; also returns its matrix columns for which there is no value."""
    if column.kind == "category":
        text = column_values.text(column.name, values)
        present = set(text.drop_null().unique().to_pylist())
        lacking = [position for position, value in enumerate(column.values) if value not in present]
        others = tuple(value for value in column.others if value in present)
        if column.others and not others:
            lacking.append(len(column.values))
        if column.missing and not text.null_count:
            lacking.append(width - 1)
        return dataclasses.replace(column, others=others or column.others), lacking
    measured, missing = _measured(column.name, column.kind, values, 1)
    flags = [width - 1] if column.missing and not missing.any() else []
    flags += [width - 1 - column.missing] if column.bounds and not column_values.bounds_in(values).any() else []
    if missing.all():
        return dataclasses.replace(column, centre=0.0, scale=1.0), [*range(width - 1), *flags]
    numbers = next(iter(measured.values()))[~missing]
    centre, scale = (0.0, 1.0) if column.kind == "flag" else _centre_and_scale(numbers)
    return dataclasses.replace(column, centre=centre, scale=scale), flags


def _share(count: int, rows: int, what: str) -> str:
    """The share of missing values or bounds, as text for a treatment."""
    if not count:
        return ""
    return f", {100 * count / rows:.0f}% {what}" if 200 * count >= rows else f", under 1% {what}"


def _check_unit(column: Column, field: pa.Field) -> None:
    """Raise if numbers are in another unit than in training; where one of the two is not known, it is the same."""
    unit = written(field).unit if column.unit else ""
    if unit and unit != column.unit:
        raise UserError(f"column {column.name!r} is in {unit}, but was in {column.unit} in training; convert it")


def _measured(
    name: str, kind: str, values: pa.ChunkedArray, first_row: RowNumbers
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The parts of a number, a flag or a date, cycles as fractions of a turn; and which rows are missing."""
    if kind != "date":
        numbers, missing = column_values.numbers(name, values, first_row, kind)
        return {"value": numbers}, missing
    days, missing = column_values.days(name, values, first_row)
    day = days.day.astype("datetime64[D]")
    of_year = (day - day.astype("datetime64[Y]").astype("datetime64[D]")).astype(np.int64)
    weekday = (days.day + 3) % 7  # the first of January 1970 was a Thursday
    cycles = (of_year / 365.25, weekday / 7, days.fraction)
    return {"trend": days.day + days.fraction, **dict(zip(_CYCLES, cycles, strict=True))}, missing


def _encode(column: Column, values: pa.ChunkedArray, out: np.ndarray, first_row: RowNumbers) -> np.ndarray:
    """Fill the matrix columns of one table column; returns for each row whether its value is new."""
    if column.kind == "category":
        text = column_values.text(column.name, values)
        values_seen = pa.array([*column.values, *column.others], pa.large_string())
        code = pc.index_in(text, value_set=values_seen).fill_null(-1).to_numpy()
        # The rarer values share a column, and what is missing comes after it.
        code = np.minimum(code, len(column.values))
        if column.missing:
            code = np.where(column_values.missing_in(text), out.shape[1] - 1, code)
        seen = code >= 0
        out[np.flatnonzero(seen), code[seen]] = 1
        return ~seen
    measured, missing = _measured(column.name, column.kind, values, first_row)
    filled: list[np.ndarray] = []
    for part in column.parts:
        if part in _CYCLES:
            turn = 2 * np.pi * measured[part]
            filled += [np.sin(turn), np.cos(turn)]
        elif column.kind == "flag":
            filled.append(measured[part])
        else:
            filled.append(compressed(measured[part], column.centre, column.scale))
    any_missing = missing.any()
    bounds = column_values.bounds_in(values)
    if column.bounds:
        filled.append(bounds)
    for i, part_values in enumerate(filled):
        out[:, i] = np.where(missing, 0, part_values) if any_missing else part_values
    if column.missing:
        out[:, -1] = missing
    new = np.zeros_like(missing) if column.missing else missing
    return new if column.bounds else new | bounds


def _centre_and_scale(numbers: np.ndarray) -> tuple[float, float]:
    """Median, and a robust standard deviation from the interquartile range."""
    # A power of two, so that nothing is rounded, keeps differences of the largest numbers from overflowing.
    shrink = 2.0**-4 if np.abs(numbers).max() > LARGEST / 16 else 1.0
    lower, centre, upper = np.quantile(numbers * shrink, [0.25, 0.5, 0.75])
    scale = (upper - lower) / _NORMAL_IQR
    # Quartiles that differ by rounding alone are as good as equal, which is common: most values are the same.
    if upper - lower <= 4 * np.spacing(max(abs(lower), abs(upper))):
        deviation = numbers * shrink - centre
        largest = np.abs(deviation).max()
        scale = max(scale, largest * float(np.std(deviation / largest))) if largest > 0 else scale
    scale = float(min(scale, LARGEST * shrink) / shrink)
    return float(centre / shrink) + 0.0, scale if scale > 0 else 1.0  # 0 instead of -0
