"""What a worker process does before it runs its first task, and how it runs one.

Nothing here imports JAX: the process gets cores of its own first, by which JAX counts the threads that it starts.
"""

import os
import pickle
import tempfile
from pathlib import Path
from typing import NamedTuple

from ncprior.errors import UserError
from ncprior.files import take_lock

PASSED_ON = ("JAX_", "XLA_", "NCPRIOR_")
"""Prefixes of the environment variables that workers take over from the process that sends tasks."""

_core: list[int] = []
"""The locks of the cores that this process has taken, as open files."""


class Refused(NamedTuple):
    """A task ended with a `UserError`."""

    why: str


def run(payload: bytes, environment: dict[str, str]) -> object:
    """Runs a task: a function and its argument, pickled, since reading them imports what they need."""
    if not _core:
        os.environ.update(environment)
        take_core()
    function, task = pickle.loads(payload)  # from our own process, by Ray
    try:
        return function(task)
    except UserError as error:
        return Refused(str(error))


def take_core() -> set[int]:
    """Keeps this process, and threads that it starts from now on, on one core that no other worker has taken.

    If all are taken, the cores stay as they are. A core is free again when its process ends, however it ends.
    """
    if not hasattr(os, "sched_setaffinity"):
        _core.append(-1)
        return set()
    allowed = os.sched_getaffinity(0)
    folder = Path(tempfile.gettempdir()) / f"ncprior-cores-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for core in sorted(allowed):
        descriptor = os.open(folder / f"{core}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            take_lock(descriptor)
        except OSError:
            os.close(descriptor)
            continue
        _core.append(descriptor)
        os.sched_setaffinity(0, {core})
        return {core}
    _core.append(-1)
    return allowed
