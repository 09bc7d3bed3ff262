"""Two devices for every test, as on a machine with two cores, whatever this one has."""

import atexit
import os
import shutil
import tempfile

# Commands that run in processes of their own share a folder for compiled programs, which is gone afterwards.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="ncprior-tests-")
    atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

# Programs here are small and run once: compiling them fast matters more than what is compiled.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0".strip()

import jax
import pytest

jax.config.update("jax_num_cpu_devices", 2)


@pytest.fixture
def compiled():
    """The names of the programs that are compiled while a test runs."""
    names = []

    def listen(event, _, **notes):
        if "backend_compile" in event:
            names.append(str(notes.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield names
    jax.monitoring.unregister_event_duration_listener(listen)
