"""Engines and their workers, without a cluster: real processes that take cores."""

import importlib.util
import os
import pickle
import subprocess
import sys

import pytest

from ncprior.engines import worker
from ncprior.engines.engine import InProcess, engine_of
from ncprior.errors import UserError

WORKER = """
import os, pickle, sys
from ncprior.engines import worker
worker.run(pickle.dumps((abs, -1)), {"JAX_TEST_OF_WORKERS": "there"})
worker.run(pickle.dumps((abs, -1)), {"JAX_TEST_OF_WORKERS": "not again"})
cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
print(cores, "jax" in sys.modules, os.environ["JAX_TEST_OF_WORKERS"], flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_every_worker_takes_a_core_of_its_own_until_there_is_none(tmp_path):
    allowed = sorted(os.sched_getaffinity(0))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    workers = []
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}

    def start():
        workers.append(subprocess.Popen([sys.executable, "-c", WORKER], env=environment, **pipes))
        cores, with_jax, variable = workers[-1].stdout.readline().split()
        assert (with_jax, variable) == ("False", "there")
        return [int(core) for core in cores.split(",")]

    try:
        assert [start() for _ in allowed] == [[core] for core in allowed]
        assert start() == allowed
        workers[0].kill()
        workers[0].wait()
        assert start() == allowed[:1]  # it is free again, however its process ended
    finally:
        for process in workers:
            process.kill()
            process.communicate()


def refuse(task):
    raise UserError(f"no {task}")


def test_a_mistake_in_a_task_comes_back_as_words(monkeypatch):
    monkeypatch.setattr(worker, "_core", [-1])
    assert worker.run(pickle.dumps((refuse, "thing")), {}) == worker.Refused("no thing")
    with pytest.raises(UserError, match="no thing"):
        list(InProcess().run(refuse, ["thing"]))


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_the_engine_says_how_to_get_it():
    with pytest.raises(UserError, match=r"pip install 'ncprior\[ray\]'"):
        engine_of("ray")
