"""How a vehicle's part in a sum over the fleet is declared and added up: named numbers."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from fedwatt.errors import RunError
from fedwatt.telemetry.trip import FloatArray

LARGEST = 2.0**24
"""Of a vehicle's sum at a node or pair; some ten thousand passes of a lorry stay far below it, and
among 10,000 vehicles sums are still exact to 2^-26 a vehicle."""

MOST_WORDS = 2**23
"""Numbers in a vehicle's message: 64 MB, with which a vehicle stays within 1 GB of memory."""

Fields = dict[str, tuple[int, float]]
"""{name: (how many, largest absolute value)}."""
Answer = Mapping[str, FloatArray]
"""What a vehicle adds, or the total of it, by the names of `Fields`."""
Total = tuple[Answer, frozenset[str]]
"""A total, and the names of the vehicles whose answers are in it."""
AddUp = Callable[[Fields, int, Iterable[Answer]], Answer]
"""Adds up the answers of so many vehicles, as a secure sum does
(`fedwatt.privacy.fixed_point.add_up`) or `plainly`."""


def words_of(fields: Fields) -> int:
    """How many numbers a vehicle's message holds."""
    return sum(size for size, _ in fields.values())


def refuse_long(fields: Fields, places: str) -> None:
    """Raise where answers about so many `places` would be longer than a message may be."""
    words = words_of(fields)
    if words > MOST_WORDS:
        raise RunError(
            f"Sums over {places} take {words:,} numbers a vehicle, and {MOST_WORDS:,} can be sent. "
            "Choose a smaller terrain.area or a larger terrain.cell_m."
        )


def plainly(fields: Fields, vehicles: int, answers: Iterable[Answer]) -> Answer:
    """Answers added up without masks."""
    total = {name: np.zeros(size) for name, (size, _) in fields.items()}
    for answer in answers:
        for name in total:
            total[name] = total[name] + answer[name]
    return total


def totals_by(add_up: AddUp, vehicles: Mapping[str, Any]) -> Callable[[Any, frozenset[str]], Total]:
    """Totals of questions over simulated vehicles, given what each has that a question is about."""

    def totals(question: Any, present: frozenset[str]) -> Total:
        answers = (question.answer(vehicles[name]) for name in sorted(present))
        return add_up(question.fields, len(present), answers), present

    return totals
