"""Rows to begin with, before there is a model: far from each other and from those that are labelled."""

from collections.abc import Mapping

import numpy as np

from ncprior.campaigns.inputs import Inputs, from_json
from ncprior.campaigns.pool import Pool, PoolRow
from ncprior.data.encoding import Encoder

COUNT = 100
"""Rows that are spread: enough for the time until the first model."""

_CANDIDATES = 5_000
"""Random rows of the pool from which they are picked."""


def spread_rows(pool: Pool, labelled: Mapping[str, Inputs], count: int = COUNT) -> list[PoolRow]:
    """Rows of the pool, one after the other by k-means++ in ranks of the encoded inputs.

    The next row is drawn with a probability that grows with the square of its distance to the nearest row before it
    (Arthur and Vassilvitskii, 2007); the first one is drawn at random if no row is labelled.

    Args:
        pool: The rows to pick from.
        labelled: Inputs of labelled rows, by id.
        count: How many to pick, or as many as there are.
    """
    table, keys = pool.take_table(pool.random_rows(0, _CANDIDATES))
    encoder = Encoder.fit(table)
    columns = encoder.transform(table)
    ordered = np.sort(columns, axis=0)
    ranks = _ranks(columns, ordered)
    distance = np.ones(len(ranks))
    if labelled:
        known = _ranks(encoder.transform(from_json(list(labelled.values()), pool.kinds)), ordered)
        distance = np.min([((ranks - row) ** 2).sum(axis=1) for row in known[:1_000]], axis=0)
    free = np.array([key not in labelled for key in keys])
    generator, picked = np.random.default_rng(pool.seed), list[int]()
    for _ in range(min(count, int(free.sum()))):
        weights = np.where(free, distance, 0.0)
        weights = weights if weights.sum() > 0 else free.astype(float)  # all that is left equals what is picked
        row = int(generator.choice(len(weights), p=weights / weights.sum()))
        distance = ((ranks - ranks[row]) ** 2).sum(axis=1) if not picked and not labelled else distance
        distance = np.minimum(distance, ((ranks - ranks[row]) ** 2).sum(axis=1))
        free[row] = False
        picked.append(row)
    return pool.take(pool.random_rows(0, _CANDIDATES)[picked])


def _ranks(rows: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Ranks of values among those of the candidates, column by column, from 0 to 1."""
    ranks = [
        np.searchsorted(column, values, "left") + np.searchsorted(column, values, "right")
        for values, column in zip(rows.T, ordered.T, strict=True)
    ]
    return np.array(ranks).T / (2 * len(ordered))
