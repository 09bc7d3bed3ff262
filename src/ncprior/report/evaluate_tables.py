"""Tables of ``ncprior evaluate``: scores, detection, refusal, coverage by familiarity, NCP's own share."""

from collections.abc import Sequence

import numpy as np

from ncprior.experiments.conditional_coverage import RANGES
from ncprior.experiments.evaluate_results import OF_PREDICTIONS, MethodResult, Metric, Results
from ncprior.experiments.variants import method_style
from ncprior.report.headline import Compared, settled
from ncprior.report.sections import Cell, Table, name_cell, number

HEADINGS: dict[Metric, str] = {
    "rmse": "RMSE",
    "nlpd": "NLPD (nats)",
    "crps": "CRPS",
    "coverage": "90% coverage",
    "detection": "Detection (AUROC)",
    "shuffled": "Shuffled (AUROC)",
    "far": "Far (AUROC)",
    "rank": "Rank correlation, std",
    "rank_doubt": "Rank correlation, doubt",
    "aurc": "Risk-coverage area",
    "seconds": "Training (s)",
}
_GOALS: dict[Metric, float] = {
    **dict.fromkeys(("rmse", "crps", "aurc"), 0.0),
    **dict.fromkeys(("detection", "shuffled", "far", "rank", "rank_doubt"), 1.0),
    "coverage": 0.9,
    "nlpd": -np.inf,
}
"""The best value of every metric that has one."""


def tables(results: Results, test_rows: str) -> list[Table]:
    """All tables of a run.

    Args:
        results: The results.
        test_rows: What test rows are called.
    """
    found = [_scores_table(results)]
    methods = results["methods"]
    if any(of["unsure_by"] for of in methods.values()):
        found.append(_detection_table(results, test_rows))
    found.append(_refusal_table(results))
    if any(of["groups"] for of in methods.values()):
        found.append(_familiarity_table(results))
    if "ncp" in methods and "no-ncp" in methods:
        found.append(_worth_table(methods["ncp"], methods["no-ncp"]))
    return [*found, _splits_table(results)]


def densities(results: Results) -> dict[str, np.ndarray]:
    """NLPD of each method on each split ``[splits]``, mean over the seeds; NaN where a seed failed."""
    return {name: np.array(of["values"]["nlpd"], float).mean(1) for name, of in results["methods"].items()}


def _scores_table(results: Results) -> Table:
    note = (
        f"Mean ± standard deviation over splits and seeds, RMSE and CRPS in units of {results['config']['target']}. "
        "Lower is better, except for coverage, which is best at 0.9. NLPD is the most informative: it rewards accurate "
        "means and honest uncertainty together. Methods other than networks are run with one seed; the Gaussian "
        "process learns from at most 2,000 rows. Of quantiles and conformal intervals the 90% interval is exact, and "
        "NLPD and CRPS are those of the normal that has it."
    )
    return _by_method("Methods", note, results, OF_PREDICTIONS)


def _detection_table(results: Results, test_rows: str) -> Table:
    note = (
        f"How often a row unlike those of training is more doubtful than one like them: {test_rows}, rows with each "
        "column shuffled by itself, and rows with one number moved by four standard deviations. 0.5 is chance, 1 is "
        "best. Methods that are equally sure of every row have none."
        if any("detection" in of for of in results["methods"].values())
        else "How often a row unlike those of training is more doubtful than one like them: rows with each column "
        "shuffled by itself, and rows with one number moved by four standard deviations. 0.5 is chance, 1 is best. "
        "Methods that are equally sure of every row have none."
    )
    named = {name: of["unsure_by"] or "–" for name, of in results["methods"].items()}
    extra = ("Doubt", [Cell(text) for text in named.values()])
    return _by_method("Rows unlike those of training", note, results, ("detection", "shuffled", "far"), extra)


def _refusal_table(results: Results) -> Table:
    methods = results["methods"]
    note = (
        "Whether a method is unsure where it is wrong, on the test rows: Spearman's correlation of the absolute error "
        "with the predicted standard deviation, and with the doubt of the table above; the mean error of the rows "
        "kept, over all shares of rows kept, if the most uncertain are refused first; how much of the possible gain "
        "that is (0: as refusing at random, 100%: as if errors were known); and the RMSE with a fifth refused."
    )
    gains = []
    for of in methods.values():
        rmse, area, best = (_number(value) for value in (of["rmse"]["mean"], of["aurc"]["mean"], of["risk_best"]))
        gain = (rmse - area) / (rmse - best) if rmse > best else np.nan
        gains.append(Cell(f"{round(gain, 2) + 0.0:.0%}" if np.isfinite(gain) else "–"))  # 0 in place of -0
    kept = [Cell(number(of["risk"]["0.8"])) for of in methods.values()]
    shown: tuple[Metric, ...] = ("rank", "rank_doubt", "aurc")
    return _by_method(
        "Refusing uncertain rows", note, results, shown, ("Of the possible", gains), ("RMSE, 80% kept", kept)
    )


def _familiarity_table(results: Results) -> Table:
    header = ["Method", *(f"{low:g} to {high:g}" for low, high in RANGES)]
    rows = []
    for name, of in results["methods"].items():
        groups = {group["low"]: group for group in of["groups"]}
        cells = []
        for low, _ in RANGES:
            if (group := groups.get(low)) is None:
                cells.append(Cell("–"))
                continue
            counts = f"{group['test']:,} test" + f", {group['like']:,} held out" * bool(group["like"])
            width = f"± {number(group['width'])}, needed {number(group['need'])}"
            cells.append(Cell(f"{_number(group['coverage']):.0%}", f"{width}; {counts}"))
        if groups:
            rows.append([name_cell(name, method_style(name).title), *cells])
    note = (
        "Share of the rows inside the 90% intervals, by familiarity: 0 is unlike any training row, 1 much like them, "
        "and of rows like those of training 5% should be in the first group, 15% in the second. Below it: half the "
        "mean width of the intervals, the half width that would have held 90%, and the rows. The familiarity is the "
        "model's own or, for others, the share of held-out rows (test rows, if the split is random) that are as "
        "doubtful."
    )
    return Table("Coverage by familiarity", note, header, rows)


def _worth_table(ncp: MethodResult, without: MethodResult) -> Table:
    """What NCP is worth: the default estimator against itself without the prior, in every number."""
    metrics: tuple[Compared, ...] = (
        *("rmse", "nlpd", "crps", "coverage", "detection", "shuffled", "far", "rank", "rank_doubt", "aurc"),
    )
    rows = []
    for metric in metrics:
        if metric not in ncp or metric not in without:
            continue
        with_ncp, other = (_number(of[metric]["mean"]) for of in (ncp, without))
        verdict, why = settled(ncp, without, metric, 0.9 if metric == "coverage" else None)
        judgement = {"holds": "NCP is better", "does not hold": "NCP is worse", "unclear": f"unclear: {why}"}[verdict]
        rows.append(
            [
                Cell(HEADINGS[metric]),
                Cell(number(with_ncp)),
                Cell(number(other)),
                Cell(number(with_ncp - other)),
                Cell(judgement),
            ]
        )
    note = (
        "The default estimator against the same with gamma 0, in means over splits and seeds. A verdict needs five "
        "splits or more, and that four fifths of them agree with every seed."
    )
    return Table("With and without NCP", note, ["", "NCP", "Without NCP", "Difference", "Verdict"], rows)


def _splits_table(results: Results) -> Table:
    """The NLPD of each method on each split."""
    names, by_method = list(results["methods"]), densities(results)
    rows = []
    for i, split in enumerate(results["splits"]):
        means = {name: float(by_method[name][i]) for name in names}
        finite = {name: value for name, value in means.items() if np.isfinite(value)}
        best = min(finite, key=lambda name: finite[name]) if len(finite) > 1 else ""
        cells = [Cell(number(means[name]), best=name == best) for name in names]
        rows.append([Cell(split["name"], f"{split['train']:,} train, {split['test']:,} test"), *cells])
    note = "NLPD in nats on each split, mean over seeds; lower is better."
    return Table("Split by split", note, ["Split", *(method_style(name).title for name in names)], rows)


def _by_method(
    title: str, note: str, results: Results, metrics: Sequence[Metric], *extras: tuple[str, list[Cell]]
) -> Table:
    """A table with a row for each method: metrics that any method has, the best marked, and further columns."""
    methods = results["methods"]
    shown = [metric for metric in metrics if any(metric in of for of in methods.values())]
    best = {metric: _best(methods, metric) for metric in shown}

    def cell(name: str, metric: Metric) -> Cell:
        if metric not in methods[name]:
            return Cell("–")
        of = methods[name][metric]
        spread = f" ± {number(of['std'])}" if methods[name]["runs"] > 1 and of["mean"] is not None else ""
        return Cell(number(of["mean"]) + spread, best=best[metric] == name)

    rows = [
        [
            name_cell(name, method_style(name).title),
            *(cell(name, metric) for metric in shown),
            *(cells[i] for _, cells in extras),
        ]
        for i, name in enumerate(methods)
    ]
    return Table(title, note, ["Method", *(HEADINGS[metric] for metric in shown), *(head for head, _ in extras)], rows)


def _best(methods: dict[str, MethodResult], metric: Metric) -> str:
    """The method with the best mean; none if fewer than two have one."""
    if metric not in _GOALS:
        return ""
    goal = _GOALS[metric]
    means = {name: _number(of[metric]["mean"]) for name, of in methods.items() if metric in of}
    distance = {n: v if goal == -np.inf else abs(v - goal) for n, v in means.items() if np.isfinite(v)}
    return min(distance, key=lambda name: distance[name]) if len(distance) > 1 else ""


def _number(value: float | None) -> float:
    """A number on record, where null stands for what is not finite."""
    return float("nan") if value is None else value
