"""Why a row is worth a label, in words: it is unlike the labelled rows, or the networks disagree about it."""

import numpy as np
import pyarrow as pa

from ncprior.data.encoding import Encoder
from ncprior.tables.fitted import Fitted

MOST_ROWS = 10_000
"""Rows, at most, for which reasons are found."""
_FAR = 0.9
"""A row is far if its nearest labelled row is further away than this quantile of nearest-neighbour distances."""
_MAIN = 0.25
"""Share of a squared distance from which on a column is named."""
_SAME = 1e-3
"""Distance of encoded rows below which they are the same."""
_BLOCK = 256


def reasons(fitted: Fitted, rows: pa.Table, uncertainty: np.ndarray, noise: np.ndarray) -> list[str]:
    """One reason for each row.

    Args:
        fitted: The trained ensemble, of whose training rows it keeps some.
        rows: Rows with the columns of training.
        uncertainty: Of their predictions, standard deviations.
        noise: Likewise.
    """
    labelled = fitted.training_sample
    inputs = fitted.encoder.transform(rows)
    names = column_names(fitted.encoder)
    typical = np.quantile(_nearest(labelled, labelled, itself=True)[0], _FAR) if len(labelled) > 1 else 0.0
    distances, nearest = _nearest(inputs, labelled)
    found = []
    for row, distance, neighbour, unsure, scatter in zip(inputs, distances, nearest, uncertainty, noise, strict=True):
        parts = _main_columns(row - labelled[neighbour], names)
        where = f" in {' and '.join(parts)}" if parts else ""
        if row[-1] > 0:
            found.append("has a value that no labelled row has" + (f", and is far from them{where}" if parts else ""))
        elif distance < _SAME:
            found.append("has the inputs of a labelled row: its label tells how much labels scatter")
        elif distance > typical:
            found.append(f"far from all labelled rows{where}")
        elif unsure > scatter:
            found.append(f"the networks disagree about it; differs from labelled rows{where or ' little'}")
        else:
            found.append(f"fills a space between labelled rows{where}")
    return found


def column_names(encoder: Encoder) -> list[str]:
    """The table's column for every column of the matrix; nothing for the flag of unexpected values."""
    names = [column.name for column in encoder.columns for _, parts in column.layout for _ in parts]
    return [*names, ""]


def _nearest(rows: np.ndarray, labelled: np.ndarray, *, itself: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Distance and number of the labelled row that is nearest to each row, not counting the row itself."""
    squares = (labelled**2).sum(1)
    found = [np.zeros(0, int)]
    distances = [np.zeros(0)]
    for start in range(0, len(rows), _BLOCK):
        part = rows[start : start + _BLOCK]
        between = (part**2).sum(1)[:, None] - 2 * part @ labelled.T + squares
        if itself:
            between[np.arange(len(part)), start + np.arange(len(part))] = np.inf
        nearest = between.argmin(1)
        found.append(nearest)
        distances.append(np.sqrt(np.maximum(between[np.arange(len(part)), nearest], 0)))
    return np.concatenate(distances), np.concatenate(found)


def _main_columns(difference: np.ndarray, names: list[str]) -> list[str]:
    """The one or two columns that make up most of a distance, the first of them most."""
    shares: dict[str, float] = {}
    for name, square in zip(names, difference**2, strict=True):
        if name:
            shares[name] = shares.get(name, 0.0) + float(square)
    total = sum(shares.values())
    ranked = sorted(shares, key=lambda name: -shares[name])[:2]
    return [name for name in ranked if total > 0 and shares[name] >= _MAIN * total]
