"""Dates as people write them: ``27.08.2021``, ``05/06/2021 10:30``, ``27 Aug 2021``."""

import calendar
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ncprior.errors import UserError

Order = Literal["", "dmy", "mdy"]
"""Whether the day or the month of a date comes first; nothing if it is not known."""

_TIME = r"(?:[T ,]+(?P<time>\d{1,2}:\d{2}(?::\d{2})?)(?P<half> ?[AaPp][Mm])?)?"
_DAY_MONTH = re.compile(rf"(?P<first>\d{{1,2}})(?P<sign>[./-])(?P<second>\d{{1,2}})(?P=sign)(?P<year>\d{{4}}){_TIME}")
_SHORT_YEAR = re.compile(rf"(?P<first>\d{{1,2}})(?P<sign>[./])(?P<second>\d{{1,2}})(?P=sign)(?P<year>\d{{2}}){_TIME}")
_YEAR_FIRST = re.compile(rf"(?P<year>\d{{4}})(?P<sign>[./-])(?P<second>\d{{1,2}})(?P=sign)(?P<third>\d{{1,2}}){_TIME}")
_NAMED_MONTH = re.compile(
    rf"(?P<day>\d{{1,2}})(?P<sign>[ -])(?P<month>[A-Za-z]{{3,9}})(?P=sign)(?P<year>\d{{4}}|\d{{2}}){_TIME}"
)
_MONTH_FIRST = re.compile(rf"(?P<month>[A-Za-z]{{3,9}}) (?P<day>\d{{1,2}})(?P<sign>,? )(?P<year>\d{{4}}){_TIME}")
_PATTERNS = (_DAY_MONTH, _SHORT_YEAR, _YEAR_FIRST, _NAMED_MONTH, _MONTH_FIRST)


class Dates(NamedTuple):
    """How dates are written: formats as of `time.strptime`, and whether the day or the month comes first."""

    formats: tuple[str, ...]
    order: Order = ""


def infer(name: str, values: Sequence[str], order: Order) -> Dates | None:
    """How the dates of a column are written, if not as ISO has it; None if its values are none.

    Args:
        name: The column, for messages.
        values: Its different values.
        order: What comes first in the dates of the rest of the file, for values that leave it open.

    Raises:
        UserError: If they can be read in two ways.
    """
    for pattern, year in ((_DAY_MONTH, "%Y"), (_SHORT_YEAR, "%y")):
        if (found := _matches(pattern, values)) is None:
            continue
        days_first = [one for one in found if int(one["first"]) > 12]
        months_first = [one for one in found if int(one["second"]) > 12]
        if days_first and months_first:
            return None
        sign = found[0]["sign"]
        if not days_first and not months_first and sign != "." and not order:
            one, first, second = found[0][0], int(found[0]["first"]), int(found[0]["second"])
            both = f"{first} {_MONTHS[second - 1]} or {second} {_MONTHS[first - 1]}"
            raise UserError(
                f"column {name!r} has dates such as {one!r:.40}, which may be {both}; say --dates dmy if the day comes "
                "first, or --dates mdy if the month does"
            )
        comes: Order = "dmy" if days_first else "mdy" if months_first else order if sign != "." else "dmy"
        parts = ("%d", "%m") if comes == "dmy" else ("%m", "%d")
        return Dates(_with_times(f"{parts[0]}{sign}{parts[1]}{sign}{year}", found), comes if sign != "." else "")
    if (found := _matches(_YEAR_FIRST, values)) is not None:
        sign = found[0]["sign"]
        months = all(int(one["second"]) <= 12 for one in found)
        return Dates(_with_times(f"%Y{sign}%m{sign}%d", found)) if months else None
    for pattern, form in ((_NAMED_MONTH, "%d{sign}{month}{sign}{year}"), (_MONTH_FIRST, "{month} %d{sign}{year}")):
        if (found := _matches(pattern, values)) is None:
            continue
        digits = {len(one["year"]) for one in found}
        if len(digits) > 1 or not {one["month"].casefold() for one in found} <= _MONTH_NAMES:
            return None
        month = "%B" if any(len(one["month"]) > 3 for one in found) else "%b"
        written = form.format(sign=found[0]["sign"], month=month, year="%Y" if digits == {4} else "%y")
        return Dates(_with_times(written, found))
    return None


_MONTHS = calendar.month_name[1:]
_MONTH_NAMES = {name for month in _MONTHS for name in (month.casefold(), month[:3].casefold())}


def _matches(pattern: re.Pattern[str], values: Sequence[str]) -> list[re.Match[str]] | None:
    """The matches of all values, which must have the same signs; None if one does not match."""
    found: list[re.Match[str]] = []
    for value in values:
        if (one := pattern.fullmatch(value)) is None or one["sign"] != (found or [one])[0]["sign"]:
            return None
        if any(int(one.groupdict().get(part) or 1) > 31 for part in ("first", "second", "third", "day")):
            return None
        found.append(one)
    return found


def _with_times(date: str, found: Sequence[re.Match[str]]) -> tuple[str, ...]:
    """A format for each way in which the time of day is written."""
    formats = {f"{date}{_clock(one)}" for one in found}
    return tuple(sorted(formats, key=len, reverse=True))


def _clock(found: re.Match[str]) -> str:
    """The format of the time of day, with what is between it and the date."""
    if not found["time"]:
        return ""
    between = re.search(r"[T ,]+(?=\d{1,2}:)", found[0])
    half = re.sub("[AaPp][Mm]", "%p", found["half"] or "")
    seconds = ":%S" if found["time"].count(":") == 2 else ""
    return f"{between[0] if between else ''}{'%I' if half else '%H'}:%M{seconds}{half}"


def parsed(text: pa.ChunkedArray, formats: Sequence[str]) -> pa.ChunkedArray:
    """Points in time, each value by the first format that it has.

    Raises:
        pa.ArrowInvalid: If a value has none of them, or there is no such day.
    """
    combined: pa.ChunkedArray | None = None
    for form in formats:
        found = pc.strptime(text, format=form, unit="us", error_is_null=True)
        # 31 February is read as a day of March.
        day = pc.struct_field(pc.extract_regex(text, _pattern(form)), "day").cast(pa.int64())
        found = pc.if_else(pc.equal(pc.day(found), day), found, pa.scalar(None, found.type))
        combined = found if combined is None else pc.coalesce(combined, found)
    if combined is None or combined.null_count > text.null_count:
        raise pa.ArrowInvalid(f"not a date {in_words(formats[0])}")
    return combined


def _pattern(form: str) -> str:
    """A regular expression for a format of dates, in which the day is called so."""
    parts = {"%d": r"(?P<day>\d{1,2})", "%m": r"\d{1,2}", "%Y": r"\d{4}", "%y": r"\d{2}"}
    date = re.sub(r"[T ,]*%[HI].*", "", form)
    return "^" + re.sub("%([dmYybB])", lambda found: parts.get(found[0], "[A-Za-z]+"), date.replace(".", "[.]"))


def in_words(form: str) -> str:
    """A format of dates as people say it."""
    names = {"%d": "day", "%m": "month", "%Y": "year", "%y": "year", "%b": "month", "%B": "month"}
    named = re.sub("%[dmYybB]", lambda found: names[found[0]], form)
    return re.sub(r"[T ,]*%[HI].*", " and time", named)


def looks_like(cell: str) -> bool:
    """Whether a cell is a date."""
    if re.match(r"\d{4}-\d{2}-\d{2}", cell):
        return True
    return any(pattern.fullmatch(cell) for pattern in _PATTERNS)


def names_month(cell: str) -> bool:
    """Whether a cell has the name of a month and a number, such as Aug-21, or in any language, such as 27. Mai 2021."""
    words = re.findall("[a-z]+", cell.casefold())
    english = any(word in _MONTH_NAMES for word in words) and re.search(r"\d", cell)
    return bool(english or re.fullmatch(r"\d{1,2}\W+[^\W\d_]{3,10}\W+\d{4}", cell.strip()))
