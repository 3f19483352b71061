"""Settings as frozen dataclasses, read from and written to plain tables (TOML, JSON).

Nothing is guessed: an unknown key, a value of another kind or one that its field does not allow is
refused, and the message names the key, what was given and what to write instead.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from math import inf
from operator import ge, gt, le, lt
from types import UnionType
from typing import Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

from fedwatt.errors import SettingError, check, unknown

T = TypeVar("T")

_hints: Callable[[object], Mapping[str, Any]] = cache(get_type_hints)

KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text in quotes"}


class Checked:
    """A dataclass that refuses what its fields, made by `number` and `choice`, do not allow.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Pull(Checked):
    ...     mu: float = number(0.01, "[0, inf)", "(0 is FedAvg)")
    ...     response: str = choice("saturating", "clipped")
    >>> Pull(mu=-1)
    Traceback (most recent call last):
    ...
    fedwatt.errors.SettingError: Pull(mu=-1): mu must be at least 0 and finite (0 is FedAvg).
    """

    def __post_init__(self) -> None:
        for name, declaration in self._declared().items():
            check(self, name, declaration["holds"](getattr(self, name)), declaration["allowed"])

    def _declared(self) -> dict[str, Mapping[str, Any]]:
        """Return the declarations of the fields, by their names.

        A subclass that only gives a field another default leaves it as it was declared.
        """
        declarations = {}
        for kind in reversed(type(self).__mro__):
            for declared_field in vars(kind).get("__dataclass_fields__", {}).values():
                if "allowed" in declared_field.metadata:
                    declarations[declared_field.name] = declared_field.metadata
        return declarations


def number(
    default: T, interval: str, note: str = "", *, tuned: object = None, fixed: str = ""
) -> T:
    """Return a field with a number in `interval`: "[0, 1)", "(0, inf)" for a finite one, or "[1,
    inf]".

    `note` goes on with the sentence that refuses any other. Of a rule's hyperparameter `tuned` is
    the range in which it is tuned, or `fixed` the reason why it is not (`fedwatt.settings`).
    """
    if tuned is not None and fixed:
        raise SettingError(f"number({default!r}, ...) is both tuned and fixed. Leave one out.")
    low, high = (float(end) for end in interval[1:-1].split(","))
    above = ge if interval[0] == "[" else gt
    below = le if interval[-1] == "]" else lt
    if low > -inf and high == inf:
        least = interval[1:].split(",")[0]
        finite = " and finite" if below is lt else ""
        allowed = f"{'at least' if above is ge else 'above'} {least}{finite}"
    else:
        allowed = "finite" if interval == "(-inf, inf)" else f"in {interval}"
    allowed += note if note[:1] in ".:;," else f" {note}"
    how = {"tuned": tuned, "fixed": fixed}
    return _field(default, allowed, lambda n: above(n, low) and below(n, high), how)


def choice(*values: T, default: T | None = None) -> T:
    """Return a field with one of `values`, the first one by default."""
    *leading, last = map(repr, values)
    allowed = f"{', '.join(leading)} or {last}" if leading else last
    first = values[0] if default is None else default
    return _field(first, allowed, lambda value: value in values, {})


def _field(default: T, allowed: str, holds: Callable[[Any], bool], more: Mapping[str, Any]) -> T:
    return field(default=default, metadata={"allowed": allowed, "holds": holds, **more})


def from_table(kind: type[T], table: Mapping[str, Any], where: str) -> T:
    """Return `kind` with the settings of `table`; `where` names the table in errors."""
    hints = _hints(kind)
    return kind(**_converted(hints, table, where))


def with_settings(owner: T, table: Mapping[str, Any], where: str) -> T:
    """Return a copy of the dataclass instance `owner` with the entries of `table` in it."""
    hints = _hints(type(owner))
    return replace(owner, **_converted(hints, table, where))  # type: ignore[type-var]


def to_table(owner: object) -> dict[str, Any]:
    """Return the fields of a dataclass as a plain table; `from_table` reads it back.

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
    """Convert `value` to `kind`; raise SettingError that names its place `where`.

    >>> convert(1, float, "training.learning_rate")
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


@dataclass(frozen=True)
class Range:
    """From `low` to `high`, searched on a logarithmic scale where orders of magnitude matter."""

    low: float
    high: float
    log: bool = True

    def __str__(self) -> str:
        """Return text such as "0.001 to 0.1, log"."""
        return f"{self.low:g} to {self.high:g}" + (", log" if self.log else "")

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


class Tunable(Checked):
    """Meanings of the hyperparameters of a rule, and the ranges of those that are tuned."""

    meanings: ClassVar[Mapping[str, str]] = {}  # as `fedwatt list` shows them

    @property
    def ranges(self) -> dict[str, Range]:
        """The ranges of the hyperparameters that are tuned, by name."""
        return {name: d["tuned"] for name, d in sorted(self._declared().items()) if d.get("tuned")}

    @property
    def fixed(self) -> dict[str, str]:
        """The reasons why other hyperparameters are not tuned, by name."""
        return {name: d["fixed"] for name, d in self._declared().items() if d.get("fixed")}
