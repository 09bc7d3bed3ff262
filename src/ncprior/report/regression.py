"""Table 1 and the learning curves of the regression experiment, each in two steps: collect plain values, then draw."""

from typing import Literal, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ncprior.core.methods import STYLES, title
from ncprior.core.registry import Style
from ncprior.experiments.records import Records
from ncprior.experiments.runs import MethodFiles
from ncprior.report.styles import add_legend, figure_style, legend_lines, new_panels

PUBLISHED: dict[str, tuple[float | None, float | None]] = {
    "gPoE (Deisenroth & Ng 2015)": (8.1, None),
    "SAVIGP (Bonilla et al. 2016)": (5.02, None),
    "SVI GP (Hensman et al. 2013)": (None, 32.60),
    "HGP (Ng & Deisenroth 2014)": (None, 27.45),
    "MF (Lakshminarayanan et al. 2016)": (4.89, 26.57),
    "BBB (the paper)": (4.38, 24.59),
    "BBB+NCP (the paper)": (4.38, 24.71),
    "ODC+NCP (the paper)": (4.38, 24.68),
}
"""Table 1 of the paper: NLPD, and RMSE in minutes, on the authors' split, which may differ from ours."""


class Baseline(NamedTuple):
    """A baseline: its style, and details that the table adds to its title."""

    style: Style
    detail: str = ""


BASELINES = {
    "mean": Baseline(Style("Train mean", "#777777", ":")),
    "linear": Baseline(Style("Linear regression", "#777777", "-.")),
    "boosting": Baseline(Style("Boosted trees", "#777777", "--"), " (HistGradientBoosting, 400 iterations, 63 leaves)"),
}
"""The baselines that `ncprior.experiments.paper.regression.baselines` computes."""

_PANELS = {
    "train_rmse": "Train RMSE",
    "train_nlpd": "Train NLPD",
    "test_rmse": "Test RMSE",
    "test_nlpd": "Test NLPD",
}


class Value(NamedTuple):
    """A number of the table: a mean over seeds with their standard deviation and median, or a single number."""

    mean: float | None
    std: float | None = None
    median: float | None = None


class Row(NamedTuple):
    """A row of the table: where it is from, NLPD and RMSE on test rows, and the same on training rows."""

    title: str
    kind: Literal["published", "baseline", "this run"]
    note: str
    nlpd: Value
    rmse: Value
    train_nlpd: Value = Value(None)
    train_rmse: Value = Value(None)


class Curve(NamedTuple):
    """A metric of one seed after every epoch, and the epoch whose weights were kept, or None if it stopped early."""

    epochs: np.ndarray
    values: np.ndarray
    chosen: int | None


def collect_table(records: Records) -> list[Row]:
    """Published rows, baselines on the run's own split and the run's networks, from ``results.json``."""
    results, config = records.read_json("results.json"), records.config
    keys = {"nlpd": "test_nlpd", "rmse": "test_rmse", "train_nlpd": "train_nlpd", "train_rmse": "train_rmse"}
    rows = [Row(title, "published", "authors' split", *map(Value, numbers)) for title, numbers in PUBLISHED.items()]
    layout = "npy" if config["source"] == "npy" else f"{config['source']}, {config['split']}"
    for name, values in results["baselines"].items():
        numbers = {field: Value(values[key]) for field, key in keys.items()}
        rows.append(Row(BASELINES[name].style.title + BASELINES[name].detail, "baseline", layout, **numbers))
    seeds, epochs = config["seeds"], config["schedule"]["epochs"]
    for name, metrics in results["methods"].items():
        failed = results["failed_seeds"].get(name, {})
        kept = [epoch for seed, epoch in enumerate(metrics["epochs"]) if str(seed) not in failed]
        note = f"{layout}, {'one seed' if seeds == 1 else f'{seeds} seeds'}"
        if kept:
            note += f", epoch {', '.join(str(epoch) for epoch in sorted(set(kept)))} of {epochs}"
        if failed:
            note += f"; stopped: {len(failed)} of {seeds}"
        several = len(kept) > 1
        numbers = {
            field: Value(**metrics[key]) if several else Value(metrics[key]["mean"]) for field, key in keys.items()
        }
        rows.append(Row(title(name), "this run", note, **numbers))
    return rows


def collect_curves(records: Records) -> dict[str, dict[str, list[Curve]]]:
    """Curves of the seeds by metric and method. A seed that stopped in its first epoch has none."""
    curves: dict[str, dict[str, list[Curve]]] = {metric: {} for metric in _PANELS}
    for name in records.config["methods"]:
        files = MethodFiles(records, name)
        if not files.has_metrics:
            continue
        columns, notes = files.metrics(), files.model_notes()
        for metric in _PANELS:
            curves[metric][name] = [
                Curve(
                    columns["epoch"][columns["seed"] == seed],
                    columns[metric][columns["seed"] == seed],
                    None if str(seed) in notes["failed"] else epoch,
                )
                for seed, epoch in zip(notes["seeds"], notes["epochs"], strict=True)
                if seed in columns["seed"]
            ]
    return curves


def collect_baselines(records: Records) -> dict[str, dict[str, float]]:
    """The values of the baselines by name and metric."""
    return dict(records.read_json("results.json")["baselines"])


def draw_curves(
    curves: dict[str, dict[str, list[Curve]]],
    baselines: dict[str, dict[str, float]] | None = None,
    unit: str = "minutes",
    *,
    narrow: bool = False,
) -> Figure:
    """Draw train and test RMSE and NLPD after every epoch, with a line for each seed.

    A dot marks the epoch whose weights were kept. Grey lines are the baselines.
    """
    with figure_style():
        figure, axes = new_panels(len(_PANELS), 2.3, narrow=narrow)
        for axis, (metric, heading) in zip(axes, _PANELS.items(), strict=True):
            of = f" ({unit})" if unit and metric.endswith("rmse") else ""
            axis.set(title=heading + of, xlabel="Epochs")
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
            for name, seeds in curves[metric].items():
                method = STYLES[name]
                for epochs, values, chosen in seeds:
                    axis.plot(
                        epochs, values, method.dash, color=method.colour, linewidth=None if len(seeds) == 1 else 0.8
                    )
                    axis.plot(
                        epochs[epochs == chosen], values[epochs == chosen], "o", color=method.colour, markersize=3
                    )
            for name, scores in (baselines or {}).items():
                style = BASELINES[name].style
                axis.axhline(scores[metric], color=style.colour, linewidth=0.8, linestyle=style.dash)
        handles = legend_lines(STYLES[name] for name in curves["test_rmse"])
        for line in legend_lines(BASELINES[name].style for name in baselines or {}):
            line.set_linewidth(0.8)
            handles.append(line)
        add_legend(figure, handles, narrow=narrow, columns=len(handles))
        return figure
