"""How the estimator learns: from a table to a trained, calibrated ensemble.

The recipe in short: numbers are standardised; half of the members also get quantile features; each family of members
trains for the number of steps that predicts held-out rows best; and held-out rows calibrate noise, uncertainty and the
shares of the families. `ncprior.tables.preset.TABLES` has its numbers.
"""

import math
from typing import NamedTuple

import numpy as np

from ncprior.core.networks import Network
from ncprior.data.encoding import Encoder
from ncprior.errors import UserError
from ncprior.tables import contrast as contrast_networks
from ncprior.tables.ahead import compiling_ahead
from ncprior.tables.calibration import Calibration
from ncprior.tables.conformal import NOTHING, Conformal, scores_of
from ncprior.tables.contrast import NETWORKS
from ncprior.tables.ensemble import TableInfo
from ncprior.tables.familiarity import Familiarity, novelty
from ncprior.tables.families import families
from ncprior.tables.fitted import Contrast, Fitted
from ncprior.tables.input_features import principal_components
from ncprior.tables.member_training import member_seeds, train_members
from ncprior.tables.options import FitOptions
from ncprior.tables.programs import Engine, Spec, training_numbers
from ncprior.tables.progress import ProgressCallback
from ncprior.tables.recipe import (
    LabelledTable,
    RowOrder,
    TrainingRows,
    check_rows,
    contrast_spec,
    for_families,
    make_input_prior,
    make_spec,
    number_columns,
    padded_rows,
    shift_and_scale,
    subsample,
    table_info,
)
from ncprior.tables.search import SearchResult, number_of_searchers, rehearse, search
from ncprior.tables.unlabelled import contrast_pool

_MIN_ROWS_TO_SEARCH = 20
"""With fewer rows, none are held out."""

_STEPS = 1_000
"""Steps of training without a search and without a number of epochs."""


def fit(
    labelled: LabelledTable, options: FitOptions, *, seed: int, epochs: int | None, report: ProgressCallback
) -> Fitted:
    """Trains an ensemble.

    Args:
        labelled: The rows to learn from.
        options: The options of the estimator.
        seed: Of all draws.
        epochs: Passes over the rows, in place of those of the options.
        report: Called with the progress.

    Raises:
        UserError: If the rows are too few, or no member could be trained.
    """
    parts = set_apart(labelled, options.conformal_fraction, seed)
    fitted = _fit_all(parts.training, options, seed=seed, epochs=epochs, report=report)
    if parts.conformal is None:
        return fitted
    held_out = None if fitted.held_out is None else parts.rows[fitted.held_out]
    return fitted._replace(conformal=conformal_of(fitted, parts.conformal, seed=seed), held_out=held_out)


def conformal_of(fitted: Fitted, unseen: LabelledTable, *, seed: int) -> Conformal:
    """The errors of rows that the ensemble has not learned from."""
    mixture = fitted.predict(unseen.table)
    targets = (unseen.targets - fitted.target_shift) / fitted.target_scale
    return Conformal.of(scores_of(np.asarray(mixture.mean), np.asarray(mixture.std), targets), seed=seed)


class Parts(NamedTuple):
    """The rows to learn from, and those set apart for conformal intervals."""

    training: LabelledTable
    conformal: LabelledTable | None
    rows: np.ndarray  # numbers of the training rows in the whole table


def set_apart(labelled: LabelledTable, fraction: float, seed: int) -> Parts:
    """Draws the rows to set apart; the draw does not depend on the order of the rows."""
    count = len(labelled.targets)
    if not fraction:
        return Parts(labelled, None, np.arange(count))
    if labelled.weights is not None or labelled.repeated:
        raise UserError("conformal_fraction is for rows that count the same; leave it out, or sample_weight")
    order = RowOrder.of(Encoder.fit(labelled.table).transform(labelled.table), labelled.targets, None).indices
    drawn = order[np.random.default_rng([seed, 4]).permutation(count)]
    number = max(1, int(fraction * count))
    conformal, rows = np.sort(drawn[:number]), np.sort(drawn[number:])
    return Parts(labelled.take(rows), labelled.take(conformal), rows)


def _fit_all(
    labelled: LabelledTable, options: FitOptions, *, seed: int, epochs: int | None, report: ProgressCallback
) -> Fitted:
    """Trains an ensemble on all of these rows."""
    table = labelled.table
    encoder = Encoder.fit(table)
    inputs, targets = encoder.transform(table), labelled.targets
    unlabelled_inputs = _encoded_unlabelled(encoder, labelled)
    order = RowOrder.of(inputs, targets, labelled.weights)
    inputs, targets = inputs[order.indices], targets[order.indices]
    check_rows(inputs, targets, order, options.min_rows, repeated=labelled.repeated)
    count, members = len(inputs), options.members
    epochs = options.epochs if epochs is None else epochs
    spec = make_spec(options, encoder, rows=count, outputs=targets.shape[1])
    unit = shift_and_scale(targets, order.weights)
    unlabelled = None if labelled.unlabelled is None else labelled.unlabelled.table
    training = TrainingRows(table, encoder, order, inputs, targets, *unit, unlabelled)
    steps = math.ceil(epochs * count / spec.settings.batch_size) if epochs is not None else _STEPS
    calibration = Calibration.equal(members).with_contrast(options.contrast_scale)
    found = SearchResult(np.full(members, steps), calibration)
    searches = epochs is None and options.early_stopping
    rows = padded_rows(inputs, training.standardised, order)
    about = table_info(options, spec, encoder, inputs, weights=order.weights, rows=count)
    if searches and count >= _MIN_ROWS_TO_SEARCH:
        seeds, searchers = member_seeds(seed, 0, members), number_of_searchers(members, count)
        has_contrast = options.has_contrast
        with compiling_ahead(spec, rows, about, labels=count, searchers=searchers, has_contrast=has_contrast):
            found = search(training, options, spec, seed=seed, seeds=seeds, report=report, repeated=labelled.repeated)
    tables = for_families([about] * members, families(members, quantiles=bool(spec.bins)))
    weights, kept = train_members(
        Engine.of(spec),
        rows,
        tables,
        member_seeds(seed, 1, members),
        labels=count,
        steps=found.steps,
        report=report,
    )
    contrast_inputs = _Inputs(encoder, inputs, order, unlabelled_inputs, found.unlabelled_weight)
    contrast = fit_contrast(contrast_inputs, options, spec, seed=seed, report=report)
    fitted = Fitted(
        spec=spec,
        encoder=encoder,
        weights=weights,
        calibration=found.calibration.of(kept),
        target_shift=training.shift,
        target_scale=training.scale,
        steps=tuple(found.steps[kept].tolist()),
        validation=found.validation,
        rows=table.num_rows,
        training_sample=subsample(inputs[order.first_copies], seed),
        members=members,
        flat=labelled.flat,
        target_names=labelled.target_names,
        familiarity=Familiarity.of(found.novelty),
        held_out=found.held_out,
        contrast=contrast,
        conformal=found.conformal,
        unlabelled=0 if unlabelled_inputs is None else len(unlabelled_inputs),
    )
    if len(found.novelty):
        return fitted
    if searches and len(kept) == members:
        rehearse(spec, rows, weights, members=members, contrast=contrast and contrast.spread)
    # Nothing was held out: compared with the training rows themselves, new rows look a little less familiar.
    uncertainty = fitted.predict_encoded(fitted.training_sample).uncertainty
    return fitted._replace(familiarity=Familiarity.of(novelty(uncertainty)))


def _encoded_unlabelled(encoder: Encoder, labelled: LabelledTable) -> np.ndarray | None:
    """The unlabelled rows, encoded; None if there are none."""
    if labelled.unlabelled is None:
        return None
    try:
        return encoder.transform(labelled.unlabelled.table, first_row=labelled.unlabelled.numbers + 1)
    except UserError as error:
        raise UserError(f"unlabelled rows: {error}") from error


class _Inputs(NamedTuple):
    """Encoded rows to learn from, without their targets."""

    encoder: Encoder
    rows: np.ndarray
    order: RowOrder
    unlabelled: np.ndarray | None = None
    unlabelled_weight: float = 0.0


def fit_contrast(
    inputs: _Inputs, options: FitOptions, spec: Spec, *, seed: int, report: ProgressCallback
) -> Contrast | None:
    """Trains contrast networks on these rows; None if the method has none."""
    labels, weights = len(inputs.rows), inputs.order.weights
    networks = contrast_spec(options, spec)
    if networks is None:
        return None
    rows = padded_rows(inputs.rows, np.zeros((labels, 1), np.float32), inputs.order)
    number = contrast_networks.training_steps(len(number_columns(networks.groups)))
    steps, seeds = np.full(NETWORKS, number), member_seeds(seed, 3, NETWORKS)

    def train(pool: np.ndarray | None = None) -> Network:
        about = table_info(options, networks, inputs.encoder, inputs.rows, weights=weights, rows=labels, pool=pool)
        tables = [about] * NETWORKS
        return train_members(
            Engine.of(networks), rows, tables, seeds, labels=labels, steps=steps, report=report
        ).weights

    if inputs.unlabelled is None or not inputs.unlabelled_weight:
        return Contrast(networks, train())
    pool = contrast_pool([inputs.unlabelled], len(inputs.unlabelled), seed=seed)
    return Contrast(networks, train(), train(pool), inputs.unlabelled_weight)


def continue_fit(
    fitted: Fitted,
    labelled: LabelledTable,
    options: FitOptions,
    *,
    seed: int,
    epochs: int | None,
    report: ProgressCallback,
) -> Fitted:
    """Trains the members further. The encoding of columns and the calibration of predictions stay.

    Args:
        fitted: The ensemble so far.
        labelled: All rows, or with ``epochs`` the new ones.
        options: The present options of the estimator. Those that determine the weights must be the same as before.
        seed: Of all draws.
        epochs: Passes over the new rows; None trains for half as many steps as before, on all rows.
        report: Called with the progress.
    """
    targets = labelled.targets
    if targets.shape[1] != len(fitted.target_shift):
        raise UserError(f"y has {targets.shape[1]} outputs, and had {len(fitted.target_shift)} before; give as many")
    if options.members != fitted.members:
        raise UserError(_refused("members", options.members, fitted.members))
    if options.conformal_fraction:
        what = "conformal_fraction sets rows apart from a first training, and training that goes on has no guarantee"
        raise UserError(f"{what}; set it to 0, or train anew with warm_start=False and fit")
    if (labelled.unlabelled is None) != (not fitted.unlabelled):
        now, was = ("no", "some") if labelled.unlabelled is None else ("some", "none")
        what = f"{now} unlabelled rows are given, and {was} were when predictions were calibrated"
        raise UserError(f"{what}; give X_unlabelled as before, or train anew with warm_start=False and fit")
    inputs = fitted.encoder.transform(labelled.table)
    unlabelled_inputs = _encoded_unlabelled(fitted.encoder, labelled)
    order = RowOrder.of(inputs, targets, labelled.weights)
    inputs, targets = inputs[order.indices], targets[order.indices]
    count = len(inputs)
    standardised = ((targets - fitted.target_shift) / fitted.target_scale).astype(np.float32)
    before = 0 if epochs is None else fitted.rows  # `fit` is given all rows, `partial_fit` new ones
    if before + count < options.min_rows:
        raise UserError(f"{before + count} rows are fewer than min_rows={options.min_rows}; give more, or lower it")
    rows = padded_rows(inputs, standardised, order, labels_before=before)
    epochs = options.epochs if epochs is None else epochs
    fitted = fitted._replace(spec=_present_spec(options, fitted.spec, before + count))
    size = fitted.spec.settings.batch_size
    steps = np.asarray(fitted.steps) // 2 if epochs is None else np.full(len(fitted.steps), -(-epochs * count // size))
    engine = fitted.engine
    # The covariance of the noise is that of old and new rows together: a few new ones may all have the same value.
    columns = np.concatenate([fitted.training_sample, inputs])[:, number_columns(fitted.encoder.groups)]
    old = np.full(len(fitted.training_sample), fitted.rows / max(1, len(fitted.training_sample)))
    counts = np.concatenate([old, np.ones(count) if order.weights is None else order.weights])
    components = principal_components(columns, counts)
    prior = make_input_prior(options, engine.method, fitted.encoder, components, before + count)
    weights, kept = train_members(
        engine,
        rows,
        [TableInfo(None, prior, training_numbers(fitted.spec))] * len(steps),
        member_seeds(seed, 2, len(steps)),
        labels=count,
        steps=steps,
        report=report,
        weights=fitted.weights,
    )
    # New contrast networks: the old ones, trained on earlier rows alone, would call the new rows unfamiliar.
    weight = 0.0 if fitted.contrast is None else fitted.contrast.unlabelled_weight
    contrast_inputs = _Inputs(fitted.encoder, inputs, order, unlabelled_inputs, weight)
    if before:
        relative = (counts / counts.mean()).astype(np.float32)
        both = np.concatenate([fitted.training_sample, inputs])
        both_order = RowOrder(np.arange(len(both)), relative, np.ones(len(both), int))
        contrast_inputs = _Inputs(fitted.encoder, both, both_order, unlabelled_inputs, weight)
    contrast = fit_contrast(contrast_inputs, options, fitted.spec, seed=seed, report=report)
    total = tuple(int(before + new) for before, new in zip(np.asarray(fitted.steps)[kept], steps[kept], strict=True))
    new = inputs[order.first_copies]
    return fitted._replace(
        weights=weights,
        calibration=fitted.calibration.of(kept).with_contrast(options.contrast_scale),
        steps=total,
        rows=before + labelled.table.num_rows,
        contrast=contrast,
        unlabelled=0 if unlabelled_inputs is None else len(unlabelled_inputs),
        # These weights may have learned from the rows that were held out at first.
        conformal=NOTHING,
        validation=None,
        held_out=None,
        training_sample=subsample(np.concatenate([fitted.training_sample, new]) if before else new, seed),
    )


_STRUCTURE = ("hidden", "activation", "leaky_slope", "noise_floor", "belief_std", "bias_belief")
"""Settings that determine the shapes or the meaning of the weights."""


def _present_spec(options: FitOptions, spec: Spec, rows: int) -> Spec:
    """The specification with the present options; raises if the weights do not fit these."""
    settings = options.settings_for(rows)
    for name in ("method", "trunk"):  # parts of the user's own are compared by identity
        now, was = getattr(options, name), getattr(spec, name)
        if now is not was and not (isinstance(now, str) and now == was):
            raise UserError(_refused(name, now, was))
    for name in _STRUCTURE:
        if getattr(settings, name) != getattr(spec.settings, name):
            raise UserError(_refused(name, getattr(settings, name), getattr(spec.settings, name)))
    return spec._replace(settings=settings, input_prior=options.own_input_prior)


def _refused(name: str, now: object, was: object) -> str:
    now, was = (value if isinstance(value, str | int | float | tuple | None) else "another" for value in (now, was))
    kept = f"{name} is {now!r} and was {was!r} at first, and training that goes on keeps it"
    return f"{kept}; set it back, or train anew with warm_start=False and fit"
