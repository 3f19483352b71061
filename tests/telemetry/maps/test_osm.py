"""Map attributes from extracts drawn by hand.

Main Street runs east: 50 km/h for 500 m, then 30 mph for 1,000 m. At 500 m a side street without
a stated limit crosses it, at 1,000 m there are traffic signals, at 250 m a crossing on the level,
at 750 m a bus stop beside it, at 1,100 m a driveway, and at 1,250 m a motorway passes above.
"""

import bz2
import gzip
import sys

import numpy as np
import pytest

from fedwatt.errors import DataError
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.telemetry.maps import Extract, Maps, osm, with_map
from fedwatt.telemetry.maps.roads import Box
from tests.telemetry.maps.osm_files import osm_xml, place, write_osm

osmium = pytest.importorskip("osmium", reason="osmium is absent: pip install 'fedwatt[osm]'")

KMH = 1 / 3.6
NODES = [
    (1, 0, 0, {}),
    (2, 500, 0, {}),
    (3, 1000, 0, {"highway": "traffic_signals"}),
    (4, 1500, 0, {}),
    (5, 500, -300, {}),
    (6, 500, 300, {}),
    (7, 750, 15, {"highway": "bus_stop"}),
    (8, 250, 0, {"highway": "crossing"}),
    (9, 1100, 0, {}),
    (10, 1100, 100, {}),
    (11, 1250, -500, {}),
    (12, 1250, 500, {}),
    (13, 1250, 5, {"highway": "motorway_junction"}),
    (14, 0, 9, {}),
    (15, 1500, 9, {}),
    (20, 900_000, 0, {}),
    (21, 900_100, 0, {}),
]
WAYS = [
    (101, (1, 8, 2), {"highway": "primary", "maxspeed": "50"}),
    (102, (2, 3, 9, 4), {"highway": "primary", "maxspeed": "30 mph"}),
    (103, (5, 2, 6), {"highway": "residential", "maxspeed": "DE:urban"}),
    (104, (9, 10), {"highway": "service"}),
    (105, (11, 13, 12), {"highway": "motorway", "maxspeed": "none", "bridge": "yes"}),
    (106, (14, 15), {"highway": "footway"}),
    (107, (20, 21), {"highway": "primary"}),
]


def unlabelled(name: str, trips: tuple[Trip, ...]) -> Vehicle:
    return Vehicle(name, trips, labels="none")


@pytest.fixture
def town(tmp_path):
    return write_osm(tmp_path / "town.osm", NODES, WAYS)


def drive(east_m, north_m, name="1"):
    """A trip through these places, one a second."""
    east_m, north_m = np.broadcast_arrays(np.asarray(east_m, float), np.asarray(north_m, float))
    latitude, longitude = np.array(
        [place(e, n) for e, n in zip(east_m, north_m, strict=True)]
    ).T.copy()
    channels = {
        "speed_mps": np.full(len(latitude), 10.0),
        "latitude_deg": latitude,
        "longitude_deg": longitude,
    }
    return Trip(name, channels)


def on_map(path, *trips):
    vehicle = unlabelled("car", trips)
    return with_map(vehicle, Extract(path).around(vehicle))


# 10 m/s eastwards, 8 m beside the middle of the road: at the junction the side street is nearer.
EAST_M = np.arange(5.0, 1500.0, 10.0)


def near(east_m, north_m=0.0):
    """Where the drive is within 25 m of a place."""
    return np.hypot(EAST_M - east_m, 8.0 - north_m) <= 25.0


def test_limits_and_flags_along_main_street(town):
    vehicle = on_map(town, drive(EAST_M, 8.0))
    found = vehicle.trips[0].channels
    limit_mps = np.where(EAST_M < 500, 50 * KMH, 30 * 0.44704)
    assert found["speed_limit_mps"] == pytest.approx(limit_mps, rel=1e-12)
    # Four seconds each: 485, 495, 505 and 515 m. Neither driveway nor motorway is a junction.
    assert found["intersection"].sum() == 8
    assert (found["intersection"] == (near(500) | near(1000))).all()
    assert (found["focus_point"] == (near(250) | near(1000))).all()
    assert (found["bus_stop"] == near(750, 15.0)).all()
    assert found["bus_stop"].sum() == 4
    assert vehicle.facts == {"trips_with_map": 1, "samples_with_map": 150, "limits_assumed": 0}


@pytest.mark.parametrize("side", [-1, 1])
def test_a_road_reaches_thirty_metres_to_either_side(town, side):
    # Away from other roads; the side street runs north and south, Main Street east and west.
    along = np.arange(55.0, 200.0, 10.0)
    beside = {"main": drive(along, side * 29.0), "street": drive(500 + side * 29.0, -along, "2")}
    assert on_map(town, *beside.values()).facts["trips_with_map"] == 2
    beyond = {"main": drive(along, side * 31.0), "street": drive(500 + side * 31.0, -along, "2")}
    assert on_map(town, *beyond.values()).facts["trips_with_map"] == 0


def test_a_street_without_a_limit_gets_a_usual_one_and_says_so(town):
    vehicle = on_map(town, drive(497.0, np.arange(-295.0, 300.0, 10.0)))
    found = vehicle.trips[0].channels
    assert found["speed_limit_mps"] == pytest.approx(np.full(60, 40 * KMH))
    assert found["intersection"].sum() == 4
    assert vehicle.facts["limits_assumed"] == 60


def test_a_motorway_above_knows_its_own_focus_points_only(town):
    found = on_map(town, drive(1250.0, np.arange(-495.0, 500.0, 10.0))).trips[0].channels
    assert found["speed_limit_mps"] == pytest.approx(np.full(100, 130 * KMH))
    assert found["focus_point"].sum() == 5  # its junction, 5 m north: -15, -5, 5, 15 and 25 m
    assert found["intersection"].sum() == 0


def test_a_standing_car_keeps_its_heading(town):
    # It comes from the west and waits 4 m off the side street, 8 m off Main Street.
    east_m = np.r_[np.arange(405.0, 496.0, 10.0), np.full(20, 496.0)]
    found = on_map(town, drive(east_m, 8.0)).trips[0].channels
    assert found["speed_limit_mps"] == pytest.approx(np.full(30, 50 * KMH))


def test_off_the_road_no_bus_stop_is_passed(town):
    # 35 m off Main Street and 20 m off the stop, for the second in which it passes it.
    east_m = np.arange(610.0, 900.0, 10.0)
    found = on_map(town, drive(east_m, np.where(east_m == 750, 35.0, 8.0))).trips[0].channels
    assert found["bus_stop"][east_m == 750].tolist() == [0.0]
    assert found["bus_stop"].sum() == 4  # 730, 740, 760 and 770 m


def test_where_it_leaves_the_road_the_last_limit_stands(town):
    north_m = np.r_[np.full(30, 8.0), np.full(10, 100.0)]
    found = on_map(town, drive(np.arange(250.0, 650.0, 10.0), north_m)).trips[0].channels
    # Second 25 is at 500 m: from there the limit is 30 mph; it leaves at 550 m.
    assert found["speed_limit_mps"][-10:] == pytest.approx(np.full(10, 30 * 0.44704))
    assert found["intersection"][-10:].sum() == 0


def test_trips_the_map_does_not_know_stay_as_they_are(town):
    away = drive(EAST_M, 5_000.0, "away")
    # 60 of 150 samples on the map: less than half.
    leaving = drive(EAST_M, np.where(EAST_M < 600, 8.0, 2_000.0), "leaving")
    blind = Trip("blind", {"speed_mps": np.ones(5)})
    vehicle = on_map(town, drive(EAST_M, 8.0), away, leaving, blind)
    assert vehicle.trips[1:] == (away, leaving, blind)
    assert vehicle.facts["trips_with_map"] == 1
    assert Extract(town).around(unlabelled("car", (blind,))) is None


def test_missing_positions_within_a_trip_are_off_the_map(town):
    trip = drive(EAST_M, 8.0)
    trip.channels["latitude_deg"][48:52] = np.nan
    found = on_map(town, trip).trips[0].channels
    # 485, 495, 505 and 515 m are unknown: no flag, and 50 km/h stand until 525 m.
    assert found["speed_limit_mps"][51] == pytest.approx(50 * KMH)
    assert found["speed_limit_mps"][52] == pytest.approx(30 * 0.44704)
    assert found["intersection"].sum() == 4


def test_limits_differ_by_direction(tmp_path):
    tags = {"highway": "secondary", "maxspeed:forward": "60", "maxspeed:backward": "40"}
    path = write_osm(tmp_path / "two.osm", NODES[:2], [(1, (1, 2), tags)])
    east_m = np.arange(5.0, 500.0, 10.0)
    there, back = on_map(path, drive(east_m, 3.0), drive(east_m[::-1], 3.0, "2")).trips
    assert there.channels["speed_limit_mps"] == pytest.approx(np.full(50, 60 * KMH))
    assert back.channels["speed_limit_mps"] == pytest.approx(np.full(50, 40 * KMH))


@pytest.mark.parametrize("oneway", ["yes", "-1", "as on any motorway"])
def test_the_opposite_carriageway_is_not_ours(tmp_path, oneway):
    """Eastbound at 0 m, 70 km/h; westbound 10 m north of it, 90 km/h; the receiver says 6 m."""
    nodes = [(1, 0, 0, {}), (2, 500, 0, {}), (3, 500, 10, {}), (4, 0, 10, {})]
    members = [(2, 1), (4, 3)] if oneway == "-1" else [(1, 2), (3, 4)]
    said = {"highway": "trunk", "oneway": oneway}
    if oneway not in ("yes", "-1"):
        said = {"highway": "motorway"}
    ways = [
        (i, refs, {**said, "maxspeed": limit})
        for i, (refs, limit) in enumerate(zip(members, ("70", "90"), strict=True), start=1)
    ]
    path = write_osm(tmp_path / "dual.osm", nodes, ways)
    east_m = np.arange(5.0, 500.0, 10.0)
    there, back = on_map(path, drive(east_m, 6.0), drive(east_m[::-1], 4.0, "2")).trips
    assert there.channels["speed_limit_mps"] == pytest.approx(np.full(50, 70 * KMH))
    assert back.channels["speed_limit_mps"] == pytest.approx(np.full(50, 90 * KMH))


def test_every_format_says_the_same(town, tmp_path):
    (tmp_path / "town.osm.gz").write_bytes(gzip.compress(town.read_bytes()))
    (tmp_path / "town.osm.bz2").write_bytes(bz2.compress(town.read_bytes()))
    with osmium.SimpleWriter(str(tmp_path / "town.osm.pbf")) as writer:
        for entity in osmium.FileProcessor(str(town)):
            writer.add(entity)
    plain = on_map(town, drive(EAST_M, 8.0)).trips[0].channels
    for suffix in (".gz", ".bz2", ".pbf"):
        packed = on_map(tmp_path / f"town.osm{suffix}", drive(EAST_M, 8.0)).trips[0].channels
        assert all(np.array_equal(packed[name], plain[name]) for name in plain)


def test_only_roads_of_the_region_are_kept(town):
    south, west = place(-100, -100)
    north, east = place(1600, 100)
    roads = osm.read_roads(town, Box(south, west, north, east))
    # Five drivable ways, and neither the footway nor the road 900 km away.
    assert len(roads.oneway) == 5
    for east_m, north_m in ((700, 900), (700, -900), (-900, 0), (2400, 0)):
        latitude, longitude = place(east_m, north_m)
        around = Box(latitude, longitude, latitude, longitude).widened(300.0)
        assert len(osm.read_roads(town, around).way) == 0
    # A segment that crosses the box with both ends outside belongs to it.
    south, west = place(100, -1)
    north, east = place(101, 1)
    assert len(osm.read_roads(town, Box(south, west, north, east)).oneway) == 1


def test_a_vehicle_learns_the_same_alone_and_after_others(town, monkeypatch):
    reads = []
    read = osm.read_roads
    monkeypatch.setattr(osm, "read_roads", lambda *a: reads.append(a) or read(*a))
    here = unlabelled("here", (drive(EAST_M, 8.0),))
    beside = unlabelled("beside", (drive(497.0, np.arange(-295.0, 300.0, 10.0)),))
    far = unlabelled("far", (drive(np.arange(900_001.0, 900_100.0, 3.0), 0.0),))
    alone = with_map(here, Extract(town).around(here)).trips[0].channels
    extract = Extract(town)
    reads.clear()
    for other in (far, beside):
        assert with_map(other, extract.around(other)).facts["trips_with_map"] == 1
    after = with_map(here, extract.around(here)).trips[0].channels
    assert all(np.array_equal(after[name], alone[name]) for name in alone)
    assert len(reads) == 2  # "here" lies in what was read for the others


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("town.csv", "x", r"town\.csv: an OpenStreetMap extract is one of \.osm"),
        ("town.osm", "<osm version='0.6'><node id=", r"town\.osm cannot be read as OpenStreetMap"),
        ("town.osm.pbf", "hello", r"town\.osm\.pbf cannot be read"),
        ("town.osm", osm_xml([], WAYS), "not the nodes they are made of"),
    ],
)
def test_files_that_are_no_extract(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        on_map(tmp_path / name, drive(EAST_M, 8.0))


def test_a_missing_file_and_a_missing_extra(town, monkeypatch):
    with pytest.raises(DataError, match="does not exist"):
        Extract(town.parent / "nowhere.osm")
    monkeypatch.setitem(sys.modules, "osmium", None)
    with pytest.raises(DataError, match=r"pip install 'fedwatt\[osm\]'"):
        Extract(town)


def test_enriching_counts_and_can_leave_out(town):
    known = [drive(EAST_M, 8.0, str(i)) for i in range(3)]
    blind = Trip("blind", {"speed_mps": np.ones(5)})
    fleet = [unlabelled("full", (*known, blind)), unlabelled("poor", (known[0], blind))]
    every = Maps(osm=town)
    assert [len(vehicle.trips) for vehicle in every.enriched(fleet)] == [4, 2]
    assert every.sentences()[0].startswith("Map: 4 of 6 trips")
    only = Maps(osm=town, only_enriched=True)
    assert [(v.name, len(v.trips)) for v in only.enriched(fleet)] == [("full", 3)]
    assert only.sentences()[-1] == "Left out: poor has under 3 enriched trips."


@pytest.mark.parametrize(
    ("trips", "only", "message"),
    [
        ((Trip("1", {"speed_mps": np.ones(5)}),), False, "None of the 1 trips has positions"),
        ((drive(EAST_M, 9_000.0),), False, r"within 30 m of none of the 1 trips .* latitude 60\.1"),
    ],
)
def test_enriching_in_vain_is_refused(town, trips, only, message):
    fleet = [unlabelled("car", trips)]
    with pytest.raises(DataError, match=message):
        list(Maps(osm=town, only_enriched=only).enriched(fleet))
