"""`fedwatt data import` and `map`, as typed, on small files in the published layouts."""

from pathlib import Path

import pytest

from fedwatt.fleet.store import read_fleet
from tests.telemetry.conftest import VED_HEADER, ved_rows


@pytest.fixture
def week(tmp_path: Path) -> Path:
    """Four trips of one electric car, 400 Wh each."""
    rows = [row for trip in range(4) for row in ved_rows(trip=trip, day=trip + 0.5)]
    path = tmp_path / "VED_171101_week.csv"
    path.write_text("\n".join([VED_HEADER, *(",".join(row) for row in rows)]) + "\n")
    return path


def test_ved_becomes_a_fleet(type_in, week: Path, tmp_path: Path) -> None:
    status, printed = type_in(
        *("data", "import", "ved", week.name, "--powertrain", "ev"),
        *("--minimum-trips", "3", "--out", "fleet"),
    )
    assert status == 0, printed
    assert "4 trips kept; 0 dropped" in printed
    assert "fedwatt run --data fleet" in printed
    (vehicle,) = read_fleet(tmp_path / "fleet")
    assert vehicle.name == "ved-10"
    assert vehicle.labels == "measured"
    # 200 s at 360 V and 20 A.
    for trip in vehicle.trips:
        assert trip.channels["energy_wh"].sum() == pytest.approx(400.0, rel=1e-3)
    status, printed = type_in("data", "describe", "fleet", "--plot", "fleet.svg")
    assert status == 0
    assert "ved-10" in printed
    assert "4 trips kept" in printed
    assert (tmp_path / "fleet.svg").read_text().lstrip().startswith("<?xml")


def test_plain_files_go_through_a_mapping(type_in, week: Path, tmp_path: Path) -> None:
    status, printed = type_in("data", "import", "csv", week.name, "--out", "fleet")
    assert status == 2
    assert "fedwatt data map" in printed
    status, printed = type_in("data", "map", week.name, "--out", "map.toml")
    assert status == 0
    assert "check its units and signs" in printed
    text = (tmp_path / "map.toml").read_text()
    assert "Vehicle Speed[km/h]" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.csv"], "nowhere.csv"),
        (["VED_171101_week.csv", "--powertrain", "diesel"], "diesel"),
        (["VED_171101_week.csv", "--minimum-trips", "9"], "under 9 usable trips"),
    ],
)
def test_imports_that_cannot_be(type_in, week: Path, tmp_path: Path, arguments, message) -> None:
    status, printed = type_in("data", "import", "ved", *arguments, "--out", "fleet")
    assert status == 2
    assert message in printed
    assert not (tmp_path / "fleet").exists()  # nothing half-made is left
