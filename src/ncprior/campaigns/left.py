"""Where uncertainty is left in the pool: overall, and along the columns in which it differs most."""

from itertools import pairwise
from typing import TypedDict

import numpy as np
import pyarrow as pa

from ncprior.campaigns.training import CampaignModel

_SAMPLE = 2_000
_BINS = 8
_COLUMNS = 3


class LeftInPart(TypedDict):
    """A part of a column's range: how many rows are in it, and their average uncertainty."""

    name: str
    rows: int
    uncertainty: float | None


class LeftInColumn(TypedDict):
    """The parts of a column's range, and the share of the variance of the uncertainty that they explain."""

    column: str
    share: float
    parts: list[LeftInPart]


class LeftUncertainty(TypedDict):
    """Quantiles (0.1, 0.5, 0.9) of the uncertainty of so many rows, and the columns in which it differs most."""

    rows: int
    low: float
    median: float
    high: float
    columns: list[LeftInColumn]


def left_uncertainty(model: CampaignModel, rows: pa.Table, excluded: np.ndarray, target: str) -> LeftUncertainty | None:
    """The uncertainty of a model about rows that have no label, as plain values to draw from.

    Args:
        model: The model.
        rows: Random rows of the pool.
        excluded: Which of them are labelled or out with people.
        target: What is predicted.
    """
    free = np.flatnonzero(~excluded)
    if not len(free):
        return None
    # Every so many, as rows may be sorted.
    sample = rows.take(pa.array(free[:: max(1, len(free) // _SAMPLE)][:_SAMPLE]))
    found = np.array([one.uncertainty for one in model.predict(sample)[target]])
    quantiles = [float(f"{value:.4g}") for value in np.quantile(found, (0.1, 0.5, 0.9))]
    columns = [_along(name, sample[name], found) for name in sample.column_names]
    best = sorted((one for one in columns if one), key=lambda one: -one["share"])[:_COLUMNS]
    return {"rows": len(found), "low": quantiles[0], "median": quantiles[1], "high": quantiles[2], "columns": best}


def _along(name: str, values: pa.ChunkedArray, found: np.ndarray) -> LeftInColumn | None:
    """The average uncertainty in parts of a column's range, and the share of the variance that the parts explain."""
    if pa.types.is_floating(values.type):
        numbers = values.to_numpy()
        there = ~np.isnan(numbers)
        if len(edges := np.unique(np.quantile(numbers[there], np.linspace(0, 1, _BINS + 1)))) < 3:
            return None
        part = np.where(there, np.clip(np.searchsorted(edges, numbers, "right") - 1, 0, len(edges) - 2), -1)
        names = [f"{low:.3g} to {high:.3g}" for low, high in pairwise(edges)]
    elif pa.types.is_large_string(values.type) or pa.types.is_boolean(values.type):
        texts = np.array([str(value) for value in values.to_pylist()], object)
        kinds, counts = np.unique(texts, return_counts=True)
        kinds = kinds[np.argsort(-counts, kind="stable")][:_BINS]
        if len(kinds) < 2:
            return None
        part = np.array([list(kinds).index(text) if text in kinds else -1 for text in texts])
        names = list(kinds)
    else:
        return None
    averages = [float(found[part == i].mean()) if (part == i).any() else None for i in range(len(names))]
    sizes = [int((part == i).sum()) for i in range(len(names))]
    explained = sum(
        size * (mean - found.mean()) ** 2 for size, mean in zip(sizes, averages, strict=True) if mean is not None
    )
    parts: list[LeftInPart] = [
        {"name": text, "rows": size, "uncertainty": None if mean is None else float(f"{mean:.4g}")}
        for text, size, mean in zip(names, sizes, averages, strict=True)
    ]
    return {"column": name, "share": float(explained / max(found.var() * len(found), 1e-300)), "parts": parts}
