"""Model files from strangers and broken disks: each is refused in one line, or loads and predicts; soon, and small."""

import copy
import json
import os
import random
import struct
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ncprior import NCPRegressor
from ncprior.cli.main import main
from ncprior.errors import UserError
from ncprior.tables.model_file import FORMAT, read_arrays, read_header, to_bytes
from ncprior.tables.programs import Engine

ROWS = 48
TABLE = pa.table(
    {
        "size": [None, *np.linspace(-1, 1, ROWS - 1)],
        "age": np.cos(np.arange(ROWS)),
        "colour": ["red", "blue", "green", None] * (ROWS // 4),
        "sold": [True, False] * (ROWS // 2),
        "day": pa.array(np.arange(ROWS) * 40, pa.int32()).cast(pa.date32()),
    }
)
TARGETS = np.column_stack([np.linspace(5, 9, ROWS), np.sin(np.arange(ROWS))])
NEW = TABLE.slice(0, 8)


class Saved:
    """A model, its file, and that file in parts."""

    def __init__(self, path, method="ncp", targets=TARGETS[:, 0], **arguments):
        arguments = {"hidden": (4, 3), "members": 2, "epochs": 2, "random_state": 0, **arguments}
        self.model = NCPRegressor(method, **arguments).fit(TABLE, targets)
        self.model.save(path)
        self.path, self.content = path, path.read_bytes()
        self.prediction = self.model.predict(NEW, return_std=True)
        with path.open("rb") as stream:
            header = read_header(stream, len(self.content))
            self.notes, self.arrays = header.notes, read_arrays(stream, header)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return Saved(tmp_path_factory.mktemp("models") / "model.ncp")


@pytest.fixture
def refused(tmp_path):
    """Loads a file with this content, which must be refused soon in one line, and returns the line."""

    def load(content):
        path = tmp_path / "bad.ncp"
        path.write_bytes(content)
        started = time.monotonic()
        with pytest.raises(UserError) as error:
            NCPRegressor.load(path)
        assert time.monotonic() - started < 5  # of which most is the machine's other work
        line = str(error.value)
        assert line.startswith(f"{path}: ")
        assert line.isprintable()
        assert len(line) < len(str(path)) + 600
        return line

    return load


def edited(saved, *where, to=None, drop=False, text=None):
    """The file with one thing in its notes changed, and the checksum that goes with it."""
    notes = copy.deepcopy(saved.notes)
    place = notes
    for step in where[:-1]:
        place = place[step]
    if drop:
        del place[where[-1]]
    else:
        place[where[-1]] = "TEXT" if text else to
    return packed(notes, saved.arrays, text)


def packed(notes, arrays, text=None):
    """A file with these notes; ``text`` stands where they say TEXT, as what it says may be too deep to write."""
    if text is None:
        return to_bytes(notes, arrays)
    content = to_bytes(notes, arrays)
    (size,) = struct.unpack("<Q", content[:8])
    header = content[8 : 8 + size].replace(b'\\"TEXT\\"', text)
    return struct.pack("<Q", len(header)) + header + content[8 + size :]


def with_header(content, change):
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + size :]


def test_loading_compiles_nothing(saved, compiled):
    del compiled[:]
    NCPRegressor.load(saved.path)
    assert compiled == []


@pytest.mark.parametrize(
    ("hidden", "said"),
    [
        ([10_000, 10_000], "layers"),
        ([200_000, 200_000], "settings.hidden"),
        ([1] * 3_000, "settings.hidden"),
        ([4, 3, 3], "3 layers"),
        ([4], "layers"),
        ([], "settings.hidden"),
        ([4.0, 3.0], "settings.hidden"),
        ([4, True], "settings.hidden"),
        ("43", "settings.hidden"),
    ],
)
def test_a_network_of_another_size_is_refused_before_it_is_made(saved, refused, hidden, said):
    assert said in refused(edited(saved, "settings", "hidden", to=hidden))


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("rows",), "many"),
        (("rows",), -1),
        (("rows",), 2**40),
        (("steps",), [1]),
        (("steps",), [1, 2.5]),
        (("steps",), []),
        (("bins",), 10**9),
        (("outputs",), 0),
        (("outputs",), 2),
        (("flat",), 1),
        (("fit_seconds",), float("inf")),
        (("features",), 3),
        (("feature_names",), ["size"]),
        (("feature_names",), [0] * 5),
        (("target_names",), ["a", "b"]),
        (("validation",), {"rmse": 1.0}),
        (("validation",), {"rmse": [1.0, 2.0], "nlpd": 0.0, "coverage": 0.9, "rows": 5}),
        (("refitted",), 1),
        (("unlabelled",), -1),
        (("asked_weight",), 0.5),
        (("asked_weight",), 2.0),
        (("arguments", "conformal_fraction"), 2.0),
        (("own",), ["everything"]),
        (("own",), ["method"]),
        (("method",), "best"),
        (("method",), None),
        (("versions", "jax"), 1),
        (("format",), 4.0),
        (("arguments", "hidden"), "all"),
        (("arguments", "members"), 0),
        (("arguments", "gamma"), float("nan")),
        (("arguments", "random_state"), {}),
        (("arguments", "settings"), {"gama": 1}),
        (("arguments", "settings"), {"gamma": "high"}),
        (("arguments", "unheard"), 1),
        (("settings", "noise_floor"), 1e300),
        (("settings", "leaky_slope"), 1e30),
        (("settings", "gamma"), True),
        (("settings", "bias_belief"), 1),
        (("settings", "draw"), "all"),
        (("settings", "clip"), -1.0),
        (("settings", "output_centre"), "middle"),
        (("settings", "unheard"), 1),
        (("encoder", "columns"), {}),
        (("encoder", "columns"), []),
        (("encoder", "columns", 0), "size"),
        (("encoder", "columns", 0, "name"), "age"),
        (("encoder", "columns", 0, "kind"), "colour"),
        (("encoder", "columns", 0, "kind"), "date"),
        (("encoder", "columns", 0, "parts"), ["trend"]),
        (("encoder", "columns", 0, "parts"), ["value", "value"]),
        (("encoder", "columns", 0, "parts"), "value"),
        (("encoder", "columns", 0, "centre"), "middle"),
        (("encoder", "columns", 0, "centre"), float("nan")),
        (("encoder", "columns", 0, "scale"), 0.0),
        (("encoder", "columns", 0, "scale"), -1.0),
        (("encoder", "columns", 0, "missing"), "no"),
        (("encoder", "columns", 0, "missing"), False),
        (("encoder", "columns", 2, "values"), ["red", "red", "blue"]),
        (("encoder", "columns", 2, "values"), [1, 2, 3]),
        (("encoder", "columns", 2, "values"), []),
        (("encoder", "columns", 2, "others"), ["red"]),
        (("encoder", "columns", 2, "values"), [f"v{i}" for i in range(20_000)]),
        (("encoder", "columns", 2, "name"), "colour\ud800"),
    ],
    ids=str,
)
def test_notes_that_mean_nothing_are_refused(saved, refused, where, value):
    refused(edited(saved, *where, to=value))


def test_every_field_of_the_notes_is_needed(saved, refused):
    def fields(value, *where):
        if isinstance(value, dict):
            for name in value:
                yield *where, name
                yield from fields(value[name], *where, name)

    free = {("arguments", name) for name in ("method", "trunk", "input_prior", "random_state", "callbacks")}
    for where in fields(saved.notes):
        if where not in free and where[:2] != ("arguments", "input_scale"):
            refused(edited(saved, *where, drop=True))


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000 + b"]" * 100_000,
        b'{\\"a\\":' * 100_000,
        b"[" * 17 + b"]" * 17,
        b"1" * 5_000,
        b"[0" + b",0" * 1_500_000 + b"]",
    ],
    ids=["lists", "dictionaries", "a few", "digits", "many"],
)
def test_json_that_is_deep_or_long_is_refused(saved, refused, text):
    refused(edited(saved, "rows", text=text))


def test_names_that_multiply_are_refused(saved, refused):
    columns = copy.deepcopy(saved.notes["encoder"]["columns"])
    columns[2] |= {"name": "c" * 1_000_000, "values": [f"{i}" for i in range(10_000)]}
    assert "matrix columns" in refused(edited(saved, "encoder", "columns", to=columns))


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("calibration.noise_scale", np.float32([1, -1])),
        ("calibration.uncertainty_scale", np.float32([1, 0])),
        ("calibration.share", np.float32([0.5, 0.7])),
        ("calibration.share", np.float32([-0.5, 1.5])),
        ("calibration.noise_scale", np.float32([1e30, 1])),
        ("calibration.noise_scale", np.ones(1, np.float32)),
        ("calibration.share", np.ones((2, 2), np.float32)),
        ("calibration.share", np.full(2, 0.5)),
        ("shift", np.zeros(2)),
        ("shift", np.zeros(())),
        ("shift", np.array([np.nan])),
        ("shift", np.array([1e300])),
        ("shift", np.zeros(1, np.float32)),
        ("scale", np.zeros(1)),
        ("scale", -np.ones(1)),
        ("scale", np.full(1, 1e300)),
        ("scale", np.ones((1, 1))),
        ("training_sample", np.zeros((5, 2), np.float32)),
        ("training_sample", np.zeros(5, np.float32)),
        ("conformal", np.zeros((5, 2))),
        ("conformal", np.zeros(5)),
        ("conformal", np.zeros((5, 1), np.float32)),
        ("conformal", np.zeros((5_000, 1))),
        ("conformal", np.array([[0.0], [-1.0]])),
        ("conformal", np.array([[2.0], [1.0]])),
        ("conformal", np.array([[np.inf]])),
        ("unheard", np.zeros(5, np.float32)),
        ("weights.unheard", np.zeros(5, np.float32)),
    ],
    ids=str,
)
def test_arrays_that_mean_nothing_are_refused(saved, refused, name, array):
    refused(packed(saved.notes, {**saved.arrays, name: array}))


def test_bins_have_a_width(saved, refused):
    (name,) = (name for name in saved.arrays if name.startswith("weights") and name.endswith("width"))
    assert "width" in refused(packed(saved.notes, {**saved.arrays, name: 0 * saved.arrays[name]}))


def test_a_header_that_is_not_the_files_is_refused(saved, refused):
    size = len(saved.content)
    for length in (0, 7, size - 7, size, 2**62, 2**64 - 1):
        refused(struct.pack("<Q", length) + saved.content[8:])
    refused(struct.pack("<Q", 10**8) + b"[" * 10**8)
    refused(saved.content + b"\0")
    for field, value in {"shape": [2**62, 2**62], "data_offsets": [0, 2**62], "dtype": "I64"}.items():
        refused(with_header(saved.content, lambda header, f=field, v=value: header["scale"].update({f: v})))
    refused(with_header(saved.content, lambda header: header.update(more=header["scale"])))
    refused(with_header(saved.content, lambda header: header["__metadata__"].pop("sha256")))


def test_files_that_never_end_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(UserError, match="is not a file"):
            NCPRegressor.load(path)


def test_the_format_before_is_told_apart(saved, refused):
    notes = json.dumps({**saved.notes, "format": FORMAT - 1})
    content = with_header(saved.content, lambda header: header.update(__metadata__={"ncprior": notes}))
    assert f"has format {FORMAT - 1}, and this version reads {FORMAT}; update ncprior or fit again" in refused(content)


def test_what_could_not_be_loaded_is_not_saved(saved, tmp_path):
    model = copy.deepcopy(saved.model)
    model.calibration_.noise_scale[0] = np.nan
    with pytest.raises(UserError, match=r"not saved: .*calibration"):
        model.save(tmp_path / "model.ncp")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["predict", "suggest"])
def test_commands_say_it_in_one_line(saved, tmp_path, command, monkeypatch, capsys):
    path, table = tmp_path / "bad.ncp", tmp_path / "new.csv"
    path.write_bytes(edited(saved, "settings", "hidden", to=[200_000, 200_000]))
    table.write_text("size,age\n1,2\n")
    monkeypatch.setattr(sys, "argv", ["ncprior", command, str(path), str(table)])
    with pytest.raises(SystemExit) as stop:
        main()
    said = capsys.readouterr()
    assert stop.value.code
    assert said.err.startswith(f"ncprior: {path}: ")
    assert said.err.count("\n") == 1


ODD = [
    None,
    True,
    False,
    -1,
    0,
    1,
    2,
    3,
    7,
    1e300,
    -1e300,
    1e-300,
    0.5,
    float("nan"),
    float("inf"),
    2**31,
    2**63,
    10**400,
]
ODD += ["many", "", "\ud800", "\x1b[31m", "x" * 100_000, [], {}, [[]], [None], [1] * 3_000, [1e9] * 100, {"a": 1}]
TEXTS = [
    b"[" * 9_000 + b"]" * 9_000,
    b'{\\"a\\":' * 5_000,
    b"9" * 6_000,
    b"[0" + b",[]" * 50_000 + b"]",
    b"1e999",
    b"]",
]


class Mutations:
    """Damaged files of one model; ``changed`` says whether their predictions may differ from the model's."""

    def __init__(self, saved, seed):
        self.saved, self.random = saved, random.Random(seed)

    def next(self):
        kind = self.random.choice(["flip", "cut", "block", "notes", "notes", "notes", "header", "array"])
        return kind, getattr(self, kind)(), kind in ("notes", "array")

    def flip(self):
        content = bytearray(self.saved.content)
        for _ in range(self.random.choice([1, 1, 2, 8])):
            content[self.random.randrange(len(content))] ^= 1 << self.random.randrange(8)
        return bytes(content)

    def cut(self):
        content, place = self.saved.content, self.random.randrange(len(self.saved.content))
        return self.random.choice([content[:place], content[place:], content + content[:place]])

    def block(self):
        content, size = bytearray(self.saved.content), self.random.choice([2, 8, 64, 500])
        place = self.random.randrange(len(content) - size)
        content[place : place + size] = self.random.choice([bytes(size), b"\xff" * size, self.random.randbytes(size)])
        return bytes(content)

    def notes(self):
        notes, text = copy.deepcopy(self.saved.notes), None
        for _ in range(self.random.choice([1, 1, 1, 2])):
            place, key = self.random.choice(list(self.places(notes)))
            what = self.random.choice(["odd", "odd", "text", "drop", "add", "more", "scaled"])
            value = place[key]
            if what == "odd":
                place[key] = copy.deepcopy(self.random.choice(ODD))
            elif what == "text":
                place[key], text = "TEXT", self.random.choice(TEXTS)
            elif what == "drop":
                del place[key]
            elif what == "add" and isinstance(value, dict):
                value[self.random.choice(["more", "", "name"])] = self.random.choice(ODD)
            elif what == "more" and isinstance(value, list):
                place[key] = value * self.random.choice([2, 100])
            elif isinstance(value, int | float) and not isinstance(value, bool):
                place[key] = value * self.random.choice([-1, 2, 1e6, 1e200])
        return packed(notes, self.saved.arrays, text)

    def places(self, value):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            if isinstance(value[key], dict | list):
                yield from self.places(value[key])

    def header(self):
        def change(header):
            name = self.random.choice(list(header))
            if name == "__metadata__" or self.random.random() < 0.3:
                header[self.random.choice(["other", *header])] = header.pop(name)
            else:
                field = self.random.choice(["shape", "data_offsets", "dtype"])
                odd = [[2**62], [0, 2**62], [-1, 4], [1.5], "F64", "F32", "I8", [2, 2], [0] * 70, *ODD]
                header[name][field] = self.random.choice(odd)

        return with_header(self.saved.content, change)

    @np.errstate(over="ignore")
    def array(self):
        arrays = dict(self.saved.arrays)
        name = self.random.choice(
            [*arrays, *["calibration.noise_scale", "calibration.share", "shift", "scale", "training_sample"] * 4]
        )
        array = arrays[name].copy()
        values = [np.nan, np.inf, -np.inf, 0, -1, 1e-30, 1e30, 1e300, 2]
        what = self.random.choice(["value", "value", "shape", "type", "drop"])
        if what == "value" and array.size:
            array.reshape(-1)[self.random.randrange(array.size)] = np.array(self.random.choice(values), array.dtype)
        arrays[name] = array
        if what == "shape":
            arrays[name] = self.random.choice([array[..., None], array[:0], array[:1], np.concatenate([array, array])])
        elif what == "type":
            arrays[name] = array.astype(self.random.choice([np.float16, np.float64, np.float32]))
        elif what == "drop":
            del arrays[name]
        return packed(self.saved.notes, arrays)


MUTATIONS = int(os.environ.get("NCPRIOR_MUTATIONS", "400"))
"""Damaged files that are loaded; set the variable to 10000 to try more."""

PREDICTED = min(MUTATIONS // 100, 20)
"""Networks with other settings, at most, that are compiled for a prediction."""


def memory(name):
    """What Linux says about the memory of this process, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured as Linux does")
@pytest.mark.parametrize(
    "name", ["weights.heads['noise'].linear.kernel", "weights.trunk.features.whitener", "contrast.heads['mean'].rho"]
)
def test_weights_whose_predictions_would_not_be_finite(saved, refused, name):
    arrays = {**saved.arrays, name: np.full_like(saved.arrays[name], 1e30)}
    assert "has values above 1e+" in refused(packed(saved.notes, arrays))


def test_a_file_with_very_many_arrays_is_refused_at_once(saved, refused):
    def change(header):
        header |= {f"w{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(20_000)}

    assert "arrays, where 10,000 are the most" in refused(with_header(saved.content, change))


def test_no_damaged_file_loads_wrongly(saved, tmp_path):
    bases = [saved]
    if MUTATIONS > 1_000:
        bases.append(Saved(tmp_path / "two.ncp", "odc+ncp", TARGETS, hidden=(3,), input_scale={"size": 1.0}))
        bases.append(Saved(tmp_path / "deep.ncp", "deep+ncp", epochs=None, random_state=1))
    path = tmp_path / "damaged.ncp"
    counts, slowest, specs = {}, (0.0, ""), {base.model.fitted_.spec for base in bases}
    known = len(specs)
    largest, plain = (0.0, ""), 0.0
    for base in bases:
        mutations = Mutations(base, 0)
        Engine.clear_cache()  # as for a file with another network
        started = time.process_time()
        NCPRegressor.load(base.path)
        plain = max(plain, time.process_time() - started)
        for number in range(MUTATIONS // len(bases)):
            kind, content, changed = mutations.next()
            path.write_bytes(content)
            Path("/proc/self/clear_refs").write_text("5")  # the peak is what it is now
            before, started = memory("VmRSS"), time.process_time()
            try:
                model, said = NCPRegressor.load(path), ""
            except UserError as error:
                model, said = None, str(error)
            except Exception as error:
                raise AssertionError(f"{base.path.name}, mutation {number} ({kind})") from error
            assert said.isprintable(), said
            where = f"{base.path.name} {number} {kind}"
            slowest = max(slowest, (time.process_time() - started, where))
            largest = max(largest, (memory("VmHWM") - before, where))
            counts[kind, model is not None] = counts.get((kind, model is not None), 0) + 1
            if model is None or (model.fitted_.spec not in specs and len(specs) >= known + PREDICTED):
                continue
            specs.add(model.fitted_.spec)
            prediction = model.predict(NEW, return_std=True)
            assert np.isfinite(prediction).all(), (base.path, number)
            if not changed:
                np.testing.assert_array_equal(prediction, base.prediction)
    print(f"\n{MUTATIONS} files; slowest, s: {slowest}; largest, MB: {largest}; loaded or not: {counts}; {plain=}")
    assert slowest[0] < max(1, 25 * plain)  # the second where the machine is busy or slow
    assert largest[0] < 200
