"""Cost of a method as its rules declare it: numbers sent, and numbers stored between rounds."""

from dataclasses import dataclass

from fedwatt.methods.method import Method
from fedwatt.methods.rule import Rows
from fedwatt.models import Model


@dataclass(frozen=True)
class Costs:
    """Counts of numbers, for one vehicle and round."""

    weights: int  # d, those of the model
    down: int
    up: int
    vehicle: int  # kept on each vehicle between rounds
    server: int  # kept on the server besides the model


def costs(method: Method, model: Model) -> Costs:
    """Costs of `method` with `model`."""
    adapted = method.adapted(model)
    server = method.server.state(adapted)
    size = adapted.layout.size
    return Costs(
        weights=model.layout.size,
        down=size + _numbers(method.server.broadcast(server)),
        up=size + _numbers(method.uploads(adapted)),
        vehicle=sum(_numbers(rule.memory(adapted)) for rule in method.local),
        server=_numbers(server),
    )


def _numbers(rows: Rows) -> int:
    return sum(value.numel() for value in rows.values())
