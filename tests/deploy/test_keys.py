"""Certificates, keys, commands, and the vehicle's limits."""

import os
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("flwr")

import torch
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.cli.config_utils import load_and_validate

from fedwatt.deploy.commands import Flower
from fedwatt.deploy.connection import key_pair
from fedwatt.deploy.control import Control, Node
from fedwatt.deploy.flower import UNREGISTERED
from fedwatt.deploy.keys import Depot
from fedwatt.deploy.limits import Limits
from fedwatt.deploy.memory import KEPT_RUNS, forget_old_runs, memory_folder, recall, remember
from fedwatt.deploy.processes import write_app
from fedwatt.deploy.register import apply_registry
from fedwatt.errors import RunError, SettingError
from fedwatt.runs.config import from_tables, from_toml


@pytest.fixture
def depot(tmp_path: Path) -> Depot:
    depot = Depot(tmp_path / "depot")
    depot.create(["depot.example.org", "192.0.2.7"])
    return depot


def test_the_servers_certificate_is_signed_for_its_names(depot: Depot) -> None:
    authority = x509.load_pem_x509_certificate(depot.ca.read_bytes())
    server = x509.load_pem_x509_certificate(depot.server[0].read_bytes())
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    found = [str(name.value) for name in names]
    # Operators come from the machine itself.
    assert found == ["depot.example.org", "192.0.2.7", "127.0.0.1", "localhost"]


def test_private_keys_are_their_owners_alone(depot: Depot) -> None:
    folder = depot.add_vehicle("car-001")
    for path in (depot.folder / "ca.key", depot.server[1], folder / "key"):
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_vehicle_has_a_pair_that_flower_takes(depot: Depot) -> None:
    folder = depot.add_vehicle("bus 1/a")
    private, public = key_pair(folder / "key")
    read = load_ssh_public_key((folder / "key.pub").read_bytes())
    assert isinstance(private.curve, ec.SECP384R1)
    assert read == public
    assert (folder / "ca.pem").read_bytes() == depot.ca.read_bytes()
    with pytest.raises(RunError, match="already has a key"):
        depot.add_vehicle("bus 1/a")


def test_a_replaced_and_a_revoked_key_are_to_be_refused(depot: Depot) -> None:
    before = (depot.add_vehicle("car-001") / "key.pub").read_text()
    depot.add_vehicle("car-002")
    registry = depot.registry()
    registry.nodes = {"car-001": 11, "car-002": 12}  # as the server has answered
    depot.save(registry)
    assert (depot.rotate_vehicle("car-001") / "key.pub").read_text() != before
    depot.revoke_vehicle("car-002")
    assert depot.registry().nodes == {"car-001": 0}
    assert depot.registry().retired == [11, 12]
    assert not depot.vehicle("car-002").exists()


class Told(Control):
    """A server that registers keys by number; something may happen while it does."""

    def __init__(self, depot: Depot, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__(Flower(depot))
        self.meanwhile = meanwhile
        self.accepted: dict[int, str] = {}
        self.refused: list[int] = []

    def nodes(self) -> list[Node]:
        gone = [Node(number, "", UNREGISTERED) for number in self.refused]
        return [Node(number, "", "online") for number in self.accepted] + gone

    def unregister(self, node: int) -> None:
        del self.accepted[node]
        self.refused.append(node)

    def register(self, public: Path, name: str) -> int:
        node = 101 + len(self.accepted) + len(self.refused)
        self.accepted[node] = public.read_text()
        self.meanwhile()
        return node


def test_a_key_that_is_revoked_while_keys_are_registered_stays_revoked(depot: Depot) -> None:
    depot.add_vehicle("car-001")
    depot.add_vehicle("car-002")
    events = iter([lambda: depot.revoke_vehicle("car-001"), lambda: depot.add_vehicle("car-003")])
    server = Told(depot, lambda: next(events)())
    commands = list(apply_registry(server))
    # Registered, revoked meanwhile, and therefore unregistered in the end.
    assert [words[2] for words in commands] == ["register", "register", "unregister"]
    assert depot.registry().nodes == {"car-002": 102, "car-003": 0}
    assert depot.registry().retired == []
    assert set(server.accepted) == {102}


def test_a_key_that_is_replaced_while_it_is_registered_is_registered_anew(depot: Depot) -> None:
    depot.add_vehicle("car-001")
    rotations = iter([lambda: depot.rotate_vehicle("car-001")])
    server = Told(depot, lambda: next(rotations, lambda: None)())
    list(apply_registry(server))
    assert not server.accepted and depot.registry().nodes == {"car-001": 0}
    list(apply_registry(server))
    assert list(server.accepted.values()) == [(depot.vehicle("car-001") / "key.pub").read_text()]


def test_vehicles_added_at_the_same_time_are_all_in_the_registry(depot: Depot) -> None:
    names = [f"car-{number:03d}" for number in range(8)]
    adding = [threading.Thread(target=depot.add_vehicle, args=(name,)) for name in names]
    for thread in adding:
        thread.start()
    for thread in adding:
        thread.join()
    assert sorted(depot.registry().nodes) == names


def test_an_old_key_is_to_be_refused_even_if_there_is_no_new_one(
    depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    depot.add_vehicle("car-001")
    with depot.changing() as registry:
        registry.nodes["car-001"] = 11

    def full_disk(self: Depot, name: str) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(Depot, "_write_pair", full_disk)
    with pytest.raises(OSError, match="No space"):
        depot.rotate_vehicle("car-001")
    assert depot.registry().retired == [11]


def test_the_server_gets_a_new_certificate_for_the_same_names(depot: Depot) -> None:
    old = x509.load_pem_x509_certificate(depot.server[0].read_bytes())
    depot.renew_server([])
    new = x509.load_pem_x509_certificate(depot.server[0].read_bytes())
    kind = x509.SubjectAlternativeName
    assert old.serial_number != new.serial_number
    assert (
        old.extensions.get_extension_for_class(kind).value
        == new.extensions.get_extension_for_class(kind).value
    )


def test_the_server_asks_for_keys_and_shows_its_certificate(depot: Depot) -> None:
    command = Flower(depot, "0.0.0.0:9092").superlink()
    assert "--enable-supernode-auth" in command
    assert "--insecure" not in command
    assert str(depot.ca.resolve()) in command
    environment = Flower(depot).environment()
    assert environment["FLWR_TELEMETRY_ENABLED"] == "0"
    assert environment["FLWR_HOME"] == str(depot.folder.resolve() / "flower")


def test_the_app_names_what_is_installed_and_holds_the_configuration(tmp_path: Path) -> None:
    config = from_tables({"seeds": [1], "training": {"rounds": 7}})
    write_app(tmp_path / "app", config, tmp_path / "run", False)
    loaded, _ = load_and_validate(tmp_path / "app" / "pyproject.toml")
    told = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())
    settings = told["tool"]["flwr"]["app"]["config"]
    assert from_toml(settings["config"]) == config
    assert settings["out"] == str((tmp_path / "run").resolve())
    assert loaded["tool"]["flwr"]["app"]["components"]["serverapp"].startswith("fedwatt.deploy.")


def test_memory_and_threads_are_bounded() -> None:
    code = (
        "import torch\n"
        "from fedwatt.deploy.limits import Limits\n"
        "Limits(threads=1, memory_mb=512, nice=3).apply()\n"
        "import os; print(torch.get_num_threads(), os.nice(0))\n"
        "torch.zeros(1000)\n"
        "try:\n"
        "    torch.zeros(2 * 10**8)\n"
        "except (RuntimeError, MemoryError):\n"
        "    print('refused')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.split() == ["1", str(max(os.nice(0), 3)), "refused"]
    with pytest.raises(SettingError, match="at least 256"):
        Limits(memory_mb=100)


def test_a_vehicle_keeps_the_memory_of_a_few_runs_and_all_that_is_not_memory(
    tmp_path: Path,
) -> None:
    others = [tmp_path / name for name in ("depot", "photos", "memory/a", "memory/b", "memory/c")]
    for folder in others:
        folder.mkdir(parents=True)
        (folder / "mine.txt").write_text("not to be deleted")
        os.utime(folder, (0, 0))
    for number in range(6):
        folder = memory_folder(tmp_path, f"run-{number}", "scaffold")
        remember(folder, 0, {"control": torch.ones(2)})
        os.utime(folder.parent, (number, number))
    forget_old_runs(tmp_path, "run-5")
    kept = [memory_folder(tmp_path, f"run-{n}", "scaffold").exists() for n in range(6)]
    assert kept == [False, False, False, True, True, True]
    assert sum(kept) == KEPT_RUNS
    assert all((folder / "mine.txt").exists() for folder in others)


@pytest.mark.parametrize("loss", ["missing", "damaged", "of another shape"])
def test_lost_memory_is_said_aloud(
    loss: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, initial = memory_folder(tmp_path, "run", "scaffold"), {"control": torch.zeros(2)}
    remember(folder, 3, {"control": torch.ones(3 if loss == "of another shape" else 2)})
    (file,) = folder.glob("round-*")
    if loss == "missing":
        file.unlink()
    if loss == "damaged":
        file.write_bytes(file.read_bytes()[:20])
    assert recall(folder, 3, initial)["control"].tolist() == [0.0, 0.0]
    assert "begins anew" in caplog.text
    caplog.clear()
    # Before the first round, and for methods that remember nothing, nothing is lost.
    assert recall(folder, -1, initial).keys() == {"control"} and recall(folder, 3, {}) == {}
    assert not caplog.text


def test_no_name_leads_out_of_the_state_folder(tmp_path: Path) -> None:
    folder = memory_folder(tmp_path, "../../etc", "a/../../b")
    assert folder.resolve().is_relative_to(tmp_path.resolve())
