"""Make a running server accept exactly the keys of a depot."""

import time
from collections.abc import Callable, Iterator

from fedwatt.deploy.control import Control
from fedwatt.deploy.flower import UNREGISTERED
from fedwatt.deploy.key_request import fingerprint, read_public
from fedwatt.errors import RunError

MOST_LOOKS = 3
"""How often the depot is compared with the server: keys may change while the server is told."""


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
    """Unregister and register keys until the server's are the depot's: Flower's command for each.

    Keys are compared by their fingerprints, so nothing rests on what some server answered before.
    What cannot be done for one vehicle is done for the others; RunError then says for whom not.
    """
    for _ in range(MOST_LOOKS):
        wanted = {key: name for name, key in control.flower.depot.registry().keys.items()}
        nodes = [node for node in control.nodes() if node.status != UNREGISTERED]
        accepted = {node.fingerprint for node in nodes}
        foreign = [node for node in nodes if node.fingerprint not in wanted]
        missing = {key: name for key, name in wanted.items() if key not in accepted}
        if not foreign and not missing:
            return
        troubles = []
        for node in foreign:
            try:
                control.unregister(node.number)
                yield control.flower.unregister(node.number)
            except RunError as error:
                troubles.append(f"The key of {node.name or node.number} is still accepted: {error}")
        for key, name in missing.items():
            try:
                yield from _register(control, name, key)
            except RunError as error:
                troubles.append(f"The key of {name} is not accepted yet: {error}")
        if troubles:
            raise RunError(" ".join(troubles))


def _register(control: Control, name: str, key: str) -> Iterator[list[str]]:
    """Make the server accept a vehicle's key, unless it was replaced meanwhile."""
    public = control.flower.depot.vehicle(name).resolve() / "key.pub"
    if public.exists() and fingerprint(read_public(public)) == key:
        control.register(public, name)
        yield control.flower.register(public, name)
