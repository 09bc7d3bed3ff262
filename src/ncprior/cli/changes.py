"""Options that name a field of the configuration: ``--set NAME=VALUE``."""

import dataclasses
import types
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

from ncprior.errors import UserError

if TYPE_CHECKING:
    from ncprior.core.settings import Settings


class Config(Protocol):
    """The configuration of an experiment, whose parts are dataclasses."""

    @property
    def settings(self) -> "Settings":
        """The settings of the methods."""

    def why_same(self, other: "Settings") -> str | None:
        """Why nothing else is learned with these settings; None if it is."""


T = TypeVar("T", bound=Config)


def apply_changes(
    config: T,
    changes: list[str],
    parts: tuple[str, ...] = ("settings", "schedule"),
    *,
    unused: Collection[str] = (),
) -> T:
    """The configuration with changed fields.

    Args:
        config: A configuration.
        changes: Changes as ``NAME=VALUE``.
        parts: Attributes of the configuration that have the fields.
        unused: Fields that have no effect in this experiment, which are refused.

    Raises:
        UserError: If a change has another form, or names no field, or a value has no meaning or no effect.
    """
    values: dict[str, dict[str, object]] = {part: {} for part in parts}
    for change in changes:
        name, found, text = change.partition("=")
        owners = [part for part in parts if name in _fields(getattr(config, part))]
        if name in unused:
            raise UserError(f"--set {change}: this experiment does not use {name}")
        if not found or not owners:
            names = [field for part in parts for field in _fields(getattr(config, part)) if field not in unused]
            raise UserError(f"--set {change}: give NAME=VALUE with one of the names {', '.join(names)}")
        kind = get_type_hints(type(getattr(config, owners[0])))[name]
        values[owners[0]][name] = parse(text, kind, name)
    # All at once: a change may be valid only together with the others.
    changed = {part: dataclasses.replace(getattr(config, part), **new) for part, new in values.items()}
    new_config = dataclasses.replace(config, **changed)  # type: ignore[type-var]
    for change in changes:
        name = change.partition("=")[0]
        before: dict[str, Any] = {name: getattr(config.settings, name, None)}
        if getattr(new_config.settings, name, None) == before[name]:
            continue
        if why := new_config.why_same(dataclasses.replace(new_config.settings, **before)):
            raise UserError(f"--set {change}: {name} has no effect with {why}; leave it out")
    return new_config


def parse(text: str, kind: Any, name: str) -> object:
    """Parse a value of this type: numbers, ``true``/``false``, ``none``, words, comma-separated tuples.

    >>> parse("50,50", tuple[int, ...], "hidden")
    (50, 50)
    """
    if get_origin(kind) in (Union, types.UnionType):
        for choice in get_args(kind):
            try:
                return parse(text, choice, name)
            except UserError:
                continue
    elif kind is type(None) and text.lower() == "none":
        return None
    elif kind is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    elif get_origin(kind) is Literal and text in get_args(kind):
        return text
    elif get_origin(kind) is tuple:
        return tuple(parse(item.strip(), get_args(kind)[0], name) for item in text.split(","))
    elif kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    raise UserError(f"--set {name}={text}: expected {_describe(kind)}")


def _fields(part: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(part)]


def _describe(kind: object) -> str:
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(_describe(choice) for choice in get_args(kind))
    if get_origin(kind) is Literal:
        return " or ".join(get_args(kind))
    if get_origin(kind) is tuple:
        return "comma-separated whole numbers"
    words: dict[object, str] = {int: "a whole number", float: "a number", bool: "true or false", type(None): "none"}
    return words[kind]
