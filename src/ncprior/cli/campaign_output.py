"""What the commands of campaigns print: tables for people, one JSON object for scripts."""

import csv
import json
import sys
from collections import Counter
from collections.abc import Sequence

from rich.table import Table

from ncprior.campaigns.history import Event
from ncprior.campaigns.labels import Told
from ncprior.campaigns.leases import Asked
from ncprior.campaigns.people import Person
from ncprior.campaigns.plain import plain
from ncprior.campaigns.pool_update import PoolChange
from ncprior.campaigns.results import Outcome
from ncprior.campaigns.status import Status
from ncprior.campaigns.worker import Worked
from ncprior.cli.console import Terminal
from ncprior.terminal import printable, remark, say


def print_json(value: object) -> None:
    """One JSON object on one line."""
    say(json.dumps(plain(value), allow_nan=False))


def say_line(line: str) -> None:
    """One line for people."""
    say(line)


def print_created(status: Status) -> None:
    """What to do with a new campaign."""
    rows = f"{status.pool_rows:,} rows" if status.pool_rows is not None else "rows"
    labelled = f", {status.labelled} of them labelled" if status.labelled else ""
    say(f"campaign {status.name}: {rows}{labelled}; {status.advice}")
    say(f"next: ncprior campaign ask {status.name} -n 5 --person YOU")


def print_asked(id_column: str, asked: Asked) -> None:
    """The rows as CSV; what to know about them goes to stderr."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if asked.rows:
        writer.writerow([printable(name) for name in (id_column, *asked.rows[0].inputs)])
        for row in asked.rows:
            cells = (row.id, *("" if value is None else value for value in row.inputs.values()))
            writer.writerow([printable(cell) if isinstance(cell, str) else cell for cell in cells])
        remark(f"ncprior: {len(asked.rows)} rows, yours until {asked.rows[0].expires_at:%Y-%m-%d %H:%M} UTC")
    _print_notices(asked.notices)


def print_told(told: Told, word: str = "told") -> None:
    """What became of a label."""
    what = word if told.outcome == "new" else "was known already"
    missing = f"; missing: {', '.join(told.missing)}" if told.missing else ""
    say(f"{told.id}: {what}{missing}")
    _print_notices(told.notices)


def print_outcomes(outcomes: Sequence[Outcome]) -> None:
    """What became of the results in a table."""
    counts = Counter(one.outcome for one in outcomes)
    say(f"{counts['new']} told, {counts['known']} known already")


def print_done(row: str, what: str, notices: Sequence[str], as_json: bool) -> None:
    """That something was done to a row."""
    if as_json:
        print_json({"id": row, "outcome": what, "notices": list(notices)})
        return
    say(f"{row}: {what}")
    _print_notices(notices)


def print_status(status: Status) -> None:
    """How a campaign stands."""
    pool = f" of {status.pool_rows:,}" if status.pool_rows is not None else ""
    say(f"{status.name} ({status.status}): {status.labelled}{pool} rows labelled, {status.out} out with people, "
        f"{status.skipped} skipped, {status.failed} failed")  # fmt: skip
    if status.people:
        people = Table(box=None, pad_edge=False)
        for name in ("person", "role", "labelled", "out", "last label"):
            people.add_column(name, justify="right" if name in ("labelled", "out") else "left")
        for one in status.people:
            last = "" if one.last_told is None else f"{one.last_told:%Y-%m-%d %H:%M}"
            people.add_row(one.name, one.role, str(one.labelled), str(one.out), last)
        Terminal().print(people)
    if status.model is not None:
        say(f"model {status.model.id}, trained on {status.model.rows} rows; {status.queue} rows in its queue")
    for audit in status.audits:
        if audit.curve:
            table = Table(title=f"{audit.target} on audit rows", box=None, pad_edge=False, title_justify="left")
            for name in ("labels", "audit rows", "RMSE", "90% interval", "coverage of 90%", "NLPD"):
                table.add_column(name, justify="right")
            for point in audit.curve:
                interval = f"{point.rmse_low:.3g} to {point.rmse_high:.3g}"
                cells = (f"{point.labels:.0f}", str(point.rows), f"{point.rmse:.3g}", interval)
                table.add_row(*cells, f"{point.coverage:.0%}", f"{point.nlpd:.3g}")
            Terminal().print(table)
    for rule in status.rules:
        say(f"stop rule {rule.name}{' (reached)' if rule.reached else ''}: {rule.text}")
    say(f"next: {status.advice}")


def print_history(events: Sequence[Event]) -> None:
    """What happened to a row."""
    table = Table(box=None, pad_edge=False)
    for name in ("when (UTC)", "who", "what", "target", "value", "note"):
        table.add_column(name, justify="right" if name == "value" else "left")
    for one in events:
        value = "" if one.value is None else f"{one.value:g}"
        table.add_row(f"{one.at:%Y-%m-%d %H:%M}", one.person, one.what, one.target or "", value, one.note or "")
    Terminal().print(table)


def print_worked(status: Status, worked: Worked | None) -> None:
    """What a worker did."""
    if worked is None:
        say(f"nothing to train: {status.advice}")
    elif worked.trained:
        say(f"model {worked.model}: trained on {worked.rows} rows, {worked.queued} rows in its queue")
    else:
        say(f"model {worked.model}: its queue has {worked.queued} rows again")


def print_pool_change(change: PoolChange) -> None:
    """What is different in the new pool."""
    if change.came is None or change.went is None:
        say(f"{change.rows:,} rows; nothing is known of the pool before")
    else:
        say(f"{change.rows:,} rows: {change.came:,} came, {change.went:,} went")
    if change.touched_went:
        say(f"asked for or labelled, and gone from the pool: {_some(change.touched_went)}; their labels are kept")
    if change.other_inputs:
        say(f"labelled, and with other inputs now: {_some(change.other_inputs)}; the inputs of then are kept")


def print_people(people: Sequence[Person]) -> None:
    """People and their tokens."""
    table = Table(box=None, pad_edge=False)
    for name in ("person", "role", "token"):
        table.add_column(name)
    for one in people:
        token = "revoked" if one.revoked_at else "yes" if one.has_token else "none"
        table.add_row(one.name, one.role, token)
    Terminal().print(table)


def _print_notices(notices: Sequence[str]) -> None:
    for notice in notices:
        remark(f"ncprior: {notice}")


def _some(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
