"""Columns of people's tables: which ones a model learns from, and those that tell of its predictions."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ncprior.cli.paper import split_names
from ncprior.data import tables
from ncprior.errors import UserError
from ncprior.estimators import Distribution, NCPRegressor


def choose_inputs(path: Path, targets: Sequence[str], inputs: Sequence[str], excluded: Sequence[str]) -> list[str]:
    """The names of the columns to predict from."""
    names = dict.fromkeys(tables.schema_of(path).names)
    chosen, left_out = given_columns(inputs, names), set(given_columns(excluded, names))
    if unknown := sorted(left_out - names.keys()):
        raise UserError(f"--exclude-columns: {path} has no column {unknown[0]!r}; it has {_listed(list(names))}")
    for name in chosen:
        if name in targets or name in left_out:
            other = "--target" if name in targets else "--exclude-columns"
            raise UserError(f"column {name!r} is in --inputs and in {other}; take it out of one of them")
    chosen = chosen or [name for name in names if name not in targets and name not in left_out]
    if not chosen:
        raise UserError(f"{path}: no column is left to predict from; give a table with more columns than the target")
    return chosen


def _listed(names: Sequence[str], most: int = 20) -> str:
    """The names, or the first of them and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def given_columns(items: Sequence[str], names: Collection[str]) -> list[str]:
    """The column names in comma-separated lists, each once; a name with commas in it is given alone."""
    return list(dict.fromkeys(name for item in items for name in ([item] if item in names else split_names(item))))


def input_types(model: NCPRegressor) -> dict[str, pa.DataType]:
    """Types of CSV columns as in training, so that they do not depend on the first rows of another file."""
    types = {"number": pa.float64(), "category": pa.string()}
    return {column.name: types[column.kind] for column in model.encoder_.columns if column.kind in types}


def kept_types(model: NCPRegressor, path: Path, out: Path | None) -> dict[str, pa.DataType]:
    """Types of CSV columns that the model does not use: text, unless Parquet is written, so that 007 stays 007."""
    if out is not None and out.suffix.lower() != ".csv":
        return {}
    used = set(used_columns(model))
    return {name: pa.string() for name in tables.schema_of(path).names if name not in used}


def used_columns(model: NCPRegressor) -> list[str]:
    """The columns that a model needs of a table."""
    return [column.name for column in model.encoder_.columns if column.kind != "left out"]


def target_names(model: NCPRegressor) -> list[str]:
    """The names of what a model predicts; y, or y0, y1 and so on, if it was trained without names."""
    if model.target_names_:
        return list(model.target_names_)
    outputs = len(model.target_shift_)
    return ["y"] if outputs == 1 else [f"y{i}" for i in range(outputs)]


def described(prediction: Distribution, targets: Sequence[str], level: float | None = None) -> dict[str, np.ndarray]:
    """The columns that tell of a prediction, with an interval if it has a level; names end in the target of several."""
    told = {name: getattr(prediction, name) for name in ("mean", "std", "uncertainty", "noise")}
    if level is not None:
        told["lower"], told["upper"] = prediction.interval(level)
    columns = {name: values.reshape(-1, len(targets)) for name, values in told.items()}
    several = len(targets) > 1
    return {
        f"{name}_{target}" if several else name: values[:, i]
        for i, target in enumerate(targets)
        for name, values in columns.items()
    }


def with_columns(table: pa.Table, columns: Mapping[str, Any], at: int | None = None) -> pa.Table:
    """The table with more columns, at its end or elsewhere; a prefix tells them from columns of the same name."""
    prefix, names = "", set(table.column_names)
    while any(prefix + name in names for name in columns):
        prefix += "ncprior_"
    at = table.num_columns if at is None else at
    for i, (name, values) in enumerate(columns.items()):
        table = table.add_column(at + i, prefix + name, [values])
    return table


def count_rows(path: Path) -> int | None:
    """The number of rows, where files tell it without being read."""
    files = [path] if path.is_file() else sorted(path.glob("*.parquet")) if path.is_dir() else []
    if not files or any(file.suffix.lower() != ".parquet" for file in files):
        return None
    try:
        return sum(pq.read_metadata(file).num_rows for file in files if file.name[0] not in "._")
    except (OSError, ValueError):
        return None  # reading the table says what is wrong with the file
