"""The dialect of a text file: its encoding, what separates columns, its decimal sign, and where its header is.

All of it is found from the first megabyte. Where two layouts fit, the file is refused with both; `DialectOptions` say
which is meant.
"""

import codecs
import io
from collections.abc import Sequence
from dataclasses import dataclass

from ncprior.data import cell_dates, cell_numbers
from ncprior.data.formats.layout import (
    BLANKS,
    Layout,
    Record,
    cell_at,
    counted,
    is_number,
    is_numeric,
    laid_out,
    never_closed,
    no_header,
    records,
    shown,
)
from ncprior.errors import UserError

SAMPLE = 1 << 20
"""Bytes of a file that are looked at."""

_SEPARATORS = {",": "','", ";": "';'", "\t": "tabs", "|": "'|'", BLANKS: "blanks"}
_NAMES = {"tab": "\t", "\\t": "\t", "space": BLANKS, "blanks": BLANKS}
_MOST_RECORDS = 2_000
_CLEARLY = 0.05
"""How much more of the values must be numbers or dates with one separator than with another, to be clearly better."""


@dataclass(frozen=True)
class DialectOptions:
    """Options for reading text files; what is None or empty is detected.

    Attributes:
        separator: ``,``, ``;``, ``|``, a tab, or a blank for any number of blanks.
        decimal: The decimal sign.
        encoding: A name that Python knows, such as ``cp1252``.
        header_row: The line of the header, from 1; 0 if there is none.
        dates: ``dmy`` or ``mdy`` for dates such as 05/06/2021.
        sheet: The sheet of a workbook.
        trained_decimal: The decimal sign of training, for what the file leaves open.
        trained_dates: Likewise the order of dates.
    """

    separator: str | None = None
    decimal: cell_numbers.Decimal = ""
    encoding: str | None = None
    header_row: int | None = None
    dates: cell_dates.Order = ""
    sheet: str | None = None
    trained_decimal: cell_numbers.Decimal = ""
    trained_dates: cell_dates.Order = ""

    def __post_init__(self) -> None:
        separator = _NAMES.get(self.separator or "", self.separator)
        object.__setattr__(self, "separator", separator)
        if separator is not None and (len(separator) != 1 or separator in '"\r\n' or separator.isalnum()):
            raise UserError(f"--sep {separator!r:.20}: give one sign, such as ';', or tab or space")
        if self.decimal not in ("", ".", ","):
            raise UserError(f"--decimal {self.decimal!r:.20}: give . or ,")
        if self.decimal and self.decimal == separator:
            raise UserError(f"{separator!r} cannot separate columns and be the decimal sign; change --sep or --decimal")
        if self.dates not in ("", "dmy", "mdy"):
            raise UserError(f"--dates {self.dates!r:.20}: give dmy if the day comes first, or mdy if the month does")
        if self.header_row is not None and self.header_row < 0:
            raise UserError(f"--header-row {self.header_row}: give the number of a line from 1, or 0 for no header")
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError as error:
                what = f"--encoding {self.encoding!r:.40}: unknown; give one such as utf-8, cp1252 or utf-16"
                raise UserError(what) from error


PLAIN = DialectOptions()
"""Nothing is known about text files."""


@dataclass(frozen=True)
class Dialect:
    """The layout of a file.

    `decimal` is the sign that its numbers or its user show, and `hint` what to take where a column leaves it open.
    `names` are those of all its columns; `dropped` are the numbers of columns that have neither a name nor a value.
    `skipped` is how many lines come before the first row of values, and `header` the line with the names, from 1.
    `doubts` are what to say of columns whose points may be decimal signs or between thousands.
    """

    encoding: str
    separator: str
    decimal: cell_numbers.Decimal
    hint: cell_numbers.Decimal
    names: tuple[str, ...]
    skipped: int
    header: int = 1
    units: tuple[str, ...] = ()
    dropped: tuple[int, ...] = ()
    doubts: tuple[tuple[str, str], ...] = ()

    def in_words(self) -> str:
        """What is not as in plain CSV, as one line for people; nothing if all is plain."""
        notes = [_SEPARATORS.get(self.separator, repr(self.separator))] if self.separator != "," else []
        notes += ["decimal commas"] if self.decimal == "," and self.separator != "," else []
        notes += [_ENCODINGS.get(self.encoding, self.encoding)] if self.encoding not in ("utf-8", "utf-8-sig") else []
        line = f"read with {_listed(notes)}" if notes else ""
        more = [f"names from line {self.header}"] if self.header > 1 else []
        more += ["no header"] if self.header == 0 else []
        more += ["units in the line under it"] if self.units else []
        more += ["an empty column without a name left out"] if self.dropped else []
        return "; ".join(filter(None, [line, ", ".join(more)]))


_ENCODINGS = {"cp1252": "Windows-1252 letters", "latin-1": "Latin-1 letters", "utf-16": "UTF-16 letters"}
_ENCODINGS |= {"utf-16-le": "UTF-16 letters", "utf-16-be": "UTF-16 letters"}


def detect(file: object, sample: bytes, *, complete: bool, options: DialectOptions, tabs: bool = False) -> Dialect:
    """The dialect of a file, by its beginning.

    Args:
        file: What it is called in messages.
        sample: Its first bytes.
        complete: Whether these are all bytes of the file.
        options: What is known.
        tabs: Whether its name says that tabs separate columns.

    Raises:
        UserError: If it is no text, has no header, or fits more than one dialect.
    """
    encoding = options.encoding or _encoding(file, sample)
    text = _decoded(file, sample, encoding, complete=complete)
    layout = _layout_of(file, text, options, complete=complete, tabs=tabs)
    if complete and (line := never_closed(text, layout.separator)):
        raise UserError(f"{file}: line {line} has a quotation mark that is never closed; close it, or take it out")
    found = _signs(layout.rows)
    decimal: cell_numbers.Decimal = options.decimal or (next(iter(found)) if len(found) == 1 else "")
    names = [name.strip() for name in layout.names]
    # A separator at the end of every line makes a column without a name and without values.
    empty = [i for i, name in enumerate(names) if not name and not any(cell_at(row, i) for row in layout.rows)]
    named = tuple(name or f"unnamed {i + 1}" for i, name in enumerate(names))
    hint = decimal or options.trained_decimal
    doubts = _points(named, layout.rows) if layout.separator == ";" and not found and not hint else {}
    return Dialect(
        encoding=encoding,
        separator=layout.separator,
        decimal=decimal,
        hint=hint,
        names=named,
        skipped=layout.skipped,
        header=layout.header or 0,
        units=tuple(layout.units),
        dropped=tuple(empty),
        doubts=tuple(doubts.items()),
    )


def _encoding(file: object, sample: bytes) -> str:
    """The encoding of the sample, or an error if it is no text."""
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if sample.startswith(mark):
            return name
    zeros = [sample[start:400:2].count(0) for start in (0, 1)]
    if max(zeros) > 0.3 * len(sample[:400:2]) and min(zeros) == 0:
        return "utf-16-be" if zeros[0] else "utf-16-le"
    if b"\0" in sample:
        raise UserError(f"{file}: is no text; give a file with rows and columns, or its --encoding")
    for name in ("utf-8", "cp1252"):
        try:
            codecs.getincrementaldecoder(name)().decode(sample)
        except UnicodeDecodeError:
            continue
        return name
    return "latin-1"


def _decoded(file: object, sample: bytes, encoding: str, *, complete: bool) -> str:
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(sample, final=complete)
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: has letters that are not {encoding}; give another --encoding") from error
    return text.removeprefix("\ufeff")


def _layout_of(file: object, text: str, options: DialectOptions, *, complete: bool, tabs: bool) -> Layout:
    """The one layout that fits."""
    given = options.separator
    if given is None and text.startswith("sep=") and len(text) > 4:  # how Excel is told
        given = text[4]
    tried = [given] if given else ["\t"] if tabs else [",", ";", "\t", "|"]
    found = [layout for sign in tried if (layout := _divided(file, text, sign, options, complete=complete))]
    wide = [layout for layout in found if len(layout.names) > 1]
    if not wide and tabs:
        return _layout_of(file, text, options, complete=complete, tabs=False)
    if (
        not given
        and all(map(_without_names, wide))
        and (blanks := _divided(file, text, BLANKS, options, complete=complete))
    ):
        wide += [blanks] if len(blanks.names) > 1 else []
    first = min((layout.header or 0 for layout in wide), default=0)
    wide = sorted((layout for layout in wide if layout.header in (None, first)), key=lambda layout: -layout.typed)
    if len(wide) > 1 and wide[0].typed - wide[1].typed < _CLEARLY:
        both = " or by ".join(f"{_SEPARATORS[one.separator]} ({shown(one.names)})" for one in wide[:2])
        raise UserError(f"{file}: its columns may be separated by {both}; say which with --sep")
    if not wide and not found:
        raise UserError(_ragged(file, text, given or ",") or f"{file}: no header can be found; say --header-row")
    layout = (wide or found)[0]
    if options.header_row is None and (line := no_header(file, layout.header or 1, layout.names)):
        raise UserError(line if layout.header == 1 else _ragged(file, text, layout.separator) or line)
    return layout


def _without_names(layout: Layout) -> bool:
    """Whether numbers are the names, below what seems to be a title: these may be decimal commas between blanks."""
    return (layout.header or 0) > 1 and any(map(is_number, layout.names))


def _divided(file: object, text: str, separator: str, options: DialectOptions, *, complete: bool) -> Layout | None:
    """The layout with this separator; None if it does not fit."""
    if separator not in text and separator != BLANKS and options.separator is None and separator != ",":
        return None
    lines = iter(io.StringIO(text, newline=""))
    found = [record for _, record in zip(range(_MOST_RECORDS + 1), records(lines, separator), strict=False)]
    if len(found) > _MOST_RECORDS or (not complete and len(found) > 1):
        found = found[:-1]  # which may be cut off
    found = [one for one in found if not one.cells[0].startswith("sep=") or one.line > 1]
    return laid_out(file, found, separator, options.header_row)


def _ragged(file: object, text: str, separator: str) -> str | None:
    """The first line that has another number of values than the header; None if there is none."""
    found = list(records(iter(io.StringIO(text, newline="")), separator))
    width = len(found[0].cells)
    odd = next((one for one in found if len(one.cells) != width), None)
    if odd is None:
        return None
    what = f"line {odd.line} has {counted(len(odd.cells))}, but the header has {width}"
    return f"{file}: {what}; mend or drop that line, or say --sep or --header-row"


def _signs(rows: Sequence[Record]) -> set[cell_numbers.Decimal]:
    """The decimal signs of which numbers leave no doubt."""
    found: set[cell_numbers.Decimal] = set()
    for row in rows:
        for cell in row.cells:
            if ("," in cell or "." in cell) and (digits := cell_numbers.digits(cell)) is not None:
                sign = cell_numbers.evidence(digits)
                if sign in (".", ","):
                    found.add(sign)
        if len(found) == 2:
            break
    return found


def _points(names: Sequence[str], rows: Sequence[Record]) -> dict[str, str]:
    """What to say of columns with numbers such as 1.234 where semicolons, as people with decimal commas use them, are
    all there is to go by.
    """
    found: dict[str, str] = {}
    for i, name in enumerate(names):
        column = [cell_at(row, i) for row in rows]
        number = next((cell for cell in column if "." in (cell_numbers.digits(cell) or "")), None)
        if number is not None and is_numeric(column):
            found[name] = cell_numbers.two_readings(name, number)
    return found


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
