"""Numbers as people write them: ``379.4 K``, ``45.1%``, ``$1,234.50``, ``1.234,5``, ``(12)``, ``<0.05``."""

import re
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ncprior.errors import UserError

Decimal = Literal["", ".", ","]
"""The decimal sign; nothing if it is not known."""

_UNITS = (
    "K °C °F C F kg g mg µg μg ug ng t lb lbs oz m cm mm km nm µm μm um in ft mi yd s sec ms µs min h hr hrs d days "
    "Hz kHz MHz GHz Pa kPa MPa hPa GPa bar mbar atm psi V mV kV A mA W kW MW GW kWh MWh J kJ MJ N kN L l mL ml dl mol "
    "mmol mM M ppm ppb rpm dB mph km/h kph m/s sqft ft² m2 m3 m² m³ cm2 cm3 cm² cm³ mm² mg/L mg/l g/L kg/m3 kg/m³ "
    "µg/L % ‰ ° deg px bp U IU kcal cal usd eur"
)
UNITS = frozenset(_UNITS.split())
"""Units that need no blank before them."""

CURRENCIES = "$€£¥₹₽₩"
_CODES = "USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|SEK|NOK|DKK|PLN|CZK"
BLANKS = " \u00a0\u202f\u2009"  # also those that do not break, and thin ones
_PREFIX = rf"(?P<bound>[<>≤≥]=?)?[{BLANKS}]*(?P<currency>[{CURRENCIES}]|(?:{_CODES})\b)?[{BLANKS}]*"
_GROUPS = rf"\d{{1,3}}(?P<group>[.,'’{BLANKS}])\d{{3}}(?:(?P=group)\d{{3}})*(?:(?!(?P=group))[.,]\d+)?"
_CORE = rf"(?P<sign>[+\-−]?)(?P<currency2>[{CURRENCIES}]?)(?P<core>{_GROUPS}|\d+(?:\.\d*|,\d+)?|[.,]\d+)"
_CORE += r"(?P<exponent>[eE][+\-]?\d{1,3})?"
_SUFFIX = rf"(?P<gap>[{BLANKS}]*)(?P<unit>[%‰°a-zA-Zµμ$€£¥Ω²³][^\s\d,;]{{0,11}}[23]?)?"
_CELL = re.compile(rf"{_PREFIX}{_CORE}{_SUFFIX}")


class Numbers(NamedTuple):
    """How numbers are written: their signs, the unit that all have, and whether some are bounds such as ``<0.05``."""

    decimal: Decimal = ""
    thousands: str = ""
    unit: str = ""
    bounds: bool = False


def infer(name: str, values: Sequence[str], decimal: Decimal, *, lists: bool) -> Numbers | None:
    """How the numbers of a column are written; None if its values are none.

    Args:
        name: The column, for messages.
        values: Its different values.
        decimal: The decimal sign of the rest of the file, for values that leave it open.
        lists: Whether ``1,2`` may be a list.

    Raises:
        UserError: If they can be read in two ways.
    """
    units: set[str] = set()
    shown: dict[str, str] = {}
    thousands, bounds, whole = "", False, 0
    for value in values:
        found = _CELL.fullmatch(_bare(value))
        unit = _unit_of(found) if found else None
        if not found or unit is None:
            return None
        core = found["core"].strip()
        units.add(unit)
        bounds |= bool(found["bound"])
        if re.match(r"0\d", core) and not unit:  # 007 is a code
            return None
        if sign := evidence(core):
            shown.setdefault(sign, value)
        whole += core.isdigit()
        odd = set(core) - set("0123456789.,")
        if odd and thousands not in ("", *odd):
            return None
        thousands = next(iter(odd), thousands)
    units -= {""} if "%" not in units else set()
    if len(units) > 1:
        return None
    unit = next(iter(units), "")
    sure = sorted(set(shown) - {"?"})
    if lists and sure == [","] and not unit and whole * 2 >= len(values):
        return None  # such as 1 and 1,2
    if len(sure) > 1:
        both = f"{shown[',']!r:.40} and {shown['.']!r:.40}"
        raise UserError(f"column {name!r} has decimal commas and points, as in {both}; write all numbers in one way")
    found_sign: Decimal = sure[0] if sure else decimal  # type: ignore[assignment]
    if "?" in shown and not found_sign:
        raise UserError(two_readings(name, shown["?"]))
    used = {sign for value in values for sign in ",." if sign in (digits(value) or "")}
    found_sign = found_sign or "."
    other = "," if found_sign == "." else "."
    if other in used:
        if thousands:
            return None
        thousands = other
    shown_sign = found_sign if found_sign in used or decimal == "," else ""
    return Numbers(shown_sign, thousands, unit, bounds)


def parsed(text: pa.ChunkedArray, written: Numbers) -> pa.ChunkedArray:
    """The numbers; if some are bounds, as text such as ``<0.05``, with a point and without units.

    Raises:
        pa.ArrowInvalid: If a value is written in another way.
    """
    replaced: Callable[[pa.ChunkedArray, str, str], pa.ChunkedArray] = pc.replace_substring_regex
    text = replaced(text, r"^\((.*)\)$", r"-\1")
    text = pc.replace_substring(text, "−", "-")
    if written.unit:
        unit = re.escape(written.unit)
        text = replaced(text, rf"[{BLANKS}]*{unit}$", "")
        text = replaced(text, rf"^([<>≤≥]=?)?[{BLANKS}]*([+\-]?){unit}[{BLANKS}]*", r"\1\2")
    if written.bounds:
        text = replaced(replaced(text, rf"^[<≤]=?[{BLANKS}]*", "<"), rf"^[>≥]=?[{BLANKS}]*", ">")
    if written.thousands:
        sign = re.escape(written.thousands)
        text = replaced(text, rf"{sign}(\d{{3}})", r"\1")
    if written.decimal == ",":
        text = pc.replace_substring(text, ",", ".")
    numbers = plain_number(text) if written.bounds else text.cast(pa.float64())
    return text if written.bounds else numbers


def plain_number(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers as `read` writes them if some are bounds, without the sign of a bound."""
    return pc.replace_substring_regex(text, r"^[<>]", "").cast(pa.float64())


def is_bound(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which of such numbers are bounds."""
    return pc.match_substring_regex(text, r"^[<>≤≥]").fill_null(False)


def evidence(core: str) -> Literal["", ".", ",", "?"]:
    """The decimal sign that the digits of a number show; ``?`` for 1,234, which may have either.

    >>> [evidence(core) for core in ("0,5", "1,234", "1,234,567", "1.234,5", "12", "1.5")]
    [',', '?', '.', ',', '', '.']
    """
    commas, points = core.count(","), core.count(".")
    if commas and points:
        return "," if core.rfind(",") > core.rfind(".") else "."
    if not commas and not points:
        return ""
    sign, other = (",", ".") if commas else (".", ",")
    if commas + points > 1:
        return other  # type: ignore[return-value]
    left, _, right = core.partition(sign)
    if len(right) == 3 and 1 <= len(left) <= 3 and not left.startswith("0"):
        return "?" if commas else ""
    return sign  # type: ignore[return-value]


def two_readings(name: str, number: str) -> str:
    """What to say about a number such as 1,234 or 1.234, if nothing tells what its sign means."""
    core = digits(number) or ""
    sign, other, word = (",", ".", "comma") if "," in core else (".", ",", "point")
    whole, _, rest = core.partition(sign)
    what = f"column {name!r} has numbers such as {number!r:.40}, which may be {whole}{rest} or {whole}.{rest}"
    thousands = f"say --decimal {other} if the {word} is between thousands"
    return f"{what}; {thousands}, or --decimal {sign} if it is the decimal sign"


def digits(cell: str) -> str | None:
    """The digits of a cell that reads as a number, with their signs; None if it does not."""
    found = _CELL.fullmatch(_bare(cell))
    return found["core"].strip() if found and _unit_of(found) is not None else None


def are_units(row: Sequence[str]) -> bool:
    """Whether the cells under a header are units: all short or in brackets, and half of them known.

    >>> are_units(["K", "kJ/mol", "counts"]), are_units(["x", "y", "K"])
    (True, False)
    """
    short = [cell for cell in row if _is_known(cell) or (len(cell) <= 8 and " " not in cell)]
    return len(short) == len(row) and 2 * sum(map(_is_known, row)) >= len(row)


def _is_known(cell: str) -> bool:
    """Whether a cell is a known unit, or one in brackets."""
    if cell.strip("[]()") != cell or cell in CURRENCIES:
        return True
    return all(part in UNITS or part == "1" or part.endswith("%") for part in re.split("[/·*]", cell)) or cell in UNITS


def _bare(cell: str) -> str:
    """A cell without blanks around it; in brackets, as accountants write it, a number is negative."""
    cell = cell.strip()
    if cell.startswith("(") and cell.endswith(")"):
        return f"-{cell[1:-1].strip()}"
    return cell


def _unit_of(found: re.Match[str]) -> str | None:
    """The unit of a cell, maybe none; None if what follows the number is no unit."""
    unit, currency = found["unit"] or "", found["currency"] or found["currency2"] or ""
    if currency and unit:
        return None
    is_unit = unit in UNITS or unit in CURRENCIES
    return currency or unit if not unit or is_unit or found["gap"] else None
