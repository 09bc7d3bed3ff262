"""Files of compiled programs, kept between processes in a folder that is the user's alone.

Whoever can write a program can run code, so a folder of someone else, or one that others may write to, is not used.
"""

import hashlib
import os
import sys
import warnings
from contextlib import suppress
from pathlib import Path

from ncprior.errors import UserError
from ncprior.files import written

_LIMIT = 512 << 20
"""Bytes that programs take at most; those that were not used for longest are removed. A first fit keeps about 2 MB."""

_SUFFIX = ".program"


def cache_folder() -> Path | None:
    """The folder of all that is kept between processes, or None if nothing is.

    ``NCPRIOR_CACHE`` names it; empty or ``off`` keeps nothing. By default it is in the user's cache folder.
    """
    given = os.environ.get("NCPRIOR_CACHE")
    if given is not None:
        return None if given.strip().lower() in ("", "off") else Path(given).expanduser()
    if sys.platform == "win32":
        home = os.environ.get("LOCALAPPDATA")
    else:
        home = os.environ.get("XDG_CACHE_HOME") or ("~/Library/Caches" if sys.platform == "darwin" else "~/.cache")
    try:
        return Path(home).expanduser() / "ncprior" if home else None
    except RuntimeError:  # the user has no home
        return None


def program_folder() -> Path | None:
    """The folder of compiled programs, made if it is not there; None if there can be none that is ours alone."""
    cache = cache_folder()
    if cache is None:
        return None
    folder = cache / "compiled"
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.mkdir(exist_ok=True, mode=0o700)
        reason = _why_unsafe(folder)
    except OSError as error:
        reason = error.strerror or "it cannot be made"
    if reason and "NCPRIOR_CACHE" in os.environ:
        warnings.warn(f"compiled programs are not kept in {folder}: {reason}; set NCPRIOR_CACHE", stacklevel=2)
    return None if reason else folder


def read_program(folder: Path, key: str) -> bytes | None:
    """A program by its key, or None if there is none; a damaged file is removed."""
    path = folder / f"{key}{_SUFFIX}"
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, program = content[:32], content[32:]
    if hashlib.sha256(program).digest() != digest:
        remove_program(folder, key)
        return None
    with suppress(OSError):
        os.utime(path)  # it was used now
    return program


def write_program(folder: Path, key: str, program: bytes) -> None:
    """Keeps a program. If that cannot be done, or another process is doing it, only time is lost."""
    with suppress(OSError, UserError):
        with written(folder / f"{key}{_SUFFIX}") as draft:
            draft.write_bytes(hashlib.sha256(program).digest() + program)
        _remove_oldest(folder, _LIMIT)


def remove_program(folder: Path, key: str) -> None:
    """Removes a program that cannot be used."""
    with suppress(OSError):
        (folder / f"{key}{_SUFFIX}").unlink()


def _why_unsafe(folder: Path) -> str:
    """Why programs must not be loaded from a folder; empty if they may."""
    if not hasattr(os, "geteuid"):
        return ""
    about = folder.lstat()
    if about.st_uid != os.geteuid():
        return "it belongs to another user"
    return "others may write to it" if about.st_mode & 0o022 else ""


def _remove_oldest(folder: Path, limit: int) -> None:
    """Removes the programs that were not used for longest, until the others take at most ``limit`` bytes."""
    found = []
    for path in folder.glob(f"*{_SUFFIX}"):
        with suppress(OSError):  # another process may have removed it
            about = path.stat()
            found.append((about.st_mtime, about.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found, key=lambda one: one[0]):
        if total <= limit:
            return
        with suppress(OSError):
            path.unlink()
        total -= size
