"""How the estimator learns: from a table to a trained, calibrated ensemble, and from that to predictions.

The recipe in short: numbers are standardised, half of the members also see the columns' quantiles, every member trains
for as many steps as suits its half on held-out rows, and what held-out rows say about noise, uncertainty and the shares
of the halves is applied to the predictions. `ncprior.tables.preset.TABLES` has its numbers.
"""

import itertools
import math
from typing import Any, NamedTuple

import jax
import numpy as np
import pyarrow as pa

from ncprior.core.methods import Method
from ncprior.core.prediction import MixturePrediction, with_minimum_std
from ncprior.core.training import explain_failure
from ncprior.data.encoding import Encoder
from ncprior.errors import UserError
from ncprior.tables.calibration import Calibration
from ncprior.tables.ensemble import Table
from ncprior.tables.families import families
from ncprior.tables.input_features import principal
from ncprior.tables.member_rows import MemberRows
from ncprior.tables.options import settings_of
from ncprior.tables.programs import Engine, Spec, chunked
from ncprior.tables.progress import FitProgress, Show
from ncprior.tables.recipe import (
    FEWEST,
    Arranged,
    LearningRows,
    bins_for,
    check_rows,
    for_members,
    noise_of,
    number_columns,
    padded,
    some_rows,
    table_of,
    units,
)
from ncprior.tables.search import Found, search

_FEWEST_TO_SEARCH = 20
"""Rows below which none are held out."""

_STEPS = 1_000
"""Steps of training where nothing says how many."""


class Fitted(NamedTuple):
    """A trained ensemble and all that its predictions depend on."""

    spec: Spec
    encoder: Encoder
    weights: Any  # of the members, on a leading axis
    calibration: Calibration
    shift: np.ndarray  # [outputs], of the target,
    scale: np.ndarray  # and its standard deviation
    steps: tuple[int, ...]  # of training, for each member
    validation: dict[str, Any] | None  # metrics on held-out rows of those that searched
    rows: int  # learned from
    known: np.ndarray  # some of them, encoded: what batch rules keep away from

    @property
    def engine(self) -> Engine:
        """The programs that train and predict."""
        return Engine.of(self.spec)

    def predict(self, table: pa.Table, first_row: int = 1) -> MixturePrediction:
        """The mixture of the members' predictions of the standardised target, as NumPy arrays."""
        return self.predict_encoded(self.encoder.transform(table, first_row=first_row))

    def predict_encoded(self, inputs: np.ndarray) -> MixturePrediction:
        """The same for encoded rows.

        A model without inputs, or of too few rows, has learned nothing: its std is never below that of the targets.
        """

        def predict(part: np.ndarray) -> MixturePrediction:
            prediction = self.engine.predict(self.weights, self.calibration, part)
            return with_minimum_std(prediction, 1.0) if self.spec.width == 1 or self.rows < FEWEST else prediction

        return chunked(predict, inputs)


def fit(
    model: Any,
    encoder: Encoder,
    table: pa.Table,
    targets: np.ndarray,
    sample_weights: np.ndarray | None,
    seed: int,
    epochs: int | None,
    show: Show,
    repeated: bool = False,
) -> Fitted:
    """Trains an ensemble as the estimator ``model`` says; ``repeated`` are rows with copies that stand for weights."""
    inputs = encoder.transform(table)
    arranged = Arranged.of(inputs, targets, sample_weights)
    check_rows(inputs, arranged, model.min_rows)
    inputs, targets = inputs[arranged.places], targets[arranged.places]
    count, members = len(inputs), model.members
    epochs = model.epochs if epochs is None else epochs
    settings = settings_of(model, count)
    own = isinstance(model.method, Method) or model.trunk is not None
    spec = Spec(
        settings,
        model.method,
        model.trunk,
        None if isinstance(model.input_prior, str) else model.input_prior,
        encoder.groups,
        encoder.width,
        targets.shape[1],
        0 if own else bins_for(len(number_columns(encoder.groups))),
    )
    learned = LearningRows(table, encoder, arranged, inputs, targets, *units(targets, arranged.weights))
    fixed = math.ceil(epochs * count / settings.batch_size) if epochs is not None else _STEPS
    found = Found(np.full(members, fixed), Calibration.equal(members), None)
    if epochs is None and model.early_stopping and count >= _FEWEST_TO_SEARCH:
        found = search(model, spec, learned, seed, _seeds(seed, 0, members), show, repeated)
    rows = padded(inputs, ((targets - learned.shift) / learned.scale).astype(np.float32), arranged)
    told = [table_of(model, spec, encoder, inputs, arranged.weights, count)] * members
    told = for_members(told, families(members, quantiles=bool(spec.bins)))
    weights, kept = _trained(Engine.of(spec), rows, count, told, _seeds(seed, 1, members), found.steps, show)
    return Fitted(
        spec,
        encoder,
        weights,
        found.calibration.of(kept),
        learned.shift,
        learned.scale,
        tuple(found.steps[kept].tolist()),
        found.validation,
        table.num_rows,
        some_rows(inputs[arranged.first], seed),
    )


def go_on(
    model: Any,
    fitted: Fitted,
    table: pa.Table,
    targets: np.ndarray,
    sample_weights: np.ndarray | None,
    seed: int,
    epochs: int | None,
    show: Show,
    members: int,
) -> Fitted:
    """Trains the members further, on these rows; how columns are encoded and predictions calibrated stays.

    The arguments of ``model`` count as they are now. Those that say what the weights are must be what they were, also
    the number of ``members`` that it began with.
    """
    if targets.shape[1] != len(fitted.shift):
        raise UserError(f"y has {targets.shape[1]} outputs, and had {len(fitted.shift)} before; give as many")
    if model.members != members:
        raise UserError(_refused("members", model.members, members))
    inputs = fitted.encoder.transform(table)
    arranged = Arranged.of(inputs, targets, sample_weights)
    inputs, targets = inputs[arranged.places], targets[arranged.places]
    count = len(inputs)
    before = 0 if epochs is None else fitted.rows  # `fit` is given all rows, `partial_fit` those that have come in
    scaled = ((targets - fitted.shift) / fitted.scale).astype(np.float32)
    rows = padded(inputs, scaled, arranged, labels_before=before)
    epochs = model.epochs if epochs is None else epochs
    fitted = fitted._replace(spec=_gone_on(model, fitted.spec, before + count))
    size = fitted.spec.settings.batch_size
    steps = np.asarray(fitted.steps) // 2 if epochs is None else np.full(len(fitted.steps), -(-epochs * count // size))
    engine, seeds = fitted.engine, _seeds(seed, 2, len(steps))
    # The shape of the noise is that of old and new rows together: a few new ones may all have the same value.
    columns = np.concatenate([fitted.known, inputs])[:, number_columns(fitted.encoder.groups)]
    old = np.full(len(fitted.known), fitted.rows / max(1, len(fitted.known)))
    counts = np.concatenate([old, np.ones(count) if arranged.weights is None else arranged.weights])
    told = Table(None, noise_of(model, engine, fitted.encoder, principal(columns, counts), before + count))
    weights, kept = _trained(engine, rows, count, [told] * len(steps), seeds, steps, show, fitted.weights)
    total = tuple(int(before + new) for before, new in zip(np.asarray(fitted.steps)[kept], steps[kept], strict=True))
    new = inputs[arranged.first]
    known = some_rows(np.concatenate([fitted.known, new]) if before else new, seed)
    return fitted._replace(
        weights=weights, calibration=fitted.calibration.of(kept), steps=total, rows=before + table.num_rows, known=known
    )


_STRUCTURE = ("hidden", "leaky_slope", "noise_floor", "belief_std", "bias_belief")
"""Settings that say what weights there are, or what they mean."""


def _gone_on(model: Any, spec: Spec, rows: int) -> Spec:
    """The specification with a model's present arguments, if they leave the weights what they are."""
    settings = settings_of(model, rows)
    for name in ("method", "trunk"):  # one's own is known by its identity
        now, was = getattr(model, name), getattr(spec, name)
        if now is not was and not (isinstance(now, str) and now == was):
            raise UserError(_refused(name, now, was))
    for name in _STRUCTURE:
        if getattr(settings, name) != getattr(spec.settings, name):
            raise UserError(_refused(name, getattr(settings, name), getattr(spec.settings, name)))
    own = None if isinstance(model.input_prior, str) else model.input_prior
    return spec._replace(settings=settings, input_prior=own)


def _refused(name: str, now: Any, was: Any) -> str:
    now, was = (value if isinstance(value, str | int | float | tuple | None) else "another" for value in (now, was))
    kept = f"{name} is {now!r} and was {was!r} at first, and training that goes on keeps it"
    return f"{kept}; set it back, or train anew with warm_start=False and fit"


def _seeds(seed: int, purpose: int, members: int) -> np.ndarray:
    """A seed for every member, which does not depend on their number."""
    return np.random.SeedSequence([seed, purpose]).generate_state(members)


def _trained(
    engine: Engine,
    rows: MemberRows,
    count: int,
    told: list[Table],
    seeds: np.ndarray,
    steps: np.ndarray,
    show: Show,
    weights: Any = None,
) -> tuple[Any, np.ndarray]:
    """The weights of members after their numbers of steps on all rows, and which of them have any.

    Fresh members, or those with these ``weights``. Those that train for as long as each other go on together.
    """
    total, done, ensemble = int(steps.sum()), 0, engine.ensemble
    show(FitProgress("training", 0, total, None))
    trained: list[Any] = [None] * len(steps)
    failures: list[tuple[int, int]] = [(-1, 0)] * len(steps)
    for number in np.unique(steps):
        some = np.flatnonzero(steps == number)
        visible = [np.arange(count)] * len(some)
        members = ensemble.start(rows, visible, [told[i] for i in some], seeds[some], _take(weights, some))
        # Often enough for progress to be seen and Ctrl-C to be heard.
        marks = np.unique(np.linspace(0, number, max(11, number // 500)).astype(int))
        for first, last in itertools.pairwise(marks):
            members, _ = ensemble.train(members, rows, count, first, last)
            done += (last - first) * len(some)
            show(FitProgress("training", int(done), total, None))
        whole = ensemble.gather(members)
        failed, nonfinite_terms = (
            np.concatenate([np.asarray(getattr(group, name)) for group in members])
            for name in ("failed", "nonfinite_terms")
        )
        for place, i in enumerate(some):
            trained[i], failures[i] = _take(whole, place), (int(failed[place]), int(nonfinite_terms[place]))
    kept = np.array([i for i, (failed, _) in enumerate(failures) if failed < 0], int)
    if not len(kept):
        why = explain_failure(ensemble.trainer.method, *failures[0])
        raise UserError(f"{why}; choose a smaller learning_rate, or look for extreme values in the table")
    return jax.tree.map(lambda *leaves: np.stack(leaves), *(trained[i] for i in kept)), kept


def _take(tree: Any, members: Any) -> Any:
    """Some members of arrays with a leading axis of all."""
    return jax.tree.map(lambda leaf: leaf[members], tree)
