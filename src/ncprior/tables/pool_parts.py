"""What was found in shards of a pool, as files: for pools that many machines search, each a part of it."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ncprior.data import table_files
from ncprior.errors import UserError
from ncprior.files import explained, written
from ncprior.schema import Length, Range, conform, read_json
from ncprior.tables.candidates import Kept
from ncprior.tables.columns import with_columns
from ncprior.tables.constraints import PerGroup
from ncprior.tables.pool import Found, Picker

_NOTES = b"ncprior.part"
_FORMAT = 2
_Count = Annotated[int, Range(0, 1 << 62)]


class Shard(NamedTuple):
    """One of several parts of a pool that are searched apart, counted from 1."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """A shard as it is written: 3/64.

        >>> Shard.parse("3/64")
        Shard(number=3, of=64)
        """
        number, _, of = text.partition("/")
        if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of) <= 10**6):
            raise UserError(f"--shard {text}: give its number and how many there are, such as 3/64")
        return cls(int(number), int(of))

    def units(self, pool: Path) -> list[table_files.Unit]:
        """What this shard reads: every so many-th file of the pool or, if they are few, row group."""
        found = table_files.units(pool, least=self.of)
        if len(found) < self.of:
            advice = "have fewer shards, or write the pool as Parquet with more files or row groups"
            raise UserError(f"--shard {self}: {pool} has only {len(found)} parts that can be read apart; {advice}")
        return found[self.number - 1 :: self.of]

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


@dataclass(frozen=True)
class Search:
    """How the shards of a pool were searched: the same for all of them."""

    model: str  # SHA-256 of its file
    acquisition: str
    temperature: float
    seed: _Count
    id_column: str
    count: _Count
    pool_rows: _Count  # in all shards; 0 if that is not known
    not_to_pick: _Count  # ids of rows that must not be picked
    shards: _Count
    cost: str  # column of costs, if any
    groups: str  # column of groups, if any
    per_group: _Count
    output_weights: tuple[float, ...]

    @property
    def picker(self) -> Picker:
        """What picks rows as this search does."""
        return Picker(
            self.count,
            self.acquisition,
            self.temperature,
            self.seed,
            self.id_column,
            cost=self.cost or None,
            per=PerGroup(self.groups, self.per_group) if self.groups else None,
            output_weights=self.output_weights,
        )

    @classmethod
    def of(cls, picker: Picker, model: str, *, pool_rows: int, not_to_pick: int, shards: int) -> "Search":
        """How a picker that has a column of ids searches shards with the model of this checksum."""
        assert picker.id_column is not None
        return cls(
            model=model,
            acquisition=picker.acquisition,
            temperature=picker.temperature,
            seed=picker.seed,
            id_column=picker.id_column,
            count=picker.count,
            pool_rows=pool_rows,
            not_to_pick=not_to_pick,
            shards=shards,
            cost=picker.cost or "",
            groups=picker.per.column if picker.per else "",
            per_group=picker.per.most if picker.per else 0,
            output_weights=picker.output_weights,
        )


@dataclass(frozen=True)
class _Notes:
    format: _Count
    search: Search
    shard: _Count
    rows: _Count
    excluded: _Count
    own_columns: Annotated[tuple[str, ...], Length(2, 8)]
    """The columns that are not of the pool: the numbers of rows, and their keys."""


def write_part(path: Path, found: Found, search: Search, shard: Shard) -> int:
    """Write what was found in a shard; gives the number of rows that were kept."""
    kept = found.kept or Kept(pa.table({}), np.zeros(0, np.uint64), np.zeros((0, 1)))
    added = {"number": kept.numbers, **{f"key{i}": keys for i, keys in enumerate(kept.keys.T)}}
    rows = with_columns(kept.rows, added)
    notes = _Notes(_FORMAT, search, shard.number, found.pool, found.excluded, tuple(rows.column_names[-len(added) :]))
    text = json.dumps(dataclasses.asdict(notes))
    with written(path) as draft, explained(path, pa.ArrowException):
        pq.write_table(rows.replace_schema_metadata({**(rows.schema.metadata or {}), _NOTES: text}), draft)
    return len(kept.numbers)


def read_search(paths: Sequence[Path]) -> Search:
    """How the shards of these files were searched.

    Raises:
        UserError: If a file is not that of a shard, or they are not all shards of one search.
    """
    first = _notes(paths[0]).search
    seen: dict[int, Path] = {}
    for path in paths:
        notes = _notes(path)
        expected = dataclasses.asdict(first)
        for name, value in dataclasses.asdict(notes.search).items():
            if value != expected[name]:
                what = f"{name.replace('_', ' ')} {value} and that of {paths[0]} {expected[name]}"
                raise UserError(f"{path}: has the {what}; search all shards of a pool in the same way")
        if notes.shard in seen:
            raise UserError(f"{path}: has shard {notes.shard}, and so has {seen[notes.shard]}; give each one once")
        seen[notes.shard] = path
    if missing := [str(i) for i in range(1, first.shards + 1) if i not in seen]:
        listed = ", ".join(missing[:10]) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
        raise UserError(f"of {first.shards} shards these are missing: {listed}; search them, or wait until they are")
    return first


def read_parts(paths: Sequence[Path]) -> Iterator[Found]:
    """What was found in each of these shards, one after the other."""
    for path in paths:
        notes = _notes(path)
        with _a_part(path):
            rows = pq.read_table(path)
            number, *keys = (rows[name].to_numpy() for name in notes.own_columns)
        kept = Kept(
            rows.drop_columns(list(notes.own_columns)).replace_schema_metadata(None),
            number.astype(np.uint64),
            np.stack(keys, axis=1).astype(np.float64),
        )
        yield Found(kept if rows.num_rows else None, notes.rows, notes.excluded)


def part_files(paths: Sequence[Path]) -> list[Path]:
    """The files of shards: those that are named, and all that are in a folder."""
    found: list[Path] = []
    for path in paths:
        found += sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not found:
        raise UserError(f"{paths[0]}: no file of a shard is in this folder; give what `suggest --shard` wrote")
    return found


def _notes(path: Path) -> _Notes:
    with _a_part(path):
        text = (pq.read_schema(path).metadata or {}).get(_NOTES)
    if text is None:
        raise UserError(f"{path}: {_OTHER}")
    notes = read_json(text, f"{path}: its notes")
    if isinstance(notes, dict) and notes.get("format") != _FORMAT:
        raise UserError(f"{path}: was written by another version of ncprior; search its shard again")
    found: _Notes = conform(notes, _Notes, f"{path}: its notes")
    return found


_OTHER = "is not what `ncprior suggest --shard` wrote, or damaged; search its shard again"


@contextmanager
def _a_part(path: Path) -> Iterator[None]:
    """Turn errors of reading a part into a `UserError`."""
    try:
        yield
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file; check its name and folder") from error
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise UserError(f"{path}: {_OTHER}") from error
