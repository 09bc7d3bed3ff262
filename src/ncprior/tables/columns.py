"""Columns of tables: those that a model reads, and those of its predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ncprior.data import table_files
from ncprior.data.encoding import Encoder
from ncprior.data.formats.dialect import DialectOptions
from ncprior.data.formats.text_columns import written
from ncprior.tables import reasons
from ncprior.tables.estimator import NCPRegressor
from ncprior.tables.predictions import Distribution


def input_types(encoder: Encoder) -> dict[str, pa.DataType]:
    """Types of CSV columns as in training, so that they do not depend on the first rows of another file."""
    types = {"number": pa.float64(), "category": pa.string()}
    return {column.name: types[column.kind] for column in encoder.columns if column.kind in types}


def kept_types(model: NCPRegressor, path: Path, out: Path | None, options: DialectOptions) -> dict[str, pa.DataType]:
    """Types of columns of text files that the model does not use: text, so that 007 stays 007.

    If Parquet is written, only what could be read in two ways is text. A target with units is read as its numbers.
    """
    used, targets = set(used_columns(model.encoder_)), target_names(model)
    kept = {}
    for field in table_files.schema_of(path, options=options):
        if field.name in used or (field.name in targets and any(written(field))):
            continue
        if out is None or out.suffix.lower() != ".parquet" or field.type == pa.string():
            kept[field.name] = pa.string()
    return kept


def dialect_of(encoder: Encoder, options: DialectOptions) -> DialectOptions:
    """The options, with how the training table was written for what a file leaves open."""
    return replace(options, trained_decimal=encoder.decimal, trained_dates=encoder.dates)


def used_columns(encoder: Encoder) -> list[str]:
    """The columns that a model needs of a table."""
    return [column.name for column in encoder.columns if column.kind != "left out"]


def target_names(model: NCPRegressor) -> list[str]:
    """The names of what a model predicts; y, or y0, y1 and so on, if it was trained without names."""
    if model.target_names_:
        return list(model.target_names_)
    outputs = len(model.target_shift_)
    return ["y"] if outputs == 1 else [f"y{i}" for i in range(outputs)]


def prediction_columns(
    prediction: Distribution, targets: Sequence[str], level: float | None = None, *, guaranteed: bool = False
) -> dict[str, np.ndarray]:
    """Columns of a prediction, with an interval if there is a level; names end in the target if there are several."""
    values_of = {name: getattr(prediction, name) for name in ("mean", "std", "uncertainty", "noise")}
    if level is not None:
        values_of["lower"], values_of["upper"] = prediction.interval(level, guaranteed=guaranteed)
    columns = {name: values.reshape(-1, len(targets)) for name, values in values_of.items()}
    several = len(targets) > 1
    return {
        f"{name}_{target}" if several else name: values[:, i]
        for i, target in enumerate(targets)
        for name, values in columns.items()
    }


def familiarity_columns(prediction: Distribution, flag_below: float | None = None) -> dict[str, np.ndarray]:
    """How familiar rows are and, if there is a threshold, which of them are ``unfamiliar``, below it."""
    familiarity = prediction.familiarity
    return {"familiarity": familiarity} | ({} if flag_below is None else {"unfamiliar": familiarity < flag_below})


def with_columns(table: pa.Table, columns: Mapping[str, np.ndarray], at: int | None = None) -> pa.Table:
    """The table with more columns, at its end or elsewhere; a prefix tells them from columns of the same name."""
    prefix, names = "", set(table.column_names)
    while any(prefix + name in names for name in columns):
        prefix += "ncprior_"
    at = table.num_columns if at is None else at
    for i, (name, values) in enumerate(columns.items()):
        table = table.add_column(at + i, prefix + name, [values])
    return table


def with_reasons(model: NCPRegressor, rows: pa.Table) -> pa.Table:
    """Rows to label with a column ``why``, unless they are more than `reasons.MOST_ROWS`."""
    if rows.num_rows > reasons.MOST_ROWS:
        return rows
    prediction = model.predict_piece(rows)
    uncertainty, noise = (part.reshape(rows.num_rows, -1) for part in (prediction.uncertainty, prediction.noise))
    scale = model.target_scale_
    texts = reasons.reasons(model.fitted_, rows, (uncertainty / scale).mean(1), (noise / scale).mean(1))
    return with_columns(rows, {"why": np.array(texts, object)})


def count_rows(path: Path) -> int | None:
    """The number of rows, if it is in the files' metadata."""
    files = [path] if path.is_file() else sorted(path.rglob("*.parquet")) if path.is_dir() else []
    if not files or any(file.suffix.lower() != ".parquet" for file in files):
        return None
    try:
        return sum(pq.read_metadata(file).num_rows for file in files if file.name[0] not in "._")
    except (OSError, ValueError):
        return None  # reading the table says what is wrong with the file
