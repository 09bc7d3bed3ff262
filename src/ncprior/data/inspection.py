"""Possible mistakes in a table that a person should check before trusting a model of it, as sentences.

Nothing here changes the table, but for columns without a name that only count rows: these are left out.
"""

import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ncprior.data import cells, column_values
from ncprior.data.encoding import Column, Encoder
from ncprior.errors import UserError

_UNNAMED = re.compile(r"unnamed \d+|Unnamed: \d+|")
_IDS = re.compile(
    r"(.*[_ .-])?(id|ids|key|index|idx|row|rownum|nr|no|number|uuid|guid|code|#)|.*[a-z](Id|ID)|id\d*", re.I
)
_WHOLE = re.compile(r"[+-]?\d+")
_SENTINELS = (-9, -99, -999, -9999, -99999, -999999, -9.99, -99.9, -999.9, 99, 999, 9999, 99999, 999999, 1e20, -1e20)
_ONE_TO_ONE = 0.999
"""Rank correlation, or share of the variance that categories explain, from which on a column gives the target away."""
_DIFFERENT = 0.9
"""Share of the values of an id that are different, at least."""
_FEW_ROWS = 100
"""Rows below which the held-out rows are too few to tell how good a model is."""
_FEW_VALUES = 10
"""Values of a target up to which it may be a class."""
_MOST_VALUES = 5_000_000
"""Values that are looked at, in rows that are evenly spread."""
_LISTED = 5


def row_counters(table: pa.Table, indices: np.ndarray | None = None) -> list[str]:
    """Columns without a name that count rows, as programs write beside a table.

    ``indices`` are those of its rows in a whole that they were drawn from, from 0.
    """
    indices = np.arange(table.num_rows) if indices is None else indices
    return [name for name in table.column_names if _UNNAMED.fullmatch(name) and _counts(table[name], indices)]


def look_at(table: pa.Table, targets: dict[str, np.ndarray], encoder: Encoder) -> list[str]:
    """What to look at, as sentences, the most important first.

    Args:
        table: The inputs, of rows that have a target.
        targets: The values of each target.
        encoder: How the inputs were encoded.
    """
    step = max(1, min(table.num_rows // _FEW_ROWS, table.num_rows * table.num_columns // _MOST_VALUES))
    sample = table.take(np.arange(0, table.num_rows, step)) if step > 1 else table
    used = [column for column in encoder.columns if column.kind != "left out"]
    findings = [line for name, values in targets.items() for line in _giveaways(sample, used, name, values[::step])]
    findings += [line for column in encoder.columns if column.kind == "left out" for line in _left_out(column, sample)]
    findings += [line for column in used if column.kind == "category" for line in _numbers_as_text(column, sample)]
    findings += [line for column in used for line in _counter(column, sample[column.name])]
    findings += [line for column in used if column.kind == "number" for line in _sentinel(column, sample[column.name])]
    findings += [line for name, values in targets.items() for line in _target(name, values)]
    findings += _equal_columns(sample, used)
    findings += _copies(sample, targets, step)
    if constant := [column.name for column in encoder.columns if column.treatment == "left out: constant"]:
        findings.append(f"{_names(constant)}: the same in every row, so nothing can be learned from {_it(constant)}")
    if table.num_rows < _FEW_ROWS:
        findings.append(f"{table.num_rows} rows are few: how good the model is, is hardly known")
    return findings


def _giveaways(table: pa.Table, used: Sequence[Column], target: str, values: np.ndarray) -> Iterator[str]:
    """Columns that are nearly one-to-one with the target."""
    if len(values) < 20:
        return
    ranks = _ranks(values)
    for column in used:
        if column.kind == "category":
            share = _explained(column_values.text(column.name, table[column.name]), values)
        elif column.kind == "number":
            numbers, missing = column_values.numbers(column.name, table[column.name], 1)
            present = ~missing
            if present.sum() < 20 or numbers[present].min() == numbers[present].max():
                continue
            share = abs(float(np.corrcoef(_ranks(numbers[present]), ranks[present])[0, 1]))
        else:
            continue
        if share >= _ONE_TO_ONE:
            yield (
                f"{column.name!r} gives {target!r} away: they are nearly one-to-one; if it is not known beforehand, "
                f"--exclude-columns {_option(column.name)}"
            )


def _left_out(column: Column, table: pa.Table) -> Iterator[str]:
    """A column of text that was left out although most of it reads as numbers or dates."""
    if column_values.kind_of(column.name, table[column.name].type) != "category":
        return
    text = _different_text(column, table)
    odd = [value for value in text if not cells.resembles_typed(value)]
    if not text or len(odd) > len(text) / 2:
        return
    if odd:
        what = f"{1 - len(odd) / len(text):.0%} of it looks like numbers or dates, but not {odd[0]!r:.40}"
        advice = "mend it to use it"
    else:
        what = f"it looks like numbers or dates, such as {' and '.join(f'{value!r:.40}' for value in _unlike(text))}"
        advice = "to use it, write all of it as plain numbers or dates"
    yield f"{column.name!r} was left out, though {what}; {advice}"


def _unlike(text: Sequence[str]) -> list[str]:
    """A value, and the first other value that is read in a different way, if there is one."""

    def alike(value: str) -> bool:
        try:
            reading = cells.infer("", [text[0], value], lists=True)
        except UserError:
            return False
        return reading is not None and reading.kind != "text"

    other = next((value for value in text if not alike(value)), None) if alike(text[0]) else None
    return [text[0]] if other is None else [text[0], other]


def _numbers_as_text(column: Column, table: pa.Table) -> Iterator[str]:
    """A category that reads as numbers or dates, as a file or frame with types of its own may hold them.

    Few values, and whole numbers, may well be codes.
    """
    if pa.types.is_dictionary(table[column.name].type):
        return  # which is to say that it is a category
    text = _different_text(column, table)
    try:
        reading = cells.infer(column.name, text)
    except UserError:  # it can be read in two ways
        return
    present = [value for value in text if reading and value not in reading.marks]
    if reading is None or len(present) <= column_values.FEW or all(map(_WHOLE.fullmatch, present)):
        return
    if reading.kind in ("number", "date"):
        what = f"{column.name!r} is text, and so a category, though it reads as {reading.kind}s"
        what += f", such as {present[0]!r:.40}"
        yield f"{what}; convert it if that is what it is"


def _different_text(column: Column, table: pa.Table) -> list[str]:
    """Different values of a text column, up to 2,000."""
    text = column_values.text(column.name, table[column.name])
    return [value for value in text.drop_null().unique().to_pylist()[:2_000] if value]


def _counter(column: Column, values: pa.ChunkedArray) -> Iterator[str]:
    """A column that counts rows, or names them."""
    if column.kind != "number" or len(values) < 20:
        return
    numbers, missing = column_values.numbers(column.name, values, 1)
    if missing.any() or (numbers != np.floor(numbers)).any():
        return
    different = numbers[np.sort(np.unique(numbers, return_index=True)[1])]
    if len(different) < _DIFFERENT * len(numbers):  # some rows may be copies
        return
    steps = np.diff(different)
    if (steps == steps[0]).all():
        what = "counts the rows"
    elif _IDS.fullmatch(column.name):
        what = "looks like an id"
    else:
        return
    advice = f"if it means nothing, --exclude-columns {_option(column.name)}"
    yield f"{column.name!r} {what} and was taken as an input; {advice}"


def _sentinel(column: Column, values: pa.ChunkedArray) -> Iterator[str]:
    """A number such as -999 that stands for a missing value."""
    numbers, missing = column_values.numbers(column.name, values, 1)
    present = numbers[~missing]
    for end in (present.min(), present.max()):
        rest = present[present != end]
        if end in _SENTINELS and len(rest) and np.abs(rest - end).min() > np.ptp(rest):
            count = len(present) - len(rest)
            rows = f"{count:,} rows" if count > 1 else "one row"
            far = f"{column.name!r} is {end:g} in {rows}, far from all its other values"
            yield f"{far}; if that means missing, leave it empty"


def _target(name: str, values: np.ndarray) -> Iterator[str]:
    different = np.unique(values)
    if len(different) <= _FEW_VALUES and len(values) >= 5 * len(different):
        listed = ", ".join(f"{value:g}" for value in different[:_LISTED]) + (
            ", ..." if len(different) > _LISTED else ""
        )
        yield f"the target {name!r} has only {len(different)} values ({listed}): if these are classes, use a classifier"


def _equal_columns(table: pa.Table, used: Sequence[Column]) -> Iterator[str]:
    """Columns that hold the same values."""
    first: dict[object, str] = {}
    for column in used:
        values = table[column.name]
        if pa.types.is_dictionary(values.type):
            continue
        key = (column.kind, values.slice(0, 20).combine_chunks().to_string())  # of what Python cannot hold, too
        other = first.setdefault(key, column.name)
        if other != column.name and table[other].equals(values):
            yield f"{column.name!r} holds the same values as {other!r}; leave one of them out"


def _copies(table: pa.Table, targets: dict[str, np.ndarray], step: int) -> Iterator[str]:
    """Rows that occur more than once, target and all."""
    if step > 1 or any(pa.types.is_nested(column.type) for column in table.columns):
        return
    joined = table
    for i, values in enumerate(targets.values()):
        joined = joined.append_column(f"target {i}", pa.array(values))
    joined = joined.rename_columns([f"{i}" for i in range(joined.num_columns)])
    try:
        copies = table.num_rows - joined.group_by(joined.column_names).aggregate([]).num_rows
    except pa.ArrowException:  # a type that Arrow does not group by
        return
    if copies:
        rows = f"{copies:,} rows are copies of others" if copies > 1 else "one row is a copy of another"
        yield f"{rows}, target and all; if they were not measured more than once, drop them"


def _counts(values: pa.ChunkedArray, indices: np.ndarray) -> bool:
    """Whether a column is 0, 1, 2 and so on, or 1, 2, 3, or empty."""
    if values.null_count == len(values):
        return True
    if values.null_count or column_values.kind_of("", values.type) != "number":
        return False
    first = values.cast(pa.float64()).to_numpy() - indices
    return bool(first[0] in (0, 1) and (first == first[0]).all())


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks, equal values with the mean of theirs."""
    _, indices, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - counts / 2)[indices]


def _explained(text: pa.ChunkedArray, values: np.ndarray) -> float:
    """Share of the target's variance that the means of categories explain; 0 if most categories have one row."""
    codes = text.fill_null("").combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    counts = np.bincount(codes)
    if len(counts) > len(values) / 2 or values.var() == 0:
        return 0.0
    means = np.bincount(codes, values) / counts
    return float(1 - np.mean((values - means[codes]) ** 2) / values.var())


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(map(repr, names[:_LISTED])) + more


def _it(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"


def _option(name: str) -> str:
    return f'"{name}"' if re.search(r"\W", name) else name
