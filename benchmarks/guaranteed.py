"""What guaranteed intervals hold on many generated tables, with rows set apart and by the rows of the search.

    python -m benchmarks.guaranteed --tables 24

Every table has 200 rows of three inputs, and 1,000 new rows like them. The networks are small and few, as the guarantee
does not depend on how good they are.
"""

import argparse

import numpy as np

from ncprior import NCPRegressor

ROWS, NEW, LEVEL = 200, 1_000, 0.9

NOISE = ("of one size", "none", "heavy tails, its size by an input")


def table(noise: str, rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    inputs = rng.uniform(-1, 1, (rows, 3))
    first, second, third = inputs.T
    draws = {
        "of one size": 0.3 * rng.normal(size=rows),
        "none": np.zeros(rows),
        "heavy tails, its size by an input": (0.05 + 0.5 * np.abs(second)) * rng.standard_t(3, rows),
    }
    return inputs, np.sin(3 * first) + second * third + draws[noise]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=24)
    tables = parser.parse_args().tables
    print("| noise | rows for it | new rows inside, % | their width over that of the model's own intervals |")
    print("| --- | --- | --- | --- |")
    for noise in NOISE:
        for fraction in (0.0, 0.1):
            inside, width = [], []
            for seed in range(tables):
                rng = np.random.default_rng([seed, 1])
                (inputs, targets), (new, truth) = table(noise, ROWS, rng), table(noise, NEW, rng)
                model = NCPRegressor(members=2, hidden=(32,), conformal_fraction=fraction, random_state=seed)
                prediction = model.fit(inputs, targets).predict_distribution(new)
                low, high = prediction.interval(LEVEL, guaranteed=True)
                plain = prediction.interval(LEVEL)
                inside.append(np.mean((low <= truth) & (truth <= high)))
                width.append(np.mean(high - low) / np.mean(plain[1] - plain[0]))
            rest = "set apart" if fraction else "of the search"
            error = np.std(inside) / np.sqrt(tables)
            share = f"{100 * np.mean(inside):.1f} ± {100 * error:.1f}"
            print(f"| {noise} | {len(model.fitted_.conformal.scores)} {rest} | {share} | {np.mean(width):.2f} |")


if __name__ == "__main__":
    main()
