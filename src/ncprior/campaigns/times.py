"""The clock, and lengths of time as people write them."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from ncprior.errors import UserError

Clock: TypeAlias = Callable[[], datetime]
"""Gives the present time, with a time zone."""

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LONGEST = timedelta(days=3650)


def utc_now() -> datetime:
    """The present time in UTC."""
    return datetime.now(UTC)


def duration(text: str) -> timedelta:
    """A length of time from a number and a unit: s, m, h, d or w.

    >>> duration("3d"), duration("1.5h")
    (datetime.timedelta(days=3), datetime.timedelta(seconds=5400))
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)([smhdw])", text.strip())
    if not found:
        raise UserError(f"{text!r:.40} is no length of time; give a number and s, m, h, d or w, such as 90m or 3d")
    length = timedelta(**{_UNITS[found[2]]: float(found[1])})
    if not timedelta(0) < length <= _LONGEST:
        raise UserError(f"{text!r:.40} is too short or too long; give a time of up to ten years, such as 3d")
    return length


def written(length: timedelta) -> str:
    """A length of time in words, to two units.

    >>> written(timedelta(hours=26)), written(timedelta(seconds=40))
    ('1 day 2 hours', '40 seconds')
    """
    left, parts = int(length.total_seconds()), []
    for name, size in (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {name}{'s' if count > 1 else ''}")
    return " ".join(parts[:2]) or "0 seconds"
