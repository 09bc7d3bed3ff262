"""Labels: told, corrected, or given up. Entries are only ever added; a correction supersedes the label before it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Literal, NamedTuple

from sqlalchemy import Connection, func, insert, select, update
from sqlalchemy.orm import aliased

from ncprior.campaigns import leases, queue
from ncprior.campaigns.inputs import Inputs
from ncprior.campaigns.people import Person
from ncprior.campaigns.pool import PoolRow
from ncprior.campaigns.queue import Entry
from ncprior.campaigns.schema import DatabaseRow, Query, item, label, lease, model, person, prediction
from ncprior.campaigns.spec import Spec, is_text
from ncprior.errors import UserError


class Telling(NamedTuple):
    """What someone says about a row."""

    id: str
    values: Mapping[str, float]
    note: str | None = None
    key: str | None = None
    """Names this telling: said again with the same key, as after a lost answer, it counts once."""
    inputs: Mapping[str, object] | None = None
    """Of a row outside the pool."""


class Told(NamedTuple):
    """What became of it."""

    id: str
    outcome: Literal["new", "known"]
    """``known`` if it had been told before."""
    missing: list[str]
    """Targets that have no value yet."""
    notices: list[str]


class Place(NamedTuple):
    """In which campaign something is told, by whom and when."""

    campaign: int
    name: str
    spec: Spec
    person: Person
    now: datetime


def tell(connection: Connection, at: Place, telling: Telling, row: tuple[Inputs, bool] | None) -> Told | None:
    """Adds the labels of a row.

    Args:
        connection: In a transaction.
        at: Where, who and when.
        telling: The values.
        row: The inputs of the row and whether it is in the pool; None if they are not known.

    Returns:
        What became of it; None if the row was never touched, and its inputs are not known.

    Raises:
        UserError: If the row has other values already.
    """
    check_texts(telling.note, telling.key)
    if (known := _same_key(connection, at, telling)) is not None:
        return known
    if row is None:
        touched = leases.locked_item(connection, at.campaign, telling.id)
    else:
        touched = leases.new_item(connection, at.campaign, (telling.id, *row))
    if touched is None:
        return None
    before = current(connection, touched.id)
    own = _newest_lease(connection, touched.id, at.person)
    by_me = (label.c.item == touched.id, label.c.person == at.person.id)
    own_targets = set(connection.execute(select(label.c.target).where(*by_me)).scalars())
    told = []
    for target, value in telling.values.items():
        there = [one for one in before if one.target == target]
        wanted = own is not None or len({one.person for one in there}) < at.spec.replicates
        if _is_new(at, telling, target, there, wanted=wanted and target not in own_targets):
            told.append(_add(connection, at, touched, (target, value), telling, lease_id=own.id if own else None))
    missing = _settle(connection, at, touched, again=bool(told))
    return Told(telling.id, "new" if told else "known", missing, leases.unseen(connection, at.campaign, at.person))


def correct(connection: Connection, at: Place, telling: Telling, *, of: str | None = None) -> Told:
    """Supersedes labels of a row: the person's own, or the only ones there are, or those ``of`` someone."""
    check_texts(telling.note, telling.key)
    if (known := _same_key(connection, at, telling)) is not None:
        return known
    touched = leases.locked_item(connection, at.campaign, telling.id)
    before = [] if touched is None else current(connection, touched.id)
    changed = False
    for target, value in telling.values.items():
        old = _corrected(telling.id, target, [one for one in before if one.target == target], of or at.person.name, of)
        if old.value != value or telling.note:
            _add(connection, at, touched, (target, value), telling, supersedes=old)
            changed = True
    missing = [] if touched is None else _settle(connection, at, touched, again=False)
    seen = leases.unseen(connection, at.campaign, at.person)
    return Told(telling.id, "new" if changed else "known", missing, seen)


def give_up(
    connection: Connection, at: Place, row: tuple[str, Inputs | None], state: str, note: str | None
) -> list[str]:
    """Marks a row as ``skipped`` (not tried) or ``failed`` (tried, without a result); it is not asked for again.

    Returns:
        What the person should know.
    """
    check_texts(note, None)
    key, inputs = row
    if inputs is not None:
        touched: DatabaseRow | None = leases.new_item(connection, at.campaign, (key, inputs, True))
    else:
        touched = leases.locked_item(connection, at.campaign, key)
    if touched is None:
        raise UserError(f"row {key!r:.80} is not in the pool")
    if touched.state == "labelled":
        raise UserError(
            f"row {key!r:.80} is labelled; to change its label: ncprior campaign correct {at.name} --id ..."
        )
    held = leases.open_lease(connection, touched.id)
    if held is not None and held.person != at.person.id and at.person.role != "owner":
        raise UserError(f"row {key!r:.80} is out with {held.holder!r}; only they or an owner can give it up")
    if held is None:  # for the history
        values = {"campaign": at.campaign, "item": touched.id, "person": at.person.id, "audit": False}
        values |= {"asked_at": at.now, "expires_at": at.now, "closed_at": at.now, "reason": state}
        connection.execute(insert(lease).values(**values, note=note, unseen=False))
    else:
        other = held.person != at.person.id
        reason = f"{state} by {at.person.name}" if other else state
        leases.close(connection, held.id, reason, at.now, note=note, unseen=other)
    connection.execute(update(item).where(item.c.id == touched.id).values(state=state))
    return leases.unseen(connection, at.campaign, at.person)


def current(connection: Connection, item_id: int) -> Sequence[DatabaseRow]:
    """Labels of an item that are not superseded, with the names of who told them."""
    return connection.execute(current_labels().where(label.c.item == item_id).order_by(label.c.id)).all()


@cache
def current_labels() -> Query:
    """The query of labels that are not superseded."""
    later = aliased(label)
    return (
        select(label, person.c.name.label("teller"))
        .join(person, person.c.id == label.c.person)
        .outerjoin(later, later.c.supersedes == label.c.id)
        .where(later.c.id.is_(None))
    )


def check_texts(note: str | None, key: str | None) -> None:
    """Raise if a note or a key is too long to keep."""
    if note is not None and not is_text(note, 2_000):
        raise UserError("a note may have 2,000 characters, all of them text; shorten it")
    if key is not None and not (0 < len(key) <= 200 and key.isprintable()):
        raise UserError("a key must have 1 to 200 printable characters")


def _same_key(connection: Connection, at: Place, telling: Telling) -> Told | None:
    """What was told under the same key; None if nothing was."""
    if telling.key is None:
        return None
    query = select(label, item.c.row_key).join(item, item.c.id == label.c.item)
    mine = (label.c.campaign == at.campaign, label.c.idempotency_key == telling.key)
    found = connection.execute(query.where(*mine)).all()
    if not found:
        return None
    said = {one.target: one.value for one in found}
    if any(one.row_key != telling.id for one in found) or any(
        said.get(target) != value for target, value in telling.values.items()
    ):
        raise UserError(f"the key {telling.key!r:.80} was used for another label; give every label a key of its own")
    there = {one.target for one in current(connection, found[0].item)}
    missing = [target for target in at.spec.targets if target not in there]
    return Told(telling.id, "known", missing, leases.unseen(connection, at.campaign, at.person))


def _is_new(at: Place, telling: Telling, target: str, there: Sequence[DatabaseRow], *, wanted: bool) -> bool:
    """Whether a value is a label that is not there yet.

    Raises:
        UserError: If the row has another value, and this one is not ``wanted``, as a late one or a replicate.
    """
    if not there or wanted:
        return True
    key, value = telling.id, telling.values[target]
    if any(one.value == value for one in there):
        return False
    old = ([one for one in there if one.person == at.person.id] or list(there))[-1]
    raise UserError(
        f"row {key!r:.80} has the {target} {old.value:g} already, told by {old.teller} on {old.told_at:%Y-%m-%d}; to "
        f"change it: ncprior campaign correct {at.name} --id {key!s:.80} --value {value:g} --person {at.person.name}"
    )


def _add(
    connection: Connection,
    at: Place,
    touched: DatabaseRow | None,
    said: tuple[str, float],
    telling: Telling,
    *,
    lease_id: int | None = None,
    supersedes: DatabaseRow | None = None,
) -> int:
    assert touched is not None
    target, value = said
    if supersedes is not None:
        origin = {"lease": supersedes.lease, "model": supersedes.model, "supersedes": supersedes.id}
    else:
        origin = {"lease": lease_id, "model": _predictor(connection, at.campaign, touched.row_key)}
    added = insert(label).values(
        campaign=at.campaign, item=touched.id, person=at.person.id, target=target, value=value, told_at=at.now,
        idempotency_key=telling.key, note=telling.note, **origin,
    )  # fmt: skip
    return int(connection.execute(added).inserted_primary_key[0])  # type: ignore[index]


def _predictor(connection: Connection, campaign_id: int, key: str) -> int | None:
    """The newest model whose prediction of a row is on record."""
    query = select(func.max(prediction.c.model)).join(model, model.c.id == prediction.c.model)
    return connection.execute(query.where(model.c.campaign == campaign_id, prediction.c.row_key == key)).scalar()


def _newest_lease(connection: Connection, item_id: int, who: Person) -> DatabaseRow | None:
    """The last lease that a person had of a row, open or closed."""
    query = select(lease).where(lease.c.item == item_id, lease.c.person == who.id).order_by(lease.c.id.desc())
    return connection.execute(query.limit(1)).first()


def _settle(connection: Connection, at: Place, touched: DatabaseRow, *, again: bool) -> list[str]:
    """Brings the state of an item and its lease in line with its labels; ``again`` asks others for more of them.

    Returns:
        Targets that have no value yet.
    """
    there = current(connection, touched.id)
    told = {(one.person, one.target) for one in there}
    missing = [target for target in at.spec.targets if not any(one.target == target for one in there)]
    tellers = [who for who in {one.person for one in there} if all((who, name) in told for name in at.spec.targets)]
    enough = len(tellers) >= at.spec.replicates or (at.spec.replicates == 1 and not missing)
    if not missing and touched.state != "labelled":
        connection.execute(update(item).where(item.c.id == touched.id).values(state="labelled"))
    held = leases.open_lease(connection, touched.id)
    if held is not None and (held.person in tellers or (held.person == at.person.id and not missing)):
        leases.close(connection, held.id, "told", at.now)
    elif held is not None and enough and held.person != at.person.id:
        leases.close(connection, held.id, f"told by {at.person.name}", at.now, unseen=True)
    if again and not enough and at.person.id in tellers:
        row = PoolRow(touched.row_key, touched.inputs)
        queue.fill(connection, at.campaign, "again", [Entry(row)])
    return missing


def _corrected(key: str, target: str, there: Sequence[DatabaseRow], teller: str, of: str | None) -> DatabaseRow:
    """The label that is corrected."""
    if not there:
        raise UserError(f"row {key!r:.80} has no label of {target!r:.80} to correct; tell it")
    if own := [one for one in there if one.teller == teller]:
        return own[-1]
    names = ", ".join(sorted({one.teller for one in there}))
    if len(there) > 1 or of is not None:
        raise UserError(f"row {key!r:.80} has labels by {names}; say whose to correct")
    return there[0]
