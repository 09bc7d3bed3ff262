"""Models of a campaign: what the worker needs of one, and `NCPRegressor` as such a model."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from ncprior.campaigns.predicted import LEVEL, Predicted
from ncprior.campaigns.spec import Spec

if TYPE_CHECKING:
    from ncprior.tables.estimator import NCPRegressor


class Ranked(NamedTuple):
    """Rows that a model wants to be labelled, best first, and why."""

    rows: np.ndarray
    scores: np.ndarray


class CampaignModel(Protocol):
    """What the worker needs of a model."""

    def predict(self, inputs: pa.Table) -> Mapping[str, list[Predicted]]:
        """Predictions for each target."""

    def rank(self, candidates: pa.Table, known: pa.Table, count: int, excluded: np.ndarray) -> Ranked:
        """``count`` of the candidates to label next, given rows that are labelled or will be."""

    def content(self) -> bytes:
        """The model as a file."""

    def metrics(self) -> dict[str, object]:
        """What to remember of its training."""


Trainer: TypeAlias = Callable[[pa.Table, np.ndarray, Spec, int, pa.Table | None], CampaignModel]
"""Trains a model: inputs, targets ``[rows, targets]``, the campaign's spec, a seed, and rows of the pool, or None."""

Loader: TypeAlias = Callable[[bytes, Spec, int], CampaignModel]
"""Reads a model from its file, for a spec and with a seed for draws."""


class NCPModel:
    """`NCPRegressor` as a campaign's model. JAX is imported when one is trained or loaded, and not before."""

    def __init__(self, estimator: "NCPRegressor", spec: Spec, seed: int) -> None:
        self.estimator, self.spec, self.seed = estimator, spec, seed

    @classmethod
    def train(
        cls, inputs: pa.Table, targets: np.ndarray, spec: Spec, seed: int, unlabelled: pa.Table | None
    ) -> "NCPModel":
        """A model of all labels, which is taught to be unsure where unlabelled rows are."""
        from ncprior.tables.estimator import NCPRegressor
        from ncprior.tables.options import FitOptions

        estimator = NCPRegressor(random_state=seed, **spec.fit)
        if FitOptions.of(estimator, check_effects=False).why_no_unlabelled:
            unlabelled = None
        estimator.fit_subset(inputs, targets, unlabelled)  # columns of a few rows may look like mistakes
        estimator.target_names_ = list(spec.targets)
        return cls(estimator, spec, seed)

    @classmethod
    def load(cls, content: bytes, spec: Spec, seed: int) -> "NCPModel":
        """A model from its file."""
        from ncprior.tables.estimator import NCPRegressor

        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.ncp"
            file.write_bytes(content)
            return cls(NCPRegressor.load(file), spec, seed)

    def predict(self, inputs: pa.Table) -> dict[str, list[Predicted]]:
        """Predictions for each target."""
        found = self.estimator.predict_distribution(inputs)
        ends = found.interval(LEVEL)
        mixture = found.predictive
        stds = np.hypot(mixture.parts.noise, mixture.parts.uncertainty)
        parts = [np.asarray(one) for one in (mixture.weights, mixture.parts.mean, stds)]
        plain = [np.asarray(one) for one in (found.mean, found.noise, found.uncertainty, *ends)]
        return {
            target: [
                Predicted.from_json(
                    [*(float(one[row, i]) for one in plain), *(part[row, i].tolist() for part in parts)]
                )
                for row in range(inputs.num_rows)
            ]
            for i, target in enumerate(self.spec.targets)
        }

    def rank(self, candidates: pa.Table, known: pa.Table, count: int, excluded: np.ndarray) -> Ranked:
        """The rows of the default batch rule; their scores are their information gains."""
        picked = self.estimator.suggest(
            candidates, count, labelled=known, exclude=excluded, random_state=self.seed % 2**31
        )
        return Ranked(picked, self.estimator.information_gain(candidates.take(pa.array(picked))))

    def content(self) -> bytes:
        """The model as a file."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.ncp"
            self.estimator.save(file)
            return file.read_bytes()

    def metrics(self) -> dict[str, object]:
        """Seed, seconds of training, and scores on rows that were held out."""
        held_out = self.estimator.validation_
        return {
            "seed": self.seed,
            "seconds": round(self.estimator.fit_seconds_, 2),
            "held_out": None if held_out is None else {name: _plain(value) for name, value in held_out.items()},
        }


def _plain(value: object) -> object:
    """A number, or a list of them, as JSON has it."""
    return np.asarray(value).tolist()
