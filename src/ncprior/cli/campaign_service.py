"""The commands of ``ncprior campaign`` that run beside it: its worker, its page, and who may use that."""

import sys
import time
from typing import Annotated

import typer

from ncprior.cli.campaign_options import NameArgument, StorageOption, needs_extra, opened
from ncprior.cli.interrupts import ends_at_once, stoppable
from ncprior.cli.options import JsonOption
from ncprior.terminal import remark

service = typer.Typer()
token = typer.Typer(no_args_is_help=True, help="Who may use the page and the JSON interface.")


@service.command()
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


@service.command()
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
        with Database(storage, create=True) as database:
            made = database.write(lambda c: people.add_token(c, person, role, utc_now()))
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
        with Database(storage) as database:
            database.write(lambda c: people.revoke(c, person, utc_now()))
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
        with Database(storage) as database:
            found = database.read(people.everybody)
        print_json({"people": found}) if as_json else print_people(found)
