"""Messages of an exchange, in order, and their form as flat tables of plain values.

Every message carries the digest of the exchange's terms, so none of another round, run or attempt
fits. Vehicles are always listed in ascending order of their names. Signatures and vouchers are
empty where vehicles have no certificates.

As a table a message has numbers, texts, bytes and lists of these under the names of its fields, so
nothing is pickled; dataclasses within dataclasses get dotted names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar, get_args, get_type_hints

from fedwatt.errors import DataError

Plain = int | float | str | bytes | list[str] | list[float] | list[bytes] | list[bool]
Kind = TypeVar("Kind")


@dataclass(frozen=True, kw_only=True)
class Advert:
    """Vehicle → server: two public keys, made for this exchange and signed."""

    exchange: bytes
    vehicle: str
    mask_key: bytes
    """From which pairs of vehicles derive their masks."""
    cipher_key: bytes
    """From which pairs of vehicles derive the keys of what they send each other."""
    public: bytes = b""
    """The vehicle's lasting public key."""
    voucher: bytes = b""
    """The vehicle's certificate, which ties its name to that key."""
    signature: bytes = b""
    """The vehicle's of the two keys."""


@dataclass(frozen=True, kw_only=True)
class NeighbourRoster:
    """Server → vehicle: who takes part, and the adverts of its neighbours."""

    exchange: bytes
    vehicles: tuple[str, ...]
    """All, from which neighbours follow (`graph`)."""
    mask_keys: tuple[bytes, ...]
    """Of the neighbours, as all below."""
    cipher_keys: tuple[bytes, ...]
    publics: tuple[bytes, ...]
    vouchers: tuple[bytes, ...]
    signatures: tuple[bytes, ...]


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Vehicle → server: for each neighbour two shares that only it can read."""

    exchange: bytes
    vehicle: str
    ciphertexts: tuple[bytes, ...]
    """To the neighbours, in their order."""
    commitment: bytes
    """Digest of the vehicle's own seed, by which the server knows it when it is put together."""


@dataclass(frozen=True, kw_only=True)
class Inbox:
    """Server → vehicle: what its neighbours sent it. Who sent nothing has left the exchange."""

    exchange: bytes
    senders: tuple[str, ...]
    ciphertexts: tuple[bytes, ...]


@dataclass(frozen=True, kw_only=True)
class Masked:
    """Vehicle → server: its vector under all its masks, by itself uniformly random."""

    exchange: bytes
    vehicle: str
    words: bytes  # little-endian, `bits` each


@dataclass(frozen=True, kw_only=True)
class Survivors:
    """Server → survivors: whose vectors arrived. The others have dropped out."""

    exchange: bytes
    arrived: bytes
    """A bit for each vehicle of the roster, the first in the lowest bit of the first byte."""


@dataclass(frozen=True, kw_only=True)
class Agreed:
    """Vehicle → server: its signature of roster and survivors, given once."""

    exchange: bytes
    vehicle: str
    signature: bytes


@dataclass(frozen=True, kw_only=True)
class Agreements:
    """Server → vehicle: which of its neighbours signed the same survivors."""

    exchange: bytes
    signers: tuple[str, ...]
    signatures: tuple[bytes, ...]


@dataclass(frozen=True, kw_only=True)
class Revealed:
    """Vehicle → server: of each of its group that shared keys, the share of its seed if it survived
    and of its mask key if it dropped out; never both.
    """

    exchange: bytes
    vehicle: str
    shares: tuple[bytes, ...]


def bits_of(names: tuple[str, ...], chosen: frozenset[str]) -> bytes:
    r"""Return one bit for each of `names`: whether it is among the `chosen`.

    >>> bits_of(("a", "b", "c"), frozenset("ac"))
    b'\x05'
    """
    number = sum(1 << place for place, name in enumerate(names) if name in chosen)
    return number.to_bytes((len(names) + 7) // 8, "little")


def names_of(names: tuple[str, ...], bits: bytes) -> tuple[str, ...]:
    """Return the names whose bit is set.

    >>> names_of(("a", "b", "c"), bytes([5]))
    ('a', 'c')
    """
    number = int.from_bytes(bits, "little")
    return tuple(name for place, name in enumerate(names) if number >> place & 1)


def to_plain(message: Any, prefix: str = "") -> dict[str, Plain]:
    """Return the fields of a message or state by their (dotted) names, each behind `prefix`."""
    table: dict[str, Plain] = {}
    for field in fields(message):
        name = prefix + field.name
        value = getattr(message, field.name)
        if is_dataclass(value):
            table |= to_plain(value, f"{name}.")
        else:
            table[name] = list(value) if isinstance(value, tuple) else value
    return table


def from_plain(kind: type[Kind], table: Mapping[str, Any], prefix: str = "") -> Kind:
    """Return the message or state of this kind, from the entries that begin with `prefix`.

    DataError for fields that are missing, unknown or of a wrong type.
    """
    entries = {n.removeprefix(prefix): value for n, value in table.items() if n.startswith(prefix)}
    message = _take(kind, entries, "")
    if entries:
        raise DataError(f"{kind.__name__} has no field '{min(entries)}'.")
    return message


def _take(kind: type[Kind], entries: dict[str, Any], prefix: str) -> Kind:
    """Return a message of one kind; its fields are removed from `entries`."""
    values: dict[str, Any] = {}
    hints = get_type_hints(kind)
    for field in fields(kind):  # type: ignore[arg-type]  # Kind is always a dataclass here
        name = prefix + field.name
        hint = hints[field.name]
        if is_dataclass(hint):
            values[field.name] = _take(hint, entries, f"{name}.")  # type: ignore[arg-type]
            continue
        if name not in entries:
            raise DataError(f"{kind.__name__} lacks its field '{name}'.")
        value = entries.pop(name)
        item, *_ = get_args(hint) or (None,)
        if item is None:
            fits = type(value) is hint
        else:
            fits = isinstance(value, list | tuple) and all(type(entry) is item for entry in value)
        if not fits:
            raise DataError(f"'{name}' of {kind.__name__} has a wrong type.")
        values[field.name] = value if item is None else tuple(value)
    return kind(**values)
