"""What is printed: nothing of a file reaches the terminal as anything but letters."""

import io
import os
import re
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
from rich.table import Table
from rich.text import Text

from ncprior.cli.console import Terminal
from ncprior.cli.main import main
from ncprior.tables.estimator import NCPRegressor
from ncprior.terminal import printable, remark, say
from test_commands import NCPRIOR

EVIL = "\x1b[31mred\x1b]0;title\x07\r\x9b2J\u202egnp\u2028\x7f[red]x[/] :smile: [/nothing]"
TINY = ["--members", "1", "--epochs", "2", "--method", "det"]


def test_everything_that_a_terminal_obeys_is_an_escape():
    assert printable("\x1b[2J\x07\r\n\t\x00\x7f\x9b") == r"\x1b[2J\x07\r\n\t\x00\x7f\x9b"
    assert printable("\u202e\u2066\u200f\ufeff\u2028\u2029\u00ad\U000e0041") == (
        r"\u202e\u2066\u200f\ufeff\u2028\u2029\xad\U000e0041"
    )
    assert printable("half \udcff") == r"half \udcff"
    assert printable("C:\\new [red]") == "C:\\new [red]"


def test_letters_of_all_languages_stay():
    text = "Größe naïve Ωμέγα Ёлка עברית العربية می‌خواهم हिन्दी ไทย 中文 日本語 한국어 👩‍🔬 ❤️ 1 000 € x²"
    assert printable(text) == text
    every = "".join(map(chr, [*range(0x20, 0xD800), *range(0xE000, 0x11000)]))
    shown = printable(every)
    assert not {unicodedata.category(letter) for letter in shown} & {"Cc", "Cs", "Zl", "Zp"}
    assert all(letter in shown for letter in every if unicodedata.category(letter)[0] in "LMN")


def test_one_line_stays_one_line(capsys, monkeypatch):
    say(f"a\n{EVIL}")
    remark(f"b\n{EVIL}")
    said = capsys.readouterr()
    assert said.out.count("\n") == said.err.count("\n") == 1
    assert (said.out + said.err).replace("\n", "").isprintable()

    class Gone(io.StringIO):
        def write(self, _):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Gone())
    remark("nobody reads this")  # and that is no error


def test_the_console_shows_text_as_it_is(capsys):
    console = Terminal()
    table = Table(EVIL, title=EVIL)
    table.add_row(EVIL)
    table.add_row(Text(EVIL))
    for thing in (EVIL, Text(EVIL), table):
        console.print(thing)
    said = capsys.readouterr().out
    assert said.replace("\n", "").isprintable()
    assert said.count("[red]x[/]") >= 2
    lines = [line for line in said.splitlines() if line.startswith("│")]
    assert {len(line) for line in lines} == {len(lines[0])}  # escapes have the room that they take


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A table with escapes in its name, its header and its cells, and a model of it."""
    folder = tmp_path_factory.mktemp("evil\x1b[31m")
    rng = np.random.default_rng(0)
    header = f'"{EVIL}","[/]","id\x1b","y\x1b[5m $_$"'
    rows = [f'"{EVIL}{i % 3}",{a:.3f},"{i}{EVIL}",{a + i % 3:.3f}' for i, a in enumerate(rng.normal(size=60))]
    (folder / "t.csv").write_text("\n".join([header, *rows, ""]), newline="")
    (folder / "bad.csv").write_text("\n".join([header, *rows, f'a,"{EVIL}",1,2', ""]), newline="")
    return folder


@pytest.fixture
def run(monkeypatch, capsys):
    def run(*arguments, code=0):
        monkeypatch.setattr(sys, "argv", ["ncprior", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr()
        assert (said.out + said.err).replace("\n", "").isprintable()
        assert stop.value.code == code, said.err
        return said.out + said.err

    return run


def test_fit_predict_and_suggest(hostile, run, tmp_path):
    model, target = hostile / "m.ncp", "y\x1b[5m $_$"
    out = hostile / "p\x1b.csv"
    assert r"\x1b[31mred" in run("fit", hostile / "t.csv", "--target", target, *TINY, "--out", model)
    assert NCPRegressor.load(model).target_names_ == [target]
    assert r"\x1b[" in run("predict", model, hostile / "t.csv")
    assert r"p\x1b.csv" in run("predict", model, hostile / "t.csv", "--out", out)
    assert r"\x1b[" in run("suggest", model, hostile / "t.csv", "-n", 2, "--id", "id\x1b")
    assert r"\u001b[31mred" in run("suggest", model, hostile / "t.csv", "-n", 2, "--id", "id\x1b", "--json")
    for mistake in (
        ["predict", model, hostile / "bad.csv"],
        ["predict", model, hostile / "t.csv", "--out", out],
        ["predict", hostile / "t.csv", hostile / "t.csv"],
        ["predict", model, hostile / "nowhere\x1b.csv"],
        ["suggest", model, hostile / "t.csv", "--id", "\x1b[31m"],
        ["fit", hostile / "t.csv", "--target", EVIL, "--out", tmp_path / "m\x1b.ncp"],
        ["fit", hostile / "t.csv", "--target", "nothing", "--out", tmp_path / "m\x1b.ncp"],
        ["fit", hostile / "t.csv", "--target", target, "--out", tmp_path / "\x1b" / "m.ncp"],
        ["evaluate", hostile / "t.csv", "--target", EVIL, "--out", tmp_path / "e\x1b"],
        ["report", tmp_path / "\x1b[31m"],
        ["\x1b[31m[red]"],
        ["fit", "--\x1b[31m"],
    ):
        assert re.search(r"\\x1b|\\u001b", run(*mistake, code=2)) or "nothing" in mistake


def test_evaluate_and_its_report(hostile, run, tmp_path):
    arguments = [hostile / "t.csv", "--target", "y\x1b[5m $_$", "--methods", "mean", "--splits", 1]
    out = tmp_path / "run\x1b[31m"
    assert r"run\x1b[31m" in run("evaluate", *arguments, "--split", "random", "--out", out)
    assert r"run\x1b[31m" in run("report", out)


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal")
def test_on_a_terminal_only_rich_moves_the_cursor(tmp_path):
    model = NCPRegressor("det", hidden=(4,), members=1, epochs=1, random_state=0)
    table = {EVIL: [EVIL, "b"] * 30, "x": np.arange(60.0)}
    model.fit(table, np.arange(60.0)).save(tmp_path / "m.ncp")
    lines = [f'"{EVIL}",x', *(f'"{EVIL}",{i}' for i in range(60)), ""]
    (tmp_path / "t.csv").write_text("\n".join(lines), newline="")
    parent, child = os.openpty()
    command, wide = [NCPRIOR, "predict", "m.ncp", "t.csv"], os.environ | {"COLUMNS": "200"}
    with subprocess.Popen(command, stdout=child, stderr=child, cwd=tmp_path, env=wide) as process:
        os.close(child)
        said = b""
        try:
            while piece := os.read(parent, 65_536):
                said += piece
        except OSError:  # how Linux says that the other end is closed
            pass
    os.close(parent)
    assert process.returncode == 0, said
    own = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode())  # colours and moves
    assert own.replace("\r", "").replace("\n", "").isprintable()
    assert r"\x1b[31mred" in own
    assert "\x1b[31mred" not in said.decode()
