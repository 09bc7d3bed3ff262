"""A trained ensemble: all that predictions depend on, and the predictions."""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from jax import Array

from ncprior.core.networks import Network
from ncprior.core.prediction import MixturePrediction
from ncprior.data.encoding import Encoder
from ncprior.tables.calibration import Calibration, power
from ncprior.tables.conformal import NOTHING, Conformal
from ncprior.tables.contrast import NETWORKS
from ncprior.tables.familiarity import Familiarity
from ncprior.tables.member_training import take_members
from ncprior.tables.predictor import Predictor, Weights
from ncprior.tables.programs import Engine, Spec
from ncprior.tables.recipe import MIN_ROWS
from ncprior.tables.search import Validation
from ncprior.tables.unlabelled import combined


class Contrast(NamedTuple):
    """Trained contrast networks, whose output measures how unlike the training rows a row is."""

    spec: Spec
    weights: Network  # on a leading axis
    with_unlabelled: Network | None = None  # as many, with unlabelled rows among their contrast points,
    unlabelled_weight: float = 0.0  # and their weight in the output

    @property
    def engine(self) -> Engine:
        """The programs that train and predict."""
        return Engine.of(self.spec)

    def spread(self, inputs: np.ndarray) -> Array:
        """The output for a chunk of encoded rows ``[rows]``: from 0 at training rows to about 1 far from them."""
        noised = self.engine.spread(self.engine.on_device(self.weights), inputs)
        if self.with_unlabelled is None:
            return noised
        unlabelled = self.engine.spread(self.engine.on_device(self.with_unlabelled), inputs)
        return jnp.asarray(combined(noised, unlabelled, self.unlabelled_weight))

    def features(self, inputs: np.ndarray) -> Array:
        """Features ``[rows, n]`` whose dot products are the covariances of the networks' beliefs, on average."""
        equal = Calibration.equal(NETWORKS)
        noised = self.engine.features(self.weights, equal, inputs)
        if self.with_unlabelled is None:
            return noised
        unlabelled = self.engine.features(self.with_unlabelled, equal, inputs)
        weight = self.unlabelled_weight
        return jnp.concatenate([(1 - weight) ** 0.5 * noised, weight**0.5 * unlabelled], axis=1)

    def sample(self, inputs: np.ndarray, key: Array) -> Array:
        """One function ``[rows]`` from the belief of a network that is drawn at random."""
        key_network, key_function, key_kind = jax.random.split(key, 3)
        kind = self.weights
        if self.with_unlabelled is not None and bool(jax.random.bernoulli(key_kind, self.unlabelled_weight)):
            kind = self.with_unlabelled
        network = take_members(kind, int(jax.random.randint(key_network, (), 0, NETWORKS)))
        drawn, _ = self.engine.sample(network, inputs, key_function)
        return drawn[:, 0]


class Fitted(NamedTuple):
    """A trained ensemble and all that its predictions depend on."""

    spec: Spec
    encoder: Encoder
    weights: Network  # the members' networks, on a leading axis
    calibration: Calibration
    target_shift: np.ndarray  # mean of every output,
    target_scale: np.ndarray  # and its standard deviation
    steps: tuple[int, ...]  # of training, for each member
    validation: Validation | None  # scores on rows that were held out in the search
    rows: int  # learned from
    training_sample: np.ndarray  # at most 1,000 of these, encoded, which batch rules keep away from
    members: int  # of the first fit; members that failed are left out of all other fields
    flat: bool  # whether targets had one axis
    target_names: list[str] | None
    familiarity: Familiarity
    contrast: Contrast | None = None
    conformal: Conformal = NOTHING  # errors of rows that were held out or set apart
    unlabelled: int = 0  # rows that contrast points were drawn from
    seconds: float = 0.0  # that training took
    held_out: np.ndarray | None = None  # rows of the table on which `validation` was measured; not in files

    @property
    def engine(self) -> Engine:
        """The programs that train and predict."""
        return Engine.of(self.spec)

    def predict(self, table: pa.Table) -> MixturePrediction:
        """The mixture of the members' predictions of the standardised target, as NumPy arrays.

        Args:
            table: Rows with the columns that were learned from, found by their names; others are ignored.
        """
        return self.predict_encoded(self.encoder.transform(table))

    def predict_encoded(self, inputs: np.ndarray) -> MixturePrediction:
        """`predict` for encoded rows.

        A model without inputs, or of too few rows, has learned nothing: its std is never below that of the targets.
        """
        return self._predictor(learned=self.spec.width > 1 and self.rows >= MIN_ROWS)(inputs)

    def believe(self, inputs: np.ndarray) -> MixturePrediction:
        """`predict_encoded` without that lower bound of the std."""
        return self._predictor(learned=True)(inputs)

    def _predictor(self, *, learned: bool) -> Predictor:
        return _predictor(_Parts(self.spec, self.weights, self.calibration, self.contrast, learned))

    def covariance_features(self, inputs: np.ndarray, output_weights: np.ndarray | None = None) -> Array:
        """Features ``[rows, n]`` whose dot products are the covariances of the mean; for a chunk of rows."""
        features = self.engine.features(self.weights, self.calibration, inputs, output_weights)
        if self.contrast is None:
            return features
        return jnp.concatenate([features, self._scaled(self.contrast.features, inputs)], axis=1)

    def sample_contrast(self, inputs: np.ndarray, key: Array) -> Array | float:
        """What a function from the belief of a contrast network adds to the mean ``[rows, outputs]``; for a chunk."""
        if self.contrast is None:
            return 0.0
        keys = jax.random.split(key, self.spec.outputs)
        draw = self.contrast.sample
        return self._scaled(lambda part: jnp.stack([draw(part, one) for one in keys], axis=1), inputs)

    def _scaled(self, function: Callable[[np.ndarray], Array], inputs: np.ndarray) -> Array:
        """Features or draws ``[rows, n]`` of contrast networks, scaled to the calibrated standard deviation."""
        assert self.contrast is not None
        spread = self.contrast.spread(inputs)
        # Members are calibrated alike.
        std = self.calibration.contrast_scale[0] * power(spread, self.calibration.contrast_exponent[0])
        return function(inputs) * (std / spread)[:, None]


class _Parts:
    """The parts of a predictor as a key of a cache; they are compared by identity."""

    def __init__(
        self, spec: Spec, weights: Network, calibration: Calibration, contrast: Contrast | None, learned: bool
    ):
        self.parts = (spec, weights, calibration, contrast)
        self.learned = learned

    def __hash__(self) -> int:
        return hash((*map(id, self.parts), self.learned))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Parts) or self.learned != other.learned:
            return False
        return all(one is another for one, another in zip(self.parts, other.parts, strict=True))


@lru_cache(maxsize=4)  # as many models can take turns
def _predictor(key: _Parts) -> Predictor:
    spec, weights, calibration, contrast = key.parts
    if contrast is None:
        return Predictor(spec, None, Weights(weights, calibration), learned=key.learned)
    of_contrast = (contrast.weights, contrast.with_unlabelled, contrast.unlabelled_weight)
    return Predictor(spec, contrast.spec, Weights(weights, calibration, *of_contrast), learned=key.learned)
