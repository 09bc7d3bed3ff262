"""All that happened to a row, in order: asked, told, corrected, given up."""

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, select

from ncprior.campaigns.schema import item, label, lease, person


class Event(NamedTuple):
    """Something that happened to a row."""

    at: datetime
    person: str
    what: str
    target: str | None = None
    value: float | None = None
    note: str | None = None


def row_history(connection: Connection, campaign_id: int, key: str) -> list[Event]:
    """What happened to a row; nothing if it was never touched."""
    mine = (item.c.campaign == campaign_id, item.c.row_key == key)
    events: list[Event] = []
    told = (
        select(label, person.c.name)
        .join(item, item.c.id == label.c.item)
        .join(person, person.c.id == label.c.person)
        .where(*mine)
    )
    for one in connection.execute(told):
        what = "told" if one.supersedes is None else "corrected"
        events.append(Event(one.told_at, one.name, what, one.target, one.value, one.note))
    asked = (
        select(lease, person.c.name)
        .join(item, item.c.id == lease.c.item)
        .join(person, person.c.id == lease.c.person)
        .where(*mine)
    )
    for one in connection.execute(asked):
        if one.asked_at != one.closed_at:
            events.append(Event(one.asked_at, one.name, f"asked, until {one.expires_at:%Y-%m-%d %H:%M}"))
        if one.closed_at is not None and one.reason != "told":
            events.append(Event(one.closed_at, one.name, one.reason, note=one.note))
    return sorted(events, key=lambda event: event.at)
