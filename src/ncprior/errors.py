"""Errors that a user can cause and fix."""


class UserError(ValueError):
    """Something outside the program is wrong: a file, a column, an option.

    The message is one line that says what is wrong, where, and what to do. The command line prints it
    without a traceback and exits with a non-zero code.
    """


LIMITS = {
    "members": (1_000, "all networks are trained and kept side by side"),
    "seeds": (1_000, "every seed is a run of its own"),
    "splits": (1_000, "every split is a run of its own"),
    "weights": (250_000_000, "those between the hidden layers alone take 1 GB"),
    "bins": (100_000, "every bin of a column has weights of its own"),
    **dict.fromkeys(
        ("epochs", "initial", "select", "select_every", "evaluate_every"),
        (10_000_000, "steps are counted in 32 bits"),
    ),
}
"""The largest whole numbers that make sense, far above what anybody needs, and what is behind them."""


def check_limits(**values: int | None) -> None:
    """Raise if a number is so large that a run would exhaust memory, overflow or never end.

    >>> check_limits(members=10)
    """
    for name, value in values.items():
        most, why = LIMITS[name]
        if value is not None and value > most:
            raise UserError(f"{name} must be at most {most:,}, got {value:,}: {why}")
