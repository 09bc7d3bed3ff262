"""The files of one method in a run, and how its training goes on after an interruption.

    metrics/METHOD.parquet          every metric and loss term of every seed at every evaluation
    checkpoints/METHOD.safetensors  the state of a method that is not finished
    models/METHOD.safetensors       the trained networks; its presence says that the method is finished

The metrics are written just before the checkpoint. If the process ends in between, they are ahead of it: the checkpoint
says how many rows of them belong to it, and `MethodFiles.load_checkpoint` drops the others.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from jaxtyping import PyTree

from ncprior.experiments.records import JsonObject, Records

Columns = dict[str, np.ndarray]
"""A table, column by column."""

Tree = TypeVar("Tree")


class RunProgress(NamedTuple):
    """How many of the runs of an experiment are done, and a line about the last one."""

    done: int
    total: int
    state: str


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
        """Whether the trained networks are on record."""
        return self.records.exists(self._model)

    @property
    def has_metrics(self) -> bool:
        """Whether any evaluation is on record."""
        return self.records.exists(self._metrics)

    def metrics(self) -> Columns:
        """Every metric and loss term of every seed at every evaluation."""
        return self.records.read_table(self._metrics)

    def model_notes(self) -> JsonObject:
        """What was written beside the trained networks."""
        return self.records.read_notes(self._model)

    def load_model(self, like: Tree) -> Tree:
        """The trained networks, as a tree of the structure of ``like``."""
        return self.records.read_tree(self._model, like)

    def save_checkpoint(self, tree: PyTree, metrics: Columns, **notes: object) -> None:
        """Writes the metrics so far and the state to go on from."""
        self.records.write_table(self._metrics, metrics)
        self.records.write_tree(self._checkpoint, tree, **notes, metric_rows=_length(metrics))

    def load_checkpoint(self, like: Callable[[JsonObject], Tree]) -> Checkpoint[Tree] | None:
        """The state to go on from, or None before the first checkpoint.

        ``like(notes)`` gives a tree of the structure that was saved.
        """
        if not self.records.exists(self._checkpoint):
            return None
        notes = self.records.read_notes(self._checkpoint)
        tree = self.records.read_tree(self._checkpoint, like(notes))
        metrics = {key: values[: notes["metric_rows"]] for key, values in self.metrics().items()}
        return Checkpoint(tree, notes, metrics)

    def finish(self, params: PyTree, **notes: object) -> None:
        """Writes the trained networks, which ends the method."""
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
    """The methods whose trained networks are not on record."""
    return [name for name in names if not MethodFiles(records, name).finished]


def append_rows(table: Columns, rows: Mapping[str, np.ndarray]) -> Columns:
    """The table with rows added at its end; an empty table takes the columns of the rows.

    >>> append_rows({"epoch": np.array([1, 2])}, {"epoch": np.array([3])})
    {'epoch': array([1, 2, 3])}
    """
    return {key: np.concatenate([table[key], values]) if table else values for key, values in rows.items()}


def _length(table: Columns) -> int:
    return len(next(iter(table.values()), ()))
