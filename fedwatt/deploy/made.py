"""What a question says of how its model was made (`privacy.check_words`)."""

from collections.abc import Mapping
from typing import Final

from fedwatt.deploy.messages import Value
from fedwatt.privacy.check_words import Made

EXCHANGE: Final = "made.exchange"
WEIGHT: Final = "made.weight"
VEHICLES: Final = "made.vehicles"
WORDS: Final = "made.words"


def made_values(made: Made | None) -> dict[str, Value]:
    """Values of a question; none where the model is the seed's, or nothing is known of it."""
    if made is None:
        return {}
    return {
        EXCHANGE: made.exchange,
        WEIGHT: made.weight,
        VEHICLES: made.vehicles,
        WORDS: list(made.words),
    }


def read_made(values: Mapping[str, Value]) -> Made | None:
    """What a question says; None if it says nothing that can be read."""
    exchange, weight = values.get(EXCHANGE), values.get(WEIGHT)
    vehicles, words = values.get(VEHICLES), values.get(WORDS)
    if not isinstance(exchange, bytes) or not isinstance(weight, float):
        return None
    if type(vehicles) is not int or not isinstance(words, list):
        return None
    return Made(exchange, weight, vehicles, tuple(float(word) for word in words))
