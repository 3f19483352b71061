import json

import numpy as np
import pytest

from fedwatt.cli.route import parse_soc
from fedwatt.edge.reading import read_route
from fedwatt.errors import DataError, SettingError
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.telemetry.store import write_vehicle

POINTS = [(42.0, -83.0), (42.005, -83.0), (42.01, -83.0)]


def write(path, text):
    path.write_text(text)
    return path


def test_gpx_geojson_and_csv_are_the_same_route(tmp_path):
    inside = "".join(f'<trkpt lat="{lat}" lon="{lon}"/>' for lat, lon in POINTS)
    gpx = (
        f'<gpx xmlns="http://www.topografix.com/GPX/1/1"><trk><trkseg>{inside}</trkseg></trk></gpx>'
    )
    line = {"type": "LineString", "coordinates": [[lon, lat, 250.0] for lat, lon in POINTS]}
    collection = {"type": "FeatureCollection", "features": [{"type": "Feature", "geometry": line}]}
    rows = "\n".join(f"{n},{lon},{lat}" for n, (lat, lon) in enumerate(POINTS))
    result = [
        read_route(write(tmp_path / "a.gpx", gpx)),
        read_route(write(tmp_path / "a.geojson", json.dumps(collection))),
        read_route(write(tmp_path / "a.csv", f"point,Longitude[deg],Latitude[deg]\n{rows}\n")),
    ]
    for route, temperature in result:
        assert temperature is None
        assert route.name == "a"
        assert route.metres == pytest.approx(1112, rel=1e-3)
        np.testing.assert_allclose(route.latitude_deg, result[0][0].latitude_deg)


def test_a_route_of_waypoints_is_read(tmp_path):
    inside = "".join(f'<rtept lat="{lat}" lon="{lon}"/>' for lat, lon in POINTS)
    route, _ = read_route(write(tmp_path / "a.gpx", f"<gpx><rte>{inside}</rte></gpx>"))
    assert route.metres == pytest.approx(1112, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.gpx", "<gpx>", "cannot be read as GPX"),
        ("a.gpx", "<gpx/>", "neither a track nor a route"),
        ("a.gpx", '<gpx><trkpt lat="x" lon="1"/></gpx>', "cannot be read as GPX"),
        ("a.geojson", "{}", "cannot be read as GeoJSON"),
        ("a.geojson", '{"type": "Point", "coordinates": [1, 2]}', "no LineString"),
        ("a.csv", "", "no column of latitude"),
        ("a.csv", "lat\n42\n", "no column of longitude"),
        ("a.csv", "lat,lon\n42,x\n", "cannot be read as CSV of points"),
        ("a.csv", "lat,lon\n42,-83\n", "only one place"),
        ("a.csv", "lat,lon\n", "no point with a position"),
    ],
)
def test_a_file_that_is_no_route_says_so(tmp_path, name, text, sentence):
    with pytest.raises(DataError, match=sentence):
        read_route(write(tmp_path / name, text))


def test_a_recorded_trip_brings_its_measured_elevation(tmp_path):
    lat = np.linspace(42.0, 42.01, 101)
    channels = {"latitude_deg": lat, "longitude_deg": np.full(101, -83.0)}
    channels |= {"speed_mps": np.full(101, 11.1), "elevation_m": np.linspace(200.0, 250.0, 101)}
    channels |= {"ambient_c": np.full(101, 4.0), "energy_wh": np.ones(101)}
    trip = Trip("7", channels)
    write_vehicle(tmp_path / "car", Vehicle("car", (trip,)))
    route, temperature = read_route(tmp_path / "car" / "7")
    assert temperature == 4.0
    assert (route.elevation_m[0], route.elevation_m[-1]) == pytest.approx((200, 250))


def test_a_missing_file_says_so(tmp_path):
    with pytest.raises(DataError, match="There is no route"):
        read_route(tmp_path / "a.gpx")


@pytest.mark.parametrize(("text", "sentence"), [("0.62", "write 62%"), ("full", "is no number")])
def test_a_charge_that_can_be_misread_is_refused(text, sentence):
    with pytest.raises(SettingError, match=sentence):
        parse_soc(text)
