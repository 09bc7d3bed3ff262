"""The commands ``ncprior campaign ...``: begin a campaign, look how it stands, change it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ncprior.cli.campaign_labels import labelling
from ncprior.cli.campaign_options import (
    BudgetOption,
    ErrorOption,
    IdOption,
    NameArgument,
    PatienceOption,
    StorageOption,
    needs_extra,
    opened,
)
from ncprior.cli.campaign_service import service, token
from ncprior.cli.interrupts import ends_at_once, stoppable
from ncprior.cli.options import ForceOption, JsonOption, check_out, check_seed, kept_place, split_names
from ncprior.errors import UserError

if TYPE_CHECKING:
    from ncprior.campaigns.spec import StopRules

campaign = typer.Typer(
    no_args_is_help=True,
    help="Label campaigns: ask for rows, tell their labels days later, by many people.",
)
campaign.add_typer(labelling)
campaign.add_typer(service)
campaign.add_typer(token, name="token")


@campaign.command()
def create(
    name: NameArgument,
    *,
    pool: Annotated[
        Path, typer.Option(metavar="POOL", help="Rows to label: a CSV, Parquet or Arrow file, or a folder.")
    ],
    id_column: Annotated[str, typer.Option("--id", metavar="COLUMN", help="Column of the pool that names rows.")],
    target: Annotated[list[str], typer.Option(metavar="COLUMN", help="What is measured; can be repeated.")],
    labelled: Annotated[
        Path | None, typer.Option(metavar="TABLE", help="Labels that are known already: id, targets and inputs.")
    ] = None,
    inputs: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="Columns to predict from. \\[default: all but id and targets]")
    ] = None,
    budget: BudgetOption = None,
    stop_error: ErrorOption = None,
    stop_patience: PatienceOption = None,
    audit: Annotated[float, typer.Option(help="Share of asked rows drawn at random, to measure the error.")] = 0.1,
    replicates: Annotated[int, typer.Option(help="How many people label each row.")] = 1,
    lease: Annotated[str, typer.Option(metavar="TIME", help="How long a row is out, unless ask says: 3d, 12h.")] = "3d",
    members: Annotated[int | None, typer.Option(help="Networks of a model, as in ncprior fit. \\[default: 8]")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the rows, as in ncprior fit.")] = None,
    unlabelled: Annotated[
        bool, typer.Option(help="Teach models to be unsure where the pool is, by its inputs; see ncprior fit.")
    ] = True,
    seed: Annotated[int, typer.Option(help="Of the draws and the models.")] = 0,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a campaign of a pool of rows. The pool stays where it is; the database keeps only rows that were touched.

    [bold]Examples[/bold]

      ncprior campaign create solubility --pool molecules.parquet --id smiles --target logS --budget 200

      ncprior campaign create wells --pool wells/ --id well --target oil --target water --labelled drilled.csv
    """
    check_seed(seed)
    with needs_extra(), ends_at_once():
        from ncprior.campaigns import Campaign
        from ncprior.cli.campaign_output import print_created, print_json
    with stoppable():
        fit = {name: value for name, value in (("members", members), ("epochs", epochs)) if value is not None}
        made = Campaign.create(
            name, pool=pool, id=id_column, target=target, labelled=labelled, inputs=split_names(inputs or ""),
            storage=storage, budget=budget, stop_error=stop_error, stop_patience=stop_patience, audit=audit,
            replicates=replicates, lease=lease, seed=seed, unlabelled=unlabelled, fit=fit,
        )  # fmt: skip
        with made.database:
            status = made.status()
        print_json(status) if as_json else print_created(status)


@campaign.command()
def status(name: NameArgument, *, storage: StorageOption = None, as_json: JsonOption = False) -> None:
    """Show how a campaign stands: rows, people, the model's error on audit rows, stop rules.

    [bold]Example[/bold]

      ncprior campaign status solubility
    """
    with opened(name, storage) as found:
        from ncprior.cli.campaign_output import print_json, print_status

        print_json(found.status()) if as_json else print_status(found.status())


@campaign.command()
def history(name: NameArgument, *, row: IdOption, storage: StorageOption = None, as_json: JsonOption = False) -> None:
    """Show all that happened to a row: asked, told, corrected, given up.

    [bold]Example[/bold]

      ncprior campaign history solubility --id s17
    """
    with opened(name, storage) as found:
        from ncprior.cli.campaign_output import print_history, print_json

        events = found.history(row)
        print_json({"id": row, "events": events}) if as_json else print_history(events)


@campaign.command()
def export(
    name: NameArgument,
    *,
    out: Annotated[Path, typer.Option(help="File for the labels, .csv or .parquet.")],
    whole: Annotated[
        bool, typer.Option("--history", help="Every entry, corrections too, not only what holds now.")
    ] = False,
    force: ForceOption = False,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write labelled rows with their inputs to a file that ncprior fit reads. Text is safe in spreadsheets.

    [bold]Example[/bold]

      ncprior campaign export solubility --out labels.csv
    """
    check_out(out, force)
    with opened(name, storage) as found, kept_place(out, force):
        from ncprior.cli.campaign_output import print_json, say_line

        rows = found.export(out, history=whole)
        print_json({"out": str(out), "rows": rows}) if as_json else say_line(f"{rows} rows: {out}")


@campaign.command("list")
def list_campaigns(*, storage: StorageOption = None, as_json: JsonOption = False) -> None:
    """List the campaigns of a storage.

    [bold]Example[/bold]

      ncprior campaign list
    """
    with needs_extra(), ends_at_once():
        from ncprior.campaigns.campaign import campaign_names
        from ncprior.campaigns.database import Database
        from ncprior.cli.campaign_output import print_json, say_line
    with stoppable(""):
        with Database(storage) as database:
            names = campaign_names(database)
        if as_json:
            print_json({"campaigns": names})
        for one in () if as_json else names:
            say_line(one)


@campaign.command("update-pool")
def update_pool(
    name: NameArgument,
    *,
    pool: Annotated[
        Path | None, typer.Option(metavar="POOL", help="Another place. \\[default: the present one]")
    ] = None,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a pool that has changed, or another one. What is labelled stays; says what came and went.

    [bold]Example[/bold]

      ncprior campaign update-pool solubility --pool molecules-2.parquet
    """
    with opened(name, storage) as found:
        from ncprior.campaigns.pool_update import update_pool as update
        from ncprior.cli.campaign_output import print_json, print_pool_change

        change = update(found, pool)
        print_json(change) if as_json else print_pool_change(change)


@campaign.command()
def change(
    name: NameArgument,
    *,
    budget: BudgetOption = None,
    stop_error: ErrorOption = None,
    stop_patience: PatienceOption = None,
    close: Annotated[bool, typer.Option("--close", help="No more rows are asked for; labels are still taken.")] = False,
    reopen: Annotated[bool, typer.Option("--reopen", help="Undo --close.")] = False,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the stop rules of a campaign, close it, or open it again.

    [bold]Example[/bold]

      ncprior campaign change solubility --budget 300
    """
    rules: StopRules = {}
    if budget is not None:
        rules["budget"] = budget
    if stop_error is not None:
        rules["stop_error"] = stop_error
    if stop_patience is not None:
        rules["stop_patience"] = stop_patience
    new_status = "closed" if close else "open" if reopen else None
    if not (rules or new_status) or (close and reopen):
        raise UserError("give one of --budget, --stop-error, --stop-patience, --close or --reopen")
    with opened(name, storage) as found:
        from ncprior.cli.campaign_output import print_json, print_status

        found.change(status=new_status, **rules)
        print_json(found.status()) if as_json else print_status(found.status())
