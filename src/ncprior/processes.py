"""Check for forked processes, in which JAX hangs."""

import os

from jax._src import xla_bridge

from ncprior.errors import UserError

_forked = False


def _note_fork() -> None:
    """In a child: whether its parent had JAX's threads, which the child has not and would wait for."""
    global _forked
    _forked = _forked or bool(getattr(xla_bridge, "_backends", None))


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork either
    os.register_at_fork(after_in_child=_note_fork)


def check_process() -> None:
    """Raise if JAX would hang in this process, which is a fork of one that had used JAX."""
    if _forked:
        raise UserError(
            "this process was forked from one in which JAX had begun, and would wait for ever: use threads, or start "
            "processes by 'spawn' or 'forkserver', as in multiprocessing.get_context('spawn')"
        )
