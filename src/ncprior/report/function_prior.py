"""The page of ``ncprior paper prior``: functions drawn before training, from the prior, and from the posterior."""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ncprior.experiments.paper import function_prior
from ncprior.experiments.records import Records
from ncprior.report.sections import Cell, Picture, Section, Table, number
from ncprior.report.styles import UNCERTAINTY, add_legend, figure_style, new_panels

_HEADINGS = {
    "initial": "Before training",
    "ncp": r"NCP alone, $\mu_y$ constant",
    "fantasised": r"NCP alone, fantasised $\tilde y$",
    "data": "NCP and data",
}

_FUNCTION = "#0072B2"
_TICKS: dict[str, Any] = {"color": "#555555", "markersize": 4, "markeredgewidth": 0.5}


class Functions(NamedTuple):
    """The distribution over functions of one stage: mean, standard deviation, draws, and what it was trained on."""

    x: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    draws: np.ndarray  # [functions, inputs]
    targets: tuple[np.ndarray, np.ndarray] | None  # inputs and targets of one seed, None if there are none
    inputs: np.ndarray  # to which noise is added


def function_prior_section(records: Records) -> Section:
    """The section of a run: functions of every stage, and their spread."""
    function_prior.write_results(records)
    config, results = records.config, records.read_json("results.json")
    settings, labels = config["settings"], config["schedule"]["initial"]
    caption = (
        "Functions drawn from the belief over the weights of BBB+NCP, with their mean and two standard deviations, "
        f"over {config['seeds']} seeds. Ticks mark the {labels} inputs to which the input prior adds noise. From left "
        "to right: the untrained network; trained on the NCP term alone, with a constant centre of the output prior; "
        "the same with targets that each seed draws from the output prior (dots: those of seed 0); trained on the NCP "
        "term and the labels (dots)."
    )
    draw = partial(draw_functions, collect(records))
    picture = Picture("function-prior", "Functions drawn from the prior", caption, draw)
    intro = (
        "The noise contrastive prior is a prior over functions (Equation 3): the belief over weights after training on "
        "inputs and targets that are drawn from the data prior, without any label. At noised inputs the functions "
        f"should have the standard deviation of the output prior, {settings['output_std']:.3g}."
    )
    rows = [
        [
            Cell(written),
            *(
                Cell(number(results["stages"][stage][place][name]))
                for name in ("std", "mean")
                for place in ("bands", "elsewhere")
            ),
        ]
        for stage, written in function_prior.STAGES.items()
    ]
    header = ["Trained on", "Spread in the bands", "Spread elsewhere", "Mean in the bands", "Mean elsewhere"]
    note = (
        "Standard deviation and mean of the functions: root mean squares over the inputs, within the bands that labels "
        "come from and elsewhere in the figure."
    )
    table = Table("How far functions spread", note, header, rows)
    stopped = [
        f"{function_prior.STAGES[stage]}, seed {seed}: {why}"
        for stage, seeds in results["failed_seeds"].items()
        for seed, why in seeds.items()
    ]
    quick = config["schedule"] == dataclasses.asdict(function_prior.QUICK)
    quick_run = "This is a quick run, with a fifth of the epochs: run it without --quick for the full experiment."
    return Section(
        "The prior over functions", intro, [picture], [table], [], stopped, records, quick_run if quick else ""
    )


def collect(records: Records) -> dict[str, Functions]:
    """The distribution over functions of every stage, from the records."""
    found = {}
    labels = records.config["schedule"]["initial"]
    for stage in function_prior.STAGES:
        x, mean, std = function_prior.marginal(records, stage)
        draws = records.read_table(f"functions/{stage}.parquet")["y"].reshape(-1, len(x))
        rows = records.read_table(f"targets/{stage}.parquet")
        of_seed = rows["x"][:labels], rows["y"][:labels]
        found[stage] = Functions(x, mean, std, draws, of_seed if stage in ("fantasised", "data") else None, of_seed[0])
    return found


def draw_functions(stages: dict[str, Functions], *, narrow: bool = False) -> Figure:
    """Draw a panel for each stage: functions, their mean and two standard deviations."""
    with figure_style():
        figure, axes = new_panels(len(stages), 2.3, narrow=narrow)
        highest = 1.1 * max(float(np.max(np.abs(of.mean) + 2 * of.std)) for of in stages.values())
        for axis, (stage, (x, mean, std, draws, targets, inputs)) in zip(axes, stages.items(), strict=True):
            axis.fill_between(x, mean - 2 * std, mean + 2 * std, color=UNCERTAINTY, linewidth=0, alpha=0.6)
            axis.plot(x, draws.T, color=_FUNCTION, linewidth=0.5, alpha=0.6)
            axis.plot(x, mean, color="black", linewidth=1)
            if targets is not None:
                axis.plot(*targets, "o", color="black", markersize=1.8, markeredgewidth=0)
            axis.plot(inputs, np.full(len(inputs), 0.02), "|", transform=axis.get_xaxis_transform(), **_TICKS)
            axis.set(title=_HEADINGS[stage], xlabel="x", xlim=(x.min(), x.max()), ylim=(-highest, highest))
            if narrow or axis is axes[0]:
                axis.set_ylabel("f(x)")
            else:
                axis.tick_params(labelleft=False)
        handles = [
            Line2D([], [], color=_FUNCTION, linewidth=0.8, label="functions"),
            Line2D([], [], color="black", linewidth=1, label="mean"),
            Patch(color=UNCERTAINTY, label="2 std"),
            Line2D([], [], color="black", marker="o", markersize=2.5, linestyle="", label="targets"),
            Line2D([], [], marker="|", linestyle="", label="inputs", **_TICKS),
        ]
        add_legend(figure, handles, narrow=narrow, columns=len(handles))
        return figure
