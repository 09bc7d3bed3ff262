"""Training of members for given numbers of steps, each on the same rows."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from ncprior.core.networks import Network
from ncprior.core.training import explain_failure
from ncprior.errors import UserError
from ncprior.tables.ensemble import Stretch, TableInfo
from ncprior.tables.member_rows import MemberRows
from ncprior.tables.programs import Engine
from ncprior.tables.progress import FitProgress, ProgressCallback


class TrainedMembers(NamedTuple):
    """The weights of the members whose loss stayed finite, and which members these are."""

    weights: Network
    members: np.ndarray


def train_members(
    engine: Engine,
    rows: MemberRows,
    tables: Sequence[TableInfo],
    seeds: np.ndarray,
    *,
    labels: int,
    steps: np.ndarray,
    report: ProgressCallback,
    weights: Network | None = None,
) -> TrainedMembers:
    """Trains members on the first ``labels`` rows, each for its number of steps.

    Fresh members, or those with these ``weights``. Those with equal numbers of steps are trained together.
    """
    total, done, ensemble = int(steps.sum()), 0, engine.ensemble
    report(FitProgress("training", 0, total, None))
    trained: dict[int, Network] = {}
    failures: dict[int, str] = {}
    for number in np.unique(steps):
        together = np.flatnonzero(steps == number)
        visible = [np.arange(labels)] * len(together)
        given = None if weights is None else take_members(weights, together)
        members = ensemble.start(rows, visible, [tables[int(i)] for i in together], seeds[together], given)
        # Often enough for progress to be seen and Ctrl-C to be heard.
        marks = np.unique(np.linspace(0, number, max(11, number // 500)).astype(int))
        for first, last in itertools.pairwise(marks):
            members = ensemble.train(members, rows, Stretch(labels, first, last))
            done += (last - first) * len(together)
            report(FitProgress("training", int(done), total, None))
        gathered = ensemble.gather(members)
        failed = np.concatenate([np.asarray(group.failed) for group in members])
        terms = np.concatenate([np.asarray(group.nonfinite_terms) for group in members])
        for position, i in enumerate(together):
            if failed[position] < 0:
                trained[int(i)] = take_members(gathered, position)
            else:
                failures[int(i)] = explain_failure(engine.method, int(failed[position]), int(terms[position]))
    if not trained:
        raise UserError(f"{failures[0]}; choose a smaller learning_rate, or look for extreme values in the table")
    kept = np.array(sorted(trained), int)
    return TrainedMembers(jax.tree.map(lambda *leaves: np.stack(leaves), *(trained[i] for i in kept)), kept)


def member_seeds(seed: int, purpose: int, members: int) -> np.ndarray:
    """A seed for every member, which does not depend on their number."""
    return np.random.SeedSequence([seed, purpose]).generate_state(members)


def take_members(weights: Network, members: np.ndarray | int) -> Network:
    """The weights of some members, from arrays with a leading axis of all."""
    return jax.tree.map(lambda leaf: leaf[members], weights)
