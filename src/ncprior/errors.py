"""Errors that a user can cause and fix."""

from typing import NamedTuple


class UserError(ValueError):
    """Something outside the program is wrong: a file, a column, an option.

    The message is one line that says what is wrong, where, and what to do. The command line prints it
    without a traceback and exits with a non-zero code.
    """


class Limits(NamedTuple):
    """The smallest and largest whole numbers that make sense, and the reason for the largest."""

    least: int
    most: int
    why: str


LIMITS = {
    "members": Limits(1, 1_000, "all networks are trained and kept side by side"),
    "seeds": Limits(1, 1_000, "every seed is a run of its own"),
    "splits": Limits(1, 1_000, "every split is a run of its own"),
    "weights": Limits(0, 250_000_000, "those between the hidden layers alone take 1 GB"),
    "bins": Limits(0, 100_000, "every bin of a column has weights of its own"),
    **dict.fromkeys(
        ("epochs", "initial", "select", "select_every", "evaluate_every"),
        Limits(1, 10_000_000, "steps are counted in 32 bits"),
    ),
}
"""Limits of options by name. The largest numbers are far above what anybody needs."""


def check_limits(**values: int | None) -> None:
    """Raise if a number is out of its limits, so that a run would have no meaning, exhaust memory or never end.

    Args:
        values: Numbers by the names of `LIMITS`; None is fine.

    Raises:
        UserError: Which number is too small or too large.

    >>> check_limits(members=10, epochs=None)
    """
    for name, value in values.items():
        least, most, why = LIMITS[name]
        if value is not None and value < least:
            raise UserError(f"{name} must be at least {least}, got {value}")
        if value is not None and value > most:
            raise UserError(f"{name} must be at most {most:,}, got {value:,}: {why}")
