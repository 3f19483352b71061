"""Make a running server accept exactly the vehicles of a depot."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fedwatt.deploy.control import Control
from fedwatt.deploy.flower import UNREGISTERED
from fedwatt.errors import RunError


def wait_until_up(control: Control, lives: Callable[[], bool], seconds: float = 300.0) -> bool:
    """Whether the server answers before `seconds` are over and while it `lives`."""
    deadline = time.monotonic() + seconds
    while lives() and time.monotonic() < deadline:
        try:
            control.nodes()
            return True
        except RunError:
            time.sleep(0.1)
    return False


def apply_registry(control: Control) -> Iterator[list[str]]:
    """Register new vehicles, unregister retired ones: Flower's command for each, once it is done.

    The registry is not locked while the server is asked: it is read anew for each vehicle, and what
    was decided meanwhile (a key revoked or replaced) stands.
    """
    known = {node.number for node in control.nodes() if node.status != UNREGISTERED}
    yield from _unregister(control, known)
    for name in list(control.flower.depot.registry().nodes):
        yield from _register(control, name, known)
    # Those that were revoked while they were being registered.
    yield from _unregister(control, known)


def _unregister(control: Control, known: set[int]) -> Iterator[list[str]]:
    """Make the server refuse the retired nodes; those it does not know are struck off."""
    depot = control.flower.depot
    for node in list(depot.registry().retired):
        if node in known:
            control.unregister(node)
            known.discard(node)
            yield control.flower.unregister(node)
        with depot.changing() as registry:
            if node in registry.retired:
                registry.retired.remove(node)


def _register(control: Control, name: str, known: set[int]) -> Iterator[list[str]]:
    """Make the server accept a vehicle's key, unless it does already or the vehicle is gone."""
    depot = control.flower.depot
    public = depot.vehicle(name).resolve() / "key.pub"
    with depot.changing() as registry:
        before = registry.nodes.get(name)
        if before is None or before in known:
            return
        key = _content(public)
    node = control.register(public, name)
    known.add(node)
    with depot.changing() as registry:
        if registry.nodes.get(name) == before and _content(public) == key:
            registry.nodes[name] = node
        else:
            registry.retired.append(node)
    yield control.flower.register(public, name)


def _content(path: Path) -> bytes:
    """Of a file; nothing if there is none."""
    return path.read_bytes() if path.exists() else b""
