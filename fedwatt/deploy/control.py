"""What an operator asks the server: its vehicles, its runs, and whose keys it is to accept.

The requests of `flwr supernode` and `flwr list`, over one connection: a start of Flower's command
line takes more than a second, and a depot has many vehicles.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from fedwatt.deploy.commands import Flower
from fedwatt.deploy.flower import UNREGISTERED, ControlClient, RefusedError, requesting
from fedwatt.errors import RunError


@dataclass(frozen=True)
class Node:
    """A vehicle's key as the server knows it."""

    number: int
    name: str
    """That it was registered under."""
    status: str
    """registered (never seen), online, offline or unregistered."""
    since: str = ""
    """When that began, UTC."""


@dataclass(frozen=True)
class Run:
    """A run as the server knows it."""

    number: int
    status: str
    """pending, starting, running, or finished and how."""
    since: str


class Control:
    """A connection to the server's operators' interface; a context manager."""

    def __init__(self, flower: Flower) -> None:
        self.flower = flower
        certificate = None if flower.insecure else flower.authority().read_bytes()
        self.client = ControlClient(flower.local_address, flower.insecure, certificate)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self.client.close()

    def nodes(self) -> list[Node]:
        """Vehicles' keys, in the order in which they were registered, refused ones included."""
        with self._asking("supernode list"):
            found = self.client.nodes()
        changed = {
            "online": "last_activated_at",
            "offline": "last_deactivated_at",
            UNREGISTERED: "unregistered_at",
        }
        return [
            Node(
                one.node_id,
                one.name,
                one.status,
                _to_the_second(getattr(one, changed.get(one.status, "registered_at"))),
            )
            for one in found
        ]

    def runs(self) -> list[Run]:
        """Runs since the server was started, the first one first."""
        with self._asking("list"):
            found = self.client.runs()
        return [
            Run(
                run.run_id,
                " ".join(filter(None, (run.status.status, run.status.sub_status))),
                _to_the_second(
                    run.finished_at or run.running_at or run.starting_at or run.pending_at
                ),
            )
            for run in found
        ]

    def register(self, public: Path, name: str) -> int:
        """Make the server accept a vehicle's key; the number of its node."""
        try:
            key = load_ssh_public_key(public.read_bytes())
        except (OSError, ValueError) as error:
            raise RunError(f"{public} is no public key: {error}.") from error
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise RunError(f"{public} is no elliptic-curve key. 'keys rotate {name}' makes one.")
        with self._asking(f"supernode register {name}"):
            return self.client.register(key, name)

    def unregister(self, node: int) -> None:
        """Make the server refuse a vehicle's key."""
        with self._asking(f"supernode unregister {node}"):
            self.client.unregister(node)

    def stop(self, run: int) -> None:
        """End a run."""
        with self._asking(f"stop {run}"):
            self.client.stop(run)

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        """Turn what goes wrong into a sentence."""
        where = self.flower.local_address
        try:
            with requesting():
                yield
        except RefusedError as error:
            raise RunError(f"The server refuses 'flwr {what}': {error}") from error
        except ConnectionError as error:
            raise RunError(
                f"No server answers at {where} ({error}). 'fedwatt deploy server' starts one; "
                "--address and --insecure must be as there."
            ) from error


def _to_the_second(time: str) -> str:
    """Flower's way to write a time, for people.

    >>> _to_the_second("2026-01-31T12:00:05.123456+00:00")
    '2026-01-31 12:00:05'
    """
    return time[:19].replace("T", " ")
