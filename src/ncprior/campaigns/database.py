"""Where campaigns are kept: SQLite in one file, or PostgreSQL; transactions that happen whole or not at all.

A transaction that writes takes its locks at the beginning: SQLite's one writer by ``BEGIN IMMEDIATE``, rows of
PostgreSQL by ``FOR UPDATE``. If it meets another that waits for it in turn, it is run again from its beginning.
"""

import os
import random
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Self, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, inspect, make_url, select, table, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, OperationalError
from sqlalchemy.sql import column

from ncprior.errors import UserError

if sys.platform != "win32":
    import fcntl

DEFAULT = "sqlite:///campaign.db"
REVISION = "0001"
"""Of the schema that this version uses: the newest in ``migrations/versions``."""

_NETWORK = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs", "fuse.rclone", "davfs")
"""Beginnings of the names of file systems on which SQLite's locks and shared memory do not work."""

_PATIENCE = 60
"""Seconds that a transaction waits for others before it gives up."""

_ATTEMPTS = 20
"""Times that a transaction is run which others have stopped."""

Result = TypeVar("Result")


class StorageError(UserError):
    """The storage cannot do its work now: a full disk, a server that is away."""


class Database:
    """A storage, by its URL. Open it once in a process and share it between threads."""

    def __init__(self, url: str | None = None, *, create: bool = False) -> None:
        """Opens the storage, and brings an older schema up to date.

        Args:
            url: ``sqlite:///FILE`` or ``postgresql://USER@HOST/NAME``. By default the environment variable
                ``NCPRIOR_STORAGE``, or else ``sqlite:///campaign.db``.
            create: Whether to make the file and the tables if they are not there.

        Raises:
            UserError: If it is not there, cannot be reached, or lies on a network file system.
        """
        self.url = _parsed(url or os.environ.get("NCPRIOR_STORAGE") or DEFAULT)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.name = self.url.render_as_string(hide_password=True).replace("+psycopg", "")
        self._writer = threading.Lock()  # for threads, where files have no locks with a queue
        if self.is_sqlite:
            _check_file(Path(self.url.database or ""), create)
        self.engine = _engine(self.url)
        try:
            with self._explained():
                self._upgrade(create)
        except BaseException:
            self.close()
            raise

    def read(self, query: Callable[[Connection], Result]) -> Result:
        """What a function reads in one transaction, all at one moment."""
        return self._again(query, {})

    def write(self, change: Callable[[Connection], Result]) -> Result:
        """Runs a function in one transaction that is kept whole, or not at all after an error.

        The function may run more than once, so it must do nothing but read and write the database.
        """
        with self._turn() if self.is_sqlite else nullcontext():
            return self._again(change, {"ncprior_write": True})

    def close(self) -> None:
        """Gives all connections back."""
        self.engine.dispose()

    def __enter__(self) -> Self:
        """Itself, closed at the end of a ``with`` statement."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @classmethod
    @contextmanager
    def kept(cls, storage: "str | Database | None", *, create: bool = False) -> Iterator["Database"]:
        """The storage, opened if it is a URL, and then closed again after an error only."""
        if isinstance(storage, Database):
            yield storage
            return
        with ExitStack() as opened:
            yield opened.enter_context(cls(storage, create=create))
            opened.pop_all()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Waits in line with the other threads and processes that write the file.

        SQLite itself lets those who wait try again now and then, and some may never get through. The lock of a file
        beside it has a queue; it ends with its process, however that ends, and keeps nobody from the data.
        """
        with ExitStack() as opened:
            if sys.platform == "win32":
                opened.enter_context(self._writer)
            else:
                with suppress(OSError):  # a folder or a file system without such locks: SQLite's own will do
                    line = os.open(f"{self.url.database}-line", os.O_RDWR | os.O_CREAT, 0o666)
                    opened.callback(os.close, line)
                    fcntl.flock(line, fcntl.LOCK_EX)
            yield

    def _again(self, run: Callable[[Connection], Result], options: dict[str, object]) -> Result:
        if self.is_sqlite is False and not options:
            options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        with self._explained():
            for attempt in range(_ATTEMPTS):
                try:
                    with self.engine.connect() as plain:
                        connection = plain.execution_options(**options)
                        with connection.begin():
                            return run(connection)
                except DBAPIError as error:
                    # Two may add the same at once: the second one then sees what the first has done.
                    again = isinstance(error, IntegrityError) and attempt < 3
                    again = again or getattr(error.orig, "sqlstate", None) in _STOPPED
                    if not again or attempt == _ATTEMPTS - 1:
                        raise
                    time.sleep(random.uniform(0, 0.01 * 2 ** min(attempt, 6)))
        raise AssertionError("the last attempt returns or raises")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turns errors of the database into one line."""
        try:
            yield
        except DBAPIError as error:
            if (line := _explanation(error)) is None:
                raise
            raise StorageError(f"{self.name}: {line}") from error

    def _upgrade(self, create: bool) -> None:
        """Makes the tables, or changes those of an older version."""
        with self.engine.connect() as connection:
            found = _revision(connection)
        if found == REVISION:
            return
        if found is None and not create:
            what = f"{self.name}: holds no campaigns"
            raise UserError(f"{what}; make one by ncprior campaign create, or give another --storage")
        if found is not None and found > REVISION:
            raise UserError(f"{self.name}: was made by a newer ncprior; install that version")
        from alembic import command
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
        options = {"ncprior_write": True}
        with self.engine.connect().execution_options(**options) as connection, connection.begin():
            if not self.is_sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(738211)"))  # one process changes tables at a time
            if _revision(connection) != REVISION:
                config.attributes["connection"] = connection
                command.upgrade(config, "head")


_STOPPED = ("40001", "40P01", "55P03")
"""PostgreSQL's states of transactions that others have stopped: serialization, deadlock, lock not available."""


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        parsed = None
    if parsed is not None and parsed.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed is not None and parsed.drivername == "sqlite" and parsed.database not in (None, "", ":memory:"):
        return parsed.set(query={})
    raise UserError(
        "the storage must be sqlite:///FILE or postgresql://USER@HOST/NAME; give it by --storage or NCPRIOR_STORAGE"
    )


def _engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        return create_engine(url, pool_size=10, max_overflow=20, pool_pre_ping=True)
    engine = create_engine(url, pool_size=10, max_overflow=50, connect_args={"timeout": _PATIENCE})

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None  # transactions begin where `begin` says, not at the first change
        for line in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", f"busy_timeout = {_PATIENCE}000"):
            connection.execute(f"PRAGMA {line}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        write = connection.get_execution_options().get("ncprior_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _revision(connection: Connection) -> str | None:
    """The revision of the schema; None if there are no tables."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    version = table("alembic_version", column("version_num"))
    found: str | None = connection.execute(select(version.c.version_num)).scalar()
    return found


def _check_file(file: Path, create: bool) -> None:
    """Raise if SQLite cannot keep its database there."""
    if not create and not file.exists():
        raise UserError(f"{file}: there is no such database; ncprior campaign create makes it, or give --storage")
    if not file.parent.is_dir():
        raise UserError(f"{file}: there is no folder {file.parent}; make it first")
    if kind := network_file_system(file):
        raise UserError(
            f"{file}: lies on a network file system ({kind}), where SQLite can lose data; choose a local folder, or "
            "give the URL of a PostgreSQL server to --storage"
        )


def network_file_system(file: Path, mounts: str | None = None) -> str | None:
    """The kind of network file system that a file lies on; None for local ones, and where that cannot be found out.

    Args:
        file: The file, which need not exist.
        mounts: What is mounted where, in the format of Linux' ``/proc/self/mounts``, which is the default.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mounts").read_text(errors="replace")
        except OSError:
            return None
    place = Path(os.path.realpath(file))
    found: dict[Path, str] = {}
    for line in mounts.splitlines():
        if len(words := line.split()) >= 3:
            found[Path(words[1].replace("\\040", " "))] = words[2]
    kind = next((found[folder] for folder in (place, *place.parents) if folder in found), "")
    return kind if kind.startswith(_NETWORK) else None


def _explanation(error: DBAPIError) -> str | None:
    """One line about an error that a user can mend; None for others."""
    message = " ".join(str(error.orig).split())[:300]
    state = getattr(error.orig, "sqlstate", None)
    known = {
        "disk is full": "the disk is full and nothing of this was written; make room, then do it again",
        "disk I/O error": "the disk cannot be read or written; nothing of this was written: check it and its space",
        "database is locked": f"others have been writing for {_PATIENCE} seconds; do it again",
        "readonly database": "it cannot be written to; check who may write the file and its folder",
        "unable to open": "cannot be opened; check its name and folder, and who may read and write there",
        "not a database": "is no SQLite database; give another file",
        "malformed": "is damaged; go back to a copy of it",
    }
    if state is None and not isinstance(error, OperationalError | DBAPIError):
        return None
    if state in ("53100", "53200"):
        return f"the server has no room ({message}) and nothing of this was written; make room, then do it again"
    for part, line in known.items():
        if part in message and state is None:
            return line
    if isinstance(error, OperationalError):
        return f"{message}; nothing of this was written"
    return None
