"""The commands ``ncprior campaign ...``: ask for rows, tell labels, look how it stands."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ncprior.cli.interrupts import ends_at_once, stoppable
from ncprior.cli.options import ForceOption, JsonOption, check_out, check_seed, kept_place, split_names
from ncprior.errors import UserError
from ncprior.terminal import remark

if TYPE_CHECKING:
    from ncprior.campaigns import Campaign

campaign = typer.Typer(
    no_args_is_help=True,
    help="Label campaigns: ask for rows, tell their labels days later, by many people.",
)
token = typer.Typer(no_args_is_help=True, help="Who may use the page and the JSON interface.")
campaign.add_typer(token, name="token")

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
        try:
            yield found
        finally:
            found.database.close()


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
        status = made.status()
        made.database.close()
        print_json(status) if as_json else print_created(status)


@campaign.command()
def ask(
    name: NameArgument,
    *,
    count: Annotated[int, typer.Option("-n", help="How many rows.")] = 1,
    person: PersonOption,
    lease: Annotated[str | None, typer.Option(metavar="TIME", help="How long they have: 3d, 12h, 90m.")] = None,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Get rows to label, never one that another person holds: ids and inputs, as CSV or JSON. Never trains a model.

    [bold]Examples[/bold]

      ncprior campaign ask solubility -n 5 --person ann

      ncprior campaign ask solubility -n 20 --person robot --lease 6h --json
    """
    with opened(name, storage) as found:
        from ncprior.cli.campaign_output import print_asked, print_json

        asked = found.ask(count, person=person, lease=lease)
        print_json(asked) if as_json else print_asked(found.spec.id_column, asked)


@campaign.command()
def tell(
    name: NameArgument,
    *,
    row: Annotated[str | None, typer.Option("--id", metavar="ROW", help="Id of the row.")] = None,
    value: ValueOption = None,
    results: Annotated[
        Path | None, typer.Option("--from", metavar="TABLE", help="Results of many rows: id and target columns, note.")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="COLUMN=VALUE", help="Of a row that is not in the pool; all of its inputs."),
    ] = None,
    person: PersonOption,
    note: NoteOption = None,
    key: KeyOption = None,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell labels of rows that were asked for, or of any others, late or not. A label is never overwritten.

    Of a table with --from, all results are told or none.

    [bold]Examples[/bold]

      ncprior campaign tell solubility --id s17 --value 3.2 --person ann

      ncprior campaign tell solubility --from results.csv --person ann
    """
    if (results is None) == (row is None or not value):
        raise UserError("give --id and --value of one row, or --from with a table of results")
    if results is not None and (note is not None or key is not None or inputs):
        raise UserError("--note, --key and --input are for one row; leave them out with --from")
    with opened(name, storage) as found:
        from ncprior.cli.campaign_output import print_json, print_outcomes, print_told

        if results is None and row is not None and value:
            given = _pairs(inputs, "--input") if inputs else None
            told = found.tell(row, _values(value), person=person, note=note, key=key, inputs=given)  # type: ignore[arg-type]
            print_json(told) if as_json else print_told(told)
        elif results is not None:
            from ncprior.campaigns.results import read_results

            tellings = read_results(results, found.spec)
            outcomes = found.tell_rows(tellings, person=person, preview=True)
            if refused := [one for one in outcomes if one.outcome == "refused"]:
                more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
                raise UserError(f"{results}: {refused[0].message}{more}; nothing was told")
            outcomes = found.tell_rows(tellings, person=person)
            print_json({"results": outcomes}) if as_json else print_outcomes(outcomes)


@campaign.command()
def correct(
    name: NameArgument,
    *,
    row: IdOption,
    value: ValueOption,
    person: PersonOption,
    of: Annotated[str | None, typer.Option(metavar="NAME", help="Whose label, if several people told one.")] = None,
    note: NoteOption = None,
    key: KeyOption = None,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace a label by another. The history keeps both.

    [bold]Example[/bold]

      ncprior campaign correct solubility --id s17 --value 3.9 --person ann --note "scale was wrong"
    """
    with opened(name, storage) as found:
        from ncprior.cli.campaign_output import print_json, print_told

        told = found.correct(row, _values(value or []), person=person, note=note, key=key, of=of)  # type: ignore[arg-type]
        print_json(told) if as_json else print_told(told, "corrected")


@campaign.command()
def skip(
    name: NameArgument,
    *,
    row: IdOption,
    person: PersonOption,
    note: NoteOption = None,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give up a row that was not tried. It is not asked for again; a label that comes after all is taken.

    [bold]Example[/bold]

      ncprior campaign skip solubility --id s17 --person ann --note "not in the freezer"
    """
    _give_up(name, storage, row, person, note, as_json, "skipped")


@campaign.command()
def fail(
    name: NameArgument,
    *,
    row: IdOption,
    person: PersonOption,
    note: NoteOption = None,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give up a row that was tried, without a result. It is not asked for again.

    [bold]Example[/bold]

      ncprior campaign fail solubility --id s17 --person ann --note "did not dissolve"
    """
    _give_up(name, storage, row, person, note, as_json, "failed")


@campaign.command()
def release(
    name: NameArgument,
    *,
    row: IdOption,
    person: PersonOption,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a row back, for others to ask for.

    [bold]Example[/bold]

      ncprior campaign release solubility --id s17 --person ann
    """
    with opened(name, storage) as found:
        from ncprior.cli.campaign_output import print_done

        found.release(row, person=person)
        print_done(row, "released", [], as_json)


@campaign.command()
def extend(
    name: NameArgument,
    *,
    row: IdOption,
    person: PersonOption,
    lease: Annotated[str | None, typer.Option(metavar="TIME", help="How long from now on: 3d, 12h.")] = None,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep a row for longer.

    [bold]Example[/bold]

      ncprior campaign extend solubility --id s17 --person ann --lease 1w
    """
    with opened(name, storage) as found:
        from ncprior.cli.campaign_output import print_done

        until = found.extend(row, person=person, lease=lease)
        print_done(row, f"yours until {until:%Y-%m-%d %H:%M} UTC", [], as_json)


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
        names = campaign_names(Database(storage))
        if as_json:
            print_json({"campaigns": names})
        for one in () if as_json else names:
            say_line(one)


@campaign.command()
def work(
    name: NameArgument,
    *,
    once: Annotated[bool, typer.Option("--once", help="Train one model if there is reason to, and end.")] = False,
    every: Annotated[str, typer.Option(metavar="TIME", help="How often to look for new labels: 10m, 1h.")] = "10m",
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a model when labels have come in, and fill the queue that ask hands out. Runs until Ctrl-C.

    One worker trains a campaign at a time; it can be stopped, and started again elsewhere, at any moment.

    [bold]Examples[/bold]

      ncprior campaign work solubility --once

      ncprior campaign work solubility --every 30m
    """
    with needs_extra(), ends_at_once():
        from ncprior.campaigns.times import duration
        from ncprior.campaigns.worker import work as work_once
        from ncprior.cli.campaign_output import print_json, print_worked
    pause = duration(every).total_seconds()
    with opened(name, storage) as found:
        while True:
            worked = work_once(found)
            print_json({"worked": worked}) if as_json else print_worked(found.status(), worked)
            sys.stdout.flush()
            if once:
                return
            time.sleep(pause)


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
    given = {"budget": budget, "stop_error": stop_error, "stop_patience": stop_patience}
    changes: dict[str, object] = {name: value for name, value in given.items() if value is not None}
    if close or reopen:
        changes["status"] = "closed" if close else "open"
    if not changes or (close and reopen):
        raise UserError("give one of --budget, --stop-error, --stop-patience, --close or --reopen")
    with opened(name, storage) as found:
        from ncprior.cli.campaign_output import print_json, print_status

        found.change(**changes)
        print_json(found.status()) if as_json else print_status(found.status())


@campaign.command()
def serve(
    *,
    host: Annotated[
        str, typer.Option(help="Address to listen at; others than 127.0.0.1 are for networks.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.")] = 8642,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="Another name of this server, such as labels.example.org."),
    ] = None,
    behind_tls: Annotated[
        bool, typer.Option("--behind-tls", help="A proxy in front encrypts: cookies are sent over https alone.")
    ] = False,
    storage: StorageOption = None,
) -> None:
    """Serve the web page and the JSON interface. Nobody gets in without a token: see ncprior campaign token add.

    [bold]Examples[/bold]

      ncprior campaign serve

      ncprior campaign serve --host 0.0.0.0 --allow-host labels.example.org --behind-tls
    """
    with needs_extra(), ends_at_once("ncprior: stopped"):
        from ncprior.web.server import serve as serve_page
    with stoppable(""):
        serve_page(storage, host=host, port=port, hosts=allow_host or [], behind_tls=behind_tls)


@token.command("add")
def token_add(
    person: Annotated[str, typer.Argument(metavar="PERSON", help="Whose token.")],
    *,
    role: Annotated[str, typer.Option(help="owner, labeller or viewer.")] = "labeller",
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a person a token, by which the page and the JSON interface know them. It is shown only now.

    [bold]Example[/bold]

      ncprior campaign token add ann --role labeller
    """
    with needs_extra(), ends_at_once():
        from ncprior.campaigns import people
        from ncprior.campaigns.database import Database
        from ncprior.campaigns.times import utc_now
        from ncprior.cli.campaign_output import print_json, say_line
    with stoppable():
        made = Database(storage, create=True).write(lambda c: people.add_token(c, person, role, utc_now()))
        if as_json:
            print_json({"person": person, "role": role, "token": made})
        else:
            say_line(made)
            remark(f"ncprior: the token of {person} ({role}), shown only now; keep it secret")


@token.command("revoke")
def token_revoke(
    person: Annotated[str, typer.Argument(metavar="PERSON", help="Whose token.")],
    *,
    storage: StorageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a person's access away, at once. What they told stays.

    [bold]Example[/bold]

      ncprior campaign token revoke ann
    """
    with needs_extra(), ends_at_once():
        from ncprior.campaigns import people
        from ncprior.campaigns.database import Database
        from ncprior.campaigns.times import utc_now
        from ncprior.cli.campaign_output import print_json, say_line
    with stoppable():
        Database(storage).write(lambda c: people.revoke(c, person, utc_now()))
        print_json({"revoked": person}) if as_json else say_line(f"{person} has no access any more")


@token.command("list")
def token_list(*, storage: StorageOption = None, as_json: JsonOption = False) -> None:
    """List people, their roles, and whether they have a token.

    [bold]Example[/bold]

      ncprior campaign token list
    """
    with needs_extra(), ends_at_once():
        from ncprior.campaigns import people
        from ncprior.campaigns.database import Database
        from ncprior.cli.campaign_output import print_json, print_people
    with stoppable(""):
        found = Database(storage).read(people.everybody)
        print_json({"people": found}) if as_json else print_people(found)


def _give_up(
    name: str, storage: str | None, row: str, person: str, note: str | None, as_json: bool, state: str
) -> None:
    with opened(name, storage) as found:
        from ncprior.cli.campaign_output import print_done

        give_up = found.skip if state == "skipped" else found.fail
        print_done(row, state, give_up(row, person=person, note=note), as_json)


def _values(given: list[str]) -> str | dict[str, str]:
    """One value, or values by target."""
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    return _pairs(given, "--value")


def _pairs(given: list[str], option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign or name in found:
            raise UserError(f"{option} {one}: give NAME=VALUE, and each name once")
        found[name] = value
    return found
