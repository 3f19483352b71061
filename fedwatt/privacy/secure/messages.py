"""What travels in an exchange, in the order in which it does.

Every message carries the digest of the exchange's terms, so none of another round, run or attempt
fits. Vehicles are always listed in ascending order of their names.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Advert:
    """Vehicle → server: two public keys, made for this exchange."""

    exchange: bytes
    vehicle: str
    mask_key: bytes  # from which pairs of vehicles derive their masks
    cipher_key: bytes  # from which pairs of vehicles derive the keys of what they send each other


@dataclass(frozen=True, kw_only=True)
class Roster:
    """Server → all: the keys of the vehicles that take part."""

    exchange: bytes
    vehicles: tuple[str, ...]
    mask_keys: tuple[bytes, ...]
    cipher_keys: tuple[bytes, ...]


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Vehicle → server: for each other vehicle of the roster, two shares that only it can read."""

    exchange: bytes
    vehicle: str
    ciphertexts: tuple[bytes, ...]  # to the other vehicles of the roster, in its order
    commitment: bytes
    """Digest of the vehicle's own seed, by which the server knows it when it is put together."""


@dataclass(frozen=True, kw_only=True)
class Inbox:
    """Server → vehicle: what the others sent it. Who sent nothing has left the exchange."""

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
    """Server → survivors: whose vectors arrived. The others of the inboxes have dropped out."""

    exchange: bytes
    vehicles: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Revealed:
    """Vehicle → server: of each vehicle that shared keys, the share of its seed if it survived and
    of its mask key if it dropped out; never both.
    """

    exchange: bytes
    vehicle: str
    shares: tuple[bytes, ...]
