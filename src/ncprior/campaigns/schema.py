"""The tables of the database. Only rows that were touched are in it; the pool stays where it is.

`label` is append-only: a correction supersedes a label, and nothing is overwritten. That a row is out with one person
at most is a unique index (`one_holder`), so that no mistake in a program can break it; likewise that a label is
superseded once, that a key names one label, and that one worker trains a campaign at a time.
"""

from datetime import UTC, datetime
from typing import Any, TypeAlias

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    Select,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.types import TypeDecorator

DatabaseRow: TypeAlias = Row[Any]
"""A row that a query has found. Its columns are attributes, whose types only the database knows."""

Query: TypeAlias = Select[Any]
"""A query for such rows."""

STATES = ("asked", "labelled", "skipped", "failed")
"""Of an item. An ``asked`` row that nobody holds any more can be asked for again."""

ROLES = ("owner", "labeller", "viewer")

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
    }
)


class UtcTime(TypeDecorator[datetime]):
    """A point in time, in UTC, whether or not the database knows time zones."""

    impl = DateTime(timezone=True)
    cache_ok = True
    """Statements with it can be kept."""

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """To the database."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """From the database."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _id() -> Column[int]:
    return Column("id", Integer, primary_key=True)


def _refers(name: str, to: str, *, nullable: bool = False) -> Column[int]:
    return Column(name, Integer, ForeignKey(f"{to}.id"), nullable=nullable)


campaign = Table(
    "campaign",
    metadata,
    _id(),
    Column("name", String(64), nullable=False, unique=True),
    Column("spec", JSON, nullable=False),  # a `Spec`
    Column("pool", Text, nullable=False),  # where it is, as an absolute path
    Column("pool_digest", String(64), nullable=False),
    Column("status", String(16), nullable=False),  # open or closed
    Column("created_at", UtcTime, nullable=False),
    Column("drawn", Integer, nullable=False),  # rows of the pool's random order that have been in the queue
)
person = Table(
    "person",
    metadata,
    _id(),
    Column("name", String(64), nullable=False, unique=True),
    Column("role", String(16), nullable=False),
    Column("token_sha256", String(64)),  # none for people who only use the command line
    Column("created_at", UtcTime, nullable=False),
    Column("revoked_at", UtcTime),
)
item = Table(
    "item",
    metadata,
    _id(),
    _refers("campaign", "campaign"),
    Column("row_key", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("inputs", JSON, nullable=False),
    Column("in_pool", Boolean, nullable=False),
    UniqueConstraint("campaign", "row_key"),
    Index("ix_item_state", "campaign", "state"),
)
model = Table(
    "model",
    metadata,
    _id(),
    _refers("campaign", "campaign"),
    Column("labels_through", Integer, nullable=False),  # the last label that it may have learned from
    Column("labels", Integer, nullable=False),  # entries of `label` that there were when it was trained
    Column("digest", String(64)),
    Column("metrics", JSON, nullable=False),
    Column("state", String(16), nullable=False),  # training, ready or failed
    Column("started_at", UtcTime, nullable=False),
    Column("finished_at", UtcTime),
    Column("heartbeat", UtcTime, nullable=False),
    Column("reason", Text),  # why it failed
    Index("one_worker", "campaign", unique=True, sqlite_where=text("state = 'training'"),
          postgresql_where=text("state = 'training'")),
)  # fmt: skip
model_file = Table(
    "model_file",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("content", LargeBinary, nullable=False),
)
lease = Table(
    "lease",
    metadata,
    _id(),
    _refers("campaign", "campaign"),
    _refers("item", "item"),
    _refers("person", "person"),
    _refers("model", "model", nullable=True),  # that ranked the row
    Column("audit", Boolean, nullable=False),  # drawn at random, to measure the error
    Column("asked_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime, nullable=False),
    Column("closed_at", UtcTime),
    Column("reason", Text),  # told, told by another, skipped, failed, released, expired
    Column("note", Text),
    Column("unseen", Boolean, nullable=False),  # the holder has not been told yet that it was closed
    Index("one_holder", "item", unique=True, sqlite_where=text("closed_at IS NULL"),
          postgresql_where=text("closed_at IS NULL")),
    Index("open_leases", "campaign", "expires_at", sqlite_where=text("closed_at IS NULL"),
          postgresql_where=text("closed_at IS NULL")),
    Index("ix_lease_item", "item"),
    Index("unseen_leases", "person", sqlite_where=text("unseen"), postgresql_where=text("unseen")),
)  # fmt: skip
label = Table(
    "label",
    metadata,
    _id(),
    _refers("campaign", "campaign"),
    _refers("item", "item"),
    _refers("person", "person"),
    _refers("lease", "lease", nullable=True),
    _refers("model", "model", nullable=True),  # whose prediction there was before the label came
    Column("target", Text, nullable=False),
    Column("value", Double, nullable=False),
    Column("told_at", UtcTime, nullable=False),
    Column("idempotency_key", String(200)),
    Column("supersedes", Integer, ForeignKey("label.id"), unique=True),
    Column("note", Text),
    UniqueConstraint("campaign", "idempotency_key", "target"),
    Index("ix_label_item", "item", "target"),
)
prediction = Table(
    "prediction",
    metadata,
    Column("model", Integer, ForeignKey("model.id"), primary_key=True),
    Column("row_key", Text, primary_key=True),
    Column("values", JSON, nullable=False),  # a `Predicted` for each target
)
queue = Table(
    "queue",
    metadata,
    _id(),
    _refers("campaign", "campaign"),
    _refers("model", "model", nullable=True),
    Column("kind", String(16), nullable=False),  # see `ncprior.campaigns.queue`
    Column("rank", Integer, nullable=False),
    Column("row_key", Text, nullable=False),
    Column("score", Double),
    Column("inputs", JSON, nullable=False),
    Column("taken", Boolean, nullable=False),
    Index("ix_queue_rank", "campaign", "kind", "taken", "rank"),
    Index("ix_queue_row", "campaign", "row_key"),
)
