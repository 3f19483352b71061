"""`fedwatt data import` and `map`, as typed, on small files in the published layouts."""

from inspect import signature
from pathlib import Path

import numpy as np
import pytest

from fedwatt.telemetry.readers import import_csv, import_eved, import_ved
from fedwatt.telemetry.store import load_fleet, read_fleet
from fedwatt.windows import DataSettings
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
        *("--min-trips", "3", "--out", "fleet"),
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
    status, printed = type_in("data", "describe", "fleet")
    assert status == 0
    assert "ved-10" in printed
    assert "4 trips kept" in printed


def test_plain_files_go_through_a_mapping(type_in, week: Path, tmp_path: Path) -> None:
    status, printed = type_in("data", "import", "csv", week.name, "--out", "fleet")
    assert status == 2
    assert "fedwatt data map" in printed
    status, printed = type_in("data", "map", week.name, "--out", "map.toml")
    assert status == 0
    assert "check its units and signs" in printed
    text = (tmp_path / "map.toml").read_text()
    assert "Vehicle Speed[km/h]" in text


def test_the_help_says_how_many_trips_are_needed(type_in) -> None:
    _, printed = type_in("data", "import", "--help")
    words = " ".join(printed.replace("│", " ").split())
    assert "default: 10 for ved and eved, else 3" in words
    # The readers' defaults; the command takes no vehicle that could not be split.
    for reader, least in ((import_ved, 10), (import_eved, 10), (import_csv, 1)):
        assert signature(reader).parameters["cleaning"].default.minimum_trips == least


def test_a_trip_cut_in_two_is_told_apart_from_two_trips(type_in, tmp_path: Path) -> None:
    # 400 s of driving of which 30 s in the middle were not recorded.
    rows = [row for row in ved_rows(seconds=400) if not 185 < int(row[3]) / 1000 < 215]
    path = tmp_path / "VED_171101_week.csv"
    path.write_text("\n".join([VED_HEADER, *(",".join(row) for row in rows)]) + "\n")
    command = ("data", "import", "ved", path.name, "--out", "fleet")
    # Two parts are one recorded trip: they cannot be split.
    status, printed = type_in(*command, "--min-trips", "2")
    assert status == 2
    assert "1 dropped: 1 under 2 usable trips" in printed
    status, printed = type_in(*command, "--min-trips", "1")
    assert status == 0, printed
    assert "1 vehicle kept; 0 dropped." in printed
    assert "1 trip kept, cut at gaps into 2; 0 dropped." in printed
    (vehicle,) = read_fleet(tmp_path / "fleet")
    assert [trip.name for trip in vehicle.trips] == ["706", "706b"]
    _, printed = type_in("data", "describe", "fleet")
    assert "1 trip kept, cut at gaps into 2; 0 dropped." in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.csv"], "nowhere.csv"),
        (["VED_171101_week.csv", "--powertrain", "diesel"], "diesel"),
        (["VED_171101_week.csv", "--min-trips", "9"], "under 9 usable trips"),
    ],
)
def test_imports_that_cannot_be(type_in, week: Path, tmp_path: Path, arguments, message) -> None:
    status, printed = type_in("data", "import", "ved", *arguments, "--out", "fleet")
    assert status == 2
    assert message in printed
    assert not (tmp_path / "fleet").exists()  # nothing half-made is left


@pytest.fixture
def surroundings(tmp_path: Path) -> tuple[str, ...]:
    """A terrain model of the road north that the car drives, and the words of an import."""
    rows = np.linspace(2200, 1000, 1201)[:, None]  # 1,200 m up from south to north
    np.repeat(rows, 1201, axis=1).astype(">i2").tofile(tmp_path / "N42W084.hgt")
    return ("data", "import", "ved", "VED_171101_week.csv", "--powertrain", "ev")


def test_a_terrain_model_enriches_an_import(type_in, week, surroundings, tmp_path: Path) -> None:
    status, printed = type_in(
        *surroundings,
        *("--min-trips", "3", "--dem", "N42W084.hgt", "--out", "fleet"),
    )
    assert status == 0, printed
    assert "Terrain: 4 of 4 trips have a grade." in printed
    (vehicle,) = read_fleet(tmp_path / "fleet")
    for trip in vehicle.trips:
        # 1,200 m over a degree; heights are whole metres, so good to 2 %.
        assert trip.channels["grade"].mean() == pytest.approx(1200 / 111_195, rel=0.02)
    (client,) = load_fleet(tmp_path / "fleet", DataSettings(features="base, grade")).clients
    assert client.features[-1] == "grade"
    assert np.isfinite(client.series).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--dem", "nowhere.hgt"), "nowhere.hgt does not exist"),
        (("--dem", "N52E013.hgt"), "covers none of the 4 trips with positions"),
    ],
)
def test_enriching_that_cannot_be(
    type_in, week, surroundings, tmp_path: Path, arguments, message
) -> None:
    (tmp_path / "N42W084.hgt").rename(tmp_path / "N52E013.hgt")
    status, printed = type_in(*surroundings, "--min-trips", "3", *arguments, "--out", "fleet")
    assert status == 2
    assert message in printed
    assert not (tmp_path / "fleet").exists()
