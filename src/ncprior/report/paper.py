"""Sections of a page about the paper's experiments: figures, tables and verdicts."""

import dataclasses
from functools import partial

from ncprior.core.methods import split_name, title
from ncprior.core.settings import DIFFERENCES, FLIGHTS_PRESETS, NOT_FOLLOWED, PRESETS, Settings
from ncprior.experiments.paper import learning_curves, regression, robustness
from ncprior.experiments.records import Records
from ncprior.report import regression as regression_report
from ncprior.report.claims.ablations import ablation_claims
from ncprior.report.claims.flights import flights_claims
from ncprior.report.claims.regression import regression_claims
from ncprior.report.claims.robustness import flights_robustness_claims, toy_robustness_claims
from ncprior.report.claims.toy import toy_claims
from ncprior.report.claims.verdicts import Claim
from ncprior.report.differences import active_learning_note, regression_note
from ncprior.report.figures import (
    collect_beliefs,
    collect_learning_curves,
    draw_beliefs,
    draw_learning_curves,
    draw_robustness,
)
from ncprior.report.sections import Cell, Picture, Section, Table, number, plain
from ncprior.schema import JsonObject

PUBLISHED_TOY = {
    "bbb": {"test_rmse": "0.75 ± 0.31", "test_nlpd": "10.29 ± 8.05"},
    "det": {"test_rmse": "1.46 ± 0.64", "test_nlpd": "1.3e8 ± 1.7e8"},
}
"""Final values in appendix C of the paper, which has none for the NCP models."""

_COLUMNS = {
    "test_rmse": "Test RMSE",
    "test_nlpd": "Test NLPD",
    "train_rmse": "Train RMSE",
    "train_nlpd": "Train NLPD",
    "test_crps": "Test CRPS",
    "test_coverage": "90% coverage",
    "test_calibration_error": "Calibration error",
    "test_sharpness": "Sharpness",
}


def toy_section(records: Records) -> Section:
    """Figures 1 and 3, and the table of final results."""
    learning_curves.write_results(records)
    pictures = [
        _beliefs_picture(records, "figure1", "Figure 1: predictive distributions"),
        _curves_picture(records, "figure3", "Figure 3: learning curves"),
    ]
    intro = (
        "A sine with a small slope and noise that grows with x. Labels are available only within two bands, and the "
        "models are tested on every point that they have not seen: outside of the bands too."
    )
    tables = [_results_table(records, PUBLISHED_TOY), _settings_table(records, PRESETS)]
    return _active_section(
        records, "Active learning in one dimension", intro, pictures=pictures, tables=tables, claims=toy_claims(records)
    )


def ablations_section(records: Records) -> Section:
    """The figures of the 1-dimensional experiment for variants of BBB+NCP."""
    learning_curves.write_results(records)
    pictures = [
        _beliefs_picture(records, "beliefs", "Predictive distributions"),
        _curves_picture(records, "curves", "Learning curves"),
    ]
    intro = (
        "Two choices that, by the paper, make no difference to BBB+NCP: the direction of the KL divergence in the NCP "
        "term (appendix B derives the other one), and a normal prior on the weights in addition to NCP. The experiment "
        "is active learning in one dimension."
    )
    tables = [_results_table(records, {}), _settings_table(records, PRESETS)]
    return _active_section(
        records, "Variants of BBB+NCP", intro, pictures=pictures, tables=tables, claims=ablation_claims(records)
    )


def _beliefs_picture(records: Records, name: str, heading: str) -> Picture:
    caption = (
        "Mean and two standard deviations at the end of training, seed 0, split into epistemic uncertainty and "
        "aleatoric noise. Labels can be acquired only within the two bands of training rows, and are drawn by "
        f"the score below: {_score_name(records)}."
    )
    return Picture(name, heading, caption, partial(draw_beliefs, collect_beliefs(records)))


def _curves_picture(records: Records, name: str, heading: str) -> Picture:
    seeds = records.config["seeds"]
    caption = (
        "Root mean squared error and negative log predictive density on the visible labels and on all points that are "
        f"not visible, {f'mean and standard deviation over {seeds} seeds' if seeds > 1 else 'one seed'}."
    )
    return Picture(name, heading, caption, partial(draw_learning_curves, collect_learning_curves(records)))


def flights_section(records: Records) -> Section:
    """Figure 4, and the table of final results."""
    learning_curves.write_results(records)
    seeds, data = records.config["seeds"], records.config["data"]
    source = data["source"] if data["source"] == "npy" else f"{data['source']}, split {data['split']}"
    picture = Picture(
        "figure4",
        "Figure 4: learning curves",
        "Root mean squared error (minutes) and negative log predictive density on the visible labels and on the "
        f"test set, mean and standard deviation over {seeds} seeds. The dotted line has its labels drawn at random.",
        partial(draw_learning_curves, collect_learning_curves(records), unit="minutes"),
    )
    intro = (
        f"Arrival delays of real flights ({source}), predicted from eight facts about each flight. Labels are "
        "acquired from all training rows."
    )
    tables = [_results_table(records, {}), _settings_table(records, FLIGHTS_PRESETS)]
    return _active_section(
        records,
        "Active learning on flight delays",
        intro,
        pictures=[picture],
        tables=tables,
        claims=flights_claims(records),
    )


def robustness_section(records: Records) -> Section:
    """Figure 5 of the paper on flights, or the figure of its appendix C on the toy data."""
    robustness.write_results(records)
    flights = records.experiment == robustness.NAMES["flights"]
    picture = Picture(
        "figure5" if flights else "appendix-c",
        "Figure 5: robustness to the input noise" if flights else "Appendix C: robustness to the input noise",
        "Final test performance with Gaussian noise of variance sigma_x^2 (solid) and uniform noise on [-2 sigma_x, "
        f"2 sigma_x] (dashed), mean and standard deviation over {records.config['seeds']} seeds. The baselines have no "
        "input noise; their medians are dotted, or named above the panel if they are off the scale.",
        partial(draw_robustness, robustness.collect(records), unit="minutes" if flights else ""),
    )
    intro = "The active learning experiment with other input noise: how much does the choice matter?"
    where = "flight delays" if flights else "one dimension"
    tables = [_results_table(records, {} if flights else PUBLISHED_TOY)]
    checked = (flights_robustness_claims if flights else toy_robustness_claims)(records)
    return _active_section(
        records, f"Robustness to noise patterns, {where}", intro, pictures=[picture], tables=tables, claims=checked
    )


def _active_section(
    records: Records, title: str, intro: str, *, pictures: list[Picture], tables: list[Table], claims: list[Claim]
) -> Section:
    """A section about active learning, with the runs that stopped and how the run differs from the paper's."""
    differences = active_learning_note(records)
    return Section(title, intro, pictures, tables, claims, _stopped(records), records, differences)


def regression_section(records: Records) -> Section:
    """Table 1, and the learning curves of its networks."""
    regression.write_results(records)
    picture = Picture(
        "table1",
        "Learning curves",
        "Root mean squared error (minutes) and negative log predictive density after every epoch, a line for each "
        "seed; a dot marks the weights that were kept, grey lines the baselines on the same split.",
        partial(
            regression_report.draw_curves,
            regression_report.collect_curves(records),
            regression_report.collect_baselines(records),
        ),
    )
    rows = [
        [Cell(row.title), Cell(row.kind, row.note), *(_over_seeds(value) for value in (row.nlpd, row.rmse))]
        for row in regression_report.collect_table(records)
    ]
    notes = records.read_json("results.json")["notes"]
    note = (
        "Published rows are from the paper and on the authors' split, which may differ from this one: compare the "
        "networks with the baselines, which are on the same split. Networks: mean ± standard deviation over the seeds "
        f"that finished. {' '.join(notes)}"
    )
    table = Table("Table 1", note, ["Model", "From", "Test NLPD", "Test RMSE (minutes)"], rows)
    intro = "Networks of three wide layers on all training rows: does the method scale?"
    checked, differences = regression_claims(records), regression_note(records)
    return Section(
        "Regression of flight delays", intro, [picture], [table], checked, _stopped(records), records, differences
    )


def _over_seeds(value: regression_report.Value) -> Cell:
    if value.std is None:
        return Cell(number(value.mean))
    return Cell(f"{number(value.mean)} ± {number(value.std)}", f"median {number(value.median)}")


def _results_table(records: Records, published: dict[str, dict[str, str]]) -> Table:
    results = records.read_json("results.json")
    rows = [
        [
            Cell(title(name), _failures(results, name)),
            *(
                Cell(
                    f"{number(metrics[key]['mean'])} ± {number(metrics[key]['std'])}",
                    f"median {number(metrics[key]['median'])}",
                    published.get(name, {}).get(key, ""),
                )
                for key in _COLUMNS
            ),
        ]
        for name, metrics in results["methods"].items()
    ]
    note = (
        "Mean ± standard deviation at the end, over all runs of a method: its seeds, for every input noise if several "
        "are compared. Lower is better, except for coverage, which is best at 0.9. Compare medians where a few seeds "
        "dominate a mean. Runs that stopped early are left out."
    )
    if published:
        note += " Published numbers are from appendix C of the paper."
    return Table("Final results", note, ["Method", *_COLUMNS.values()], rows)


def _settings_table(records: Records, presets: dict[str, Settings]) -> Table:
    """The differences between the presets, and the values of this run."""
    config = records.config
    paper, reference = (dataclasses.asdict(presets[name]) for name in ("paper", "reference"))
    rows = [
        [
            Cell(name),
            Cell(plain(config["settings"].get(name, "not on record"))),  # if the run's version lacked this setting
            Cell(paper_says[0], plain(paper[name])),
            Cell(paper_says[1], plain(reference[name])),
        ]
        for name, paper_says in DIFFERENCES.items()
        if paper[name] != reference[name]
    ]
    rows += [
        [Cell(subject, "both presets"), Cell(done_here), Cell(paper_says), Cell(does)]
        for subject, (paper_says, does, done_here) in NOT_FOLLOWED.items()
    ]
    note = (
        "The published figures came from the authors' released code, which differs from the text of the paper. The "
        "preset 'paper' follows the text and 'reference' follows the code, except in the last "
        f"{len(NOT_FOLLOWED)} rows, which concern scoring and drawing only. This run used '{config['preset']}'."
    )
    return Table(
        "What the presets mean", note, ["Setting", "This run", "The paper says", "The released code does"], rows
    )


def _stopped(records: Records) -> list[str]:
    """How many runs of each method stopped early, and why each of them did."""
    results = records.read_json("results.json")
    lines = []
    for name, runs in results["failed_seeds"].items():
        lines.append(f"{title(name)}: {_failures(results, name)}")
        lines += [f"{title(name)}, run {seed}: {why}" for seed, why in runs.items()]
    return lines


def _failures(results: JsonObject, name: str) -> str:
    count = len(results["failed_seeds"].get(name, ()))
    return f"{count} of {results['runs'][name]} runs stopped" if count else ""


def _score_name(records: Records) -> str:
    if chosen := records.config["acquisition"]:
        return chosen.replace("_", " ")
    proxy = any(split_name(name)[0].startswith("det") for name in records.config["methods"])
    return "the information gain" + (" (for Det a proxy, on its own scale)" if proxy else "")
