"""A planned route by hand, and with hills from the command line."""

import numpy as np
import pytest
from typer.testing import CliRunner

from fedwatt.cli import app
from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.export import export
from fedwatt.edge.reading import read_trip, route_trip
from fedwatt.edge.trips import predict_trip
from fedwatt.elevation.store import write_map_file
from fedwatt.errors import DataError, FedwattError
from fedwatt.telemetry.store import write_vehicle

from .test_elevation import LATITUDE, LONGITUDE, M_PER_DEGREE, elevation_field, located_vehicle
from .toys import run_folder, trained


def points(north_m, speed_mps, **others):
    columns = {
        "latitude_deg": LATITUDE + np.array(north_m) / M_PER_DEGREE,
        "longitude_deg": np.full(len(north_m), LONGITUDE),
        "speed_mps": np.array(speed_mps, float),
    }
    return columns | {name: np.array(values, float) for name, values in others.items()}


def test_an_even_leg_takes_distance_over_speed():
    trip = route_trip("r", points([0, 500, 1000], [10, 10, 10], ambient_c=[5, 7, 9]))
    assert trip.seconds == 100 and trip.channels["speed_mps"] == pytest.approx(10)
    # The second leg begins after 50 s; the last point's own value is never driven.
    assert trip.channels["ambient_c"][[0, 48, 50, 99]].tolist() == [5, 5, 7, 7]
    north_m = (trip.channels["latitude_deg"] - LATITUDE) * M_PER_DEGREE
    assert north_m == pytest.approx(10 * np.arange(1, 101), abs=0.01)


def test_speed_changes_evenly_from_point_to_point():
    # 0 to 20 m/s over 100 m: 10 s at 2 m/s²; then 20 to 10 over 150 m: 10 s at -1 m/s².
    trip = route_trip("r", points([0, 100, 250], [0, 20, 10]))
    speed = [*range(2, 21, 2), *range(19, 9, -1)]
    assert trip.channels["speed_mps"] == pytest.approx(speed, abs=1e-3)


def test_a_route_across_the_date_line_goes_the_short_way():
    there = {"latitude_deg": [0.0, 0.0], "longitude_deg": [179.999, -179.999], "speed_mps": [9, 9]}
    trip = route_trip("r", {name: np.array(values, float) for name, values in there.items()})
    assert trip.seconds == 25 and np.abs(trip.channels["longitude_deg"]).min() > 179.99


def test_a_repeated_point_is_no_leg():
    twice = route_trip("r", points([0, 0, 500], [10, 10, 10]))
    assert twice.seconds == 50


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (points([0, 100], [0, 0]), "stands still from 42.28°, -83.74° on"),
        (points([5, 5], [3, 3]), "at least two different points"),
        (
            points([0, 100], [3, -1]),
            "point 2: speed_mps is -1, and has to be a number from 0 to 70",
        ),
        (points([0, 100], [np.nan, 1]), "point 1: speed_mps is nan"),
        ({"speed_mps": np.ones(3)}, "has no latitude_deg"),
    ],
)
def test_routes_that_cannot_be_driven(columns, said):
    with pytest.raises(DataError, match=said.replace(".", r"\.")):
        route_trip("r", columns)


def test_climb_along_a_route_is_the_fields(tmp_path):
    export(
        trained(features="base, elevation"),
        tmp_path / "m.onnx",
        vehicle=located_vehicle(),
        field=elevation_field(),
    )
    model = EnergyModel(tmp_path / "m.onnx")
    columns = points([0, 400], [5, 5], ambient_c=[9, 9], ac_w=[0, 0], heater_w=[0, 0])
    driven = predict_trip(model, route_trip("up", columns), "").trip.channels
    # 30 m · sin(300 · 0.0036°) of height, less the first second, and what linear pieces cut off.
    rise_m = 30 * np.sin(300 * 400 / M_PER_DEGREE)
    assert driven["climb_m"].sum() - driven["descent_m"].sum() == pytest.approx(rise_m, abs=1.5)


def test_a_route_file(tmp_path):
    file = tmp_path / "way.csv"
    file.write_text("latitude_deg,longitude_deg,speed_mps\n42.28,-83.74,10\n42.29,-83.74,10\n")
    trip, _ = read_trip(file, route=True)
    assert trip.name == "way" and trip.seconds == 112 and "heater_w" in trip.channels
    file.write_text("time_s,latitude_deg,longitude_deg,speed_mps\n0,42.28,-83.74,10\n")
    with pytest.raises(DataError, match="the points of a route have no times"):
        read_trip(file, route=True)
    with pytest.raises(DataError, match="There is no route"):
        read_trip(tmp_path / "none.csv", route=True)


def test_hills_from_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_folder(tmp_path / "run", features="base, elevation")
    run_folder(tmp_path / "flat")
    write_vehicle(tmp_path / "car", located_vehicle())
    write_map_file(tmp_path / "hills.parquet", elevation_field())
    rows = "".join(f"{LATITUDE + north / 1000},{LONGITUDE},12,5\n" for north in range(12))
    (tmp_path / "way.csv").write_text("latitude_deg,longitude_deg,speed_mps,ambient_c\n" + rows)
    (tmp_path / "level.csv").write_text("speed_mps,ambient_c\n" + "10,5\n" * 90)

    def says(*words: str) -> str:
        done = CliRunner().invoke(app, list(words))
        assert done.exit_code == 0, done.output
        return " ".join(done.output.split())

    export = (
        "export",
        "run",
        "--out",
        "m.onnx",
        "--vehicle",
        "car",
        "--elevation-map",
        "hills.parquet",
    )
    assert "It reads climb from positions" in says(*export)
    reach = ("--soc", "80", "--capacity", "20", "--html", "way.html")
    assert "climb, descent" in says("predict", "m.onnx", "way.csv", "--route", *reach)
    assert "Height since the trip began" in (tmp_path / "way.html").read_text()
    assert "its climb is unknown" in says("predict", "m.onnx", "level.csv")
    for words in (
        (*export[:-1], "none.parquet"),
        ("export", "flat", *export[2:]),
        ("predict", "m.onnx", "level.csv", "--route"),
        ("export", "run", "--out", "m.onnx", "--vehicle", "."),
    ):
        assert isinstance(CliRunner().invoke(app, list(words)).exception, FedwattError), words
