"""The files of one method in a run, from which its training can be resumed.

    metrics/METHOD.parquet          every metric and loss term of every seed at every evaluation
    checkpoints/METHOD.safetensors  the state of a method that has not finished
    models/METHOD.safetensors       the trained networks; it exists once the method has finished

Metrics are written just before the checkpoint. If the process ends in between, they have more rows than the checkpoint
knows of: it has their number, and `MethodFiles.load_checkpoint` drops the others.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar, cast

import numpy as np
from jaxtyping import PyTree

from ncprior.experiments.records import Records
from ncprior.schema import JsonObject

Columns = dict[str, np.ndarray]
"""A table, column by column."""

Tree = TypeVar("Tree")
Config = TypeVar("Config")


class RunProgress(NamedTuple):
    """Number of runs that are done and in total, and a line about the last one."""

    done: int
    total: int
    state: str
    kind: str = ""  # of the run that was just done; runs of a kind take about as long as each other
    ahead: Mapping[str, int] = {}  # how many runs of each kind are still to be done


class Checkpoint(NamedTuple, Generic[Tree]):
    """The state of a method when its checkpoint was written."""

    tree: Tree
    notes: JsonObject
    metrics: Columns


@dataclass(frozen=True)
class MethodFiles:
    """The files of one method.

    Args:
        records: The records of the run.
        name: The method.
    """

    records: Records
    name: str

    @property
    def finished(self) -> bool:
        """Whether the trained networks have been recorded."""
        return self.records.exists(self._model)

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a state from which to resume."""
        return self.records.exists(self._checkpoint)

    @property
    def has_metrics(self) -> bool:
        """Whether any evaluation has been recorded."""
        return self.records.exists(self._metrics)

    def metrics(self) -> Columns:
        """Every metric and loss term of every seed at every evaluation."""
        return self.records.read_table(self._metrics)

    def model_notes(self) -> JsonObject:
        """The notes that were written with the trained networks."""
        return self.records.read_notes(self._model)

    def load_model(self, like: Tree) -> Tree:
        """The trained networks, as a tree with the structure of ``like``."""
        return self.records.read_tree(self._model, like)

    def save_checkpoint(self, tree: PyTree, metrics: Columns, **notes: object) -> None:
        """Write the metrics so far, and the state from which to resume."""
        self.records.write_table(self._metrics, metrics)
        self.records.write_tree(self._checkpoint, tree, **notes, metric_rows=_length(metrics))

    def load_checkpoint(self, like: Callable[[JsonObject], Tree]) -> Checkpoint[Tree] | None:
        """The state from which to resume, or None if there is no checkpoint.

        Args:
            like: A function of the notes that returns a tree with the structure that was saved.
        """
        if not self.records.exists(self._checkpoint):
            return None
        notes = self.records.read_notes(self._checkpoint)
        tree = self.records.read_tree(self._checkpoint, like(notes))
        metrics = {key: values[: notes["metric_rows"]] for key, values in self.metrics().items()}
        return Checkpoint(tree, notes, metrics)

    def finish(self, params: PyTree, **notes: object) -> None:
        """Write the trained networks and remove the checkpoint: the method has finished."""
        self.records.write_tree(self._model, params, **notes)
        self.records.remove(self._checkpoint)

    @property
    def _metrics(self) -> str:
        return f"metrics/{self.name}.parquet"

    @property
    def _checkpoint(self) -> str:
        return f"checkpoints/{self.name}.safetensors"

    @property
    def _model(self) -> str:
        return f"models/{self.name}.safetensors"


def unfinished_methods(records: Records, names: Iterable[str]) -> list[str]:
    """The methods whose trained networks have not been recorded."""
    return [name for name in names if not MethodFiles(records, name).finished]


def append_rows(table: Columns, rows: Mapping[str, np.ndarray]) -> Columns:
    """The table with rows added at its end; an empty table takes the columns of the rows.

    >>> append_rows({"epoch": np.array([1, 2])}, {"epoch": np.array([3])})
    {'epoch': array([1, 2, 3])}
    """
    return {key: np.concatenate([table[key], values]) if table else values for key, values in rows.items()}


def _length(table: Columns) -> int:
    return len(next(iter(table.values()), ()))


_loaded: list[tuple[object, object]] = []


def loaded_once(load: Callable[[Config], Tree], config: Config) -> Tree:
    """``load(config)``, which a process calls once as long as the configuration stays the same."""
    if not _loaded or _loaded[0][0] != config:
        _loaded[:] = [(config, load(config))]
    return cast("Tree", _loaded[0][1])
