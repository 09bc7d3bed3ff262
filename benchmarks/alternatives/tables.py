"""The tables, and which rows are for training and which for the test."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

RANDOM_SPLITS = 10


class Table(NamedTuple):
    """Inputs ``[rows, columns]`` and targets ``[rows]``."""

    name: str
    columns: list[str]
    inputs: np.ndarray
    targets: np.ndarray


class Split(NamedTuple):
    """Numbers of the rows to train on and to test on, both in ascending order."""

    name: str
    train: np.ndarray
    test: np.ndarray


def load(folder: Path | None, names: list[str] | None, target: str) -> list[Table]:
    """The CSV files of a folder in the order of their names, or the table that comes with scikit-learn."""
    if folder is None:
        return [_diabetes()]
    paths = {path.stem: path for path in sorted(folder.glob("*.csv"))}
    if not paths:
        raise SystemExit(f"{folder} holds no .csv file")
    unknown = [name for name in names or [] if name not in paths]
    if unknown:
        raise SystemExit(f"no {', '.join(unknown)} in {folder}; there is {', '.join(paths)}")
    return [read(paths[name], target) for name in names or paths]


def read(path: Path, target: str) -> Table:
    """A CSV file of numbers with one header line; rows with a missing value are left out."""
    with path.open() as file:
        header = [name.strip().strip('"') for name in file.readline().split(",")]
    if target not in header:
        raise SystemExit(f"{path} has no column {target!r}; its columns are {', '.join(header)}; see --target")
    values = np.atleast_2d(np.genfromtxt(path, delimiter=",", skip_header=1, dtype=np.float64))
    text = [name for name, column in zip(header, values.T, strict=True) if np.isnan(column).all()]
    if text:
        raise SystemExit(f"{path}: {', '.join(text)} hold no numbers; the alternatives take numbers only")
    complete = ~np.isnan(values).any(axis=1)
    if not complete.all():
        print(f"{path.stem}: {np.sum(~complete)} rows with missing values are left out")
    place = header.index(target)
    inputs = np.delete(values[complete], place, axis=1)
    return Table(path.stem, [name for name in header if name != target], inputs, values[complete, place])


def _diabetes() -> Table:
    """442 patients, ten inputs, a measure of disease progression; part of scikit-learn, nothing is downloaded."""
    from sklearn.datasets import load_diabetes

    data = load_diabetes(scaled=False)
    return Table("diabetes", list(data.feature_names), np.asarray(data.data), np.asarray(data.target))


def split(table: Table, kind: str, most: int | None = None) -> list[Split]:
    """The splits of a table, the first ``most`` of them."""
    splits = gap_splits(table) if kind == "gap" else random_splits(len(table.targets))
    return splits[:most]


def gap_splits(table: Table) -> list[Split]:
    """One split for each input that varies: sorted by it, the middle third of the rows is the test.

    Of ``n`` rows in order, those at places ``n // 3`` to ``2 n // 3`` (which is not included) are the test; rows with
    equal values stay in the order of the table.
    """
    splits = []
    for name, column in zip(table.columns, table.inputs.T, strict=True):
        if column.min() < column.max():
            order, rows = np.argsort(column, kind="stable"), len(column)
            splits.append(_split(f"gap in {name}", order[rows // 3 : 2 * rows // 3], rows))
    return splits


def random_splits(rows: int, count: int = RANDOM_SPLITS) -> list[Split]:
    """Splits that leave a tenth of the rows for the test, drawn with seeds 0, 1, ..."""
    test = min(max(round(0.1 * rows), 1), rows - 1)
    orders = (np.random.default_rng([0, seed]).permutation(rows) for seed in range(count))
    return [_split(f"random {seed + 1}", order[:test], rows) for seed, order in enumerate(orders)]


def _split(name: str, test: np.ndarray, rows: int) -> Split:
    return Split(name, np.setdiff1d(np.arange(rows), test), np.sort(test))
