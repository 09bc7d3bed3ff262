"""The figures of the active learning experiments, each in two steps: collect plain values, then draw them."""

from typing import Literal, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ncprior.core.methods import method_style, split_name, title
from ncprior.experiments.paper.robustness import NO_NOISE, Setting
from ncprior.experiments.records import Records, Summary
from ncprior.experiments.runs import MethodFiles
from ncprior.report.styles import (
    GAIN,
    NARROW,
    NOISE,
    UNCERTAINTY,
    WIDE,
    add_legend,
    figure_style,
    legend_lines,
    new_figure,
    new_panels,
    note_above,
)

_PANELS = {
    "train_rmse": "Train RMSE",
    "train_nlpd": "Train NLPD",
    "test_rmse": "Test RMSE",
    "test_nlpd": "Test NLPD",
}

_NOISES: dict[str, Literal["-", "--"]] = {"gaussian": "-", "uniform": "--"}


class Curve(NamedTuple):
    """A metric against the number of visible labels: mean and standard deviation over the seeds."""

    labels: np.ndarray
    mean: np.ndarray
    std: np.ndarray


def collect_learning_curves(records: Records) -> dict[str, dict[str, Curve]]:
    """Curves by metric and method, from the last evaluation at every number of labels."""
    curves: dict[str, dict[str, Curve]] = {metric: {} for metric in _PANELS}
    for name in records.config["methods"]:
        columns = MethodFiles(records, name).metrics()
        labels = np.unique(columns["labels"])
        last = [columns["epoch"][columns["labels"] == count].max() for count in labels]
        for metric in _PANELS:
            values = [_finite(columns[metric][columns["epoch"] == epoch]) for epoch in last]
            curves[metric][name] = Curve(
                labels,
                np.array([value.mean() if len(value) else np.nan for value in values]),
                np.array([value.std() if len(value) else np.nan for value in values]),
            )
    return curves


def draw_learning_curves(curves: dict[str, dict[str, Curve]], unit: str = "", *, narrow: bool = False) -> Figure:
    """Train and test RMSE and NLPD against the number of labels, as in Figures 3 and 4 of the paper.

    The vertical axes show the best method and those near it. A method that leaves a panel is named above it, with its
    final value.
    """
    with figure_style():
        figure, axes = new_panels(len(_PANELS), 2.5, narrow=narrow)
        for axis, (metric, heading) in zip(axes, _PANELS.items(), strict=True):
            of = f" ({unit})" if unit and metric.endswith("rmse") else ""
            axis.set(title=heading + of, xlabel="Visible labels")
            low, high = _limits(curves[metric])
            gone = []
            for name, (labels, mean, std) in curves[metric].items():
                method = method_style(name)
                axis.plot(labels, mean, method.dash, color=method.colour)
                # The spread of a method that has left the panel would cover it all.
                inside = mean <= high
                axis.fill_between(labels, mean - std, mean + std, inside, color=method.colour, alpha=0.18, linewidth=0)
                if mean[-1] > high:
                    gone.append(f"{title(name)} ends at {_short(mean[-1])} ↑")
            axis.set_ylim(low, high)
            note_above(axis, gone)
        add_legend(figure, legend_lines(map(method_style, curves["test_rmse"])), narrow=narrow, columns=5)
        return figure


class Belief(NamedTuple):
    """Predictions of one seed of a method on a grid of inputs, and the points with visible and hidden labels."""

    x: np.ndarray
    mean: np.ndarray
    noise: np.ndarray
    uncertainty: np.ndarray
    score: np.ndarray
    visible: tuple[np.ndarray, np.ndarray]
    hidden: tuple[np.ndarray, np.ndarray]


def collect_beliefs(records: Records, seed: int = 0) -> dict[str, Belief]:
    """Predictions of one seed of every method, with the methods in the order of Figure 1."""
    data = records.read_table("data.parquet")
    beliefs = {}
    order = ["det", "det+ncp", "bbb", "odc+ncp", "bbb+ncp"]
    for name in sorted(records.config["methods"], key=lambda name: order.index(split_name(name)[0])):
        curve = records.read_table(f"curves/{name}.parquet")
        labels = records.read_table(f"labels/{name}.parquet")
        of_seed = {key: value[curve["seed"] == seed] for key, value in curve.items() if key != "seed"}
        seen = np.zeros(len(data["x"]), bool)
        seen[labels["row"][labels["seed"] == seed]] = True  # training rows come first in the data
        beliefs[name] = Belief(
            **of_seed, visible=(data["x"][seen], data["y"][seen]), hidden=(data["x"][~seen], data["y"][~seen])
        )
    return beliefs


def draw_beliefs(beliefs: dict[str, Belief], *, narrow: bool = False) -> Figure:
    """Predictive mean and two standard deviations, split into noise and uncertainty, as in Figure 1 of the paper."""
    count = len(beliefs)
    with figure_style():
        if narrow:
            figure = new_figure(NARROW, 0.6 + 2.7 * count)
            pairs = figure.subplots(2 * count, 1, squeeze=False, height_ratios=[4, 1] * count).reshape(count, 2)
        else:
            figure = new_figure(WIDE, 2.9)
            pairs = figure.subplots(2, count, sharex=True, squeeze=False, height_ratios=[4, 1]).T
        for (above, below), (name, belief) in zip(pairs, beliefs.items(), strict=True):
            x, mean = belief.x, belief.mean
            std = np.hypot(belief.noise, belief.uncertainty)
            above.fill_between(x, mean - 2 * std, mean + 2 * std, color=UNCERTAINTY, linewidth=0)
            above.fill_between(x, mean - 2 * belief.noise, mean + 2 * belief.noise, color=NOISE, linewidth=0)
            above.plot(x, mean, color="black", linewidth=1)
            above.plot(*belief.hidden, ".", color="#555555", markersize=0.8, alpha=0.45)
            above.plot(*belief.visible, "o", color="black", markersize=2.6, markeredgewidth=0)
            above.set(title=title(name), ylim=(-2.6, 2.6))
            # Each panel has a scale of its own: the score of a method without uncertainty is another one.
            low = min(belief.score.min(), 0.0)
            below.fill_between(x, low, belief.score, color=GAIN, linewidth=0)
            below.set(xlabel="x", ylim=(low, None), yticks=[], xlim=(x.min(), x.max()))
            above.set(xlim=(x.min(), x.max()))
            above.tick_params(labelbottom=False)
        for place, (above, below) in enumerate(pairs):
            if narrow or place == 0:
                above.set_ylabel("y")
                below.set_ylabel("score")
            else:
                above.set_yticklabels([])
        handles = [
            Patch(color=UNCERTAINTY, label="uncertainty (2 std)"),
            Patch(color=NOISE, label="noise (2 std)"),
            Patch(color=GAIN, label="score that labels are drawn by"),
            Line2D([], [], color="black", marker="o", markersize=3, linestyle="", label="visible"),
            Line2D([], [], color="#555555", marker=".", markersize=3, linestyle="", label="hidden"),
        ]
        add_legend(figure, handles, narrow=narrow, columns=5)
        return figure


def _finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]


def _limits(curves: dict[str, Curve]) -> tuple[float, float]:
    """Limits of the vertical axis: the whole curve of the best method, and of those that end near it."""
    curves = {name: curve for name, curve in curves.items() if np.isfinite(curve.mean[-1] + curve.std[-1])}
    if not curves:
        return 0.0, 1.0
    best = min(curves.values(), key=lambda curve: curve.mean[-1])
    top, bottom = np.nanmax(best.mean + best.std), np.nanmin(best.mean - best.std)
    height = max(top - bottom, 1e-6)
    near = [curve for curve in curves.values() if curve.mean[-1] + curve.std[-1] <= top + height]
    high = max([top, *(min(np.nanmax(curve.mean + curve.std), top + height) for curve in near)])
    low = min([bottom, *(np.nanmin(curve.mean - curve.std) for curve in near)])
    return low - 0.05 * height, high + 0.05 * height


def _short(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 1000 else f"{value:.0e}".replace("e+0", "e").replace("e+", "e")


def draw_robustness(
    results: dict[str, dict[Setting, dict[str, Summary]]], unit: str = "", *, narrow: bool = False
) -> Figure:
    """Final test RMSE and NLPD against the variance of the input noise, as in Figure 5 of the paper.

    Solid lines are Gaussian noise, dashed lines uniform noise. Level lines are baselines, which have no input noise.
    """
    with figure_style():
        figure, axes = new_panels(2, 2.9, narrow=narrow)
        level_lines = set()  # baselines that are not off the scale of both panels
        for axis, metric in zip(axes, ("test_rmse", "test_nlpd"), strict=True):
            of = f" ({unit})" if unit and metric == "test_rmse" else ""
            axis.set(title=_PANELS[metric] + of, xlabel=r"Variance of the input noise, $\sigma_x^2$")
            shown, levels = [], {}
            for name, table in results.items():
                colour = method_style(name).colour
                for noise, mark in _NOISES.items():
                    points = [(size, value[metric]) for (kind, size), value in table.items() if kind == noise]
                    if not points:
                        continue
                    sizes = np.array([size for size, _ in points])
                    mean, std = (np.array([value[key] for _, value in points], float) for key in ("mean", "std"))
                    axis.plot(sizes, mean, mark, color=colour, marker="o", markersize=2.5)
                    axis.fill_between(sizes, mean - std, mean + std, color=colour, alpha=0.12, linewidth=0)
                    shown += [*(mean - std), *(mean + std)]
                if NO_NOISE in table:
                    levels[name] = table[NO_NOISE][metric]["median"]
            shown = [value for value in shown if np.isfinite(value)] or [0.0, 1.0]
            height = max(shown) - min(shown) or 1.0
            gone = []
            for name, level in levels.items():
                if not np.isfinite(level):
                    continue
                if min(shown) - height <= level <= max(shown) + height:
                    axis.axhline(level, color=method_style(name).colour, linestyle=":", linewidth=1.3)
                    shown.append(level)
                    level_lines.add(name)
                else:
                    gone.append(f"{title(name)}: {_short(level)} {'↑' if level > max(shown) else '↓'}")
            axis.set_ylim(min(shown) - 0.05 * height, max(shown) + 0.05 * height)
            note_above(axis, gone)
        handles = [
            Line2D([], [], color=method_style(name).colour, linestyle=mark, label=f"{title(name)}, {noise}")
            for name, table in results.items()
            if NO_NOISE not in table
            for noise, mark in _NOISES.items()
        ]
        handles += [
            Line2D([], [], color=method_style(name).colour, linestyle=":", label=f"{title(name)} (median)")
            for name in results
            if name in level_lines
        ]
        add_legend(figure, handles, narrow=narrow, columns=3)
        return figure
