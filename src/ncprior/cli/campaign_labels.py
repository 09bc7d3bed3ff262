"""The commands of ``ncprior campaign`` for people who label: ask for rows, and tell what came of them."""

from pathlib import Path
from typing import Annotated

import typer

from ncprior.cli.campaign_options import (
    IdOption,
    KeyOption,
    NameArgument,
    NoteOption,
    PersonOption,
    StorageOption,
    ValueOption,
    opened,
    pairs,
)
from ncprior.cli.options import JsonOption
from ncprior.errors import UserError

labelling = typer.Typer()


@labelling.command()
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


@labelling.command()
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
            given = pairs(inputs, "--input") if inputs else None
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


@labelling.command()
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


@labelling.command()
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
    _give_up(name, storage, row, "skipped", person=person, note=note, as_json=as_json)


@labelling.command()
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
    _give_up(name, storage, row, "failed", person=person, note=note, as_json=as_json)


@labelling.command()
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


@labelling.command()
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


def _give_up(
    name: str, storage: str | None, row: str, state: str, *, person: str, note: str | None, as_json: bool
) -> None:
    with opened(name, storage) as found:
        from ncprior.cli.campaign_output import print_done

        give_up = found.skip if state == "skipped" else found.fail
        print_done(row, state, give_up(row, person=person, note=note), as_json)


def _values(given: list[str]) -> str | dict[str, str]:
    """One value, or values by target."""
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    return pairs(given, "--value")
