"""Checks of values from outside against type annotations, and JSON of bounded size.

>>> conform([1, 2], tuple[int, ...], "hidden")
(1, 2)
>>> conform({"rows": -1}, dict[str, Annotated[int, Range(0, 10)]], "notes")
Traceback (most recent call last):
ncprior.errors.UserError: notes.rows must be a whole number from 0 to 10, got -1
"""

import dataclasses
import json
import numbers
import reprlib
import sys
import types
from collections.abc import Callable
from functools import cache
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeAlias,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import numpy as np

from ncprior.errors import UserError

_MOST_VALUES = 500_000
"""Values in a JSON text. Each takes up to a hundred bytes of memory and a microsecond, however short its text is."""

_DEEPEST = 16
"""Lists and dictionaries in each other."""


class Range(NamedTuple):
    """The smallest and the largest number that is allowed; ``above`` says that the smallest is not."""

    least: float
    most: float
    above: bool = False

    def allows(self, value: Any) -> bool:
        """Whether a number is in the range."""
        return bool((self.least < value if self.above else self.least <= value) and value <= self.most)

    def __str__(self) -> str:
        least, most = (f"{end:,}" if isinstance(end, int) else f"{end:g}" for end in self[:2])
        return f"above {least} and up to {most}" if self.above else f"from {least} to {most}"


class Length(NamedTuple):
    """How many items a list may have."""

    least: int = 0
    most: int = sys.maxsize


JsonObject: TypeAlias = dict[str, Any]
"""An object of JSON, such as a configuration or notes: the type of a value depends on its name."""

FINITE = Range(-sys.float_info.max, sys.float_info.max)
"""Of numbers that say nothing else."""

AnyFloat = Annotated[float, "not a number and infinity too"]
"""Numbers that are only shown."""


class _MismatchError(Exception):
    """A value is not what it must be; ``path`` is where, inside the value that was asked about."""

    def __init__(self, expected: str, value: object, path: str = "") -> None:
        self.expected, self.value, self.path = expected, value, path

    def inside(self, part: str) -> "_MismatchError":
        return _MismatchError(self.expected, self.value, part + self.path)


Reader = Callable[[object], object]


def conform(value: object, kind: object, where: str) -> Any:
    """Check a value against a type, and convert it to that type.

    Types are those of annotations: ``int``, ``float`` (finite), ``bool``, ``str``, ``Literal``, unions, lists, tuples
    of any length, dictionaries by text, dataclasses and typed dictionaries (with exactly their fields), ``Any``, each
    ``Annotated`` with a `Range` or a `Length`. Lists become tuples, and dictionaries dataclasses, if the type says so.

    Raises:
        UserError: If the value does not have the type; the message says where.
    """
    try:
        return _reader(kind)(value)
    except _MismatchError as error:
        found = reprlib.repr(error.value)
        raise UserError(f"{where}{error.path} must be {error.expected}, got {found}") from error


def check_fields(value: object) -> None:
    """Check the fields of a dataclass against their types, for use in ``__post_init__``."""
    for name, kind in get_type_hints(type(value), include_extras=True).items():
        object.__setattr__(value, name, conform(getattr(value, name), kind, name))


def read_json(text: bytes, what: str) -> Any:
    """The value of a JSON text, of bounded depth and size."""
    # What is not in quotes, once characters after a backslash are gone.
    letters = np.frombuffer(text.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    outside = letters[~np.logical_xor.accumulate(letters == ord('"'))]
    steps = _STEPS[outside]
    depth = int(np.cumsum(steps[steps != 0], dtype=np.int32).max(initial=0))
    if depth > _DEEPEST:
        raise UserError(f"{what}: lists in lists, {depth} deep, where {_DEEPEST} are the most")
    values = int((steps == 1).sum() + (outside == ord(",")).sum())
    if values > _MOST_VALUES:
        raise UserError(f"{what}: {values:,} values, where {_MOST_VALUES:,} are the most")
    try:
        return json.loads(text)
    except ValueError as error:  # also numbers with thousands of digits, and bytes that are no text
        raise UserError(f"{what}: no JSON ({reprlib.repr(str(error))})") from error


_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1


@cache
def _reader(kind: object) -> Reader:
    """A function that converts a value to the type, or raises `_MismatchError`."""
    base, limits = (get_args(kind)[0], get_args(kind)[1:]) if get_origin(kind) is Annotated else (kind, ())
    origin, choices = get_origin(base), get_args(base)
    if base is Any:
        return lambda value: value
    if base in (int, float):
        return _number(base, limits[0] if limits else FINITE)
    if base is bool:
        return _instance((bool, np.bool_), "true or false")
    if base is type(None):
        return _instance(base, "null")
    if base is str:
        return _text
    if origin is Literal:
        return _word(choices)
    if origin in (Union, types.UnionType):
        return _either(choices)
    if origin in (list, tuple):
        return _items(origin, _reader(choices[0]), limits[0] if limits else Length())
    if origin is dict:
        return _by_name(_reader(choices[1]))
    if dataclasses.is_dataclass(base) or is_typeddict(base):
        return _record(cast(Callable[..., object], base))
    raise TypeError(f"{kind} is no type of values from outside")


def _instance(classes: type | tuple[type, ...], expected: str) -> Reader:
    def read(value: object) -> object:
        if isinstance(value, classes):
            return value
        raise _MismatchError(expected, value)

    return read


def _number(base: object, limit: object) -> Reader:
    is_whole = base is int
    what = "a whole number" if is_whole else "a number" if limit is not FINITE else "a finite number"
    expected = f"{what} {limit}" if isinstance(limit, Range) and limit is not FINITE else what
    allowed = numbers.Integral if is_whole else numbers.Real

    def read(value: object) -> object:
        counts = isinstance(value, allowed) and not isinstance(value, bool)
        if counts and (not isinstance(limit, Range) or limit.allows(value)):
            return value
        raise _MismatchError(expected, value)

    return read


def _text(value: object) -> str:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            pass
        else:
            return value
    raise _MismatchError("text", value)


def _word(words: tuple[str, ...]) -> Reader:
    def read(value: object) -> object:
        if isinstance(value, str) and value in words:
            return value
        raise _MismatchError(f"one of {', '.join(words)}", value)

    return read


def _either(choices: tuple[object, ...]) -> Reader:
    readers = [_reader(choice) for choice in choices]
    others = [reader for reader, choice in zip(readers, choices, strict=True) if choice is not type(None)]

    def read(value: object) -> object:
        if value is None and len(others) < len(readers):
            return None
        expected = []
        for reader in others:
            try:
                return reader(value)
            except _MismatchError as error:
                if error.path:  # it has the right form, and something in it is wrong
                    raise
                expected.append(error.expected)
        expected += ["null"] if len(others) < len(readers) else []
        raise _MismatchError(" or ".join(expected), value)

    return read


def _items(make: type, reader: Reader, length: Length) -> Reader:
    size = f" of {length.least:,} to {length.most:,}" if length != Length() else ""

    def read(value: object) -> object:
        if not isinstance(value, list | tuple) or not length.least <= len(value) <= length.most:
            raise _MismatchError(f"a list{size}", value)
        found = []
        for i, item in enumerate(value):
            try:
                found.append(reader(item))
            except _MismatchError as error:
                raise error.inside(f"[{i}]") from error
        return make(found)

    return read


def _by_name(reader: Reader) -> Reader:
    def read(value: object) -> object:
        if not isinstance(value, dict):
            raise _MismatchError("a dictionary", value)
        return {_text(name): _inside(reader, name, item) for name, item in value.items()}

    return read


def _record(kind: Callable[..., object]) -> Reader:
    readers = {name: _reader(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}
    expected = f"a dictionary of {', '.join(readers)}"

    def read(value: object) -> object:
        if not isinstance(value, dict) or value.keys() != readers.keys():
            raise _MismatchError(expected, list(value) if isinstance(value, dict) else value)
        return kind(**{name: _inside(reader, name, value[name]) for name, reader in readers.items()})

    return read


def _inside(reader: Reader, name: str, value: object) -> object:
    try:
        return reader(value)
    except _MismatchError as error:
        raise error.inside(f".{reprlib.repr(name).strip(chr(39))}") from error
