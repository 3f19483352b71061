"""What a question says of how its model was made (`privacy.check_words`)."""

from collections.abc import Mapping
from typing import Final

from fedwatt.deploy.messages import Value
from fedwatt.privacy.check_words import Made

EXCHANGE: Final = "made.exchange"
WEIGHT: Final = "made.weight"
DIVISOR: Final = "made.divisor"
VEHICLES: Final = "made.vehicles"
WORDS: Final = "made.words"


def made_values(made: Made | None) -> dict[str, Value]:
    """Values of a question; none where the model is the seed's, or nothing is known of it."""
    if made is None:
        return {}
    return {
        EXCHANGE: made.exchange,
        WEIGHT: made.weight,
        DIVISOR: made.divisor,
        VEHICLES: made.vehicles,
        WORDS: list(made.words),
    }


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
    return Made(exchange, weight, divisor, vehicles, tuple(map(float, words)))
