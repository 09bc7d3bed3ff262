"""A model as one file: safetensors with JSON in its header. Nothing in it runs when it is loaded."""

import dataclasses
import json
import struct
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from ncprior.data.encoding import Encoder
from ncprior.engine import Engine, Spec
from ncprior.errors import UserError
from ncprior.files import told, written
from ncprior.presets import Settings

FORMAT = 3
"""Version of the format; a file of another one is refused."""

_KEY = "ncprior"


def save(model: Any, path: Path) -> None:
    """Writes the model to the file, whole or not at all."""
    leaves = jax.tree_util.tree_leaves_with_path(model.weights_)
    arrays = {f"weights{jax.tree_util.keystr(where)}": np.ascontiguousarray(leaf) for where, leaf in leaves}
    arrays |= {"calibration": model.calibration_, "shift": model.target_shift_, "scale": model.target_scale_}
    arrays["known"] = np.ascontiguousarray(model._known_)
    spec: Spec = model._spec_
    arguments = {name: _plain(value) for name, value in model.get_params(deep=False).items() if _is_plain(value)}
    names = getattr(model, "feature_names_in_", None)
    notes = {
        "format": FORMAT,
        "versions": {name: version(name) for name in ("ncprior", "jax", "equinox", "numpy")},
        "arguments": arguments,
        "settings": dataclasses.asdict(spec.settings),
        "method": spec.method if isinstance(spec.method, str) else None,
        "own": [name for name in ("method", "trunk", "input_prior") if not isinstance(getattr(spec, name), str | None)],
        "encoder": model.encoder_.to_json(),
        "outputs": spec.outputs,
        "bins": spec.bins,
        "flat": model._flat_,
        "steps": model.steps_,
        "rows": model.n_rows_,
        "validation": model.validation_,
        "fit_seconds": model.fit_seconds_,
        "target_names": model.target_names_,
        "feature_names": None if names is None else [str(name) for name in names],
        "features": model.n_features_in_,
    }
    content = to_bytes(arrays, {_KEY: json.dumps(notes, default=_plain)})
    with written(path) as draft, told(path):
        draft.write_bytes(content)


def load(cls: type, path: Path, own: dict[str, Any]) -> Any:
    """The model in the file, with what is the user's own: a method, a trunk, an input prior."""
    notes, arrays = _read(path)
    try:
        for name in notes["own"]:
            if own[name] is None:
                raise UserError(f"{path}: was trained with a {name} of its user's own; give it as {name}=...")
        given = {name: own[name] for name in notes["own"]}
        settings = Settings(**{name: _tuple(value) for name, value in notes["settings"].items()})
        encoder = Encoder.from_json(notes["encoder"])
        chosen = given.get("method", notes["method"])
        size = (encoder.width, notes["outputs"])
        code = (chosen, given.get("trunk"), given.get("input_prior"))
        spec = Spec(settings, *code, encoder.groups, *size, notes["bins"])
        engine = Engine.of(spec)
        shapes = eqx.filter_eval_shape(engine.ensemble.trainer.method.init, *size, key=jax.random.key(0))
        weights = _fill(shapes, arrays)
        model = cls(**{name: _tuple(value) for name, value in notes["arguments"].items()})
        model.set_params(**given)
        model._spec_, model.encoder_, model.weights_ = spec, encoder, weights
        model.calibration_, model._known_ = arrays["calibration"], arrays["known"]
        model.target_shift_, model.target_scale_ = arrays["shift"], arrays["scale"]
        model._flat_, model.steps_, model.n_rows_ = notes["flat"], tuple(notes["steps"]), notes["rows"]
        model.validation_, model.fit_seconds_ = notes["validation"], notes["fit_seconds"]
        model.target_names_, model.n_features_in_ = notes["target_names"], notes["features"]
        if notes["feature_names"] is not None:
            model.feature_names_in_ = np.array(notes["feature_names"], dtype=object)
    except UserError as error:
        raise error if str(path) in str(error) else UserError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise UserError(f"{path}: a damaged ncprior model ({error}); save it anew") from error
    return model


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The JSON and the arrays of a file that is a model of a version that we know."""
    try:
        with safe_open(path, framework="numpy") as content:
            metadata = content.metadata() or {}
            if _KEY not in metadata:
                raise UserError(f"{path}: is not an ncprior model; give a file that `save` or `ncprior fit` wrote")
            notes = json.loads(metadata[_KEY])
            arrays = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file; check its name and folder") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}); check the file") from error
    except (SafetensorError, json.JSONDecodeError, UnicodeDecodeError, struct.error) as error:
        raise UserError(f"{path}: not an ncprior model, or damaged ({error}); save it anew") from error
    found = notes.get("format") if isinstance(notes, dict) else None
    if found != FORMAT:
        raise UserError(f"{path}: has format {found}, and this version reads {FORMAT}; update ncprior or fit again")
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise UserError(f"{path}: damaged, {name} has values that are not finite; save it anew")
    return notes, arrays


def _fill(shapes: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The arrays in the structure of the network's weights, members first."""

    def is_weight(leaf: Any) -> bool:
        return isinstance(leaf, jax.ShapeDtypeStruct) and jnp.issubdtype(leaf.dtype, jnp.inexact)

    wanted = eqx.filter(shapes, is_weight)
    leaves, structure = jax.tree_util.tree_flatten_with_path(wanted)
    members = len(arrays["calibration"])
    if arrays["calibration"].shape != (members, 3):
        raise ValueError(f"calibration has shape {arrays['calibration'].shape}")
    found = []
    for where, leaf in leaves:
        array = arrays[f"weights{jax.tree_util.keystr(where)}"]
        if array.shape != (members, *leaf.shape) or array.dtype != leaf.dtype:
            raise ValueError(f"weights{jax.tree_util.keystr(where)} have shape {array.shape}")
        found.append(array)
    return jax.tree_util.tree_unflatten(structure, found)


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(value, default=_plain)
    except TypeError:
        return False
    return True


def _plain(value: Any) -> Any:
    """Numbers of NumPy as those of Python; what is neither is not for a file."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, str | int | float | None):
        return value
    raise TypeError(f"{type(value).__name__} is not a plain value")


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
