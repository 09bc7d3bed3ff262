"""People: their roles, and the tokens by which the page and robots know them.

A token is the person's number and a secret, joined by a point. Only the SHA-256 of the secret is kept. A secret has 256
random bits, so that a slow hash would add nothing.
"""

import hashlib
import hmac
import secrets
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from ncprior.campaigns.schema import ROLES, DatabaseRow, person
from ncprior.errors import UserError

_NOBODY = hashlib.sha256(secrets.token_bytes(32)).hexdigest()
"""What a token of an unknown person is compared with, so that it takes as long."""


class Person(NamedTuple):
    """Someone who takes part."""

    id: int
    name: str
    role: str
    has_token: bool
    revoked_at: datetime | None

    @property
    def may_label(self) -> bool:
        """Whether they may ask and tell; others only look."""
        return self.role in ("owner", "labeller")


def someone(connection: Connection, name: str, now: datetime) -> Person:
    """The person of this name; who is new becomes a labeller without a token.

    For who has access to the database itself: others need a token.
    """
    values = {"name": check_person(name), "role": "labeller", "created_at": now}
    insert_new = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    found = connection.execute(select(person).where(person.c.name == values["name"])).one_or_none()
    if found is None:
        connection.execute(insert_new(person).values(values).on_conflict_do_nothing())
        found = connection.execute(select(person).where(person.c.name == values["name"])).one()
    if found.revoked_at is not None:
        raise UserError(f"the access of {name!r} was revoked; ncprior campaign token add {name} gives it back")
    return _person(found)


def labeller(connection: Connection, name: str, now: datetime) -> Person:
    """The person of this name, if they may ask and tell."""
    found = someone(connection, name, now)
    if not found.may_label:
        raise UserError(f"{name!r} is a {found.role}, who may look but not label; give them another role")
    return found


def everybody(connection: Connection) -> list[Person]:
    """All people, by name."""
    return [_person(row) for row in connection.execute(select(person).order_by(person.c.name))]


def add_token(connection: Connection, name: str, role: str, now: datetime) -> str:
    """Gives a person a role and a token, which is told only now.

    Raises:
        UserError: If they have a token that was not revoked.
    """
    if role not in ROLES:
        raise UserError(f"unknown role {role!r:.40}; choose from {', '.join(ROLES)}")
    name, secret = check_person(name), secrets.token_urlsafe(32)
    values = {"role": role, "token_sha256": _hash(secret), "revoked_at": None}
    found = connection.execute(select(person).where(person.c.name == name).with_for_update()).one_or_none()
    if found is None:
        done = connection.execute(insert(person).values(name=name, created_at=now, **values))
        return f"{done.inserted_primary_key[0]}.{secret}" if done.inserted_primary_key else ""
    if found.token_sha256 is not None and found.revoked_at is None:
        raise UserError(f"{name!r} has a token; ncprior campaign token revoke {name} first, if it is lost")
    connection.execute(update(person).where(person.c.id == found.id).values(values))
    return f"{found.id}.{secret}"


def revoke(connection: Connection, name: str, now: datetime) -> None:
    """Takes a person's access away, at once; what they told stays."""
    found = connection.execute(select(person).where(person.c.name == name).with_for_update()).one_or_none()
    if found is None:
        names = ", ".join(one.name for one in everybody(connection)) or "nobody"
        raise UserError(f"there is no person {name!r:.80}; there is {names}")
    connection.execute(update(person).where(person.c.id == found.id).values(token_sha256=None, revoked_at=now))


def by_token(connection: Connection, token: str) -> Person | None:
    """Whose token this is; None if it is nobody's, or was revoked. Compared in constant time."""
    number, _, secret = token.partition(".")
    known = number.isascii() and number.isdigit() and len(number) < 10
    query = select(person).where(person.c.id == (int(number) if known else -1))
    found = connection.execute(query).one_or_none()
    expected = found.token_sha256 if found is not None and found.token_sha256 else _NOBODY
    right = hmac.compare_digest(_hash(secret), expected)
    if not right or found is None or found.revoked_at is not None:
        return None
    return _person(found)


def check_person(name: str) -> str:
    """The name of a person, if it can be one."""
    if not 0 < len(name) <= 64 or not name.isprintable() or name != name.strip():
        raise UserError(f"{name!r:.80} is no name of a person; give up to 64 characters")
    return name


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _person(row: DatabaseRow) -> Person:
    return Person(row.id, row.name, row.role, row.token_sha256 is not None, row.revoked_at)
