"""Does everything work here? Every method on a small table that is made up, and the metrics against integrals."""

import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.alternatives.methods import Method
from benchmarks.alternatives.metrics import Forecast, Mixture, Piecewise, scores


def check(methods: list[Method]) -> bool:
    """Prints what every method reaches on the table, and whether that is sane."""
    problems = check_metrics()
    inputs, targets = made_up(300)
    train, test = slice(0, 200), slice(200, None)
    trivial = float(np.mean(_normal_log_prob(targets[test], targets[train])))
    table = Table(
        "method", "log likelihood", "RMSE", "CRPS", "90% coverage", "seconds", title="Made-up table, 200 rows"
    )
    for method in methods:
        start = time.perf_counter()
        try:
            predict = method.fit(inputs[train], targets[train], 0)
            seconds = time.perf_counter() - start
            reached = scores(predict(inputs[test]), targets[test])
        except Exception as error:  # whatever goes wrong in a package is what this is there to show
            problems.append(f"{method.name}: {type(error).__name__}: {error}")
            continue
        problems += [f"{method.name}: {problem}" for problem in _insane(reached, trivial, method.name == "train-mean")]
        table.add_row(method.name, *(f"{value:.3f}" for value in reached.values()), f"{seconds:.1f}")
    Console().print(table)
    for problem in problems:
        print(f"PROBLEM: {problem}")
    print("something is wrong" if problems else "all is well")
    return not problems


def made_up(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three inputs, a bent function of two of them, noise with a standard deviation of 1.5."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(rows, 3))
    return inputs, 10 + 5 * (np.sin(2 * inputs[:, 0]) + inputs[:, 1] + 0.3 * rng.normal(size=rows))


def _normal_log_prob(y: np.ndarray, train: np.ndarray) -> np.ndarray:
    z = (y - train.mean()) / train.std()
    return np.asarray(-0.5 * z**2 - np.log(train.std()) - 0.5 * np.log(2 * np.pi))


def _insane(reached: dict[str, float], trivial: float, is_trivial: bool) -> list[str]:
    """What is wrong with the scores of a method on a table that is easy to predict."""
    problems = [f"{name} is {value}" for name, value in reached.items() if not np.isfinite(value)]
    if not 0.6 <= reached["coverage"] <= 1:
        problems.append(f"90% intervals cover {reached['coverage']:.0%}")
    if not is_trivial and reached["log_likelihood"] <= trivial:
        problems.append(f"log likelihood {reached['log_likelihood']:.2f} is no better than {trivial:.2f} of the mean")
    return problems


def check_metrics() -> list[str]:
    """Compares densities, distribution functions and CRPS with integrals on a fine grid."""
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(4), size=6)
    mixture = Mixture(weights, rng.normal(size=(6, 4)), rng.uniform(0.2, 1.0, size=(6, 4)))
    levels = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    quantiles = np.sort(rng.normal(size=(6, 5)), axis=1)
    pieces = Piecewise(np.zeros(6), levels, quantiles, floor=0.1, tail=0.3)
    grid = np.linspace(-30, 30, 60_001)
    problems = []
    forecasts: dict[str, Any] = {"mixture": mixture, "piecewise": pieces}
    for name, forecast in forecasts.items():
        y = rng.normal(size=6)
        for row in range(6):
            one = _row(forecast, row, len(grid))
            density, below = np.exp(one.log_prob(grid)), one.cdf(grid)
            crps = np.trapezoid((below - (grid >= y[row])) ** 2, grid)
            gaps = {
                "the density sums up": np.trapezoid(density, grid) - 1,
                "the distribution function is its integral": np.abs(np.cumsum(density) * 1e-3 - below).max(),
                "the CRPS is its integral": (float(forecast.crps(y)[row]) - crps) / crps,
            }
            problems += [f"{name}: {what}: {gap:.4f} off" for what, gap in gaps.items() if abs(gap) > 0.01]
    return problems


def _row(forecast: Any, row: int, copies: int) -> Forecast:
    """One row of a forecast, as often as it is to be asked."""

    def repeat(array: np.ndarray) -> np.ndarray:
        return np.broadcast_to(array[row], (copies, *array[row].shape))

    if isinstance(forecast, Mixture):
        return Mixture(repeat(forecast.weights), repeat(forecast.means), repeat(forecast.stds))
    point, quantiles = repeat(forecast.point), repeat(forecast.quantiles)
    return Piecewise(point, forecast.levels, quantiles, forecast.floor, forecast.tail)
