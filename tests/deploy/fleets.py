"""A small stored fleet, its owner, and vehicles behind a channel without a network."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from safetensors.torch import load_file

from fedwatt.deploy.plan.certificates import VEHICLE, Owner, owner_certificate
from fedwatt.deploy.plan.plan import Plan, make_plan, read_plan
from fedwatt.deploy.server.execute import execute
from fedwatt.deploy.server.requests import Received
from fedwatt.deploy.vehicle.acceptance import Acceptance
from fedwatt.deploy.vehicle.handler import Credentials, RequestHandler
from fedwatt.deploy.wire import unpack
from fedwatt.runs.config import from_toml
from fedwatt.runs.tables import read_table
from fedwatt.synthetic import synthetic_vehicles
from fedwatt.telemetry.store import read_vehicle, vehicle_folders, write_fleet
from tests.runs.test_execute import Silent

CONFIG = """
seeds = [1]
device = "cpu"
[fleet]
data = "{fleet}"
[data]
window = 10
stride = 20
[model]
hidden = [8, 4]
[training]
rounds = {rounds}
participation = 0.7
batch = 16
[availability]
speeds = [1.0, 0.5]
[deploy]
vehicles = 4
enrolment_seconds = 5
round_seconds = 5
poll_seconds = 0.001
[[method]]
name = "{method}"
"""
QUICK_PROBE = {
    "ri-fedavg": "directions = 2\npoints = 4\nradius = 0.5\n",
    "fo-ri-fedavg": "directions = 2\npoints = 4\nradius = 0.5\n",
}
SECURE = "[secure]\nenabled = true\nstage_seconds = 5\n"
OPEN = Acceptance(secure_aggregation=False, smallest_sum=2)
"""Accepts plans without secure aggregation."""


@cache
def owner() -> Owner:
    key = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    return Owner(key, owner_certificate(key))


@cache
def credentials(name: str) -> Credentials:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = owner().issue(name, VEHICLE, key.public_key(), 10)
    return Credentials(key, certificate, owner().certificate)


@cache
def name_of(folder: Path) -> str:
    return read_vehicle(folder).name


def make_fleet(path: Path, vehicles: int = 4) -> Path:
    write_fleet(path, synthetic_vehicles(vehicles, 3, trips=12), "synthetic, for tests")
    return path


def config_text(fleet: Path, method: str = "fedavg", rounds: int = 3, more: str = "") -> str:
    text = CONFIG.format(fleet=fleet, method=method, rounds=rounds)
    return text + QUICK_PROBE.get(method, "") + more


def secured(fleet: Path, method: str = "fedavg", rounds: int = 2, more: str = "") -> str:
    text = config_text(fleet, method, rounds, more)
    text = text.replace("participation = 0.7", "participation = 1.0")
    return text.replace("[[method]]", SECURE + "[[method]]")


def plain(text: str) -> str:
    return text.replace("enabled = true", "enabled = false")


Tamper = Callable[[str, int, bytes], bytes | None]
"""(request's kind, node, reply) → what is sent in its place; None: nothing is."""


@dataclass
class Loopback:
    """A channel without processes: every node is a vehicle that answers when it is polled."""

    vehicles: dict[int, RequestHandler]
    tamper: Tamper = lambda kind, node, reply: reply
    names: dict[int, str] = field(default_factory=dict)
    offline: set[int] = field(default_factory=set)
    asked: list[tuple[int, str, bytes]] = field(default_factory=list)
    """All that reached the vehicles."""
    sent: list[tuple[int, str, bytes]] = field(default_factory=list)
    """All that left the vehicles."""
    waiting: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    count: int = 0
    before_nodes: Callable[["Loopback"], None] = lambda grid: None

    def nodes(self) -> dict[int, str]:
        self.before_nodes(self)
        return {n: self.names.get(n, "") for n in self.vehicles if n not in self.offline}

    def send(
        self, requests: Mapping[int, bytes], *, seconds: float, largest_reply: int
    ) -> dict[str, int]:
        accepted = {}
        for node, body in requests.items():
            self.count += 1
            number = f"message-{self.count}"
            self.waiting[number] = node, body
            accepted[number] = node
        return accepted

    def receive(self, ids: Collection[str]) -> dict[str, Received]:
        result = {}
        for number in ids:
            node, body = self.waiting.pop(number, (0, b""))
            if not node or node in self.offline:
                continue
            kind = str(unpack(body).values["kind"])
            self.asked.append((node, kind, body))
            reply = self.tamper(kind, node, self.vehicles[node].handle(body))
            if reply is not None:
                self.sent.append((node, kind, reply))
                result[number] = reply
        return result

    def kinds(self) -> list[str]:
        return [kind for _, kind, _ in self.sent]


def loopback(fleet: Path, state: Path, acceptance: Acceptance = OPEN) -> Loopback:
    """One node per vehicle, numbered from 1 in another order than their names."""
    folders = vehicle_folders(fleet)[::-1]
    return Loopback({
        n: RequestHandler(f, state / f.name, credentials(name_of(f)), acceptance)
        for n, f in enumerate(folders, start=1)
    })  # fmt: skip


def signed(text: str, **more: Any) -> bytes:
    return make_plan(from_toml(text), owner(), **more)


def plan_of(content: bytes) -> Plan:
    return read_plan(content, owner().certificate)


def deployed(
    text: str | bytes, grid: Loopback, out: Path, *, resume: bool = False, stop: int = 0
) -> Path:
    """Carry out a configuration, or a signed plan, in `out`; a resumed run keeps its plan."""
    content = text if isinstance(text, bytes) else signed(text)
    if resume and (out / "plan.json").exists():
        content = (out / "plan.json").read_bytes()
    execute(plan_of(content), content, out, grid, Silent(stop), resume=resume)
    return out


def column(run: Path, name: str, table: str = "clients") -> list[Any]:
    return read_table(run, table).column(name).to_pylist()


def weights(run: Path, model: str = "last") -> dict[str, Any]:
    tensors = load_file(run / "model.safetensors")
    return {name: t for name, t in tensors.items() if f"/{model}/" in name}
