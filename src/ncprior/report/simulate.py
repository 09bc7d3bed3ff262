"""The page of ``ncprior simulate``: learning curves, and how many labels a rule saves."""

from collections.abc import Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from ncprior.experiments import simulate
from ncprior.experiments.records import Records
from ncprior.report.claims.verdicts import FEWEST_SEEDS
from ncprior.report.differences import quick_note
from ncprior.report.sections import Cell, Picture, Section, Table, name_cell, number
from ncprior.report.styles import add_legend, figure_style, label, legend_lines, new_panels

_MARKED = 40
"""Curves of up to this many rounds have a marker at each."""
_MAPPED = 3_000
"""Rows of the table on the map, at most."""
_SHADES = "viridis"
"""Colours from the first to the last round, which people with any kind of colour vision can put in order."""


def simulate_section(records: Records) -> Section:
    """The section of a run: learning curves of every rule, and the labels that each rule saves."""
    results = simulate.write_results(records)
    config, rules = results["config"], results["rules"]
    steps, sizes = next(iter(results["counts"].values())), " or ".join(results["counts"])
    intro = (
        f"{config['target']} predicted from {len(results['inputs'])} columns of {config['table']} "
        f"({results['rows']:,} rows, {config['test']:.0%} of them for testing). Every rule begins with the same "
        f"{steps[0]} random labels and chooses up to {sizes} more at a time, up to {steps[-1]}; "
        f"{config['seeds']} seed{'s' * (config['seeds'] > 1)}. {savings(results)}"
    )
    caption = (
        f"Error (in units of {config['target']}) and negative log predictive density on the test rows against the "
        f"number of labels: mean over {config['seeds']} seeds, with its standard error."
    )
    draw = partial(draw_simulation, rules, label(config["target"]), config["seeds"])
    pictures = [Picture("simulation", "Learning curves", caption, draw), _map(records, results)]
    tables = [_saved_table(results)]
    differences = quick_note(config, simulate.QUICK, simulate.QUICK_ESTIMATOR)
    return Section(f"Labels saved: {config['target']}", intro, pictures, tables, [], [], records, differences)


def settled(saved: simulate.LabelsSaved, seeds: int) -> Literal["better", "worse", "unclear"]:
    """Whether a rule needs fewer labels than random: unclear if the range has 0 in it, or comes from too few seeds."""
    low, high = saved["low"], saved["high"]
    if seeds < FEWEST_SEEDS or low is None or high is None:
        return "unclear"
    return "better" if low > 0 else "worse" if high < 0 else "unclear"


def share_saved(saved: simulate.LabelsSaved) -> str:
    """The share of labels saved with its range, as text; ``≤`` says that some values of random were never reached.

    >>> share_saved({"mean": 0.2, "low": 0.1, "high": 0.3, "reached": 1.0})
    '+20% (+10% to +30%)'
    >>> share_saved({"mean": -0.1, "low": None, "high": None, "reached": 0.9})
    '≤ -10%'
    """
    if saved["mean"] is None:
        return "–"
    most = "≤ " if saved["reached"] is not None and saved["reached"] < 1 else ""
    low, high = saved["low"], saved["high"]
    return f"{most}{saved['mean']:+.0%}" + ("" if low is None or high is None else f" ({low:+.0%} to {high:+.0%})")


def savings(results: simulate.Results) -> str:
    """A sentence on how many labels the best rule saves, and whether the seeds, at least five, agree on it."""
    found = {name: of["saved"]["rmse"] for name, of in results["rules"].items() if of["rule"] != simulate.CONTROL}
    means = {name: one["mean"] for name, one in found.items() if one["mean"] is not None}
    if not means:
        return "There is no rule to compare with random."
    best = max(means, key=lambda name: means[name])
    mean, reached, seeds = means[best], found[best]["reached"], results["config"]["seeds"]
    title, compared = _title(best, results), f"{abs(mean):.0%} {'fewer' if mean > 0 else 'more'}"
    never = 1 - reached if reached is not None else 0.0
    bound = "" if not never else "at most " if mean > 0 else "at least "
    sentence = f"For the error of random labels, {title} needed {bound}{compared} on average"
    if len(means) > 1:
        sentence += f", which is the {'most' if mean > 0 else 'least'} of the rules"
    if never:
        sentence += f" (it never came to the last {_percent(never)} of what random came to)"
    if seeds < FEWEST_SEEDS:
        counted = "one seed settles" if seeds == 1 else f"{seeds} seeds settle"
        return f"{sentence}; unclear, as {counted} nothing (five are needed at least)."
    return f"{sentence}; the seeds {'do not settle it' if settled(found[best], seeds) == 'unclear' else 'settle it'}."


def _title(name: str, results: simulate.Results) -> str:
    """A rule with its batch size, if there are several."""
    of = results["rules"][name]
    several = len({one["batch"] for one in results["rules"].values()}) > 1
    return simulate.rule_style(of["rule"]).title + f" ({of['batch']} at a time)" * several


def _percent(share: float) -> str:
    """A share above 0, which is never written as 0%."""
    return f"{max(share, 0.01):.0%}"


def draw_simulation(rules: dict[str, simulate.RuleResult], unit: str, seeds: int, *, narrow: bool = False) -> Figure:
    """Draw RMSE and NLPD on test rows against the number of labels: mean and standard error for each rule.

    Each batch size has a row of panels, all with the same axes.
    """
    sizes = list(dict.fromkeys(of["batch"] for of in rules.values()))
    shown = {of["rule"]: simulate.rule_style(of["rule"]) for of in rules.values()}
    with figure_style():
        figure, axes = new_panels(2 * len(sizes), 0.6 + 2.4 * len(sizes), narrow=narrow, rows=len(sizes))
        panels = [(size, metric) for size in sizes for metric in simulate.COMPARED]
        for axis, (size, metric) in zip(axes, panels, strict=True):
            for of in (one for one in rules.values() if one["batch"] == size):
                style, labels = shown[of["rule"]], of["counts"]
                mean, std = (np.array(of[metric][key], float) for key in ("mean", "std"))
                marker = style.marker if len(labels) <= _MARKED else None
                axis.plot(labels, mean, style.dash, color=style.colour, marker=marker, markersize=2.5)
                error = std / max(seeds - 1, 1) ** 0.5
                axis.fill_between(labels, mean - error, mean + error, color=style.colour, alpha=0.12, linewidth=0)
            heading = f"Test RMSE ({unit})" if metric == "rmse" else "Test NLPD (nats)"
            axis.set(xlabel="Labels", ylabel=heading)
            if len(sizes) > 1:
                axis.set_title(f"{size} label{'s' * (size > 1)} at a time")
            first = axes[simulate.COMPARED.index(metric)]
            if axis is not first:
                axis.sharey(first)
        lines = legend_lines(shown.values(), markers=True)
        add_legend(figure, lines, narrow=narrow, columns=5)
        return figure


class Picks(NamedTuple):
    """Labelled rows on a map: where they are ``[rows, 2]``, and how many labels there were before each."""

    title: str
    rows: np.ndarray
    before: np.ndarray


def _map(records: Records, results: simulate.Results) -> Picture:
    """The picture of where rules look, with the first seed."""
    columns = records.read_table("map.parquet")
    everywhere = np.stack([columns["first"], columns["second"]], axis=1)
    picks = []
    for arm in simulate.recorded_arms(records):
        chosen = simulate.chosen_rows(records, arm, 0)
        picks.append(Picks(_title(arm.name, results), everywhere[chosen.rows], chosen.before))
    # Enough to see where the rows are, in a file of moderate size.
    sample = np.random.default_rng(0).permutation(len(everywhere))[:_MAPPED]
    caption = (
        "Where the rules look, with the first seed: the table's rows (grey) by the first two principal components of "
        f"their inputs, which have {sum(results['map_shares']):.0%} of the variance, and the rows that were labelled. "
        "Crosses are the labels that all rules begin with; dots are coloured by the number of labels when they were "
        "chosen."
    )
    return Picture("map", "Where the rules look", caption, partial(draw_map, everywhere[sample], picks))


def draw_map(everywhere: np.ndarray, picks: Sequence[Picks], *, narrow: bool = False) -> Figure:
    """Draw all rows ``[rows, 2]`` and, in a panel for each rule, those that were labelled, coloured by round."""
    columns = min(len(picks), 3)
    rows = -(-len(picks) // columns)
    with figure_style():
        size = rows * columns if not narrow else len(picks)
        figure, axes = new_panels(size, 0.4 + 2.3 * rows, narrow=narrow, rows=rows)
        last = max(float(one.before.max()) for one in picks)
        first = min(float(one.before[one.before > 0].min(initial=last)) for one in picks)
        shades = ScalarMappable(Normalize(first, max(last, first + 1)), _SHADES)
        for axis, one in zip(axes, picks, strict=False):
            axis.scatter(everywhere[:, 0], everywhere[:, 1], s=2.5, color="#C4C4C4", linewidths=0, rasterized=True)
            begun = one.before == 0
            x, y = one.rows.T
            axis.scatter(x[begun], y[begun], s=12, marker="x", color="#000000", linewidths=0.8)
            axis.scatter(x[~begun], y[~begun], s=7, color=shades.to_rgba(one.before[~begun]), linewidths=0)
            axis.set_title(label(one.title))
            axis.set(xticks=[], yticks=[], xlabel="First component", ylabel="Second component")
        for axis in axes[len(picks) :]:
            axis.set_axis_off()
        bar_side: Literal["top", "right"] = "top" if narrow else "right"
        figure.colorbar(shades, ax=axes, label="Labels so far", shrink=0.8, aspect=30, location=bar_side)
        return figure


def _saved_table(results: simulate.Results) -> Table:
    rows = []
    for name, of in results["rules"].items():
        cells = [name_cell(name, _title(name, results))]
        for metric in simulate.COMPARED:
            cells.append(Cell(number(of[metric]["mean"][-1]), f"± {number(of[metric]['std'][-1])}"))
        for metric in simulate.COMPARED:
            saving = _saving(of["saved"][metric], results["config"]["seeds"])
            cells.append(saving if of["rule"] != simulate.CONTROL else Cell("–", "the control"))
        rows.append([*cells, Cell(number(of["seconds"]))])
    note = (
        "Labels saved: how many fewer labels than random (with the same batch size) a rule needs for the same value, "
        "in percent, averaged along random's curve; negative if it needs more. The percentage is from mean curves; "
        "the range is the middle 90% "
        "over resampled seeds. Where a rule never came to a value of random, it needs more labels than it had: the "
        "percentage counts its last label and is a bound (≤), the lower end of the range twice as many. Better or "
        f"worse is what all of the range says; with fewer than {FEWEST_SEEDS} seeds it is unclear."
    )
    header = ["Rule", "Final RMSE", "Final NLPD", "Labels saved (RMSE)", "Labels saved (NLPD)", "Seconds a seed"]
    return Table("Labels saved against random", note, header, rows)


def _saving(saved: simulate.LabelsSaved, seeds: int) -> Cell:
    if saved["mean"] is None:
        return Cell("–", "the density is not finite")
    reached = "" if saved["reached"] in (None, 1) else f"; {_percent(1 - saved['reached'])} never reached"
    return Cell(share_saved(saved), settled(saved, seeds) + reached)
