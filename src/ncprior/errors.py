"""Errors that a user can cause, and can mend."""


class UserError(ValueError):
    """Something outside the program is wrong: a file, a column, an option.

    The message is one line that says what is wrong, where, and what to do. The command line prints it
    without a traceback and exits with a non-zero code.
    """
