"""Tasks on a Ray cluster, by Ray Core.

Every task has one core. What is lost with a worker or a node runs again elsewhere, and a bounded number of tasks is
under way, so that a million of them need no more memory here than a hundred.
"""

import os
import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ncprior.engines import worker
from ncprior.engines.engine import Result, Task
from ncprior.errors import UserError

RETRIES = 10
"""How often a task that was lost with its worker or node is run again."""

_AHEAD = 2
"""Tasks that are sent for each core of the cluster."""


@dataclass(frozen=True)
class RayCore:
    """Runs tasks on a Ray cluster.

    Args:
        address: Of the cluster, such as ``auto`` or ``ray://head:10001``; None starts one on this machine, unless
            RAY_ADDRESS names one.
    """

    address: str | None = None

    @classmethod
    def at(cls, address: str | None) -> "RayCore":
        """The engine; raises if Ray is not installed."""
        _ray()
        return cls(address)

    def run(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """The number of every task and its result, in the order in which they are done."""
        ray = _ray()
        environment = {name: value for name, value in os.environ.items() if name.startswith(worker.PASSED_ON)}
        with self._connected(ray):
            remote = ray.remote(num_cpus=1, max_retries=RETRIES, max_calls=0)(worker.run)
            under_way: dict[object, int] = {}
            following = 0
            try:
                while under_way or following < len(tasks):
                    cores = int(ray.cluster_resources().get("CPU", 1))
                    while following < len(tasks) and len(under_way) < _AHEAD * max(cores, 1):
                        payload = pickle.dumps((function, tasks[following]))
                        under_way[remote.remote(payload, environment)] = following
                        following += 1
                    done, _ = ray.wait(list(under_way), num_returns=1, timeout=10.0)
                    for reference in done:
                        number = under_way.pop(reference)
                        yield number, _result(ray, reference)
            finally:
                for reference in under_way:
                    with suppress(Exception):  # the cluster may be gone
                        ray.cancel(reference, force=False)

    @contextmanager
    def _connected(self, ray: ModuleType) -> Iterator[None]:
        """Connects to the cluster, unless this process already is."""
        if ray.is_initialized():
            yield
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of libraries that Ray loads
                ray.init(address=self.address, log_to_driver=False, logging_level="error", include_dashboard=None)
        except (ConnectionError, ValueError, RuntimeError, OSError) as error:
            where = f"--address {self.address}" if self.address else "--engine ray"
            why = " ".join(str(error).split())[:200]
            raise UserError(f"{where}: no Ray cluster answers ({why}); start one with `ray start --head`") from error
        try:
            yield
        finally:
            ray.shutdown()


def _result(ray: ModuleType, reference: object) -> Any:
    """The result of a task that is done."""
    try:
        found = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.as_instanceof_cause() from None
    except ray.exceptions.RayError as error:
        why = " ".join(str(error).split())[:200]
        raise UserError(f"--engine ray: a task was lost {RETRIES + 1} times ({why}); look at the nodes") from error
    if isinstance(found, worker.Refused):
        raise UserError(found.why)
    return found


def _ray() -> ModuleType:
    """The package, without a message to its makers about who uses it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise UserError("--engine ray needs Ray: pip install 'ncprior[ray]'") from error
    return ray
