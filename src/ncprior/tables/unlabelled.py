"""Unlabelled rows as contrast points: the model learns to be unsure about rows like those that it will predict.

Contrast networks (see `ncprior.tables.contrast`) compare the density of training rows with that of contrast points,
which are training rows with noise. Beside them there are as many for which half of the points are unlabelled rows:
these are unsure wherever unlabelled rows are and training rows are not, also where noise hardly ever leads. They find
where to be unsure, and not how much: on a smooth table, a row without neighbours may be easy to predict. So the
variance of a row is a weighted mean of the outputs of both kinds, and held-out rows choose the weight, see
`best_weight`.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa
from jax import Array

from ncprior.data.sampling import NumberedRows, draw_rows, numbered
from ncprior.errors import UserError
from ncprior.tables.programs import padded_size

MAX_ROWS = 16_384
"""Unlabelled rows, at most, that contrast points are drawn from."""

_MAX_NUMBERS = 1 << 22
"""Numbers in these rows, at most: every contrast network has a copy."""

SHARE = 0.5
"""Share of the contrast points of these networks that are unlabelled rows; the others are training rows with noise."""


WEIGHT = 0.25
"""The weight of these networks if no rows are held out to choose it."""

_WEIGHTS = (0.0, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)

_WORTH = 0.01
"""Of the weights that cost held-out rows no more than this, in nats, the largest is chosen."""


def combined(noised: np.ndarray | Array, unlabelled: np.ndarray | Array, weight: float) -> np.ndarray | Array:
    """The output of both kinds of networks together: the root of the weighted mean of their variances."""
    return ((1 - weight) * noised**2 + weight * unlabelled**2) ** 0.5


def best_weight(score: Callable[[float], float]) -> float:
    """The largest weight of the networks with unlabelled rows that hardly makes predictions of held-out rows worse.

    Args:
        score: The mean log density of held-out rows with a weight.

    >>> best_weight(lambda weight: -weight), best_weight(lambda weight: 0.0)
    (0.0, 1.0)
    """
    scores = [score(weight) for weight in _WEIGHTS]
    return max(weight for weight, one in zip(_WEIGHTS, scores, strict=True) if one >= max(scores) - _WORTH)


def draw(pieces: Iterable[pa.Table], seed: int, most: int = MAX_ROWS) -> NumberedRows:
    """At most so many of the rows of a table, drawn at random in one pass over its pieces.

    Raises:
        UserError: If there are no rows.
    """
    drawn = draw_rows(numbered(pieces), most, np.random.default_rng([seed, 5]))
    if drawn is None or not drawn.seen:
        raise UserError("there are no unlabelled rows; give at least one, or leave them out")
    return drawn.rows


def contrast_pool(parts: Sequence[np.ndarray], rows: int, *, seed: int) -> np.ndarray:
    """Encoded rows for `ncprior.core.table_priors.FromPool`: as many of each part, however many it has.

    Args:
        parts: Encoded rows of every kind; kinds without rows are left out.
        rows: How many unlabelled rows there are, which the size of the pool depends on: so one program serves pools of
            about the same size.
        seed: Of the rows that are drawn where there is no room for all.
    """
    width = parts[0].shape[1]
    size = min(padded_size(rows), MAX_ROWS, max(256, 1 << (_MAX_NUMBERS // width).bit_length() - 1))
    rng = np.random.default_rng([seed, 6])
    filled = [rng.permutation(part) for part in parts if len(part)]
    ends = np.linspace(0, size, len(filled) + 1).astype(int)
    chosen = [np.resize(part, (many, width)) for part, many in zip(filled, np.diff(ends), strict=True)]
    return np.concatenate(chosen).astype(np.float32)
