"""Models as files: they come back the same, and a file that is something else says so."""

import dataclasses
import json
import struct
from fractions import Fraction

import equinox as eqx
import numpy as np
import pyarrow as pa
import pytest

from ncprior import NCPRegressor
from ncprior.core.input_priors import Gaussian
from ncprior.core.methods import methods
from ncprior.errors import UserError
from ncprior.tables.model_file import FORMAT
from ncprior.tables.preset import TABLES

SMALL = {"members": 2, "hidden": (4,), "epochs": 2, "random_state": 0}
BARE = {name: value for name, value in SMALL.items() if name != "hidden"}  # for networks of one's own
TABLE = pa.table({"size": np.linspace(-1, 1, 40), "colour": ["red", "blue"] * 20})
TARGETS = np.linspace(5, 9, 40)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model.ncp"
    model = NCPRegressor(input_scale={"size": 1.0}, **SMALL).fit(TABLE, pa.table({"price": TARGETS}))
    model.save(path)
    return model, path


def test_everything_comes_back(saved):
    model, path = saved
    again = NCPRegressor.load(path)
    np.testing.assert_array_equal(again.predict(TABLE), model.predict(TABLE))
    assert again.get_params() == {**model.get_params(), "random_state": 0}
    assert list(again.feature_names_in_) == ["size", "colour"]
    assert again.target_names_ == ["price"]
    assert (again.steps_, again.validation_, again.encoder_) == (model.steps_, None, model.encoder_)
    np.testing.assert_array_equal(*(one.suggest(TABLE, n=4, random_state=0) for one in (again, model)))
    again.partial_fit(TABLE, TARGETS[:, None])


def test_arguments_of_any_kind_come_back(tmp_path):
    odd = {"hidden": range(3, 5), "gamma": Fraction(21, 2), "verbose": 0, "flip": np.float32(0.25)}
    odd |= {"random_state": np.random.RandomState(0), "callbacks": [print], "settings": {"hidden": [3, 4], "clip": 1}}
    NCPRegressor("det+ncp", **{**SMALL, **odd}).fit(TABLE, TARGETS).save(tmp_path / "model.ncp")
    again = NCPRegressor.load(tmp_path / "model.ncp")
    assert (again.hidden, again.gamma, again.flip, again.verbose) == ((3, 4), 10.5, 0.25, 0)
    assert (again.random_state, again.callbacks, again.settings) == (None, (), {"hidden": (3, 4), "clip": 1})
    again.partial_fit(TABLE, TARGETS)


def test_the_file_is_safetensors_with_json(saved):
    _, path = saved
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    notes = json.loads(header["__metadata__"]["ncprior"])
    assert notes["format"] == FORMAT
    assert set(notes["versions"]) >= {"ncprior", "jax"}
    assert notes["settings"]["gamma"] == 10
    assert list(path.parent.iterdir()) == [path]  # no draft is left behind


def test_code_is_not_in_the_file(tmp_path):
    own = methods(dataclasses.replace(TABLES, hidden=(4,)))["bbb+ncp"]
    model = NCPRegressor(own, **BARE).fit(TABLE, TARGETS)
    model.save(tmp_path / "own.ncp")
    with pytest.raises(UserError, match="give it as method="):
        NCPRegressor.load(tmp_path / "own.ncp")
    again = NCPRegressor.load(tmp_path / "own.ncp", method=own)
    np.testing.assert_array_equal(again.predict(TABLE), model.predict(TABLE))

    model = NCPRegressor(input_prior=Gaussian(0.5), **{**SMALL, "members": np.int64(2)}).fit(TABLE, TARGETS)
    model.save(tmp_path / "noise.ncp")
    with pytest.raises(UserError, match="give it as input_prior="):
        NCPRegressor.load(tmp_path / "noise.ncp")
    again = NCPRegressor.load(tmp_path / "noise.ncp", input_prior=model.input_prior)
    assert again.members == 2
    assert again.partial_fit(TABLE, TARGETS).input_prior is model.input_prior

    def trunk(inputs, *, key):
        return eqx.nn.MLP(inputs, 3, 4, 1, key=key)

    model = NCPRegressor(trunk=trunk, **BARE).fit(TABLE, TARGETS)
    model.save(tmp_path / "trunk.ncp")
    with pytest.raises(UserError, match="give it as trunk="):
        NCPRegressor.load(tmp_path / "trunk.ncp")
    again = NCPRegressor.load(tmp_path / "trunk.ncp", trunk=trunk)
    np.testing.assert_array_equal(again.predict(TABLE), model.predict(TABLE))


def damage(content, kind):
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    notes = json.loads(header["__metadata__"]["ncprior"])
    body = content[8 + size :]
    if kind == "empty":
        return b""
    if kind == "text":
        return b"a,b\n1,2\n"
    if kind == "cut":
        return content[:-100]
    if kind == "no notes":
        del header["__metadata__"]
    if kind == "format":
        notes["format"] = 99
    if kind == "a setting":
        notes["settings"]["gamma"] = "high"
    if kind == "no encoder":
        del notes["encoder"]
    if kind == "not finite":
        body = b"\xff" * len(body)
    if kind == "an array":
        header["calibration_"] = header.pop("calibration.share")
    if "__metadata__" in header:
        header["__metadata__"]["ncprior"] = json.dumps(notes) if kind != "no json" else "{"
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


@pytest.mark.parametrize(
    "kind",
    ["empty", "text", "cut", "no notes", "format", "a setting", "no encoder", "not finite", "an array", "no json"],
)
def test_damaged_and_foreign_files_are_refused(saved, tmp_path, kind):
    path = tmp_path / "bad.ncp"
    path.write_bytes(damage(saved[1].read_bytes(), kind))
    with pytest.raises(UserError) as error:
        NCPRegressor.load(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_places_that_cannot_be_written_or_read(saved, tmp_path):
    with pytest.raises(UserError, match="cannot be written"):
        saved[0].save(tmp_path / "nowhere" / "model.ncp")
    with pytest.raises(UserError, match="no such file"):
        NCPRegressor.load(tmp_path / "none.ncp")
    with pytest.raises(UserError, match=str(tmp_path)):
        NCPRegressor.load(tmp_path)


def test_a_full_disk_leaves_the_old_model(saved, tmp_path, monkeypatch):
    path = tmp_path / "model.ncp"
    path.write_bytes(b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(UserError, match="No space left"):
        saved[0].save(path)
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_arguments_that_were_changed_after_training_are_no_matter_of_the_file(tmp_path):
    inputs = np.arange(12.0)[:, None]
    model = NCPRegressor("det", members=2, epochs=1, hidden=(4,), random_state=0).fit(inputs, inputs[:, 0])
    model.set_params(gamma=1.0, members=5).save(tmp_path / "m.ncp")  # of which the one has no effect with det
    again = NCPRegressor.load(tmp_path / "m.ncp").set_params(gamma=None)
    with pytest.raises(UserError, match="members is 5 and was 2 at first"):
        again.partial_fit(inputs, inputs[:, 0])
    np.testing.assert_array_equal(again.predict(inputs), model.predict(inputs))
