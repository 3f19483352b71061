"""Settings as frozen dataclasses, read from and written to plain tables (TOML, JSON).

Nothing is guessed: an unknown key or a value of another kind is refused, and the message names the
key, what was given and what to write instead.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from fedwatt.errors import SettingError, unknown

T = TypeVar("T")

KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text in quotes"}


def from_table(kind: type[T], table: Mapping[str, Any], where: str) -> T:
    """`kind` with its defaults replaced by the entries of `table`; `where` names the table."""
    hints = get_type_hints(kind)
    return kind(**_converted(hints, table, where))


def with_settings(owner: T, table: Mapping[str, Any], where: str) -> T:
    """A copy of the dataclass instance `owner` with the entries of `table` in it."""
    hints = get_type_hints(type(owner))
    return replace(owner, **_converted(hints, table, where))  # type: ignore[type-var]


def to_table(owner: object) -> dict[str, Any]:
    """The fields of a dataclass as a plain table; `from_table` reads it back.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Widths:
    ...     hidden: tuple[int, ...] = (64, 32)
    >>> to_table(Widths())
    {'hidden': [64, 32]}
    """
    assert is_dataclass(owner)
    values = {field.name: getattr(owner, field.name) for field in fields(owner)}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}


def _converted(hints: Mapping[str, Any], table: Mapping[str, Any], where: str) -> dict[str, Any]:
    for name in table:
        if name not in hints:
            raise SettingError(unknown(f"setting in {where}", name, hints))
    return {name: convert(value, hints[name], f"{where}.{name}") for name, value in table.items()}


def convert(value: Any, kind: Any, where: str) -> Any:
    """`value` as `kind`, or an error that names `where` it stands.

    >>> convert(1, float, "training.rate")
    1.0
    >>> convert([64, 32], tuple[int, ...], "model.hidden")
    (64, 32)
    """
    if get_origin(kind) is tuple:
        inner = get_args(kind)
        repeated = len(inner) == 2 and inner[1] is Ellipsis
        length = None if repeated else len(inner)
        if not isinstance(value, list | tuple) or (length is not None and len(value) != length):
            count = f"{length} " if length else ""
            raise SettingError(
                f"{where} must be a list of {count}values in brackets, got {value!r}."
            )
        kinds = [inner[0]] * len(value) if repeated else inner
        return tuple(convert(v, k, where) for v, k in zip(value, kinds, strict=True))
    if isinstance(kind, UnionType):
        kind = next(option for option in get_args(kind) if option is not type(None))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise SettingError(f"{where} must be {KINDS[kind]}, got {value!r}.")
    return value
