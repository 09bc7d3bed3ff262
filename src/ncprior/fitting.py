"""How the estimator learns: from a table to a trained, calibrated ensemble, and from that to predictions.

The recipe in short: numbers are standardised, half of the members also see the columns' quantiles, every member trains
for as many steps as suits its half on held-out rows, and what held-out rows say about noise, uncertainty and the shares
of the halves is applied to the predictions. `ncprior.presets.TABLES` has its numbers.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa

from ncprior.calibration import with_all_rows
from ncprior.data.encoding import Encoder
from ncprior.engine import CDF, LOG_PROB, MEAN, Engine, Spec, chunked
from ncprior.ensemble import Table
from ncprior.errors import UserError
from ncprior.holdout import Holdout, Stopping, hold_out
from ncprior.methods import Method
from ncprior.options import settings_of
from ncprior.prediction import MixturePrediction, no_surer
from ncprior.recipe import (
    FEWEST,
    MANY,
    bins_for,
    check_rows,
    equal_rows,
    in_order,
    noise_of,
    number_columns,
    padded,
    sights,
    some_rows,
    units,
)
from ncprior.training import Rows, explain_failure

_FEWEST_TO_SEARCH = 20
"""Rows below which none are held out."""

_SEARCHERS = 4
"""Members that search if there are many rows."""

_STEPS = 1_000
"""Steps of training where nothing says how many."""


class FitProgress(NamedTuple):
    """How far `fit` has come: steps of a stage, of at most ``total``; ``score`` is the held-out log density."""

    stage: str
    done: int
    total: int
    score: float | None


Show = Callable[[FitProgress], None]


class Fitted(NamedTuple):
    """A trained ensemble and all that its predictions depend on."""

    spec: Spec
    encoder: Encoder
    weights: Any  # of the members, on a leading axis
    calibration: np.ndarray  # [members, 3]: what noise and uncertainty are multiplied with, the share
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
            return no_surer(prediction, 1.0) if self.spec.width == 1 or self.rows < FEWEST else prediction

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
    inputs, targets, sample_weights = in_order(encoder.transform(table), targets, sample_weights)
    check_rows(inputs, model.min_rows)
    count = len(inputs)
    epochs = model.epochs if epochs is None else epochs
    settings = settings_of(model, count)
    numbers = number_columns(encoder.groups)
    own = isinstance(model.method, Method) or model.trunk is not None
    spec = Spec(
        settings,
        model.method,
        model.trunk,
        None if isinstance(model.input_prior, str) else model.input_prior,
        encoder.groups,
        encoder.width,
        targets.shape[1],
        0 if own else bins_for(len(numbers)),
    )
    shift, scale = units(targets, sample_weights)
    rows = padded(inputs, ((targets - shift) / scale).astype(np.float32), sample_weights)
    columns = inputs[:, numbers]
    engine = Engine.of(spec)
    told = Table(sights(columns, spec, model.members), noise_of(model, engine, encoder, columns))
    fixed = math.ceil(epochs * count / settings.batch_size) if epochs is not None else _STEPS
    equal = np.tile(np.array([1, 1, 1 / model.members], np.float32), (model.members, 1))
    blank = Fitted(spec, encoder, None, equal, shift, scale, (fixed,) * model.members, None, count, inputs[:0])
    if epochs is None and model.early_stopping and count >= _FEWEST_TO_SEARCH:
        blank = _searched(model, blank, inputs, targets, rows, told, seed, show, repeated)
    steps = np.array(blank.steps)
    weights, kept = _trained(engine, rows, count, told, _seeds(seed, 1, model.members), steps, show)
    return blank._replace(
        weights=weights,
        calibration=_calibration_of(kept, blank.calibration),
        steps=tuple(steps[kept].tolist()),
        known=some_rows(inputs, seed),
    )


def _searched(
    model: Any,
    blank: Fitted,
    inputs: np.ndarray,
    targets: np.ndarray,
    rows: Rows,
    told: Table,
    seed: int,
    show: Show,
    repeated: bool,
) -> Fitted:
    """What held-out rows say: for how many steps to train, how to calibrate, and how good that is."""
    spec, ensemble, members = blank.spec, blank.engine.ensemble, model.members
    stopping = Stopping(gap=2 * model.validation_fraction, random=model.validation_fraction)
    searchers = members if len(inputs) < MANY else min(members, _SEARCHERS)
    families = 2 if spec.bins else 1  # every second member sees places in bins, and is searched for by itself
    columns = inputs[:, number_columns(blank.encoder.groups)]
    # Some copies of rows are as likely among new rows. Where most rows have one, copies would give all of them away.
    equal = equal_rows(np.column_stack([inputs, targets]))
    copies = equal if repeated or np.mean(np.bincount(equal)[equal] > 1) > 0.5 else None
    held = hold_out(columns, searchers, stopping, np.random.default_rng(seed), copies, families)
    steps, calibration = np.array(blank.steps), blank.calibration.copy()
    found: list[Any] = [None] * searchers
    for sharp in range(min(families, searchers)):
        places = slice(sharp, None, families)
        family = np.arange(searchers)[places]
        part = [held[i] for i in family]
        rule = dataclasses.replace(stopping, gap_share=0.0, together=0.75) if sharp else stopping
        seeds = _seeds(seed, 0, searchers)[family]
        search = ensemble.search(rows, part, told.of(family), seeds, rule, _telling(show, "searching", rule.most))
        steps[places] = search.steps
        calibration[places, :2] = ensemble.calibrate(search, rows, part)
        for place, i in enumerate(family):
            found[i] = _take(search.weights, place)
    first = jax.tree.map(lambda *leaves: np.stack(leaves), *found)
    tried = calibration[:searchers].copy()
    tried[:, 2] = 1 / searchers
    if families == 2 and searchers > 1:
        share = ensemble.share(first, tried, rows, held)
        for whole in (tried, calibration):
            for sharp, of_family in enumerate((1 - share, share)):
                whole[sharp::2, 2] = of_family / len(whole[sharp::2])
    validation = _validate(blank._replace(weights=first, calibration=tried), inputs, targets, held[0])
    if families == 2:  # the half that is exact on the data; what the other does off it more rows mend little
        train, gap, random = (len(part) for part in held[0])
        calibration[1::2, 0] *= with_all_rows(train, gap + random)
    return blank._replace(calibration=calibration, steps=tuple(steps.tolist()), validation=validation)


def go_on(
    model: Any,
    fitted: Fitted,
    table: pa.Table,
    targets: np.ndarray,
    sample_weights: np.ndarray | None,
    seed: int,
    epochs: int | None,
    show: Show,
) -> Fitted:
    """Trains the members further, on these rows; how columns are encoded and predictions calibrated stays."""
    if targets.shape[1] != len(fitted.shift):
        raise UserError(f"y has {targets.shape[1]} outputs, and had {len(fitted.shift)} before; give as many")
    inputs, count = fitted.encoder.transform(table), table.num_rows
    rows = padded(inputs, ((targets - fitted.shift) / fitted.scale).astype(np.float32), sample_weights)
    before = 0 if epochs is None else fitted.rows  # `fit` is given all rows, `partial_fit` those that have come in
    rows = rows._replace(before=jnp.asarray(before))
    epochs = model.epochs if epochs is None else epochs
    size = fitted.spec.settings.batch_size
    steps = np.asarray(fitted.steps) // 2 if epochs is None else np.full(len(fitted.steps), -(-epochs * count // size))
    engine, seeds = fitted.engine, _seeds(seed, 2, len(steps))
    columns = inputs[:, number_columns(fitted.encoder.groups)]
    told = Table(None, noise_of(model, engine, fitted.encoder, columns))
    weights, kept = _trained(engine, rows, count, told, seeds, steps, show, fitted.weights)
    total = tuple(int(before + new) for before, new in zip(np.asarray(fitted.steps)[kept], steps[kept], strict=True))
    known = some_rows(np.concatenate([fitted.known, inputs]) if before else inputs, seed)
    calibration = _calibration_of(kept, fitted.calibration)
    return fitted._replace(weights=weights, calibration=calibration, steps=total, rows=before + count, known=known)


def _seeds(seed: int, purpose: int, members: int) -> np.ndarray:
    """A seed for every member, which does not depend on their number."""
    return np.random.SeedSequence([seed, purpose]).generate_state(members)


def _telling(show: Show, stage: str, total: int) -> Callable[[int, float], None]:
    return lambda step, score: show(FitProgress(stage, step, total, score))


def _trained(
    engine: Engine,
    rows: Rows,
    count: int,
    told: Table,
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
        members = ensemble.start(rows, visible, told.of(some), seeds[some], _take(weights, some))
        # Often enough for progress to be seen and Ctrl-C to be heard.
        marks = np.unique(np.linspace(0, number, max(11, number // 500)).astype(int))
        for first, last in itertools.pairwise(marks):
            members, _ = ensemble.train(members, rows, count, first, last)
            done += (last - first) * len(some)
            show(FitProgress("training", int(done), total, None))
        whole = ensemble.gather(members)
        failed, culprits = (
            np.concatenate([np.asarray(getattr(group, name)) for group in members]) for name in ("failed", "culprits")
        )
        for place, i in enumerate(some):
            trained[i], failures[i] = _take(whole, place), (int(failed[place]), int(culprits[place]))
    kept = np.array([i for i, (failed, _) in enumerate(failures) if failed < 0], int)
    if not len(kept):
        why = explain_failure(ensemble.trainer.method, *failures[0])
        raise UserError(f"{why}; choose a smaller learning_rate, or look for extreme values in the table")
    return jax.tree.map(lambda *leaves: np.stack(leaves), *(trained[i] for i in kept)), kept


def _calibration_of(members: np.ndarray, calibration: np.ndarray) -> np.ndarray:
    """The calibration of these members, whose shares sum to 1 again: what others had goes to all of them."""
    kept = calibration[members]
    kept[:, 2] /= kept[:, 2].sum()
    return kept


def _take(tree: Any, members: Any) -> Any:
    """Some members of arrays with a leading axis of all."""
    return jax.tree.map(lambda leaf: leaf[members], tree)


def _validate(fitted: Fitted, inputs: np.ndarray, targets: np.ndarray, held: Holdout) -> dict[str, Any] | None:
    """What members that searched come to together on the rows that none of them had seen, held out at random.

    Numbers, or lists of them if there are several outputs.
    """
    if not len(held.random):
        return None
    prediction = fitted.predict_encoded(inputs[held.random])
    truth = ((targets[held.random] - fitted.shift) / fitted.scale).astype(np.float32)
    below, density = chunked(CDF, prediction, truth), chunked(LOG_PROB, prediction, truth)
    found = {
        "rmse": fitted.scale * np.sqrt(np.mean((chunked(MEAN, prediction) - truth) ** 2, axis=0)),
        "nlpd": np.log(fitted.scale) - np.mean(density, axis=0),
        "coverage": np.mean((below > 0.05) & (below < 0.95), axis=0),
    }
    flat = targets.shape[1] == 1
    numbers = {name: values.item() if flat else values.tolist() for name, values in found.items()}
    return {**numbers, "rows": len(held.random)}


@contextmanager
def progress_bar(verbose: bool, callbacks: Sequence[Show]) -> Iterator[Show]:
    """Tells the callbacks, and draws a bar on stderr if wanted."""
    if not verbose:

        def tell(progress: FitProgress) -> None:
            for callback in callbacks:
                callback(progress)

        yield tell
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def draw(progress: FitProgress) -> None:
            if progress.stage not in tasks:
                tasks[progress.stage] = bars.add_task(progress.stage, total=progress.total)
            bars.update(tasks[progress.stage], completed=progress.done, total=progress.total)
            for callback in callbacks:
                callback(progress)

        yield draw
