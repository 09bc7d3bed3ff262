"""An ensemble that is ready to predict: its weights on the device, and one program for members and contrast networks.

A row alone takes less than a millisecond. Most of it would go into starting programs and into reading trees of weights,
if contrast networks and members were programs of their own.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from ncprior.core.networks import Network
from ncprior.core.prediction import MixturePrediction, with_minimum_std
from ncprior.tables.calibration import Calibration
from ncprior.tables.compiled import Program
from ncprior.tables.programs import CHUNKS, Engine, Spec, chunked
from ncprior.tables.unlabelled import combined

_FEW_ROWS = 16
"""Rows that have a program of their own, at most: a row alone takes half of the time that it takes among 64."""


class Weights(NamedTuple):
    """All arrays that predictions depend on."""

    members: Network  # on a leading axis
    calibration: Calibration
    contrast: Network | None = None  # contrast networks, on a leading axis
    with_unlabelled: Network | None = None  # see `Contrast`
    unlabelled_weight: float = 0.0


class Predictor:
    """Predicts encoded rows.

    Args:
        spec: Of the members.
        contrast_spec: Of the contrast networks, if there are any.
        weights: Of both.
        learned: Whether the ensemble has learned anything; if not, its std is never below that of the targets.
    """

    def __init__(self, spec: Spec, contrast_spec: Spec | None, weights: Weights, *, learned: bool) -> None:
        members = Engine.of(spec)
        contrast = None if contrast_spec is None else Engine.of(contrast_spec)

        def of_contrast(networks: Network | None) -> Network | None:
            return None if contrast is None or networks is None else contrast.on_device(networks)

        placed = Weights(
            members.on_device(weights.members),
            weights.calibration,
            of_contrast(weights.contrast),
            of_contrast(weights.with_unlabelled),
            weights.unlabelled_weight,
        )
        # A tuple of arrays is read far faster than a tree of modules.
        leaves, tree = jax.tree.flatten(placed)
        kind = (contrast, tree, learned)
        program = members.further.get(kind)
        if program is None:
            program = members.further.setdefault(kind, _program(members, contrast, tree, learned=learned))
        self._predict = program.bind(tuple(leaves))

    def __call__(self, inputs: np.ndarray) -> MixturePrediction:
        """The mixture of the members' predictions of the standardised target for encoded rows, as NumPy arrays."""
        return chunked(self._predict, inputs, sizes=(_FEW_ROWS, *CHUNKS))


def _program(members: Engine, contrast: Engine | None, tree: jax.tree_util.PyTreeDef, *, learned: bool) -> Program:
    """The program of ensembles of this kind."""

    def predict(leaves: tuple[Array, ...], inputs: Array) -> MixturePrediction:
        weights: Weights = jax.tree.unflatten(tree, leaves)
        found: Any = None  # the networks' output; `combined` is also for NumPy arrays
        if contrast is not None and weights.contrast is not None:
            found = contrast.spread_of(weights.contrast, inputs)
            if weights.with_unlabelled is not None:
                found = combined(found, contrast.spread_of(weights.with_unlabelled, inputs), weights.unlabelled_weight)
        mixture = members.predict_of(weights.members, weights.calibration, inputs, found)
        return mixture if learned else with_minimum_std(mixture, 1.0)

    engines = [members] if contrast is None else [members, contrast]
    texts = [engine.about for engine in engines]
    has_own_parts = any(text is None for text in texts)  # parts of the user's own
    return Program(predict, None if has_own_parts else f"predict by {texts}, {learned}, {tree}")
