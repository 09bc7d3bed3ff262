"""The report of a run: a single HTML file that contains its figures and opens without a server."""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jinja2
from matplotlib.figure import Figure

from ncprior.core.methods import title
from ncprior.errors import UserError
from ncprior.experiments import evaluate, simulate
from ncprior.experiments.paper import ablations, flights, function_prior, regression, robustness, toy
from ncprior.experiments.records import Records
from ncprior.experiments.runs import MethodFiles, unfinished_methods
from ncprior.report import paper
from ncprior.report.claims.verdicts import RULE
from ncprior.report.evaluate import evaluate_section
from ncprior.report.function_prior import function_prior_section
from ncprior.report.sections import Picture, Section, plain
from ncprior.report.simulate import simulate_section
from ncprior.report.styles import figure_style
from ncprior.report.terms import TERMS, explanation

_FORMATS = ("svg", "png", "pdf")


def report(folder: Path) -> Path:
    """Draw the figures and the page of a run from its records.

    Args:
        folder: The folder of a finished run.

    Returns:
        The path of the page.

    Raises:
        UserError: If the folder has no run, or one that is not finished.
    """
    records = Records.open(folder)
    if records.experiment == ALL:
        parts = [records.folder / name for name in records.config["parts"]]
        return _write_page(records, "All figures and tables", [_section(Records.open(part)) for part in parts])
    section = _section(records)
    return _write_page(records, section.title, [section])


ALL = "all"
"""The name of the experiment that consists of all others."""


def _section(records: Records) -> Section:
    if records.experiment not in _SECTIONS:
        raise UserError(
            f"{records.folder} is a run of {records.experiment!r}, which this version of ncprior does not know"
        )
    if missing := _UNFINISHED.get(records.experiment, _unfinished)(records):
        raise UserError(f"{records.folder} is not finished ({', '.join(missing)} missing): run it again with --resume")
    return _SECTIONS[records.experiment](records)


def _unfinished(records: Records) -> list[str]:
    """The methods of one of the paper's experiments that have not finished."""
    return unfinished_methods(records, records.config["methods"])


def _write_page(records: Records, heading: str, sections: list[Section]) -> Path:
    images = [[_save(section.records, picture) for picture in section.pictures] for section in sections]
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ncprior.report"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    page = environment.get_template("page.html").render(
        title=heading,
        sections=sections,
        images=images,
        rule=RULE,
        explanation=explanation,
        terms=TERMS,
        origins=[_origin(section.records) for section in sections],
        folder=records.folder.name,
    )
    return records.write_bytes("report.html", page.encode())


class Image(NamedTuple):
    """A figure as data URLs, for a wide page and for a narrow one."""

    wide: str
    narrow: str


def _save(records: Records, picture: Picture) -> Image:
    """Write a figure in every format, and return it as images for the page."""
    wide, (narrow,) = _drawn(picture.draw(), _FORMATS), _drawn(picture.draw(narrow=True), ("svg",))
    for kind, drawn in zip(_FORMATS, wide, strict=True):
        records.write_bytes(f"figures/{picture.name}.{kind}", drawn)
    return Image(*map(_address, (wide[_FORMATS.index("svg")], narrow)))


def _drawn(figure: Figure, kinds: Sequence[str]) -> list[bytes]:
    """The figure in these formats, all with the layout of the first: to lay it out takes longer than to draw it."""
    found = []
    for kind in kinds:
        # Without the date, the same records give the same file.
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[kind]
        buffer = io.BytesIO()
        with figure_style():
            figure.savefig(buffer, format=kind, dpi=200, metadata=metadata)
            figure.set_layout_engine("none")
        found.append(buffer.getvalue())
    return found


def _address(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


def _origin(records: Records) -> dict[str, str]:
    """Where the numbers of a run come from: configuration, versions and training times, as text by name."""
    found = {key: plain(value) for key, value in _flat(records.config).items()}
    for name in records.config.get("methods", ()):
        # Only the paper's experiments save models, with the training time; others have it in their results.
        files = MethodFiles(records, name)
        seconds = files.model_notes().get("seconds") if files.finished else None
        if seconds is not None:
            found[f"training time, {title(name)}"] = f"{seconds:.0f} s"
    return found | {"versions": ", ".join(f"{name} {version}" for name, version in records.versions.items())}


def _flat(value: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """A nested configuration as one dictionary, whose keys are paths such as ``settings.gamma``."""
    flat: dict[str, object] = {}
    for key, item in value.items():
        flat |= _flat(item, f"{prefix}{key}.") if isinstance(item, dict) else {f"{prefix}{key}": item}
    return flat


_SECTIONS: dict[str, Callable[[Records], Section]] = {
    toy.NAME: paper.toy_section,
    ablations.NAME: paper.ablations_section,
    flights.NAME: paper.flights_section,
    function_prior.NAME: function_prior_section,
    **dict.fromkeys(robustness.NAMES.values(), paper.robustness_section),
    regression.NAME: paper.regression_section,
    evaluate.NAME: evaluate_section,
    simulate.NAME: simulate_section,
}
_UNFINISHED: dict[str, Callable[[Records], list[str]]] = {
    evaluate.NAME: evaluate.unfinished,
    function_prior.NAME: function_prior.unfinished,
    simulate.NAME: simulate.unfinished,
}
