"""A pool of rows that could be labelled: read where it is, with an index of its ids.

The index holds a 64-bit hash of the seed and the id of each row, sorted, with the row's place in the pool. By it a row
is found without reading the pool, and its order is a random order of the rows that depends on nothing but the seed and
the ids. It is kept in the user's cache folder, by the pool's digest, and made again where it is missing.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from ncprior.campaigns.inputs import Inputs, Kinds, as_inputs, kinds_of, to_json
from ncprior.data import column_values, table_files
from ncprior.data.labelled import fingerprint
from ncprior.errors import UserError
from ncprior.files import written

_PIECE = 65_536
"""Rows that are in memory at a time."""


class PoolRow(NamedTuple):
    """A row of the pool."""

    key: str
    inputs: Inputs


class Pool:
    """The rows of a file or folder, each with an id of its own."""

    def __init__(self, path: str | Path, id_column: str, kinds: Kinds, *, seed: int, digest: str | None = None) -> None:
        """A pool that was described before.

        Args:
            path: The file or folder.
            id_column: The column that names rows.
            kinds: The columns to predict from, and their kinds.
            seed: Of the random order.
            digest: What `digest` was, if it is known; `check` compares it with the present one.
        """
        self.path, self.id_column, self.kinds, self.seed = Path(path), id_column, dict(kinds), seed
        self._digest = digest
        self._seen: object = None  # state of the files when their digest was last found to be right

    @classmethod
    def describe(cls, path: Path, id_column: str, inputs: Sequence[str], targets: Sequence[str], seed: int) -> "Pool":
        """A new pool, its columns looked up: without ``inputs``, all but the id and the targets are inputs."""
        path = path.resolve()
        types = {id_column: pa.string()}
        schema = table_files.schema_of(path, schema=types)
        for name in inputs:
            if name == id_column or name in targets:
                raise UserError(f"column {name!r} is an input and also the {_use(name, targets)}; take it out of one")
        wanted = list(dict.fromkeys([id_column, *inputs]))
        table_files.schema_of(path, wanted, schema=types)  # which says what a missing column may be called
        names = list(inputs) or [name for name in schema.names if name != id_column and name not in targets]
        if not names:
            raise UserError(f"{path}: has no column to predict from; give a pool with inputs")
        pool = cls(path, id_column, kinds_of(schema, names), seed=seed, digest=fingerprint(path))
        pool._seen = _state(path)
        return pool

    @property
    def digest(self) -> str:
        """Of the contents, to detect changes."""
        if self._digest is None:
            self._digest = fingerprint(self.path)
        return self._digest

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self._index["hashes"])

    def check(self, name: str) -> None:
        """Raise if the pool is not what it was; files are read only if their size or time have changed."""
        state = _state(self.path)
        if state == self._seen:
            return
        if not self.path.exists():
            raise UserError(f"{self.path}: the pool of campaign {name!r} is not there; put it back, or see update-pool")
        if fingerprint(self.path) != self.digest:
            raise UserError(
                f"{self.path}: the pool of campaign {name!r} has changed; ncprior campaign update-pool {name} keeps "
                "what is labelled and says what came and went"
            )
        self._seen = state

    def known_hashes(self) -> np.ndarray | None:
        """The hashes of all ids; None if the pool has changed and its index is gone."""
        try:
            return self._index["hashes"]
        except UserError:
            return None

    def indices(self, keys: Sequence[str]) -> np.ndarray:
        """Where rows with these ids are in the pool; -1 for others."""
        hashes = self._index["hashes"]
        wanted = np.array([self._hash(key) for key in keys], np.uint64)
        at = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
        return np.where(hashes[at] == wanted, self._index["indices"][at].astype(np.int64), -1)

    def find(self, keys: Sequence[str]) -> dict[str, PoolRow]:
        """The rows with these ids; others are left out."""
        indices = self.indices(keys)
        found = self.take(indices[indices >= 0])
        return {row.key: row for row in found if row.key in set(keys)}

    def random_rows(self, start: int, count: int) -> np.ndarray:
        """Indices of the rows from ``start`` on in the random order."""
        return self._index["indices"][start : start + count].astype(np.int64)

    def take(self, indices: np.ndarray) -> list[PoolRow]:
        """Rows by their indices, in this order."""
        table, keys = self.take_table(indices)
        return [PoolRow(key, inputs) for key, inputs in zip(keys, to_json(table), strict=True)]

    def take_table(self, indices: np.ndarray) -> tuple[pa.Table, list[str]]:
        """The inputs of rows by their indices, as a table, and their ids."""
        order = np.argsort(indices, kind="stable")
        wanted, parts, keys = indices[order], [], list[str]()
        start = 0
        for piece in self._stream([*self.kinds]) if len(wanted) else ():
            low, high = np.searchsorted(wanted, (start, start + piece.num_rows))
            if low < high:
                rows = piece.take(pa.array(wanted[low:high] - start))
                parts.append(as_inputs(rows, self.kinds, start + 1))
                keys += column_values.text(self.id_column, rows[self.id_column]).to_pylist()
            start += piece.num_rows
            if high == len(wanted):
                break
        if not parts:
            return pa.table({name: [] for name in self.kinds}), []
        back = np.argsort(order)
        return pa.concat_tables(parts).take(pa.array(back)).combine_chunks(), [keys[i] for i in back]

    def keys(self) -> Iterator[list[str]]:
        """All ids in the order of the pool, piece by piece."""
        first = 1
        for piece in self._stream([]):
            ids = column_values.text(self.id_column, piece[self.id_column])
            if ids.null_count:
                row = first + int(np.argmax(column_values.missing_in(ids)))
                raise UserError(f"{self.path}: row {row} has no id in column {self.id_column!r}; give every row one")
            first += piece.num_rows
            yield ids.to_pylist()

    def _stream(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        types: dict[str, pa.DataType] = {self.id_column: pa.string()}
        types |= {name: pa.float64() for name in columns if self.kinds[name] == "number"}
        types |= {name: pa.string() for name in columns if self.kinds[name] == "category"}
        return table_files.stream(self.path, [self.id_column, *columns], _PIECE, schema=types)

    def _hash(self, key: str) -> int:
        salt = self.seed.to_bytes(8)
        return int.from_bytes(hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8, salt=salt).digest())

    @cached_property
    def _index(self) -> Mapping[str, np.ndarray]:
        name = hashlib.sha256(f"{self.digest} {self.seed} {self.id_column}".encode()).hexdigest()[:32]
        folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "ncprior" / "pools"
        file = folder / f"{name}.safetensors"
        with suppress(OSError, SafetensorError, KeyError):
            found = load_file(file)
            return {"hashes": found["hashes"], "indices": found["indices"]}
        self.check(self.path.stem)  # an index of other contents would be kept under the wrong digest
        made = self._make_index()
        with suppress(OSError, UserError, SafetensorError):  # without a cache it is made again next time
            folder.mkdir(parents=True, exist_ok=True)
            with written(file) as draft:
                save_file(made, draft)
        return made

    def _make_index(self) -> dict[str, np.ndarray]:
        pieces = [np.array([self._hash(key) for key in keys], np.uint64) for keys in self.keys()]
        hashes = np.concatenate(pieces)
        indices = np.argsort(hashes, kind="stable")
        hashes = hashes[indices]
        if len(twice := np.flatnonzero(hashes[1:] == hashes[:-1])):
            first, second = sorted(int(indices[twice[0] + i]) + 1 for i in (0, 1))
            what = f"{self.path}: rows {first} and {second} have the same {self.id_column!r}"
            raise UserError(f"{what}; every row of a pool needs an id of its own")
        return {"hashes": hashes, "indices": indices.astype(np.uint32 if len(indices) < 2**32 else np.uint64)}


def _use(name: str, targets: Sequence[str]) -> str:
    return "target" if name in targets else "id"


def _state(path: Path) -> object:
    """Names, sizes and times of the files, which change when the contents do."""
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        return [(file.name, (found := file.stat()).st_size, found.st_mtime_ns, found.st_ino) for file in files]
    except OSError:
        return None
