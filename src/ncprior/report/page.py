"""The report of a run: one HTML page that holds everything and opens without a server."""

import base64
import dataclasses
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from matplotlib.figure import Figure

from ncprior.errors import UserError
from ncprior.experiments import robustness
from ncprior.experiments.learning_curves import write_results
from ncprior.experiments.records import Records
from ncprior.methods import title
from ncprior.presets import DIFFERENCES, FLIGHTS_PRESETS, PRESETS, Settings
from ncprior.report.figures import (
    collect_beliefs,
    collect_learning_curves,
    draw_beliefs,
    draw_learning_curves,
    draw_robustness,
)
from ncprior.report.style import style

_FORMATS = ("svg", "png", "pdf")

PUBLISHED_TOY = {
    "bbb": {"test_rmse": "0.75 ± 0.31", "test_nlpd": "10.29 ± 8.05"},
    "det": {"test_rmse": "1.46 ± 0.64", "test_nlpd": "1.3e8 ± 1.7e8"},
}
"""Appendix C of the paper, at the end of the run; it prints no numbers for the NCP models."""


class Picture(NamedTuple):
    """A figure with its name and caption."""

    name: str
    title: str
    caption: str
    figure: Figure


def report(folder: Path) -> Path:
    """Draws the figures and the page of a run again from its records."""
    records = Records.open(folder)
    if records.experiment not in _REPORTS:
        raise UserError(f"{folder} is a run of {records.experiment!r}, which this version of ncprior does not know")
    missing = [m for m in records.config["methods"] if not records.exists(f"models/{m}.safetensors")]
    if missing:
        raise UserError(f"{folder} is not finished ({', '.join(missing)} missing): run it again with --resume")
    return _REPORTS[records.experiment](records)


def report_toy(records: Records) -> Path:
    """Figures 1 and 3, and the table of final results."""
    write_results(records)
    seeds = records.config["seeds"]
    spread = f"mean and standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
    pictures = [
        Picture(
            "figure1",
            "Figure 1: predictive distributions",
            "Mean and two standard deviations at the end of training, seed 0, split into epistemic uncertainty and "
            "aleatoric noise. Labels can be acquired only within the two bands of training rows, and are drawn by "
            "the information gain below (Det: its proxy, on its own scale).",
            draw_beliefs(collect_beliefs(records)),
        ),
        Picture(
            "figure3",
            "Figure 3: learning curves",
            f"Root mean squared error and negative log predictive density on the visible labels and on all "
            f"points that are not visible, {spread}.",
            draw_learning_curves(collect_learning_curves(records)),
        ),
    ]
    intro = (
        "A sine with a small slope and noise that grows with x. Labels are available only within two bands, and the "
        "models are tested on every point that they have not seen: outside of the bands too."
    )
    return _write_page(records, "Active learning in one dimension", intro, pictures, PUBLISHED_TOY)


def report_flights(records: Records) -> Path:
    """Figure 4, and the table of final results."""
    write_results(records)
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
    return _write_page(records, "Active learning on flight delays", intro, [picture], {})


def report_robustness(records: Records) -> Path:
    """Figure 5 of the paper on flights, or the figure of its appendix C on the toy data."""
    robustness.write_results(records)
    flights = records.experiment == robustness.NAMES["flights"]
    seeds = records.config["seeds"]
    picture = Picture(
        "figure5",
        "Figure 5: robustness to the input noise" if flights else "Appendix C: robustness to the input noise",
        f"Final test performance with Gaussian noise of variance sigma_x^2 (solid) and uniform noise on [-2 sigma_x, "
        f"2 sigma_x] (dashed), mean and standard deviation over {seeds} seeds. The baselines have no input noise; "
        "their medians are dotted, or named at the top if they are off the scale.",
        draw_robustness(robustness.collect(records), unit="minutes" if flights else ""),
    )
    intro = "The active learning experiment with other input noise: how much does the choice matter?"
    where = "flight delays" if flights else "one dimension"
    return _write_page(
        records, f"Robustness to noise patterns, {where}", intro, [picture], {} if flights else PUBLISHED_TOY
    )


def _write_page(
    records: Records, heading: str, intro: str, pictures: list[Picture], published: dict[str, dict[str, str]]
) -> Path:
    results, config = records.read_json("results.json"), records.config
    images = {}
    for picture in pictures:
        for kind in _FORMATS:
            # Without the date the same records give the same file.
            metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[kind]
            buffer = io.BytesIO()
            with style():
                picture.figure.savefig(buffer, format=kind, dpi=200, metadata=metadata)
            content = buffer.getvalue()
            records.write_bytes(f"figures/{picture.name}.{kind}", content)
            if kind == "svg":
                images[picture.name] = "data:image/svg+xml;base64," + base64.b64encode(content).decode()
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ncprior.report"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    page = environment.get_template("page.html").render(
        title=heading,
        intro=intro,
        pictures=pictures,
        images=images,
        rows=_result_rows(results, published),
        failed=results["failed_seeds"],
        titles={name: title(name) for name in config["methods"]},
        seconds={name: records.read_notes(f"models/{name}.safetensors")["seconds"] for name in config["methods"]},
        config=_flat({key: value for key, value in config.items() if key != "settings"}),
        settings=_setting_rows(config),
        preset=config["preset"],
        published=bool(published),
        versions=results["versions"],
        folder=records.folder.name,
    )
    return records.write_bytes("report.html", page.encode())


def _result_rows(results: dict[str, Any], published: dict[str, dict[str, str]]) -> list[dict[str, Any]]:
    rows = []
    for name, metrics in results["methods"].items():
        cells = {key: {**value, "published": published.get(name, {}).get(key)} for key, value in metrics.items()}
        rows.append({"title": title(name), "cells": cells})
    return rows


def _setting_rows(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Every setting with its value, what the presets have, and what the paper and the released code say."""
    presets = FLIGHTS_PRESETS if config["data"] else PRESETS
    paper, reference = (dataclasses.asdict(presets[name]) for name in ("paper", "reference"))
    rows = []
    for field in dataclasses.fields(Settings):
        said = DIFFERENCES.get(field.name, ("", ""))
        value = config["settings"][field.name]
        rows.append(
            {
                "name": field.name,
                "value": _value(value),
                "paper": _value(paper[field.name]),
                "reference": _value(reference[field.name]),
                "says_paper": said[0],
                "says_reference": said[1],
                "differs": paper[field.name] != reference[field.name],
            }
        )
    return sorted(rows, key=lambda row: not row["differs"])


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, item in value.items():
        flat |= _flat(item, f"{prefix}{key}.") if isinstance(item, dict) else {f"{prefix}{key}": item}
    return flat


_REPORTS: dict[str, Callable[[Records], Path]] = {
    "toy": report_toy,
    "flights": report_flights,
    **dict.fromkeys(robustness.NAMES.values(), report_robustness),
}
