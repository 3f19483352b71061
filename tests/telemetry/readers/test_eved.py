"""eVED's reader, on hand-made files in its exact format: no rows of eVED itself are at hand."""

from dataclasses import replace

import numpy as np
import pytest

from fedwatt.errors import DataError
from fedwatt.telemetry.readers import VED_CLEANING, import_eved, import_ved

LOOSE = {"cleaning": replace(VED_CLEANING, minimum_trips=1)}
EXTRA = [
    "Elevation Raw[m]",
    "Elevation Smoothed[m]",
    "Gradient",
    "Energy_Consumption",
    "Matchted Latitude[deg]",
    "Matched Longitude[deg]",
    "Match Type",
    "Class of Speed Limit",
    "Speed Limit[km/h]",
    "Speed Limit with Direction[km/h]",
    "Intersection",
    "Bus Stops",
    "Focus Points",
]


@pytest.fixture
def write_eved(write_ved, rows):
    from tests.telemetry.conftest import VED_HEADER

    def write(change=None, extra=EXTRA, end=""):
        table = []
        for second, row in enumerate(rows()):
            more = {
                "Elevation Raw[m]": f"{250 + second * 0.2}",
                "Elevation Smoothed[m]": f"{250 + second * 0.2}",
                "Gradient": "0.02",
                "Energy_Consumption": "",
                "Matchted Latitude[deg]": row[4],
                "Matched Longitude[deg]": row[5],
                "Match Type": "0",
                "Class of Speed Limit": "1",
                "Speed Limit[km/h]": "72",
            }
            more |= (change or (lambda second: {}))(second)
            table.append([*row, *(more.get(name, "") for name in EXTRA)])
        header = ",".join([VED_HEADER, *extra]) + end
        return write_ved(table, "eVED_171101_week.csv", header, end)

    return write


def channels_of(path):
    (vehicle,) = import_eved([path], **LOOSE)
    assert vehicle.facts["source"] == "eVED"
    return vehicle.trips[0].channels


def test_everything_map_matching_adds(write_eved):
    channels = channels_of(write_eved())
    assert channels["grade"] == pytest.approx(np.full(200, 0.02))
    assert channels["elevation_m"][-1] == pytest.approx(250 + 200 * 0.2)
    assert set(channels["speed_limit_mps"]) == {20.0}
    for flag in ("intersection", "bus_stop", "focus_point"):
        assert set(channels[flag]) == {0.0}
    # Energy still comes from V and I.
    assert channels["energy_wh"].sum() == pytest.approx(400.0)


@pytest.mark.parametrize(
    "spelling", ["Speed Limit with Direction[km/h]", "Speed Limit Direction[km/h]"]
)
def test_ranges_and_directed_limits(write_eved, spelling):
    def limits(second):
        return {
            "Speed Limit[km/h]": "48-40" if second < 100 else "72",
            "Speed Limit with Direction[km/h]": "36" if second >= 150 else "",
        }

    extra = [spelling if "Direction" in name else name for name in EXTRA]
    channels = channels_of(write_eved(limits, extra))
    # 1 Hz: sample r is read at second r + 1.
    assert channels["speed_limit_mps"][50] == pytest.approx(44 / 3.6)
    assert channels["speed_limit_mps"][120] == pytest.approx(20.0)
    assert channels["speed_limit_mps"][170] == pytest.approx(10.0)


def test_flags_and_tags(write_eved):
    def flags(second):
        return {
            "Intersection": "1.0" if second == 20 else "",
            "Bus Stops": "1" if second in (30, 31) else "",
            "Focus Points": "traffic_signals" if second == 40 else "",
        }

    channels = channels_of(write_eved(flags))
    # A flag set from second 20 on, until the next row, is seen in the interval (20, 21].
    assert channels["intersection"].nonzero()[0].tolist() == [20]
    assert channels["bus_stop"].nonzero()[0].tolist() == [30, 31]
    assert channels["focus_point"].nonzero()[0].tolist() == [40]


def test_a_stray_semicolon_ends_header_and_rows(write_eved):
    def tags(second):
        return {"Focus Points": "crossing" if second == 40 else ""}

    channels = channels_of(write_eved(tags, end=";"))
    assert channels["focus_point"].nonzero()[0].tolist() == [40]


def test_missing_gradients_are_bridged_and_steps_smoothed(write_eved):
    def gradient(second):
        missing = 50 <= second < 60
        return {"Gradient": "" if missing else "0.05" if second >= 100 else "0.0"}

    channels = channels_of(write_eved(gradient))
    assert channels["grade"][40:70] == pytest.approx(np.zeros(30))
    # One update in 200 s: the line to 0.05 takes the 5 s before it, and the mean spreads it by 2 s.
    # At 94 s the mean of (0, 0, 0, 0, 0.01), at 95 s of (0, 0, 0, 0.01, 0.02), and so on.
    assert channels["grade"][92:99] == pytest.approx([0, 0.002, 0.006, 0.012, 0.02, 0.03, 0.038])


def test_the_electrical_part_equals_ved(write_eved):
    path = write_eved()
    (plain,) = import_ved([path], **LOOSE)
    (extended,) = import_eved([path], **LOOSE)
    for name, values in plain.trips[0].channels.items():
        assert values.tobytes() == extended.trips[0].channels[name].tobytes(), name


def test_a_ved_file_is_refused(write_ved, rows):
    with pytest.raises(DataError, match="has no column 'Elevation Smoothed"):
        list(import_eved([write_ved(rows())], **LOOSE))
