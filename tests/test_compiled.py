"""Programs that are kept between processes: found again, never mistaken for others, and never loaded from strangers."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from ncprior.core.prediction import Prediction
from ncprior.tables import ahead, contrast, fitting, program_files
from ncprior.tables import compiled as module
from ncprior.tables.calibration import Calibration
from ncprior.tables.compiled import Program
from ncprior.tables.estimator import NCPRegressor
from ncprior.tables.program_files import cache_folder, program_folder, read_program, write_program
from ncprior.tables.programs import Engine, chunked

X = np.arange(6, dtype=np.float32).reshape(2, 3)
SINES = np.sin(X)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of programs; JAX's own cache, which tests share, is off."""
    monkeypatch.setenv("NCPRIOR_CACHE", str(tmp_path / "cache"))
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    yield tmp_path / "cache" / "compiled"
    jax.config.update("jax_enable_compilation_cache", True)
    compilation_cache.reset_cache()


def spread(x):
    return Prediction(jnp.sin(x), jnp.abs(x), jnp.sqrt(jnp.abs(x)))


def never(_):
    raise AssertionError("a kept program was traced again")


def test_another_process_neither_traces_nor_compiles(compiled, folder):
    first = Program(spread, "spread")(X)
    assert len(list(folder.glob("*.program"))) == 1
    del compiled[:]
    again = Program(never, "spread")(X)
    assert compiled == []
    assert jax.tree.structure(again) == jax.tree.structure(first)
    jax.tree.map(np.testing.assert_array_equal, again, first)


class Tagged(eqx.Module):
    """A result with a part that is no array."""

    value: jax.Array
    tag: str = eqx.field(static=True)


def test_what_is_static_in_results_is_that_of_the_program_itself(folder):
    """Though programs of one's own that compute the same share a file."""
    for tag in ("first", "second"):
        assert Program(lambda x, tag=tag: Tagged(x + 1, tag), None)(X).tag == tag
    assert len(list(folder.glob("*.program"))) == 1


def test_a_program_depends_on_its_text_shapes_settings_and_static_values(folder):
    for about, x in (("a", X), ("b", X), ("a", X[:1]), ("a", X.astype(np.int32))):
        Program(lambda x: x + 1, about)(x)
    assert len(list(folder.iterdir())) == 4
    with jax.numpy_dtype_promotion("strict"):
        Program(lambda x: x + 1, "a")(X)
    assert len(list(folder.iterdir())) == 5
    times = Program(lambda x, *, by: by * x, "times", static=["by"])
    assert times(X, by=2).sum() == 30
    assert times(X, by=3).sum() == 45
    assert len(list(folder.iterdir())) == 7


def test_programs_of_the_users_own_are_found_by_what_they_compute(folder):
    add = [Program(lambda x, n=n: x + n, None) for n in (1, 2, 1)]
    assert [float(program(X)[0, 0]) for program in add] == [1.0, 2.0, 1.0]
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("damage", [b"", b"x" * 100, None], ids=["empty", "other", "cut"])
def test_a_damaged_file_is_replaced(folder, damage):
    Program(spread, "spread")(X)
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-7] if damage is None else damage)
    np.testing.assert_allclose(Program(spread, "spread")(X).mean, SINES, rtol=1e-6)
    np.testing.assert_allclose(Program(never, "spread")(X).mean, SINES, rtol=1e-6)


def test_a_whole_file_that_is_no_program_is_replaced(folder):
    Program(spread, "spread")(X)
    (path,) = folder.iterdir()
    write_program(folder, path.stem, b"no pickle")
    assert read_program(folder, path.stem) == b"no pickle"
    np.testing.assert_allclose(Program(spread, "spread")(X).mean, SINES, rtol=1e-6)
    np.testing.assert_allclose(Program(never, "spread")(X).mean, SINES, rtol=1e-6)


@pytest.mark.parametrize("value", ["", "off", "OFF"])
def test_nothing_is_kept_if_asked_so(tmp_path, monkeypatch, value):
    monkeypatch.setenv("NCPRIOR_CACHE", value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() is None
    Program(spread, "spread")(X)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="folders have no owner here")
def test_folders_that_others_may_write_to_are_refused(folder, monkeypatch):
    assert program_folder() == folder
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.warns(UserWarning, match="others may write to it"):
        assert program_folder() is None
    folder.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.warns(UserWarning, match="belongs to another user"):
        np.testing.assert_allclose(Program(spread, "spread")(X).mean, SINES, rtol=1e-6)
    assert list(folder.iterdir()) == []


def test_programs_that_were_not_used_for_longest_are_removed(folder, monkeypatch):
    folder = program_folder()
    monkeypatch.setattr(program_files, "_LIMIT", 350)
    for i, name in enumerate("abc"):
        write_program(folder, name, b"x" * 68)  # 100 bytes with the digest
        os.utime(folder / f"{name}.program", (i, i))
    assert read_program(folder, "a")  # now it was used last
    write_program(folder, "d", b"x" * 68)
    assert sorted(path.stem for path in folder.iterdir()) == ["a", "c", "d"]


def test_what_jax_kept_itself_is_not_kept_again(folder):
    """XLA cannot serialise a program that was itself loaded from a file."""

    def loaded(x):
        jax.monitoring.record_event("/jax/compilation_cache/cache_hits")
        return x + 1

    Program(loaded, "loaded")(X)
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("folder")
def test_threads_compile_a_program_once():
    traced = []

    def slow(x):
        traced.append(1)
        return jnp.cos(x)

    program = Program(slow, "slow")
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: np.asarray(program(X)), range(8)))
    assert traced == [1]
    np.testing.assert_array_equal(results, [results[0]] * 8)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("options", [module._COMPILED_FAST, {"no_such_option_of_xla": True}], ids=["known", "unknown"])
def test_a_brief_program_does_not_need_its_options(monkeypatch, options):
    monkeypatch.setattr(module, "_COMPILED_FAST", options)
    np.testing.assert_allclose(Program(spread, "brief spread", brief=True)(X).mean, SINES, rtol=1e-6)


@pytest.mark.usefixtures("folder")
def test_a_program_can_be_part_of_another():
    double = Program(lambda x: 2 * x, "double")
    np.testing.assert_array_equal(jax.jit(lambda x: double(x) + 1)(X), 2 * X + 1)
    np.testing.assert_array_equal(jax.vmap(double)(X), 2 * X)


@pytest.mark.usefixtures("folder")
def test_other_sources_versions_and_processors_are_other_programs(monkeypatch):
    Program(spread, "spread")(X)
    for name in ("_sources", "_machine"):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, lambda: "another")
            with pytest.raises(AssertionError, match="traced again"):
                Program(never, "spread")(X)


def small_model(rows, **options):
    x = np.random.default_rng(0).normal(size=(rows, 2))
    return NCPRegressor(members=2, hidden=(8,), random_state=0, **options).fit(x, x[:, 0]), x


@pytest.mark.usefixtures("short_search", "folder")
def test_a_first_fit_compiles_few_programs(monkeypatch):
    """Two for members and two for contrast networks; and for a search what scores and calibrates."""
    made = []
    monkeypatch.setattr(contrast, "STEPS", 2)
    monkeypatch.setattr(ahead, "cores", lambda: 2)
    monkeypatch.setattr(Program, "_make", lambda self, *given: made.append(self) or make(self, *given))
    Engine.clear_cache()
    small_model(50)
    names = sorted(program._jit.__name__ for program in made)
    assert names.count("_begin") == names.count("_train_group") == 2
    assert names.count("_score_group") == 1  # contrast networks are not scored
    assert len(names) <= 14  # one that reads contrast networks is compiled for two sizes of chunks


make = Program._make


@pytest.mark.usefixtures("short_search")
def test_what_members_need_is_compiled_while_something_else_runs(compiled, monkeypatch):
    """In a thread, before the search asks for it; once for each size of table."""
    monkeypatch.setattr(ahead, "cores", lambda: 2)
    Engine.clear_cache()
    monkeypatch.setattr(fitting, "search", lambda *_, **__: seen.append(list(compiled)) or result)
    seen, result = [], fitting.SearchResult(np.full(2, 10), Calibration.equal(2), novelty=np.ones(3))
    threads = set()
    monkeypatch.setattr(
        Program, "_make", lambda self, *given: threads.add(threading.current_thread()) or make(self, *given)
    )
    small_model(50, method="det")
    assert threading.main_thread() not in threads
    assert "jit(_train_group)" in compiled
    del compiled[:]
    small_model(60, method="det")
    assert compiled == []


def test_several_chunks_are_predicted_rather_than_one_that_is_mostly_padding():
    sizes = []

    def double(rows):
        sizes.append(len(rows))
        return 2 * rows

    for rows, expected in ((1, [64]), (65, [1024]), (1025, [1024] * 2), (8192, [1024] * 8), (8193, [16384])):
        del sizes[:]
        x = np.arange(float(rows))
        np.testing.assert_array_equal(chunked(double, x), 2 * x)
        assert sizes == expected


@pytest.mark.usefixtures("short_search")
def test_nothing_compiles_while_a_table_grows(compiled):
    """Neither where rows begin to be held out, nor with any number of labels up to 256."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))

    def learn(rows):
        model = NCPRegressor(members=2, hidden=(8,), random_state=0).fit(x[:rows], x[:rows, 0])
        model.predict(x[:20])
        return model

    assert learn(15).validation_ is None
    del compiled[:]
    for rows in (20, 37, 70, 190):
        assert learn(rows).validation_ is not None
    assert compiled == []
