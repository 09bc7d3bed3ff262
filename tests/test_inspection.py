"""What a person should look at in a table: every warning has a table that deserves it and one that does not."""

import numpy as np
import pyarrow as pa
import pytest

from ncprior.data.encoding import Encoder
from ncprior.data.inspection import look_at, row_counters
from ncprior.errors import UserError

ROWS = 120
RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(2, ROWS))
PLAIN = {"x": X}


def told(columns, targets=None):
    table = pa.table({**PLAIN, **columns})
    return look_at(table, {"y": Y[: table.num_rows]} if targets is None else targets, Encoder.fit(table))


def test_a_plain_table_needs_no_words():
    assert told({}) == []
    assert told({"z": X + 0.3 * Y, "town": np.where(X > 0, "Aby", "Bex")}) == []


@pytest.mark.parametrize("leak", [Y**3, -2 * Y + 1, np.exp(Y), np.where(np.arange(ROWS) == 5, np.nan, Y)])
def test_columns_that_give_the_target_away(leak):
    line = "'leak' gives 'y' away: they are nearly one-to-one; if it is not known beforehand, --exclude-columns leak"
    assert told({"leak": leak}) == [line]


def test_categories_that_give_the_target_away():
    level = np.array([1.0, 5.0, 9.0] * 40)
    words = np.array(["low", "mid", "high"] * 40)
    lines = told({"my level": words}, {"y": level + 0.001 * X})
    assert lines == [
        "'my level' gives 'y' away: they are nearly one-to-one; if it is not known beforehand, "
        '--exclude-columns "my level"'
    ]
    assert told({"level": words}, {"y": level + X}) == []


def test_columns_that_were_left_out_but_look_like_numbers_or_dates():
    sizes = [f"{value:.3f}" if i % 9 else f"about {value:.1f}" for i, value in enumerate(X)]
    line = told({"size": sizes})[0]
    assert line.startswith("'size' was left out, though 90% of it looks like numbers or dates, but not 'about ")
    assert line.endswith("; mend it to use it")
    days = [f"{i % 28 + 1}.{i % 12 + 1}.{2000 + i}" if i % 9 else f"spring {i}" for i in range(ROWS)]
    assert "'day' was left out" in told({"day": days})[0]
    assert told({"name": [f"name {i}" for i in range(ROWS)]}) == []


@pytest.mark.parametrize(
    ("written", "examples"),
    [
        ([f"{i}.5 ± 0.1" for i in range(ROWS)], "'0.5 ± 0.1'"),
        ([f"{i % 9 + 1},{i % 90 + 10},100.50" for i in range(ROWS)], "'1,10,100.50'"),
        ([f"{1990 + i // 12}-{i % 12 + 1:02d}" for i in range(ROWS)], "'1990-01'"),
        ([f"{i + 1}. August 1999" for i in range(ROWS)], "'1. August 1999'"),
        ([f"{i % 28 + 1}. Mai {1900 + i}" for i in range(ROWS)], "'1. Mai 1900'"),
        ([f"{i}.5 K" if i != 50 else "12 bar" for i in range(ROWS)], "'0.5 K' and '12 bar'"),
        ([f"{i}" if i != 50 else "0,5" for i in range(ROWS)], "'0' and '0,5'"),
    ],
)
def test_columns_that_were_left_out_but_nearly_are_numbers_or_dates(written, examples):
    assert told({"size": written}) == [
        f"'size' was left out, though it looks like numbers or dates, such as {examples}; "
        "to use it, write all of it as plain numbers or dates"
    ]


@pytest.mark.parametrize("name", ["{} Main Street", "AB-{}", "3f{}a-e1{}", "v{}"])
def test_names_with_digits_are_no_numbers(name):
    assert told({"name": [name.format(i, i) for i in range(ROWS)]}) == []


def test_categories_that_are_numbers_or_dates():
    degrees = [f"{370 + i % 15}.5 K" for i in range(ROWS)]
    assert told({"t": degrees}) == [
        "'t' is text, and so a category, though it reads as numbers, such as '370.5 K'; "
        "convert it if that is what it is"
    ]
    days = [f"{i % 28 + 1:02d}.08.2021" for i in range(ROWS)]
    assert told({"day": days})[0].startswith("'day' is text, and so a category")
    codes_of_units = [f"{i % 15} {'kg' if i % 2 else 'm'}" for i in range(ROWS)]
    whole = [f"{i % 15}" for i in range(ROWS)]
    for codes in (
        whole,
        ["-", *whole[1:]],
        codes_of_units,
        [f"{i % 5}.5 K" for i in range(ROWS)],
        [*degrees[1:], "hot"],
    ):
        assert told({"code": codes}) == []
    assert told({"t": pa.array(degrees).dictionary_encode()}) == []


def test_row_counters_and_ids():
    assert told({"n": np.arange(5, 5 + ROWS)}) == [
        "'n' counts the rows and was taken as an input; if it means nothing, --exclude-columns n"
    ]
    ids = np.random.default_rng(1).permutation(100_000)[:ROWS]
    for name in ("id", "house_id", "customerId", "row", "Nr"):
        assert told({name: ids})[0].startswith(f"{name!r} looks like an id and was taken as an input")
    assert told({"population": ids}) == []
    for name, values in (("n", np.r_[np.arange(ROWS - 1), ROWS - 2]), ("id", np.r_[ids[1:], ids[1]])):  # a row twice
        assert told({name: values})[0].startswith(f"{name!r} ")
    assert told({"id": np.arange(ROWS) // 2}) == []
    assert told({"width": X, "idea": X * 2 + Y}) == ["'width' holds the same values as 'x'; leave one of them out"]


@pytest.mark.parametrize("name", ["unnamed 1", "Unnamed: 0", ""])
def test_counters_without_a_name_are_left_out(name):
    for first in (0, 1):
        assert row_counters(pa.table({name: np.arange(first, first + 9), "x": X[:9]})) == [name]
    assert row_counters(pa.table({name: pa.nulls(9), "x": X[:9]})) == [name]
    assert row_counters(pa.table({name: X[:9], "x": np.arange(9)})) == []
    assert row_counters(pa.table({name: ["a"] * 9, "x": np.arange(9)})) == []


@pytest.mark.parametrize("value", [-999, -99, 9999, -9999, 1e20])
def test_sentinels(value):
    some = np.where(np.arange(ROWS) % 40 == 3, value, 0.4 * X + 0.3 * Y)
    assert told({"z": some}) == [
        f"'z' is {value:g} in 3 rows, far from all its other values; if that means missing, leave it empty"
    ]
    assert told({"z": np.where(np.arange(ROWS) == 3, 99.0, 60 * X + 30 * Y)}) == []


def test_targets_with_few_values():
    line = "the target 'k' has only 3 values (0, 1, 2): if these are classes, use a classifier"
    assert told({}, {"k": np.arange(ROWS) % 3.0}) == [line]
    assert told({}, {"k": np.round(100 * Y)}) == []


def test_columns_that_are_constant_or_equal():
    assert told({"a": np.ones(ROWS), "b": ["k"] * ROWS}) == [
        "'a', 'b': the same in every row, so nothing can be learned from them"
    ]
    assert told({"again": X}) == ["'again' holds the same values as 'x'; leave one of them out"]
    late = pa.array(10**13 + np.arange(ROWS) ** 2, pa.timestamp("s"))  # years that Python does not have
    assert told({"a": late, "b": late}) == ["'b' holds the same values as 'a'; leave one of them out"]


def test_copies_of_rows():
    rows = np.r_[np.arange(ROWS), 3, 7]
    lines = told({"x": X[rows]}, {"y": Y[rows]})
    assert lines == ["2 rows are copies of others, target and all; if they were not measured more than once, drop them"]
    assert told({"x": X[rows]}, {"y": np.arange(ROWS + 2) + 0.5}) == []  # measured again, with another result


def test_tables_that_are_too_small():
    assert told({"x": X[:30]}, {"y": Y[:30]}) == ["30 rows are few: how good the model is, is hardly known"]


# Units, bounds and marks are part of how a column is encoded


def written(folder, text):
    from ncprior.data import table_files

    (folder / "t.csv").write_text(text)
    return table_files.read(folder / "t.csv")


def test_the_summary_says_how_cells_were_written(tmp_path):
    table = written(tmp_path, "t,p,d,f,x\n300 K,5%,27.08.2021,yes,1\n310 K,-,28.08.2021,no,2\n320 K,7%,?,yes,3\n")
    said = {column.name: column.treatment for column in Encoder.fit(table).columns}
    assert said == {
        "t": "number, median 310 (in K)",
        "p": "number, median 6, 33% missing (in %, '-' is missing)",
        "d": "date as trend, day of year, weekday, 33% missing (written day.month.year, '?' is missing)",
        "f": "true or false",
        "x": "number, median 2",
    }


def test_a_row_of_units_is_that_of_its_columns(tmp_path):
    encoder = Encoder.fit(written(tmp_path, "t,s\nK,\n300,x\n310,y\n320,x\n"))
    assert [column.unit for column in encoder.columns] == ["K", ""]
    assert encoder.columns[0].treatment == "number, median 310 (in K)"


def test_other_units_than_in_training_are_refused(tmp_path):
    encoder = Encoder.fit(written(tmp_path, "t,x\n300 K,1\n310 K,2\n320 K,3\n"))
    plain = encoder.transform(written(tmp_path, "t,x\n300,1\n320,2\n"))
    np.testing.assert_array_equal(plain, encoder.transform(written(tmp_path, "t;x\n300,0 K;1\n320 K;2\n")))
    np.testing.assert_array_equal(plain, encoder.transform(pa.table({"t": ["300 K", "320"], "x": [1, 2]})))
    with pytest.raises(UserError, match="column 't' is in °C, but was in K in training; convert it"):
        encoder.transform(written(tmp_path, "t,x\n30 °C,1\n40 °C,2\n"))


def test_bounds_are_their_numbers_with_a_flag(tmp_path):
    table = written(tmp_path, "pb,x\n<0.05,1\n0.1,2\n0.3,3\n>5,4\n")
    encoder = Encoder.fit(table)
    assert encoder.names == ("pb", "pb is a bound", "x", "unexpected")
    assert encoder.columns[0].treatment == "number, median 0.2, 50% bounds such as <0.05"
    matrix = encoder.transform(table)
    assert matrix[:, 1].tolist() == [1, 0, 0, 1]
    as_numbers = encoder.transform(pa.table({"pb": [0.05, 0.1, 0.3, 5], "x": [1, 2, 3, 4]}))
    np.testing.assert_array_equal(matrix[:, [0, 2, 3]], as_numbers[:, [0, 2, 3]])
    assert not as_numbers[:, 1].any()
    refitted = encoder.refit(table, np.array([1, 2])).transform(table)
    assert refitted[:, -1].tolist() == [1, 0, 0, 1]  # rows without bounds know of none
    assert Encoder.from_json(encoder.to_json()) == encoder


def test_bounds_that_training_never_had_are_unexpected(tmp_path):
    encoder = Encoder.fit(pa.table({"pb": [0.05, 0.1, 0.3], "x": [1.0, 2, 3]}))
    matrix = encoder.transform(written(tmp_path, "pb,x\n<0.05,1\n0.1,2\n"))
    assert matrix[:, -1].tolist() == [1, 0]


def test_how_files_were_written_is_kept_for_those_that_leave_it_open(tmp_path):
    encoder = Encoder.fit(written(tmp_path, "a;d;x\n1,5;25/06/2021;1\n2,5;07/08/2021;2\n"))
    assert (encoder.decimal, encoder.dates) == (",", "dmy")
    assert Encoder.from_json(encoder.to_json()) == encoder
    assert (Encoder.fit(pa.table(PLAIN)).decimal, Encoder.fit(pa.table(PLAIN)).dates) == ("", "")
