"""`fedwatt deploy` as a person types it, where no process has to be started."""

from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedwatt.elevation.store import read_field, write_field
from fedwatt.synthetic import synthetic_vehicles
from fedwatt.telemetry.store import write_fleet


@pytest.fixture
def depot(type_in, tmp_path: Path) -> Path:
    status, said = type_in("deploy", "keys", "create", "--host", "depot.example.org")
    assert status == 0, said
    status, said = type_in("deploy", "keys", "add", "car-001", "car-002")
    assert status == 0, said
    return tmp_path / "depot"


def test_keys_are_made_listed_and_taken_away(type_in, depot: Path) -> None:
    assert (depot / "vehicles" / "car-001" / "key").stat().st_mode & 0o077 == 0
    status, said = type_in("deploy", "keys", "revoke", "car-002")
    assert status == 0, said
    status, said = type_in("deploy", "keys", "list")
    assert "car-001" in said and "car-002" not in said
    status, said = type_in("deploy", "keys", "rotate", "car-009")
    assert status == 2
    assert "There is no vehicle 'car-009'" in said
    assert type_in("deploy", "keys", "rotate")[0] == 2
    assert type_in("deploy", "keys", "create", "--host", "x")[0] == 2


def test_a_dry_run_says_what_it_would_join_with(type_in, depot: Path, tmp_path: Path) -> None:
    write_fleet(tmp_path / "fleet", synthetic_vehicles(1, 0), "synthetic")
    vehicle = ("deploy", "vehicle", "fleet/car-001", "--dry-run", "--nice", "0", "--keys")
    status, said = type_in(*vehicle, "depot/vehicles/car-001")
    assert status == 0, said
    assert "Vehicle car-001: windows" in said
    assert "Nothing was sent." in said and "another's" not in said
    assert "is this one another's?" in type_in(*vehicle, "depot/vehicles/car-002")[1]
    status, said = type_in(*vehicle, "nowhere")
    assert status == 2
    assert "There is no key" in said
    (depot / "vehicles" / "car-001" / "key").chmod(0o644)
    status, said = type_in(*vehicle, "depot/vehicles/car-001")
    assert status == 2
    assert "Others can read" in said


def test_a_dry_run_looks_at_the_field_on_board(type_in, tmp_path: Path) -> None:
    write_fleet(tmp_path / "fleet", synthetic_vehicles(1, 0, trips=5), "synthetic")
    dry_run = ("deploy", "vehicle", "fleet/car-001", "--dry-run", "--nice", "0", "--insecure")
    learn = ("terrain", "learn", "fleet", "--minimum-vehicles", "1", "--window", "30")
    status, said = type_in(*learn, "--out", "field.parquet")
    assert status == 0, said
    field = read_field(tmp_path / "field.parquet")
    status, said = type_in(*dry_run, "--field", "field.parquet")
    assert status == 0, said
    assert f"The field field.parquet has {field.nodes:,} nodes." in said
    assert "data.split = [0.7, 0.1, 0.2], split_seed = 0 and window = 30" in said
    write_field(tmp_path / "found.parquet", field)
    assert "does not say whose trips taught it" in type_in(*dry_run, "--field", "found.parquet")[1]
    status, said = type_in(*dry_run, "--field", "nowhere.parquet")
    assert status == 2
    assert f"There is no field {Path.cwd() / 'nowhere.parquet'}" in said
    (tmp_path / "damaged.parquet").write_text("hills")
    status, said = type_in(*dry_run, "--field", "damaged.parquet")
    assert status == 2
    assert "damaged.parquet is not a field that can be read" in said


def test_a_dry_run_says_when_it_would_answer(type_in, tmp_path: Path) -> None:
    write_fleet(tmp_path / "fleet", synthetic_vehicles(1, 0, trips=5), "synthetic")
    dry_run = ("deploy", "vehicle", "fleet/car-001", "--dry-run", "--nice", "0", "--insecure")
    status, said = type_in(*dry_run, "--hours", "00:00-12:00,12:00-00:00 UTC")
    assert status == 0, said
    assert "It answers at 00:00-12:00,12:00-00:00 UTC, and so it would now." in said
    status, said = type_in(*dry_run, "--hours", "at night")
    assert status == 2 and "such as 22:00-06:00" in said
    status, said = type_in(*dry_run, "--bandwidth", "much")
    assert status == 2 and "such as 200kB/s" in said


def test_a_vehicle_needs_keys_or_says_that_it_has_none(type_in, tmp_path: Path) -> None:
    status, said = type_in("deploy", "vehicle", "fleet/car-001")
    assert status == 2
    assert "--keys is needed" in said


def test_a_server_needs_keys_and_a_free_port(type_in, depot: Path, tmp_path: Path) -> None:
    import socket

    assert "has no keys" in type_in("deploy", "server", "--depot", "empty")[1]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        status, said = type_in("deploy", "server", "--address", address)
    assert status == 2
    assert f"Cannot listen at {address}" in said


def test_what_cannot_be_deployed_is_refused_before_anything_starts(type_in, depot: Path) -> None:
    status, said = type_in("deploy", "submit", "--set", "seeds=[1,2]")
    assert status == 2
    assert "one model at a time" in said


@pytest.mark.parametrize(
    "command",
    [("status",), ("keys", "apply"), ("submit", "--set", "seeds=[1]", "--out", "run")],
    ids=lambda words: words[0],
)
def test_no_server_is_said_in_a_sentence(
    command: tuple[str, ...], type_in, depot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedwatt.cli.deploy.PATIENCE", 0.2)
    # Nothing listens at port 1.
    status, said = type_in("deploy", *command, "--address", "127.0.0.1:1")
    assert status == 2
    assert "No server answers at 127.0.0.1:1" in said
    assert "'fedwatt deploy server' starts one" in said
    assert "Traceback" not in said


def test_a_folder_is_looked_at_before_anything_is_sent(type_in, depot: Path, tmp_path) -> None:
    submit = ("deploy", "submit", "--set", "seeds=[1]", "--address", "127.0.0.1:1")
    status, said = type_in(*submit, "--resume", "--out", "run")
    assert status == 2
    assert "run holds no run, so there is nothing to continue" in said
    status, said = type_in(*submit, "--out", "depot")
    assert status == 2
    assert "depot is not empty" in said


def test_a_run_that_never_began_may_be_submitted_again(
    type_in, depot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedwatt.cli.deploy.PATIENCE", 0.2)
    (tmp_path / "run" / "app").mkdir(parents=True)
    (tmp_path / "run" / "deployment.json").write_text("{}")
    submit = ("deploy", "submit", "--set", "seeds=[1]", "--address", "127.0.0.1:1")
    assert "No server answers" in type_in(*submit, "--out", "run")[1]
