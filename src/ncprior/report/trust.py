"""The page of ``ncprior evaluate``: how far the uncertainty can be trusted on a table."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from ncprior.errors import UserError
from ncprior.experiments import evaluate
from ncprior.experiments.records import Records
from ncprior.report.looks import LOOKS, handles, name_cell
from ncprior.report.sections import Cell, Picture, Section, Table, number
from ncprior.report.style import label, new_figure, style

_HEADINGS = {
    "rmse": "RMSE",
    "nlpd": "NLPD (nats)",
    "crps": "CRPS",
    "coverage": "90% coverage",
    "detection": "Detection (AUROC)",
    "seconds": "Training (s)",
}
_SPLITS = {
    "random": "a tenth of the rows, drawn at random",
    "gap": "the middle third of the rows by one input: a gap in the training data",
    "tail": "the fifth of the rows with the largest values of one input",
    "time": "the last fifth of the rows by",
}


def evaluate_section(records: Records) -> Section:
    """Metrics by method, the calibration curve, error against uncertainty, and detection."""
    results = evaluate.write_results(records)
    config, methods = results["config"], results["methods"]
    if not methods:
        raise UserError(f"{records.folder}: every run failed, the first one because {results['failed'][0]['failed']}")
    kind, _, column = config["split"].partition(":")
    runs = f"{len(results['splits'])} split{'s' * (len(results['splits']) > 1)}"
    runs += f" and {config['seeds']} training seeds" if config["seeds"] > 1 else ""
    intro = (
        f"{config['target']} predicted from {len(results['inputs'])} columns of {config['table']} "
        f"({results['rows']:,} rows). Test rows: {_SPLITS[kind]}{f' {column}' * bool(column)}; {runs}. "
        f"{verdict(methods)}"
    )
    detected = _detecting(methods)
    caption = (
        "Left: the share of test rows inside their central intervals, which should be the level itself; below the "
        f"diagonal a method is too sure of itself. {'Middle' if detected else 'Right'}: rows in ten groups from the "
        "least to the most uncertain, the predicted standard deviation of each against its error (both in units of "
        f"{config['target']}); above the diagonal errors are larger than predicted. A method with the same uncertainty "
        "for every row is a single point."
    )
    if detected:
        caption += (
            " Right: how often a test row is more uncertain than a row that is like those of training and was held out "
            "from it; 0.5 is chance."
        )
    figure = draw_trust(methods, label(config["target"]), detected)
    picture = Picture("trust", "How far the uncertainty can be trusted", caption, figure)
    tables = [_metrics_table(results), _splits_table(records, results)]
    failed = [
        f"{LOOKS[run['method']].title}, {run['split']}, seed {run['seed']}: {run['failed']}"
        for run in results["failed"]
    ]
    return Section(f"Trust: {config['target']}", intro, [picture], tables, [], failed, records)


def verdict(methods: dict[str, Any]) -> str:
    """In a sentence, what the numbers of the first method that is not a baseline mean."""
    name = next((name for name in methods if name not in evaluate.BASELINES), next(iter(methods)))
    coverage = methods[name]["coverage"]["mean"]
    said = f"Of the rows, {coverage:.0%} were inside the 90% intervals of {LOOKS[name].title}"
    said += (
        ", close to what they promise"
        if 0.85 <= coverage <= 0.97
        else ": it is too " + ("sure of itself" if coverage < 0.85 else "unsure")
    )
    scored = {other: _mean(of["nlpd"]) for other, of in methods.items()}
    best = min(scored, key=lambda other: scored[other])
    if len(methods) == 1:
        return f"{said}."
    return f"{said}; {'it' if best == name else LOOKS[best].title} has the best density of {len(methods)} methods."


def draw_trust(methods: dict[str, Any], unit: str, detected: list[str]) -> Figure:
    """Calibration curve, error against uncertainty, and bars of detection where test rows are unlike the others."""
    with style():
        figure = new_figure(7.2, 3.0)
        axes = figure.subplots(
            1, 3 if detected else 2, gridspec_kw={"width_ratios": [1, 1, 0.8][: 3 if detected else 2]}
        )
        _draw_calibration(axes[0], methods)
        _draw_errors(axes[1], methods, unit)
        if detected:
            _draw_detection(axes[2], {name: methods[name]["detection"] for name in detected})
        figure.legend(handles=handles(methods), loc="outside lower center", ncols=min(len(methods), 5))
        return figure


def _draw_calibration(axis: Axes, methods: dict[str, Any]) -> None:
    axis.plot([0, 1], [0, 1], color="#BBBBBB", linewidth=0.8)
    for name, of in methods.items():
        look, levels = LOOKS[name], [float(level) for level in of["calibration"]]
        shares = list(of["calibration"].values())
        axis.plot(levels, shares, look.line.dash, color=look.line.colour, marker=look.marker, markersize=2.5)
    ticks = [0, 0.25, 0.5, 0.75, 1]
    axis.set(title="Calibration", xlabel="Level of the interval", ylabel="Share of test rows inside", aspect="equal")
    axis.set(xlim=(0, 1), ylim=(0, 1), xticks=ticks, yticks=ticks)


def _draw_errors(axis: Axes, methods: dict[str, Any], unit: str) -> None:
    shown: list[float] = []
    for name, of in methods.items():
        look = LOOKS[name]
        std, rmse = (np.array([one[key] for one in of["bins"]], float) for key in ("std", "rmse"))
        if std.max() <= 1.01 * std.min():  # the same for every row, so that groups mean nothing
            std, rmse = (np.sqrt(np.mean(part**2, keepdims=True)) for part in (std, rmse))
        axis.plot(std, rmse, look.line.dash, color=look.line.colour, marker=look.marker, markersize=3)
        shown += [value for value in (*std, *rmse) if np.isfinite(value) and value > 0]
    low, high = (min(shown) / 1.2, max(shown) * 1.2) if shown else (0.1, 1.0)
    axis.plot([low, high], [low, high], color="#BBBBBB", linewidth=0.8, zorder=0)
    axis.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        side.set_major_formatter(StrMethodFormatter("{x:g}"))
        side.set_minor_formatter(NullFormatter())
    axis.set(title="Error against uncertainty", xlabel=f"Predicted std ({unit})", ylabel=f"RMSE ({unit})")


def _draw_detection(axis: Axes, found: dict[str, dict[str, float]]) -> None:
    places = np.arange(len(found))[::-1]
    for place, (name, value) in zip(places, found.items(), strict=True):
        spread = {"xerr": value["std"], "error_kw": {"elinewidth": 0.8}} if value["std"] else {}
        axis.barh(place, _mean(value), color=LOOKS[name].line.colour, height=0.65, **spread)  # type: ignore[arg-type]
    axis.axvline(0.5, color="#555555", linewidth=0.8, linestyle=":")
    axis.set_box_aspect(1.25)
    axis.set(title="Detection", xlabel="AUROC", xlim=(0, 1), xticks=[0, 0.5, 1], yticks=places)
    axis.set_yticklabels([LOOKS[name].title.replace("without ", "no ") for name in found])


def _metrics_table(results: dict[str, Any]) -> Table:
    methods = results["methods"]
    shown = [metric for metric in evaluate.METRICS if any(metric in of for of in methods.values())]
    goals = {"rmse": 0.0, "crps": 0.0, "coverage": 0.9, "detection": 1.0, "nlpd": -np.inf}
    best: dict[str, str] = {}
    for metric, goal in goals.items():
        means = {name: _mean(of[metric]) for name, of in methods.items() if metric in of}
        finite = {name: value for name, value in means.items() if np.isfinite(value)}
        if len(finite) > 1:
            distance = {name: value if goal == -np.inf else abs(value - goal) for name, value in finite.items()}
            best[metric] = min(distance, key=lambda name: distance[name])

    def cell(name: str, metric: str) -> Cell:
        if metric not in methods[name]:
            return Cell("–")
        of = methods[name][metric]
        spread = f" ± {number(of['std'])}" if methods[name]["runs"] > 1 else ""
        return Cell(number(of["mean"]) + spread, best=best.get(metric) == name)

    rows = [[name_cell(name), *(cell(name, metric) for metric in shown)] for name in methods]
    note = (
        f"Mean ± standard deviation over splits and seeds, RMSE and CRPS in units of {results['config']['target']}. "
        "Lower is better; coverage is best at 0.9, and detection at 1. The density of a method tells most: it rewards "
        "exact means and honest uncertainty together. Baselines are run with one seed."
    )
    return Table("Methods", note, ["Method", *(_HEADINGS[metric] for metric in shown)], rows)


def _splits_table(records: Records, results: dict[str, Any]) -> Table:
    """The density of every method on every split."""
    names = list(results["methods"])
    found: dict[tuple[int, str], list[float]] = {}
    for place, method, seed in evaluate.runs(records):
        value = records.read_json(evaluate.run_file(place, method, seed)).get("nlpd")
        found.setdefault((place, method), []).append(np.nan if value is None else value)
    rows = []
    for i, split in enumerate(results["splits"]):
        means = {name: float(np.mean(found[i, name])) for name in names}
        finite = {name: value for name, value in means.items() if np.isfinite(value)}
        best = min(finite, key=lambda name: finite[name]) if len(finite) > 1 else ""
        cells = [Cell(number(means[name]), best=name == best) for name in names]
        rows.append([Cell(split["name"], f"{split['train']:,} train, {split['test']:,} test"), *cells])
    note = "NLPD in nats on each split, mean over seeds; lower is better."
    return Table("Split by split", note, ["Split", *(LOOKS[name].title for name in names)], rows)


def _detecting(methods: dict[str, Any]) -> list[str]:
    return [name for name, of in methods.items() if "detection" in of]


def _mean(value: dict[str, float | None]) -> float:
    mean = value["mean"]
    return float("nan") if mean is None else mean
