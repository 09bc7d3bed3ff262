"""A model as one file: safetensors with JSON in its header. Nothing in it runs when it is loaded.

A file may come from a stranger or a broken disk. So the header is read and compared with the size of the file, then
the notes with their schema, then the shapes of the arrays with those of the network that the notes describe; only then
are arrays read and their checksum compared. Nothing is compiled, and no network is made.
"""

import dataclasses
import io
import json
import numbers
import os
import stat
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ncprior.errors import UserError
from ncprior.files import explained, written
from ncprior.schema import conform
from ncprior.tables import model_schema
from ncprior.tables.calibration import Calibration
from ncprior.tables.model_file import FORMAT, OtherFileError, read_arrays, read_header, to_bytes
from ncprior.tables.options import settings_of
from ncprior.tables.programs import Spec, make_method

_OWN = ("method", "trunk", "input_prior")
"""What may be code of the user's own, which is not in the file."""


def save(model: Any, path: Path) -> None:
    """Writes the model to the file, whole or not at all."""
    leaves = jax.tree_util.tree_leaves_with_path(model.weights_)
    arrays = {f"weights{jax.tree_util.keystr(where)}": np.ascontiguousarray(leaf) for where, leaf in leaves}
    arrays |= {f"calibration.{name}": array for name, array in model.calibration_._asdict().items()}
    arrays |= {"shift": model.target_shift_, "scale": model.target_scale_}
    arrays["known"] = np.ascontiguousarray(model._known_)
    spec: Spec = model._spec_
    arguments = {name: value for name, value in model.get_params(deep=False).items() if _is_plain(value)}
    names = getattr(model, "feature_names_in_", None)
    notes = {
        "format": FORMAT,
        "versions": {name: version(name) for name in ("ncprior", "jax", "equinox", "numpy")},
        "arguments": arguments,
        "settings": dataclasses.asdict(spec.settings),
        "method": spec.method if isinstance(spec.method, str) else None,
        "own": [name for name in _OWN if not isinstance(getattr(spec, name), str | None)],
        "encoder": model.encoder_.to_json(),
        "outputs": spec.outputs,
        "bins": spec.bins,
        "flat": model._flat_,
        "steps": model.steps_,
        "members": model._members_,
        "rows": model.n_rows_,
        "validation": model.validation_,
        "fit_seconds": model.fit_seconds_,
        "target_names": model.target_names_,
        "feature_names": None if names is None else [str(name) for name in names],
        "features": model.n_features_in_,
    }
    try:
        content = to_bytes(_plain(notes), arrays)
        _restore(type(model), io.BytesIO(content), len(content), {name: getattr(spec, name) for name in _OWN})
    except UserError as error:
        raise UserError(f"{path}: the model could not be loaded again, so it is not saved: {error}") from error
    with written(path) as draft, explained(path):
        draft.write_bytes(content)


def load(cls: type, path: Path, own: dict[str, Any]) -> Any:
    """The model in the file, with what is the user's own: a method, a trunk, an input prior."""
    try:
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):  # others may never end, or never begin
            raise OtherFileError("is not a file; give one that `save` or `ncprior fit` wrote")
        with path.open("rb") as stream:
            return _restore(cls, stream, os.fstat(stream.fileno()).st_size, own)
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file; check its name and folder") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}); check the file") from error
    except OtherFileError as error:
        raise UserError(f"{path}: {error}") from error
    except UserError as error:
        raise UserError(f"{path}: not an ncprior model, or a damaged one ({error}); save it anew") from error


def _restore(cls: Any, stream: BinaryIO, size: int, own: dict[str, Any]) -> Any:
    """The model in a stream of so many bytes."""
    header = read_header(stream, size)
    notes: model_schema.Notes = conform(header.notes, model_schema.Notes, "notes")
    for name in notes.own:
        if own[name] is None:
            raise OtherFileError(f"was trained with a {name} of its user's own; give it as {name}=...")
    given: dict[str, Any] = {name: own[name] for name in notes.own}
    model = cls(**model_schema.read_arguments(header.notes["arguments"], cls._get_param_names()))
    model.set_params(**given)
    settings_of(model, notes.rows, effects=False)  # raises where arguments have no meaning
    spec = Spec(
        notes.settings,
        given.get("method") or str(notes.method),
        given.get("trunk"),
        given.get("input_prior"),
        notes.encoder.groups,
        notes.encoder.width,
        notes.outputs,
        notes.bins,
    )
    model_schema.check_shapes(notes, spec, header.shapes)
    outline = _outline(spec, given)
    leaves, structure = jax.tree_util.tree_flatten_with_path(outline)
    wanted = {f"weights{jax.tree_util.keystr(where)}": leaf for where, leaf in leaves}
    try:
        model_schema.check_weights(wanted, len(notes.steps), header.shapes)
    except UserError as error:
        if given:
            raise OtherFileError(f"was trained with another {' or '.join(given)} than given: {error}") from error
        raise
    arrays = read_arrays(stream, header)
    model_schema.check_values(arrays)
    model._spec_, model.encoder_ = spec, notes.encoder
    model.weights_ = jax.tree_util.tree_unflatten(structure, [arrays[name] for name in wanted])
    model.calibration_ = Calibration(*(arrays[f"calibration.{name}"] for name in Calibration._fields))
    model._known_ = arrays["known"]
    model.target_shift_, model.target_scale_ = arrays["shift"], arrays["scale"]
    model._flat_, model.steps_, model.n_rows_ = notes.flat, notes.steps, notes.rows
    model._members_ = notes.members
    model.validation_, model.fit_seconds_ = notes.validation, notes.fit_seconds
    model.target_names_, model.n_features_in_ = notes.target_names, notes.features
    if notes.feature_names is not None:
        model.feature_names_in_ = np.array(notes.feature_names, dtype=object)
    return model


def _outline(spec: Spec, given: dict[str, Any]) -> Any:
    """The shapes of a network's weights, in its structure; no array is made."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    try:
        shapes = eqx.filter_eval_shape(make_method(spec).init, spec.width, spec.outputs, key=key)
    except Exception as error:  # of any kind: it may be that of the user's own code
        why = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        if given:
            raise OtherFileError(f"the {' or '.join(given)} given makes no network ({why})") from error
        raise UserError(f"its settings make no network ({why})") from error

    def is_weight(leaf: Any) -> bool:
        return isinstance(leaf, jax.ShapeDtypeStruct) and jnp.issubdtype(leaf.dtype, jnp.inexact)

    return eqx.filter(shapes, is_weight)


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(_plain(value))
    except TypeError:
        return False
    return True


def _plain(value: Any) -> Any:
    """Numbers and sequences of any kind as those of JSON; what is neither is not for a file."""
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, np.generic | np.ndarray | jax.Array):
        return np.asarray(value).tolist()
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    raise TypeError(f"{type(value).__name__} is not a plain value")
