"""Inputs of rows as JSON and as tables: the same few types, whether they come from the pool or from the database."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from ncprior.campaigns.spec import is_text
from ncprior.data import column_values
from ncprior.errors import UserError

Inputs: TypeAlias = dict[str, object]
"""The inputs of a row by column: a number, text, true or false, a date as text, or None."""

Kinds: TypeAlias = Mapping[str, str]
"""``number``, ``flag``, ``category`` or ``date`` for each column."""

_TYPES = {"number": pa.float64(), "flag": pa.bool_(), "category": pa.large_string(), "date": pa.timestamp("us")}
_DAY = 86_400_000_000  # microseconds
_LONGEST_TEXT = 10_000


def kinds_of(schema: pa.Schema, names: Sequence[str]) -> dict[str, str]:
    """The kinds of these columns of a pool."""
    return {name: column_values.kind_of(name, schema.field(name).type) for name in names}


def as_inputs(table: pa.Table, kinds: Kinds, first_row: int = 1) -> pa.Table:
    """The input columns of a table, in the types that all rows have.

    >>> as_inputs(pa.table({"x": [1, 2], "z": [0, 0]}), {"x": "number"}).schema.types
    [DataType(double)]
    """
    return pa.table({name: _column(name, table[name], kind, first_row) for name, kind in kinds.items()})


def _column(name: str, values: pa.ChunkedArray, kind: str, first_row: int) -> pa.Array | pa.ChunkedArray:
    if kind == "category":
        return column_values.text(name, values)
    if kind == "date":
        days, missing = column_values.days(name, values, first_row)
        since = days.day * _DAY + np.round(days.fraction * _DAY).astype(np.int64)
        return pa.array(since, mask=missing).cast(pa.timestamp("us"))
    numbers, missing = column_values.numbers(name, values, first_row, kind)
    if kind == "flag":
        return pa.array(np.where(missing, 0, numbers).astype(bool), mask=missing)
    return pa.array(numbers, mask=missing)


def to_json(inputs: pa.Table) -> list[Inputs]:
    """The rows of `as_inputs`, as the database and clients have them."""
    rows: list[Inputs] = inputs.to_pylist()
    dates = [
        name for name, kind in zip(inputs.column_names, inputs.schema.types, strict=True) if kind == _TYPES["date"]
    ]
    for row in rows:
        for name in dates:
            value = row[name]
            row[name] = value.isoformat() if isinstance(value, datetime) else None
    return rows


def from_json(rows: Sequence[Inputs], kinds: Kinds) -> pa.Table:
    """Rows of `to_json` as a table again."""
    columns = {}
    for name, kind in kinds.items():
        values = [row.get(name) for row in rows]
        if kind == "date":
            columns[name] = pa.array(values, pa.string()).cast(pa.timestamp("us"))
        else:
            columns[name] = pa.array(values, _TYPES[kind])
    return pa.table(columns)


def checked(inputs: Mapping[str, object], kinds: Kinds) -> Inputs:
    """Inputs that someone gives for a row outside the pool.

    Raises:
        UserError: If a column is missing or unknown, or a value is of another kind.
    """
    if unknown := sorted(set(inputs) - set(kinds)):
        raise UserError(f"unknown input {unknown[0]!r:.80}; the inputs are {', '.join(kinds)}")
    if missing := [name for name in kinds if name not in inputs]:
        raise UserError(f"no value for the input {missing[0]!r:.80}; give all of {', '.join(kinds)}")
    return {name: _value(name, inputs[name], kind) for name, kind in kinds.items()}


def _value(name: str, value: object, kind: str) -> object:
    if value is None or value == "":
        return None
    what = f"{value!r:.80} is no value of the input {name!r:.80}"
    if not isinstance(value, str | int | float):
        raise UserError(f"{what}; give a number, text, true or false, or null")
    text = str(value)
    if kind == "category":
        if not is_text(text, _LONGEST_TEXT):
            raise UserError(f"the value of the input {name!r:.80} is too long, or has characters that are no text")
        return text
    try:
        if kind == "date":
            return datetime.fromisoformat(text).replace(tzinfo=None).isoformat()
        if kind == "flag":
            return {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}[text.lower()]
        number = float(value)
    except (ValueError, KeyError, OverflowError) as error:
        word = {"date": "a date such as 2026-01-31", "flag": "true or false"}.get(kind, "a number")
        raise UserError(f"{what}; give {word}") from error
    if not np.isfinite(number):
        raise UserError(f"{what}; give a number, or nothing if it is missing")
    return number
