"""SUMO's output files, written by hand in the format of SUMO 1.28."""

import gzip

import numpy as np
import pytest

from fedwatt.errors import DataError
from fedwatt.telemetry.readers.sumo_output import geographic, import_sumo

BATTERY = (
    '<vehicle id="{id}" energyConsumed="{wh}" totalEnergyConsumed="1" totalEnergyRegenerated="0" '
    'actualBatteryCapacity="{charge}" maximumBatteryCapacity="20000.0" chargingStationId="NULL" '
    'energyCharged="0" energyChargedInTransit="0" energyChargedStopped="0" speed="9" '
    'acceleration="0" x="1" y="2" lane="a_0" posOnLane="3" timeStopped="0"/>'
)
FCD = '<vehicle id="{id}" x="{x}" y="42.5" z="{z}" speed="10.0" slope="{slope}" lane="a_0"/>'


def write(folder, seconds=200, ids=("car.1", "car.2"), fcd=FCD, battery=BATTERY, suffix=".xml"):
    """Every vehicle drives at 10 m/s up 3 degrees and draws 2 Wh a second, then gives back 1."""
    files = folder / f"fcd{suffix}", folder / f"battery{suffix}"
    for file, root, line in zip(
        files, ("fcd-export", "battery-export"), (fcd, battery), strict=True
    ):
        steps = []
        for second in range(seconds):
            wh = 2.0 if second < 100 else -1.0
            values = {"x": -83.5 + second / 1e4, "z": 300 + second / 2, "slope": 3.0, "wh": wh}
            values["charge"] = 16_000 - second
            vehicles = "".join(line.format(id=id, **values) for id in ids)
            steps.append(f'<timestep time="{second}.00">{vehicles}</timestep>')
        text = f'<?xml version="1.0"?>\n<{root}>\n' + "\n".join(steps) + f"\n</{root}>\n"
        content = text.encode()
        file.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    return files


@pytest.mark.parametrize("suffix", [".xml", ".xml.gz"])
def test_a_vehicle_and_its_trips(tmp_path, suffix):
    (car,) = import_sumo(*write(tmp_path, suffix=suffix))
    assert (car.name, car.labels) == ("car", "simulated")
    assert [trip.name for trip in car.trips] == ["1", "2"]
    trip = car.trips[0].channels
    # 200 rows are 199 seconds; the first row's energy belongs to the second before the trip.
    assert len(trip["speed_mps"]) == 199
    assert trip["energy_wh"].sum() == pytest.approx(99 * 2 - 100)
    assert trip["grade"] == pytest.approx(np.full(199, np.tan(np.radians(3))))
    assert trip["elevation_m"][[0, -1]] == pytest.approx([300.5, 399.5])
    assert trip["soc"][-1] == pytest.approx((16_000 - 199) / 20_000)
    assert "latitude_deg" not in trip


def test_positions_are_taken_where_they_are_degrees(tmp_path):
    (car,) = import_sumo(*write(tmp_path), position=geographic)
    trip = car.trips[0].channels
    assert trip["latitude_deg"] == pytest.approx(np.full(199, 42.5))
    assert trip["longitude_deg"][0] == pytest.approx(-83.4999)


def test_ids_without_the_separator_are_vehicles(tmp_path):
    files = write(tmp_path, ids=("truck", "flow.7"))
    assert [v.name for v in import_sumo(*files)] == ["truck", "flow"]


def test_older_names_of_attributes_are_known(tmp_path):
    older = BATTERY.replace("actualBatteryCapacity", "chargeLevel").replace(
        "maximumBatteryCapacity", "capacity"
    )
    (car,) = import_sumo(*write(tmp_path, battery=older))
    assert car.trips[0].channels["soc"][0] == pytest.approx(15_999 / 20_000)


def test_files_without_hills_have_no_grade(tmp_path):
    flat = FCD.replace(' z="{z}"', "").replace(' slope="{slope}"', "")
    (car,) = import_sumo(*write(tmp_path, fcd=flat))
    assert not {"grade", "elevation_m"} & set(car.trips[0].channels)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids": ()}, "no vehicle with a battery"),
        ({"fcd": FCD.replace("speed=", "pace=")}, "vehicle 'car.1' at 0 s has no 'speed'"),
        ({"battery": BATTERY.replace("{wh}", "much")}, "'much' as 'energyConsumed'"),
        ({"fcd": FCD.replace("{id}", "x{id}")}, "does not have vehicle 'car.1'"),
        ({"seconds": 60}, r"No vehicle of .* is left.*under 120 s\. Lower the minimum seconds"),
    ],
    ids=["no battery", "no speed", "text", "other run", "too short"],
)
def test_unusable_files_are_refused(tmp_path, changes, message):
    with pytest.raises(DataError, match=message):
        list(import_sumo(*write(tmp_path, **changes)))


def test_truncated_and_missing_files_are_refused(tmp_path):
    fcd, battery = write(tmp_path)
    fcd.write_bytes(fcd.read_bytes()[:3000])
    with pytest.raises(DataError, match="not a complete XML file"):
        import_sumo(fcd, battery)
    with pytest.raises(DataError, match="does not exist"):
        import_sumo(tmp_path / "none.xml", battery)
    broken = tmp_path / "broken.xml.gz"
    broken.write_bytes(gzip.compress(b"<fcd-export>")[:-6])
    with pytest.raises(DataError, match="not a complete"):
        import_sumo(broken, battery)
