"""The report of a run: one HTML page that holds everything and opens without a server."""

import base64
import dataclasses
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2

from ncprior.errors import UserError
from ncprior.experiments import evaluate, function_prior, learning_curves, regression, robustness, simulate
from ncprior.experiments.records import Records
from ncprior.methods import title
from ncprior.presets import DIFFERENCES, FLIGHTS_PRESETS, NOT_FOLLOWED, PRESETS, Settings
from ncprior.report import claims, saved, trust
from ncprior.report import regression as regression_report
from ncprior.report.figures import (
    collect_beliefs,
    collect_learning_curves,
    draw_beliefs,
    draw_learning_curves,
    draw_robustness,
)
from ncprior.report.function_prior import function_prior_section
from ncprior.report.sections import Cell, Picture, Section, Table, number, plain
from ncprior.report.style import style

_FORMATS = ("svg", "png", "pdf")

PUBLISHED_TOY = {
    "bbb": {"test_rmse": "0.75 ± 0.31", "test_nlpd": "10.29 ± 8.05"},
    "det": {"test_rmse": "1.46 ± 0.64", "test_nlpd": "1.3e8 ± 1.7e8"},
}
"""Appendix C of the paper, at the end of the run; it prints no numbers for the NCP models."""

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


def report(folder: Path) -> Path:
    """Draws the figures and the page of a run again from its records."""
    records = Records.open(folder)
    if records.experiment == ALL:
        parts = [records.folder / name for name in records.config["parts"]]
        return _write_page(records, "All figures and tables", [_section(Records.open(part)) for part in parts])
    section = _section(records)
    return _write_page(records, section.title, [section])


ALL = "all"
"""The experiment that is all the others."""


def _section(records: Records) -> Section:
    if records.experiment not in _SECTIONS:
        raise UserError(
            f"{records.folder} is a run of {records.experiment!r}, which this version of ncprior does not know"
        )
    if missing := _UNFINISHED.get(records.experiment, _unfinished)(records):
        raise UserError(f"{records.folder} is not finished ({', '.join(missing)} missing): run it again with --resume")
    return _SECTIONS[records.experiment](records)


def _unfinished(records: Records) -> list[str]:
    """The methods of one of the paper's experiments that are not done."""
    return [name for name in records.config["methods"] if not records.exists(_model(name))]


def _model(name: str) -> str:
    return f"models/{name}.safetensors"


def toy_section(records: Records) -> Section:
    """Figures 1 and 3, and the table of final results."""
    learning_curves.write_results(records)
    seeds = records.config["seeds"]
    spread = f"mean and standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
    pictures = [
        Picture(
            "figure1",
            "Figure 1: predictive distributions",
            "Mean and two standard deviations at the end of training, seed 0, split into epistemic uncertainty and "
            "aleatoric noise. Labels can be acquired only within the two bands of training rows, and are drawn by "
            f"the score below: {_score_name(records)}.",
            draw_beliefs(collect_beliefs(records)),
        ),
        Picture(
            "figure3",
            "Figure 3: learning curves",
            "Root mean squared error and negative log predictive density on the visible labels and on all "
            f"points that are not visible, {spread}.",
            draw_learning_curves(collect_learning_curves(records)),
        ),
    ]
    intro = (
        "A sine with a small slope and noise that grows with x. Labels are available only within two bands, and the "
        "models are tested on every point that they have not seen: outside of the bands too."
    )
    tables = [_results_table(records, PUBLISHED_TOY), _settings_table(records, PRESETS)]
    checked = claims.toy_claims(records)
    return Section("Active learning in one dimension", intro, pictures, tables, checked, _stopped(records), records)


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
        draw_learning_curves(collect_learning_curves(records), unit="minutes"),
    )
    intro = (
        f"Arrival delays of real flights ({source}), predicted from eight facts about each flight. Labels are "
        "acquired from all training rows."
    )
    tables = [_results_table(records, {}), _settings_table(records, FLIGHTS_PRESETS)]
    checked = claims.flights_claims(records)
    return Section("Active learning on flight delays", intro, [picture], tables, checked, _stopped(records), records)


def robustness_section(records: Records) -> Section:
    """Figure 5 of the paper on flights, or the figure of its appendix C on the toy data."""
    robustness.write_results(records)
    flights = records.experiment == robustness.NAMES["flights"]
    picture = Picture(
        "figure5" if flights else "appendix-c",
        "Figure 5: robustness to the input noise" if flights else "Appendix C: robustness to the input noise",
        "Final test performance with Gaussian noise of variance sigma_x^2 (solid) and uniform noise on [-2 sigma_x, "
        f"2 sigma_x] (dashed), mean and standard deviation over {records.config['seeds']} seeds. The baselines have no "
        "input noise; their medians are dotted, or named at the top if they are off the scale.",
        draw_robustness(robustness.collect(records), unit="minutes" if flights else ""),
    )
    intro = "The active learning experiment with other input noise: how much does the choice matter?"
    where = "flight delays" if flights else "one dimension"
    tables = [_results_table(records, {} if flights else PUBLISHED_TOY)]
    checked = claims.robustness_claims(records)
    name = f"Robustness to noise patterns, {where}"
    return Section(name, intro, [picture], tables, checked, _stopped(records), records)


def regression_section(records: Records) -> Section:
    """Table 1, and the learning curves of its networks."""
    regression.write_results(records)
    picture = Picture(
        "table1",
        "Learning curves",
        "Root mean squared error (minutes) and negative log predictive density after every epoch, a line for each "
        "seed; a dot marks the weights that were kept, grey lines the baselines on the same split.",
        regression_report.draw_curves(
            regression_report.collect_curves(records), regression_report.collect_baselines(records)
        ),
    )
    rows = [
        [Cell(row.title), Cell(row.kind, row.note), *(_over_seeds(value) for value in (row.nlpd, row.rmse))]
        for row in regression_report.collect_table(records)
    ]
    notes = records.read_json("results.json")["notes"]
    note = (
        "Rows marked as published are printed in the paper, on the authors' split, which is not known to be ours: "
        "compare networks with the baselines on the same split. Networks: mean ± standard deviation over the seeds "
        f"that finished. {' '.join(notes)}"
    )
    table = Table("Table 1", note, ["Model", "From", "Test NLPD", "Test RMSE (minutes)"], rows)
    intro = "Networks of three wide layers on all training rows: does the method scale?"
    checked = claims.regression_claims(records)
    return Section("Regression of flight delays", intro, [picture], [table], checked, _stopped(records), records)


def _over_seeds(value: regression_report.Value) -> Cell:
    if value.std is None:
        return Cell(number(value.mean))
    return Cell(f"{number(value.mean)} ± {number(value.std)}", f"median {number(value.median)}")


def _write_page(records: Records, heading: str, sections: list[Section]) -> Path:
    images = [[_save(section.records, picture) for picture in section.pictures] for section in sections]
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ncprior.report"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    page = environment.get_template("page.html").render(
        title=heading,
        sections=sections,
        images=images,
        rule=claims.RULE,
        origins=[_origin(section.records) for section in sections],
        folder=records.folder.name,
    )
    return records.write_bytes("report.html", page.encode())


def _save(records: Records, picture: Picture) -> str:
    """Writes the figure in every format, and gives it as the address of an image."""
    address = ""
    for kind in _FORMATS:
        # Without the date the same records give the same file.
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[kind]
        buffer = io.BytesIO()
        with style():
            picture.figure.savefig(buffer, format=kind, dpi=200, metadata=metadata)
        records.write_bytes(f"figures/{picture.name}.{kind}", buffer.getvalue())
        if kind == "svg":
            address = "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()
    return address


def _results_table(records: Records, published: dict[str, dict[str, str]]) -> Table:
    results = records.read_json("results.json")
    rows = [
        [
            Cell(title(name)),
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
        "Mean ± standard deviation at the end over all runs of a method (its seeds, with every input noise if several "
        "are compared); lower is better, except for coverage, which is best at 0.9. "
        "Compare medians where a mean is ruled by a few seeds."
    )
    if published:
        note += " Published figures are those that the paper prints (appendix C), not of this run."
    return Table("Final results", note, ["Method", *_COLUMNS.values()], rows)


def _settings_table(records: Records, presets: dict[str, Settings]) -> Table:
    """What differs between the presets, and which values this run had."""
    config = records.config
    paper, reference = (dataclasses.asdict(presets[name]) for name in ("paper", "reference"))
    rows = [
        [
            Cell(name),
            Cell(plain(config["settings"].get(name, "not on record"))),  # of a version without this setting
            Cell(said[0], plain(paper[name])),
            Cell(said[1], plain(reference[name])),
        ]
        for name, said in DIFFERENCES.items()
        if paper[name] != reference[name]
    ]
    rows += [
        [Cell(subject, "both presets"), Cell(here), Cell(said), Cell(does)]
        for subject, (said, does, here) in NOT_FOLLOWED.items()
    ]
    note = (
        "The published figures came from the authors' released code, which differs from the text of the paper. The "
        f"preset 'paper' follows the text, 'reference' the code, but for the last {len(NOT_FOLLOWED)} rows, which are "
        f"about scoring and drawing alone. This run began with '{config['preset']}'."
    )
    return Table(
        "What the presets mean", note, ["Setting", "This run", "The paper says", "The released code does"], rows
    )


def _origin(records: Records) -> dict[str, str]:
    """Where the numbers of a run come from: configuration, versions, times."""
    found = {key: plain(value) for key, value in _flat(records.config).items()}
    for name in records.config.get("methods", ()):
        # Only the paper's experiments keep their models; others have the time among their results.
        seconds = records.read_notes(_model(name)).get("seconds") if records.exists(_model(name)) else None
        if seconds is not None:
            found[f"training time, {title(name)}"] = f"{seconds:.0f} s"
    return found | {"versions": ", ".join(f"{name} {version}" for name, version in records.versions.items())}


def _stopped(records: Records) -> list[str]:
    failed = records.read_json("results.json")["failed_seeds"]
    return [f"{title(name)}, run {seed}: {why}" for name, seeds in failed.items() for seed, why in seeds.items()]


def _score_name(records: Records) -> str:
    chosen = records.config["acquisition"]
    return chosen.replace("_", " ") if chosen else "the information gain (for Det a proxy, on its own scale)"


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, item in value.items():
        flat |= _flat(item, f"{prefix}{key}.") if isinstance(item, dict) else {f"{prefix}{key}": item}
    return flat


_SECTIONS: dict[str, Callable[[Records], Section]] = {
    "toy": toy_section,
    "flights": flights_section,
    function_prior.NAME: function_prior_section,
    **dict.fromkeys(robustness.NAMES.values(), robustness_section),
    regression.NAME: regression_section,
    evaluate.NAME: trust.evaluate_section,
    simulate.NAME: saved.simulate_section,
}
_UNFINISHED: dict[str, Callable[[Records], list[str]]] = {
    evaluate.NAME: evaluate.unfinished,
    function_prior.NAME: function_prior.unfinished,
    simulate.NAME: simulate.unfinished,
}
