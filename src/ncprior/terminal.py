"""Printing of lines without control characters, whatever the files contain that they describe."""

import sys
import unicodedata
from contextlib import suppress

_JOINERS = "\u200c\u200d"
"""Invisible, but part of how Persian, Hindi and emoji are spelled."""


def printable(text: str) -> str:
    r"""The text as one line in which everything that a terminal would obey or hide is an escape, such as ``\x1b``.

    These are control characters, line ends, what changes the direction of text, and halves of letters. Letters, marks
    and spaces of all languages stay.
    """
    if text.isprintable():
        return text
    return "".join(letter if _is_plain(letter) else letter.encode("unicode_escape").decode() for letter in text)


def _is_plain(letter: str) -> bool:
    return letter.isprintable() or letter in _JOINERS or unicodedata.category(letter) == "Zs"


def say(line: str) -> None:
    """Prints one line to stdout."""
    print(printable(line))  # noqa: T201


def remark(line: str) -> None:
    """Prints one line to stderr: progress and mistakes. Where nobody can read it, the work goes on all the same."""
    with suppress(OSError):
        print(printable(line), file=sys.stderr, flush=True)  # noqa: T201
