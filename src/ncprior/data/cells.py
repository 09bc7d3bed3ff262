"""Cells of text as people write them: ``379.4 K``, ``45.1%``, ``$1,234.50``, ``27.08.2021``, ``yes``, ``-``, ``<0.05``.

`infer` finds from some values of a column how all of them are to be read, and `read` reads them. Where two readings are
possible and nothing in the column or its file tells which is meant, `infer` raises: nothing is guessed.
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from ncprior.data import cell_dates, cell_numbers
from ncprior.data.cell_dates import Order
from ncprior.data.cell_numbers import Decimal, Numbers

MISSING = (
    *("", "NA", "NaN", "nan", "null", "None", "N/A", "n/a", "NULL", "Null", "<NA>", "NAN", "-nan", "-NaN", "NaT"),
    *("#N/A", "#NA", "#N/A N/A", "#VALUE!", "#DIV/0!", "#REF!", "#NUM!", "#NAME?", "#NULL!", "1.#QNAN", "1.#IND"),
)
"""What counts as no value everywhere; `MARKS` do in columns of numbers and dates."""
MARKS = ("-", "--", "---", "–", "—", "?", ".", "..", "...", "*", "n.a.", "N.A.", "na", "Na", "none", "NONE", "missing")
"""What is missing in a column of numbers, dates or flags, and may be a value of its own elsewhere."""
_NONE = frozenset((*MISSING, *MARKS))

FLAGS = (("yes", "no"), ("true", "false"), ("y", "n"), ("t", "f"))
"""Words for true and false."""

_MANY = 20_000
"""Distinct values of a column, at most, that are examined."""


@dataclass(frozen=True)
class Reading:
    """How the cells of a column are read.

    `kind` is ``number``, ``date``, ``flag`` or ``text``. Of numbers, `decimal` and `thousands` are the signs in them,
    `unit` what all of them have behind or before them, and `bounds` whether some are only known to lie below or above
    what is written. `formats` are those of dates, `order` whether their day or month comes first, and `marks` what
    stands for missing values.
    """

    kind: Literal["number", "date", "flag", "text"]
    decimal: Decimal = ""
    thousands: str = ""
    unit: str = ""
    bounds: bool = False
    formats: tuple[str, ...] = ()
    order: Order = ""
    marks: tuple[str, ...] = ()

    @property
    def type(self) -> pa.DataType:
        """The type of the column that `read` gives. Numbers with bounds stay text, in which these can be seen."""
        if self.kind == "number":
            return pa.string() if self.bounds else pa.float64()
        if self.kind == "date":
            return pa.timestamp("us") if any("%M" in form for form in self.formats) else pa.date32()
        return pa.bool_() if self.kind == "flag" else pa.string()

    def in_words(self) -> str:
        """How the cells are written, in words; empty for plain numbers and text."""
        notes = []
        if self.unit:
            notes.append(f"in {self.unit}")
        if self.decimal == ",":
            notes.append("decimal commas")
        if self.thousands:
            notes.append(f"thousands with {_SIGNS.get(self.thousands, self.thousands)}")
        if self.formats:
            notes.append(f"written {cell_dates.in_words(self.formats[0])}")
        if self.marks:
            notes.append(f"{' '.join(map(repr, self.marks[:4]))} {'is' if len(self.marks) == 1 else 'are'} missing")
        return ", ".join(notes)


_SIGNS = {",": "commas", ".": "points", "'": "apostrophes", "’": "apostrophes"}
_SIGNS |= dict.fromkeys(cell_numbers.BLANKS, "blanks")


def infer(
    name: str, values: Iterable[str], *, decimal: Decimal = "", order: Order = "", lists: bool = False
) -> Reading | None:
    """How to read a column of text, from its different values; None if it is text as it should be.

    Args:
        name: The column, for messages.
        values: Different values, in any order.
        decimal: The decimal sign of the rest of the file, for values that leave it open.
        order: Likewise what comes first in dates.
        lists: Whether ``1,2`` may be a list, as where commas also separate columns.

    Raises:
        UserError: If numbers or dates can be read in two ways.

    >>> infer("t", ["379.4 K", "380 K", "-"]).in_words()
    "in K, '-' is missing"
    """
    values = list(itertools.islice(values, _MANY))
    stripped = [value.strip() for value in values]
    marks = tuple(sorted({value for value in stripped if value and value in _NONE}))
    present = [value for value in stripped if value not in _NONE]
    text = Reading("text") if stripped != values else None
    if not present:
        return text
    if _are_flags(present):
        return Reading("flag", marks=marks)
    if dates := cell_dates.infer(name, present, order):
        return Reading("date", formats=dates.formats, order=dates.order, marks=marks)
    numbers = cell_numbers.infer(name, present, decimal, lists=lists)
    return Reading("number", **numbers._asdict(), marks=marks) if numbers else text


def read(text: pa.ChunkedArray, reading: Reading) -> pa.ChunkedArray:
    """The values of a column of text. What does not read as all the others stays text, for an error to tell.

    Raises:
        pa.ArrowInvalid: If a value is of another kind.
    """
    text = pc.utf8_trim_whitespace(text)
    if reading.kind == "text":
        return text
    text = _without(text, (*reading.marks, *MISSING))
    if reading.kind == "flag":
        low = pc.utf8_lower(text)
        words = pa.array([word for pair in FLAGS for word in pair], text.type)
        indices = pc.index_in(low, words)
        if indices.null_count > text.null_count:
            raise pa.ArrowInvalid("neither yes nor no")
        return pc.equal(pc.bit_wise_and(indices, 1), 0)
    if reading.kind == "date":
        return cell_dates.parsed(text, reading.formats).cast(reading.type)
    return cell_numbers.parsed(text, Numbers(reading.decimal, reading.thousands, reading.unit, reading.bounds))


def is_missing(cell: str) -> bool:
    """Whether a cell stands for no value in a column of numbers."""
    return cell in _NONE


def looks_typed(cell: str) -> bool:
    """Whether a cell is a number, a date, true or false, or missing: anything but text."""
    cell = cell.strip()
    if is_missing(cell) or cell.casefold() in ("yes", "no", "true", "false"):
        return True
    return cell_numbers.digits(cell) is not None or cell_dates.looks_like(cell)


_NEARLY = re.compile(r"[~≈<>$€£]? ?[+\-]?\d[\d.,:/±×()+\-–' ]*[%°A-Za-z]{0,9}")
"""Such as ~5, 5.1 ± 0.2, 1,00,000 and 2021-08: nearly numbers or dates."""


def resembles_typed(cell: str) -> bool:
    """Whether a person would say that a cell is a number or a date, though it may not be read as one."""
    return looks_typed(cell) or bool(_NEARLY.fullmatch(cell.strip())) or cell_dates.names_month(cell)


def _are_flags(values: Sequence[str]) -> bool:
    found = {value.casefold() for value in values}
    return any(found <= set(pair) and (len(found) == 2 or len(pair[0]) > 1) for pair in FLAGS)


def _without(text: pa.ChunkedArray, marks: Sequence[str]) -> pa.ChunkedArray:
    """The text with nulls in place of these marks."""
    gone = pc.is_in(text, pa.array(list(marks), text.type))
    return pc.if_else(gone, pa.scalar(None, text.type), text)
