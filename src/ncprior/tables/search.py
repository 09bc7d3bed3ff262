"""The search: what rows that members hold out say of how long to train, how to calibrate, and how good that is.

Nothing of the rows that a member holds out reaches what it trains with: the encoding, the units of the target, the
quantiles that it sees and the shape of its noise come from the other rows alone. Only which columns the encoded rows
have is that of the whole table, so that the same programs serve the search and the final members.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ncprior.core.prediction import Predictive, mix, with_minimum_std
from ncprior.tables.calibration import Calibration, with_all_rows
from ncprior.tables.ensemble import HeldOut, Table
from ncprior.tables.families import Family, families
from ncprior.tables.holdout import Holdout, Stopping, hold_out
from ncprior.tables.member_rows import MemberRows
from ncprior.tables.programs import CDF, LOG_PROB, MEAN, Engine, Spec, chunked
from ncprior.tables.progress import FitProgress, Show
from ncprior.tables.recipe import MANY, LearningRows, equal_rows, for_members, number_columns, padded, table_of, units

_SEARCHERS = 4
"""Members that search if there are many rows."""


class Found(NamedTuple):
    """What held-out rows say."""

    steps: np.ndarray  # of training, for each member
    calibration: Calibration
    validation: dict[str, Any] | None  # what the members come to on rows that they have not seen


def search(
    model: Any, spec: Spec, learned: LearningRows, seed: int, seeds: np.ndarray, show: Show, copies: bool
) -> Found:
    """Trains members without some rows, for as long as these are predicted better.

    ``copies`` says that equal rows of the table stand for weights.
    """
    members, arranged = model.members, learned.arranged
    ensemble = Engine.of(spec).ensemble
    stopping = Stopping(gap=2 * model.validation_fraction, random=model.validation_fraction)
    searchers = members if len(learned.inputs) < MANY else min(members, _SEARCHERS)
    searching = families(searchers, quantiles=bool(spec.bins), stopping=stopping)
    final = families(members, quantiles=bool(spec.bins))
    # Some copies of rows are as likely among new rows. Where most rows have one, copies would give all of them away.
    equal = equal_rows(np.column_stack([learned.inputs, learned.targets]))
    often = np.bincount(equal[arranged.first])[equal] > 1
    same = equal if copies or np.mean(often) > 0.5 else np.cumsum(arranged.first) - 1
    columns = learned.inputs[:, number_columns(learned.encoder.groups)]
    held = hold_out(columns, searchers, stopping, np.random.default_rng(seed), equal=same, per_gap=len(searching))
    rows, told = told_without(model, spec, learned, held, searching, show)

    steps, found = np.zeros(members, int), [None] * searchers

    def tell(step: int, score: float) -> None:
        show(FitProgress("searching", step, stopping.most, score))

    for family, trained_later in zip(searching, final, strict=True):
        some = family.members
        part = ([rows[i] for i in some], [held[i] for i in some], [told[i] for i in some], seeds[some])
        best = ensemble.search(*part, family.stopping, tell)
        steps[trained_later.members] = best.steps
        for place, i in enumerate(some):
            found[i] = jax.tree.map(lambda leaf, place=place: leaf[place], best.weights)
    weights = jax.tree.map(lambda *leaves: np.stack(leaves), *found)
    out = ensemble.held_out(weights, rows, held)
    effective = [arranged.effective(part) for part in (held[0].train, np.concatenate(held[0][1:]))]

    def calibrated(counts: np.ndarray, those: tuple[Family, ...]) -> Calibration:
        """The calibration of the members of these families by the held-out rows that count."""
        return _calibration(out._replace(counts=counts), searching, those, effective)

    # Scores are of rows that did not calibrate: those of each half with what the other half says.
    random = held[0].random
    group = np.unique(same[random], return_inverse=True)[1]
    half = (np.random.default_rng(seed).permutation(group.max() + 1) % 2)[group]
    in_half = np.zeros(len(learned.inputs), int)
    in_half[random] = half
    halves = [
        out.counts * np.stack([np.ones_like(out.numbers[:, 0]), in_half[out.numbers[:, 1]] != i], 1) for i in (0, 1)
    ]
    predicted = ensemble.predict_rows(weights, rows, random)
    validation = _validate(predicted, [calibrated(counts, searching) for counts in halves], half, learned, random)
    return Found(steps, calibrated(out.counts, final), validation)


def told_without(
    model: Any, spec: Spec, learned: LearningRows, held: list[Holdout], families: Sequence[Family], show: Show
) -> tuple[list[MemberRows], list[Table]]:
    """The rows as each member has them, and what it is told of the table, both from what it does not hold out alone.

    Neighbours that hold out the same rows share theirs.
    """
    parts: dict[bytes, tuple[MemberRows, Table]] = {}
    for number, one in enumerate(held):
        show(FitProgress("preparing", number, len(held), None))
        key = one.gap.tobytes()
        if key in parts:
            continue
        seen = np.setdiff1d(np.arange(len(learned.inputs)), np.concatenate([one.gap, one.random]))
        places, weights = learned.arranged.places, learned.arranged.weights
        encoding = learned.encoder.refit(learned.table, np.unique(places[seen]))
        inputs = encoding.transform(learned.table)[places]
        counts = None if weights is None else weights[seen]
        # What is constant among the rows that a member sees is nothing to it, as a constant column of a table is left
        # out; and the unit of a constant target must not be that of the file.
        numbers = np.array(number_columns(learned.encoder.groups), int)
        inputs[:, numbers[np.ptp(inputs[seen][:, numbers], axis=0) == 0]] = 0
        shift, scale = units(learned.targets[seen], counts)
        varies = np.ptp(learned.targets[seen], axis=0) > 1e-12 * np.abs(shift)
        scale = np.where(varies, scale, learned.scale)
        targets = ((learned.targets - shift) / scale).astype(np.float32)
        unit = ((shift - learned.shift) / learned.scale, scale / learned.scale)
        rows = padded(inputs, targets, learned.arranged, *unit)
        parts[key] = rows, table_of(model, spec, learned.encoder, inputs[seen], counts, len(inputs))
    chosen = [parts[one.gap.tobytes()] for one in held]
    return [rows for rows, _ in chosen], for_members([told for _, told in chosen], families)


def _calibration(
    out: HeldOut, searching: tuple[Family, ...], final: tuple[Family, ...], effective: list[float]
) -> Calibration:
    """The calibration of the ``final`` families, from what those that were ``searching`` say of held-out rows.

    ``effective`` are the effective numbers of rows that these learned from and held out.
    """
    calibration = Calibration.equal(sum(len(family.members) for family in final))
    for searched, family in zip(searching, final, strict=True):
        scales = out.of(searched.members).best_scales()
        calibration.noise_scale[family.members], calibration.uncertainty_scale[family.members] = scales
    if len(final) == 2:
        smooth, sharp = final
        searchers = len(out.counts)
        share = out.best_share(Calibration(*(part[:searchers] for part in calibration)), *searching)
        for family, total in ((smooth, 1 - share), (sharp, share)):
            calibration.share[family.members] = total / len(family.members)
        # More rows make predictions on the data more exact, and change little off it.
        calibration.noise_scale[sharp.members] *= with_all_rows(*effective)
    return calibration


def _validate(
    predicted: Predictive, calibrations: list[Calibration], half: np.ndarray, learned: LearningRows, rows: np.ndarray
) -> dict[str, Any]:
    """What the members come to together on rows that none of them had seen, each half with its own calibration.

    Numbers, or lists of them if there are several outputs.
    """
    arranged = learned.arranged
    truth = ((learned.targets[rows] - learned.shift) / learned.scale).astype(np.float32)
    error, density, inside = (np.empty(truth.shape) for _ in range(3))
    for i, calibration in enumerate(calibrations):
        some = np.flatnonzero(half == i)
        if not len(some):
            continue
        part = calibration.apply(jax.tree.map(lambda leaf, some=some: leaf[:, some], predicted))
        whole = mix(part, jnp.asarray(calibration.share))
        whole = (
            with_minimum_std(whole, 1.0) if learned.encoder.width == 1 else whole
        )  # as `Fitted` predicts without inputs
        below = chunked(CDF, whole, truth[some])
        error[some] = chunked(MEAN, whole) - truth[some]
        density[some] = chunked(LOG_PROB, whole, truth[some])
        inside[some] = (below > 0.05) & (below < 0.95)
    mean = partial(np.average, axis=0, weights=None if arranged.weights is None else arranged.weights[rows])
    found = {
        "rmse": learned.scale * np.sqrt(mean(error**2)),
        "nlpd": np.log(learned.scale) - mean(density),
        "coverage": mean(inside),
    }
    flat = truth.shape[1] == 1
    numbers = {name: values.item() if flat else values.tolist() for name, values in found.items()}
    return {**numbers, "rows": int(arranged.first[rows].sum())}
