"""How commands end other than by being done: Ctrl-C at any moment, stdout that takes no more, numbers without sense."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from ncprior.core.active import Schedule
from ncprior.core.settings import Settings
from ncprior.errors import UserError
from ncprior.experiments import evaluate, simulate
from ncprior.experiments.paper import data_parallel, toy
from ncprior.tables.estimator import NCPRegressor
from ncprior.tables.options import FitOptions
from test_commands import NCPRIOR

INTERRUPTED_BY_AN_IMPORT = """
import os, signal, sys

class Finder:
    def find_spec(self, name, *_):
        if name == wanted:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

wanted = sys.argv.pop(1)
sys.meta_path.insert(0, Finder())
from ncprior.cli.main import main
main()
"""
WITH_A_SIGN = "from ncprior.cli.main import main; print('begun', flush=True); main()"
PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "t.csv"
    rows = np.random.default_rng(0).normal(size=(60, 3))
    path.write_text("\n".join(["a,b,y", *(",".join(map(str, row)) for row in rows), ""]))
    return path


def fit(table, out):
    return ["fit", str(table), "--target", "y", "--members", "1", "--epochs", "1000000", "--out", str(out / "m.ncp")]


def check_stopped(process, folder):
    try:
        _, errors = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert errors.splitlines()[-1] in ("ncprior: stopped", "ncprior: stopped; nothing was written")
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_while_modules_are_imported(table, tmp_path):
    names = ("ncprior.cli.interrupts", "ncprior.cli.app", "typer", "ncprior.cli.evaluate", "ncprior.tables.estimator")
    names += ("numpy", "pyarrow", "jax", "jaxlib.xla_client", "equinox", "ncprior.tables.saving")

    def interrupted(name):
        command = [sys.executable, "-c", INTERRUPTED_BY_AN_IMPORT, name, *fit(table, tmp_path)]
        check_stopped(subprocess.Popen(command, **PIPES), tmp_path)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(interrupted, names))


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_at_any_moment(table, tmp_path):
    def interrupted(delay):
        folder = tmp_path / f"{delay}"
        folder.mkdir()
        process = subprocess.Popen([sys.executable, "-c", WITH_A_SIGN, *fit(table, folder)], **PIPES)
        assert process.stdout.readline() == "begun\n"
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        check_stopped(process, folder)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(interrupted, (0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0)))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_stdout_is_one_line(table, tmp_path):
    model = NCPRegressor("det", hidden=(4,), members=1, epochs=1, random_state=0)
    model.fit({"a": np.arange(60.0), "b": np.arange(60.0)}, np.arange(60.0)).save(tmp_path / "m.ncp")
    out = tmp_path / "p.csv"
    for command in (["--version"], ["fit", "--help"], ["predict", tmp_path / "m.ncp", table, "--out", out]):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run([NCPRIOR, *map(str, command)], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1] == (
            "ncprior: what was to be printed could not be written (No space left on device); make room, or send it "
            "elsewhere"
        )
        assert "Traceback" not in done.stderr
    assert out.read_text().count("\n") == 61


def test_a_pipe_that_nobody_reads_and_closed_streams():
    process = subprocess.Popen([NCPRIOR, "fit", "--help"], **PIPES)
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=60) == 1
    for closed, code in ((">&-", 0), (">&- 2>&-", 0), ("2>/dev/full", 0)):
        assert subprocess.run(["bash", "-c", f'"{NCPRIOR}" --version {closed}']).returncode == code
    lost = subprocess.run(["bash", "-c", f'"{NCPRIOR}" report nowhere 2>/dev/full'])
    assert lost.returncode == 2


HUGE = 10**20


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NCPRegressor(members=HUGE), "members must be at most 1,000, got 100,000,000,000,000,000,000: all net"),
        (lambda: NCPRegressor(epochs=HUGE), "epochs must be at most 10,000,000, got 100,000,000,000,000,000,000: step"),
        (lambda: NCPRegressor(epochs=10_000_000, batch_size=1), "10,000,000 epochs of 1,000 rows are more steps than"),
        (lambda: NCPRegressor(hidden=(HUGE,)), "hidden[0] must be a whole number from 1 to 65,536"),
        (
            lambda: NCPRegressor(hidden=(60_000, 60_000)),
            "weights must be at most 250,000,000, got 3,600,000,000: those",
        ),
        (lambda: Settings(batch_size=HUGE), "batch_size must be a whole number from 1 to"),
        (lambda: Schedule(epochs=HUGE), "epochs must be at most"),
        (lambda: Schedule(select=HUGE), "select must be at most"),
        (lambda: data_parallel.Schedule(epochs=HUGE), "epochs must be at most"),
        (lambda: data_parallel.Schedule(bins=HUGE), "bins must be at most"),
        (lambda: toy.configure(seeds=HUGE), "seeds must be at most"),
        (lambda: evaluate.Config("t", "y", "random", "", seeds=HUGE), "seeds must be at most"),
        (lambda: evaluate.Config("t", "y", "random", "", splits=HUGE), "splits must be at most"),
        (lambda: simulate.Config("t", "y", "", seeds=HUGE), "seeds must be at most"),
    ],
)
def test_numbers_without_sense_are_refused(make, message):
    def check():
        made = make()
        if isinstance(made, NCPRegressor):
            FitOptions.of(made).settings_for(1_000)

    with pytest.raises(UserError) as refused:
        check()
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("fit t.csv --target y --members 100000000 --out m.ncp", "members must be at most 1,000"),
        ("fit t.csv --target y --epochs 99999999999999999999 --out m.ncp", "epochs must be at most 10,000,000"),
        ("evaluate t.csv --target y --set members=100000000 --out e", "members must be at most 1,000"),
        ("evaluate t.csv --target y --set epochs=99999999999999999999 --out e", "epochs must be at most 10,000,000"),
        ("simulate t.csv --target y --initial 3 --set members=100000000 --out e", "members must be at most 1,000"),
        ("simulate t.csv --target y --seeds 99999999999999999999 --out e", "seeds must be at most 1,000"),
        ("suggest m.ncp t.csv -n 99999999999999999999", "-n 99999999999999999999: ask for at most 1,000,000 rows"),
        ("fit t.csv --target y --seed 99999999999999999999 --out m.ncp", "--seed 99999999999999999999: give a whole"),
    ],
)
def test_options_without_sense_are_refused(table, tmp_path, monkeypatch, capsys, arguments, message):
    from ncprior.cli.main import main

    monkeypatch.chdir(tmp_path)
    os.link(table, "t.csv")
    monkeypatch.setattr(sys, "argv", ["ncprior", *arguments.split()])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"ncprior: {message}")
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert [file.name for file in tmp_path.iterdir()] == ["t.csv"]
