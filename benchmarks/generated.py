"""Tables with a known truth: is noise told from uncertainty, and are intervals right on the data and off it?

    python -m benchmarks.generated apart --seeds 3
    python -m benchmarks.generated shapes --seeds 3
    python -m benchmarks.generated steps --seeds 3

`apart` compares the noise with the true one, and the uncertainty with the true error of the mean, at new rows like
those of training. `shapes` holds out the middle third of the first input (of the last table, the middle four of ten
clusters) and compares log likelihoods with those of a Gaussian process and of one normal for all rows. `steps` compares
the error on noise-free tables after some numbers of steps, with GELUs in smooth members and with leaky ReLUs in all.
"""

import argparse
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.preprocessing import StandardScaler

from ncprior import NCPRegressor

Rows = np.ndarray
NEW = 1_000
"""New rows on which `apart` is measured."""


class Known(NamedTuple):
    """A function with known noise."""

    inputs: Callable[[int, np.random.Generator], Rows]
    mean: Callable[[Rows], np.ndarray]
    noise: Callable[[Rows], np.ndarray]


def two_bands(rows: int, rng: np.random.Generator) -> Rows:
    return (rng.uniform(0.5, 1.5, rows) * rng.choice([-1, 1], rows))[:, None]


def uniform(columns: int) -> Callable[[int, np.random.Generator], Rows]:
    return lambda rows, rng: rng.uniform(-1, 1, (rows, columns))


def constant(noise: float) -> Callable[[Rows], np.ndarray]:
    return lambda rows: np.full(len(rows), noise)


KNOWN = {
    "sin(2x) in two bands, noise 0.1": Known(two_bands, lambda x: np.sin(2 * x[:, 0]), constant(0.1)),
    "sum of 4 inputs, noise 0.3": Known(
        uniform(4), lambda x: x[:, 0] + np.sin(2 * x[:, 1]) + 0.5 * x[:, 2], constant(0.3)
    ),
    "2 inputs, noise 0.1 or 0.5": Known(
        uniform(2), lambda x: np.sin(3 * x[:, 0]) + x[:, 1], lambda x: np.where(x[:, 1] > 0, 0.5, 0.1)
    ),
    "6 inputs that interact, noise 0.2": Known(
        uniform(6), lambda x: np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3], constant(0.2)
    ),
}


def root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def apart(seeds: int) -> None:
    print("| table | rows | noise / true noise | uncertainty / true error of the mean | without NCP |")
    print("| --- | --- | --- | --- | --- |")
    for name, known in KNOWN.items():
        for rows in (100, 400, 1_600):
            found: list[list[float]] = []
            for seed in range(seeds):
                rng = np.random.default_rng([seed, rows])
                inputs, new = known.inputs(rows, rng), known.inputs(NEW, rng)
                targets = known.mean(inputs) + known.noise(inputs) * rng.normal(size=rows)
                ratios = []
                for gamma in (None, 0.0):
                    model = NCPRegressor(gamma=gamma, random_state=seed).fit(inputs, targets)
                    prediction = model.predict_distribution(new)
                    error = root_mean_square(prediction.mean - known.mean(new))
                    ratios += [
                        root_mean_square(prediction.noise) / root_mean_square(known.noise(new)),
                        root_mean_square(prediction.uncertainty) / error,
                    ]
                found.append(ratios)
            noise, uncertainty, noise_without, uncertainty_without = np.mean(found, 0)
            without = f"{noise_without:.2f}, {uncertainty_without:.1f}"
            print(f"| {name} | {rows} | {noise:.2f} | {uncertainty:.1f} | {without} |", flush=True)


class Split(NamedTuple):
    """Rows to learn from, and rows on the data and off it."""

    train: np.ndarray
    on: np.ndarray
    off: np.ndarray


def smooth(rng: np.random.Generator) -> tuple[Rows, np.ndarray]:
    x = rng.uniform(-1, 1, (495, 6))
    return x, np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3] ** 2 + np.cos(x[:, 4] + x[:, 5])


def step(rng: np.random.Generator) -> tuple[Rows, np.ndarray]:
    x = rng.uniform(-1, 1, (600, 5))
    return x, 2.0 * (x[:, 1] > 0.2) + (x[:, 2] < -0.3) * (x[:, 0] > 0) + 0.1 * rng.normal(size=600)


def collinear(rng: np.random.Generator) -> tuple[Rows, np.ndarray]:
    hidden = rng.normal(size=(600, 3))
    x = hidden @ rng.normal(size=(3, 8)) + 0.02 * rng.normal(size=(600, 8))
    return x, np.sin(hidden[:, 0]) + 0.5 * hidden[:, 1] * hidden[:, 2] + 0.1 * rng.normal(size=600)


def clusters(rng: np.random.Generator) -> tuple[Rows, np.ndarray]:
    number = np.repeat(np.arange(10), 1_000)
    along = np.linspace(-2, 2, 10)[number] + 0.08 * rng.normal(size=len(number))
    hidden = np.column_stack([along, np.sin(1.3 * along), 0.1 * rng.normal(size=(len(number), 2))])
    target = np.tanh(along) + 0.5 * hidden[:, 1] + 1.5 * hidden[:, 2] ** 2
    return hidden @ rng.normal(size=(4, 16)), target


SHAPES = {
    "smooth, 6 inputs, no noise": smooth,
    "steps, 5 inputs": step,
    "nearly collinear, 8 inputs": collinear,
    "ten clusters, 16 collinear inputs, no noise": clusters,
}


def split(name: str, inputs: Rows, rng: np.random.Generator) -> Split:
    rows = len(inputs)
    inside = np.zeros(rows, bool)
    if "clusters" in name:
        inside[3_000:7_000] = True
    else:
        inside[np.argsort(inputs[:, 0])[rows // 3 : 2 * rows // 3]] = True
    rest = rng.permutation(np.flatnonzero(~inside))
    return Split(rest[len(rest) // 10 :], rest[: len(rest) // 10], np.flatnonzero(inside))


def normal_density(mean: np.ndarray, std: np.ndarray, targets: np.ndarray) -> float:
    return float(np.mean(-0.5 * ((targets - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)))


def shapes(seeds: int) -> None:
    print("| table | rows | log likelihood on the data: ncprior, GP | off it: ncprior, GP, one normal | covered |")
    print("| --- | --- | --- | --- | --- |")
    for name, make in SHAPES.items():
        found = []
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            inputs, targets = make(rng)
            train, on, off = split(name, inputs, rng)
            model = NCPRegressor(random_state=seed).fit(inputs[train], targets[train])
            unit = StandardScaler().fit(inputs[train])
            kernel = ConstantKernel() * RBF(np.ones(inputs.shape[1])) + WhiteKernel(1e-3, (1e-8, 1e1))
            some = train[:1_000]
            process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a bound of the kernel is reached
                process.fit(unit.transform(inputs[some]), targets[some])
            row = []
            for part in (on, off):
                prediction = model.predict_distribution(inputs[part])
                low, high = prediction.interval(0.9)
                mean, std = process.predict(unit.transform(inputs[part]), return_std=True)
                row += [
                    float(np.mean(prediction.log_prob(targets[part]))),
                    normal_density(mean, std, targets[part]),
                    float(np.mean((low <= targets[part]) & (targets[part] <= high))),
                ]
            alone = normal_density(targets[train].mean(), targets[train].std(), targets[off])
            found.append([*row, alone, len(train)])
        ours, process_on, inside, ours_off, process_off, inside_off, alone, rows = np.mean(found, 0)
        off_data = f"{ours_off:.2f}, {process_off:.2f}, {alone:.2f}"
        print(
            f"| {name} | {rows:.0f} | {ours:.2f}, {process_on:.2f} | {off_data} | {inside:.0%}, {inside_off:.0%} |",
            flush=True,
        )


def friedman(rng: np.random.Generator) -> tuple[Rows, np.ndarray]:
    x = rng.uniform(0, 1, (308, 8))
    return x, 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]


def designed(rng: np.random.Generator) -> tuple[Rows, np.ndarray]:
    """A designed experiment: each input has few values, and the target rises with a power of one of them."""
    x = np.column_stack([rng.choice(np.linspace(-1, 1, values), 308) for values in (5, 5, 4, 5, 4, 14)])
    speed = (x[:, 5] + 1.5) / 2.5
    return x, 60 * speed**5 * (1 + 0.1 * x[:, 1] + 0.1 * x[:, 3]) + 5 * x[:, 2] * speed


NOISE_FREE = {"smooth, 6 inputs": smooth, "friedman, 8 inputs": friedman, "designed, 6 inputs": designed}
STEPS = (400, 2_000, 10_000)


def steps(seeds: int) -> None:
    print(
        f"| table | rows | activation | error after {', '.join(f'{number:,}' for number in STEPS)} steps | searched |"
    )
    print("| --- | --- | --- | --- | --- |")
    for name, make in NOISE_FREE.items():
        for activation in ("gelu", "leaky_relu"):
            found = []
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                inputs, targets = make(rng)
                train, test = np.split(rng.permutation(len(inputs)), [len(inputs) * 3 // 4])
                each = -(-len(train) // 64)  # steps of an epoch
                errors = []
                for epochs in (*(number // each for number in STEPS), None):
                    given = {} if activation == "gelu" else {"activation": activation}
                    model = NCPRegressor(members=4, epochs=epochs, settings=given, random_state=seed)
                    model.fit(inputs[train], targets[train])
                    error = root_mean_square(model.predict(inputs[test]) - targets[test])
                    errors.append(error / targets[train].std())
                found.append([*errors, model.steps_[0]])
            *fixed, searched, long = np.mean(found, 0)
            row = ", ".join(f"{error:.3f}" for error in fixed)
            print(f"| {name} | {len(train)} | {activation} | {row} | {searched:.3f}, {long:,.0f} steps |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["apart", "shapes", "steps"])
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    {"apart": apart, "shapes": shapes, "steps": steps}[given.what](given.seeds)


if __name__ == "__main__":
    main()
