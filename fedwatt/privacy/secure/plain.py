"""Messages and states as flat tables of plain values, the way they travel and are kept.

A value is a number, a str, bytes, a bool, or a list of these: what a Flower `ConfigRecord` holds,
so nothing is pickled and nothing but the declared fields can be in a message. Dataclasses within
dataclasses get dotted names.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_args, get_type_hints

from fedwatt.errors import DataError

Plain = int | float | str | bytes | list[str] | list[float] | list[bytes] | list[bool]
Kind = TypeVar("Kind")


def to_plain(whole: Any, prefix: str = "") -> dict[str, Plain]:
    """Return the fields of a message or state by their (dotted) names, each behind `prefix`."""
    table: dict[str, Plain] = {}
    for field in fields(whole):
        name = prefix + field.name
        value = getattr(whole, field.name)
        if is_dataclass(value):
            table |= to_plain(value, f"{name}.")
        else:
            table[name] = list(value) if isinstance(value, tuple) else value
    return table


def from_plain(kind: type[Kind], table: Mapping[str, Any], prefix: str = "") -> Kind:
    """Return the message or state of this kind, among other values if its own have a `prefix`.

    Refuses fields that are missing, unknown or of a wrong type.
    """
    known = {n.removeprefix(prefix): value for n, value in table.items() if n.startswith(prefix)}
    made = _take(kind, known, "")
    if known:
        raise DataError(f"{kind.__name__} has no field '{min(known)}'.")
    return made


def _take(kind: type[Kind], table: dict[str, Any], prefix: str) -> Kind:
    values: dict[str, Any] = {}
    hints = get_type_hints(kind)
    for field in fields(kind):  # type: ignore[arg-type]  # Kind is always a dataclass here
        name = prefix + field.name
        hint = hints[field.name]
        if is_dataclass(hint):
            values[field.name] = _take(hint, table, f"{name}.")  # type: ignore[arg-type]
            continue
        if name not in table:
            raise DataError(f"{kind.__name__} lacks its field '{name}'.")
        value = table.pop(name)
        item = get_args(hint)[0] if get_args(hint) else None
        whole = isinstance(value, list | tuple) and all(type(one) is item for one in value)
        if not (whole if item else type(value) is hint):
            raise DataError(f"'{name}' of {kind.__name__} has a wrong type.")
        values[field.name] = tuple(value) if item else value
    return kind(**values)
