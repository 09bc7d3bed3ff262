"""The records of a run on disk: configuration, metrics, labels, predictions, models, results.

Figures and reports are drawn from these files alone, and an interrupted run is resumed from them. Every file is written
beside its place and then moved there, so that a file that exists is complete. One process writes at a time.

    config.json                     experiment, configuration, versions; written first, never changed
    metrics/METHOD.parquet          every metric and loss term of every seed at every evaluation
    labels/METHOD.parquet           the labels of every seed in the order in which they were drawn
    curves/METHOD.parquet           predictions of every seed on the grid of inputs of a figure
    models/METHOD.safetensors       the trained networks of all seeds; it exists once METHOD has finished
    checkpoints/METHOD.safetensors  the state of a METHOD that has not finished
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
from ncprior.schema import JsonObject
from ncprior.terminal import remark

_PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy", "pyarrow", "matplotlib", "scikit-learn")


Tree = TypeVar("Tree")


class Summary(TypedDict):
    """Mean, standard deviation and median over seeds, or over splits and seeds; NaN (on record null) without any."""

    mean: float
    std: float
    median: float


class Records:
    """The folder of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    @classmethod
    def create(cls, folder: Path, experiment: str, config: Mapping[str, object], *, resume: bool) -> "Records":
        """Start a new run in a folder, or resume the run that it has.

        Args:
            folder: The folder.
            experiment: Name of the experiment.
            config: The configuration.
            resume: Whether to resume. A folder without a run is then a new run, with a remark.

        Raises:
            UserError: If the folder has a run and ``resume`` is not set, or a run of another configuration, or files
                that are not ours.
        """
        records = cls(folder)
        content = {"experiment": experiment, "config": json_value(config), "versions": versions()}
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
        """`create` as a context that keeps other processes out of the folder."""
        records = cls(folder)
        if not records.exists("config.json"):
            records._check_free()
        with explained(records.folder):
            records.folder.mkdir(parents=True, exist_ok=True)
        with records.alone():
            yield cls.create(folder, experiment, config, resume=resume)

    @classmethod
    def open(cls, folder: Path) -> "Records":
        """The records of a run that exists.

        Raises:
            UserError: If the folder has none.
        """
        records = cls(folder)
        if not records.path("config.json").is_file():
            raise UserError(f"{folder} holds no run of ncprior (there is no config.json in it)")
        return records

    @property
    def experiment(self) -> str:
        """Name of the experiment."""
        return str(self._content()["experiment"])

    @property
    def config(self) -> JsonObject:
        """The configuration of the run."""
        return dict(self._content()["config"])

    @property
    def versions(self) -> dict[str, str]:
        """Versions of Python and packages with which the run was started."""
        return dict(self._content()["versions"])

    def path(self, name: str) -> Path:
        """The path of a file."""
        return self.folder / name

    def exists(self, name: str) -> bool:
        """Whether the file has been written."""
        return self.path(name).is_file()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes out of the folder; they stop with a message that it is in use."""
        with alone(self.path("config.json"), f"{self.folder}: is in use"):
            yield

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        self.path(name).unlink(missing_ok=True)

    def write(self, name: str, save: Callable[[Path], object]) -> Path:
        """Write a file with ``save(path)``, completely or not at all."""
        target = self.path(name)
        with explained(target, safetensors.SafetensorError):
            target.parent.mkdir(parents=True, exist_ok=True)
            with written(target) as draft:
                save(draft)
        return target

    def write_bytes(self, name: str, content: bytes) -> Path:
        """Write bytes to a file."""
        return self.write(name, lambda path: path.write_bytes(content))

    def write_json(self, name: str, content: object) -> None:
        """Write JSON. Numbers that are not finite become null."""
        text = json.dumps(json_value(content), indent=2, allow_nan=False)
        self.write_bytes(name, f"{text}\n".encode())

    def read_json(self, name: str) -> Any:
        """Read JSON. Callers know its type, such as a `TypedDict`."""
        path = self.path(name)
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read {path}: {error}") from error

    def write_table(self, name: str, columns: Mapping[str, ArrayLike]) -> None:
        """Write columns as Parquet."""
        table = pa.table({key: np.asarray(value) for key, value in columns.items()})
        self.write(name, lambda path: pq.write_table(table, path))

    def read_table(self, name: str) -> dict[str, np.ndarray]:
        """Read the columns of a Parquet file."""
        path = self.path(name)
        try:
            table = pq.read_table(path)
        except (OSError, pa.ArrowException) as error:
            raise UserError(f"cannot read {path}: {error}") from error
        return {key: table[key].to_numpy() for key in table.column_names}

    def write_tree(self, name: str, tree: PyTree, **notes: object) -> None:
        """Write a tree of arrays as safetensors, each leaf under its path, with notes as JSON in the metadata."""
        arrays = {key: np.array(_bare(leaf), order="C") for key, leaf in _leaves(tree)}
        metadata = {key: json.dumps(json_value(value)) for key, value in notes.items()}
        self.write(name, lambda path: safetensors.numpy.save_file(arrays, path, metadata))

    def read_tree(self, name: str, like: Tree) -> Tree:
        """Read a tree of arrays with the structure and shapes of ``like``."""
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
        """The notes that were written with a tree of arrays."""
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
        """Raise if the folder has files that are not from a run."""
        folder = self.folder
        if folder.exists() and (not folder.is_dir() or not all(map(is_ours, folder.iterdir()))):
            raise UserError(f"{folder} exists and is not a run of ncprior: choose another --out")

    def _check_same(self, content: Mapping[str, object]) -> None:
        old = self._content()
        if old["experiment"] != content["experiment"]:
            raise UserError(f"{self.folder} holds a run of {old['experiment']}: choose another --out")
        differing = _differences(old["config"], json_value(content["config"]))
        if differing:
            listed = "; ".join(f"{key} was {a}, now {b}" for key, a, b in differing[:3])
            raise UserError(f"{self.folder} holds a run with other settings ({listed}): choose another --out")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on."""
    found = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return {"ncprior": ncprior.__version__, "python": platform.python_version(), **found}


def summary(values: Sequence[float] | np.ndarray) -> Summary:
    """Mean, standard deviation and median of the values that are not NaN, which marks seeds that failed.

    >>> summary([1.0, 3.0, float("nan")])
    {'mean': 2.0, 'std': 1.0, 'median': 2.0}
    """
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


def json_value(value: object) -> object:
    """The value with only types that JSON has; numbers that are not finite become None.

    >>> json_value({"rows": np.int64(3), "nlpd": float("nan"), "shape": (1, 2)})
    {'rows': 3, 'nlpd': None, 'shape': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
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
