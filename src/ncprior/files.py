"""Files that are written whole or not at all, by one process at a time.

A file is written as a draft beside its place and then moved there. Meanwhile its writer holds a lock: a small file with
the number of its process, which the operating system frees when the process ends, however it ends. So whoever holds
the lock knows that all other drafts of the file were left by processes that are gone.
"""

import errno
import hashlib
import os
import platform
import re
import secrets
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ncprior.errors import UserError

if sys.platform == "win32":
    import msvcrt

    def take_lock(descriptor: int) -> None:
        """Lock an open file for this process, or raise an OSError."""
        os.lseek(descriptor, 1 << 30, os.SEEK_SET)  # far behind the text, which others may then read
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def take_lock(descriptor: int) -> None:
        """Lock an open file for this process, or raise an OSError."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


_TAKEN = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP)
_LONG = 100
"""Drafts of files with longer names, in bytes, get a shorter name: file systems allow 255, some 143."""

_holders: dict[Path, tuple[int, object]] = {}
"""The threads of this process that hold a lock, by its path; `dict.setdefault` lets only one of them in."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_holders.clear)


@contextmanager
def written(target: Path) -> Iterator[Path]:
    """Gives the path of a draft, which becomes the file when all is done.

    After an error or an interruption, or if nobody made the draft, an old file stays as it was and no draft is left. A
    link is replaced, not what it points to.

    Raises:
        UserError: If the file cannot be written, or another process or thread is writing it.
    """
    with alone(target):
        draft = target.parent / f"{_beside(target)}{secrets.token_hex(8)}.ncprior-part"
        try:
            yield draft
            if draft.exists() or not target.parent.is_dir():  # without its folder, a draft is lost
                with explained(target):
                    with draft.open("rb+") as file:
                        os.fsync(file.fileno())
                    draft.replace(target)
        finally:
            with suppress(OSError):  # where even this fails, the folder itself is gone or read-only
                draft.unlink(missing_ok=True)


@contextmanager
def written_once(target: Path) -> Iterator[Path]:
    """Gives the path of a draft, which becomes the file when all is done, unless the file is there by then.

    For tasks that may run twice, even at the same time on two machines: both write the same, and the first one stays.
    There is no lock. A task that is killed may leave its draft.
    """
    draft = target.parent / f"{_beside(target)}{secrets.token_hex(8)}.ncprior-part"
    try:
        yield draft
        if draft.exists() and not target.exists():
            with explained(target):
                with draft.open("rb+") as file:
                    os.fsync(file.fileno())
                try:
                    os.link(draft, target)  # which fails if another one was faster
                except FileExistsError:
                    pass
                except OSError:  # the file system has no links
                    draft.replace(target)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def digest_of(path: Path) -> str:
    """SHA-256 of the content of a file.

    Raises:
        UserError: If it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check its name and folder") from error


@contextmanager
def alone(target: Path, claim: str | None = None) -> Iterator[None]:
    """Keeps other processes and threads from writing a file; the same thread may do so more than once.

    Drafts of processes that are gone are removed. Where the file system has no locks, there are only drafts.

    Args:
        target: The file.
        claim: What others are told while it is held, followed by who holds it.

    Raises:
        UserError: If another process or thread holds it.
    """
    claim = claim or f"{target}: is being written"
    path = Path(os.path.realpath(target.parent)) / f"{_beside(target)}ncprior-lock"
    owner = (threading.get_ident(), object())
    holder = _holders.setdefault(path, owner)
    if holder[0] != owner[0]:
        raise UserError(f"{claim} by another thread of this process; {_ADVICE}")
    if holder is not owner:
        yield
        return
    try:
        with explained(target):
            descriptor = _taken(path, claim)
        if descriptor is None:
            yield
            return
        try:
            _remove_drafts(target)
            yield
        finally:
            _free(path, descriptor)
    finally:
        _holders.pop(path, None)


_ADVICE = "wait until it is done, or choose another place"


@contextmanager
def explained(target: Path, *errors: type[Exception]) -> Iterator[None]:
    """Turn errors of writing a file into a `UserError` with advice: those of the system, and ``errors``."""
    expected: tuple[type[Exception], ...] = (OSError, *errors)
    try:
        yield
    except expected as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:200]
        advice = "check the folder and its free space; what was there before is kept"
        raise UserError(f"{target}: cannot be written ({reason}); {advice}") from error


def is_ours(path: Path) -> bool:
    """Whether this is one of our locks or drafts."""
    return path.name.startswith(".") and path.name.endswith((".ncprior-lock", ".ncprior-part"))


def _beside(target: Path) -> str:
    """How the names of the lock and the drafts of a file begin."""
    name = target.name
    if len(encoded := os.fsencode(name)) > _LONG:
        name = f"{name[:16]}-{hashlib.blake2b(encoded, digest_size=16).hexdigest()}"
    return f".{name}."


def _remove_drafts(target: Path) -> None:
    """Removes the drafts of processes that are gone; only who holds the lock may."""
    draft_name = re.compile(rf"{re.escape(_beside(target))}[0-9a-f]{{16}}\.ncprior-part")
    with suppress(OSError), os.scandir(target.parent) as inside:
        for entry in inside:
            if draft_name.fullmatch(entry.name):
                with suppress(OSError):
                    (target.parent / entry.name).unlink()


def _taken(path: Path, claim: str) -> int | None:
    """An open file that is locked; None where the file system has no locks."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        try:
            take_lock(descriptor)
            # The holder before us may have removed the file after we opened it: then others would lock another one.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    with suppress(OSError):  # a full disk, which the file itself will tell
                        os.truncate(descriptor, 0)
                        os.lseek(descriptor, 0, os.SEEK_SET)
                        os.write(descriptor, f"{os.getpid()} {platform.node()}".encode())
                    return descriptor
            os.close(descriptor)
        except OSError as error:
            holder = _holder(descriptor) if error.errno in _TAKEN else ""
            os.close(descriptor)
            if holder:
                raise UserError(f"{claim} by {holder}; {_ADVICE}") from error
            if error.errno not in _NO_LOCKS:
                raise
            with suppress(OSError):
                path.unlink()
            return None


def _free(path: Path, descriptor: int) -> None:
    """Removes the lock, while it is held where an open file can be removed."""
    with suppress(OSError):
        path.unlink()
    os.close(descriptor)
    if sys.platform == "win32":
        with suppress(OSError):
            path.unlink()


def _holder(descriptor: int) -> str:
    """Who holds the lock, by the contents of its file."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    number, _, machine = os.read(descriptor, 1_000).decode(errors="replace").partition(" ")
    if not number.isdigit():
        return "another process"  # which has just begun
    return f"process {number}" + ("" if machine == platform.node() else f" on {machine}")
