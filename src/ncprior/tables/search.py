"""The search: held-out rows say how long to train, how to calibrate, and how good the predictions are.

Nothing of the rows that a member holds out reaches what it trains with: the encoding, the units of the target, the
quantiles that it sees and the covariance of its noise come from the other rows alone. Only which columns the encoded
rows have is that of the whole table, so that the same programs serve the search and the final members. Where there are
unlabelled rows, the inputs of a gap count as such rows for the members that hold it out.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, NamedTuple, TypedDict

import jax
import numpy as np
from jax import Array

from ncprior.core.networks import Network
from ncprior.core.prediction import MixturePrediction, Predictive, mix, with_minimum_std
from ncprior.schema import AnyFloat, Range
from ncprior.tables import contrast as contrast_networks
from ncprior.tables.calibration import EXPONENT, Calibration, power, refit_noise_factor
from ncprior.tables.conformal import NOTHING, Conformal, scores_of
from ncprior.tables.ensemble import Stretch, TableInfo, groups
from ncprior.tables.familiarity import held_out_novelty, with_known_surroundings
from ncprior.tables.families import Family, families
from ncprior.tables.held_out import HeldOutPredictions
from ncprior.tables.holdout import GAP, RANDOM, Holdout, Stopping, hold_out, holdout_indices
from ncprior.tables.member_rows import MemberRows
from ncprior.tables.options import FitOptions
from ncprior.tables.programs import CDF, LOG_PROB, MEAN, STD, Engine, Spec, chunked
from ncprior.tables.progress import FitProgress, ProgressCallback
from ncprior.tables.recipe import (
    MANY_ROWS,
    TrainingRows,
    contrast_spec,
    duplicate_groups,
    for_families,
    number_columns,
    padded_rows,
    shift_and_scale,
    table_info,
)
from ncprior.tables.unlabelled import WEIGHT, best_weight, combined, contrast_pool

_SEARCHERS = 4
"""Members that search from `MANY_ROWS` on."""

_MANY_NUMBERS = 1_024
"""Numbers in a row above which a search may end earlier: the time of a step grows with them."""

Metric = AnyFloat | list[AnyFloat]


class Validation(TypedDict):
    """Scores on held-out rows: numbers, or with several outputs lists of one number for each."""

    rmse: Metric
    nlpd: Metric
    coverage: Metric
    rows: Annotated[int, Range(0, 2**31 - 1)]


def min_search_steps(numbers: int) -> int:
    """Steps of training that a search takes at least, for rows of so many numbers."""
    return Stopping.min_steps if numbers <= _MANY_NUMBERS else max(1, Stopping.min_steps * _MANY_NUMBERS // numbers)


def number_of_searchers(members: int, rows: int) -> int:
    """How many of the members search."""
    return members if rows < MANY_ROWS else min(members, _SEARCHERS)


class SearchResult(NamedTuple):
    """What was found on held-out rows: training steps, calibration and scores."""

    steps: np.ndarray  # of training, for each member
    calibration: Calibration
    validation: Validation | None = None
    novelty: np.ndarray = np.zeros(0)  # scores of held-out rows, see `ncprior.tables.familiarity`
    held_out: np.ndarray | None = None  # numbers of the rows that were held out at random
    conformal: Conformal = NOTHING  # errors of these rows
    unlabelled_weight: float = WEIGHT  # see `ncprior.tables.fitted.Contrast`


class ContrastData(NamedTuple):
    """Training data of contrast networks in the search: one entry for each member."""

    spec: Spec
    rows: list[MemberRows]
    tables: list[TableInfo]
    unlabelled_tables: list[TableInfo] | None = None  # of networks with unlabelled rows as contrast points


class MemberData(NamedTuple):
    """Training data of members in the search, without the rows that they hold out: one entry for each member."""

    rows: list[MemberRows]
    tables: list[TableInfo]
    contrast: ContrastData | None


class Contrasts(NamedTuple):
    """Output of contrast networks for rows that neither they nor the member were trained on."""

    held_out: np.ndarray  # [members, 2 * n], as `HeldOutPredictions.prediction`
    random: np.ndarray  # [members, rows]: of those at random

    def combined(self, unlabelled: "Contrasts | None", weight: float) -> "Contrasts":
        """Together with the output of networks with unlabelled rows."""
        if unlabelled is None:
            return self
        return Contrasts(*(np.asarray(combined(*pair, weight)) for pair in zip(self, unlabelled, strict=True)))


def contrast_of_members(
    data: ContrastData, holdouts: Sequence[Holdout], seeds: np.ndarray, report: ProgressCallback
) -> Contrasts:
    """Trains contrast networks without the rows that each member holds out, and applies them to these rows.

    Members that hold out the same rows share theirs.
    """
    engine = Engine.of(data.spec)
    ensemble = engine.ensemble
    indices, _ = holdout_indices(holdouts, len(holdouts), len(data.rows[0].inputs))
    held_out, random = np.empty((len(holdouts), indices[0].size), np.float32), []
    first = {one.gap.tobytes(): member for member, one in reversed(list(enumerate(holdouts)))}
    several = [member for member in sorted(first.values()) for _ in range(contrast_networks.SEARCHING_NETWORKS)]
    network_seeds = [np.random.SeedSequence([int(seeds[m]), i]).generate_state(1)[0] for i, m in enumerate(several)]
    rows, tables = [data.rows[m] for m in several], [data.tables[m] for m in several]
    members = ensemble.start(rows[0], [holdouts[m].train for m in several], tables, np.array(network_seeds))
    labels = len(holdouts[0].train)
    steps = contrast_networks.training_steps(len(number_columns(data.spec.groups)))
    for begin, end in itertools.pairwise(np.unique(np.linspace(0, steps, 4).astype(int))):
        members = ensemble.train(members, rows, Stretch(labels, int(begin), int(end)))
        report(FitProgress("preparing", int(end), steps, None))
    gathered = ensemble.gather(members)
    for member, one in enumerate(holdouts):
        of_gap = np.flatnonzero(np.array(several) == first[one.gap.tobytes()])
        of_gap = np.resize(of_gap, contrast_networks.NETWORKS)  # for which there is a program
        weights = engine.on_device(jax.tree.map(lambda leaf, of_gap=of_gap: leaf[of_gap], gathered))
        inputs = np.asarray(data.rows[member].inputs)
        held_out[member] = chunked(partial(engine.spread, weights), inputs[indices[member].reshape(-1)])
        random.append(chunked(partial(engine.spread, weights), inputs[one.random]))
    return Contrasts(held_out, np.stack(random))


def search(
    training: TrainingRows,
    options: FitOptions,
    spec: Spec,
    *,
    seed: int,
    seeds: np.ndarray,
    report: ProgressCallback,
    repeated: bool = False,
) -> SearchResult:
    """Trains members without some rows, for as long as these are predicted better.

    Args:
        training: The rows to learn from.
        options: The options of the estimator.
        spec: The specification of the programs.
        seed: Of the rows that are held out.
        seeds: Of the members' training.
        report: Called with the progress.
        repeated: Whether equal rows of the table stand for weights.
    """
    members, order = options.members, training.order
    ensemble = Engine.of(spec).ensemble
    stopping = Stopping(
        gap=min(0.5, 3 * options.validation_fraction),
        random=options.validation_fraction,
        min_steps=min_search_steps(len(number_columns(training.encoder.groups))),
    )
    searchers = number_of_searchers(members, len(training.inputs))
    searching = families(searchers, quantiles=bool(spec.bins), stopping=stopping)
    final = families(members, quantiles=bool(spec.bins))
    # Some copies of rows are as likely among new rows. Where most rows have one, copies would give all of them away.
    duplicates = duplicate_groups(np.column_stack([training.inputs, training.targets]))
    has_duplicate = np.bincount(duplicates[order.first_copies])[duplicates] > 1
    together = duplicates if repeated or np.mean(has_duplicate) > 0.5 else np.cumsum(order.first_copies) - 1
    columns = training.inputs[:, number_columns(training.encoder.groups)]
    rng = np.random.default_rng(seed)
    holdouts = hold_out(columns, searchers, stopping, rng, equal=together, per_gap=len(searching))
    rows, tables, contrast_data = member_data(training, options, spec, holdouts, families=searching, report=report)
    contrast = None if contrast_data is None else contrast_of_members(contrast_data, holdouts, seeds, report)
    unlabelled = None
    if contrast_data is not None and contrast_data.unlabelled_tables is not None:
        with_unlabelled = contrast_data._replace(tables=contrast_data.unlabelled_tables)
        unlabelled = contrast_of_members(with_unlabelled, holdouts, seeds, report)

    def show(step: int, score: float) -> None:
        report(FitProgress("searching", step, stopping.max_steps, score))

    steps = np.zeros(members, int)
    weights_of: dict[int, Network] = {}
    for family, trained_later in zip(searching, final, strict=True):
        indices = family.members
        best = ensemble.search(
            [rows[i] for i in indices],
            [holdouts[i] for i in indices],
            [tables[i] for i in indices],
            seeds[indices],
            stopping=family.stopping,
            report=show,
            extra=None if contrast is None else options.contrast_scale * power(contrast.held_out[indices], EXPONENT),
        )
        steps[trained_later.members] = best.steps
        for number, i in enumerate(indices):
            weights_of[int(i)] = jax.tree.map(lambda leaf, number=number: leaf[number], best.weights)
    weights = jax.tree.map(lambda *leaves: np.stack(leaves), *(weights_of[i] for i in range(searchers)))
    held_out = ensemble.predict_held_out(weights, rows, holdouts)
    if contrast is not None:
        seen_error = ensemble.error_of_seen(weights, rows, holdouts, order.weights)
        held_out = held_out._replace(contrast=contrast.held_out, seen_error=seen_error)
    first = holdouts[0]
    train, out = (order.effective_number(part) for part in (first.train, np.concatenate([first.gap, first.random])))

    def calibrated(counts: np.ndarray, of_families: tuple[Family, ...]) -> _Calibrated:
        """The calibration of the members of these families by the held-out rows that count."""
        factor, scale = refit_noise_factor(train, out), options.contrast_scale
        predictions, random_contrast, weight = held_out._replace(counts=counts), None, WEIGHT
        if contrast is not None:
            if unlabelled is not None:
                weight = best_weight(
                    lambda one: (
                        predictions._replace(contrast=contrast.combined(unlabelled, one).held_out)
                        .best_exponent(scale, _pairs(searching))
                        .score
                    )
                )
            both = contrast.combined(unlabelled, weight)
            predictions, random_contrast = predictions._replace(contrast=both.held_out), both.random
        found = calibrate(predictions, searching, of_families, refit_noise=factor, contrast_scale=scale)
        return _Calibrated(found, random_contrast, weight)

    # Scores are of rows that did not calibrate: those of each half with what the other half says.
    random = first.random
    group = np.unique(together[random], return_inverse=True)[1]
    half = (np.random.default_rng(seed).permutation(group.max() + 1) % 2)[group]
    in_half = np.zeros(len(training.inputs), int)
    in_half[random] = half
    gap_rows, random_rows = held_out.indices[:, GAP], held_out.indices[:, RANDOM]
    halves = [held_out.counts * np.stack([np.ones_like(gap_rows), in_half[random_rows] != i], 1) for i in (0, 1)]
    predicted = ensemble.predict_rows(weights, rows, random)
    calibrations = [calibrated(counts, searching) for counts in halves]
    in_gap = np.stack([np.asarray(one.random_in_gap) for one in holdouts])
    mixtures = list(_of_halves(predicted, calibrations, half, learned=training.encoder.width > 1))
    validation = _validate(mixtures, training=training, rows=random)
    conformal = NOTHING
    if order.weights is None and not repeated:  # else rows are not exchangeable
        # Of copies, which are held out together, one counts: they are not independent.
        first_copy = np.unique(group, return_index=True)[1]
        errors = _relative_errors(mixtures, in_gap, training.standardised[random])[first_copy]
        conformal = Conformal.of(errors, seed=seed, refitted=True)
    by_all = calibrated(held_out.counts, searching)
    scores = held_out_novelty(by_all.calibration, predicted, by_all.contrast, in_gap)
    rows_held_out = np.unique(order.indices[random])
    last = by_all if searchers == members else calibrated(held_out.counts, final)
    return SearchResult(steps, last.calibration, validation, scores, rows_held_out, conformal, last.unlabelled_weight)


class _Calibrated(NamedTuple):
    """A calibration, the contrast of the random rows, and the weight of the networks with unlabelled rows in it."""

    calibration: Calibration
    contrast: np.ndarray | None  # [members, rows]
    unlabelled_weight: float


def member_data(
    training: TrainingRows,
    options: FitOptions,
    spec: Spec,
    holdouts: Sequence[Holdout],
    *,
    families: Sequence[Family],
    report: ProgressCallback = lambda _: None,
) -> MemberData:
    """The training data of each member: encoding, units and features come only from the rows that it does not hold out.

    Members that hold out the same rows share theirs.
    """
    parts: dict[bytes, tuple[MemberRows, TableInfo]] = {}
    of_contrast: dict[bytes, tuple[MemberRows, TableInfo]] = {}
    unlabelled_tables: dict[bytes, TableInfo] = {}
    contrast = contrast_spec(options, spec)
    for number, one in enumerate(holdouts):
        report(FitProgress("preparing", number, len(holdouts), None))
        key = one.gap.tobytes()
        if key in parts:
            continue
        seen = np.setdiff1d(np.arange(len(training.inputs)), np.concatenate([one.gap, one.random]))
        indices, weights = training.order.indices, training.order.weights
        encoding = training.encoder.refit(training.table, np.unique(indices[seen]))
        inputs = encoding.transform(training.table)[indices]
        counts = None if weights is None else weights[seen]
        # A column that is constant among a member's rows is set to 0, as a constant column of a table is left out; and
        # a target that is constant among them is scaled as in the whole table.
        numbers = np.array(number_columns(training.encoder.groups), int)
        constant = numbers[np.ptp(inputs[seen][:, numbers], axis=0) == 0]
        inputs[:, constant] = 0
        shift, scale = shift_and_scale(training.targets[seen], counts)
        varies = np.ptp(training.targets[seen], axis=0) > 1e-12 * np.abs(shift)
        scale = np.where(varies, scale, training.scale)
        targets = ((training.targets - shift) / scale).astype(np.float32)
        unit = ((shift - training.shift) / training.scale, scale / training.scale)
        rows = padded_rows(inputs, targets, training.order, *unit)
        about = table_info(options, spec, training.encoder, inputs[seen], weights=counts, rows=len(inputs))
        parts[key] = rows, about
        if contrast is not None:
            about_table = partial(
                table_info, options, contrast, training.encoder, inputs[seen], weights=counts, rows=len(inputs)
            )
            of_contrast[key] = rows.with_zero_target(), about_table()
            if training.unlabelled is not None:
                unlabelled = encoding.transform(training.unlabelled)
                unlabelled[:, constant] = 0
                # As many rows of the gap as others: rows to be predicted are unlike the training rows, too.
                pool = contrast_pool([unlabelled, inputs[one.gap]], len(unlabelled), seed=number)
                unlabelled_tables[key] = about_table(pool=pool)
    keys = [one.gap.tobytes() for one in holdouts]
    infos = for_families([parts[key][1] for key in keys], families)
    if contrast is None:
        return MemberData([parts[key][0] for key in keys], infos, None)
    data = ContrastData(contrast, *([of_contrast[key][i] for key in keys] for i in range(2)))  # type: ignore[arg-type]
    if unlabelled_tables:
        data = data._replace(unlabelled_tables=[unlabelled_tables[key] for key in keys])
    return MemberData([parts[key][0] for key in keys], infos, data)


def _pairs(searching: tuple[Family, ...]) -> list[np.ndarray]:
    """The members that share a gap, one of each family."""
    gaps = min(len(family.members) for family in searching)
    return [np.array([family.members[i] for family in searching]) for i in range(gaps)]


def calibrate(
    held_out: HeldOutPredictions,
    searching: tuple[Family, ...],
    final: tuple[Family, ...],
    *,
    refit_noise: float,
    contrast_scale: float = 1.0,
) -> Calibration:
    """The calibration of the final members that predicts held-out rows best.

    Args:
        held_out: Predictions of the members that searched.
        searching: The families of these.
        final: The families of the members that are trained on all rows.
        refit_noise: A further factor of the noise of the final sharp members.
        contrast_scale: The uncertainty far from the data, if there are contrast networks.
    """
    calibration = Calibration.equal(sum(len(family.members) for family in final))
    if held_out.contrast is not None:
        best = held_out.best_exponent(contrast_scale, _pairs(searching))
        calibration = calibration.with_contrast(contrast_scale)
        calibration.noise_scale[:], calibration.contrast_exponent[:] = best.noise_scale, best.exponent
    else:
        for searched, family in zip(searching, final, strict=True):
            scales = held_out.of(searched.members).best_scales()
            calibration.noise_scale[family.members], calibration.uncertainty_scale[family.members] = scales
    if len(final) == 2:
        smooth, sharp = final
        searchers = len(held_out.counts)
        share = held_out.best_share(Calibration(*(part[:searchers] for part in calibration)), *searching)
        for family, total in ((smooth, 1 - share), (sharp, share)):
            calibration.share[family.members] = total / len(family.members)
        if held_out.contrast is None:
            # More rows make predictions on the data more exact, and change little off it.
            calibration.noise_scale[sharp.members] *= refit_noise
    return calibration


def rehearse(
    spec: Spec,
    rows: MemberRows,
    weights: Network,
    *,
    members: int,
    contrast: Callable[[np.ndarray], Array | np.ndarray] | None,
) -> None:
    """Compiles what a search needs besides training, on one row: for tables that grow until there is a search."""
    one = Holdout(np.arange(1), np.arange(1), np.arange(1))
    everyone = families(members, quantiles=bool(spec.bins))
    ensemble = Engine.of(spec).ensemble
    group = groups(members)[0]
    indices, _ = holdout_indices([one] * members, members, len(rows.inputs))
    ensemble.log_densities(jax.tree.map(lambda leaf: leaf[group], weights), rows, indices[group])
    held_out = ensemble.predict_held_out(weights, [rows] * members, [one] * members)
    if contrast is not None:
        inputs = np.asarray(rows.inputs)
        chunked(contrast, inputs[:1])  # as for the rows held out at random
        output = chunked(contrast, inputs[held_out.indices[0].reshape(-1)])
        held_out = held_out._replace(contrast=np.stack([output] * members))
    calibration = calibrate(held_out, everyone, everyone, refit_noise=1.0)
    part = jax.tree.map(lambda leaf: leaf[:, :1], held_out.prediction)
    mixture = mix(calibration.apply(part), calibration.share)
    _row_scores(mixture, held_out.targets[0, :1])
    chunked(STD, mixture)


class _RowScores(NamedTuple):
    """How a mixture predicts rows: arrays ``[rows, outputs]``."""

    error: np.ndarray
    density: np.ndarray
    inside: np.ndarray  # whether the 90% interval holds the target


def _row_scores(mixture: MixturePrediction, truth: np.ndarray) -> _RowScores:
    below = chunked(CDF, mixture, truth)
    return _RowScores(
        chunked(MEAN, mixture) - truth, chunked(LOG_PROB, mixture, truth), (below > 0.05) & (below < 0.95)
    )


class _Half(NamedTuple):
    """Predictions of one half of the rows held out at random, calibrated by the other half."""

    rows: np.ndarray
    mixture: MixturePrediction


def _of_halves(
    predicted: Predictive,
    calibrations: Sequence[_Calibrated],
    half: np.ndarray,
    *,
    learned: bool,
) -> Iterator[_Half]:
    """Predictions of the rows held out at random, each half with its own calibration."""
    for i, (calibration, contrast, _) in enumerate(calibrations):
        rows = np.flatnonzero(half == i)
        if not len(rows):
            continue
        of_half = jax.tree.map(lambda leaf, rows=rows: leaf[:, rows], predicted)
        part = calibration.apply(of_half, None if contrast is None else contrast[:, rows])
        mixture = mix(part, calibration.share)
        yield _Half(rows, mixture if learned else with_minimum_std(mixture, 1.0))  # as `Fitted` without inputs


def _relative_errors(halves: Sequence[_Half], in_gap: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Scores of the rows for `Conformal`, by the members trained on their surroundings, as all are in the end."""
    errors = np.empty(truth.shape)
    for rows, mixture in halves:
        mixture = with_known_surroundings(mixture, in_gap[:, rows])
        errors[rows] = scores_of(chunked(MEAN, mixture), chunked(STD, mixture), truth[rows])
    return errors


def _validate(halves: Sequence[_Half], *, training: TrainingRows, rows: np.ndarray) -> Validation:
    """Scores of the predictions of these rows."""
    order = training.order
    truth = training.standardised[rows]
    error, density, inside = (np.empty(truth.shape) for _ in range(3))
    for part, mixture in halves:
        error[part], density[part], inside[part] = _row_scores(mixture, truth[part])
    mean = partial(np.average, axis=0, weights=None if order.weights is None else order.weights[rows])
    flat = truth.shape[1] == 1

    def plain(values: np.ndarray) -> Metric:
        return values.item() if flat else values.tolist()

    return {
        "rmse": plain(training.scale * np.sqrt(mean(error**2))),
        "nlpd": plain(np.log(training.scale) - mean(density)),
        "coverage": plain(mean(inside)),
        "rows": int(order.first_copies[rows].sum()),
    }
