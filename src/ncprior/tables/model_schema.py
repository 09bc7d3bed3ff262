"""The schema of a model file: the fields of its notes, and the names and shapes of its arrays."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import jax
import numpy as np

from ncprior.core.methods import TITLES
from ncprior.core.settings import Settings
from ncprior.data.encoding import Encoder
from ncprior.data.labelled import LARGEST
from ncprior.errors import UserError
from ncprior.schema import Range, conform
from ncprior.tables import conformal
from ncprior.tables.calibration import Calibration
from ncprior.tables.contrast import NETWORKS
from ncprior.tables.familiarity import MAX_SCORES
from ncprior.tables.options import Arguments
from ncprior.tables.programs import Spec
from ncprior.tables.search import Validation

Count = Annotated[int, Range(0, 2**31 - 1)]
Switch = bool | int
Shapes = dict[str, jax.ShapeDtypeStruct]


class Versions(TypedDict):
    """Of what the model was trained with."""

    ncprior: str
    jax: str
    equinox: str
    numpy: str


@dataclass(frozen=True)
class Notes:
    """The JSON of a model file."""

    format: int
    versions: Versions
    arguments: Arguments
    settings: Settings
    contrast: Settings | None
    method: str | None
    own: list[Literal["method", "trunk", "input_prior"]]
    encoder: Encoder
    outputs: Annotated[int, Range(1, 100_000)]
    bins: Annotated[int, Range(0, 1024)]
    flat: bool
    steps: tuple[Count, ...]
    members: Count  # of the first fit; those that failed have no steps
    rows: Count
    validation: Validation | None
    unlabelled: Count
    asked_weight: Annotated[float, Range(0, 1)]  # `Contrast.unlabelled_weight`; 0 without such networks
    refitted: bool  # whether the model has learned from the rows whose errors it keeps
    fit_seconds: Annotated[float, Range(0, 1e12)]
    target_names: list[str] | None
    feature_names: list[str] | None
    features: Count

    def __post_init__(self) -> None:
        names = [column.name for column in self.encoder.columns]
        own = set(self.own)
        _require(len(own) == len(self.own), "own names something twice")
        _require((self.method is None) == ("method" in own), "the method is neither a known one nor its user's own")
        _require(self.method in (None, "ncp", "deep+ncp", *TITLES), f"there is no method {self.method!r:.80}")
        _require(not self.bins or not own & {"method", "trunk"}, "networks of their user's own have no bins")
        _require(
            not self.asked_weight or self.unlabelled > 0,
            "there are networks for unlabelled rows, and no such rows",
        )
        _require(
            not self.unlabelled or self.contrast is not None, "there are unlabelled rows, and no contrast networks"
        )
        _require(self.outputs == 1 or not self.flat, "several outputs are not flat")
        _require(self.features == len(names), "features are not as many as the encoder's columns")
        _require(self.feature_names in (None, names), "feature_names are not the encoder's")
        _require(self.target_names is None or len(self.target_names) == self.outputs, "target_names are not one each")
        _require(0 < len(self.steps) <= self.members, "there are no members, or more than were asked for")
        for score in ("rmse", "nlpd", "coverage") if self.validation else ():
            values = self.validation[score]  # type: ignore[index]
            count = len(values) if isinstance(values, list) else 1
            _require(count == self.outputs, f"validation.{score} is not one for each output")


_ARGUMENTS: dict[str, object] = {
    "method": str,
    "hidden": tuple[int, ...],
    "members": int,
    "learning_rate": float,
    "batch_size": int | None,
    "epochs": int | None,
    "early_stopping": Switch,
    "validation_fraction": float,
    "conformal_fraction": float,
    "min_rows": int,
    "gamma": float | None,
    "gamma_per_label": Switch,
    "input_prior": str | None,
    "input_scale": float | dict[str, float],
    "output_scale": float,
    "flip": float,
    "trunk": None.__class__,
    "settings": dict[str, Any] | None,
    "warm_start": Switch,
    "random_state": int | list[int] | None,
    "verbose": Switch,
    "callbacks": tuple[Any, ...],
}
_MAY_BE_CODE = {"method", "input_prior", "trunk", "random_state", "callbacks"}
"""Arguments of an estimator; a subclass may have more. Those that may be code may be absent."""


def read_arguments(arguments: Mapping[str, object], names: Sequence[str]) -> Arguments:
    """The arguments in a file, of an estimator whose parameters have these ``names``."""
    if unknown := [name for name in arguments if name not in names]:
        raise UserError(f"arguments has {unknown[0]!r:.80}, which is none")
    if absent := [name for name in _ARGUMENTS if name in names and name not in arguments and name not in _MAY_BE_CODE]:
        raise UserError(f"arguments lacks {absent[0]}")
    found = {name: conform(value, _ARGUMENTS.get(name, Any), f"arguments.{name}") for name, value in arguments.items()}
    if found.get("settings"):  # lists are tuples in `Settings`
        found["settings"] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in found["settings"].items()
        }
    return found


def check_shapes(notes: Notes, spec: Spec, shapes: Shapes) -> None:
    """Raise if the arrays, but for the weights, are not those that go with the notes."""
    members = len(notes.steps)
    rows, scores = (shapes[name].shape[:1] if name in shapes else () for name in ("training_sample", "familiarity"))
    _require(scores <= (MAX_SCORES,), f"familiarity has more than {MAX_SCORES} scores")
    errors = shapes["conformal"].shape[:1] if "conformal" in shapes else ()
    _require(errors <= (conformal.MAX_SCORES,), f"conformal has more than {conformal.MAX_SCORES} rows")
    wanted = {
        **{f"calibration.{name}": jax.ShapeDtypeStruct((members,), np.float32) for name in Calibration._fields},
        "shift": jax.ShapeDtypeStruct((spec.outputs,), np.float64),
        "scale": jax.ShapeDtypeStruct((spec.outputs,), np.float64),
        "training_sample": jax.ShapeDtypeStruct((*rows, spec.width), np.float32),
        "familiarity": jax.ShapeDtypeStruct(scores, np.float64),
        "conformal": jax.ShapeDtypeStruct((*errors, spec.outputs), np.float64),
    }
    networks = ["weights"]
    if notes.contrast is not None:
        networks += ["contrast", "asked"] if notes.asked_weight else ["contrast"]
    _same(wanted, {name: shape for name, shape in shapes.items() if not name.startswith(tuple(networks))})
    if not {"method", "trunk"} & set(notes.own):
        _check_layers(spec.settings.hidden, members, _starting(shapes, "weights"))
    if notes.contrast is not None:
        for kind in networks[1:]:
            _check_layers(notes.contrast.hidden, NETWORKS, _starting(shapes, kind))


def check_weights(wanted: Shapes, prefix: str, networks: int, shapes: Shapes) -> None:
    """Raise if the arrays of this prefix are not those of so many networks, of which one has the ``wanted`` ones."""
    many = {name: jax.ShapeDtypeStruct((networks, *one.shape), one.dtype) for name, one in wanted.items()}
    _same(many, _starting(shapes, prefix))


def check_values(arrays: dict[str, np.ndarray]) -> None:
    """Raise if numbers in the arrays have no meaning."""
    for name, array in arrays.items():
        _require(np.isfinite(array).all(), f"{name} has values that are not finite")
        if name.endswith(".features.width"):
            _require((array > 0).all(), f"{name} is not above 0")
        if name.startswith(("weights.", "contrast.", "asked.")) and not name.endswith(_BOUNDED):
            largest = _LARGEST_FEATURE if ".features." in name else _LARGEST_WEIGHT
            _require((np.abs(array) <= largest).all(), f"{name} has values above {largest:g}")
    for name in ("noise_scale", "uncertainty_scale", "contrast_scale", "contrast_exponent"):
        scale, least = arrays[f"calibration.{name}"], 0.0 if name == "contrast_scale" else 1e-3
        _require(((scale >= least) & (scale <= 1e3)).all(), f"calibration.{name} is not from {least:g} to 1000")
    shares = arrays["calibration.share"]
    _require((shares >= 0).all() and abs(shares.sum() - 1) < 1e-3, "shares of members do not sum to 1")
    _require((arrays["familiarity"] >= 0).all(), "familiarity has scores below 0")
    errors = arrays["conformal"]
    _require((errors >= 0).all() and (np.diff(errors, axis=0) >= 0).all(), "conformal is below 0, or not ascending")
    _require((np.abs(arrays["shift"]) <= 2 * LARGEST).all(), f"shift is above {LARGEST:g}")
    scale = arrays["scale"]
    _require(
        ((scale >= 0.5 / LARGEST) & (scale <= 2 * LARGEST)).all(), f"scale is not from {1 / LARGEST:g} to {LARGEST:g}"
    )


_LARGEST_WEIGHT, _LARGEST_FEATURE = 1e6, 1e12
"""Weights of networks, and numbers that inputs are transformed with, are far smaller than this; with larger ones,
predictions would not be finite."""

_BOUNDED = (".features.lower", ".features.width")
"""Edges of bins, between which an input is from 0 to 1, however far they are."""

_LAYER = re.compile(r"\.layers\[(\d{1,4})\]\.(kernel|bias)$")


def _check_layers(hidden: tuple[int, ...], members: int, shapes: Shapes) -> None:
    """Raise if the layers in the file are not those of the settings: quick, before a network is even outlined."""
    found = set()
    for name, array in shapes.items():
        if match := _LAYER.search(name):
            layer = int(match[1])
            found.add(layer)
            expected, layer_shape = [members, *hidden[max(0, layer - 1) : layer + 1]], list(array.shape)
            if match[2] == "bias":
                del expected[1:-1]
            elif not layer:
                del layer_shape[1:2]  # the inputs, which are not in the settings
            fits = layer < len(hidden) and layer_shape == expected
            _require(fits, f"{name} has shape {array.shape}, which is not that of settings.hidden")
    _require(found == set(range(len(hidden))), f"settings.hidden has {len(hidden)} layers, and the file {len(found)}")


def _starting(shapes: Shapes, prefix: str) -> Shapes:
    return {name: shape for name, shape in shapes.items() if name.startswith(prefix)}


def _same(wanted: Shapes, found: Shapes) -> None:
    if lost := sorted(set(wanted) - set(found)):
        raise UserError(f"there is no {lost[0]}")
    if odd := sorted(set(found) - set(wanted)):
        raise UserError(f"{odd[0]!r:.80} is unknown")
    for name, one in wanted.items():
        if (one.shape, one.dtype) != (found[name].shape, found[name].dtype):
            described = f"shape {found[name].shape} and type {found[name].dtype}"
            raise UserError(f"{name} has {described} in place of {one.shape} and {one.dtype}")


def _require(holds: bool | np.bool_, otherwise: str) -> None:
    if not holds:
        raise UserError(otherwise)
