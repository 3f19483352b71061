"""The key store and its running server: whose certificates count, and who is connected."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from cryptography import x509

from fedwatt.deploy.transport.control import Control, Node
from fedwatt.deploy.transport.processes import Flower
from fedwatt.errors import RunError

LOOK_SECONDS: Final = 5.0
"""Fewest seconds between two looks at the server."""
SHARE: Final = 20
"""A look that took a second is not repeated for so many: a large fleet's list takes a while."""


def ask_nodes(flower: Flower) -> list[Node]:
    """Return the vehicles that the running server knows; RunError if none answers."""
    with Control(flower) as control:
        return control.nodes()


@dataclass
class ServerFacts:
    """A key store and the server that runs on it."""

    flower: Flower
    ask: Callable[[Flower], list[Node]] = ask_nodes
    clock: Callable[[], float] = time.monotonic
    nodes: dict[str, Node] = field(default_factory=dict)
    """The newest key of each name that the server knows, by that name."""
    up: bool = False
    """Whether the server answered at the last look."""
    why: str = "nobody has looked yet"
    """Why not."""
    next_look: float = float("-inf")
    accepted: dict[str, str] = field(default_factory=dict)
    """Fingerprints of accepted keys, by vehicle."""
    changed: float = -1.0

    def refresh(self) -> None:
        """Read the key store and, unless that was just done, ask the server."""
        store = self.flower.store
        changed = store.changed()
        if changed != self.changed:
            self.accepted = {name: key for key, (name, _) in store.accepted().items()}
            self.changed = changed
        began = self.clock()
        if began < self.next_look:
            return
        try:
            self.nodes = {node.name: node for node in self.ask(self.flower)}
            self.up = True
            self.why = ""
        except RunError as error:
            self.nodes = {}
            self.up = False
            self.why = str(error)
        now = self.clock()
        self.next_look = now + max(LOOK_SECONDS, SHARE * (now - began))

    def online(self, name: str) -> bool | None:
        """Return whether a vehicle is connected; None: not known, because no server answers."""
        if not self.up:
            return None
        return name in self.nodes and self.nodes[name].status == "online"

    def certificates(self) -> dict[str, float]:
        """When certificates end, in seconds since 1970, by their names."""
        store = self.flower.store
        found = {}
        for name, path in {"owner": store.owner, "server": store.certificate}.items():
            if path.exists():
                certificate = x509.load_pem_x509_certificate(path.read_bytes())
                ends = certificate.not_valid_after_utc
                found[name] = ends.astimezone(UTC).timestamp()
        return found


def since(node: Node | None) -> float | None:
    """When a vehicle's connection began or ended, in seconds since 1970; None: not known."""
    if node is None or not node.since:
        return None
    return datetime.fromisoformat(node.since).replace(tzinfo=UTC).timestamp()
