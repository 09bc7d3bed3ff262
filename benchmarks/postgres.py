"""A PostgreSQL server of one's own, in a temporary folder, for tests and load: no port, only a socket."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PLACES = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


def program(name: str) -> str | None:
    """Where a program of PostgreSQL is."""
    return shutil.which(name) or next((str(place / name) for place in _PLACES if (place / name).exists()), None)


def available() -> bool:
    """Whether a server can be started."""
    return program("initdb") is not None and program("pg_ctl") is not None


@contextmanager
def server() -> Iterator[str]:
    """Gives the URL of a new server's database, without its name: ``postgresql://...host=...`` with ``{}`` for it."""
    folder = Path(tempfile.mkdtemp(prefix="ncprior-pg-"))
    as_user: list[str] = []
    if os.geteuid() == 0:  # which PostgreSQL refuses to run as
        user = next(name for name in ("postgres", "nobody") if _is_user(name))
        shutil.chown(folder, user)
        as_user = ["setpriv", f"--reuid={user}", "--clear-groups", "--"]
    data, options = folder / "data", f"-k {folder} -c listen_addresses='' -c max_connections=300"
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "cwd": folder}

    def run(name: str, *arguments: str) -> None:
        subprocess.run([*as_user, str(program(name)), *arguments], **quiet)  # type: ignore[call-overload]

    try:
        run("initdb", "-D", str(data), "-U", "ncprior", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
        run("pg_ctl", "-D", str(data), "-o", options, "-l", str(folder / "log"), "-w", "start")
        try:
            yield f"postgresql://ncprior@/{{}}?host={folder}"
        finally:
            run("pg_ctl", "-D", str(data), "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
