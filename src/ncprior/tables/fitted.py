"""A trained ensemble: all that predictions depend on, and the predictions."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from jax import Array

from ncprior.core.networks import Network
from ncprior.core.prediction import MixturePrediction, with_minimum_std
from ncprior.data.encoding import Encoder
from ncprior.tables.calibration import Calibration, power
from ncprior.tables.conformal import NOTHING, Conformal
from ncprior.tables.contrast import NETWORKS
from ncprior.tables.familiarity import Familiarity
from ncprior.tables.member_training import take_members
from ncprior.tables.programs import Engine, Spec, chunked
from ncprior.tables.recipe import MIN_ROWS
from ncprior.tables.search import Validation
from ncprior.tables.unlabelled import combined


class Contrast(NamedTuple):
    """Trained contrast networks, which say how unlike the training rows a row is."""

    spec: Spec
    weights: Network  # on a leading axis
    asked: Network | None = None  # of as many networks that know unlabelled rows,
    asked_weight: float = 0.0  # and how much these count

    @property
    def engine(self) -> Engine:
        """The programs that train and predict."""
        return Engine.of(self.spec)

    def spread(self, inputs: np.ndarray) -> Array:
        """How unlike the training rows each of these encoded rows is ``[rows]``, from 0 to about 1; for a chunk."""
        noised = self.engine.spread(self.engine.on_device(self.weights), inputs)
        if self.asked is None:
            return noised
        return jnp.asarray(combined(noised, self.engine.spread(self.asked, inputs), self.asked_weight))

    def features(self, inputs: np.ndarray) -> Array:
        """Features ``[rows, n]`` whose dot products are the covariances of the networks' beliefs, on average."""
        equal = Calibration.equal(NETWORKS)
        noised = self.engine.features(self.weights, equal, inputs)
        if self.asked is None:
            return noised
        asked = self.engine.features(self.asked, equal, inputs)
        return jnp.concatenate([(1 - self.asked_weight) ** 0.5 * noised, self.asked_weight**0.5 * asked], axis=1)

    def sample(self, inputs: np.ndarray, key: Array) -> Array:
        """One function ``[rows]`` from the belief of a network that is drawn at random."""
        key_network, key_function, key_kind = jax.random.split(key, 3)
        of_asked = self.asked is not None and bool(jax.random.bernoulli(key_kind, self.asked_weight))
        kind = self.asked if of_asked and self.asked is not None else self.weights
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
    members: int  # asked for at first; those that failed are left out of all others
    flat: bool  # whether targets had one axis
    target_names: list[str] | None
    familiarity: Familiarity
    contrast: Contrast | None = None
    conformal: Conformal = NOTHING  # errors of rows that were not learned from, at first at least
    unlabelled: int = 0  # rows that contrast points were drawn from
    seconds: float = 0.0  # that training took
    held_out: np.ndarray | None = None  # rows of the table on which `validation` was measured; not in files

    @property
    def engine(self) -> Engine:
        """The programs that train and predict."""
        return Engine.of(self.spec)

    def predict(self, table: pa.Table, first_row: int = 1) -> MixturePrediction:
        """The mixture of the members' predictions of the standardised target, as NumPy arrays.

        Args:
            table: Rows with the columns that were learned from, found by their names; others are ignored.
            first_row: The number of its first row, for messages about a piece of a larger table.
        """
        return self.predict_encoded(self.encoder.transform(table, first_row=first_row))

    def predict_encoded(self, inputs: np.ndarray) -> MixturePrediction:
        """The same for encoded rows.

        A model without inputs, or of too few rows, has learned nothing: its std is never below that of the targets.
        """

        def predict(part: np.ndarray) -> MixturePrediction:
            prediction = self.believe(part)
            return with_minimum_std(prediction, 1.0) if self.spec.width == 1 or self.rows < MIN_ROWS else prediction

        return chunked(predict, inputs)

    def believe(self, inputs: np.ndarray) -> MixturePrediction:
        """The same from the networks alone, also if they have learned nothing; for a chunk of rows."""
        said = None if self.contrast is None else self.contrast.spread(inputs)
        return self.engine.predict(self.engine.on_device(self.weights), self.calibration, inputs, said)

    def covariance_features(self, inputs: np.ndarray, output_weights: np.ndarray | None = None) -> Array:
        """Features ``[rows, n]`` whose dot products are the covariances of the mean; for a chunk of rows."""
        own = self.engine.features(self.weights, self.calibration, inputs, output_weights)
        return own if self.contrast is None else jnp.concatenate([own, self._scaled(self.contrast.features, inputs)], 1)

    def sample_contrast(self, inputs: np.ndarray, key: Array) -> Array | float:
        """What a function from the belief of a contrast network adds to the mean ``[rows, outputs]``; for a chunk."""
        if self.contrast is None:
            return 0.0
        keys = jax.random.split(key, self.spec.outputs)
        draw = self.contrast.sample
        return self._scaled(lambda part: jnp.stack([draw(part, one) for one in keys], axis=1), inputs)

    def _scaled(self, function: Callable[[np.ndarray], Array], inputs: np.ndarray) -> Array:
        """Values ``[rows, n]`` of contrast networks, which spread as these say, so that they spread as calibrated."""
        assert self.contrast is not None
        said = self.contrast.spread(inputs)
        # Members are calibrated alike.
        std = self.calibration.contrast_scale[0] * power(said, self.calibration.contrast_exponent[0])
        return function(inputs) * (std / said)[:, None]
