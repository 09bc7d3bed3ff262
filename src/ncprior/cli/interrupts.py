"""Ctrl-C ends a command with one line and exit code 130."""

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
    """Ctrl-C, with advice for the user. Libraries that catch KeyboardInterrupt do not catch it."""


@contextmanager
def stoppable(advice: str = "nothing was written") -> Iterator[None]:
    """Make Ctrl-C end the command with `Stopped` and this advice about what has been kept."""
    try:
        with noted_interrupts():
            yield
    except KeyboardInterrupt as interrupt:
        raise Stopped(advice) from interrupt


@contextmanager
def ends_at_once(line: str = "ncprior: stopped; nothing was written") -> Iterator[None]:
    """Make Ctrl-C end the process immediately, without cleaning up. It is used around imports."""

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
    """The handler of Ctrl-C, or None if it cannot be replaced.

    It cannot where Ctrl-C is ignored, as in background jobs, nor outside of the main thread.
    """
    handler = signal.getsignal(signal.SIGINT)
    return handler if callable(handler) and threading.current_thread() is threading.main_thread() else None


@contextmanager
def noted_interrupts() -> Iterator[None]:
    """Make sure that Ctrl-C raises KeyboardInterrupt, even if native code turns it into another error or drops it."""
    if (before := _handler()) is None:
        yield
        return
    hook, noted = sys.unraisablehook, False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal noted
        noted = True
        before(number, frame)

    def again(dropped: "sys.UnraisableHookArgs") -> None:
        # Python drops exceptions in some callbacks, such as those of JAX in the garbage collector: raise it again.
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
