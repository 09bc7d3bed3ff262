"""Results in tables: those that people bring, and those that they take away."""

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv as pa_csv
from sqlalchemy import Connection, select

from ncprior.campaigns import labels
from ncprior.campaigns.database import Database
from ncprior.campaigns.inputs import Inputs, from_json
from ncprior.campaigns.labels import Place, Telling, current_labels
from ncprior.campaigns.schema import DatabaseRow, item, label, lease, person
from ncprior.campaigns.spec import Spec, numbers
from ncprior.data import table_files
from ncprior.data.column_types import python_rows
from ncprior.errors import UserError

NOTE = "note"
"""The column of notes."""

MOST_ROWS = 100_000
"""Results that are told at once."""

_FORMULA = re.compile(r"^[=+\-@\t\r]")
_NUMBER = re.compile(r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$")


class Outcome(NamedTuple):
    """What becomes of a result."""

    id: str
    values: Mapping[str, float]
    outcome: str  # new, known or refused
    message: str = ""


class Rollback(Exception):  # noqa: N818
    """Raised at the end of a transaction that was only a preview."""


def read_results(path: Path, spec: Spec) -> list[Telling]:
    """The results in a file; see `results_in`."""
    names = table_files.schema_of(path).names
    wanted = [spec.id_column, *spec.targets, *spec.inputs, NOTE]
    types = dict.fromkeys(
        [spec.id_column, NOTE, *(n for n, kind in spec.inputs.items() if kind != "number")], pa.string()
    )
    types |= dict.fromkeys(spec.targets, pa.string())
    columns = [name for name in wanted if name in names]
    if spec.id_column not in columns:
        table_files.schema_of(path, [spec.id_column])  # which says what it may be called
    return results_in(table_files.read(path, columns, schema=types), spec, str(path))


def results_in_csv(text: bytes, spec: Spec) -> list[Telling]:
    """The results in an uploaded CSV file; see `results_in`."""
    convert = pa_csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=True, null_values=["", "NA"])
    try:
        text.decode()
        parsing = pa_csv.ParseOptions(newlines_in_values=True)
        names = pa_csv.read_csv(io.BytesIO(text), parse_options=parsing).column_names
        convert.column_types = dict.fromkeys(names, pa.string())
        table = pa_csv.read_csv(io.BytesIO(text), parse_options=parsing, convert_options=convert)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise UserError("the file is no CSV table in UTF-8 with a header; save it as such") from error
    if len(set(names)) < len(names):
        raise UserError("two columns of the file have the same name; give each a name of its own")
    return results_in(table, spec, "the file")


def results_in(table: pa.Table, spec: Spec, where: str) -> list[Telling]:
    """The results in a table: a column of ids, columns of targets, and of notes and inputs if there are any.

    Empty values are left out, and so are rows without any value. Inputs count only for rows outside the pool.

    Raises:
        UserError: If there is no id or no target, or a value is no number.
    """
    targets = [name for name in spec.targets if name in table.column_names]
    if spec.id_column not in table.column_names or not targets:
        what = f"{where}: needs a column {spec.id_column!r} and one of {', '.join(map(repr, spec.targets))}"
        raise UserError(f"{what}; it has {', '.join(map(repr, table.column_names[:9]))}")
    if table.num_rows > MOST_ROWS:
        raise UserError(f"{where}: has {table.num_rows:,} rows; tell at most {MOST_ROWS:,} at once")
    has_inputs = all(name in table.column_names for name in spec.inputs)
    found, seen = [], dict[str, int]()
    for number, row in enumerate(python_rows(table), 1):
        key = row[spec.id_column]
        if key is None or key == "":
            raise UserError(f"{where}: row {number} has no id in column {spec.id_column!r}; give every row one")
        key = _without_guard(str(key))
        if key in seen:
            raise UserError(f"{where}: rows {seen[key]} and {number} have the same id {key!r:.80}; give each once")
        seen[key] = number
        try:
            given = {name: row[name] for name in targets if row[name] not in (None, "")}
            values = numbers(given, spec.targets) if given else {}
        except UserError as error:
            raise UserError(f"{where}: row {number}: {error}") from error
        note = row.get(NOTE)
        inputs = {name: row[name] for name in spec.inputs} if has_inputs else None
        if values:
            text = None if note is None else _without_guard(str(note))
            found.append(Telling(key, values, text, inputs=_plain(inputs)))
    return found


def tell_each(
    connection: Connection, at: Place, results: Sequence[Telling], rows: Mapping[str, tuple[Inputs, bool] | None]
) -> list[Outcome]:
    """Tells results one by one; one that is refused changes nothing."""
    outcomes = []
    for one in results:
        try:
            with connection.begin_nested():
                told = labels.tell(connection, at, one, rows[one.id])
                if told is None:
                    raise UserError(f"row {one.id!r:.80} is not in the pool; to tell it all the same, give its inputs")
            outcomes.append(Outcome(one.id, one.values, told.outcome))
        except UserError as error:
            outcomes.append(Outcome(one.id, one.values, "refused", str(error)))
    return outcomes


def write_export(database: Database, campaign_id: int, spec: Spec, out: Path, *, history: bool) -> int:
    """Writes labels to a .csv or .parquet file."""
    table = database.read(lambda connection: export_table(connection, campaign_id, spec, history=history))
    with table_files.write(out) as append:
        append(csv_safe(table) if out.suffix.lower() == ".csv" else table)
    return int(table.num_rows)


def export_csv(database: Database, campaign_id: int, spec: Spec, *, history: bool) -> bytes:
    """The same as the text of a CSV file."""
    table = database.read(lambda connection: export_table(connection, campaign_id, spec, history=history))
    sink = io.BytesIO()
    pa_csv.write_csv(csv_safe(table), sink)
    return sink.getvalue()


def export_table(connection: Connection, campaign_id: int, spec: Spec, *, history: bool) -> pa.Table:
    """Labelled rows: id, inputs, targets (averages, if several people told them), and who told them when.

    With ``history``, every entry: superseded ones and corrections too.
    """
    if history:
        return _entries(connection, campaign_id)
    query = current_labels().add_columns(item.c.row_key, item.c.inputs).join(item, item.c.id == label.c.item)
    by_row: dict[str, list[DatabaseRow]] = {}
    for one in connection.execute(query.where(label.c.campaign == campaign_id).order_by(label.c.id)):
        by_row.setdefault(one.row_key, []).append(one)
    columns: dict[str, pa.ChunkedArray] = {spec.id_column: pa.array(list(by_row), pa.large_string())}
    inputs = from_json([rows[0].inputs for rows in by_row.values()], spec.inputs)
    columns |= dict(zip(inputs.column_names, inputs.columns, strict=True))
    for target in spec.targets:
        values = [[one.value for one in rows if one.target == target] for rows in by_row.values()]
        columns[target] = pa.array([sum(some) / len(some) if some else None for some in values], pa.float64())
        if spec.replicates > 1:
            spread = [max(some) - min(some) if len(some) > 1 else None for some in values]
            columns[_unused(f"{target}_spread", columns)] = pa.array(spread, pa.float64())
    beside = {
        "person": [", ".join(dict.fromkeys(one.teller for one in rows)) for rows in by_row.values()],
        "told_at": [max(one.told_at for one in rows).isoformat(timespec="seconds") for rows in by_row.values()],
        NOTE: ["; ".join(dict.fromkeys(one.note for one in rows if one.note)) or None for rows in by_row.values()],
    }
    for name, texts in beside.items():
        columns[_unused(name, columns)] = pa.array(texts, pa.large_string())
    return pa.table(columns)


def _entries(connection: Connection, campaign_id: int) -> pa.Table:
    query = (
        select(label, item.c.row_key, person.c.name, lease.c.audit)
        .join(item, item.c.id == label.c.item)
        .join(person, person.c.id == label.c.person)
        .outerjoin(lease, lease.c.id == label.c.lease)
        .where(label.c.campaign == campaign_id)
        .order_by(label.c.id)
    )
    rows = connection.execute(query).all()
    return pa.table(
        {
            "entry": pa.array([one.id for one in rows], pa.int64()),
            "row": pa.array([one.row_key for one in rows], pa.large_string()),
            "target": pa.array([one.target for one in rows], pa.large_string()),
            "value": pa.array([one.value for one in rows], pa.float64()),
            "person": pa.array([one.name for one in rows], pa.large_string()),
            "told_at": pa.array([one.told_at.isoformat(timespec="seconds") for one in rows], pa.large_string()),
            "supersedes": pa.array([one.supersedes for one in rows], pa.int64()),
            "model": pa.array([one.model for one in rows], pa.int64()),
            "audit": pa.array([bool(one.audit) for one in rows], pa.bool_()),
            "key": pa.array([one.idempotency_key for one in rows], pa.large_string()),
            NOTE: pa.array([one.note for one in rows], pa.large_string()),
        }
    )


def csv_safe(table: pa.Table) -> pa.Table:
    """The table with an apostrophe before text that a spreadsheet would run as a formula.

    >>> csv_safe(pa.table({"a": ["=1+1", "-3", "x"]}))["a"].to_pylist()
    ["'=1+1", '-3', 'x']
    """
    names = [_guarded(name) for name in table.column_names]
    columns = []
    for values in table.columns:
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            guarded = [None if text is None else _guarded(text) for text in values.to_pylist()]
            values = pa.chunked_array([pa.array(guarded, pa.large_string())])
        columns.append(values)
    return pa.table(columns, names=names)


def _guarded(text: str) -> str:
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.match(text) else text


def _without_guard(text: str) -> str:
    """The text as it was before `csv_safe`."""
    return text[1:] if text[:1] == "'" and _FORMULA.match(text[1:]) else text


def _plain(inputs: Mapping[str, object] | None) -> dict[str, object] | None:
    """Inputs as JSON has them."""
    if inputs is None:
        return None
    return {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in inputs.items()}


def _unused(name: str, columns: Mapping[str, object]) -> str:
    while name in columns:
        name = f"ncprior_{name}"
    return name
