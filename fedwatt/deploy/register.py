"""Make a running server accept exactly the vehicles of a depot."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

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
    """Register new vehicles, unregister retired ones: each command, once it has worked.

    Flower's commands are slow, so the registry is not locked while they run: it is read anew for
    each, and what was decided meanwhile (a key revoked or replaced) stands.
    """
    known = {int(row["node-id"]) for row in flower.ask(flower.nodes())["nodes"] if _is_live(row)}
    yield from _unregister(flower, known)
    for name in list(flower.depot.registry().nodes):
        yield from _register(flower, name, known)
    # Those that were revoked while they were being registered.
    yield from _unregister(flower, known)


def _unregister(flower: Flower, known: set[int]) -> Iterator[list[str]]:
    """Make the server refuse the retired nodes; those it does not know are struck off."""
    for node in list(flower.depot.registry().retired):
        if node in known:
            command = flower.unregister(node)
            flower.ask(command)
            known.discard(node)
            yield command
        with flower.depot.changing() as registry:
            if node in registry.retired:
                registry.retired.remove(node)


def _register(flower: Flower, name: str, known: set[int]) -> Iterator[list[str]]:
    """Make the server accept a vehicle's key, unless it does already or the vehicle is gone."""
    depot = flower.depot
    public = depot.vehicle(name).resolve() / "key.pub"
    with depot.changing() as registry:
        before = registry.nodes.get(name)
        if before is None or before in known:
            return
        key = _content(public)
    command = flower.register(public, name)
    node = int(flower.ask(command)["node-id"])
    known.add(node)
    with depot.changing() as registry:
        if registry.nodes.get(name) == before and _content(public) == key:
            registry.nodes[name] = node
        else:
            registry.retired.append(node)
    yield command


def _content(path: Path) -> bytes:
    """Of a file; nothing if there is none."""
    return path.read_bytes() if path.exists() else b""


def _is_live(row: dict[str, object]) -> bool:
    """Whether a node of Flower's list has not been unregistered."""
    return row.get("status") != "unregistered"
