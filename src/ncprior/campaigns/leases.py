"""Leases: which rows are out with whom, and until when. A row is out with one person at most."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection, and_, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from ncprior.campaigns import queue
from ncprior.campaigns.inputs import Inputs
from ncprior.campaigns.people import Person
from ncprior.campaigns.schema import DatabaseRow, campaign, item, label, lease, model, person
from ncprior.campaigns.spec import FIRST_MODEL, Spec
from ncprior.campaigns.times import Clock
from ncprior.errors import UserError


class AskedRow(NamedTuple):
    """A row that is out with someone."""

    id: str
    inputs: Inputs
    expires_at: datetime


class Asked(NamedTuple):
    """Rows to label, and what the person should know."""

    rows: list[AskedRow]
    notices: list[str]


class Claim(NamedTuple):
    """Who wants how many rows, and for how long."""

    person: Person
    rows: int
    length: timedelta


def claim(connection: Connection, campaign_id: int, spec: Spec, wanted: Claim, now: Clock) -> Asked:
    """Hands out rows that nobody holds: in the order of the queue, an audit share of them drawn at random."""
    expire(connection, campaign_id, now())
    notices = unseen(connection, campaign_id, wanted.person)
    count = _within_budget(connection, campaign_id, spec, wanted.rows)
    newest = newest_model(connection, campaign_id)
    taker = _Taker(connection, campaign_id, wanted, newest, now)
    if newest is not None and spec.audit:
        last = connection.execute(select(func.max(lease.c.id)).where(lease.c.campaign == campaign_id)).scalar() or 0
        audits = int(np.random.default_rng((spec.seed, campaign_id, last)).binomial(count, spec.audit))
        taker.take("random", audits, audit=True)
    if spec.replicates > 1:
        taker.take("again", count - len(taker.rows))
    taker.take("spread" if newest is None else "ranked", count - len(taker.rows))
    if (short := count - len(taker.rows)) > 0:
        taken = len(taker.rows)
        taker.take("random", short)
        if drawn := len(taker.rows) - taken:
            notices.append(_why_random(connection, campaign_id, drawn, newest))
    if len(taker.rows) < count:
        notices.append(f"no more than {len(taker.rows)} rows: nothing else in the pool can be asked for now")
    if count < wanted.rows:
        notices.append(f"the budget of {spec.budget} rows leaves {count}")
    return Asked(taker.rows, notices)


class _Taker:
    """Takes rows from the queue and leases them."""

    def __init__(self, connection: Connection, campaign_id: int, wanted: Claim, newest: int | None, now: Clock) -> None:
        self.connection, self.campaign_id, self.wanted, self.newest, self.now = (
            connection, campaign_id, wanted, newest, now,
        )  # fmt: skip
        self.rows: list[AskedRow] = []

    def take(self, kind: str, count: int, *, audit: bool = False) -> None:
        """Up to ``count`` rows of a kind that nobody holds and that need a label."""
        person_id = self.wanted.person.id
        while count > 0:
            mine = person_id if kind == "again" else None
            entries = queue.take(self.connection, self.campaign_id, kind, count, not_labelled_by=mine)
            if not entries:
                return
            _ensure_items(self.connection, self.campaign_id, [(one.row_key, one.inputs, True) for one in entries])
            keys = [one.row_key for one in entries]
            usable = ("asked", "labelled") if kind == "again" else ("asked",)
            query = (
                select(item)
                .outerjoin(lease, and_(lease.c.item == item.c.id, lease.c.closed_at.is_(None)))
                .where(item.c.campaign == self.campaign_id, item.c.row_key.in_(keys), item.c.state.in_(usable))
                .where(lease.c.id.is_(None))
                .with_for_update(of=item, skip_locked=True)
            )
            free = {one.row_key: one for one in self.connection.execute(query)}
            # Someone may have taken a row between the look at its lease and its lock.
            held = select(lease.c.item).where(lease.c.item.in_([one.id for one in free.values()]))
            taken = set(self.connection.execute(held.where(lease.c.closed_at.is_(None))).scalars())
            for key in keys:
                if key in free and free[key].id not in taken:
                    self._lease(free[key], audit)
                    count -= 1

    def _lease(self, row: DatabaseRow, audit: bool) -> None:
        asked_at = self.now()  # of this moment, when the row is locked: after the end of any lease before
        until = asked_at + self.wanted.length
        self.connection.execute(
            insert(lease).values(
                campaign=self.campaign_id, item=row.id, person=self.wanted.person.id, model=self.newest, audit=audit,
                asked_at=asked_at, expires_at=until, unseen=False,
            )
        )  # fmt: skip
        self.rows.append(AskedRow(row.row_key, row.inputs, until))


def _ensure_items(connection: Connection, campaign_id: int, rows: Sequence[tuple[str, Inputs, bool]]) -> None:
    """Makes items of rows that were not touched before."""
    insert_new = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    connection.execute(
        insert_new(item).on_conflict_do_nothing(),
        [
            {"campaign": campaign_id, "row_key": key, "state": "asked", "inputs": inputs, "in_pool": in_pool}
            for key, inputs, in_pool in sorted(
                rows, key=lambda row: row[0]
            )  # in one order, so that nobody waits in turn
        ],
    )


def locked_item(connection: Connection, campaign_id: int, key: str) -> DatabaseRow | None:
    """The item of a row, which others cannot change until the transaction ends; None if it was never touched."""
    query = select(item).where(item.c.campaign == campaign_id, item.c.row_key == key).with_for_update()
    return connection.execute(query).one_or_none()


def new_item(connection: Connection, campaign_id: int, row: tuple[str, Inputs, bool]) -> DatabaseRow:
    """The item of a row, which is made if it is not there: its id, its inputs, whether it is in the pool."""
    _ensure_items(connection, campaign_id, [row])
    found = locked_item(connection, campaign_id, row[0])
    assert found is not None
    return found


def expire(connection: Connection, campaign_id: int, now: datetime) -> None:
    """Closes leases whose time is over; their rows can be asked for again."""
    over = (lease.c.campaign == campaign_id, lease.c.closed_at.is_(None), lease.c.expires_at <= now)
    if connection.execute(select(lease.c.id).where(*over).limit(1)).first() is None:
        return
    query = select(lease.c.id, item.c.row_key).join(item, item.c.id == lease.c.item).where(*over).order_by(lease.c.id)
    found = connection.execute(query.with_for_update(of=lease, skip_locked=True)).all()
    closed = update(lease).where(lease.c.id.in_([one.id for one in found]), lease.c.closed_at.is_(None))
    connection.execute(closed.values(closed_at=now, reason="expired"))
    queue.give_back(connection, campaign_id, [one.row_key for one in found])


def open_lease(connection: Connection, item_id: int) -> DatabaseRow | None:
    """The lease under which a row is out, with the name of its holder."""
    query = select(lease, person.c.name.label("holder")).join(person, person.c.id == lease.c.person)
    return connection.execute(query.where(lease.c.item == item_id, lease.c.closed_at.is_(None))).one_or_none()


def close(
    connection: Connection, lease_id: int, reason: str, now: datetime, *, note: str | None = None, unseen: bool = False
) -> None:
    """Ends a lease; ``unseen`` tells its holder at their next call."""
    values = {"closed_at": now, "reason": reason, "note": note, "unseen": unseen}
    connection.execute(update(lease).where(lease.c.id == lease_id).values(values))


def own_lease(connection: Connection, row: DatabaseRow | None, key: str, who: Person, *, others: bool) -> DatabaseRow:
    """The lease under which a person holds a row; an owner may also name those of ``others``."""
    found = None if row is None else open_lease(connection, row.id)
    if found is None:
        raise UserError(f"row {key!r:.80} is out with nobody")
    if found.person != who.id and not (others and who.role == "owner"):
        raise UserError(f"row {key!r:.80} is out with {found.holder!r}, not with {who.name!r}")
    return found


def release(connection: Connection, campaign_id: int, key: str, who: Person, now: datetime) -> None:
    """Gives a row back, for anybody to ask for."""
    held = own_lease(connection, locked_item(connection, campaign_id, key), key, who, others=True)
    reason = "released" if held.person == who.id else f"released by {who.name}"
    close(connection, held.id, reason, now, unseen=held.person != who.id)
    queue.give_back(connection, campaign_id, [key])


def extend(connection: Connection, campaign_id: int, key: str, who: Person, until: datetime) -> None:
    """Lets a person keep a row for longer."""
    held = own_lease(connection, locked_item(connection, campaign_id, key), key, who, others=True)
    still = update(lease).where(lease.c.id == held.id, lease.c.closed_at.is_(None))
    if not connection.execute(still.values(expires_at=until)).rowcount:
        raise UserError(f"row {key!r:.80} is out with nobody: its time has just run out; ask again")


def unseen(connection: Connection, campaign_id: int, who: Person) -> list[str]:
    """What happened to rows that a person held, told once."""
    query = select(lease.c.id, lease.c.reason, item.c.row_key).join(item, item.c.id == lease.c.item)
    mine = (lease.c.person == who.id, lease.c.campaign == campaign_id, lease.c.unseen)
    found = connection.execute(query.where(*mine).order_by(lease.c.id).with_for_update(of=lease)).all()
    if found:
        seen = update(lease).where(lease.c.id.in_([one.id for one in found]))
        connection.execute(seen.values(unseen=False))
    return [f"row {one.row_key} is no longer yours: {one.reason}" for one in found]


def held_rows(connection: Connection, campaign_id: int, who: Person | None = None) -> Sequence[DatabaseRow]:
    """Rows that are out, with someone or anybody, the first asked first."""
    query = (
        select(lease, item.c.row_key, item.c.inputs, person.c.name.label("holder"))
        .join(item, item.c.id == lease.c.item)
        .join(person, person.c.id == lease.c.person)
        .where(lease.c.campaign == campaign_id, lease.c.closed_at.is_(None))
        .order_by(lease.c.asked_at, lease.c.id)
    )
    return connection.execute(query if who is None else query.where(lease.c.person == who.id)).all()


def newest_model(connection: Connection, campaign_id: int) -> int | None:
    """The model in use."""
    query = select(func.max(model.c.id)).where(model.c.campaign == campaign_id, model.c.state == "ready")
    return connection.execute(query).scalar()


def labelled_rows(connection: Connection, campaign_id: int) -> int:
    """How many rows have all their labels."""
    query = select(func.count()).select_from(item).where(item.c.campaign == campaign_id, item.c.state == "labelled")
    return connection.execute(query).scalar_one()


def _within_budget(connection: Connection, campaign_id: int, spec: Spec, count: int) -> int:
    """How many rows may be handed out."""
    if spec.budget is None:
        return count
    connection.execute(select(campaign.c.id).where(campaign.c.id == campaign_id).with_for_update())  # one at a time
    held = select(func.count()).select_from(lease).where(lease.c.campaign == campaign_id, lease.c.closed_at.is_(None))
    spent = labelled_rows(connection, campaign_id) - spec.given + connection.execute(held).scalar_one()
    if spent >= spec.budget:
        raise UserError(
            f"the budget of {spec.budget} rows is spent or out with people; ncprior campaign change --budget raises it"
        )
    return min(count, spec.budget - spent)


def _why_random(connection: Connection, campaign_id: int, count: int, newest: int | None) -> str:
    """Why rows were drawn at random."""
    rows = "1 row was" if count == 1 else f"{count} rows were"
    if newest is not None:
        return f"the queue of model {newest} has run dry: {rows} drawn at random; ncprior campaign work fills it again"
    there = connection.execute(select(func.count(label.c.item.distinct())).where(label.c.campaign == campaign_id))
    need = "ncprior campaign work trains one" if there.scalar_one() >= FIRST_MODEL else f"it needs {FIRST_MODEL} labels"
    return f"there is no model yet ({need}): {rows} drawn at random"
