"""The queue: rows with their inputs that `ask` hands out, so that it need not read the pool.

Kinds of entries:

- ``ranked``: what the newest model wants to be labelled, best first; a new model replaces them.
- ``spread``: rows far from each other, for the time before there is a model.
- ``random``: the next rows in the random order of the pool, for audits and for a queue that has run dry.
- ``again``: labelled rows that more people are to label.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from ncprior.campaigns.pool import PoolRow
from ncprior.campaigns.schema import DatabaseRow, campaign, item, label, queue

RESERVE = 1_000
"""Random rows that are read from the pool at a time."""

LOW = 100
"""Random rows, at least, that the queue should hold."""


class Entry(NamedTuple):
    """A row to put into the queue."""

    row: PoolRow
    score: float | None = None


def fill(
    connection: Connection, campaign_id: int, kind: str, entries: Iterable[Entry], *, model: int | None = None
) -> None:
    """Puts rows behind those of their kind that are there."""
    query = select(func.max(queue.c.rank)).where(queue.c.campaign == campaign_id, queue.c.kind == kind)
    first = (connection.execute(query).scalar() or 0) + 1
    rows = [
        {"campaign": campaign_id, "model": model, "kind": kind, "rank": rank, "row_key": entry.row.key,
         "score": entry.score, "inputs": entry.row.inputs, "taken": False}
        for rank, entry in enumerate(entries, first)
    ]  # fmt: skip
    if rows:
        connection.execute(insert(queue), rows)


def clear(connection: Connection, campaign_id: int, *kinds: str) -> None:
    """Removes all entries of these kinds."""
    connection.execute(delete(queue).where(queue.c.campaign == campaign_id, queue.c.kind.in_(kinds)))


def left(connection: Connection, campaign_id: int, kind: str) -> int:
    """How many entries have not been handed out."""
    query = select(func.count()).select_from(queue)
    return connection.execute(query.where(*_free(campaign_id, kind))).scalar_one()


def take(
    connection: Connection, campaign_id: int, kind: str, count: int, *, not_labelled_by: int | None = None
) -> Sequence[DatabaseRow]:
    """The first entries that have not been handed out, which are then taken; others cannot take them meanwhile."""
    if count < 1:
        return []
    query = select(queue).where(*_free(campaign_id, kind)).order_by(queue.c.rank).limit(count)
    if not_labelled_by is not None:
        mine = select(label.c.id).join(item, item.c.id == label.c.item).where(
            item.c.campaign == campaign_id, item.c.row_key == queue.c.row_key, label.c.person == not_labelled_by
        )  # fmt: skip
        query = query.where(~mine.exists())
    found = connection.execute(query.with_for_update(skip_locked=True)).all()
    if found:
        connection.execute(update(queue).where(queue.c.id.in_([row.id for row in found])).values(taken=True))
    return found


def give_back(connection: Connection, campaign_id: int, keys: Sequence[str]) -> None:
    """Makes entries of these rows free again, after nobody has labelled them."""
    if keys:
        mine = (queue.c.campaign == campaign_id, queue.c.row_key.in_(keys), queue.c.taken)
        connection.execute(update(queue).where(*mine).values(taken=False))


def drawn(connection: Connection, campaign_id: int, *, lock: bool = False) -> int:
    """How many rows of the random order have been put into the queue."""
    query = select(campaign.c.drawn).where(campaign.c.id == campaign_id)
    return connection.execute(query.with_for_update() if lock else query).scalar_one()


def add_random(connection: Connection, campaign_id: int, start: int, rows: Sequence[PoolRow]) -> None:
    """Puts the rows from ``start`` on in the random order into the queue, unless someone else just has."""
    if drawn(connection, campaign_id, lock=True) == start:
        fill(connection, campaign_id, "random", map(Entry, rows))
        mine = campaign.c.id == campaign_id
        connection.execute(update(campaign).where(mine).values(drawn=start + len(rows)))


def _free(campaign_id: int, kind: str) -> tuple[ColumnElement[bool], ...]:
    return queue.c.campaign == campaign_id, queue.c.kind == kind, ~queue.c.taken
