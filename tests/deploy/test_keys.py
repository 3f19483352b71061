"""Certificates, keys, commands, and the vehicle's limits."""

import json
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
from cryptography.hazmat.primitives.serialization import Encoding, load_ssh_public_key
from flwr.cli.config_utils import load_and_validate

from fedwatt.deploy.commands import Flower
from fedwatt.deploy.connection import key_pair
from fedwatt.deploy.control import Control, Node
from fedwatt.deploy.flower import UNREGISTERED
from fedwatt.deploy.key_request import fingerprint, make_request, read_public
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
    assert isinstance(private.curve, ec.SECP256R1)
    assert read == public
    assert (folder / "ca.pem").read_bytes() == depot.ca.read_bytes()
    with pytest.raises(RunError, match="already has the key"):
        depot.add_vehicle("bus 1/a")


def own_key(depot: Depot, name: str) -> str:
    return fingerprint(read_public(depot.vehicle(name) / "key.pub"))


def test_a_replaced_and_a_revoked_key_are_to_be_refused(depot: Depot) -> None:
    depot.add_vehicle("car-001")
    depot.add_vehicle("car-002")
    before, other = own_key(depot, "car-001"), own_key(depot, "car-002")
    depot.rotate_vehicle("car-001")
    assert depot.revoke_vehicle("car-002") == "car-002"
    assert depot.registry().keys == {"car-001": own_key(depot, "car-001")}
    assert depot.registry().revoked == [before, other]
    assert before != own_key(depot, "car-001")
    assert not depot.vehicle("car-002").exists()


def test_a_vehicle_makes_its_own_key_and_the_depot_signs_it(depot: Depot, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    shown = make_request("bus 1/a", keys)
    assert (keys / "key").stat().st_mode & 0o777 == 0o600
    signed = depot.sign(keys)
    assert signed.vehicle == "bus 1/a" and fingerprint(signed.key) == shown
    assert depot.registry().keys == {"bus 1/a": shown}
    assert keys / "ca.pem" in depot.hand_out("bus 1/a", keys)
    assert (keys / "ca.pem").read_bytes() == depot.ca.read_bytes()
    private, public = key_pair(keys / "key")
    assert public == signed.key == private.public_key()
    # The depot has no private key of the vehicle's.
    kept = {path.name for path in depot.vehicle("bus 1/a").iterdir()}
    assert {"ca.pem", "key.pub"} <= kept and "key" not in kept
    with pytest.raises(RunError, match="made its key itself"):
        depot.rotate_vehicle("bus 1/a")
    depot.sign(keys)  # once more changes nothing
    assert depot.registry().revoked == []


def test_a_new_key_from_on_board_takes_the_place_of_the_old_one(
    depot: Depot, tmp_path: Path
) -> None:
    old, new = make_request("car-001", tmp_path / "old"), make_request("car-001", tmp_path / "new")
    depot.sign(tmp_path / "old" / "request.pem")
    with pytest.raises(RunError, match="already has the key SHA256:"):
        depot.sign(tmp_path / "new")
    depot.sign(tmp_path / "new", replace=True)
    assert depot.registry().keys == {"car-001": new} and depot.registry().revoked == [old]
    with pytest.raises(RunError, match="was revoked"):
        depot.sign(tmp_path / "old", replace=True)
    assert depot.registry().keys == {"car-001": new}
    with pytest.raises(RunError, match="already has a key"):
        make_request("car-001", tmp_path / "new")


def test_a_key_is_revoked_by_its_fingerprint(depot: Depot, tmp_path: Path) -> None:
    key = make_request("car-001", tmp_path / "keys")
    depot.sign(tmp_path / "keys")
    assert depot.revoke_vehicle(key) == "car-001"
    lost = "SHA256:" + "A" * 43
    assert depot.revoke_vehicle(lost) == ""  # of a key that nobody has presented yet
    assert depot.registry().keys == {} and depot.registry().revoked == [key, lost]
    with pytest.raises(RunError, match="no vehicle 'car-009'"):
        depot.revoke_vehicle("car-009")


def test_a_request_must_be_signed_with_its_own_key(depot: Depot, tmp_path: Path) -> None:
    make_request("car-001", tmp_path / "keys")
    request = tmp_path / "keys" / "request.pem"
    der = bytearray(x509.load_pem_x509_csr(request.read_bytes()).public_bytes(Encoding.DER))
    der[der.index(b"car-001") + 6] = ord("2")  # car-002
    forged = x509.load_der_x509_csr(bytes(der))
    request.write_bytes(forged.public_bytes(Encoding.PEM))
    with pytest.raises(RunError, match="not signed with its own key"):
        depot.sign(tmp_path / "keys")
    request.write_text("nonsense")
    with pytest.raises(RunError, match="no request of a vehicle"):
        depot.sign(request)


class Told(Control):
    """A server that accepts keys by number; something may happen while it does."""

    def __init__(self, depot: Depot, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__(Flower(depot))
        self.meanwhile = meanwhile
        self.accepted: dict[int, tuple[str, str]] = {}
        self.refused: list[int] = []

    def nodes(self) -> list[Node]:
        gone = [Node(number, "", UNREGISTERED) for number in self.refused]
        known = self.accepted.items()
        return [Node(n, name, "online", fingerprint=key) for n, (name, key) in known] + gone

    def unregister(self, node: int) -> None:
        del self.accepted[node]
        self.refused.append(node)

    def register(self, public: Path, name: str) -> int:
        node = 101 + len(self.accepted) + len(self.refused)
        self.accepted[node] = name, fingerprint(read_public(public))
        self.meanwhile()
        return node


def test_a_key_that_is_revoked_while_keys_are_registered_stays_revoked(depot: Depot) -> None:
    depot.add_vehicle("car-001")
    depot.add_vehicle("car-002")
    events = iter([lambda: depot.revoke_vehicle("car-001"), lambda: depot.add_vehicle("car-003")])
    server = Told(depot, lambda: next(events, lambda: None)())
    commands = list(apply_registry(server))
    # Registered, revoked meanwhile, and therefore unregistered in the end.
    assert [words[2] for words in commands] == ["register", "register", "unregister", "register"]
    assert [name for name, _ in server.accepted.values()] == ["car-002", "car-003"]


def test_a_key_that_is_replaced_while_it_is_registered_is_registered_anew(depot: Depot) -> None:
    depot.add_vehicle("car-001")
    rotations = iter([lambda: depot.rotate_vehicle("car-001")])
    server = Told(depot, lambda: next(rotations, lambda: None)())
    list(apply_registry(server))
    assert list(server.accepted.values()) == [("car-001", own_key(depot, "car-001"))]


def test_a_revoked_key_is_refused_whatever_another_server_answered(depot: Depot) -> None:
    """Two servers number the same keys differently; numbers mean nothing to the depot."""
    for name in ("car-001", "car-002", "car-003"):
        depot.add_vehicle(name)
    first, second = Told(depot), Told(depot)
    list(apply_registry(first))
    second.refused = [101]  # so that its numbers are not the first one's
    list(apply_registry(second))
    depot.revoke_vehicle("car-001")
    for server in (second, first):
        list(apply_registry(server))
        assert [name for name, _ in server.accepted.values()] == ["car-002", "car-003"]


def test_what_fails_for_one_vehicle_is_done_for_the_others(depot: Depot) -> None:
    for name in ("car-001", "car-002"):
        depot.add_vehicle(name)
    server = Told(depot)
    list(apply_registry(server))
    depot.revoke_vehicle("car-001")
    depot.revoke_vehicle("car-002")
    depot.add_vehicle("car-003")
    unregister = server.unregister

    def stubborn(node: int) -> None:
        if node == 101:
            raise RunError("The server refuses.")
        unregister(node)

    server.unregister = stubborn
    with pytest.raises(RunError, match="The key of car-001 is still accepted: The server refuses"):
        list(apply_registry(server))
    assert [name for name, _ in server.accepted.values()] == ["car-001", "car-003"]
    server.unregister = unregister
    list(apply_registry(server))
    assert [name for name, _ in server.accepted.values()] == ["car-003"]


def test_vehicles_added_at_the_same_time_are_all_in_the_registry(depot: Depot) -> None:
    names = [f"car-{number:03d}" for number in range(8)]
    adding = [threading.Thread(target=depot.add_vehicle, args=(name,)) for name in names]
    for thread in adding:
        thread.start()
    for thread in adding:
        thread.join()
    assert sorted(depot.registry().keys) == names


def test_a_depot_of_an_earlier_version_goes_on(depot: Depot) -> None:
    before = {"keys": {"car-001": "SHA256:one", "car-002": "SHA256:two"}, "revoked": ["SHA256:0"]}
    (depot.folder / "registry.json").write_text(json.dumps(before))
    first = depot.changed()
    depot.revoke_vehicle("car-001")
    depot.add_vehicle("car-003")
    registry = depot.registry()
    assert registry.keys == {"car-002": "SHA256:two", "car-003": own_key(depot, "car-003")}
    assert registry.revoked == ["SHA256:0", "SHA256:one"] and registry.news == []
    assert depot.changed() > first
    # What is there is never written again, and a line that was cut short does not count.
    lines = (depot.folder / "registry.jsonl").read_text().splitlines(keepends=True)
    assert len(lines) == 2
    (depot.folder / "registry.jsonl").write_text(lines[0] + lines[1][:20])
    assert list(depot.registry().keys) == ["car-002"]
    (depot.folder / "registry.jsonl").write_text("nonsense\n")
    with pytest.raises(RunError, match=r"registry.jsonl is damaged"):
        depot.registry()


def test_of_two_registries_the_damaged_one_is_named(depot: Depot) -> None:
    depot.add_vehicle("car-001")
    (depot.folder / "registry.json").write_text("{")
    with pytest.raises(RunError, match=r"registry\.json is damaged.*revoke once more"):
        depot.registry()


def test_a_line_revokes_a_key_and_no_vehicle_of_that_name(depot: Depot) -> None:
    accepted = [{"vehicle": "SHA256:two", "key": "SHA256:one"}]
    accepted += [{"vehicle": "car-002", "key": "SHA256:two"}, {"key": "SHA256:two"}]
    lines = "".join(json.dumps(line) + "\n" for line in accepted)
    (depot.folder / "registry.jsonl").write_text(lines)
    assert depot.registry().keys == {"SHA256:two": "SHA256:one"}
    assert depot.registry().revoked == ["SHA256:two"]
    with pytest.raises(RunError, match="would be taken for a key"):
        depot.add_vehicle("SHA256:three")


def test_a_name_may_hold_what_elsewhere_ends_a_line(depot: Depot) -> None:
    depot.add_vehicle("car\u2028x")
    depot.add_vehicle("car\u0085y")
    assert list(depot.registry().keys) == ["car\u2028x", "car\u0085y"]


def test_an_old_key_is_to_be_refused_even_if_there_is_no_new_one(
    depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    depot.add_vehicle("car-001")
    old = own_key(depot, "car-001")

    def full_disk(self: Depot, name: str) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(Depot, "_write_pair", full_disk)
    with pytest.raises(OSError, match="No space"):
        depot.rotate_vehicle("car-001")
    assert depot.registry().revoked == [old]


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
