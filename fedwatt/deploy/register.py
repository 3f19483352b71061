"""Make a running server accept exactly the vehicles of a depot."""

import time
from collections.abc import Callable, Iterator

from fedwatt.deploy.commands import Flower
from fedwatt.errors import RunError


def wait_until_up(flower: Flower, lives: Callable[[], bool], seconds: float = 300.0) -> bool:
    """Whether the server answers before `seconds` are over and while it `lives`."""
    deadline = time.monotonic() + seconds
    while lives() and time.monotonic() < deadline:
        try:
            flower.ask(flower.nodes())
            return True
        except RunError:
            time.sleep(0.3)
    return False


def apply_registry(flower: Flower) -> Iterator[list[str]]:
    """Register new vehicles, unregister retired ones: each command, once it has worked."""
    depot = flower.depot
    registry = depot.registry()
    known = {int(row["node-id"]) for row in flower.ask(flower.nodes())["nodes"] if _is_live(row)}
    for node in list(registry.retired):
        if node in known:
            command = flower.unregister(node)
            flower.ask(command)
            yield command
        registry.retired.remove(node)
        depot.save(registry)
    for name, node in registry.nodes.items():
        if node not in known:
            command = flower.register(depot.vehicle(name).resolve() / "key.pub", name)
            registry.nodes[name] = int(flower.ask(command)["node-id"])
            depot.save(registry)
            yield command


def _is_live(row: dict[str, object]) -> bool:
    """Whether a node of Flower's list has not been unregistered."""
    return row.get("status") != "unregistered"
