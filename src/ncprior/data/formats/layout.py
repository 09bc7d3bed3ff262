"""Where the table is in rows of text: its header, a row of units under it, and titles above it that are none of it."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ncprior.data import cell_numbers, cells
from ncprior.errors import UserError

BLANKS = " "
"""The separator that stands for any number of blanks and tabs."""
_CONSISTENT = 0.9
"""Share of the rows that must have as many values as the others."""
_FEW = 4
"""Rows up to which every one counts."""


class Record(NamedTuple):
    """The values of a row and the number of its first line, from 1."""

    line: int
    cells: list[str]


class Layout(NamedTuple):
    """How rows of text are a table."""

    separator: str
    header: int | None  # which record is the header; None for none
    names: list[str]
    rows: list[Record]  # of values, without the header and units
    units: list[str]
    skipped: int

    @property
    def typed(self) -> float:
        """Share of the values that are numbers, dates or missing."""
        values = [cell for row in self.rows[:200] for cell in row.cells]
        return sum(map(cells.looks_typed, values)) / len(values) if values else 0.0


def records(lines: Iterator[str], separator: str) -> Iterator[Record]:
    """The rows of a text, without empty lines."""
    if separator == BLANKS:
        for number, line in enumerate(lines, 1):
            if found := [part.strip('"') for part in re.findall(r'"[^"]*"|[^\s"]+', line)]:
                yield Record(number, found)
        return
    reader = csv.reader(lines, delimiter=separator)
    number = 1
    try:
        for found in reader:
            if found:
                yield Record(number, found)
            number = reader.line_num + 1
    except csv.Error:  # a field of more than 128 KB, which Arrow may read or complain about
        return


def never_closed(text: str, separator: str) -> int | None:
    """The line of a row with a quotation mark that is never closed, if there is one; `text` is the whole of a file."""
    if separator == BLANKS or text.count('"') % 2 == 0:
        return None
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    line = 1
    try:
        for _ in reader:
            line = reader.line_num + 1
    except csv.Error as error:
        return line if "unexpected end" in str(error) else None
    return None


def laid_out(file: object, found: list[Record], separator: str, header_row: int | None) -> Layout | None:
    """The layout of these rows; None if they do not have as many values as each other."""
    if not found:
        raise UserError(f"{file}: has no rows; give a table with at least one row under its header")
    late = found[len(found) // 2 :]
    width = Counter(len(one.cells) for one in late).most_common(1)[0][0]
    if header_row is not None:
        return _with_header(file, found, width, separator, header_row)
    found = found[_remarks(found, width) :]
    start = next((i for i, one in enumerate(found) if len(one.cells) == width and _is_full(one.cells)), None)
    if start is None:
        start = next(i for i, one in enumerate(found) if len(one.cells) == width)
    before = found[start - 1] if start and not _above_numbers(found, start) else None
    if before and (comment := _commented(before.cells, width)) and _numeric(found[start].cells):
        header, names = before, comment
    elif before and len(before.cells) == width and _numeric(found[start].cells) and _are_names(before.cells):
        header, names = before, before.cells  # of which half are empty
    elif before and width > 2 and len(before.cells) == width - 1 and not any(map(is_number, before.cells)):
        # Rows end in a separator, or begin with a number that has no name.
        last = not any(cell_at(one, width - 1) for one in found[start:])
        if not last and not _name_rows([one.cells[0] for one in found[start:]], separator):
            return None
        header, names = before, [*before.cells, ""] if last else ["", *before.cells]
    elif before and len(before.cells) == width + 1 and not before.cells[-1].strip():
        header, names = before, before.cells[:-1]
    else:
        header, names = found[start], _commented(found[start].cells, width) or found[start].cells
        start += 1
    rows = found[start:]
    fitting = [row for row in rows if len(row.cells) == width]
    if len(fitting) < _CONSISTENT * len(rows):
        return None
    return _with_units(file, separator, header, names, rows)


def _with_header(file: object, found: list[Record], width: int, separator: str, header_row: int) -> Layout:
    """The layout of a file whose header is known."""
    if header_row == 0:
        return Layout(separator, None, [f"x{i}" for i in range(width)], found, [], 0)
    header = next((one for one in found if one.line == header_row), None)
    if header is None:
        raise UserError(f"--header-row {header_row}: line {header_row} of {file} is empty, or not there")
    rows = [one for one in found if one.line > header_row]
    names = [*header.cells, *[""] * (width - len(header.cells))][: max(width, len(header.cells))]
    return _with_units(file, separator, header, names, rows, sure=True)


def _with_units(
    file: object, separator: str, header: Record, names: list[str], rows: list[Record], *, sure: bool = False
) -> Layout:
    """The layout, where the row under the header may have units; ``sure`` if the header cannot be a title."""
    units: list[str] = []
    first_line = rows[0].line if rows else header.line + 1
    if len(rows) > 1:
        # The second row may have units, too, if the header is a title.
        values = rows[2:] if len(rows) > _FEW else rows[1:]
        numbers = [i for i in range(len(names)) if is_numeric([cell_at(row, i) for row in values])]
        under = [cell for i in numbers if (cell := cell_at(rows[0], i)) and not cells.is_missing(cell)]
        if under and not any(map(cells.looks_typed, under)):
            if not sure and not cell_numbers.are_units(under):
                which = f"line {header.line} or line {rows[0].line}"
                raise UserError(f"{file}: the names of columns may be in {which}; say which with --header-row")
            units = [cell.strip() for cell in rows[0].cells]
            rows = rows[1:]
            first_line = rows[0].line
    return Layout(separator, header.line, list(names), rows, units, first_line - 1)


def _remarks(found: Sequence[Record], width: int) -> int:
    """How many rows at the beginning are remarks behind #, the last of which may be the header."""
    count = next((i for i, one in enumerate(found) if not one.cells[0].startswith("#")), 0)
    if not count:
        return 0
    last = found[count - 1].cells
    is_header = (_commented(last, width) or len(last) == width) and not _above_numbers(found, count)
    return count - 1 if is_header else count


def _above_numbers(found: Sequence[Record], place: int) -> bool:
    """Whether a row has no numbers, and the next one has."""
    return not _numeric(found[place].cells) and place + 1 < len(found) and _numeric(found[place + 1].cells)


def _are_names(row: Sequence[str]) -> bool:
    """Whether a row with empty cells has names, and not only a title."""
    return sum(bool(cell.strip()) for cell in row) > 1 and not _numeric(row)


def _name_rows(column: list[str], separator: str) -> bool:
    """Whether a column without a name has names of rows; between commas, 1,5 may be one number."""
    if len(set(column)) < len(column):
        return False
    counts = [[str(i + first) for i in range(len(column))] for first in (0, 1)]
    return separator != "," or not all(map(is_number, column)) or column in counts


def _commented(row: list[str], width: int) -> list[str] | None:
    """The names in a header that begins with #, as in many .dat files; None if it is none."""
    if not row[0].startswith("#"):
        return None
    first = row[0].lstrip("# ")
    names = [first, *row[1:]] if first else row[1:]
    return names if len(names) == width else None


def cell_at(row: Record, place: int) -> str:
    """The value of a row at this place; nothing if it ends before."""
    return row.cells[place].strip() if place < len(row.cells) else ""


def _is_full(row: Sequence[str]) -> bool:
    """Whether a row is no title: a spreadsheet fills the line of a title up with separators."""
    filled = sum(bool(cell.strip()) for cell in row)
    return 2 * filled > len(row) or filled == len(row) - 1


def counted(values: int) -> str:
    """How many values a line has, in words."""
    return f"{values} value{'s' * (values != 1)}"


def shown(names: Sequence[str]) -> str:
    """Names of columns for a message."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(name.strip()[:30] for name in names[:3]) + more


def no_header(file: object, line: int, names: Sequence[str]) -> str | None:
    """What to say if the header of a file is numbers; None if it is not."""
    if not all(map(is_number, names)):
        return None
    what = f"{file}: line {line} has numbers where the names of columns should be ({shown(names)})"
    return f"{what}; add a header, or give --header-row 0 to call them x0, x1 and so on"


def is_number(cell: str) -> bool:
    """Whether a cell reads as a number."""
    return cell_numbers.digits(cell) is not None


def _numeric(row: Sequence[str]) -> bool:
    return any(map(is_number, row))


def is_numeric(column: Sequence[str]) -> bool:
    """Whether nearly all of a column is numbers."""
    filled = [cell for cell in column if cell and not (cells.looks_typed(cell) and not is_number(cell))]
    return bool(filled) and sum(map(is_number, filled)) >= _CONSISTENT * len(filled)
