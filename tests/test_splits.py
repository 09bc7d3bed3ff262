"""Splits against small tables worked out by hand."""

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncprior.data import labelled
from ncprior.data.splits import gap_splits, random_splits, tail_splits, time_split
from ncprior.errors import UserError


def test_a_gap_is_the_middle_third_by_one_input():
    # In order: rows 2, 5, 0 | 3, 6, 1 | 4: of seven, those at places 2 (7 // 3) and 3; 14 // 3 = 4 is not included.
    table = pa.table({"a": [3.0, 6.0, 1.0, 4.0, 7.0, 2.0, 5.0]})
    (split,) = gap_splits(table)
    assert split.name == "gap in a"
    np.testing.assert_array_equal(split.test, [0, 3])
    np.testing.assert_array_equal(split.train, [1, 2, 4, 5, 6])


def test_equal_values_in_a_gap_stay_in_the_order_of_the_table():
    (split,) = gap_splits(pa.table({"a": [1, 0, 1, 1, 0, 1]}))  # in order: rows 1, 4 | 0, 2 | 3, 5
    np.testing.assert_array_equal(split.test, [0, 2])


def test_only_numbers_that_vary_have_gaps_and_tails():
    table = pa.table(
        {
            "number": list(range(10)),
            "constant": [1.5] * 10,
            "text": list("abcdefghij"),
            "flag": [True, False] * 5,
            "day": [datetime.date(2020, 1, 1 + i) for i in range(10)],
            "empty": pa.nulls(10),
            "other": np.arange(10.0)[::-1],
        }
    )
    assert [split.name for split in gap_splits(table)] == ["gap in number", "gap in other"]
    assert [split.name for split in tail_splits(table)] == ["tail of number", "tail of other"]
    np.testing.assert_array_equal(tail_splits(table)[0].test, [8, 9])
    np.testing.assert_array_equal(tail_splits(table)[1].test, [0, 1])


def test_rows_without_a_value_are_trained_on():
    table = pa.table({"a": [None, 1.0, 2.0, 3.0, None, 4.0, 5.0, 6.0]})
    np.testing.assert_array_equal(gap_splits(table)[0].test, [3, 5])
    np.testing.assert_array_equal(tail_splits(table)[0].test, [7])
    for (split,) in (gap_splits(table), tail_splits(table)):
        assert {0, 4} <= set(split.train)


def test_equal_values_are_on_one_side_of_a_tail():
    # A fifth is two rows. The value 5 begins there but has three: those are closer to two than the one above it.
    (split,) = tail_splits(pa.table({"a": [0, 1, 5, 2, 5, 3, 4, 0, 1, 5]}))
    np.testing.assert_array_equal(split.test, [2, 4, 9])
    # Four rows have the boundary value 5 and one has more: one is closer to two than five are.
    (split,) = tail_splits(pa.table({"a": [0, 5, 5, 2, 5, 3, 4, 0, 9, 5]}))
    np.testing.assert_array_equal(split.test, [8])
    # The lower of two values is most rows: the tail is the other one.
    (split,) = tail_splits(pa.table({"a": [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]}))
    np.testing.assert_array_equal(split.test, [0])


def test_time_is_split_by_dates_and_numbers_alike():
    days = [datetime.datetime(2021, 1, 1 + (7 * i) % 10) for i in range(10)]
    by_date = time_split("when", pa.chunked_array([days]))
    by_number = time_split("when", pa.chunked_array([[day.day for day in days]]))
    # The last two days are the ninth and the tenth: 7 * 4 % 10 = 8 and 7 * 7 % 10 = 9.
    for split in (by_date, by_number):
        np.testing.assert_array_equal(split.test, [4, 7])
        np.testing.assert_array_equal(split.train, [0, 1, 2, 3, 5, 6, 8, 9])


def test_no_instant_is_on_both_sides_and_rows_without_one_are_on_neither():
    split = time_split("year", pa.chunked_array([[2001, 2002, None, 2002, 2000, 2001, 2000, 2002]]))
    np.testing.assert_array_equal(split.test, [1, 3, 7])
    np.testing.assert_array_equal(split.train, [0, 4, 5, 6])


@pytest.mark.parametrize(
    ("values", "message"),
    [(["a", "b"], "holds neither dates nor numbers"), ([3, 3, 3], "no two different times"), ([None, 1.0], "no two")],
)
def test_columns_that_tell_no_time(values, message):
    with pytest.raises(UserError, match=message):
        time_split("when", pa.chunked_array([values]))


def test_random_splits_are_reproducible_and_do_not_depend_on_their_number():
    three, five = random_splits(50, 3, seed=1), random_splits(50, 5, seed=1)
    for a, b in zip(three, five, strict=False):
        np.testing.assert_array_equal(a.test, b.test)
    assert {len(split.test) for split in five} == {5}
    assert len({tuple(split.test) for split in five}) == 5
    assert not np.array_equal(random_splits(50, 1, seed=2)[0].test, five[0].test)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.one_of(st.none(), st.integers(-3, 3), st.floats(-1e300, 1e300)), min_size=4, max_size=40))
def test_every_row_is_on_one_side(values):
    column = pa.array([None if value is None else float(value) for value in values], pa.float64())
    table = pa.table({"a": column})
    for split in [*gap_splits(table), *tail_splits(table), *random_splits(len(values), 2)]:
        assert len(split.test)
        assert len(split.train)
        np.testing.assert_array_equal(np.sort(np.concatenate([split.train, split.test])), np.arange(len(values)))


def write(path, **columns):
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_rows_without_a_target_are_left_out(tmp_path):
    path = write(tmp_path / "t.csv", a=range(30), day=["2020-01-01"] * 30, y=[*range(25), *[""] * 5])
    data = labelled.load(path, "y")
    assert data.inputs.column_names == ["a", "day"]
    assert data.dropped == 5
    np.testing.assert_array_equal(data.targets, np.arange(25))
    some = labelled.load(path, "y", ["a"], extra=["day"], rows=22)
    assert some.inputs.column_names == ["a"]
    assert some.extra.column_names == ["day"]
    np.testing.assert_array_equal(some.inputs["a"].to_numpy(), some.targets)
    assert len(some.targets) == 22
    assert (np.diff(some.targets) > 0).all()


def test_counters_without_a_name_are_left_out(tmp_path):
    path = write(tmp_path / "t.csv", **{"": range(30), "a": range(30), "y": range(30)})
    data = labelled.load(path, "y")
    assert data.inputs.column_names == ["a"]
    assert data.left_out == ("unnamed 1",)
    assert labelled.load(path, "y", ["unnamed 1"]).inputs.column_names == ["unnamed 1"]


def test_a_target_of_true_and_false(tmp_path):
    path = write(tmp_path / "t.csv", a=range(30), y=["true", "false"] * 15)
    np.testing.assert_array_equal(labelled.load(path, "y").targets, [1, 0] * 15)


def test_tables_that_cannot_be_used(tmp_path):
    path = write(tmp_path / "t.csv", a=[*range(29), "inf"], word=["x", "z"] * 15, same=[1] * 30, y=range(30))
    few = write(tmp_path / "few.csv", a=range(5), y=range(5))
    cases = [
        ((path, "z"), "no column 'z'"),
        ((path, "word"), "text 'x' in the target 'word', row 1; a target must be numbers"),
        ((path, "same"), "infinite value in column 'a', row 30"),
        ((path, "same", ["word"]), "every value of 'same' is the same"),
        ((path, "y", ["y"]), "is the target and cannot be an input"),
        ((path, "y", ["b"]), "no column 'b'"),
        ((few, "y"), "5 rows have a value of 'y'"),
    ]
    for arguments, message in cases:
        with pytest.raises(UserError, match=message):
            labelled.load(*arguments)
    with pytest.raises(UserError, match="no column 'when'"):
        labelled.load(path, "y", extra=["when"])


def test_a_fingerprint_tells_changed_contents(tmp_path):
    path = write(tmp_path / "t.csv", a=range(3))
    copy = write(tmp_path / "copy.csv", a=range(3))
    before = labelled.fingerprint(path)
    assert before == labelled.fingerprint(copy)
    write(path, a=range(4))
    assert labelled.fingerprint(path) != before


@pytest.mark.parametrize("value", ["1_000", "much"])
def test_text_among_targets_is_named(value):
    for values in (pa.array(["1", None, value]), pa.array(["1", None, value]).dictionary_encode()):
        with pytest.raises(UserError, match=f"text '{value}' in the target 'y', row 3; a target must be numbers"):
            labelled.read_targets(pa.table({"y": values}), ["y"])


def test_targets_are_numbers_in_whatever_they_come():
    for values in (["1", None, "-2e3"], [1, None, -2000], [1.0, float("nan"), -2e3]):
        for column in (pa.array(values), pa.array(values).dictionary_encode()):
            truth, known = labelled.read_targets(pa.table({"y": column}), ["y"])
            np.testing.assert_array_equal(truth[:, 0], [1, np.nan, -2000])
            np.testing.assert_array_equal(known, [True, False, True])
    days = pa.array([datetime.date(2020, 1, 1)]).dictionary_encode()
    with pytest.raises(UserError, match="the target 'y' holds dates"):
        labelled.read_targets(pa.table({"y": days}), ["y"])
