"""Labels and rows as people look at them: lists with a filter, one row in detail, rows like it."""

from datetime import datetime
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection, and_, func, or_, select

from ncprior.campaigns import leases
from ncprior.campaigns.history import Event, row_history
from ncprior.campaigns.inputs import Inputs, from_json
from ncprior.campaigns.labels import current_labels
from ncprior.campaigns.people import Person
from ncprior.campaigns.pool import Pool
from ncprior.campaigns.predicted import Predicted
from ncprior.campaigns.schema import DatabaseRow, Query, item, label, model, person, prediction
from ncprior.campaigns.spec import Spec
from ncprior.data.encoding import Encoder

PAGE = 50
"""Labels on a page."""

_SIMILAR = 5
_COMPARED = 10_000
"""Labelled rows, at most, that a row is compared with: the newest."""


class LabelEntry(NamedTuple):
    """A label that holds now, beside what was predicted before it came."""

    row: str
    target: str
    value: float
    person: str
    told_at: datetime
    note: str | None
    corrected: bool
    predicted: Predicted | None


class LabelPage(NamedTuple):
    """Some of the labels, newest first."""

    entries: list[LabelEntry]
    total: int
    page: int
    pages: int


class SimilarRow(NamedTuple):
    """A labelled row that is like another."""

    row: str
    inputs: Inputs
    values: dict[str, float]
    distance: float


class RowDetail(NamedTuple):
    """A row as a person may see it."""

    row: str
    inputs: Inputs
    state: str
    holder: str | None
    in_pool: bool
    labels: list[LabelEntry]
    predicted: dict[str, Predicted]
    """By the newest model that has a prediction; empty while it could sway who labels the row."""
    model: int | None
    hidden: bool
    events: list[Event]
    similar: list[SimilarRow]


def label_page(
    connection: Connection, campaign_id: int, *, text: str = "", teller: str = "", page: int = 1
) -> LabelPage:
    """Labels whose row, person or note has a text in it, or that a person told."""
    query = _entries(campaign_id)
    if text:
        fields = (item.c.row_key, label.c.note, person.c.name)
        query = query.where(or_(*(field.icontains(text, autoescape=True) for field in fields)))
    if teller:
        query = query.where(person.c.name == teller)
    total = connection.execute(select(func.count()).select_from(query.subquery())).scalar_one()
    pages = max(1, -(-total // PAGE))
    page = min(max(page, 1), pages)
    rows = connection.execute(query.order_by(label.c.id.desc()).limit(PAGE).offset((page - 1) * PAGE)).all()
    return LabelPage([_entry(row) for row in rows], total, page, pages)


def recent_labels(connection: Connection, campaign_id: int, who: Person, count: int = 10) -> list[LabelEntry]:
    """What a person told last."""
    query = _entries(campaign_id).where(label.c.person == who.id).order_by(label.c.id.desc()).limit(count)
    return [_entry(row) for row in connection.execute(query)]


def tellers(connection: Connection, campaign_id: int) -> list[str]:
    """Names of people who told labels."""
    query = select(person.c.name).join(label, label.c.person == person.c.id).where(label.c.campaign == campaign_id)
    return list(connection.execute(query.distinct().order_by(person.c.name)).scalars())


def row_detail(connection: Connection, campaign_id: int, spec: Spec, key: str, who: Person) -> RowDetail | None:
    """A row in detail; None if it was never touched and is not in the queue.

    Who holds a row sees neither its prediction nor what others told, and a labeller sees predictions of labelled rows
    only: they must not sway a label.
    """
    mine = (item.c.campaign == campaign_id, item.c.row_key == key)
    touched = connection.execute(select(item).where(*mine)).one_or_none()
    if touched is None:
        return None
    held = leases.open_lease(connection, touched.id)
    holds = held is not None and held.person == who.id
    hidden = holds or (who.role == "labeller" and touched.state != "labelled")
    labels = [] if holds else [
        _entry(row) for row in connection.execute(_entries(campaign_id).where(*mine).order_by(label.c.id))
    ]  # fmt: skip
    newest = None if hidden else _newest_prediction(connection, campaign_id, key)
    return RowDetail(
        key,
        touched.inputs,
        touched.state,
        None if held is None else held.holder,
        touched.in_pool,
        labels,
        {} if newest is None else {name: Predicted.from_json(one) for name, one in newest.values.items()},
        None if newest is None else newest.model,
        hidden,
        [event for event in row_history(connection, campaign_id, key) if not (holds and event.value is not None)],
        [] if hidden else similar_rows(connection, campaign_id, spec, touched),
    )


def similar_rows(connection: Connection, campaign_id: int, spec: Spec, row: DatabaseRow) -> list[SimilarRow]:
    """The labelled rows whose inputs are nearest to those of a row, in encoded columns."""
    query = current_labels().add_columns(item.c.row_key, item.c.inputs).join(item, item.c.id == label.c.item)
    query = query.where(label.c.campaign == campaign_id, item.c.id != row.id).order_by(label.c.id.desc())
    inputs: dict[str, Inputs] = {}
    values: dict[str, dict[str, list[float]]] = {}
    for one in connection.execute(query.limit(_COMPARED)):
        inputs[one.row_key] = one.inputs
        values.setdefault(one.row_key, {}).setdefault(one.target, []).append(one.value)
    if not inputs:
        return []
    table = from_json([*inputs.values(), row.inputs], spec.inputs)
    encoded = Encoder.fit(table).transform(table)
    distance = np.sqrt(((encoded[:-1] - encoded[-1]) ** 2).sum(axis=1))
    keys = list(inputs)
    return [
        SimilarRow(
            keys[i],
            inputs[keys[i]],
            {name: float(np.mean(some)) for name, some in values[keys[i]].items()},
            float(distance[i]),
        )
        for i in np.argsort(distance, kind="stable")[:_SIMILAR]
    ]


def pool_row(pool: Pool, key: str) -> Inputs | None:
    """The inputs of a row of the pool that was never touched."""
    found = pool.find([key])
    return found[key].inputs if key in found else None


def _entries(campaign_id: int) -> Query:
    made_before = and_(prediction.c.model == label.c.model, prediction.c.row_key == item.c.row_key)
    return (
        current_labels()
        .add_columns(item.c.row_key, prediction.c["values"].label("predictions"))
        .join(item, item.c.id == label.c.item)
        .outerjoin(prediction, made_before)
        .where(label.c.campaign == campaign_id)
    )


def _entry(row: DatabaseRow) -> LabelEntry:
    saved = (row.predictions or {}).get(row.target)
    predicted = None if saved is None else Predicted.from_json(saved)
    corrected = row.supersedes is not None
    return LabelEntry(row.row_key, row.target, row.value, row.teller, row.told_at, row.note, corrected, predicted)


def _newest_prediction(connection: Connection, campaign_id: int, key: str) -> DatabaseRow | None:
    query = select(prediction).join(model, model.c.id == prediction.c.model)
    mine = (model.c.campaign == campaign_id, prediction.c.row_key == key)
    return connection.execute(query.where(*mine).order_by(prediction.c.model.desc()).limit(1)).first()
