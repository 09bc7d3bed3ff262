"""Figures of ``ncprior evaluate``: calibration, errors, refusal, detection, coverage by familiarity."""

from collections.abc import Iterable
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter, NullLocator, StrMethodFormatter

from ncprior.experiments.conditional_coverage import EDGES, RANGES
from ncprior.experiments.evaluate_results import MethodResult
from ncprior.experiments.records import Summary
from ncprior.experiments.variants import method_style
from ncprior.report.styles import add_legend, figure_style, label, legend_lines, new_panels

Detected = Literal["detection", "shuffled", "far"]
Methods = dict[str, MethodResult]
FEWEST_ROWS = 10
"""Groups by familiarity that have fewer rows are not drawn: chance alone would say how many are covered."""
_BEHIND = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
_DETECTED: dict[Detected, str] = {"detection": "", "shuffled": "Shuffled rows", "far": "Far rows"}


def draw_trust(methods: Methods, unit: str, *, narrow: bool = False) -> Figure:
    """Draw the calibration curve, error against uncertainty, and the error of rows kept when others are refused."""
    with figure_style():
        figure, axes = new_panels(3, 2.9, narrow=narrow)
        _draw_calibration(axes[0], methods)
        _draw_errors(axes[1], methods, unit)
        _draw_risk(axes[2], methods, unit)
        _add_legend(figure, methods, narrow=narrow)
        return figure


def detected(methods: Methods) -> list[Detected]:
    """The kinds of rows whose detection any method has."""
    return [kind for kind in _DETECTED if any(kind in of for of in methods.values())]


def draw_detection(methods: Methods, test_rows: str, *, narrow: bool = False) -> Figure:
    """Draw bars of detection for each kind of rows, methods below each other.

    Args:
        methods: Results by method.
        test_rows: What test rows are called.
        narrow: Whether panels are below each other.
    """
    kinds = detected(methods)
    names = [name for name, of in methods.items() if any(kind in of for kind in kinds)]
    with figure_style():
        figure, axes = new_panels(len(kinds), 0.9 + 0.23 * len(names), narrow=narrow)
        for i, (axis, kind) in enumerate(zip(axes, kinds, strict=True)):
            title = _DETECTED[kind] or test_rows.capitalize()
            _draw_bars(axis, {name: methods[name].get(kind) for name in names}, title, named=narrow or i == 0)
        return figure


def draw_familiarity(methods: Methods, *, narrow: bool = False) -> Figure:
    """Draw coverage, and width against need, of groups by familiarity."""
    shown = {
        name: [group for group in of["groups"] if group["test"] + group["like"] >= FEWEST_ROWS]
        for name, of in methods.items()
        if of["groups"]
    }
    with figure_style():
        figure, axes = new_panels(2, 2.7, narrow=narrow)
        for name, groups in shown.items():
            style = method_style(name)
            indices = [EDGES.index(group["low"]) for group in groups]
            marks = {"color": style.colour, "marker": style.marker, "markersize": 3}
            axes[0].plot(indices, [_value(group["coverage"]) for group in groups], style.dash, **marks)  # type: ignore[arg-type]
            ratios = [_value(group["width"]) / _value(group["need"]) if group["need"] else np.nan for group in groups]
            axes[1].plot(indices, ratios, style.dash, **marks)  # type: ignore[arg-type]
        labels = [f"{low:g} to {high:g}" for low, high in RANGES]
        for axis, goal in zip(axes, (0.9, 1.0), strict=True):
            axis.axhline(goal, color="#BBBBBB", linewidth=0.8, zorder=0)
            axis.set(
                xlabel="Familiarity", xticks=range(len(labels)), xticklabels=labels, xlim=(-0.3, len(labels) - 0.7)
            )
        axes[0].set(title="Coverage by familiarity", ylabel="Inside 90% intervals", ylim=(None, 1.02))
        axes[1].set(title="Width against need", ylabel="Half width / needed", yscale="log")
        low, high = axes[1].get_ylim()
        axes[1].set(ylim=(min(low, 0.7), max(high, 1.5)))  # a few per cent are no difference
        axes[1].yaxis.set_major_locator(
            FixedLocator([0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50])
        )
        axes[1].yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes[1].yaxis.set_minor_locator(NullLocator())
        _add_legend(figure, shown, narrow=narrow)
        return figure


def _draw_calibration(axis: Axes, methods: Methods) -> None:
    axis.plot([0, 1], [0, 1], color="#BBBBBB", linewidth=0.8)
    for name, of in methods.items():
        style, levels = method_style(name), [float(level) for level in of["calibration"]]
        shares = list(of["calibration"].values())
        axis.plot(levels, shares, style.dash, color=style.colour, marker=style.marker, markersize=2.5)
    ticks = [0, 0.25, 0.5, 0.75, 1]
    axis.set(title="Calibration", xlabel="Level of the interval", ylabel="Share of test rows inside", aspect="equal")
    axis.set(xlim=(0, 1), ylim=(0, 1), xticks=ticks, yticks=ticks)


def _draw_errors(axis: Axes, methods: Methods, unit: str) -> None:
    shown: list[float] = []
    for name, of in methods.items():
        style = method_style(name)
        std, rmse = (np.array([one[key] for one in of["bins"]], float) for key in ("std", "rmse"))
        if std.max() <= 1.01 * std.min():  # the same for every row: groups have no meaning
            std, rmse = (np.sqrt(np.mean(part**2, keepdims=True)) for part in (std, rmse))
        axis.plot(std, rmse, style.dash, color=style.colour, marker=style.marker, markersize=3)
        shown += [value for value in (*std, *rmse) if np.isfinite(value) and value > 0]
    low, high = (min(shown) / 1.2, max(shown) * 1.2) if shown else (0.1, 1.0)
    axis.plot([low, high], [low, high], color="#BBBBBB", linewidth=0.8, zorder=0)
    axis.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        side.set_major_formatter(StrMethodFormatter("{x:g}"))
        side.set_minor_formatter(NullFormatter())
    axis.set(title="Error against uncertainty", xlabel=f"Predicted std ({unit})", ylabel=f"RMSE ({unit})")


def _draw_risk(axis: Axes, methods: Methods, unit: str) -> None:
    for name, of in methods.items():
        style = method_style(name)
        shares, errors = ([float(share) for share in of["risk"]], [_value(error) for error in of["risk"].values()])
        axis.plot(shares, errors, style.dash, color=style.colour, marker=style.marker, markersize=2.5, markevery=3)
    # Methods that cannot refuse are flat lines, and may be far above the others: these say what is shown.
    refusing = [of["risk"].values() for of in methods.values() if of["rank"]["mean"] is not None]
    shown = [_value(error) for errors in refusing for error in errors]
    top = 1.1 * np.nanmax(shown) if shown and np.isfinite(shown).any() else None
    axis.set(title="Refusing uncertain rows", xlabel="Share of rows kept", ylabel=f"RMSE of these ({unit})")
    axis.set(xlim=(0, 1.02), ylim=(0, top), xticks=[0, 0.25, 0.5, 0.75, 1])
    axis.set_box_aspect(1)


def _draw_bars(axis: Axes, found: dict[str, Summary | None], title: str, *, named: bool) -> None:
    heights = np.arange(len(found))[::-1]
    for height, (name, value) in zip(heights, found.items(), strict=True):
        if value is None or value["mean"] is None:
            continue
        mean = value["mean"]
        axis.barh(height, mean, color=method_style(name).colour, height=0.65)
        if value["std"]:
            axis.plot([mean - value["std"], min(mean + value["std"], 1)], [height] * 2, color="#333333", linewidth=0.8)
        end = min(mean + (value["std"] or 0), 1)
        axis.text(end + 0.03, height, f"{mean:.2f}", va="center", fontsize=6.5, bbox=_BEHIND)
    axis.axvline(0.5, color="#555555", linewidth=0.8, linestyle=":")
    axis.set(title=title, xlabel="AUROC", xlim=(0, 1.2), xticks=[0, 0.5, 1], yticks=heights)
    axis.set_yticklabels([label(method_style(name).title) for name in found] if named else [])
    axis.tick_params(axis="y", left=named)


def _add_legend(figure: Figure, names: Iterable[str], *, narrow: bool) -> None:
    """A legend below the panels, in as many columns as there is space for."""
    styles = [method_style(name) for name in names]
    longest = max((len(style.title) for style in styles), default=0)
    columns = 5 if longest <= 18 else 4 if longest <= 24 else 3
    add_legend(figure, legend_lines(styles, markers=True), narrow=narrow, columns=columns)


def _value(number: float | None) -> float:
    """A number on record, where null stands for what is not finite."""
    return float("nan") if number is None else number
