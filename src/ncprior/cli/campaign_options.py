"""Options that the commands ``ncprior campaign ...`` share, and how they open a campaign."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from ncprior.cli.interrupts import ends_at_once, stoppable
from ncprior.errors import UserError

if TYPE_CHECKING:
    from ncprior.campaigns import Campaign

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the campaign.")]
StorageOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where campaigns are kept: sqlite:///FILE or postgresql://USER@HOST/DATABASE. "
        "\\[default: NCPRIOR_STORAGE, or sqlite:///campaign.db]",
    ),
]
PersonOption = Annotated[str, typer.Option(metavar="NAME", help="Who asks or tells.")]
IdOption = Annotated[str, typer.Option("--id", metavar="ROW", help="Id of the row.")]
NoteOption = Annotated[str | None, typer.Option(metavar="TEXT", help="Anything to remember.")]
KeyOption = Annotated[
    str | None, typer.Option(metavar="TEXT", help="A name of this telling: repeated with it, it counts once.")
]
ValueOption = Annotated[
    list[str] | None,
    typer.Option("--value", metavar="VALUE", help="The value; with several targets TARGET=VALUE, for each."),
]
BudgetOption = Annotated[int | None, typer.Option(metavar="N", help="Stop rule: this many rows. \\[default: no end]")]
ErrorOption = Annotated[
    float | None,
    typer.Option("--stop-error", metavar="X", help="Stop rule: RMSE on audit rows below this, by its 95% bound."),
]
PatienceOption = Annotated[
    int | None, typer.Option("--stop-patience", metavar="K", help="Stop rule: no improvement over the last K labels.")
]


@contextmanager
def needs_extra() -> Iterator[None]:
    """Says what to install if the packages for campaigns are missing."""
    try:
        with ends_at_once():
            import sqlalchemy  # noqa: F401
    except ImportError as error:
        raise UserError("campaigns need more packages; install them: pip install 'ncprior[campaigns]'") from error
    yield


@contextmanager
def opened(name: str, storage: str | None) -> Iterator["Campaign"]:
    """A campaign, closed afterwards."""
    with needs_extra(), ends_at_once():
        from ncprior.campaigns import Campaign
    with stoppable("what was written before stays"):
        found = Campaign.open(name, storage)
        with found.database:
            yield found


def pairs(given: list[str], option: str) -> dict[str, str]:
    """``NAME=VALUE`` options as a dictionary."""
    found: dict[str, str] = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign or name in found:
            raise UserError(f"{option} {one}: give NAME=VALUE, and each name once")
        found[name] = value
    return found
