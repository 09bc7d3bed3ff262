"""Tasks for the tests of engines: in a file without JAX, as workers import it."""

import os
import sys
import time
from pathlib import Path

import ray

from ncprior.errors import UserError


def squared(number):
    return number * number


def root(number):
    if number < 0:
        raise UserError(f"no root of {number}")
    return number**0.5


def inverse(number):
    return 1 / number


def slow(task):
    """Leaves a file with the name of its node when it begins, and takes its time."""
    number, folder = task
    node = ray.get_runtime_context().get_node_id()
    Path(folder, f"{number}-{node}-{time.time_ns()}").touch()
    time.sleep(2)
    return number


def cores(_):
    """Whether JAX is loaded, and the cores that this process may use."""
    return "jax" in sys.modules, os.sched_getaffinity(0)
