"""The search of a pool as tasks, one for each unit of its files."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ncprior.data import table_files
from ncprior.data.table_files import Unit
from ncprior.engines.engine import Engine
from ncprior.errors import UserError
from ncprior.tables.pool import Found, Key, Picker
from ncprior.tables.table_predictions import UNIT_ROWS, ModelFile, first_rows


@dataclass(frozen=True)
class PoolSearch:
    """A pool in files, and how its rows are picked.

    Args:
        model: The file of the model.
        picker: Picks the rows.
        pool: The file or folder of the pool.
        exclude: A file of rows that must not be picked.
    """

    model: ModelFile
    picker: Picker
    pool: Path
    exclude: Path | None = None

    def not_to_pick(self) -> frozenset[Key]:
        """What tells rows that must not be picked from others; read once by a process."""
        return _not_to_pick(self)


@lru_cache(maxsize=1)
def _not_to_pick(search: PoolSearch) -> frozenset[Key]:
    if search.exclude is None:
        return frozenset()
    return frozenset(search.picker.keys_in(search.model.load(), search.exclude))


@dataclass(frozen=True)
class SearchTask:
    """The search of one unit of a pool."""

    search: PoolSearch
    unit: Unit
    first_row: int
    pool_rows: int


def search_unit(task: SearchTask) -> Found:
    """What is found in one unit."""
    search, model = task.search, task.search.model.load()
    pieces = search.picker.stream(model, search.pool, units=[task.unit])
    return search.picker.search(model, pieces, search.not_to_pick(), first_row=task.first_row, part_of=task.pool_rows)


def search_units(search: PoolSearch, engine: Engine, advance: Callable[[int], None]) -> Found:
    """What is found in all units of a pool, wherever the engine runs tasks: as if it had been searched whole.

    Raises:
        UserError: If rows have no ids and files do not say how many rows they have, so that rows have no numbers.
    """
    units = table_files.units(search.pool, rows=UNIT_ROWS)
    rows = table_files.rows_of(units)
    if rows is None and search.picker.id_column is None and len(units) > 1:
        raise UserError(f"{search.pool}: its files do not say how many rows they have; give --id, or use Parquet")
    tasks = [SearchTask(search, unit, first, rows or 0) for unit, first in zip(units, first_rows(units), strict=True)]

    def found() -> Iterator[Found]:
        for _, one in engine.run(search_unit, tasks):
            advance(one.pool)
            yield one

    return search.picker.merge(found(), rows or 0, len(search.not_to_pick()))
