"""Two devices for every test, as on a machine with two cores, whatever this one has."""

import gc
import importlib.util
import os
import signal
import sys
import time
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

# Compiled programs are kept for other tests, for commands in processes of their own, and for the next run of the tests:
# by the package, which neither traces nor compiles those of tables again as long as its source is the same, and by JAX,
# which finds all others by program, flags, versions and CPU. NCPRIOR_TEST_CACHE names another folder.
if "PYTEST_XDIST_WORKER" not in os.environ:
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    cache = Path(os.environ.get("NCPRIOR_TEST_CACHE") or home / "ncprior-tests")
    cache.mkdir(parents=True, exist_ok=True)
    os.environ |= {
        "XDG_CACHE_HOME": str(cache),
        "NCPRIOR_CACHE": str(cache / "ncprior"),
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    for old in cache.rglob("*"):
        with suppress(OSError):  # another run may have removed it
            if old.is_file() and time.time() - old.stat().st_mtime > 14 * 24 * 3600:
                old.unlink()

# Programs here are small and run once: compiling them fast matters more than what is compiled.
os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0 "
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
).strip()

sys.path.insert(0, str(Path(__file__).parent.parent))  # for `benchmarks`

import jax
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from benchmarks import postgres
from hypothesis import settings

from ncprior.cli.main import main
from ncprior.core import active
from ncprior.core.metrics import METRICS
from ncprior.tables import ahead, contrast, search
from ncprior.tables.programs import Engine

jax.config.update("jax_num_cpu_devices", 2)

# Few tests mind what the estimator's contrast networks have learned: in the others they are as they begin.
contrast.STEPS = 0

# Tests count what a search calls, and their workers share the cores: only `test_compiled.py` compiles ahead.
ahead.cores = lambda: 1

WITH_TORCH = importlib.util.find_spec("torch") is not None
WITH_RAY = importlib.util.find_spec("ray") is not None or "NCPRIOR_NEED_RAY" in os.environ
collect_ignore_glob = [] if WITH_TORCH else ["test_torch_*.py"]
collect_ignore = [] if WITH_RAY else ["test_ray.py", "ray_tasks.py"]


def pytest_report_header():
    missing = {
        "PyTorch is not installed: tests of ncprior.torch are left out, `make test-torch` has them": WITH_TORCH,
        "Ray is not installed: tests of --engine ray are left out, `make test-ray` has them": WITH_RAY,
    }
    return [line for line, there in missing.items() if not there]


def pytest_collection_finish():
    """What is imported stays: the garbage collector need not look at it again each time, for half a second."""
    gc.collect()
    gc.freeze()


# The same examples in every run, so that a failure is the change's own; `--hypothesis-profile explore` draws new ones.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile("same")


@pytest.fixture(autouse=True, scope="module")
def forget():
    """Drops programs after a file of tests, if they hold many of the 65,530 pieces of memory that Linux allows."""
    yield
    pieces = Path("/proc/self/maps")
    if not pieces.exists() or pieces.read_bytes().count(b"\n") > 30_000:
        Engine.clear_cache()
        jax.clear_caches()


@pytest.fixture
def compiled(monkeypatch):
    """The names of the programs that are compiled while a test runs; the package finds none in its files."""
    monkeypatch.setenv("NCPRIOR_CACHE", "off")
    names = []

    def listen(event, _, **notes):
        if "backend_compile" in event:
            names.append(str(notes.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield names
    jax.monitoring.unregister_event_duration_listener(listen)


@contextmanager
def fast_programs():
    """Programs of tables run fast instead of compiling fast; they and their files are kept apart from the others.

    Options change the rounding: models that are compared must not have programs of both kinds.
    """
    plain = jax.stages.Lowered.compile

    def compiled(self, compiler_options=None):
        return plain(self, compiler_options={**(compiler_options or {}), "xla_backend_optimization_level": 1})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax.stages.Lowered, "compile", compiled)
        patch.setenv("NCPRIOR_CACHE", f"{os.environ['NCPRIOR_CACHE']}-fast")
        Engine.clear_cache()
        yield
        Engine.clear_cache()


@pytest.fixture
def long_training():
    """For tests of which training takes more time than compiling."""
    with fast_programs():
        yield


@pytest.fixture(scope="module")
def long_training_in_module():
    """For files of such tests, and what they share."""
    with fast_programs():
        yield


@pytest.fixture
def contrast_as_it_is(monkeypatch):
    """For tests that mind what contrast networks have learned."""
    monkeypatch.setattr(contrast, "STEPS", 1_500)


@pytest.fixture
def few_metrics(monkeypatch):
    """For runs of which only errors and densities matter: programs without the other metrics compile faster."""
    monkeypatch.setattr(active, "METRICS", {name: METRICS[name] for name in ("rmse", "nlpd")})


@pytest.fixture
def interruptible():
    """Ctrl-C is not ignored, here and in processes that a test starts, though it may be by who started the tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def in_process():
    """Runs the command in this process, which has JAX loaded already, and returns its code."""

    def command(*arguments):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("ncprior.cli.progress._PLAIN_SECONDS", 1e9)  # no lines of progress on a busy machine
            patch.setattr("ncprior.cli.paper.use_all_cores", lambda: None)  # there are two devices
            patch.setattr(sys, "argv", ["ncprior", *map(str, arguments)])
            with pytest.raises(SystemExit) as stop:
                main()
        return stop.value.code or 0

    return command


@pytest.fixture
def run(in_process, capsys):
    """Runs the command in this process and returns what it prints; for another code than 0 its one line on stderr."""

    def run(*arguments, code=0):
        found = in_process(*arguments)
        said = capsys.readouterr()
        assert found == code, said.err
        if code:
            assert said.err.startswith("ncprior: ")
            assert said.err.count("\n") == 1
            assert not said.out
            return said.err
        return said.out

    return run


@pytest.fixture
def undrawn(monkeypatch):
    """For commands whose figures another test draws: files of figures are written, with nothing in them."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda _, file, **__: file.write(b"<svg/>"))


@pytest.fixture(scope="session")
def pools(tmp_path_factory):
    """A folder with a model `m.ncp` of x and z, the rows that it learned, and a pool of 900 rows.

    The pool is one file of nine row groups, the same as a folder of three files, and as CSV.
    """
    from ncprior.tables.estimator import NCPRegressor

    folder = tmp_path_factory.mktemp("pool")
    random = np.random.default_rng(0)
    inputs = random.normal(size=(50, 2))
    table = pa.table({"x": inputs[:, 0], "z": inputs[:, 1]})
    NCPRegressor(members=2, epochs=3, hidden=(8,), random_state=0).fit(table, inputs.sum(1)).save(folder / "m.ncp")
    pq.write_table(table.append_column("y", pa.array(inputs.sum(1))), folder / "trained.parquet")
    x, z = random.normal(size=(2, 900))
    pool = pa.table({"id": [f"r{i}" for i in range(900)], "x": x, "z": z, "y": x + z + 0.1})
    pq.write_table(pool, folder / "pool.parquet", row_group_size=100)
    (folder / "pool").mkdir()
    for i in range(3):
        pq.write_table(pool.slice(300 * i, 300), folder / "pool" / f"{i}.parquet", row_group_size=100)
    pa_csv.write_csv(pool, folder / "pool.csv")
    pa_csv.write_csv(pool.slice(0, 40), folder / "labelled.csv")
    return folder


@pytest.fixture
def short_search(monkeypatch):
    """For tests that hold rows out and do not mind how long is trained."""
    monkeypatch.setattr(search, "min_search_steps", lambda _: 100)
    monkeypatch.setattr(search, "Stopping", partial(search.Stopping, max_steps=225))


@pytest.fixture(scope="session")
def postgresql():
    """The URL of a PostgreSQL server of the tests' own, with `{}` for the name of the database."""
    if not postgres.available() and "NCPRIOR_NEED_POSTGRESQL" not in os.environ:
        pytest.skip("no PostgreSQL to start a server with")
    with postgres.server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def storage(request, tmp_path):
    """The URL of a new storage for campaigns, of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'campaign.db'}"
    import psycopg

    url = request.getfixturevalue("postgresql").format("postgres")
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        if names := ", ".join(f'"{name}"' for (name,) in tables if name != "alembic_version"):
            connection.execute(f"TRUNCATE {names} RESTART IDENTITY")
    return url
