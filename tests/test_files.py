"""Files that are written whole or not at all, by one process at a time: with real processes that wait or are killed."""

import errno
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ncprior.errors import UserError
from ncprior.files import alone, digest_of, is_ours, written, written_once


def inside(folder):
    return sorted(path.name for path in folder.iterdir())


def write(path, text):
    with written(Path(path)) as draft:
        draft.write_text(text)


@pytest.fixture
def begin():
    """Starts processes that have written half of a file and then wait; says `end()` to go on."""
    started = []

    def start(path, *, then="draft.write_text('whole')"):
        code = (
            "import os, sys, pathlib; from ncprior.files import written\n"
            "with written(pathlib.Path(sys.argv[1])) as draft:\n"
            "    draft.write_text('half'); print('begun', flush=True); input(); " + then
        )
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen([sys.executable, "-c", code, str(path)], text=True, **pipes)
        started.append(process)
        assert process.stdout.readline() == "begun\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "out.json"
    path.write_text("old")
    with written(path) as draft:
        draft.write_text("new")
        assert path.read_text() == "old"
        assert draft.parent == tmp_path
        assert all(is_ours(file) for file in tmp_path.iterdir() if file != path)
    assert path.read_text() == "new"
    assert inside(tmp_path) == ["out.json"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, OSError(errno.ENOSPC, "full"), ValueError])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "out.json"
    path.write_text("old")

    def fail():
        with written(path) as draft:
            draft.write_text("half")
            raise error

    with pytest.raises(error if isinstance(error, type) else type(error)):
        fail()
    assert path.read_text() == "old"
    assert inside(tmp_path) == ["out.json"]


def test_of_two_processes_the_second_is_told_of_the_first(tmp_path, begin):
    path = tmp_path / "out.csv"
    first = begin(path)
    with pytest.raises(UserError) as refused:
        write(path, "mixed")
    assert str(refused.value).startswith(f"{path}: is being written by process {first.pid}; wait until it is done")
    assert len(inside(tmp_path)) == 2  # the draft and the lock of the first
    _, errors = first.communicate("\n", timeout=60)
    assert first.returncode == 0, errors
    assert path.read_text() == "whole"
    assert inside(tmp_path) == ["out.csv"]
    write(path, "again")
    assert path.read_text() == "again"


def test_what_killed_processes_leave_is_removed_at_the_next_write(tmp_path, begin):
    path, other = tmp_path / "out.csv", tmp_path / "other.csv"
    for _ in range(2):
        process = begin(path)
        process.kill()
        process.wait(timeout=60)
    alive = begin(other)
    kept = [file for file in inside(tmp_path) if "other" in file]
    (tmp_path / ".out.csv.part").write_text("mine")
    assert len(inside(tmp_path)) == 3 + len(kept)  # a draft, a lock and mine
    write(path, "new")
    assert inside(tmp_path) == sorted([*kept, ".out.csv.part", "out.csv"])
    alive.communicate("\n", timeout=60)
    assert other.read_text() == "whole"


def test_a_child_does_not_hold_what_its_parent_holds(tmp_path, begin):
    """Fork copies the memory of the parent, but the lock stays the parent's alone."""
    then = (
        "child = os.fork()\n"
        "    if not child:\n"
        "        from ncprior.files import alone\n"
        "        try:\n"
        "            with alone(pathlib.Path(sys.argv[1])): os._exit(0)\n"
        "        except ValueError: os._exit(7)\n"
        "    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    process = begin(tmp_path / "out.csv", then=then)
    process.communicate("\n", timeout=60)
    assert process.returncode == 7
    assert inside(tmp_path) == []


def test_threads_and_one_thread_twice(tmp_path):
    path = tmp_path / "out.csv"
    holding, done = threading.Event(), threading.Event()

    def hold():
        with alone(path), written(path) as draft:
            draft.write_text("first")
            holding.set()
            done.wait(60)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(hold)
        assert holding.wait(60)
        with pytest.raises(UserError, match=r"out.csv: is being written by another thread of this process; wait"):
            write(path, "second")
        done.set()
        first.result()
    assert path.read_text() == "first"
    assert inside(tmp_path) == ["out.csv"]


def test_many_threads_leave_one_whole_file(tmp_path):
    """Locks are taken and removed all the time: nobody may lock a file that another one has just removed."""
    path, inner, most = tmp_path / "out.txt", [], []

    def work(number):
        refused = 0
        for _ in range(50):
            try:
                with alone(path):
                    inner.append(number)
                    most.append(len(inner))
                    write(path, f"{number}" * 1000)
                    inner.remove(number)
            except UserError:
                refused += 1
        return refused

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) < 400
    assert max(most) == 1
    assert len(set(path.read_text())) == 1
    assert inside(tmp_path) == ["out.txt"]


@pytest.mark.parametrize("name", ["a" * 255, "ü" * 127, "a." + "b" * 253, "名" * 80 + ".parquet"])
def test_names_as_long_as_they_can_be(tmp_path, name, begin):
    process = begin(tmp_path / name)
    assert max(len(os.fsencode(file)) for file in inside(tmp_path)) < 143
    with pytest.raises(UserError, match=f"by process {process.pid}"):
        write(tmp_path / name, "new")
    process.kill()
    process.wait(timeout=60)
    write(tmp_path / name, "new")
    assert inside(tmp_path) == [name]


def test_relative_paths_and_links(tmp_path, monkeypatch, begin):
    monkeypatch.chdir(tmp_path)
    write("out.txt", "new")
    (tmp_path / "folder").symlink_to(tmp_path)
    begin(tmp_path / "out.txt")
    with pytest.raises(UserError, match=r"folder/out.txt: is being written by process"):
        write("folder/out.txt", "mixed")
    (tmp_path / "link").symlink_to("out.txt")
    write("link", "replaced")
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "out.txt").read_text() == "new"


@pytest.mark.skipif(not Path("/sys").is_dir(), reason="needs a folder that nobody can write to")
def test_places_that_cannot_be_written(tmp_path):
    for path, reason in {
        "/sys/out.txt": "Permission denied",
        tmp_path / "nowhere" / "out.txt": "No such file or directory",
        tmp_path: "Is a directory",
    }.items():
        with pytest.raises(UserError) as refused:
            write(path, "new")
        assert f"{path}: cannot be written ({reason}); check the folder and its free space" in str(refused.value)


def test_a_lock_is_no_way_to_another_file(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / ".out.txt.ncprior-lock").symlink_to(tmp_path / "mine")
    with pytest.raises(UserError, match=r"out.txt: cannot be written"):
        write(tmp_path / "out.txt", "new")
    assert (tmp_path / "mine").read_text() == "mine"


def test_file_systems_without_locks_and_full_ones(tmp_path, monkeypatch):
    def missing(_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("ncprior.files.take_lock", missing)
    draft = tmp_path / ".out.txt.0123456789abcdef.ncprior-part"
    draft.write_text("of a process that may be alive")
    write(tmp_path / "out.txt", "new")
    assert inside(tmp_path) == [draft.name, "out.txt"]
    monkeypatch.undo()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.write", full)
    with alone(tmp_path / "out.txt"):
        pass
    assert inside(tmp_path) == ["out.txt"]


def test_of_two_who_write_a_file_once_the_first_stays(tmp_path):
    """At the same time, as a task does that was thought to be lost."""
    target = tmp_path / "part"
    with written_once(target) as slow:
        slow.write_text("slow")
        with written_once(target) as fast:
            assert fast != slow
            fast.write_text("fast")
        inode = target.stat().st_ino
    assert (target.read_text(), target.stat().st_ino) == ("fast", inode)
    with written_once(target) as late:
        late.write_text("late")
    assert target.read_text() == "fast"
    with pytest.raises(ZeroDivisionError), written_once(tmp_path / "other") as draft:
        draft.write_text(str(1 / 0))
    assert inside(tmp_path) == ["part"]


def test_a_file_is_written_once_where_there_are_no_links(tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refused)
    with written_once(tmp_path / "part") as draft:
        draft.write_text("whole")
    assert (tmp_path / "part").read_text() == "whole"
    assert inside(tmp_path) == ["part"]


def test_the_digest_of_a_file_is_sha256(tmp_path):
    (tmp_path / "abc").write_text("abc")
    assert digest_of(tmp_path / "abc").startswith("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    with pytest.raises(UserError, match="cannot be read"):
        digest_of(tmp_path / "nowhere")
