"""Ctrl-C: one line and exit code 130, wherever it strikes."""

import _thread
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

KEPT = "what was finished is kept"
RESUME = "the same command with --resume goes on from the last finished round"


class Stopped(BaseException):
    """Ctrl-C, with what to tell of it. Unlike a KeyboardInterrupt, it passes through libraries that handle those."""


@contextmanager
def stoppable(advice: str = "nothing was written") -> Iterator[None]:
    """Makes Ctrl-C end the command, and says what became of its work."""
    try:
        with noted_interrupts():
            yield
    except KeyboardInterrupt as interrupt:
        raise Stopped(advice) from interrupt


@contextmanager
def ends_at_once(line: str = "ncprior: stopped; nothing was written") -> Iterator[None]:
    """Makes Ctrl-C end the process there and then: for imports, after which nothing is to be put in order."""

    def end(*_: object) -> None:
        with suppress(OSError):
            os.write(2, f"{line}\n".encode())
        os._exit(130)

    if (before := _handler()) is None:
        yield
        return
    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _handler() -> Callable[[int, FrameType | None], object] | None:
    """What happens on Ctrl-C, if it can be changed: not where it is ignored, as by jobs in the background.

    Only the main thread can handle signals.
    """
    handler = signal.getsignal(signal.SIGINT)
    return handler if callable(handler) and threading.current_thread() is threading.main_thread() else None


@contextmanager
def noted_interrupts() -> Iterator[None]:
    """Makes sure that Ctrl-C ends in a KeyboardInterrupt, also where native code makes it another error or drops it."""
    if (before := _handler()) is None:
        yield
        return
    hook, noted = sys.unraisablehook, False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal noted
        noted = True
        before(number, frame)

    def again(dropped: "sys.UnraisableHookArgs") -> None:
        # Python drops what is raised in some callbacks, such as JAX's of the garbage collector, where Ctrl-C often is.
        if dropped.exc_type is KeyboardInterrupt:
            threading.Timer(0.1, _thread.interrupt_main).start()
        else:
            hook(dropped)

    signal.signal(signal.SIGINT, note)
    sys.unraisablehook = again
    try:
        yield
    except Exception as error:
        if noted:
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, before)
        sys.unraisablehook = hook
