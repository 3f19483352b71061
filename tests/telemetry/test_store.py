"""The fleet on disk: exact, one folder a vehicle, whole or not there, and honest when damaged."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedwatt.errors import DataError
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.telemetry.store import (
    fleet_source,
    folder_name,
    load_fleet,
    merge_fleets,
    read_fleet,
    read_vehicle,
    write_fleet,
    write_vehicle,
)
from fedwatt.windows import DataSettings, build_fleet
from tests.windows.toys import make_trip, make_vehicle, same_trips

SHORT = DataSettings(window=5)


@pytest.fixture
def stored(tmp_path):
    """A fleet folder with two vehicles."""
    path = tmp_path / "fleet"
    write_fleet(path, [make_vehicle("car-10"), make_vehicle("car-9")], "toys")
    return path


def test_a_vehicle_comes_back_exactly(tmp_path):
    partial = make_trip("no gps", 6, latitude_deg=None, longitude_deg=None)
    gaps = make_trip("nan", 4, ac_w=np.array([1.0, np.nan, -np.inf, 0.1]))
    facts = {"mass_kg": 1600.5, "model": "Löwe", "dropped": {"short": 3, "why": ["a", None]}}
    vehicle = Vehicle("bus 7/Ä", (partial, gaps), kind="bus", labels="measured", facts=facts)
    write_vehicle(tmp_path / "v", vehicle)
    back = read_vehicle(tmp_path / "v")
    assert same_trips(back, vehicle)
    assert (back.name, back.kind, back.labels) == ("bus 7/Ä", "bus", "measured")
    assert back.facts == facts


def test_parts_of_a_recorded_trip_come_back_as_such(tmp_path):
    trips = (make_trip("1", 6), replace(make_trip("1b", 5), recording="1"), make_trip("2", 4))
    write_vehicle(tmp_path / "v", Vehicle("car", trips))
    assert [trip.recording for trip in read_vehicle(tmp_path / "v").trips] == ["1", "1", "2"]
    # Only the later part says so: folders without cut trips are those of earlier versions.
    record = json.loads((tmp_path / "v" / "vehicle.json").read_text())["trips"]
    assert [trip.get("recording") for trip in record] == [None, "1", None]


def test_start_times_come_back_and_unknown_ones_stay_unknown(tmp_path):
    trips = (replace(make_trip("1", 6), start_time_s=1.5e9 + 0.25), make_trip("2", 4))
    write_vehicle(tmp_path / "v", Vehicle("car", trips))
    first, second = read_vehicle(tmp_path / "v").trips
    assert first.start_time_s == 1.5e9 + 0.25
    assert np.isnan(second.start_time_s)


def test_a_fleet_comes_back_in_natural_order(stored):
    assert [vehicle.name for vehicle in read_fleet(stored)] == ["car-9", "car-10"]
    loaded = load_fleet(stored, SHORT)
    built = build_fleet([make_vehicle("car-9"), make_vehicle("car-10")], SHORT, "toys")
    assert loaded.source == "toys"
    assert loaded.data_hash() == built.data_hash()


def test_a_vehicle_alone_and_in_a_fleet_gives_identical_bytes(stored, tmp_path):
    write_vehicle(tmp_path / "alone", make_vehicle("car-9"))
    for file in ("vehicle.json", "trips.parquet"):
        alone = (tmp_path / "alone" / file).read_bytes()
        assert alone == (stored / "car-9" / file).read_bytes()


def test_the_folder_holds_nothing_else(stored):
    files = sorted(str(file.relative_to(stored)) for file in stored.rglob("*") if file.is_file())
    assert files == [
        "car-10/trips.parquet",
        "car-10/vehicle.json",
        "car-9/trips.parquet",
        "car-9/vehicle.json",
        "fleet.json",
    ]
    assert [entry.name for entry in stored.parent.iterdir()] == ["fleet"]


def test_deleting_a_folder_takes_the_vehicle_out(stored):
    for file in (stored / "car-9").iterdir():
        file.unlink()
    (stored / "car-9").rmdir()
    assert load_fleet(stored, SHORT).names == ("car-10",)


@settings(max_examples=200)
@given(st.text(min_size=1, max_size=20))
def test_folder_names_are_plain_and_distinct(name):
    folder = folder_name(name)
    assert all(letter.isascii() and (letter.isalnum() or letter in "_-~%") for letter in folder)
    assert unquote(folder) == name


def test_a_name_too_long_for_a_folder_is_refused():
    with pytest.raises(DataError, match="600 characters"):
        folder_name("é" * 100)


def test_a_failing_source_leaves_nothing_behind(tmp_path):
    def breaks():
        yield make_vehicle("car-1")
        raise DataError("the next vehicle is broken")

    with pytest.raises(DataError, match="broken"):
        write_fleet(tmp_path / "fleet", breaks(), "toys")
    assert list(tmp_path.iterdir()) == []


def test_fleets_that_cannot_be_written(stored, tmp_path):
    with pytest.raises(DataError, match="not empty"):
        write_fleet(stored, [make_vehicle()], "toys")
    with pytest.raises(DataError, match="no vehicles"):
        write_fleet(tmp_path / "none", [], "toys")
    with pytest.raises(DataError, match="capitals aside"):
        write_fleet(tmp_path / "twice", [make_vehicle("Car"), make_vehicle("car")], "toys")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match="Could not write"):
        write_fleet(tmp_path / "file" / "fleet", [make_vehicle()], "toys")


def test_a_full_disk_leaves_nothing_behind(tmp_path):
    # A limit on the size of a file fails a write in the middle, as a full disk does.
    code = f"""
import resource
from fedwatt.errors import DataError
from fedwatt.synthetic import synthetic_vehicles
from fedwatt.telemetry.store import write_fleet

resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    write_fleet({str(tmp_path / "fleet")!r}, synthetic_vehicles(1, trips=3), "toys")
except DataError as problem:
    print(problem)
"""
    pytest.importorskip("resource", reason="limits on file size are a Unix thing")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.startswith("Could not write")
    assert out.stdout.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_may_be_filled(tmp_path, monkeypatch):
    (tmp_path / "fleet").mkdir()
    monkeypatch.chdir(tmp_path / "fleet")
    with pytest.raises(DataError, match="no vehicles"):
        write_fleet(Path(), [], "toys")
    assert list(Path().iterdir()) == []
    write_fleet(Path(), [make_vehicle()], "toys")
    assert len(list(read_fleet(tmp_path / "fleet"))) == 1
    assert Path().samefile(tmp_path / "fleet")  # whoever stands in it still does
    assert sorted(entry.name for entry in Path().iterdir()) == ["car", "fleet.json"]


def truncate(file):
    file.write_bytes(file.read_bytes()[:-40])


def drop_last_trip(file):
    record = json.loads(file.read_text())
    record["trips"].pop()
    file.write_text(json.dumps(record))


def lengthen(*seconds):
    """Damage that adds trips of these lengths."""

    def damage(file):
        record = json.loads(file.read_text())
        record["trips"] += [{"name": f"more {s}", "seconds": s} for s in seconds]
        file.write_text(json.dumps(record))

    return damage


def drop_name(file):
    record = json.loads(file.read_text())
    del record["name"]
    file.write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("trips.parquet", truncate, "trips.parquet is damaged"),
        ("trips.parquet", lambda f: f.write_bytes(b""), "trips.parquet is damaged"),
        ("trips.parquet", lambda f: f.write_bytes(b"PAR1 nonsense PAR1"), "is damaged"),
        ("trips.parquet", lambda f: f.unlink(), "trips.parquet does not exist"),
        ("vehicle.json", lambda f: f.unlink(), "vehicle.json does not exist"),
        ("vehicle.json", truncate, "vehicle.json is damaged"),
        ("vehicle.json", lambda f: f.write_bytes(b"\xff\xfe"), "vehicle.json is damaged"),
        ("vehicle.json", lambda f: f.write_text("[]"), "not of format 1"),
        ("vehicle.json", lambda f: f.write_text('{"format": 2}'), "not of format 1"),
        ("vehicle.json", drop_name, "vehicle.json is damaged: KeyError('name')"),
        ("vehicle.json", drop_last_trip, "does not hold the 4 trips (36 s)"),
        # Refused by their sums: names for as many seconds would not fit in memory.
        ("vehicle.json", lengthen(10**15), "does not hold the 6 trips"),
        ("vehicle.json", lengthen(10**15, -(10**15)), "does not hold the 7 trips"),
    ],
)
def test_damage_gives_one_clear_sentence(stored, file, damage, message):
    damage(stored / "car-9" / file)
    with pytest.raises(DataError) as refusal:
        load_fleet(stored, SHORT)
    assert message in str(refusal.value)
    assert "car-9" in str(refusal.value)
    assert "again" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_folders_that_are_no_fleet(tmp_path, stored):
    with pytest.raises(DataError, match="does not exist"):
        load_fleet(tmp_path / "nowhere")
    with pytest.raises(DataError, match="is not a fleet folder"):
        load_fleet(stored / "car-9")
    (stored / "fleet.json").write_text('{"format": 1, "interval_s": 2.0}')
    with pytest.raises(DataError, match=r"every 2\.0 s"):
        load_fleet(stored)


def test_a_fleet_without_vehicles_is_refused(tmp_path):
    (tmp_path / "fleet.json").write_text('{"format": 1, "interval_s": 1.0, "source": "toys"}')
    with pytest.raises(DataError, match="has no vehicles"):
        load_fleet(tmp_path)


def test_channels_are_ordered_the_same_whatever_the_trip(tmp_path):
    vehicle = make_vehicle("car-9")
    reordered = tuple(Trip(t.name, dict(reversed(t.channels.items()))) for t in vehicle.trips)
    write_vehicle(tmp_path / "a", vehicle)
    write_vehicle(tmp_path / "b", replace(vehicle, trips=reordered))
    first, other = ((tmp_path / v / "trips.parquet").read_bytes() for v in "ab")
    assert first == other


def test_the_core_needs_neither_parquet_nor_torch():
    code = (
        "import fedwatt.windows, sys; print([m for m in ('pyarrow', 'torch') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def car(name: str, **channels: float) -> Vehicle:
    seconds = {"speed_mps": 10.0, "energy_wh": 2.0, **channels}
    trip = Trip("1", {channel: np.full(70, value) for channel, value in seconds.items()})
    return Vehicle(name, (trip,), labels="measured", facts={"mass_kg": 1500})


def test_names_stay_unless_they_clash(tmp_path):
    first, other, out = (tmp_path / name for name in ("north", "south", "both"))
    place = {"latitude_deg": 1.0, "longitude_deg": 2.0}
    write_fleet(first, [car("car-1"), car("car-2")], "a")
    write_fleet(other, [car("Car-2", **place), car("bus 3", elevation_m=7.0)], "b")
    sentences = merge_fleets([first, other], out)
    merged = {vehicle.name: vehicle for vehicle in read_fleet(out)}
    assert sorted(merged) == ["bus 3", "car-1", "north-car-2", "south-Car-2"]
    assert merged["south-Car-2"].trips[0].channels["latitude_deg"].tolist() == [1.0] * 70
    assert merged["car-1"].facts == {"mass_kg": 1500, "merged_from": "a"}
    assert fleet_source(out) == "merged: a; b"
    assert sentences == [
        "north: 2 vehicles, 2 trips. 1 vehicle got 'north-' before the name.",
        "south: 2 vehicles, 2 trips. 1 vehicle got 'south-' before the name.",
    ]


def test_vehicles_without_energy_are_told(tmp_path):
    charge = car("car-2", soc=0.5)
    without = {n: v for n, v in charge.trips[0].channels.items() if n != "energy_wh"}
    # One trip without energy is enough for a run to leave a vehicle out.
    mixed = replace(charge, trips=(*charge.trips, Trip("2", without)))
    write_fleet(tmp_path / "north", [car("car-1"), mixed], "a")
    write_fleet(tmp_path / "south", [car("car-3")], "b")
    first, other = merge_fleets([tmp_path / "north", tmp_path / "south"], tmp_path / "out")
    assert first == "north: 2 vehicles, 3 trips. 1 vehicle only fit data.target = soc."
    assert other == "south: 1 vehicle, 1 trip."


def test_one_fleet_is_nothing_to_merge(tmp_path):
    write_fleet(tmp_path / "a", [car("car-1")], "a")
    with pytest.raises(DataError, match="two or more different fleets"):
        merge_fleets([tmp_path / "a", tmp_path / "." / "a"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
