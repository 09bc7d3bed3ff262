"""Predictions of a table in files, unit by unit, and what they say in sum.

A unit (see `ncprior.data.table_files.units`) can be predicted apart from the others, by any process. Sums are those of
the units, added in their order, so that they are the same wherever units are predicted.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ncprior.data import column_values, table_files
from ncprior.data.formats.dialect import DialectOptions
from ncprior.data.table_files import Unit
from ncprior.engines.engine import Engine
from ncprior.errors import UserError
from ncprior.files import digest_of
from ncprior.tables.columns import familiarity_columns, prediction_columns, target_names, with_columns
from ncprior.tables.estimator import NCPRegressor
from ncprior.tables.predictions import Distribution

Advance = Callable[[int], None]
"""Told how many rows were done since."""

UNIT_ROWS = 1 << 20
"""Rows of a unit of a Parquet file, about, if its row groups are smaller."""

UNLIKE = 0.05
"""Familiarity below which a row is unlike the training rows: as far off as one in twenty of these."""


class ModelFile(NamedTuple):
    """The file of a model."""

    path: Path
    digest: str = ""  # of the file that other machines must have, too; not compared if it is empty

    @classmethod
    def shared(cls, path: Path) -> "ModelFile":
        """The file at a place that all machines see."""
        return cls(path.absolute(), digest_of(path))

    def load(self) -> NCPRegressor:
        """The model, which is read once by a process.

        Raises:
            UserError: If the file is another one here.
        """
        return _loaded(self)


@lru_cache(maxsize=1)
def _loaded(file: ModelFile) -> NCPRegressor:
    if file.digest and digest_of(file.path) != file.digest:
        raise UserError(f"{file.path}: is not the same file on all machines; copy it anew, or share the folder")
    return NCPRegressor.load(file.path)


class Scores:
    """How good predictions are, from sums over the rows of a table whose targets are known."""

    def __init__(self, targets: Sequence[str]) -> None:
        self.targets = targets
        self.sums = {name: np.zeros(4) for name in targets}  # rows, squared errors, log densities, rows in the interval
        self.not_scored: dict[str, str] = {}
        """Why a target that is in the table has no scores, by its name."""

    def add(self, table: pa.Table, prediction: Distribution, columns: Mapping[str, np.ndarray], first_row: int) -> None:
        """Add the rows of a piece of the table.

        Args:
            table: The piece.
            prediction: Its prediction.
            columns: The columns of the prediction, such as ``lower`` and ``upper``.
            first_row: The number of its first row in the whole table, for messages.
        """
        truth = np.full((table.num_rows, len(self.targets)), np.nan)
        for i, name in enumerate(self.targets):
            if name in table.column_names and name not in self.not_scored:
                try:
                    truth[:, i] = column_values.numbers(name, table[name], first_row)[0]
                except UserError as error:
                    self.not_scored[name] = str(error)
        present = ~np.isnan(truth)
        if not present.any():
            return
        filled = np.where(present, truth, 0)
        density = prediction.log_prob(filled[:, 0] if prediction.flat else filled).reshape(truth.shape)
        for i, name in enumerate(self.targets):
            suffix = f"_{name}" if len(self.targets) > 1 else ""
            mean, lower, upper = (columns[f"{part}{suffix}"] for part in ("mean", "lower", "upper"))
            y = filled[:, i]
            sums = np.stack([np.ones(len(y)), (y - mean) ** 2, density[:, i], (lower <= y) & (y <= upper)])
            self.sums[name] += sums[:, present[:, i]].sum(axis=1)

    def merge(self, others: "Scores") -> None:
        """Add the sums of a unit that comes after these."""
        for name in self.targets:
            self.sums[name] += others.sums[name]
        self.not_scored = others.not_scored | self.not_scored

    def results(self) -> dict[str, dict[str, float]]:
        """RMSE, NLPD, coverage and number of rows, for each target that is in the table."""
        results = {}
        for name, (rows, squares, density, inside) in self.sums.items():
            if rows and name not in self.not_scored:
                scores = {"rmse": math.sqrt(squares / rows), "nlpd": -density / rows, "coverage": inside / rows}
                results[name] = {**scores, "rows": int(rows)}
        return results


class Totals:
    """What predictions say in sum: how many rows there were, how many are unlike the training rows, and scores."""

    def __init__(self, targets: Sequence[str]) -> None:
        self.scores = Scores(targets)
        self.rows = self.unlike_rows = 0
        self.columns: list[str] = []
        """The names of the columns of predictions."""

    def merge(self, others: "Totals") -> None:
        """Add those of a unit that comes after these."""
        self.scores.merge(others.scores)
        self.rows += others.rows
        self.unlike_rows += others.unlike_rows
        self.columns = self.columns or others.columns

    @property
    def unlike(self) -> float | None:
        """The share of rows that are unlike the training rows; None if there are none."""
        return self.unlike_rows / self.rows if self.rows else None


@dataclass(frozen=True)
class Job:
    """Predictions of a table.

    Args:
        model: The file of the model.
        table: The file or folder of the table.
        types: Types of columns of text files.
        options: What is known about the dialect of text files.
        level: Probability of the interval.
        flag_below: Familiarity below which rows are marked; None for no marks.
        guaranteed: Whether the interval is the conformal one.
    """

    model: ModelFile
    table: Path
    types: Mapping[str, pa.DataType]
    options: DialectOptions
    level: float
    flag_below: float | None = None
    guaranteed: bool = False

    def pieces(self, unit: Unit, totals: Totals, first_row: int = 1) -> Iterator[pa.Table]:
        """The rows of a unit with their predictions, piece by piece, which are added to the totals."""
        model = self.model.load()
        targets = target_names(model)
        for piece in table_files.stream(self.table, schema=self.types, options=self.options, units=[unit]):
            prediction = model.predict_piece(piece, first_row=first_row)
            columns = prediction_columns(prediction, targets, self.level, guaranteed=self.guaranteed)
            columns |= familiarity_columns(prediction, self.flag_below)
            totals.scores.add(piece, prediction, columns, first_row)
            totals.unlike_rows += int((columns["familiarity"] < UNLIKE).sum())
            totals.rows += piece.num_rows
            first_row += piece.num_rows
            extended = with_columns(piece, columns)
            totals.columns = extended.column_names[-len(columns) :]
            yield extended


@dataclass(frozen=True)
class UnitTask:
    """The prediction of a unit, and where it is written; nowhere if that is None."""

    job: Job
    unit: Unit
    first_row: int
    out: Path | None
    shown_rows: int


class UnitDone(NamedTuple):
    """What the prediction of a unit leaves beside its file."""

    totals: Totals
    first: pa.Table | None  # its first rows


def predict_unit(task: UnitTask) -> UnitDone:
    """Predicts a unit. A task that runs twice writes its file once."""
    totals, first = Totals(target_names(task.job.model.load())), None
    pieces = task.job.pieces(task.unit, totals, task.first_row)
    if task.out is None:
        for piece in pieces:
            first = piece.slice(0, task.shown_rows) if first is None else first
        return UnitDone(totals, first)
    with table_files.write(task.out, once=True) as append:
        for piece in pieces:
            first = piece.slice(0, task.shown_rows) if first is None else first
            append(piece)
    return UnitDone(totals, first)


def first_rows(units: Sequence[Unit]) -> list[int]:
    """The number of the first row of every unit in the table, as far as files say; else 1, that in the unit."""
    counts = [unit.rows for unit in units]
    if None in counts:
        return [1] * len(units)
    return [1 + sum(count or 0 for count in counts[:i]) for i in range(len(units))]


def predict_units(
    job: Job, units: Sequence[Unit], engine: Engine, folder: Path | None, *, shown_rows: int, advance: Advance
) -> UnitDone:
    """Predicts the units of a table, wherever the engine runs tasks.

    Args:
        job: What to predict.
        units: All units of its table.
        engine: Runs a task for each.
        folder: Where each one's predictions are written, see `unit_file`; None for nowhere.
        shown_rows: How many first rows to give back.
        advance: Called with the number of rows of every unit that is done.
    """
    files = [None if folder is None else unit_file(folder, number) for number in range(len(units))]
    tasks = [
        UnitTask(job, unit, first, place, shown_rows)
        for unit, first, place in zip(units, first_rows(units), files, strict=True)
    ]
    done: dict[int, UnitDone] = {}
    for number, one in engine.run(predict_unit, tasks):
        done[number] = one
        advance(one.totals.rows)
    totals, first = Totals(target_names(job.model.load())), None
    for number in range(len(units)):
        totals.merge(done[number].totals)
        first = done[number].first if first is None else first
    return UnitDone(totals, first)


def unit_file(folder: Path, number: int) -> Path:
    """The file of a unit's predictions; by their names, the files follow each other as the units do."""
    return folder / f"part-{number:06d}.parquet"


def predict_here(
    job: Job, units: Sequence[Unit], append: Callable[[pa.Table], None] | None, *, shown_rows: int, advance: Advance
) -> UnitDone:
    """The same in this process, in bounded memory however large a unit is.

    Args:
        job: What to predict.
        units: All units of its table.
        append: Takes the rows with their predictions; None to drop them.
        shown_rows: How many first rows to give back.
        advance: Called with the number of rows of every piece that is done.
    """
    totals, first = Totals(target_names(job.model.load())), None

    def pieces() -> Iterator[pa.Table]:
        nonlocal first
        for unit in units:
            of_unit = Totals(totals.scores.targets)
            for piece in job.pieces(unit, of_unit, totals.rows + 1):
                first = piece.slice(0, shown_rows) if first is None else first
                yield piece
                advance(piece.num_rows)
            totals.merge(of_unit)

    append_all(append or (lambda _: None), pieces())
    return UnitDone(totals, first)


def append_all(append: Callable[[pa.Table], None], pieces: Iterable[pa.Table]) -> None:
    """Appends rows in pieces whose sizes do not depend on those of the units: the file is always the same."""
    for piece in table_files.in_pieces(pieces, _WRITTEN_ROWS):
        append(piece)


_WRITTEN_ROWS = 65_536
"""Rows that are written at a time, and so in a row group of Parquet."""
