"""The operator's requests to the server: its vehicles, its runs, and the keys that it accepts.

The requests of `flwr supernode` and `flwr list`, over one connection: a start of Flower's command
line takes more than a second, and a fleet has many vehicles.
"""

from dataclasses import dataclass
from typing import Any, Self

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)
from flwr.proto import control_pb2
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.error import FlowerError
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

from fedwatt.deploy.plan.certificates import fingerprint
from fedwatt.deploy.transport.processes import Flower
from fedwatt.errors import RunError

UNREGISTERED = "unregistered"
"""Flower's word for a key that it accepts no longer."""


@dataclass(frozen=True)
class Node:
    """A vehicle's key as the server knows it."""

    number: int
    name: str  # that it was registered under
    status: str  # registered (never seen), online, offline or unregistered
    fingerprint: str = ""  # of the key


class Control:
    """A connection to the server's operators' interface; a context manager."""

    def __init__(self, flower: Flower) -> None:
        self.flower = flower
        certificate = flower.store.owner.read_bytes()
        versions = RuntimeVersionHttpInterceptor(component_name="flwr CLI")
        self.client = ControlHttpClient.from_server_address(
            flower.local_address, False, certificate, [versions]
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.client.close()

    def nodes(self) -> list[Node]:
        """Return vehicles' keys in the order of their registration, refused ones included."""
        infos = self._ask("supernode list", "ListNodes").nodes_info
        nodes = []
        for info in sorted(infos, key=lambda node: node.registered_at):
            key = load_pem_public_key(info.public_key)
            digest = fingerprint(key) if isinstance(key, ec.EllipticCurvePublicKey) else ""
            nodes.append(Node(info.node_id, info.name, info.status, digest))
        return nodes

    def runs(self) -> set[int]:
        """Return the numbers of the runs since the server was started."""
        return {info.run_id for info in self._ask("list", "ListRuns").run_dict.values()}

    def register(self, key: ec.EllipticCurvePublicKey, name: str) -> int:
        """Make the server accept a vehicle's key; return the number of its node."""
        content = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        what = f"supernode register {name}"
        return int(self._ask(what, "RegisterNode", public_key=content, name=name).node_id)

    def unregister(self, node: int) -> None:
        """Make the server refuse a vehicle's key."""
        self._ask(f"supernode unregister {node}", "UnregisterNode", node_id=node)

    def stop(self, run: int) -> None:
        """End a run."""
        self._ask(f"stop {run}", "StopRun", run_id=run)

    def _ask(self, command: str, request: str, **fields: object) -> Any:
        """Return Flower's answer to a request; RunError, naming Flower's `command`, if none."""
        message = getattr(control_pb2, f"{request}Request")(**fields)
        try:
            return getattr(self.client, request)(message)
        except httpx.HTTPStatusError as error:
            refusal = FlowerError.from_json(error.response.text)
            reason = error.response.text[:200] if refusal is None else refusal.message
            raise RunError(f"The server refuses 'flwr {command}': {reason}") from error
        except httpx.HTTPError as error:
            raise RunError(
                f"No server answers at {self.flower.local_address} ({error}). 'fedwatt deploy "
                "server' starts one; --address must be as there."
            ) from error
