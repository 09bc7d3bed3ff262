"""Damaged Arrow and Parquet files: refused in one line, whatever is wrong with them, and never a crash."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from ncprior.data import labelled, table_files
from ncprior.data.encoding import Encoder
from ncprior.errors import UserError
from ncprior.tables import recipe

ROUNDS = 60
"""Damaged files of each kind."""

WORDS = np.array(["red", "green", "a longer word than fits into a view", ""])


def sound_table(rows: int = 60) -> pa.Table:
    random = np.random.default_rng(0)
    words = pa.array(WORDS[random.integers(0, 4, rows)], mask=random.random(rows) < 0.1)
    return pa.table(
        {
            "number": random.normal(size=rows),
            "text": words,
            "view": words.cast(pa.string_view()),
            "category": words.dictionary_encode(),
            "runs": pc.run_end_encode(np.repeat(WORDS, rows // 4)),
            "date": pa.array(random.integers(0, 2**50, rows), pa.timestamp("us")),
            "y": random.normal(size=rows),
        }
    )


def sound_files(folder: Path) -> list[Path]:
    """One file of each kind that Arrow writes, and Parquet."""
    table = sound_table()
    files = [folder / name for name in ("plain.feather", "lz4.feather", "zstd.feather", "saved.arrow", "t.parquet")]
    for file, compression in zip(files, ("uncompressed", "lz4", "zstd"), strict=False):
        feather.write_feather(table, str(file), compression=compression, chunksize=25)
    with pa.ipc.new_stream(str(files[3]), table.schema) as stream:
        stream.write_table(table, max_chunksize=25)
    pq.write_table(table.drop_columns(["runs"]), files[4], row_group_size=25)
    return files


def damaged(content: bytes, random: np.random.Generator) -> bytes:
    """The bytes cut off somewhere, or some of them changed: anywhere, at the beginning or at the end."""
    first, last = [(0, len(content)), (0, 1_500), (len(content) - 1_500, len(content))][random.integers(3)]
    if random.random() < 0.1:
        return content[: random.integers(1, len(content))]
    changed = bytearray(content)
    for place in random.integers(max(first, 0), min(last, len(content)), 8):
        changed[place] = random.integers(256)
    return bytes(changed)


def use(file: Path) -> None:
    """What the commands do with a table, but for the networks."""
    names = [name for name in table_files.schema_of(file).names if name != "y"]
    rows = labelled.draw_labelled(file, ["y"], names, most=recipe.most_rows, seed=0).rows.table
    labelled.read_targets(rows, ["y"])
    inputs = rows.drop_columns(["y"])
    labelled.check_inputs(inputs)
    encoder = Encoder.fit(inputs)
    for piece in table_files.stream(file, rows=20):
        encoder.transform(piece)
        piece.take(np.arange(piece.num_rows)[::-1]).select(["text", "category"]).to_pydict()


def use_damaged(folder: Path) -> None:
    """Uses many damaged files and prints what became of them."""
    random = np.random.default_rng(0)
    refused = 0
    for file in sound_files(folder):
        content = file.read_bytes()
        for _ in range(ROUNDS):
            file.write_bytes(damaged(content, random))
            with suppress(UserError):
                use(file)
                continue
            refused += 1
    print(refused)


def test_damage_is_never_a_crash(tmp_path):
    # In a process of its own, so that a crash fails this test and does not end all of them.
    command = "import sys; from test_damaged_tables import *; use_damaged(Path(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", command, str(tmp_path)], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr[-2_000:]}"
    assert int(done.stdout) > 2 * ROUNDS  # many of the files were indeed damaged


@pytest.mark.parametrize("place", range(5))
def test_sound_files_are_used(tmp_path, place):
    file = sound_files(tmp_path)[place]
    use(file)
    assert table_files.read(file, ["view", "text", "y"]).column_names == ["view", "text", "y"]


def test_damage_is_told_with_the_column(tmp_path):
    file = tmp_path / "t.arrow"
    good = pa.array(["a", "b"]).dictionary_encode()
    outside = pa.DictionaryArray.from_buffers(
        good.type, 2, [None, pa.py_buffer(b"\0\0\0\0\x07\0\0\0")], good.dictionary
    )
    table = pa.table({"x": [1.0, 2.0], "colour": outside})
    with pa.ipc.new_file(str(file), table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(UserError, match=r"t\.arrow: column 'colour' is damaged \(.*\); get the file anew"):
        table_files.read(file)
    assert table_files.read(file, ["x"])["x"].to_pylist() == [1, 2]  # what is not wanted is not looked at


@pytest.mark.parametrize("name", ["t.arrow", "t.parquet"])
def test_text_that_is_not_utf8_is_refused(tmp_path, name):
    offsets, letters = pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"a\xff")
    table = pa.table({"x": [1.0, 2.0], "word": pa.Array.from_buffers(pa.string(), 2, [None, offsets, letters])})
    if name == "t.parquet":
        pq.write_table(table, tmp_path / name)
    else:
        feather.write_feather(table, str(tmp_path / name))
    with pytest.raises(UserError, match=r"column 'word' has letters that are not UTF-8"):
        table_files.read(tmp_path / name)
    with pytest.raises(UserError, match=r"column 'word' has letters that are not UTF-8"):
        Encoder.fit(table)
