"""Compiling ahead: while contrast networks begin, another core compiles what members need.

The programs of a search depend on the shape of the table alone, and half of the time of a first fit would go into
waiting for one after the other.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager

import jax
import numpy as np

from ncprior.tables.ensemble import Stretch, TableInfo, cores
from ncprior.tables.member_rows import MemberRows
from ncprior.tables.programs import Engine, Spec
from ncprior.tables.search import rehearse


@contextmanager
def compiling_ahead(
    spec: Spec, rows: MemberRows, table: TableInfo, *, labels: int, searchers: int, has_contrast: bool
) -> Iterator[None]:
    """Compiles what a search of so many members needs, in a thread of its own, while something else runs.

    Once for each size of table; and not if there is one core alone, or with parts of the user's own, which may not be
    made for threads.

    Args:
        spec: The specification of the members' programs.
        rows: Rows to learn from, padded.
        table: What members know of the table.
        labels: The number of rows to learn from.
        searchers: Members that search.
        has_contrast: Whether there are contrast networks.
    """
    engine, kind = Engine.of(spec), ("search", len(rows.inputs), searchers, has_contrast)
    if engine.about is None or kind in engine.ahead or cores() < 2 or jax.default_backend() != "cpu":
        yield
        return
    engine.ahead.add(kind)

    def compile_all() -> None:
        """Runs all programs, for no step of training."""
        ensemble = engine.ensemble
        begun = ensemble.start(rows, [np.arange(labels)], [table], np.zeros(1, int))
        done = ensemble.train(begun, rows, Stretch(labels, 0, 0))
        weights = jax.tree.map(lambda leaf: np.repeat(leaf, searchers, axis=0), ensemble.gather(done))
        contrast: Callable[[np.ndarray], np.ndarray] | None = _unknown if has_contrast else None
        rehearse(spec, rows, weights, members=searchers, contrast=contrast)

    pool = ThreadPoolExecutor(max_workers=1)
    try:
        compiling = pool.submit(compile_all)
        yield
        wait([compiling])  # whatever went wrong in it, the search would have met too
    finally:
        pool.shutdown(wait=False)


def _unknown(inputs: np.ndarray) -> np.ndarray:
    """Stands for the output of contrast networks, whose programs the search itself compiles."""
    return np.zeros(len(inputs), np.float32)
