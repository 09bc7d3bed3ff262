"""How a campaign stands: rows, people, the model in use, its error, and what the stop rules say."""

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, func, select

from ncprior.campaigns import queue
from ncprior.campaigns.audit import AuditRow, Scores, audit_rows, curve
from ncprior.campaigns.schema import DatabaseRow, item, label, lease, model, person
from ncprior.campaigns.spec import FIRST_MODEL, Spec
from ncprior.campaigns.stopping import Rule, present_scores, rules
from ncprior.schema import JsonObject


class PersonStatus(NamedTuple):
    """What someone has done."""

    name: str
    role: str
    labelled: int
    out: int
    last_told: datetime | None


class ModelStatus(NamedTuple):
    """The model in use, or in training."""

    id: int
    state: str
    rows: int
    started_at: datetime
    finished_at: datetime | None
    metrics: JsonObject
    reason: str | None


class AuditStatus(NamedTuple):
    """The error on audit rows of one target."""

    target: str
    present: Scores | None
    curve: list[Scores]


class Status(NamedTuple):
    """How a campaign stands."""

    name: str
    status: str
    targets: tuple[str, ...]
    pool: str
    pool_rows: int | None
    labelled: int
    out: int
    skipped: int
    failed: int
    partly: int
    """Rows that were asked for and are not out: released, expired, or some of their targets told."""
    labels: int
    """Entries of labels, corrections included."""
    spent: int
    budget: int | None
    people: list[PersonStatus]
    model: ModelStatus | None
    training: ModelStatus | None
    queue: int
    audits: list[AuditStatus]
    rules: list[Rule]
    advice: str

    @property
    def done(self) -> bool:
        """Whether a stop rule says that labels are enough."""
        return any(rule.reached for rule in self.rules)


def status(connection: Connection, row: DatabaseRow, spec: Spec, pool_rows: int | None) -> Status:
    """Collects it all in one transaction; ``row`` is the campaign's in the database."""
    mine = item.c.campaign == row.id
    states = connection.execute(select(item.c.state, func.count()).where(mine).group_by(item.c.state))
    counts = {state: int(count) for state, count in states}
    held = select(func.count()).select_from(lease).where(lease.c.campaign == row.id, lease.c.closed_at.is_(None))
    out = connection.execute(held).scalar_one()
    labels = connection.execute(select(func.count()).select_from(label).where(label.c.campaign == row.id)).scalar_one()
    audits = audit_rows(connection, row.id)
    labelled = counts.get("labelled", 0)
    newest, training = _model(connection, row.id, "ready"), _model(connection, row.id, "training")
    left = queue.left(connection, row.id, "spread" if newest is None else "ranked")
    first = [one for one in audits if one.target == spec.targets[0]]
    found = rules(spec, labelled - spec.given, labelled, first)
    return Status(
        name=row.name,
        status=row.status,
        targets=spec.targets,
        pool=row.pool,
        pool_rows=pool_rows,
        labelled=labelled,
        out=out,
        skipped=counts.get("skipped", 0),
        failed=counts.get("failed", 0),
        partly=max(0, counts.get("asked", 0) - out),
        labels=labels,
        spent=labelled - spec.given,
        budget=spec.budget,
        people=_people(connection, row.id),
        model=newest,
        training=training,
        queue=left,
        audits=[_audit(target, audits) for target in spec.targets],
        rules=found,
        advice=_advice(row.name, labelled, labels, found, newest=newest, training=training),
    )


def _audit(target: str, audits: list[AuditRow]) -> AuditStatus:
    rows = [one for one in audits if one.target == target]
    return AuditStatus(target, present_scores(rows), curve(rows))


def _people(connection: Connection, campaign_id: int) -> list[PersonStatus]:
    told = (
        select(
            label.c.person, func.count(label.c.item.distinct()).label("rows"), func.max(label.c.told_at).label("last")
        )
        .where(label.c.campaign == campaign_id)
        .group_by(label.c.person)
        .subquery()
    )
    out = (
        select(lease.c.person, func.count().label("out"))
        .where(lease.c.campaign == campaign_id, lease.c.closed_at.is_(None))
        .group_by(lease.c.person)
        .subquery()
    )
    query = (
        select(person.c.name, person.c.role, told.c.rows, told.c.last, out.c.out)
        .outerjoin(told, told.c.person == person.c.id)
        .outerjoin(out, out.c.person == person.c.id)
        .where(told.c.rows.is_not(None) | out.c.out.is_not(None))
        .order_by(person.c.name)
    )
    return [
        PersonStatus(one.name, one.role, one.rows or 0, one.out or 0, one.last) for one in connection.execute(query)
    ]


def _model(connection: Connection, campaign_id: int, state: str) -> ModelStatus | None:
    query = select(model).where(model.c.campaign == campaign_id, model.c.state == state).order_by(model.c.id.desc())
    row = connection.execute(query.limit(1)).first()
    if row is None:
        return None
    rows = int(row.metrics.get("rows", 0))
    return ModelStatus(row.id, row.state, rows, row.started_at, row.finished_at, row.metrics, row.reason)


def _advice(
    name: str,
    labelled: int,
    labels: int,
    found: list[Rule],
    *,
    newest: ModelStatus | None,
    training: ModelStatus | None,
) -> str:
    """What to do next."""
    if reached := [rule.name for rule in found if rule.reached]:
        return f"enough labels by the rule: {', '.join(reached)}"
    if training is not None:
        return f"model {training.id} is being trained"
    if newest is None and labelled < FIRST_MODEL:
        return f"{FIRST_MODEL - labelled} more labels are needed for a first model"
    if newest is None or newest.metrics.get("label_entries", 0) < labels:
        return f"labels have come in that no model knows: ncprior campaign work {name}"
    return "ask for rows and tell their labels"
