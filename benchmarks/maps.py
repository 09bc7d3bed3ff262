"""Maps of uncertainty and familiarity with and without the noise contrastive prior, for one input and for two.

    python -m benchmarks.maps docs/figures

Writes ``map-1d.png`` and ``map-2d.png``.
"""

import argparse
from pathlib import Path

import numpy as np

from ncprior import NCPRegressor
from ncprior.report.styles import NOISE, UNCERTAINTY, WIDE, figure_style, new_figure

ROWS = {"without NCP (gamma=0)": 0.0, "with NCP (default)": None}


def two_bands(rows: int = 120) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 1.5, rows) * rng.choice([-1, 1], rows)
    return x[:, None], np.sin(3 * x) + 0.1 * rng.normal(size=rows)


def crescent(rows: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 1.4 * np.pi, rows)
    points = np.column_stack([np.cos(angle), np.sin(angle)]) * (1 + 0.12 * rng.normal(size=rows))[:, None]
    return points, points[:, 0] * points[:, 1] + 0.05 * rng.normal(size=rows)


def fitted(inputs: np.ndarray, targets: np.ndarray) -> dict[str, NCPRegressor]:
    return {name: NCPRegressor(gamma=gamma, random_state=0).fit(inputs, targets) for name, gamma in ROWS.items()}


def one_input(file: Path) -> None:
    inputs, targets = two_bands()
    grid = np.linspace(-3, 3, 400)
    figure = new_figure(WIDE, 3.6)
    axes = figure.subplots(2, 2, sharex=True, sharey="row", height_ratios=[2, 1])
    for (name, model), (above, below) in zip(fitted(inputs, targets).items(), axes.T, strict=True):
        prediction = model.predict_distribution(grid[:, None])
        mean = prediction.mean
        above.fill_between(grid, mean - 2 * prediction.std, mean + 2 * prediction.std, color=NOISE, lw=0)
        width = 2 * prediction.uncertainty
        above.fill_between(grid, mean - width, mean + width, color=UNCERTAINTY, lw=0)
        above.plot(grid, mean, color="black", lw=1)
        above.plot(inputs[:, 0], targets, ".", color="black", ms=3)
        above.set(title=name, ylim=(-4, 4))
        below.plot(grid, prediction.familiarity, color="black", lw=1)
        below.set(xlabel="input", ylim=(0, 1.05))
    axes[0, 0].set_ylabel("target")
    axes[1, 0].set_ylabel("familiarity")
    labels = ["2 standard deviations of noise and uncertainty", "of uncertainty alone"]
    figure.legend(axes[0, 0].collections[:2], labels, loc="outside lower center", ncols=2)
    figure.savefig(file, dpi=160)


def two_inputs(file: Path) -> None:
    inputs, targets = crescent()
    ticks = np.linspace(-2.2, 2.2, 120)
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    maps = {}
    for name, model in fitted(inputs, targets).items():
        prediction = model.predict_distribution(grid)
        shape = (len(ticks), len(ticks))
        maps[name] = prediction.uncertainty.reshape(shape), prediction.familiarity.reshape(shape)
    highest = max(float(uncertainty.max()) for uncertainty, _ in maps.values())
    figure = new_figure(WIDE, 6.0)
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    for place, (name, shown) in enumerate(maps.items()):
        for row, (values, colours, top) in enumerate(zip(shown, ("Blues", "Greys_r"), (highest, 1.0), strict=True)):
            axis = axes[row, place]
            image = axis.pcolormesh(ticks, ticks, values, cmap=colours, vmin=0, vmax=top, rasterized=True)
            axis.plot(*inputs.T, ".", color="#CC3311", ms=1.5)
            axis.set_aspect("equal")
            if row == 0:
                axis.set_title(name)
            if place == 1:
                figure.colorbar(image, ax=axes[row], label=("uncertainty", "familiarity")[row])
    figure.savefig(file, dpi=160)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    with figure_style():
        one_input(folder / "map-1d.png")
        two_inputs(folder / "map-2d.png")


if __name__ == "__main__":
    main()
