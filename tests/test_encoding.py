"""Columns of any kind as numbers: each rule by hand, and what must hold for every table."""

import datetime
import json
import re
import time
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as feather
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncprior.data import table_files
from ncprior.data.encoding import Encoder, Group
from ncprior.data.frames import as_table
from ncprior.data.labelled import check_inputs
from ncprior.errors import UserError


def encoded(train, new=None, **options):
    """The encoder of a training table, and the matrix of the new one."""
    encoder = Encoder.fit(as_table(train), **options)
    return encoder, encoder.transform(as_table(train if new is None else new))


def treatment(values, **options):
    return Encoder.fit(pa.table({"a": values}), **options).columns[0].treatment


def refuses(table, new, message):
    encoder = Encoder.fit(pa.table(table))
    with pytest.raises(UserError, match=message) as caught:
        encoder.transform(pa.table(new))
    assert "\n" not in str(caught.value)


# Numbers


def test_numbers_are_centred_by_median_and_scaled_by_quartiles():
    encoder, matrix = encoded({"a": [1.0, 2.0, 3.0, 4.0, 5.0]})
    np.testing.assert_allclose(matrix[:, 0], np.array([-2, -1, 0, 1, 2]) * 1.349 / 2, rtol=1e-6)
    assert encoder.groups == (Group("number", (0,)), Group("flag", (1,)))
    assert encoder.names == ("a", "unexpected")
    assert encoder.columns[0].treatment == "number, median 3"


def test_far_values_are_compressed_smoothly_and_without_bound():
    encoder = Encoder.fit(pa.table({"a": [-1.349, 0.0, 1.349]}))  # quartiles -0.6745 and 0.6745: z is the value
    points = np.array([3.0, 4.0, -4.0, 3.001, 1e9, 1e300])
    z = encoder.transform(pa.table({"a": points}))[:, 0]
    np.testing.assert_allclose(z[:3], [3, 3 + np.log(2), -3 - np.log(2)], rtol=1e-6)
    assert z[3] - z[0] == pytest.approx(0.001, rel=1e-2)
    assert z[0] < z[1] < z[4] < z[5] < 1000


def test_scale_is_the_standard_deviation_if_quartiles_are_equal():
    values = [0.0] * 8 + [1.0, 5.0]
    encoder = Encoder.fit(pa.table({"a": values}))
    assert encoder.columns[0].scale == pytest.approx(np.std(values))


def test_quartiles_that_differ_by_rounding_alone_count_as_equal():
    values = [0.3] * 40 + [0.1 + 0.2] * 40 + [0.0, 1.0] * 2
    assert Encoder.fit(pa.table({"a": values})).columns[0].scale == pytest.approx(np.std(values), rel=1e-6)


def test_one_absurd_value_does_not_hide_the_others():
    values = [*np.linspace(-1, 1, 100), 1e300]
    matrix = encoded({"a": values})[1]
    assert matrix[0, 0] < -1
    assert matrix[99, 0] > 1


@pytest.mark.parametrize(
    "values",
    [
        [1e308, -1e308, 5e307, 1.7e308],
        [5e-324, 1e-323, 0.0, 2e-323],
        [1e-300, 2e-300, 3e-300],
        [1e9 + 1e-4 * i for i in range(9)],
        [1e300, 1e-300, 0.0],
    ],
)
def test_extreme_scales_stay_finite_and_in_order(values):
    matrix = encoded({"a": values}, {"a": [*sorted(values), 1.7e308, -1.7e308]})[1]
    assert np.isfinite(matrix).all()
    inside = matrix[: len(values), 0]
    assert (np.diff(inside) >= 0).all()


def test_small_spread_on_a_large_offset_is_seen():
    values = 1e9 + np.linspace(0, 1e-3, 11)
    inside = encoded({"a": values})[1][:, 0]
    assert inside[-1] - inside[0] == pytest.approx(2 * 1.349, rel=1e-3)


def test_missing_numbers_are_zero_with_a_flag():
    values = pa.array([1.0, None, float("nan"), 2.0, 3.0])
    encoder, matrix = encoded(pa.table({"a": values}))
    assert encoder.groups == (Group("number", (0,)), Group("flag", (1,)), Group("flag", (2,)))
    assert encoder.names == ("a", "a missing", "unexpected")
    assert encoder.columns[0].treatment == "number, median 2, 40% missing"
    np.testing.assert_array_equal(matrix[:, 1], [0, 1, 1, 0, 0])
    np.testing.assert_array_equal(matrix[1:4, 0], [0, 0, 0])
    assert not matrix[:, -1].any()


def test_infinite_values_are_refused_by_row():
    refuses({"a": [1.0, 2.0]}, {"a": [1.0, float("-inf")]}, r"infinite value in column 'a', row 2: remove it or mark")
    with pytest.raises(UserError, match="column 'a', row 1"):
        Encoder.fit(pa.table({"a": [float("inf"), 1.0]}))
    with pytest.raises(UserError, match="row 102"):
        Encoder.fit(pa.table({"a": [1.0, 2.0]})).transform(pa.table({"a": [1.0, np.inf]}), first_row=101)


def test_numbers_are_the_same_alone_together_and_as_an_array():
    """Columns of float64 are encoded together, those of float32 one by one; both as the rows of an array are."""
    rng = np.random.default_rng(0)
    train = pa.table(
        {name: rng.normal(size=50).astype(np.float32).astype(float) for name in "abcd"} | {"e": [1.0] * 50}
    )
    train = train.set_column(1, "b", pa.array([None, *train["b"].to_pylist()[1:]], pa.float64()))
    encoder = Encoder.fit(train)
    rows = (10 ** rng.uniform(-2, 3, size=(300_000, 5)) * rng.choice([-1, 1], size=(300_000, 5))).astype(np.float32)
    rows[rng.uniform(size=rows.shape) < 0.1] = np.nan
    together = pa.table({name: pa.array(rows[:, i].astype(float)) for i, name in enumerate("abcde")})
    alone = pa.table({name: pa.array(rows[:, i]) for i, name in enumerate("abcde")})
    some = alone.set_column(2, "c", together["c"]).set_column(3, "d", together["d"])
    expected = encoder.transform(alone)
    assert expected[:, :-1].any(0).all()
    assert 0 < expected[:, -1].mean() < 1
    for found in (encoder.transform(together), encoder.transform(some), encoder.transform_numbers(rows)):
        np.testing.assert_array_equal(found, expected)
    assert encoder.only_numbers
    assert not Encoder.fit(pa.table({"a": [1.0, 2.0], "b": ["x", "y"]})).only_numbers


def test_infinite_values_among_many_rows_and_columns_are_found():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200_000, 3))
    encoder = Encoder.fit(as_table(rows))
    rows[150_003, 1] = np.inf
    with pytest.raises(UserError, match="infinite value in column 'x1', row 150014:"):
        encoder.transform(as_table(rows), first_row=11)
    with pytest.raises(UserError, match="infinite value in column 'x1', row 300007:"):
        encoder.transform(as_table(rows), first_row=2 * np.arange(200_000) + 1)


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        (pa.array([1, 2, 4], pa.int8()), [1, 2, 4]),
        (pa.array([1, 2, 4], pa.uint64()), [1, 2, 4]),
        (pa.array([1, 2, 4], pa.float16()), [1, 2, 4]),
        (pa.array([Decimal("1.5"), Decimal("2.5"), Decimal("4.5")]), [1.5, 2.5, 4.5]),
        (pa.array([1500, 2500, 4500], pa.duration("ms")), [1.5, 2.5, 4.5]),
    ],
)
def test_every_type_of_number(values, seconds):
    encoder, matrix = encoded(pa.table({"a": values}))
    assert encoder.columns[0].centre == seconds[1]
    np.testing.assert_array_equal(matrix, encoded({"a": np.array(seconds)})[1])


def test_integers_and_floats_mix():
    encoder = Encoder.fit(pa.table({"a": [1, 2, 3]}))
    np.testing.assert_array_equal(
        encoder.transform(pa.table({"a": [1.0, 3.0]})), encoder.transform(pa.table({"a": [1, 3]}))
    )


# Flags


def test_booleans_are_flags():
    encoder, matrix = encoded(pa.table({"a": pa.array([True, False, None])}))
    assert encoder.groups == (Group("flag", (0,)), Group("flag", (1,)), Group("flag", (2,)))
    np.testing.assert_array_equal(matrix, [[1, 0, 0], [0, 0, 0], [0, 1, 0]])
    assert encoder.columns[0].treatment == "true or false, 33% missing"
    np.testing.assert_array_equal(encoder.transform(pa.table({"a": [1.0, 0.0]})), [[1, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(encoder.transform(pa.table({"a": ["true", "false"]})), [[1, 0, 0], [0, 0, 0]])


def test_booleans_must_stay_booleans():
    refuses({"a": [True, False]}, {"a": [1, 7]}, "7 in column 'a', row 2, which was true or false in training")
    refuses({"a": [True, False]}, {"a": ["true", "perhaps"]}, "text 'perhaps' in column 'a', row 2, which was true")


# Categories


def test_categories_are_one_hot_by_frequency_then_text():
    encoder, matrix = encoded({"a": ["z", "b", "a", "z"]})
    assert encoder.names == ("a = z", "a = a", "a = b", "unexpected")
    assert encoder.groups == (Group("category", (0, 1, 2)), Group("flag", (3,)))
    np.testing.assert_array_equal(matrix, [[1, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]])
    assert encoder.columns[0].treatment == "category with 3 values"


def test_two_values_are_a_block_of_two():
    assert encoded({"a": ["yes", "no", "yes"]})[0].groups[0] == Group("category", (0, 1))


def test_rare_values_share_a_column():
    train = {"a": ["a"] * 4 + ["b"] * 3 + ["c", "d", "e", "e"]}
    encoder, matrix = encoded(train, {"a": ["a", "b", "c", "d", "e", "new"]}, most_categories=3)
    assert encoder.names == ("a = a", "a = b", "a other", "unexpected")
    np.testing.assert_array_equal(matrix, [[1, 0, 0, 0], [0, 1, 0, 0], *[[0, 0, 1, 0]] * 3, [0, 0, 0, 1]])
    assert encoder.columns[0].treatment == "category with 5 values, of which the rarest 3 count as one"


def test_a_missing_category_is_one_of_its_own():
    encoder, matrix = encoded(pa.table({"a": ["x", None, "x"]}))
    assert encoder.names == ("a = x", "a missing", "unexpected")
    np.testing.assert_array_equal(matrix, [[1, 0, 0], [0, 1, 0], [1, 0, 0]])
    assert encoder.columns[0].treatment == "category with 1 value, 33% missing"


def test_missing_and_other_have_different_columns():
    train = pa.table({"a": ["a", "a", "a", "b", "b", "c", "d", "d", None]})
    matrix = encoded(train, most_categories=3)[1]
    np.testing.assert_array_equal(matrix.argmax(1), [0, 0, 0, 1, 1, 2, 2, 2, 3])


def test_text_that_hardly_repeats_is_left_out():
    names = [f"name {i}" for i in range(60)]
    assert treatment(names) == "left out: every value is different text"
    assert treatment([*names, "name 0"]) == "left out: most values are different text"
    assert treatment(names * 2) == "category with 60 values, of which the rarest 11 count as one"


@pytest.mark.parametrize(("different", "rows"), [(11, 11), (40, 40), (40, 44), (50, 50)])
def test_text_that_hardly_repeats_is_left_out_of_small_tables_too(different, rows):
    names = [f"name {i % different}" for i in range(rows)]
    assert treatment(names).startswith("left out: " + ("every" if different == rows else "most"))
    assert treatment(names + names) == f"category with {different} values"


def test_few_values_and_values_that_repeat_are_a_category():
    assert treatment([f"name {i}" for i in range(10)]) == "category with 10 values"
    assert treatment([f"name {i % 40}" for i in range(45)]) == "category with 40 values"


@pytest.mark.parametrize("values", [["0,5", "-1.234,5", "+3,25"], ["0,5", "1,5", "2"]])
def test_numbers_with_commas_are_refused(values):
    values = [f"{value}{i}" for i in range(20) for value in values]
    with pytest.raises(UserError, match="column 'a' holds numbers with commas, such as '0,50', which read as text"):
        check_inputs(pa.table({"a": [*values, None, "?"]}))


@pytest.mark.parametrize(
    "values",
    [
        ["0,5", "1,5", "2,5"] * 20,
        [f"{i},x" for i in range(60)],
        [f"{i},{i},{i}" for i in range(60)],
        [*map(str, range(60)), *(f"{i},{i + 1}" for i in range(40))],
    ],
)
def test_other_text_with_commas_is_text(values):
    check_inputs(pa.table({"a": values}))
    assert Encoder.fit(pa.table({"a": values})).columns[0].kind in ("category", "left out")


@pytest.mark.parametrize(
    "values",
    [
        [f"{i},234,567" for i in range(60)],
        [f"{i},234.50" for i in range(60)],
        [*(f"{i}.50" for i in range(60)), *(f"1,{i}.5" for i in range(100, 140))],
        [*map(str, range(100)), *(f"1,{i}" for i in range(100, 140))],
    ],
)
def test_separators_of_thousands_are_refused(values):
    with pytest.raises(UserError, match="column 'a' holds numbers with commas"):
        check_inputs(pa.table({"a": values}))


@pytest.mark.parametrize(
    ("numbers", "other"),
    [
        ([f"{i / 7}" for i in range(59)], "oops"),
        ([f"{i / 7}" for i in range(59)], "3,7"),
        ([f"-{i}e3" for i in range(59)], "?"),
        ([f"{i}" for i in range(59)], "oops"),
        ([f"{i / 10}" for i in range(59)] * 20, "oops"),
    ],
)
def test_a_text_among_numbers_is_told(numbers, other):
    table = pa.table({"a": [*numbers[:30], None, other, *numbers[30:]]})
    with pytest.raises(UserError, match=rf"text '{re.escape(other)}' in column 'a', row 32, where most values are num"):
        check_inputs(table)
    check_inputs(pa.table({"a": table["a"].combine_chunks().dictionary_encode()}))  # someone made it a category


@pytest.mark.parametrize(
    "values",
    [
        [*map(str, range(9)), "oops"],
        [*map(str, range(50)), *"abcdef"],
        [*map(str, range(1000, 1060)), "1003B"],
        [*map(str, range(1000, 1060)), "online"] * 5,
        [*(f"{i / 4:.2f}" for i in range(60)), "V57", "E10"] * 5,
        [*(f"{i:05d}" for i in range(60)), "none"],
    ],
    ids=["few", "many texts", "names of rows", "codes", "codes with fractions", "zeros that codes begin with"],
)
def test_codes_are_text(values):
    check_inputs(pa.table({"a": values}))


def test_missing_values_are_none_of_the_different_values():
    commas, others = [f"{i},5" for i in range(18)], ["?", "none"]
    for values in (commas + others, [*commas, *others, None]):
        with pytest.raises(UserError, match="holds numbers with commas"):
            check_inputs(pa.table({"a": values}))


def test_text_of_digits_stays_text_but_numbers_in_objects_are_numbers():
    assert Encoder.fit(pa.table({"a": ["1", "2"]})).columns[0].kind == "category"
    assert Encoder.fit(as_table(np.array([[1, "x"], [2.5, "y"]], object))).columns[0].kind == "number"


@pytest.mark.parametrize(
    "codes",
    [
        pa.array([3, 1]),
        pa.array([3.0, 1.0]),
        pa.array([3.0, 1.0], pa.float16()),
        pa.array([Decimal("3.0"), Decimal("1.0")]),
        pa.array(["3", "1"], pa.large_string()),
        pa.array(["3", "1"], pa.string_view()),
        pa.array(["3", "1"]).dictionary_encode(),
        pa.array([3, 1]).dictionary_encode(),
    ],
)
def test_codes_of_categories_may_arrive_as_numbers(codes):
    encoder = Encoder.fit(pa.table({"a": ["1", "2", "3"]}))
    np.testing.assert_array_equal(encoder.transform(pa.table({"a": codes})), [[0, 0, 1, 0], [1, 0, 0, 0]])


def test_fractions_and_nan_as_categories():
    encoder = Encoder.fit(pa.table({"a": ["0.5", "1e+300"]}))
    matrix = encoder.transform(pa.table({"a": [0.5, 1e300, float("nan")]}))
    np.testing.assert_array_equal(matrix, [[1, 0, 0], [0, 1, 0], [0, 0, 1]])


def test_chunks_with_dictionaries_of_their_own():
    chunks = pa.chunked_array([pa.array(["a", "b"]).dictionary_encode(), pa.array(["b", "c"]).dictionary_encode()])
    np.testing.assert_array_equal(encoded(pa.table({"a": chunks}))[1].argmax(1), [1, 0, 0, 2])


# Dates


def test_dates_are_a_trend_and_cycles():
    days = np.array(["2021-01-01", "2021-04-02", "2021-07-03"], "datetime64[D]")  # Friday, Friday, Saturday
    encoder, matrix = encoded({"d": days})
    assert encoder.columns[0].treatment == "date as trend, day of year, weekday"
    assert [group.kind for group in encoder.groups] == ["number"] * 5 + ["flag"]
    assert encoder.names[:3] == ("d trend", "d day of year sine", "d day of year cosine")
    assert matrix[1, 0] == 0
    turn = 2 * np.pi * np.array([0, 91, 183]) / 365.25
    np.testing.assert_allclose(matrix[:, 1:3], np.stack([np.sin(turn), np.cos(turn)], 1), atol=1e-6)
    turn = 2 * np.pi * np.array([4, 4, 5]) / 7
    np.testing.assert_allclose(matrix[:, 3:5], np.stack([np.sin(turn), np.cos(turn)], 1), atol=1e-6)


def test_parts_of_dates_that_never_change_are_left_out():
    mondays = np.array(["2021-01-04", "2021-01-11"], "datetime64[D]")
    assert encoded({"d": mondays})[0].columns[0].parts == ("trend", "day of year")
    hours = np.array(["2021-01-04T00:00", "2021-01-04T06:00"], "datetime64[s]")
    encoder, matrix = encoded({"d": hours})
    assert encoder.columns[0].parts == ("trend", "time of day")
    np.testing.assert_allclose(matrix[:, 1:3], [[0, 1], [1, 0]], atol=1e-6)
    assert treatment(pa.array([datetime.time(0), datetime.time(12)])) == "date as trend, time of day"


@pytest.mark.parametrize(
    "kind", [pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")]
)
def test_dates_of_every_unit_and_zone_are_one(kind):
    moments = pa.array(["1969-12-31 23:00:00", "2021-07-03 10:30:00", None])
    parsed = moments.cast(pa.timestamp("s")).cast(pa.timestamp(kind.unit))
    typed = parsed.cast(pa.int64()).cast(kind)
    expected = encoded(pa.table({"d": parsed.cast(pa.timestamp("us"))}))[1]
    np.testing.assert_array_equal(encoded(pa.table({"d": typed}))[1], expected)


def test_zones_are_brought_to_utc():
    encoder = Encoder.fit(pa.table({"d": np.array(["2021-01-01T00", "2021-02-03T07"], "datetime64[s]")}))
    utc = encoder.transform(pa.table({"d": pa.array(["2021-01-01 12:00Z"]).cast(pa.timestamp("s", "UTC"))}))
    tokyo = encoder.transform(
        pa.table({"d": pa.array(["2021-01-01 21:00+0900"]).cast(pa.timestamp("s", "Asia/Tokyo"))})
    )
    text = encoder.transform(pa.table({"d": ["2021-01-01T12:00:00Z"]}))
    np.testing.assert_array_equal(utc, tokyo)
    np.testing.assert_array_equal(utc, text)


def test_both_types_of_dates_agree():
    days = pa.array([datetime.date(2020, 2, 29), datetime.date(1950, 1, 1)])
    np.testing.assert_array_equal(
        encoded(pa.table({"d": days}))[1], encoded(pa.table({"d": days.cast(pa.date64())}))[1]
    )


def test_missing_dates_have_a_flag():
    encoder, matrix = encoded(pa.table({"d": pa.array([None, datetime.date(2020, 1, 1), datetime.date(2020, 2, 5)])}))
    assert encoder.names[-2:] == ("d missing", "unexpected")
    np.testing.assert_array_equal(matrix[0], [*[0] * (encoder.width - 2), 1, 0])


# What is left out


def test_constant_and_empty_columns_are_left_out():
    table = pa.table(
        {
            "n": [2.0, 2.0],
            "t": ["x", "x"],
            "b": [True, True],
            "d": pa.array([datetime.date(2020, 1, 1)] * 2),
            "e": pa.array([None, None], pa.float64()),
            "s": pa.array([None, None], pa.string()),
            "u": pa.nulls(2),
        }
    )
    encoder, matrix = encoded(table)
    assert [column.treatment for column in encoder.columns] == ["left out: constant"] * 4 + ["left out: no values"] * 3
    assert encoder.width == 1
    np.testing.assert_array_equal(matrix, [[0], [0]])
    assert encoder.transform(pa.table({"other": [1, 2, 3]})).shape == (3, 1)


@pytest.mark.parametrize("values", [[5, None, 5], [True, None, True], [datetime.date(2020, 1, 1), None, None]])
def test_a_constant_that_is_sometimes_missing_is_a_flag(values):
    encoder, matrix = encoded(pa.table({"a": pa.array(values)}))
    assert encoder.names == ("a missing", "unexpected")
    np.testing.assert_array_equal(matrix[:, 0], [value is None for value in values])


def test_one_row():
    encoder = Encoder.fit(pa.table({"a": [1.0], "b": ["x"]}))
    assert encoder.width == 1


def test_no_rows():
    table = pa.table({"a": [1.0, 2.0], "b": ["x", "y"], "c": [True, False]})
    encoder = Encoder.fit(table)
    assert encoder.transform(table.slice(0, 0)).shape == (0, encoder.width)
    with pytest.raises(UserError, match="no rows"):
        Encoder.fit(table.slice(0, 0))


# What training never had


def test_unexpected_values_raise_the_flag():
    train = pa.table({"n": [1.0, 2.0, 3.0], "t": ["x", "y", "x"], "b": [True, False, True], "m": [1.0, None, 2.0]})
    encoder, matrix = encoded(train)
    assert not matrix[:, -1].any()
    new = pa.table(
        {
            "n": [None, 2.0, 2.0, 2.0, 1e9],
            "t": ["x", "new", None, "x", "x"],
            "b": [True, True, True, None, True],
            "m": [None, 1.0, 1.0, 1.0, 1.0],
        }
    )
    matrix = encoder.transform(new)
    np.testing.assert_array_equal(matrix[:, -1], [1, 1, 1, 1, 0])
    np.testing.assert_array_equal(matrix[1:3, 1:3], [[0, 0], [0, 0]])
    assert matrix[0, 0] == 0


def test_a_column_of_nulls_is_all_missing():
    train = pa.table({"n": [1.0, 2.0], "t": ["x", "y"], "d": np.array([1, 2], "datetime64[D]"), "b": [True, False]})
    encoder = Encoder.fit(train)
    for name in train.column_names:
        new = train.set_column(train.column_names.index(name), name, pa.nulls(2))
        np.testing.assert_array_equal(encoder.transform(new)[:, -1], [1, 1])


# Tables that do not fit


def test_missing_columns_are_listed():
    refuses({"a": [1, 2], "b": [1, 2], "c": [1, 2]}, {"b": [1]}, "lacks columns of training: 'a', 'c'; add them")


def test_text_where_numbers_were():
    refuses({"a": [1, 2]}, {"a": ["1", None, "3", "abc"]}, "text 'abc' in column 'a', row 4, which was numbers in trai")
    refuses({"a": [1, 2]}, {"a": pa.array(["abc"]).dictionary_encode()}, "text 'abc' in column 'a', row 1")
    encoder = Encoder.fit(pa.table({"a": [1, 2]}))
    np.testing.assert_array_equal(
        encoder.transform(pa.table({"a": ["1.0", "2"]})), encoder.transform(pa.table({"a": [1, 2]}))
    )


def test_other_kinds_than_in_training():
    days = np.array([1, 2], "datetime64[D]")
    refuses({"a": [1, 2]}, {"a": days}, "column 'a' holds dates, but was numbers in training")
    refuses({"a": days}, {"a": [1, 2]}, "column 'a' holds numbers, but was dates in training")
    refuses({"a": days}, {"a": ["2020-01-01", "soon"]}, "text 'soon' in column 'a', row 2, which was dates in training")
    refuses({"a": days}, {"a": ["2020-01-01T00:00Z", "soon"]}, "text 'soon' in column 'a', row 2")


@pytest.mark.parametrize(
    "values", [[[1], [2]], [b"x", b"y"], [{"b": 1}, {"b": 2}], pa.array([b"x"]).dictionary_encode()]
)
def test_nested_and_binary_columns_are_refused(values):
    with pytest.raises(UserError, match=r"column 'a' holds .* which is no input"):
        Encoder.fit(pa.table({"a": values}))
    with pytest.raises(UserError, match=r"column 'a' holds .* which is no input"):
        Encoder.fit(pa.table({"a": ["x", "y"]})).transform(pa.table({"a": values}))


def test_options_and_saved_values_are_checked():
    with pytest.raises(UserError, match="most_categories is 1"):
        Encoder.fit(pa.table({"a": [1]}), most_categories=1)
    for wrong in ({}, {"columns": [{"name": "a"}]}, {"columns": 3}, {"columns": ["a"]}):
        with pytest.raises(UserError, match="does not describe an encoder"):
            Encoder.from_json(wrong)


# Every table

floats = st.one_of(
    st.floats(allow_nan=True, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 1e300, 1e-300, 5e-324, 1e9, 1e9 + 1e-6, -1.7976931348623157e308]),
)
days = st.dates()
moments = st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1))
KINDS = {
    pa.float64(): floats,
    pa.float32(): st.floats(width=32, allow_infinity=False),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint8(): st.integers(0, 255),
    pa.decimal128(12, 2): st.decimals(-(10**9), 10**9, places=2, allow_nan=False),
    pa.duration("ms"): st.timedeltas(datetime.timedelta(-1000), datetime.timedelta(1000)).map(
        lambda delta: datetime.timedelta(milliseconds=delta // datetime.timedelta(milliseconds=1))
    ),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=3),
    pa.dictionary(pa.int32(), pa.string()): st.sampled_from(["a", "b", "c"]),
    pa.date32(): days,
    pa.timestamp("ns"): moments,
    pa.timestamp("us", "UTC"): moments.map(lambda moment: moment.replace(tzinfo=datetime.UTC)),
    pa.null(): st.none(),
}


@st.composite
def columns(draw, rows):
    kind = draw(st.sampled_from(list(KINDS)))
    values = KINDS[kind]
    if draw(st.booleans()):
        values = st.just(draw(values))
    if draw(st.booleans()):
        values = st.none() | values
    return pa.array(draw(st.lists(values, min_size=rows, max_size=rows)), kind)


@st.composite
def any_table(draw, least=1):
    rows = draw(st.integers(least, 12))
    made = [draw(columns(rows)) for _ in range(draw(st.integers(1, 4)))]
    if draw(st.booleans()):
        made.append(made[0])
    return pa.table(made, [f"c{i}" for i in range(len(made))])


@settings(max_examples=100, deadline=None)
@given(any_table(), st.integers(2, 5), st.randoms(use_true_random=False))
def test_every_table_becomes_finite_numbers(table, most, random):
    encoder = Encoder.fit(table, most_categories=most)
    matrix = encoder.transform(table)
    assert matrix.dtype == np.float32
    assert matrix.shape == (table.num_rows, encoder.width)
    assert np.isfinite(matrix).all()
    assert not matrix[:, -1].any()
    assert [column for group in encoder.groups for column in group.columns] == list(range(encoder.width))
    for kind, group in encoder.groups:
        if kind == "category":
            assert len(group) >= 2
            np.testing.assert_array_equal(matrix[:, group].sum(1), 1)
        elif kind == "flag":
            assert set(np.unique(matrix[:, group])) <= {0.0, 1.0}
    # The same from JSON, from permuted columns, and row by row.
    again = Encoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert again == encoder
    names = random.sample(table.column_names, table.num_columns)
    assert again.transform(table.select(names)).tobytes() == matrix.tobytes()
    rows = [encoder.transform(table.slice(i, 1)) for i in range(table.num_rows)]
    np.testing.assert_array_equal(np.concatenate(rows), matrix)
    assert encoder.transform(table.slice(0, 0)).shape == (0, encoder.width)


@settings(max_examples=50, deadline=None)
@given(any_table(), st.randoms(use_true_random=False))
def test_fit_does_not_depend_on_the_order_of_rows(table, random):
    order = random.sample(range(table.num_rows), table.num_rows)
    first, second = Encoder.fit(table), Encoder.fit(table.take(order))
    assert [column.treatment for column in first.columns] == [column.treatment for column in second.columns]
    assert [column.values for column in first.columns] == [column.values for column in second.columns]
    np.testing.assert_allclose(first.transform(table), second.transform(table), rtol=1e-5, atol=1e-6)


def test_minus_zero_is_zero():
    for values in ([0.0, -0.0, None], [-0.0, 0.0, None], [-0.0, -0.0, None]):
        assert Encoder.fit(pa.table({"x": values})).columns[0].treatment == "number, always 0, 33% missing"


@settings(max_examples=50, deadline=None)
@given(any_table(), any_table(least=0))
def test_every_other_table_becomes_finite_or_a_clear_error(train, new):
    encoder = Encoder.fit(train)
    message = None
    try:
        matrix = encoder.transform(new)
    except UserError as error:
        message = str(error)
    if message is None:
        assert matrix.shape == (new.num_rows, encoder.width)
        assert np.isfinite(matrix).all()
    else:
        assert "\n" not in message
        assert "column" in message


@pytest.mark.parametrize(("name", "numbers"), [("wide.feather", 3_000), ("wide.csv", 9_000)])
def test_thousands_of_columns_take_seconds(tmp_path, name, numbers):
    """From the file to the matrix; anything that looks at all names for every column takes minutes."""
    random = np.random.default_rng(0)
    wide = pa.table(
        {f"x{i}": random.normal(size=20) for i in range(numbers)} | {f"w{i}": ["a", "b"] * 10 for i in range(1_000)}
    )
    (feather.write_feather if name == "wide.feather" else pa_csv.write_csv)(wide, str(tmp_path / name))
    started = time.process_time()
    names = table_files.schema_of(tmp_path / name).names
    table = table_files.read(tmp_path / name, names)
    check_inputs(table)
    encoder = Encoder.fit(table)
    matrix = encoder.transform(table)
    assert time.process_time() - started < 20
    assert matrix.shape == (20, encoder.width) == (20, numbers + 2_000 + 1)
    with pytest.raises(UserError, match=rf"'x0', .*, 'x19' and {numbers + 980:,} more; add them"):
        encoder.transform(table.select(["w0"]).rename_columns(["other"]))
