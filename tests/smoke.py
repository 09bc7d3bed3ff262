"""Whether an installed package works at all: `python tests/smoke.py` with its environment, away from the sources."""

import tempfile
from pathlib import Path

import numpy as np

import ncprior


def main() -> None:
    """Fits, predicts, saves and loads a tiny model."""
    rows = np.random.default_rng(0).uniform(-1, 1, (30, 2))
    model = ncprior.NCPRegressor(members=2, epochs=2, random_state=0).fit(rows, rows[:, 0])
    mean, std = model.predict(rows, return_std=True)
    assert mean.shape == std.shape == (30,)
    assert (std > 0).all()
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.ncp")
        again = ncprior.load(Path(folder) / "model.ncp")
    np.testing.assert_array_equal(again.predict(rows), mean)
    print(f"ncprior {ncprior.__version__} in {Path(ncprior.__file__).parent}: fits, predicts, saves and loads")


if __name__ == "__main__":
    main()
