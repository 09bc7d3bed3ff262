"""People's tables: every format read whole and in pieces, other libraries' tables, atomic writing, clear errors."""

import bz2
import datetime
import gzip
import tempfile
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncprior.data import frames, table_files
from ncprior.data.formats import csv as csv_tables
from ncprior.data.formats.dialect import DialectOptions
from ncprior.errors import UserError

TABLE = pa.table({"a": [1.5, None, 3.0, 4.0], "b": ["x", "y", None, "z"], "c": [True, False, True, None]})


def save(folder, name):
    """The table above in the format of a name."""
    path = folder / name
    if ".parquet" in name:
        pq.write_table(TABLE, path, row_group_size=3)
    elif ".feather" in name:
        feather.write_feather(TABLE, str(path), chunksize=3)
    elif ".ipc" in name:
        with pa.ipc.new_stream(str(path), TABLE.schema) as sink:
            sink.write_table(TABLE, max_chunksize=3)
    elif ".arrow" in name:
        with pa.ipc.new_file(str(path), TABLE.schema) as sink:
            sink.write_table(TABLE, max_chunksize=3)
    else:
        delimiter = "\t" if ".tsv" in name else ","
        sink = pa.BufferOutputStream()
        pa_csv.write_csv(TABLE, sink, pa_csv.WriteOptions(delimiter=delimiter))
        compress = {".gz": gzip.compress, ".bz2": bz2.compress}.get(path.suffix, bytes)
        path.write_bytes(compress(sink.getvalue().to_pybytes()))
    return path


def csv(folder, text, name="rows.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def inside(folder):
    return [path.name for path in folder.iterdir()]


def refuses(act, *parts):
    """The one line of the error, which has all these parts."""
    with pytest.raises(UserError) as caught:
        act()
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message
    return message


@pytest.fixture
def small_blocks(monkeypatch):
    """Files of a few lines have several blocks."""
    monkeypatch.setattr(csv_tables, "_BLOCK", 64)


# Reading


FILES = ["t.csv", "t.CSV", "t.csv.gz", "t.csv.bz2", "t.tsv", "t.tsv.gz", "t.parquet", "t.feather", "t.arrow", "t.ipc"]


@pytest.mark.parametrize("name", FILES)
def test_every_format_whole_in_pieces_and_by_column(tmp_path, name):
    path = save(tmp_path, name)
    assert table_files.read(path).equals(TABLE)
    assert table_files.read(str(path), ["c", "a"]).equals(TABLE.select(["c", "a"]))
    pieces = list(table_files.stream(path, ["b"], 3))
    assert [piece.num_rows for piece in pieces] == [3, 1]
    assert pa.concat_tables(pieces).equals(TABLE.select(["b"]))


@pytest.mark.parametrize("form", ["csv", "parquet", "feather"])
def test_folders_follow_names(tmp_path, form):
    for name in (f"2.{form}", f"1.{form}"):
        save(tmp_path, name)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / f".hidden.{form}").touch()
    (tmp_path / "notes.txt").write_text("not a table")
    assert table_files.read(tmp_path).equals(pa.concat_tables([TABLE, TABLE]))
    assert [piece.num_rows for piece in table_files.stream(tmp_path, rows=5)] == [5, 3]


def test_types_in_a_folder_are_brought_together(tmp_path):
    for name, values in {"1": [1, 2], "2": [1.5]}.items():
        pq.write_table(pa.table({"a": values}), tmp_path / f"{name}.parquet")
    assert table_files.read(tmp_path)["a"].to_pylist() == [1.0, 2.0, 1.5]
    pq.write_table(pa.table({"a": ["x"]}), tmp_path / "3.parquet")
    refuses(lambda: table_files.read(tmp_path), "do not fit together", "Field a has incompatible types")
    pq.write_table(pa.table({"b": [1]}), tmp_path / "3.parquet")
    refuses(lambda: table_files.read(tmp_path), "3.parquet: no column 'a'")


def test_types_in_a_folder_of_csv_are_brought_together(tmp_path):
    csv(tmp_path, "a,b,c,d\n1,,9007199254740993,2020-01-01\n", "1.csv")
    csv(tmp_path, "a,b,c,d\nx,2020-01-01,1,2020-01-01 10:00:00\n", "2.csv")
    expected = {
        "a": ["1", "x"],
        "b": [None, datetime.date(2020, 1, 1)],
        "c": [9007199254740992.0, 1.0],
        "d": [datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 1, 10)],
    }
    assert table_files.read(tmp_path).to_pydict() == expected


@pytest.mark.usefixtures("small_blocks")
def test_numbers_in_csv_are_floats_from_the_first_row_to_the_last(tmp_path):
    path = csv(tmp_path, "a,b\n" + "1,2\n" * 50 + "1.5,1e3\n")
    assert table_files.read(path).schema.types == [pa.float64()] * 2
    assert table_files.read(path)["a"].to_pylist()[-1] == 1.5
    assert table_files.read(path, ["b"])["b"].to_pylist()[-1] == 1000


def test_identifiers_in_csv_are_not_rounded(tmp_path):
    path = csv(tmp_path, "id\n9007199254740993\n2\n")
    assert table_files.read(path)["id"].to_pylist() == [9007199254740993, 2]
    assert table_files.read(path, schema={"id": pa.int64()})["id"].to_pylist() == [9007199254740993, 2]
    empty = csv(tmp_path, "id,a\n,1\n", "empty.csv")
    assert table_files.read(empty, schema={"id": pa.int64()})["id"].to_pylist() == [None]


def test_what_counts_as_missing_in_csv(tmp_path):
    words = ["", "NA", "NaN", "nan", "null", "None", "N/A", '""']
    path = csv(tmp_path, "a,b\n" + "".join(f"{word},{word}\n" for word in words) + "1,x\n")
    table = table_files.read(path)
    assert [table[name].null_count for name in "ab"] == [8, 8]
    assert table.schema.types == [pa.float64(), pa.string()]


@pytest.mark.usefixtures("small_blocks")
def test_dates_in_csv(tmp_path):
    line = "2020-01-01,2020-01-01 10:00:00,2020-01-01T10:00:00Z\n"
    path = csv(tmp_path, "d,t,z\n" + line * 9 + "2020-01-02,2020-01-01 10:00:00.25,2020-01-01T10:00:00+01:00\n")
    table = table_files.read(path)
    assert table.schema.types == [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")]
    assert table["t"][9].as_py() == datetime.datetime(2020, 1, 1, 10, 0, 0, 250_000)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("1", pa.float64()),
        ("true", pa.bool_()),
        ("2020-01-01", pa.date32()),
        ("2020-01-01 10:00:00", pa.timestamp("us")),
        ("2020-01-01T10:00:00Z", pa.timestamp("us", "UTC")),
        ("word", pa.string()),
    ],
)
@pytest.mark.usefixtures("small_blocks")
def test_columns_that_start_empty(tmp_path, value, kind):
    path = csv(tmp_path, "a,b,c\n" + "1,,\n" * 50 + f"2,{value},\n")
    table = table_files.read(path)
    assert table.schema.types == [pa.float64(), kind, pa.null()]
    assert table["b"].null_count == 50


def test_given_types_are_used_for_csv(tmp_path):
    path = csv(tmp_path, "zip,n,flag,name,word\n01,1,0,,2\n02,2,1,,3\n")
    types = {
        "zip": pa.dictionary(pa.int8(), pa.string()),
        "n": pa.int32(),
        "flag": pa.bool_(),
        "name": pa.null(),
        "word": pa.large_string(),
    }
    table = table_files.read(path, schema=types)
    assert table.to_pydict() == {
        **{"zip": ["01", "02"], "n": [1.0, 2.0], "flag": [False, True], "name": [None, None]},
        "word": ["2", "3"],
    }


def test_text_in_csv_may_have_commas_and_lines(tmp_path):
    path = csv(tmp_path, '\ufeffa,b\n"x, y","1\n2"\n')
    assert table_files.read(path).to_pydict() == {"a": ["x, y"], "b": ["1\n2"]}


# Errors of reading


@pytest.mark.usefixtures("small_blocks")
def test_values_that_do_not_fit_are_named(tmp_path):
    path = csv(tmp_path, "z,a\n" + "0,1\n" * 50 + "0,abc\n")
    refuses(lambda: table_files.read(path, ["a"]), f"{path}: 'abc' in column 'a', line 52, is not a number", "mend it")
    small = csv(tmp_path, "a,d\n1,2020-01-01\n,soon\n", "small.csv")
    refuses(lambda: table_files.read(small, schema={"d": pa.date32()}), "'soon' in column 'd', line 3, is not a date,")
    refuses(lambda: table_files.read(small, schema={"d": pa.timestamp("us")}), "'soon'", "is not a date and time")


def test_missing_files_suggest_others(tmp_path):
    save(tmp_path, "flights.csv")
    refuses(lambda: table_files.read(tmp_path / "flihgts.csv"), "no such file or folder; did you mean flights.csv?")
    refuses(lambda: table_files.read(tmp_path / "other"), "no such file or folder; check its name")
    refuses(lambda: table_files.read(tmp_path / "nowhere" / "a.csv"), "no such file or folder; check its name")


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.arrow"])
def test_empty_files(tmp_path, name):
    (tmp_path / name).touch()
    refuses(lambda: table_files.read(tmp_path / name), f"{name}: the file is empty; give one with a table")


def test_tables_without_rows(tmp_path):
    refuses(lambda: table_files.read(csv(tmp_path, "a,b\n")), "no rows; give a table with at least one row")
    refuses(lambda: table_files.read(csv(tmp_path, "a,b")), "no rows; give a table with at least one row")
    refuses(lambda: table_files.read(csv(tmp_path, gzip.compress(b""), "t.csv.gz")), "t.csv.gz: has no rows")
    pq.write_table(TABLE.slice(0, 0), tmp_path / "t.parquet")
    refuses(lambda: table_files.read(tmp_path / "t.parquet"), "t.parquet: has columns but no rows")


def test_unknown_suffixes(tmp_path):
    refuses(lambda: table_files.read(csv(tmp_path, "a\n1\n", "rows.doc")), "rows.doc: unknown kind of file", ".csv.gz")


@pytest.mark.parametrize("name", ["t.parquet", "t.feather", "t.arrow", "t.ipc", "t.csv.gz", "t.csv.bz2"])
def test_damaged_files(tmp_path, name):
    path = save(tmp_path, name)
    whole = path.read_bytes()
    path.write_bytes(b"junk" * 10)
    refuses(lambda: table_files.read(path), f"{name}: not a", "file, or damaged (", "get it anew")
    path.write_bytes(whole[: len(whole) // 2])
    refuses(lambda: table_files.read(path), f"{name}: not a", "file, or damaged (", "get it anew")


@pytest.mark.usefixtures("small_blocks")
def test_ragged_lines_have_a_number(tmp_path):
    path = csv(tmp_path, "a,b\n" + "1,2\n" * 50 + "1,2,3\n")
    refuses(
        lambda: table_files.read(path), f"{path}: line 52 has 3 values, but the header has 2; mend or drop that line"
    )


@pytest.mark.usefixtures("small_blocks")
def test_quotation_marks_that_are_never_closed(tmp_path):
    path = csv(tmp_path, 'a,b\n1,2\n1,"2\n' + "1,2\n" * 50)
    refuses(lambda: table_files.read(path), f"{path}: line 3 has a quotation mark that is never closed")


def test_text_that_is_not_utf8(tmp_path):
    path = csv(tmp_path, "a,b\n1,caf\xe9\n".encode("latin-1"))
    assert table_files.read(path)["b"].to_pylist() == ["café"]
    utf8 = DialectOptions(encoding="utf-8")
    refuses(lambda: table_files.read(path, options=utf8), "has letters that are not utf-8; give another --encoding")
    late = csv(tmp_path, b"a,b\n" + b"x,2\n" * (csv_tables._BLOCK // 4 + 1) + b"caf\xe9,2\n", "late.csv")
    refuses(lambda: table_files.read(late), "column 'a' has letters that are not UTF-8; say --encoding cp1252")
    cp1252 = DialectOptions(encoding="cp1252")
    assert table_files.read(late, options=cp1252)["a"].to_pylist()[-1] == "café"
    assert table_files.read(late, ["b"]).num_rows > 1_000_000  # what is not wanted is not looked at


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.arrow"])
def test_missing_columns_suggest_others(tmp_path, name):
    path = save(tmp_path, name)
    refuses(lambda: table_files.read(path, ["a", "bb"]), f"{name}: no column 'bb'; did you mean 'b'? (case matters)")
    refuses(lambda: table_files.read(path, ["price"]), "no column 'price'; it has 'a', 'b', 'c'")


def test_double_names(tmp_path):
    refuses(lambda: table_files.read(csv(tmp_path, "a,a\n,2\n")), "more than one column is called 'a'")


def test_folders_without_or_with_different_tables(tmp_path):
    (tmp_path / "notes.md").touch()
    refuses(lambda: table_files.read(tmp_path), "no tables in this folder")
    save(tmp_path, "t.csv")
    save(tmp_path, "t.parquet")
    refuses(lambda: table_files.read(tmp_path), "a folder of CSV and Parquet files; keep files of one kind only")


def test_files_without_permission(tmp_path, monkeypatch):
    path = save(tmp_path, "t.parquet")

    def forbidden(*_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    # Taking the right away from the file does not stop an administrator, as whom tests may run.
    monkeypatch.setattr(pq, "read_schema", forbidden)
    refuses(lambda: table_files.read(path), "t.parquet: no permission to read it; ask its owner")


# Tables of other libraries


class Stream:
    """What a polars data frame offers."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


class Interchange:
    """What a data frame offers that only speaks the data frame protocol."""

    def __init__(self, table):
        self.table = table

    def __dataframe__(self, nan_as_null=False, allow_copy=True):
        return self.table.__dataframe__(nan_as_null, allow_copy)


@pytest.mark.parametrize("wrap", [lambda table: table, lambda table: table.to_batches()[0], Stream, Interchange])
def test_arrow_and_what_speaks_it(wrap):
    table = TABLE.select(["a", "b"])
    assert frames.as_table(wrap(table)).to_pydict() == table.to_pydict()


def test_polars():
    frame = polars.DataFrame({"a": [1.0, None], "b": ["x", "y"]})
    assert frames.as_table(frame).to_pydict() == {"a": [1.0, None], "b": ["x", "y"]}


def test_pandas():
    frame = pandas.DataFrame({"a": [1.0, np.nan], "b": ["x", None], 3: [1, 2]}, index=[7, 8])
    frame["c"] = frame["b"].astype("category")
    expected = {"a": [1.0, None], "b": ["x", None], "3": [1, 2], "c": ["x", None]}
    assert frames.as_table(frame).to_pydict() == expected
    assert frames.as_table(frame).schema.metadata is None
    refuses(lambda: frames.as_table(pandas.DataFrame([[1, 2]], columns=["a", "a"])), "column is called 'a'")
    refuses(lambda: frames.as_table(pandas.DataFrame({"m": [1, "x"]})), "cannot be read as a table", "column m")
    refuses(lambda: frames.as_table(frame["a"]), "Series")


def test_arrays():
    table = frames.as_table(np.array([[1.0, 2.0], [3.0, np.nan]]))
    assert table.column_names == ["x0", "x1"]
    assert table["x0"].to_pylist() == [1.0, 3.0]
    assert frames.as_table(np.zeros((0, 2))).shape == (0, 2)
    assert frames.as_table(np.arange(4, dtype=">i4").reshape(2, 2))["x1"].to_pylist() == [1, 3]


def test_numbers_are_not_copied():
    array = np.asfortranarray(np.random.default_rng(0).normal(size=(5, 2)))
    table = frames.as_table(array)
    assert np.shares_memory(table["x1"].to_numpy(), array)
    shared = {"a": array[:, 0]}
    assert np.shares_memory(frames.as_table(shared)["a"].to_numpy(), array)


def test_objects_are_told_from_their_values():
    rows = [[1, "x", None, True, Decimal("1.5")], [2.5, None, np.nan, False, None]]
    for data in (np.array(rows, object), rows, [tuple(row) for row in rows]):
        table = frames.as_table(data)
        types = [pa.float64(), pa.string(), pa.null(), pa.bool_(), pa.decimal128(2, 1)]
        assert table.schema.types[:2] + table.schema.types[3:] == types[:2] + types[3:]
        assert table["x2"].null_count == 2


def test_dictionaries():
    assert frames.as_table({1: [1, 2], "b": np.array(["x", "y"])}).to_pydict() == {"1": [1, 2], "b": ["x", "y"]}


def test_what_is_no_table():
    refuses(lambda: frames.as_table(np.zeros(3)), "ndarray of shape (3,) is not a table; give rows and columns")
    refuses(lambda: frames.as_table(np.zeros((3, 0))), "is not a table")
    refuses(lambda: frames.as_table("rows.csv"), "str of shape () is not a table")
    refuses(lambda: frames.as_table(None), "is not a table")
    refuses(lambda: frames.as_table([1, 2]), "give a list of rows")
    refuses(lambda: frames.as_table([]), "give a list of rows")
    refuses(lambda: frames.as_table([[1, 2], [3]]), "row 2 has 1 values, but row 1 has 2")
    refuses(lambda: frames.as_table({"a": [1], "b": [1, 2]}), "dict cannot be read as a table")
    refuses(lambda: frames.as_table({"a": [1, "x"]}), "column 'a' cannot be read", "make all its values numbers")
    refuses(lambda: frames.as_table({"a": np.array([1j])}), "column 'a' cannot be read")
    refuses(lambda: frames.as_table({1: [1], "1": [2]}), "more than one column is called '1'")
    refuses(lambda: frames.as_table(pa.table([[1], [2]], ["a", "a"])), "more than one column is called 'a'")


# Writing


@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "out.CSV"])
def test_written_tables_come_back(tmp_path, name):
    table = TABLE.append_column("d", TABLE["b"].dictionary_encode())
    with table_files.write(tmp_path / name) as append:
        append(table.slice(0, 3))
        append(table.slice(3))
        assert not (tmp_path / name).exists()
    assert table_files.read(tmp_path / name).to_pydict() == table.to_pydict()
    assert inside(tmp_path) == [name]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, OSError])
@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_an_error_leaves_the_old_file(tmp_path, name, error):
    path = tmp_path / name
    path.write_text("old")

    def stopped():
        with table_files.write(path) as append:
            append(TABLE)
            raise error

    with pytest.raises(error):
        stopped()
    assert path.read_text() == "old"
    assert inside(tmp_path) == [name]


def test_columns_of_a_file_have_a_dictionary_where_values_repeat(tmp_path):
    """Numbers that all differ would take longer to write, and more room, with one."""
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            "id": np.arange(70_000),
            "number": rng.normal(size=70_000),
            "price": rng.integers(0, 30, 70_000) / 4,
            "name": [f"row {i}" for i in range(70_000)],
            "kind": pa.array(["a", "b", None, "c", "d"] * 14_000).dictionary_encode(),
            "flag": [True, False] * 35_000,
        }
    )
    with table_files.write(tmp_path / "rows.parquet") as append:
        append(table)
    group = pq.ParquetFile(tmp_path / "rows.parquet").metadata.row_group(0)
    columns = [group.column(i) for i in range(group.num_columns)]
    with_dictionary = {one.path_in_schema for one in columns if one.has_dictionary_page}
    assert with_dictionary == {"price", "kind"}
    assert pq.read_table(tmp_path / "rows.parquet").equals(table)
    with table_files.write(tmp_path / "lists.parquet") as append:
        append(pa.table({"list": [[1.5, 1.5]] * 9, "number": np.arange(9.0)}))
    assert pq.ParquetFile(tmp_path / "lists.parquet").metadata.row_group(0).column(0).has_dictionary_page


def test_nothing_written_is_no_file(tmp_path):
    with table_files.write(tmp_path / "out.csv"):
        pass
    assert not inside(tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_a_full_disk_is_a_clear_error(tmp_path, name, monkeypatch):
    def full(_):
        (tmp_path / f".{name}.full.ncprior-part").symlink_to("/dev/full")
        return "full"

    monkeypatch.setattr("secrets.token_hex", full)

    def fill():
        with table_files.write(tmp_path / name) as append:
            append(pa.table({"a": np.random.default_rng(0).normal(size=100_000)}))

    refuses(fill, f"{name}: cannot be written (No space left on device); check the folder and its free space")
    assert not inside(tmp_path)


def test_places_that_cannot_be_written(tmp_path):
    def start(path):
        with table_files.write(path) as append:
            append(pa.table({"a": [[1]]}))

    refuses(lambda: start(tmp_path / "out.xlsx"), "choose the name of a .parquet or .csv file")
    (tmp_path / "folder.csv").mkdir()
    refuses(lambda: start(tmp_path / "folder.csv"), "choose the name of a .parquet or .csv file")
    refuses(lambda: start(tmp_path / "nowhere" / "out.csv"), "cannot be written (No such file or directory)")
    refuses(lambda: start(tmp_path / "out.csv"), "out.csv: cannot be written (")
    assert inside(tmp_path) == ["folder.csv"]


# Every table

VALUES = {
    pa.float64(): st.floats(allow_nan=False, allow_infinity=False),
    pa.string(): st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=4),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
}


@st.composite
def any_table(draw):
    rows = draw(st.integers(1, 30))
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=2, max_size=4))
    made = [draw(st.lists(st.none() | VALUES[kind], min_size=rows, max_size=rows)) for kind in kinds]
    return pa.table(
        [pa.array(values, kind) for values, kind in zip(made, kinds, strict=True)], list("abcd"[: len(kinds)])
    )


@settings(max_examples=50, deadline=None)
@given(any_table(), st.integers(1, 40), st.sampled_from([".parquet", ".csv"]))
def test_pieces_are_the_whole(table, rows, suffix):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t{suffix}"
        with table_files.write(path) as append:
            append(table)
        types = dict(zip(table.column_names, table.schema.types, strict=True))
        whole = table_files.read(path, schema=types)
        pieces = list(table_files.stream(path, rows=rows, schema=types))
        assert [piece.num_rows for piece in pieces[:-1]] == [rows] * (len(pieces) - 1)
        assert pa.concat_tables(pieces).equals(whole)
        if suffix == ".parquet":
            assert whole.equals(table)
        else:
            assert whole.num_rows == table.num_rows
            numbers = [name for name, kind in types.items() if kind != pa.string()]
            assert whole.select(numbers).equals(table.select(numbers))
