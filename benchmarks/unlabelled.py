"""What unlabelled rows are worth, apart for rows that were contrast points and for rows like them that were not.

    python -m benchmarks.unseen FOLDER
    python -m benchmarks.unlabelled FOLDER/auto.csv FOLDER/cpus.csv

Of each table (target y) the middle third by an input, and then the largest fifth, is shifted. Half of the shifted rows
are unlabelled rows of the model, together with half of the rows like those of training that it does not learn from; the
other halves are known to nothing.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
from sklearn.metrics import roc_auc_score

from ncprior import NCPRegressor
from ncprior.data import table_files
from ncprior.data.splits import Split, gap_splits, tail_splits
from ncprior.tables.predictions import Distribution

_LIKE = 0.15
"""Share of the rows like those of training that is not learned from."""


def study(inputs: pa.Table, targets: np.ndarray, split: Split, *, members: int) -> None:
    rng = np.random.default_rng(0)
    train, shifted = rng.permutation(split.train), rng.permutation(split.test)
    cut = int(_LIKE * len(train))
    like, train = train[:cut], np.sort(train[cut:])
    pool = inputs.take(np.concatenate([shifted[::2], like[::2]]))
    for unlabelled in (None, pool):
        model = NCPRegressor(members=members, random_state=0).fit(
            inputs.take(train), targets[train], X_unlabelled=unlabelled
        )

        def predict(rows: np.ndarray, model: NCPRegressor = model) -> Distribution:
            return model.predict_distribution(inputs.take(rows))

        inside = predict(like[1::2]).uncertainty
        contrast = model.fitted_.contrast
        assert contrast is not None
        line = ["no" if unlabelled is None else f"yes, weight {contrast.unlabelled_weight:g}"]
        for rows in (shifted[::2], shifted[1::2]):
            found, truth = predict(rows), targets[rows]
            low, high = found.interval(0.9)
            density = np.mean(found.log_prob(truth)) + np.log(model.target_scale_[0])
            doubt = np.concatenate([found.uncertainty, inside])
            detected = roc_auc_score(np.repeat([1, 0], [len(rows), len(inside)]), doubt)
            line.append(f"{detected:.2f}, {density:.2f}, {100 * np.mean((low <= truth) & (truth <= high)):.0f}%")
        print(f"| {split.name} | {' | '.join(line)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--members", type=int, default=8)
    given = parser.parse_args()
    print("| shifted rows | unlabelled rows | those used: detection, log likelihood, covered | those never seen |")
    print("| --- | --- | --- | --- |")
    for path in given.tables:
        table = table_files.read(path)
        inputs, targets = table.drop_columns(["y"]), table["y"].to_numpy()
        for splits in (gap_splits(inputs), tail_splits(inputs)):
            study(inputs, targets, splits[0]._replace(name=f"{path.stem}, {splits[0].name}"), members=given.members)


if __name__ == "__main__":
    main()
