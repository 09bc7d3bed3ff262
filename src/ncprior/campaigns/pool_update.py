"""Another pool for a campaign: what is labelled stays, and it is said what came and went."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection, delete, select, update

from ncprior.campaigns import leases, queue
from ncprior.campaigns.campaign import Campaign
from ncprior.campaigns.pool import Pool
from ncprior.campaigns.schema import campaign as campaign_table
from ncprior.campaigns.schema import item
from ncprior.campaigns.schema import queue as queue_table
from ncprior.campaigns.spread import spread_rows
from ncprior.errors import UserError


class PoolChange(NamedTuple):
    """What is different in the new pool."""

    rows: int
    came: int | None  # None if nothing is known of the old one any more
    went: int | None
    touched_went: list[str]  # rows that were asked for or labelled, and are gone
    other_inputs: list[str]  # labelled rows that have other inputs now; those at the time of the label are kept


def update_pool(campaign: Campaign, path: str | Path | None = None) -> PoolChange:
    """Takes the present contents of the pool, or another file, from now on.

    Raises:
        UserError: If an input is missing there, or has values of another kind.
    """
    campaign.refresh()
    spec, old = campaign.spec, campaign.pool
    new = Pool.describe(Path(path or old.path), spec.id_column, list(spec.inputs), spec.targets, spec.seed)
    for name, kind in spec.inputs.items():
        if new.kinds[name] != kind:
            what = f"{new.path}: column {name!r} holds values of the kind {new.kinds[name]}, and {kind} before"
            raise UserError(f"{what}; mend it, or make a new campaign")
    before, after = old.known_hashes(), new.known_hashes()
    assert after is not None
    came = None if before is None else int((~np.isin(after, before)).sum())
    went = None if before is None else int((~np.isin(before, after)).sum())
    rows = campaign.database.read(
        lambda connection: connection.execute(select(item).where(item.c.campaign == campaign.id)).all()
    )
    there = new.find([row.row_key for row in rows])
    gone = [row.row_key for row in rows if row.in_pool and row.row_key not in there]
    other = [row for row in rows if row.row_key in there and there[row.row_key].inputs != row.inputs]
    labelled = {row.row_key: row.inputs for row in rows if row.state == "labelled"}
    spread = spread_rows(new, {row.row_key: row.inputs for row in rows})

    def write(connection: Connection) -> None:
        mine = campaign_table.c.id == campaign.id
        values = {"pool": str(new.path), "pool_digest": new.digest, "drawn": 0}
        connection.execute(update(campaign_table).where(mine).values(values))
        for row in rows:
            if row.in_pool != (row.row_key in there):
                connection.execute(update(item).where(item.c.id == row.id).values(in_pool=row.row_key in there))
        for row in other:
            if row.state != "labelled":
                changed = update(item).where(item.c.id == row.id, item.c.state != "labelled")
                connection.execute(changed.values(inputs=there[row.row_key].inputs))
        queue.clear(connection, campaign.id, "random", "spread")
        if leases.newest_model(connection, campaign.id) is None:
            queue.fill(connection, campaign.id, "spread", map(queue.Entry, spread))
        ranked = select(queue_table).where(queue_table.c.campaign == campaign.id, queue_table.c.kind == "ranked")
        waiting = connection.execute(ranked).all()
        at = new.indices([row.row_key for row in waiting])
        lost = [row.id for row, place in zip(waiting, at, strict=True) if place < 0]
        connection.execute(delete(queue_table).where(queue_table.c.id.in_(lost)))

    campaign.database.write(write)
    campaign.refresh()
    changed = [row.row_key for row in other if row.row_key in labelled]
    return PoolChange(new.rows, came, went, gone, changed)
