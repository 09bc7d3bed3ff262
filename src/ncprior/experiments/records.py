"""What a run leaves on disk: configuration, metrics, labels, predictions, models, results.

Figures and reports are drawn from these files alone, and a run goes on from them after an interruption. Every file
is written beside its place and then moved there, so that one that exists is whole; one process writes at a time.

    config.json                     experiment, configuration, versions; written first, never changed
    metrics/METHOD.parquet          every metric and loss term of every seed at every evaluation
    labels/METHOD.parquet           the labels of every seed in the order in which they were drawn
    curves/METHOD.parquet           predictions of every seed over the inputs that a figure shows
    models/METHOD.safetensors       the trained networks of all seeds; its presence says that METHOD is done
    checkpoints/METHOD.safetensors  where an unfinished METHOD stands
    results.json                    final values over the seeds
    figures/, report.html           drawn from all of the above
"""

import importlib.metadata
import json
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors
import safetensors.numpy
from jaxtyping import PyTree
from numpy.typing import ArrayLike

import ncprior
from ncprior.errors import UserError
from ncprior.files import alone, explained, is_ours, written
from ncprior.terminal import remark

_PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy", "pyarrow", "matplotlib", "scikit-learn")


JsonObject = dict[str, Any]
"""An object of a JSON file: a configuration, or notes."""

Tree = TypeVar("Tree")


class Summary(TypedDict):
    """Numbers over seeds, or over splits and seeds; NaN if there is none, which becomes None on record."""

    mean: float
    std: float
    median: float


class Records:
    """The folder of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    @classmethod
    def create(cls, folder: Path, experiment: str, config: Mapping[str, object], *, resume: bool) -> "Records":
        """A folder for a new run, or the one of the same run to go on with."""
        records = cls(folder)
        content = {"experiment": experiment, "config": _plain(config), "versions": versions()}
        if records.path("config.json").exists():
            if not resume:
                raise UserError(f"{folder} already holds a run: add --resume to go on with it, or choose another --out")
            records._check_same(content)
            if changed := [name for name, value in versions().items() if records.versions.get(name) != value]:
                remark(f"{folder} was begun with other versions of {', '.join(changed)}")
            return records
        records._check_free()
        if resume:
            remark(f"no run in {folder} to go on with: starting a new one")
        records.write_json("config.json", content)
        return records

    @classmethod
    @contextmanager
    def running(
        cls, folder: Path, experiment: str, config: Mapping[str, object], *, resume: bool
    ) -> Iterator["Records"]:
        """`create`, with other processes kept out of the folder until the run ends."""
        records = cls(folder)
        if not records.exists("config.json"):
            records._check_free()
        with explained(records.folder):
            records.folder.mkdir(parents=True, exist_ok=True)
        with records.alone():
            yield cls.create(folder, experiment, config, resume=resume)

    @classmethod
    def open(cls, folder: Path) -> "Records":
        """The records of a run that exists."""
        records = cls(folder)
        if not records.path("config.json").is_file():
            raise UserError(f"{folder} holds no run of ncprior (there is no config.json in it)")
        return records

    @property
    def experiment(self) -> str:
        """Which experiment the run is of."""
        return str(self._content()["experiment"])

    @property
    def config(self) -> JsonObject:
        """The configuration of the run."""
        return dict(self._content()["config"])

    @property
    def versions(self) -> dict[str, str]:
        """The versions that the run began with."""
        return dict(self._content()["versions"])

    def path(self, name: str) -> Path:
        """The place of a file."""
        return self.folder / name

    def exists(self, name: str) -> bool:
        """Whether the file has been written."""
        return self.path(name).is_file()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keeps other processes out of the folder, which say who is at work in it."""
        with alone(self.path("config.json"), f"{self.folder}: is in use"):
            yield

    def remove(self, name: str) -> None:
        """Removes the file if it is there."""
        self.path(name).unlink(missing_ok=True)

    def write(self, name: str, save: Callable[[Path], object]) -> Path:
        """Writes a file with ``save(path)``, whole or not at all."""
        target = self.path(name)
        with explained(target, safetensors.SafetensorError):
            target.parent.mkdir(parents=True, exist_ok=True)
            with written(target) as draft:
                save(draft)
        return target

    def write_bytes(self, name: str, content: bytes) -> Path:
        """Writes these bytes."""
        return self.write(name, lambda path: path.write_bytes(content))

    def write_json(self, name: str, content: object) -> None:
        """Writes JSON; numbers that are not finite become null, as JSON has no others."""
        text = json.dumps(_plain(content), indent=2, allow_nan=False)
        self.write_bytes(name, f"{text}\n".encode())

    def read_json(self, name: str) -> Any:
        """Reads JSON. Callers say what is in it: by a `TypedDict`, or by what they compute with it."""
        path = self.path(name)
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read {path}: {error}") from error

    def write_table(self, name: str, columns: Mapping[str, ArrayLike]) -> None:
        """Writes columns as Parquet."""
        table = pa.table({key: np.asarray(value) for key, value in columns.items()})
        self.write(name, lambda path: pq.write_table(table, path))

    def read_table(self, name: str) -> dict[str, np.ndarray]:
        """Reads Parquet as columns."""
        path = self.path(name)
        try:
            table = pq.read_table(path)
        except (OSError, pa.ArrowException) as error:
            raise UserError(f"cannot read {path}: {error}") from error
        return {key: table[key].to_numpy() for key in table.column_names}

    def write_tree(self, name: str, tree: PyTree, **notes: object) -> None:
        """Writes a tree of arrays as safetensors, one array for each leaf by its path, with notes in JSON."""
        arrays = {key: np.array(_bare(leaf), order="C") for key, leaf in _leaves(tree)}
        metadata = {key: json.dumps(_plain(value)) for key, value in notes.items()}
        self.write(name, lambda path: safetensors.numpy.save_file(arrays, path, metadata))

    def read_tree(self, name: str, like: Tree) -> Tree:
        """Reads a tree of arrays of the same structure as ``like``."""
        path = self.path(name)
        try:
            arrays = safetensors.numpy.load_file(path)
        except (OSError, safetensors.SafetensorError) as error:
            raise UserError(f"cannot read {path}: {error}") from error
        leaves = []
        for key, leaf in _leaves(like):
            if key not in arrays or arrays[key].shape != _bare(leaf).shape:
                raise UserError(f"{path} is not of this run: {key} is missing or has another shape")
            keys = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            leaves.append(jax.random.wrap_key_data(jnp.asarray(arrays[key])) if keys else arrays[key])
        tree: Tree = jax.tree.unflatten(jax.tree.structure(like), leaves)
        return tree

    def read_notes(self, name: str) -> JsonObject:
        """The notes that a tree of arrays was written with."""
        path = self.path(name)
        try:
            with safetensors.safe_open(path, "numpy") as file:
                return {key: json.loads(value) for key, value in (file.metadata() or {}).items()}
        except (OSError, ValueError, safetensors.SafetensorError) as error:
            raise UserError(f"cannot read {path}: {error}") from error

    def _content(self) -> JsonObject:
        content = self.read_json("config.json")
        if not isinstance(content, dict) or not {"experiment", "config", "versions"} <= content.keys():
            raise UserError(f"{self.path('config.json')} is not of a run of ncprior, or damaged")
        return content

    def _check_free(self) -> None:
        """Raise if there is something in the folder that no run has left."""
        folder = self.folder
        if folder.exists() and (not folder.is_dir() or not all(map(is_ours, folder.iterdir()))):
            raise UserError(f"{folder} exists and is not a run of ncprior: choose another --out")

    def _check_same(self, content: Mapping[str, object]) -> None:
        old = self._content()
        if old["experiment"] != content["experiment"]:
            raise UserError(f"{self.folder} holds a run of {old['experiment']}: choose another --out")
        differing = _differences(old["config"], _plain(content["config"]))
        if differing:
            listed = "; ".join(f"{key} was {a}, now {b}" for key, a, b in differing[:3])
            raise UserError(f"{self.folder} holds a run with other settings ({listed}): choose another --out")


def versions() -> dict[str, str]:
    """The versions of what the numbers depend on."""
    found = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return {"ncprior": ncprior.__version__, "python": platform.python_version(), **found}


def summary(values: Sequence[float] | np.ndarray) -> Summary:
    """Mean, standard deviation and median over the seeds that finished."""
    finished = np.asarray(values, np.float64)
    finished = finished[~np.isnan(finished)]
    if not len(finished):
        return {"mean": float("nan"), "std": float("nan"), "median": float("nan")}
    return {
        "mean": float(finished.mean()),
        "std": float(finished.std()),
        "median": float(np.median(finished)),
    }


def _leaves(tree: PyTree) -> list[tuple[str, jax.Array]]:
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]


def _bare(leaf: jax.Array) -> np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


def _plain(value: object) -> object:
    """The value in JSON's own types."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def _differences(old: object, new: object, name: str = "") -> list[tuple[str, object, object]]:
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for key in sorted(old.keys() | new.keys()):
            found += _differences(old.get(key), new.get(key), f"{name}.{key}" if name else key)
        return found
    return [] if old == new else [(name, old, new)]
