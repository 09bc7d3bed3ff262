"""Independent tasks, and who runs them.

A task is a function at the top of a module and a value for it. It has no effect but its result and files that it writes
whole, so that it may run anywhere, and twice. An engine gives the results as they come.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

from ncprior.errors import UserError

Task = TypeVar("Task")
Result = TypeVar("Result")


class Engine(Protocol):
    """Runs independent tasks."""

    def run(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """The number of every task and its result, in the order in which they are done.

        Raises:
            UserError: As soon as a task raises one; tasks that have not begun are dropped.
        """


class InProcess(NamedTuple):
    """Runs one task after the other in this process."""

    def run(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """The number of every task and its result, in their order.

        >>> list(InProcess().run(abs, [-3, 4]))
        [(0, 3), (1, 4)]
        """
        for number, task in enumerate(tasks):
            yield number, function(task)


ENGINES = ("local", "ray")
"""Names of the engines."""


def engine_of(name: str, address: str | None = None) -> Engine | None:
    """The engine of this name; None for ``local``, where nothing is parted into tasks unless it must be.

    Args:
        name: One of `ENGINES`.
        address: Of a Ray cluster, such as ``auto`` or ``ray://head:10001``; None starts one on this machine.

    Raises:
        UserError: If there is none, or Ray is not installed.
    """
    if name not in ENGINES:
        raise UserError(f"--engine {name}: choose from {', '.join(ENGINES)}")
    if name == "local":
        if address is not None:
            raise UserError(f"--address {address} is for --engine ray; add that, or leave the address out")
        return None
    from ncprior.engines.ray_core import RayCore

    return RayCore.at(address)
