"""Routes for the owner of one car or two, and elevation along a route from a terrain model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedwatt.cli import app
from fedwatt.edge.pretrained import route_model, routes_of_member
from fedwatt.edge.route_forecast import Departure
from fedwatt.journeys.route import outside_c, recorded_route
from fedwatt.runs.config import from_tables
from fedwatt.synthetic.fleet import synthetic_vehicles
from fedwatt.telemetry.store import write_fleet, write_vehicle
from tests.telemetry.test_terrain_model import write_tile

LEARNED = 50


@pytest.fixture(scope="module")
def cars():
    return list(synthetic_vehicles(2, trips=60))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, cars) -> Path:
    path = tmp_path_factory.mktemp("owner") / "car"
    write_vehicle(path, replace(cars[0], trips=cars[0].trips[:LEARNED]))
    return path


def forecasts(model, trips):
    """Forecasts of trips, and their measured energy."""
    made = [(model.forecast(recorded_route(t)[0], outside_c(t) or 15.0), t) for t in trips]
    return [(forecast, float(trip.channels["energy_wh"].sum())) for forecast, trip in made]


def median_error(made) -> float:
    return float(
        np.median([abs(forecast.total_wh / energy_wh - 1) for forecast, energy_wh in made])
    )


def test_one_car_learns_its_roads_from_its_own_trips(cars, folder):
    new = cars[0].trips[LEARNED:]
    unseen = forecasts(route_model("electric-car", Departure()), new)
    owner_model = route_model("electric-car", Departure(vehicle=folder))
    owner = forecasts(owner_model, new)
    assert owner_model.trips == LEARNED
    assert owner_model.elevations is not None and owner_model.elevations.nodes
    assert np.mean([forecast.known for forecast, _ in unseen]) == 0
    assert np.mean([forecast.known for forecast, _ in owner]) > 0.5
    assert median_error(owner) < 0.8 * median_error(unseen)
    covered = [
        forecast.energy_levels_wh[-1][4] <= energy_wh <= forecast.energy_levels_wh[-1][94]
        for forecast, energy_wh in owner
    ]
    assert np.mean(covered) >= 0.8


def test_two_cars_have_the_shipped_coefficients_and_their_own_roads(tmp_path, cars):
    write_fleet(tmp_path / "two", cars, "two cars")
    config = from_tables({"fleet": {"data": str(tmp_path / "two")}})
    (tmp_path / "run").mkdir()
    model = routes_of_member(
        tmp_path / "run", config, replace(cars[0], trips=cars[0].trips[:LEARNED])
    )
    made = forecasts(model, cars[0].trips[LEARNED:])
    unseen = forecasts(route_model("electric-car", Departure()), cars[0].trips[LEARNED:])
    assert np.mean([forecast.known for forecast, _ in made]) > 0.5
    assert model.fleet_vehicles == 16
    assert median_error(made) < median_error(unseen)


@pytest.mark.parametrize("kind", ["hgt", "tif"])
def test_a_terrain_model_gives_a_route_its_climb(tmp_path, kind):
    north = np.linspace(1.0, 0.0, 1201)
    heights = np.repeat((200 + 1000 * north)[:, None], 1201, axis=1)
    file = write_tile(tmp_path / "N48E011.hgt", heights)
    if kind == "tif":
        rasterio = pytest.importorskip("rasterio")
        half = 0.5 / 1200
        corner = rasterio.Affine(1 / 1200, 0, 11 - half, 0, -1 / 1200, 49 + half)
        file = tmp_path / "dem.tif"
        with rasterio.open(
            file,
            "w",
            driver="GTiff",
            width=1201,
            height=1201,
            count=1,
            dtype="int16",
            crs="EPSG:4326",
            transform=corner,
        ) as out:
            out.write(heights.astype(np.int16), 1)
    rows = "".join(f'<trkpt lat="{48.1 + i / 2000}" lon="11.5"/>' for i in range(90))
    (tmp_path / "trip.gpx").write_text(f"<gpx><trk><trkseg>{rows}</trkseg></trk></gpx>")
    words = ["route", str(tmp_path / "trip.gpx"), "--model", "leaf-24", "--temperature", "5"]
    level = CliRunner().invoke(app, words)
    assert "No elevation is known for 100 % of trip" in " ".join(level.output.split())
    done = CliRunner().invoke(app, [*words, "--dem", str(file)])
    assert done.exit_code == 0, done.output
    # 89 steps of 1/2000 of a degree, each 0.5 m up.
    assert "44 m, 0 m" in done.output
