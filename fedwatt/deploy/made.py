"""What a question says of how its model was made (`privacy.check_words`)."""

from collections.abc import Mapping
from typing import Final

from fedwatt.deploy.messages import Value
from fedwatt.privacy.check_words import Made

COUNT_BYTES: Final = 4
EXCHANGE: Final = "made.exchange"
WEIGHT: Final = "made.weight"
DIVISOR: Final = "made.divisor"
VEHICLES: Final = "made.vehicles"
WORDS: Final = "made.words"
PARTS: Final = "made.parts"


def made_values(made: Made | None) -> dict[str, Value]:
    """Values of a question; none where the model is the seed's, or nothing is known of it."""
    if made is None:
        return {}
    values: dict[str, Value] = {
        EXCHANGE: made.exchange,
        WEIGHT: made.weight,
        DIVISOR: made.divisor,
        VEHICLES: made.vehicles,
        WORDS: list(made.words),
    }
    return values | ({PARTS: [part_bytes(*part) for part in made.parts]} if made.parts else {})


def read_made(values: Mapping[str, Value]) -> Made | None:
    """What a question says; None if it says nothing that can be read."""
    exchange, vehicles = values.get(EXCHANGE), values.get(VEHICLES)
    weight, divisor, words = values.get(WEIGHT), values.get(DIVISOR), values.get(WORDS)
    if not isinstance(exchange, bytes) or type(vehicles) is not int:
        return None
    if not isinstance(weight, float) or not isinstance(divisor, float):
        return None
    if not isinstance(words, list) or not all(type(word) is float for word in words):
        return None
    parts = values.get(PARTS, [])
    if not isinstance(parts, list) or not all(isinstance(part, bytes) for part in parts):
        return None
    told = tuple(part_of(part) for part in parts if isinstance(part, bytes))
    return Made(exchange, weight, divisor, vehicles, tuple(map(float, words)), told)


def part_bytes(exchange: bytes, vehicles: int) -> bytes:
    """A part of a sum as it travels: the digest of its exchange, and how many vehicles it is of."""
    return exchange + vehicles.to_bytes(COUNT_BYTES, "little")


def part_of(content: bytes) -> tuple[bytes, int]:
    """What `part_bytes` wrote."""
    return content[:-COUNT_BYTES], int.from_bytes(content[-COUNT_BYTES:], "little")
