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
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ncprior.core.networks import Network
from ncprior.errors import UserError
from ncprior.files import explained, written
from ncprior.schema import conform
from ncprior.tables import model_schema
from ncprior.tables.calibration import Calibration
from ncprior.tables.conformal import Conformal
from ncprior.tables.contrast import NETWORKS
from ncprior.tables.familiarity import Familiarity
from ncprior.tables.fitted import Contrast, Fitted
from ncprior.tables.model_file import FORMAT, OtherFileError, read_arrays, read_header, to_bytes
from ncprior.tables.options import Arguments, FitOptions
from ncprior.tables.programs import CONTRAST, Spec, make_method

_OWN = ("method", "trunk", "input_prior")
"""Parameters that may be code of the user's own, which is not in the file."""


class SavedModel(NamedTuple):
    """What a model file holds: a trained ensemble, and the estimator that it belongs to."""

    fitted: Fitted
    parameters: Arguments  # of the estimator; in a file, those that are plain values
    feature_names: list[str] | None
    features: int  # columns that the estimator was given


OptionsOf = Callable[[Arguments], FitOptions]
"""The options of an estimator with these parameters."""


def save(path: Path, model: SavedModel, options_of: OptionsOf) -> None:
    """Writes the model to the file, whole or not at all.

    Raises:
        UserError: If it could not be loaded again, or the file cannot be written.
    """
    fitted, spec = model.fitted, model.fitted.spec
    arrays = _named(fitted.weights, "weights")
    if fitted.contrast is not None:
        arrays |= _named(fitted.contrast.weights, "contrast")
        arrays |= {} if fitted.contrast.with_unlabelled is None else _named(fitted.contrast.with_unlabelled, "asked")
    arrays |= {f"calibration.{name}": array for name, array in fitted.calibration._asdict().items()}
    arrays |= {"shift": fitted.target_shift, "scale": fitted.target_scale}
    arrays |= {
        "training_sample": np.ascontiguousarray(fitted.training_sample),
        "familiarity": fitted.familiarity.scores,
        "conformal": fitted.conformal.scores.reshape(-1, spec.outputs),
    }
    notes = {
        "format": FORMAT,
        "versions": {name: version(name) for name in ("ncprior", "jax", "equinox", "numpy")},
        "arguments": {name: value for name, value in model.parameters.items() if _is_plain(value)},
        "settings": dataclasses.asdict(spec.settings),
        "contrast": None if fitted.contrast is None else dataclasses.asdict(fitted.contrast.spec.settings),
        "method": spec.method if isinstance(spec.method, str) else None,
        "own": [name for name in _OWN if not isinstance(getattr(spec, name), str | None)],
        "encoder": fitted.encoder.to_json(),
        "outputs": spec.outputs,
        "bins": spec.bins,
        "flat": fitted.flat,
        "steps": fitted.steps,
        "members": fitted.members,
        "rows": fitted.rows,
        "validation": fitted.validation,
        "unlabelled": fitted.unlabelled,
        "asked_weight": 0.0 if fitted.contrast is None else fitted.contrast.unlabelled_weight,
        "refitted": fitted.conformal.refitted,
        "fit_seconds": fitted.seconds,
        "target_names": fitted.target_names,
        "feature_names": model.feature_names,
        "features": model.features,
    }
    own = {name: getattr(spec, name) for name in _OWN}
    try:
        content = to_bytes(_plain(notes), arrays)
        _restore(io.BytesIO(content), len(content), own, list(model.parameters), options_of)
    except UserError as error:
        raise UserError(f"{path}: the model could not be loaded again, so it is not saved: {error}") from error
    with written(path) as draft, explained(path):
        draft.write_bytes(content)


def load(path: Path, own: Mapping[str, object], names: Sequence[str], options_of: OptionsOf) -> SavedModel:
    """The model in the file.

    Args:
        path: The file.
        own: The method, trunk and input prior that are the user's own, or None.
        names: The parameters of the estimator.
        options_of: Checks these.

    Raises:
        UserError: If there is no such file, or it is not a model, or a damaged one.
    """
    try:
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):  # others may never end, or never begin
            raise OtherFileError("is not a file; give one that `save` or `ncprior fit` wrote")
        with path.open("rb") as stream:
            return _restore(stream, os.fstat(stream.fileno()).st_size, own, names, options_of)
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file; check its name and folder") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}); check the file") from error
    except OtherFileError as error:
        raise UserError(f"{path}: {error}") from error
    except UserError as error:
        raise UserError(f"{path}: not an ncprior model, or a damaged one ({error}); save it anew") from error


def _restore(
    stream: BinaryIO, size: int, own: Mapping[str, object], names: Sequence[str], options_of: OptionsOf
) -> SavedModel:
    """The model in a stream of so many bytes."""
    header = read_header(stream, size)
    notes: model_schema.Notes = conform(header.notes, model_schema.Notes, "notes")
    for name in notes.own:
        if own[name] is None:
            raise OtherFileError(f"was trained with a {name} of its user's own; give it as {name}=...")
    given: Arguments = {name: own[name] for name in notes.own}
    parameters = model_schema.read_arguments(notes.arguments, names) | given
    options_of(parameters).settings_for(notes.rows)  # raises where arguments have no meaning
    spec = Spec(
        settings=notes.settings,
        method=given.get("method") or str(notes.method),
        trunk=given.get("trunk"),
        input_prior=given.get("input_prior"),
        groups=notes.encoder.groups,
        width=notes.encoder.width,
        outputs=notes.outputs,
        bins=notes.bins,
    )
    model_schema.check_shapes(notes, spec, header.shapes)
    outline = _outline(spec, given)
    networks = [("weights", outline, len(notes.steps))]
    contrast_spec = None
    if notes.contrast is not None:
        contrast_spec = spec._replace(settings=notes.contrast, method=CONTRAST, trunk=None, outputs=1, bins=0)
        kinds = ("contrast", "asked") if notes.asked_weight else ("contrast",)
        networks += [(kind, _outline(contrast_spec, given), NETWORKS) for kind in kinds]
    try:
        for prefix, one, number in networks:
            model_schema.check_weights(_named(one, prefix), prefix, number, header.shapes)
    except UserError as error:
        if given:
            raise OtherFileError(f"was trained with another {' or '.join(given)} than given: {error}") from error
        raise
    arrays = read_arrays(stream, header)
    model_schema.check_values(arrays)
    weights = {name: _filled(one, name, arrays) for name, one, _ in networks}
    contrast = None
    if contrast_spec is not None:
        contrast = Contrast(contrast_spec, weights["contrast"], weights.get("asked"), notes.asked_weight)
    fitted = Fitted(
        spec=spec,
        encoder=notes.encoder,
        weights=weights["weights"],
        calibration=Calibration(*(arrays[f"calibration.{name}"] for name in Calibration._fields)),
        target_shift=arrays["shift"],
        target_scale=arrays["scale"],
        steps=notes.steps,
        validation=notes.validation,
        rows=notes.rows,
        training_sample=arrays["training_sample"],
        members=notes.members,
        flat=notes.flat,
        target_names=notes.target_names,
        familiarity=Familiarity.of(arrays["familiarity"]),
        conformal=Conformal(arrays["conformal"], notes.refitted),
        contrast=contrast,
        unlabelled=notes.unlabelled,
        seconds=notes.fit_seconds,
    )
    return SavedModel(fitted, parameters, notes.feature_names, notes.features)


def _named(weights: Network, prefix: str) -> dict[str, Any]:
    """The arrays of networks, or their shapes, by their names in a file."""
    leaves = jax.tree_util.tree_leaves_with_path(weights)
    return {
        f"{prefix}{jax.tree_util.keystr(where)}": np.ascontiguousarray(leaf) if isinstance(leaf, np.ndarray) else leaf
        for where, leaf in leaves
    }


def _filled(outline: Network, prefix: str, arrays: Mapping[str, np.ndarray]) -> Network:
    """Networks of this structure with the arrays of a file."""
    structure = jax.tree_util.tree_structure(outline)
    return jax.tree_util.tree_unflatten(structure, [arrays[name] for name in _named(outline, prefix)])


def _outline(spec: Spec, given: Mapping[str, object]) -> Network:
    """The shapes of a network's weights, in its structure; no array is made."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    try:
        shapes = eqx.filter_eval_shape(make_method(spec).init, spec.width, spec.outputs, key=key)
    except Exception as error:  # of any kind: it may be that of the user's own code
        why = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        if given:
            raise OtherFileError(f"the {' or '.join(given)} given makes no network ({why})") from error
        raise UserError(f"its settings make no network ({why})") from error

    def is_weight(leaf: object) -> bool:
        return isinstance(leaf, jax.ShapeDtypeStruct) and jnp.issubdtype(leaf.dtype, jnp.inexact)

    return eqx.filter(shapes, is_weight)


def _is_plain(value: object) -> bool:
    try:
        json.dumps(_plain(value))
    except TypeError:
        return False
    return True


def _plain(value: object) -> Any:
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
