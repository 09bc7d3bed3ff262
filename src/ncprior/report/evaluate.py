"""The page of ``ncprior evaluate``: how well the predicted uncertainty agrees with the errors on a table."""

from collections.abc import Iterable
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from ncprior.errors import UserError
from ncprior.experiments import evaluate
from ncprior.experiments.baselines import BASELINES
from ncprior.experiments.records import Records, Summary
from ncprior.experiments.variants import method_style
from ncprior.report.claims.verdicts import FEWEST_SEEDS, all_of, judge, lower
from ncprior.report.differences import quick_note
from ncprior.report.headline import in_words
from ncprior.report.sections import Cell, Picture, Section, Table, name_cell, number
from ncprior.report.styles import add_legend, figure_style, label, legend_lines, new_panels

_HEADINGS: dict[evaluate.Metric, str] = {
    "rmse": "RMSE",
    "nlpd": "NLPD (nats)",
    "crps": "CRPS",
    "coverage": "90% coverage",
    "detection": "Detection (AUROC)",
    "seconds": "Training (s)",
}
CHECKED = (0.2, 0.5, 0.8, 0.9, 0.95)
"""Levels of the intervals whose coverage the verdict checks."""
TOLERANCE = 0.05
"""How far the coverage of an interval may be from its level, in addition to sampling error."""
_SPLITS = {
    "random": "a tenth of the rows, drawn at random",
    "gap": "the middle third of the rows by one input: a gap in the training data",
    "tail": "the fifth of the rows with the largest values of one input",
    "time": "the last fifth of the rows by",
}


def evaluate_section(records: Records) -> Section:
    """The section of a run: metrics by method, the calibration curve, error against uncertainty, and detection.

    Raises:
        UserError: If every run failed.
    """
    results = evaluate.write_results(records)
    config, methods = results["config"], results["methods"]
    if not methods:
        raise UserError(f"{records.folder}: every run failed, the first one because {results['failed'][0]['failed']}")
    densities = _densities(records, results)
    kind, _, column = config["split"].partition(":")
    runs = f"{len(results['splits'])} split{'s' * (len(results['splits']) > 1)}"
    runs += f" and {config['seeds']} training seeds" if config["seeds"] > 1 else ""
    intro = (
        f"{config['target']} predicted from {len(results['inputs'])} columns of {config['table']} "
        f"({results['rows']:,} rows). Test rows: {_SPLITS[kind]}{f' {column}' * bool(column)}; {runs}. "
        f"{verdict(results, densities)}"
    )
    detected = _detecting(methods)
    caption = (
        "Calibration: the share of test rows inside their central intervals, which should equal the level; below the "
        "diagonal a method is overconfident. Error against uncertainty: the rows in ten groups from the least to the "
        "most uncertain, with the predicted standard deviation and the error of each group (both in units of "
        f"{config['target']}); above the diagonal the errors are larger than predicted. A method with the same "
        "uncertainty for every row is a single point."
    )
    if detected:
        caption += (
            " Detection: the probability that a test row is more uncertain than a held-out row like those of training; "
            "0.5 is chance."
        )
    draw = partial(draw_trust, methods, label(config["target"]), detected)
    picture = Picture("trust", "How far the uncertainty can be trusted", caption, draw)
    tables = [_metrics_table(results), _splits_table(results, densities)]
    failed = [
        f"{method_style(run['method']).title}, {run['split']}, seed {run['seed']}: {run['failed']}"
        for run in results["failed"]
    ]
    differences = quick_note(config, evaluate.QUICK, evaluate.QUICK_ESTIMATOR)
    return Section(
        f"Trust: {config['target']}",
        intro,
        [picture],
        tables,
        [],
        failed,
        records,
        differences,
        headline=tuple(in_words(results)),
        terms=("typical error", "coverage", "NLPD", "CRPS", *(["detection"] if detected else [])),
    )


def verdict(results: evaluate.Results, densities: dict[str, np.ndarray]) -> str:
    """A sentence on what the numbers of the first network mean: its calibration, and its rank among the methods.

    Args:
        results: The results of the run.
        densities: NLPD of each method on each split ``[splits]``.
    """
    methods = results["methods"]
    name = next((name for name in methods if name not in BASELINES), next(iter(methods)))
    of, title = methods[name], method_style(name).title
    rows = min(results["rows"], sum(split["test"] for split in results["splits"]))
    said = f"Of the rows, {of['coverage']['mean']:.0%} were inside the 90% intervals of {title}"
    sure, unsure = off_levels(of["calibration"], rows)
    if not sure and not unsure:
        said += f", and its intervals of {_listed(f'{level:.0%}' for level in CHECKED)} are close to what they promise"
    for kind, levels in (("sure of itself", sure), ("unsure", unsure)):
        if levels:
            held = _listed(f"{level:.0%} ({share:.0%} of the rows are inside)" for level, share in levels.items())
            said += f"; it is too {kind} at {held}"
    failed = [run["method"] for run in results["failed"]]
    if count := failed.count(name):
        said += f"; {count} of its {count + of['runs']} runs failed"
    if len(methods) == 1:
        return f"{said}."
    best = min(methods, key=lambda other: _best_first(densities[other]))
    others = [lower(densities[best], densities[other]) for other in methods if other != best]
    whose = "it has" if best == name else f"{method_style(best).title} has"
    if all_of(judge(other) for other in others) == "holds":
        return f"{said}; {whose} the best density of {len(methods)} methods."
    splits = len(densities[best])
    if splits < FEWEST_SEEDS:
        why = f"{'one split settles' if splits == 1 else f'{splits} splits settle'} nothing"
    else:
        why = f"it is the best on {int(np.all(others, axis=0).sum())} of {splits} splits"
    return f"{said}; {whose} the best mean density of {len(methods)} methods, which is unclear, as {why}."


def off_levels(calibration: dict[str, float], rows: int) -> tuple[dict[float, float], dict[float, float]]:
    """Levels whose intervals contain too few rows, and those whose contain too many, each with its coverage.

    A coverage is off if it differs from the level by more than `TOLERANCE` and two standard errors.

    Args:
        calibration: Coverage by level.
        rows: Number of test rows, from which the standard error follows.
    """
    sure: dict[float, float] = {}
    unsure: dict[float, float] = {}
    for level in CHECKED:
        share, error = calibration[str(level)], (level * (1 - level) / rows) ** 0.5
        if abs(share - level) > TOLERANCE + 2 * error:
            (sure if share < level else unsure)[level] = share
    return sure, unsure


def _best_first(values: np.ndarray) -> tuple[int, float]:
    """A sort key of methods: those that failed on the fewest splits first, then by mean NLPD."""
    finished = values[~np.isnan(values)]
    return len(values) - len(finished), float(finished.mean()) if len(finished) else np.inf


def _listed(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def draw_trust(
    methods: dict[str, evaluate.MethodResult], unit: str, detected: list[str], *, narrow: bool = False
) -> Figure:
    """Draw the calibration curve, error against uncertainty and, if any method has it, bars of detection."""
    with figure_style():
        count = 3 if detected else 2
        figure, axes = new_panels(count, 3.0, narrow=narrow, widths=[1, 1, 0.8][:count])
        _draw_calibration(axes[0], methods)
        _draw_errors(axes[1], methods, unit)
        if detected:
            _draw_detection(axes[2], {name: methods[name]["detection"] for name in detected}, tall=not narrow)
        add_legend(figure, legend_lines(map(method_style, methods), markers=True), narrow=narrow, columns=5)
        return figure


def _draw_calibration(axis: Axes, methods: dict[str, evaluate.MethodResult]) -> None:
    axis.plot([0, 1], [0, 1], color="#BBBBBB", linewidth=0.8)
    for name, of in methods.items():
        style, levels = method_style(name), [float(level) for level in of["calibration"]]
        shares = list(of["calibration"].values())
        axis.plot(levels, shares, style.dash, color=style.colour, marker=style.marker, markersize=2.5)
    ticks = [0, 0.25, 0.5, 0.75, 1]
    axis.set(title="Calibration", xlabel="Level of the interval", ylabel="Share of test rows inside", aspect="equal")
    axis.set(xlim=(0, 1), ylim=(0, 1), xticks=ticks, yticks=ticks)


def _draw_errors(axis: Axes, methods: dict[str, evaluate.MethodResult], unit: str) -> None:
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


def _draw_detection(axis: Axes, found: dict[str, Summary], *, tall: bool) -> None:
    heights = np.arange(len(found))[::-1]
    for height, (name, value) in zip(heights, found.items(), strict=True):
        spread = {"xerr": value["std"], "error_kw": {"elinewidth": 0.8}} if value["std"] else {}
        axis.barh(height, _mean(value), color=method_style(name).colour, height=0.65, **spread)  # type: ignore[arg-type]
    axis.axvline(0.5, color="#555555", linewidth=0.8, linestyle=":")
    if tall:
        axis.set_box_aspect(1.25)
    axis.set(title="Detection", xlabel="AUROC", xlim=(0, 1), xticks=[0, 0.5, 1], yticks=heights)
    axis.set_yticklabels([method_style(name).title.replace("without ", "no ") for name in found])


def _metrics_table(results: evaluate.Results) -> Table:
    methods = results["methods"]
    shown = [metric for metric in evaluate.METRICS if any(metric in of for of in methods.values())]
    goals: dict[evaluate.Metric, float] = {"rmse": 0.0, "crps": 0.0, "coverage": 0.9, "detection": 1.0, "nlpd": -np.inf}
    best: dict[evaluate.Metric, str] = {}
    for metric, goal in goals.items():
        means = {name: _mean(of[metric]) for name, of in methods.items() if metric in of}
        finite = {name: value for name, value in means.items() if np.isfinite(value)}
        if len(finite) > 1:
            distance = {name: value if goal == -np.inf else abs(value - goal) for name, value in finite.items()}
            best[metric] = min(distance, key=lambda name: distance[name])

    def cell(name: str, metric: evaluate.Metric) -> Cell:
        if metric not in methods[name]:
            return Cell("–")
        of = methods[name][metric]
        spread = f" ± {number(of['std'])}" if methods[name]["runs"] > 1 else ""
        return Cell(number(of["mean"]) + spread, best=best.get(metric) == name)

    rows = [[name_cell(name, method_style(name).title), *(cell(name, metric) for metric in shown)] for name in methods]
    note = (
        f"Mean ± standard deviation over splits and seeds, RMSE and CRPS in units of {results['config']['target']}. "
        "Lower is better, except for coverage, which is best at 0.9, and detection, which is best at 1. NLPD is the "
        "most informative: it rewards accurate means and honest uncertainty together. Baselines are run with one seed."
    )
    return Table("Methods", note, ["Method", *(_HEADINGS[metric] for metric in shown)], rows)


def _densities(records: Records, results: evaluate.Results) -> dict[str, np.ndarray]:
    """NLPD of each method on each split ``[splits]``, mean over the seeds; NaN where a seed failed."""
    found: dict[str, list[list[float]]] = {name: [[] for _ in results["splits"]] for name in results["methods"]}
    for place, method, seed in evaluate.runs(records):
        if method in found:
            value = records.read_json(evaluate.run_file(place, method, seed)).get("nlpd")
            found[method][place].append(np.nan if value is None else value)
    return {name: np.array([np.mean(seeds) for seeds in splits]) for name, splits in found.items()}


def _splits_table(results: evaluate.Results, densities: dict[str, np.ndarray]) -> Table:
    """The NLPD of each method on each split."""
    names = list(results["methods"])
    rows = []
    for i, split in enumerate(results["splits"]):
        means = {name: float(densities[name][i]) for name in names}
        finite = {name: value for name, value in means.items() if np.isfinite(value)}
        best = min(finite, key=lambda name: finite[name]) if len(finite) > 1 else ""
        cells = [Cell(number(means[name]), best=name == best) for name in names]
        rows.append([Cell(split["name"], f"{split['train']:,} train, {split['test']:,} test"), *cells])
    note = "NLPD in nats on each split, mean over seeds; lower is better."
    return Table("Split by split", note, ["Split", *(method_style(name).title for name in names)], rows)


def _detecting(methods: dict[str, evaluate.MethodResult]) -> list[str]:
    return [name for name, of in methods.items() if "detection" in of]


def _mean(value: Summary) -> float:
    mean = value["mean"]
    return float("nan") if mean is None else mean
