"""`fedwatt deploy` as a person types it, where no process has to be started."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedwatt.synthetic import synthetic_vehicles
from fedwatt.telemetry.store import write_fleet

CONFIG = 'seeds = [1]\n[secure]\nenabled = true\n[[method]]\nname = "fedavg"\n'


@pytest.fixture
def site(type_in, tmp_path: Path) -> Path:
    """The guide up to a server that could start, with the owner's key elsewhere."""
    write_fleet(tmp_path / "fleet", synthetic_vehicles(2, 0, trips=5), "synthetic")
    (tmp_path / "office").mkdir()
    (tmp_path / "office" / "fleet.toml").write_text(CONFIG)
    owner = ("--key", "office/owner/key.pem")
    for words in (
        ("owner", "--out", "office/owner"),
        ("request", "server", "--keys", "site/server", "--hostname", "127.0.0.1"),
        ("request", "car-001", "--keys", "keys/car-001"),
        ("request", "car-002", "--keys", "keys/car-002"),
        ("sign", "site/server", "--role", "server", *owner),
        ("sign", "keys/car-001", "keys/car-002", *owner),
        ("plan", "office/fleet.toml", "--out", "plan.json", *owner),
        ("add", "plan.json", "keys/car-001", "--store", "site/server"),
    ):
        status, message = type_in("deploy", *words)
        assert status == 0, message
    return tmp_path / "site" / "server"


def test_private_keys_are_for_their_owner_alone(site: Path, tmp_path: Path) -> None:
    for key in (
        site / "key.pem",
        tmp_path / "keys/car-001/key.pem",
        tmp_path / "office/owner/key.pem",
    ):
        assert key.stat().st_mode & 0o077 == 0


def test_a_plan_is_shown_completely_and_compared_with_the_acceptance_file(
    type_in, site: Path, tmp_path: Path
) -> None:
    status, message = type_in("deploy", "show", "plan.json", "--keys", "keys/car-001")
    assert status == 0, message
    for line in (
        "Secure aggregation: over at least 3 vehicles",
        "split_seed = 0",
        "accepts the plan",
    ):
        assert line in message
    (tmp_path / "keys/car-001/acceptance.toml").write_text("smallest_sum = 10\n")
    status, message = type_in("deploy", "show", "plan.json", "--keys", "keys/car-001")
    assert status == 2 and "refuses the plan: smallest_sum" in message


def test_a_dry_run_checks_data_and_keys(type_in, site: Path, tmp_path: Path) -> None:
    vehicle = ("deploy", "vehicle", "fleet/car-001", "--dry-run", "--keys")
    status, message = type_in(*vehicle, "keys/car-001")
    assert status == 0 and "Nothing was sent." in message
    assert "are the keys of 'car-002'" in type_in(*vehicle, "keys/car-002")[1]
    assert "There is no key" in type_in(*vehicle, "nowhere")[1]
    (tmp_path / "keys/car-001/key.pem").chmod(0o644)
    assert "Others can read" in type_in(*vehicle, "keys/car-001")[1]


def test_a_server_refuses_to_start_where_it_can_read_the_owners_key(
    type_in, site: Path, tmp_path: Path
) -> None:
    for place in ("site/server/backup/key.pem", "site/owner.key", "owner/key.pem"):
        copy = tmp_path / place
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / "office/owner/key.pem", copy)
        status, message = type_in("deploy", "server", "--store", "site/server")
        assert status == 2
        assert "is the owner's private key, and this server can read it" in message, place
        copy.unlink()


def test_a_server_needs_keys_and_a_free_port(type_in, site: Path) -> None:
    import socket

    assert "is no certificate" in type_in("deploy", "server", "--store", "empty")[1]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        status, message = type_in(
            "deploy", "server", "--store", "site/server", "--address", address
        )
    assert status == 2
    assert f"Cannot listen at {address}" in message


def test_a_vehicles_certificate_is_not_a_servers(type_in, site: Path, tmp_path: Path) -> None:
    shutil.copy(tmp_path / "keys/car-001/certificate.pem", site / "certificate.pem")
    status, message = type_in("deploy", "server", "--store", "site/server")
    assert status == 2 and "not that of a server" in message
    shutil.copy(site / "owner.pem", tmp_path / "keys/car-001/certificate.pem")
    status, message = type_in("deploy", "add", "keys/car-001", "--store", "site/server")
    assert status == 2


def test_what_cannot_be_deployed_is_refused_before_it_is_signed(type_in, site: Path) -> None:
    plan = ("deploy", "plan", "office/fleet.toml", "--key", "office/owner/key.pem")
    status, message = type_in(*plan, "--set", "seeds=[1,2]")
    assert status == 2 and "one model at a time" in message
    status, message = type_in(*plan, "--set", "model.name=fedwatt.cli:main")
    assert status == 2


@pytest.mark.parametrize("command", [("status",), ("run", "--out", "run")], ids=lambda w: w[0])
def test_no_server_is_said_in_a_sentence(
    command: tuple[str, ...], type_in, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedwatt.cli.deploy.PATIENCE", 0.2)
    # Nothing listens at port 1.
    words = (*command, "--store", "site/server", "--address", "127.0.0.1:1")
    status, message = type_in("deploy", *words)
    assert status == 2
    assert "No server answers at 127.0.0.1:1" in message
    assert "Traceback" not in message


def test_a_folder_is_checked_before_anything_is_sent(type_in, site: Path) -> None:
    submit = ("deploy", "run", "--store", "site/server", "--address", "127.0.0.1:1")
    status, message = type_in(*submit, "--resume", "--out", "run")
    assert status == 2 and "nothing to continue" in message
    status, message = type_in(*submit, "--out", "office")
    assert status == 2 and "is not empty" in message


def test_quickstart_says_that_it_is_a_trial_and_leaves_no_owners_key(
    type_in, tmp_path: Path
) -> None:
    status, message = type_in("deploy", "quickstart", "trial")
    assert status == 0, message
    assert "This is a trial" in message
    from fedwatt.deploy.plan.store import KeyStore

    KeyStore(tmp_path / "trial" / "server").check_server()
    assert "is not empty" in type_in("deploy", "quickstart", "trial")[1]
