"""The page of ``ncprior simulate``: learning curves, and how many labels a rule saves."""

from functools import partial

import numpy as np
from matplotlib.figure import Figure

from ncprior.experiments import simulate
from ncprior.experiments.records import Records
from ncprior.report.claims.verdicts import FEWEST_SEEDS
from ncprior.report.differences import quick_note
from ncprior.report.sections import Cell, Picture, Section, Table, name_cell, number
from ncprior.report.styles import add_legend, figure_style, label, legend_lines, new_panels


def simulate_section(records: Records) -> Section:
    """The section of a run: learning curves of every rule, and the labels that each rule saves."""
    results = simulate.write_results(records)
    config, labels = results["config"], results["counts"]
    intro = (
        f"{config['target']} predicted from {len(results['inputs'])} columns of {config['table']} "
        f"({results['rows']:,} rows, {config['test']:.0%} of them for testing). Every rule begins with the same "
        f"{labels[0]} random labels and chooses up to {config['batch']} more at a time, up to {labels[-1]}; "
        f"{config['seeds']} seed{'s' * (config['seeds'] > 1)}. {savings(results)}"
    )
    caption = (
        f"Error (in units of {config['target']}) and negative log predictive density on the test rows against the "
        f"number of labels: mean over {config['seeds']} seeds, with its standard error."
    )
    draw = partial(draw_simulation, labels, results["rules"], label(config["target"]), config["seeds"])
    picture = Picture("simulation", "Learning curves", caption, draw)
    tables = [_saved_table(results)]
    differences = quick_note(config, simulate.QUICK, simulate.QUICK_ESTIMATOR)
    return Section(f"Labels saved: {config['target']}", intro, [picture], tables, [], [], records, differences)


def savings(results: simulate.Results) -> str:
    """A sentence on how many labels the best rule saves, and whether the seeds, at least five, agree on it."""
    found = {rule: of["saved"]["rmse"] for rule, of in results["rules"].items() if rule != simulate.CONTROL}
    means = {rule: one["mean"] for rule, one in found.items() if one["mean"] is not None and np.isfinite(one["mean"])}
    if not means:
        return "There is no rule to compare with random."
    best = max(means, key=lambda rule: means[rule])
    mean, low, high = means[best], found[best]["low"], found[best]["high"]
    title, compared = simulate.rule_style(best).title, f"{abs(mean):.0%} {'fewer' if mean > 0 else 'more'}"
    said = f"For the error of random labels, {title} needed {compared} on average"
    if len(means) > 1:
        said += f", which is the {'most' if mean > 0 else 'least'} of the rules"
    seeds = results["config"]["seeds"]
    if seeds < FEWEST_SEEDS:
        counted = "one seed settles" if seeds == 1 else f"{seeds} seeds settle"
        return f"{said}; unclear, as {counted} nothing (five are needed at least)."
    settled = low is not None and high is not None and (low > 0 or high < 0)
    return f"{said}; the seeds {'settle it' if settled else 'do not settle it'}."


def draw_simulation(
    labels: list[int], rules: dict[str, simulate.RuleResult], unit: str, seeds: int, *, narrow: bool = False
) -> Figure:
    """Draw RMSE and NLPD on test rows against the number of labels: mean and standard error for each rule."""
    with figure_style():
        figure, axes = new_panels(2, 3.0, narrow=narrow)
        for axis, metric in zip(axes, simulate.COMPARED, strict=True):
            for rule, of in rules.items():
                style = simulate.rule_style(rule)
                mean, std = (np.array(of[metric][key], float) for key in ("mean", "std"))
                axis.plot(labels, mean, style.dash, color=style.colour, marker=style.marker, markersize=2.5)
                error = std / max(seeds - 1, 1) ** 0.5
                axis.fill_between(labels, mean - error, mean + error, color=style.colour, alpha=0.12, linewidth=0)
            heading = f"Test RMSE ({unit})" if metric == "rmse" else "Test NLPD (nats)"
            axis.set(xlabel="Labels", ylabel=heading)
        lines = legend_lines(map(simulate.rule_style, rules), markers=True)
        add_legend(figure, lines, narrow=narrow, columns=5)
        return figure


def _saved_table(results: simulate.Results) -> Table:
    rows = []
    for rule, of in results["rules"].items():
        cells = [name_cell(rule, simulate.rule_style(rule).title)]
        for metric in simulate.COMPARED:
            cells.append(Cell(number(of[metric]["mean"][-1]), f"± {number(of[metric]['std'][-1])}"))
        for metric in simulate.COMPARED:
            cells.append(_saving(of["saved"][metric]) if rule != simulate.CONTROL else Cell("–", "the control"))
        rows.append([*cells, Cell(number(of["seconds"]))])
    note = (
        "Labels saved: how many fewer labels than random a rule needs for the same value, in percent, averaged along "
        "random's curve; negative if it needs more. A value that a rule never reaches counts as reached with its last "
        "label. The percentage is from mean curves; the range is the middle 90% over resampled seeds. If it includes "
        f"0, or with fewer than {FEWEST_SEEDS} seeds, the comparison is not settled."
    )
    header = ["Rule", "Final RMSE", "Final NLPD", "Labels saved (RMSE)", "Labels saved (NLPD)", "Seconds a seed"]
    return Table("Labels saved against random", note, header, rows)


def _saving(saved: simulate.LabelsSaved) -> Cell:
    mean, low, high = saved["mean"], saved["low"], saved["high"]
    if mean is None or not np.isfinite(mean):
        return Cell("–", "the density is not finite")
    spread = "" if low is None or high is None or not np.isfinite(low) else f"{low:+.0%} to {high:+.0%}"
    return Cell(f"{mean:+.0%}", spread)
