"""`Campaign`: labels of a pool of rows, asked for and told over months by many people."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Unpack

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.exc import IntegrityError

from ncprior.campaigns import labels, leases, people, queue
from ncprior.campaigns.database import Database
from ncprior.campaigns.history import Event, row_history
from ncprior.campaigns.inputs import Inputs, checked
from ncprior.campaigns.labels import Place, Telling, Told
from ncprior.campaigns.leases import Asked, AskedRow, Claim
from ncprior.campaigns.pool import Pool
from ncprior.campaigns.results import Outcome, Rollback, read_results, tell_each, write_export
from ncprior.campaigns.schema import DatabaseRow, campaign, item
from ncprior.campaigns.spec import Rules, Spec, StopRules, check_name, is_text, numbers
from ncprior.campaigns.spread import spread_rows
from ncprior.campaigns.status import Status, status
from ncprior.campaigns.times import Clock, duration, utc_now
from ncprior.errors import UserError

IMPORT = "import"
"""The person under whose name labels are kept that were known at the beginning."""

MOST = 1_000
"""Rows that one call can ask for."""


class Campaign:
    """A pool of rows, labels so far, people, models and a stop rule, kept in a database.

    Many processes and threads may open the same campaign. See `create` and `open`.

    Attributes:
        name: Of the campaign.
        database: Where it is kept.
        spec: What it was made with, a `Spec`.
        pool: Its rows, a `Pool`.
    """

    def __init__(self, database: Database, row: DatabaseRow, now: Clock) -> None:
        self.database, self.now = database, now
        self.id: int = row.id
        self.name: str = row.name
        self._refilling = threading.Lock()
        self._reserve = False  # whether the queue is known to have random rows enough
        self._read(row)

    def _read(self, row: DatabaseRow) -> None:
        self.spec = Spec.from_json(row.spec)
        self.pool = Pool(row.pool, self.spec.id_column, self.spec.inputs, seed=self.spec.seed, digest=row.pool_digest)

    @classmethod
    def create(
        cls,
        name: str,
        *,
        pool: str | Path,
        id: str,
        target: str | Sequence[str],
        labelled: str | Path | None = None,
        inputs: Sequence[str] = (),
        storage: str | Database | None = None,
        now: Clock = utc_now,
        **rules: Unpack[Rules],
    ) -> "Campaign":
        """Makes a campaign.

        Args:
            name: Up to 64 letters, digits, points, dashes and underscores.
            pool: File or folder of the rows that could be labelled. It stays where it is.
            id: The column that names rows.
            target: What is measured, or several such names.
            labelled: A table of labels that are known already: the id, the targets, and the inputs of rows that are
                not in the pool.
            inputs: The columns to predict from; without them, all but the id and the targets.
            storage: A URL, such as ``sqlite:///campaign.db`` or ``postgresql://user@host/name``, or an open `Database`.
            now: The clock.
            rules: Other fields of `Spec`: ``budget``, ``audit``, ``seed``, ``replicates``, ``lease``, ``stop_error``,
                ``stop_patience`` and ``fit``.

        Raises:
            UserError: If the name is taken, or the pool or the labels cannot be read.
        """
        targets = (target,) if isinstance(target, str) else tuple(target)
        seed = int(rules.get("seed", 0))
        found = Pool.describe(Path(pool), id, list(inputs), targets, seed)
        spec = Spec(id_column=id, targets=targets, inputs=found.kinds, **rules)
        with Database.kept(storage, create=True) as database:
            check_name(name)
            if database.read(lambda connection: _row(connection, name)) is not None:
                raise UserError(f"there is a campaign {name!r} in {database.name}; choose another name")
            known = read_results(Path(labelled), spec) if labelled is not None else []
            rows = {one.id: (checked(one.inputs, found.kinds), False) for one in known if one.inputs is not None}
            rows |= {key: (row.inputs, True) for key, row in found.find([one.id for one in known]).items()}
            if strange := [one.id for one in known if one.id not in rows]:
                what = (
                    f"{labelled}: row {strange[0]!r:.80} is not in the pool, and not all of its inputs are in the table"
                )
                raise UserError(f"{what}; add them, or leave the row out")
            spec = replace(spec, given=sum(set(one.values) == set(targets) for one in known))
            spread = spread_rows(found, {one.id: rows[one.id][0] for one in known})
            values = {"name": name, "spec": spec.to_json(), "pool": str(found.path), "pool_digest": found.digest}

            def make(connection: Connection) -> DatabaseRow:
                connection.execute(insert(campaign).values(**values, status="open", created_at=now(), drawn=0))
                row = _row(connection, name)
                assert row is not None
                queue.fill(connection, row.id, "spread", map(queue.Entry, spread))
                if known:
                    place = Place(row.id, name, spec, people.someone(connection, IMPORT, now()), now())
                    for one in known:
                        labels.tell(connection, place, Telling(one.id, one.values, one.note), rows[one.id])
                return row

            try:
                return cls(database, database.write(make), now)
            except IntegrityError as error:
                raise UserError(f"there is a campaign {name!r} in {database.name}; choose another name") from error

    @classmethod
    def open(cls, name: str, storage: str | Database | None = None, now: Clock = utc_now) -> "Campaign":
        """Opens a campaign that was made before; see `create` for the arguments."""
        with Database.kept(storage) as database:
            row = database.read(lambda connection: _row(connection, name))
            if row is None:
                names = ", ".join(campaign_names(database)) or "none yet"
                raise UserError(f"there is no campaign {name!r:.80} in {database.name}; there is {names}")
            return cls(database, row, now)

    def ask(self, n: int = 1, *, person: str, lease: str | timedelta | None = None) -> Asked:
        """Hands out rows to label, never one that another person holds.

        Before there is a model, rows are spread over the pool; then they come from the queue of the newest model. An
        audit share of them is drawn at random. This never trains a model.

        Args:
            n: How many rows.
            person: Who will label them.
            lease: How long they have, such as ``"3d"``. After that, others may get the rows; a label is taken all the
                same.
        """
        if not 1 <= n <= MOST:
            raise UserError(f"-n {n}: ask for 1 to {MOST:,} rows")
        self.pool.check(self.name)
        if not self._reserve:
            self._refill(n)

        def claim(connection: Connection) -> Asked | None:
            row = _row(connection, self.name)
            if row is None or not self._is_current(row):
                return None
            if row.status != "open":
                what = f"campaign {self.name!r} is closed"
                raise UserError(f"{what}; ncprior campaign change {self.name} --reopen opens it")
            length = duration(lease or self.spec.lease) if not isinstance(lease, timedelta) else lease
            who = people.labeller(connection, person, self.now())
            asked = leases.claim(connection, self.id, self.spec, Claim(who, n, length), self.now)
            self._reserve = queue.left(connection, self.id, "random") >= n + queue.LOW
            return asked

        asked = self.database.write(claim)
        if asked is None:  # others have changed the rules or the pool meanwhile
            self.refresh()
            return self.ask(n, person=person, lease=lease)
        return asked

    def held(self, person: str) -> list[AskedRow]:
        """The rows that are out with a person."""

        def read(connection: Connection) -> list[AskedRow]:
            return [
                AskedRow(one.row_key, one.inputs, one.expires_at)
                for one in leases.held_rows(connection, self.id)
                if one.holder == person and one.expires_at > self.now()
            ]

        return self.database.read(read)

    def tell(
        self,
        id: str,
        value: float | Mapping[str, float],
        *,
        person: str,
        note: str | None = None,
        key: str | None = None,
        inputs: Mapping[str, object] | None = None,
    ) -> Told:
        """Tells the label of a row, asked for or not, late or not.

        Args:
            id: Of the row.
            value: The value, or several by the names of their targets.
            person: Who measured it.
            note: Anything to remember.
            key: Names this telling, so that it counts once if it is repeated after a lost answer.
            inputs: Of a row that is not in the pool.

        Raises:
            UserError: If the row has another value already: see `correct`.
        """
        telling = Telling(_checked_id(id), self._values(value), note, key, inputs)

        def write(row: tuple[Inputs, bool] | None) -> Told | None:
            return self.database.write(
                lambda connection: labels.tell(connection, self._place(connection, person), telling, row)
            )

        told = write(None)
        if told is None:  # nobody has touched the row so far
            row = self._untouched_rows([telling])[id]
            told = None if row is None else write(row)
        if told is None:
            raise UserError(f"row {id!r:.80} is not in the pool; to tell it all the same, give its inputs")
        return told

    def tell_rows(self, results: Sequence[Telling], *, person: str, preview: bool = False) -> list[Outcome]:
        """Tells many labels at once.

        Args:
            results: What to tell, as `ncprior.campaigns.results.read_results` reads it from a table.
            person: Who measured it.
            preview: Whether only to say what would happen.

        Returns:
            What became of each; those that are refused change nothing.
        """
        rows = self._untouched_rows(results)
        outcomes: list[Outcome] = []

        def run(connection: Connection) -> None:
            outcomes[:] = tell_each(connection, self._place(connection, person), results, rows)
            if preview:
                raise Rollback

        with suppress(Rollback):
            self.database.write(run)
        return outcomes

    def correct(
        self,
        id: str,
        value: float | Mapping[str, float],
        *,
        person: str,
        note: str | None = None,
        key: str | None = None,
        of: str | None = None,
    ) -> Told:
        """Replaces the label of a row by another; the history keeps both. ``of`` says whose, if there are several."""
        telling = Telling(id, self._values(value), note, key)

        def change(connection: Connection) -> Told:
            return labels.correct(connection, self._place(connection, person), telling, of=of)

        return self.database.write(change)

    def skip(self, id: str, *, person: str, note: str | None = None) -> list[str]:
        """Gives a row up that was not tried; it is not asked for again."""
        return self._give_up(id, "skipped", person, note)

    def fail(self, id: str, *, person: str, note: str | None = None) -> list[str]:
        """Gives a row up that was tried, without a result; it is not asked for again."""
        return self._give_up(id, "failed", person, note)

    def release(self, id: str, *, person: str) -> None:
        """Gives a row back, for others to ask for."""

        def change(connection: Connection) -> None:
            at = self._place(connection, person)
            leases.release(connection, self.id, id, at.person, at.now)

        self.database.write(change)

    def extend(self, id: str, *, person: str, lease: str | None = None) -> datetime:
        """Keeps a row for longer, counted from now; gives the new end."""
        until = self.now() + duration(lease or self.spec.lease)

        def change(connection: Connection) -> None:
            at = self._place(connection, person)
            leases.extend(connection, self.id, id, at.person, until)

        self.database.write(change)
        return until

    def status(self) -> Status:
        """How the campaign stands."""
        self.refresh()
        self.database.write(lambda connection: leases.expire(connection, self.id, self.now()))
        try:
            rows = self.pool.rows
        except UserError:  # it is not there, or has changed; `ask` says so
            rows = None

        def read(connection: Connection) -> Status:
            row = _row(connection, self.name)
            assert row is not None  # `refresh` has just found it
            return status(connection, row, self.spec, rows)

        return self.database.read(read)

    def history(self, id: str) -> list[Event]:
        """All that happened to a row, in order."""
        found = self.database.read(lambda connection: row_history(connection, self.id, id))
        if not found:
            raise UserError(f"row {id!r:.80} was never asked for or told in campaign {self.name!r}")
        return found

    def export(self, out: str | Path, *, history: bool = False) -> int:
        """Writes labelled rows to a .csv or .parquet file: id, inputs, targets and who told them.

        Args:
            out: The file.
            history: Whether to write every entry instead, corrections and what they supersede.

        Returns:
            The number of rows.
        """
        return write_export(self.database, self.id, self.spec, Path(out), history=history)

    def change(self, *, status: str | None = None, **rules: Unpack[StopRules]) -> None:
        """Changes the status (``open``, ``closed``), or stop rules; None removes a rule."""

        def write(connection: Connection) -> None:
            query = select(campaign).where(campaign.c.id == self.id).with_for_update()
            spec = Spec.from_json(connection.execute(query).one().spec)
            values = {"spec": replace(spec, **rules).to_json()} | ({"status": status} if status else {})
            connection.execute(update(campaign).where(campaign.c.id == self.id).values(values))

        self.database.write(write)
        self.refresh()

    def refresh(self) -> None:
        """Reads again what others may have changed: stop rules and the pool."""
        row = self.database.read(lambda connection: _row(connection, self.name))
        if row is None:
            raise UserError(f"campaign {self.name!r} is gone from {self.database.name}")
        if not self._is_current(row):
            if (row.pool, row.pool_digest) == (str(self.pool.path), self.pool.digest):
                self.spec = Spec.from_json(row.spec)
            else:
                self._read(row)
            self._reserve = False

    def _is_current(self, row: DatabaseRow) -> bool:
        """Whether this is what the database has of the campaign."""
        known = (self.spec.to_json(), str(self.pool.path), self.pool.digest)
        return (row.spec, row.pool, row.pool_digest) == known

    def _values(self, value: float | Mapping[str, float]) -> dict[str, float]:
        if isinstance(value, Mapping):
            return numbers(value, self.spec.targets)
        if len(self.spec.targets) > 1:
            raise UserError(f"there are several targets, {', '.join(self.spec.targets)}; name the one of each value")
        return numbers({self.spec.targets[0]: value}, self.spec.targets)

    def _place(self, connection: Connection, person: str) -> Place:
        now = self.now()
        return Place(self.id, self.name, self.spec, people.labeller(connection, person, now), now)

    def _untouched_rows(self, results: Sequence[Telling]) -> dict[str, tuple[Inputs, bool] | None]:
        ids = [one.id for one in results]

        def touched(connection: Connection) -> set[str]:
            found: set[str] = set()
            for start in range(0, len(ids), 500):
                mine = (item.c.campaign == self.id, item.c.row_key.in_(ids[start : start + 500]))
                found |= set(connection.execute(select(item.c.row_key).where(*mine)).scalars())
            return found

        known = self.database.read(touched)
        rows: dict[str, tuple[Inputs, bool] | None] = dict.fromkeys(ids)
        if new := [one for one in results if one.id not in known]:
            self.refresh()
            self.pool.check(self.name)
            in_pool = self.pool.find([one.id for one in new])
            for one in new:
                if one.id in in_pool:
                    rows[one.id] = (in_pool[one.id].inputs, True)
                elif one.inputs is not None:
                    rows[one.id] = (checked(one.inputs, self.spec.inputs), False)
        return rows

    def _give_up(self, id: str, state: str, person: str, note: str | None) -> list[str]:
        row = self._untouched_rows([Telling(_checked_id(id), {})])[id]

        def change(connection: Connection) -> list[str]:
            at = self._place(connection, person)
            return labels.give_up(connection, at, (id, row[0] if row else None), state, note)

        return self.database.write(change)

    def _refill(self, n: int) -> None:
        """Reads the next random rows from the pool, before anybody waits for them."""
        with self._refilling:  # threads that wait here find the work done

            def look(connection: Connection) -> tuple[int, int]:
                return queue.left(connection, self.id, "random"), queue.drawn(connection, self.id)

            left, start = self.database.read(look)
            if left < n + queue.LOW and start < self.pool.rows:
                rows = self.pool.take(self.pool.random_rows(start, max(queue.RESERVE, n)))
                self.database.write(lambda connection: queue.add_random(connection, self.id, start, rows))


def campaign_names(database: Database) -> list[str]:
    """All campaigns of a storage."""
    query = select(campaign.c.name).order_by(campaign.c.name)
    return database.read(lambda connection: list(connection.execute(query).scalars()))


def _checked_id(id: str) -> str:
    if not id or not is_text(id, 1_000):
        raise UserError("the id of a row must have 1 to 1,000 characters")
    return id


def _row(connection: Connection, name: str) -> DatabaseRow | None:
    return connection.execute(select(campaign).where(campaign.c.name == name)).one_or_none()
