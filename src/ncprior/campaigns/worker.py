"""The worker: trains a model when labels have come in, and fills the queue that `ask` hands out.

A model's row in the database is its claim: one worker trains a campaign at a time. Its heartbeat says that the worker
lives; a claim without one is given up by the next worker, so a worker can be killed at any moment.
"""

import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from ncprior import __version__
from ncprior.campaigns import leases, queue
from ncprior.campaigns.campaign import Campaign
from ncprior.campaigns.inputs import Inputs, from_json, to_json
from ncprior.campaigns.labels import current_labels
from ncprior.campaigns.left import left_uncertainty
from ncprior.campaigns.pool import PoolRow
from ncprior.campaigns.schema import item, label, model, model_file, prediction
from ncprior.campaigns.schema import queue as queue_table
from ncprior.campaigns.spec import FIRST_MODEL
from ncprior.campaigns.training import CampaignModel, Loader, NCPModel, Trainer
from ncprior.errors import UserError

LENGTH = 200
"""Rows that a model puts into the queue."""

_LOW = 50
"""Rows in the queue below which it is filled again, labels or not."""

_AUDITS = 200
"""Of the rows that may be drawn for audits next: they are predicted in advance."""

_CANDIDATES = 50_000
"""Random rows of the pool from which a model picks."""

_KNOWN = 1_000
"""Labelled rows, at most, that a batch keeps away from, beside all that are out with people."""

_SILENCE = timedelta(minutes=2)
"""Without a heartbeat for so long, a worker is taken for dead."""

_BEAT = 15.0  # seconds

_KEPT_FILES = 3
"""Newest models whose files are kept."""


class Worked(NamedTuple):
    """What a worker did."""

    model: int
    trained: bool
    rows: int
    queued: int


class _Task(NamedTuple):
    """What there is to do: train a model, or fill the queue of one that is trained."""

    model: int
    train: bool


class _Labels(NamedTuple):
    """Labelled rows."""

    inputs: list[Inputs]
    targets: np.ndarray


class _Candidates(NamedTuple):
    """Rows of the pool from which a model picks."""

    inputs: pa.Table
    keys: list[str]


def work(campaign: Campaign, train: Trainer = NCPModel.train, load: Loader = NCPModel.load) -> Worked | None:
    """Trains a model and fills the queue, if there is reason to.

    Args:
        campaign: The campaign.
        train: What trains a model.
        load: What reads one from its file.

    Returns:
        What was done; None if there was nothing to do, or another worker is at it.
    """
    campaign.refresh()
    campaign.pool.check(campaign.name)
    task = campaign.database.write(lambda connection: _claim(connection, campaign))
    if task is None:
        return None
    if not task.train:
        return _finish(campaign, task, _loaded(campaign, task.model, load), _draw_candidates(campaign, task))
    with _heartbeat(campaign, task.model), _noting_failure(campaign, task.model):
        known = campaign.database.read(lambda connection: _labelled(connection, campaign))
        seed = (campaign.spec.seed + task.model) % 2**31
        drawn = _draw_candidates(campaign, task)
        unlabelled = drawn.inputs if campaign.spec.unlabelled and drawn.keys else None
        inputs = from_json(known.inputs, campaign.spec.inputs)
        return _finish(campaign, task, train(inputs, known.targets, campaign.spec, seed, unlabelled), drawn, known)


def _claim(connection: Connection, campaign: Campaign) -> _Task | None:
    now, mine = campaign.now(), model.c.campaign == campaign.id
    leases.expire(connection, campaign.id, now)
    silent = update(model).where(mine, model.c.state == "training", model.c.heartbeat < now - _SILENCE)
    connection.execute(silent.values(state="failed", reason="its worker has gone", finished_at=now))
    if connection.execute(select(model.c.id).where(mine, model.c.state == "training")).first() is not None:
        return None
    query = select(func.count(), func.max(label.c.id)).where(label.c.campaign == campaign.id)
    entries, last = connection.execute(query).one()
    newest = leases.newest_model(connection, campaign.id)
    if newest is not None:
        seen = connection.execute(select(model.c.labels).where(model.c.id == newest)).scalar_one()
        if seen == entries:
            low = queue.left(connection, campaign.id, "ranked") < min(_LOW, _untouched(connection, campaign))
            return _Task(newest, False) if low else None
    if leases.labelled_rows(connection, campaign.id) < FIRST_MODEL:
        return None
    values = {"campaign": campaign.id, "labels_through": last, "labels": entries, "metrics": {}, "state": "training"}
    done = connection.execute(insert(model).values(**values, started_at=now, heartbeat=now))
    return _Task(int(done.inserted_primary_key[0]), True)  # type: ignore[index]


def _untouched(connection: Connection, campaign: Campaign) -> int:
    """How many rows of the pool were never asked for or told."""
    query = select(func.count()).select_from(item).where(item.c.campaign == campaign.id, item.c.in_pool)
    return campaign.pool.rows - connection.execute(query).scalar_one()


def _labelled(connection: Connection, campaign: Campaign) -> _Labels:
    """Rows that have a value of every target; of several people's, the average."""
    query = current_labels().add_columns(item.c.row_key, item.c.inputs).join(item, item.c.id == label.c.item)
    inputs: dict[str, Inputs] = {}
    values: dict[str, dict[str, list[float]]] = {}
    for one in connection.execute(query.where(label.c.campaign == campaign.id).order_by(label.c.id)):
        inputs[one.row_key] = one.inputs
        values.setdefault(one.row_key, {}).setdefault(one.target, []).append(one.value)
    whole = [key for key, told in values.items() if all(target in told for target in campaign.spec.targets)]
    targets = [[float(np.mean(values[key][target])) for target in campaign.spec.targets] for key in whole]
    return _Labels([inputs[key] for key in whole], np.array(targets).reshape(len(whole), -1))


def _loaded(campaign: Campaign, model_id: int, load: Loader) -> CampaignModel:
    query = select(model_file.c.content, model.c.metrics).join(model, model.c.digest == model_file.c.digest)
    found = campaign.database.read(lambda connection: connection.execute(query.where(model.c.id == model_id)).one())
    return load(found.content, campaign.spec, found.metrics.get("seed", 0))


def _draw_candidates(campaign: Campaign, task: _Task) -> _Candidates:
    """Rows of the pool at random, others whenever more rows have been touched."""
    touched = campaign.database.read(lambda connection: _present(connection, campaign)[0])
    generator = np.random.default_rng((campaign.spec.seed, task.model, len(touched)))
    pool = campaign.pool
    many = pool.rows > _CANDIDATES
    indices = np.sort(generator.choice(pool.rows, _CANDIDATES, replace=False)) if many else np.arange(pool.rows)
    return _Candidates(*pool.take_table(indices))


def _finish(
    campaign: Campaign, task: _Task, trained: CampaignModel, drawn: _Candidates, known: _Labels | None = None
) -> Worked:
    """Ranks candidates, predicts what may be labelled next, and writes it all at once."""
    learned = known or campaign.database.read(lambda connection: _labelled(connection, campaign))
    touched, held, audits = campaign.database.read(lambda connection: _present(connection, campaign))
    generator = np.random.default_rng((campaign.spec.seed, task.model, len(touched)))
    pool = campaign.pool
    candidates, keys = drawn
    excluded = np.array([key in touched for key in keys])
    count = min(LENGTH, int((~excluded).sum()))
    sample = generator.permutation(len(learned.inputs))[:_KNOWN]
    near = from_json([learned.inputs[i] for i in sample] + [row.inputs for row in held], pool.kinds)
    rows: list[PoolRow] = []
    scores = np.zeros(0)
    if count:
        ranked = trained.rank(candidates, near, count, excluded)
        inputs = to_json(candidates.take(pa.array(ranked.rows)))
        rows = [PoolRow(keys[i], values) for i, values in zip(ranked.rows, inputs, strict=True)]
        scores = ranked.scores
    wanted = {row.key: row.inputs for row in (*rows, *held, *audits)}
    predicted = _predictions(trained, wanted, campaign)
    left = left_uncertainty(trained, candidates, excluded, campaign.spec.targets[0])
    content = trained.content() if task.train else b""
    notes = {
        **trained.metrics(), "rows": len(learned.inputs), "uncertainty": left or {}, "version": __version__,
    }  # fmt: skip

    def write(connection: Connection) -> None:
        if task.train:
            _keep(connection, campaign, task.model, content, notes)
        queue.clear(connection, campaign.id, "ranked")
        entries = [queue.Entry(row, float(score)) for row, score in zip(rows, scores, strict=True)]
        queue.fill(connection, campaign.id, "ranked", entries, model=task.model)
        if predicted:
            insert_new = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
            rows_of_model = [{"model": task.model, **one} for one in predicted]
            connection.execute(insert_new(prediction).on_conflict_do_nothing(), rows_of_model)
        _forget(connection, campaign.id, task.model)

    campaign.database.write(write)
    return Worked(task.model, task.train, len(learned.inputs), len(rows))


def _present(connection: Connection, campaign: Campaign) -> tuple[set[str], list[PoolRow], list[PoolRow]]:
    """Ids of rows that are not to be picked, rows that are out with people, and rows that may be audited next."""
    out = leases.held_rows(connection, campaign.id)
    query = select(item.c.row_key).where(item.c.campaign == campaign.id, item.c.state != "asked")
    touched = set(connection.execute(query).scalars()) | {one.row_key for one in out}
    random = (
        select(queue_table.c.row_key, queue_table.c.inputs)
        .where(queue_table.c.campaign == campaign.id, queue_table.c.kind == "random", ~queue_table.c.taken)
        .order_by(queue_table.c.rank)
        .limit(_AUDITS)
    )
    audits = [PoolRow(one.row_key, one.inputs) for one in connection.execute(random)]
    return touched, [PoolRow(one.row_key, one.inputs) for one in out], audits


def _predictions(trained: CampaignModel, wanted: Mapping[str, Inputs], campaign: Campaign) -> list[dict[str, object]]:
    if not wanted:
        return []
    found = trained.predict(from_json(list(wanted.values()), campaign.spec.inputs))
    return [
        {"row_key": key, "values": {target: found[target][i].to_json() for target in campaign.spec.targets}}
        for i, key in enumerate(wanted)
    ]


def _keep(connection: Connection, campaign: Campaign, model_id: int, content: bytes, notes: dict[str, object]) -> None:
    """Makes a model the one in use."""
    mine = (model.c.id == model_id, model.c.state == "training")
    row = connection.execute(select(model).where(*mine).with_for_update()).one_or_none()
    if row is None:
        raise UserError(f"model {model_id} took so long that another worker has given it up")
    digest = hashlib.sha256(content).hexdigest()
    if connection.execute(select(model_file.c.digest).where(model_file.c.digest == digest)).first() is None:
        connection.execute(insert(model_file).values(digest=digest, content=content))
    values = {"state": "ready", "digest": digest, "metrics": {**notes, "label_entries": row.labels}}
    connection.execute(update(model).where(*mine).values(**values, finished_at=campaign.now()))


def _forget(connection: Connection, campaign_id: int, newest: int) -> None:
    """Removes files of old models, and predictions of theirs that no label refers to."""
    query = select(model.c.id).where(model.c.campaign == campaign_id, model.c.id <= newest).order_by(model.c.id.desc())
    old = list(connection.execute(query).scalars())[_KEPT_FILES:]
    if not old:
        return
    used = select(model.c.digest).where(model.c.id.not_in(old), model.c.digest.is_not(None))
    mine = select(model.c.digest).where(model.c.id.in_(old))
    connection.execute(delete(model_file).where(model_file.c.digest.in_(mine), model_file.c.digest.not_in(used)))
    scored = (
        select(label.c.id)
        .join(item, item.c.id == label.c.item)
        .where(label.c.model == prediction.c.model, item.c.row_key == prediction.c.row_key)
    )
    connection.execute(delete(prediction).where(prediction.c.model.in_(old), ~scored.exists()))


@contextmanager
def _heartbeat(campaign: Campaign, model_id: int) -> Iterator[None]:
    """Says every few seconds that this worker lives."""
    done = threading.Event()

    def beat() -> None:
        mine = update(model).where(model.c.id == model_id, model.c.state == "training")
        while not done.wait(_BEAT):
            with suppress(UserError):  # a full disk, say; the end of training tells it
                campaign.database.write(lambda connection: connection.execute(mine.values(heartbeat=campaign.now())))

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def _noting_failure(campaign: Campaign, model_id: int) -> Iterator[None]:
    """Frees the claim of a model that cannot be trained, with the reason."""
    try:
        yield
    except BaseException as error:
        reason = str(error)[:500] or type(error).__name__
        values: dict[str, object] = {"state": "failed", "reason": reason, "finished_at": campaign.now()}
        mine = update(model).where(model.c.id == model_id, model.c.state == "training").values(values)
        with suppress(UserError):  # what failed first is told
            campaign.database.write(lambda connection: connection.execute(mine))
        raise
