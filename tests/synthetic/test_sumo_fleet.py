"""Driving in SUMO, where it is installed, and what is said where it is not."""

from importlib.util import find_spec
from xml.etree import ElementTree

import numpy as np
import pytest

from examples import sumo_town as sumo
from examples.sumo_town import (
    BLOCK_M,
    SumoTown,
    drive_in_sumo,
    sumo_tool,
    sumo_vehicles,
    write_town,
)
from fedwatt.errors import RunError, SettingError
from fedwatt.synthetic.town import (
    CENTRE_LATITUDE_DEG,
    CENTRE_LONGITUDE_DEG,
    EARTH_RADIUS_M,
    draw_landscape,
)
from fedwatt.windows import DataSettings, build_fleet

TINY = SumoTown(vehicles=2, trips=4, junctions=5, traffic=30)
needs_sumo = pytest.mark.skipif(
    find_spec("sumo") is None, reason="Eclipse SUMO is not installed: pip install eclipse-sumo"
)


@pytest.fixture(scope="module")
def vehicles():
    return list(sumo_vehicles(TINY))


@needs_sumo
def test_vehicles_drive_and_are_marked_simulated(vehicles):
    assert sorted(vehicle.name for vehicle in vehicles) == ["sumo-001", "sumo-002"]
    for vehicle in vehicles:
        assert vehicle.labels == "simulated"
        assert 3 <= len(vehicle.trips) <= 4
        km = sum(trip.channels["speed_mps"].sum() for trip in vehicle.trips) / 1000
        wh = sum(trip.channels["energy_wh"].sum() for trip in vehicle.trips)
        assert 60 < wh / km < 350
        for trip in vehicle.trips:
            assert trip.channels["speed_mps"].max() < 1.2 * sumo.ARTERIAL_MPS


@needs_sumo
def test_the_road_follows_the_hills(vehicles):
    scale = np.radians(1) * EARTH_RADIUS_M
    for vehicle in vehicles:
        for trip in vehicle.trips:
            x_m = (trip.channels["longitude_deg"] - CENTRE_LONGITUDE_DEG) * scale
            x_m *= np.cos(np.radians(CENTRE_LATITUDE_DEG))
            y_m = (trip.channels["latitude_deg"] - CENTRE_LATITUDE_DEG) * scale
            true_m = draw_landscape(0).elevation_m(x_m, y_m)
            # Straight between junctions 400 m apart, on hills of 700 m and more.
            assert np.abs(trip.channels["elevation_m"] - true_m).max() < 8.0
            assert 0.003 < np.abs(trip.channels["grade"]).max() < 0.1


@needs_sumo
def test_the_fleet_builds_with_grade(vehicles):
    fleet = build_fleet(vehicles, DataSettings(features="base, grade"), "SUMO")
    assert fleet.windows("train") > 100


@needs_sumo
def test_a_failing_tool_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(sumo, "_edges", lambda town: ["<rubbish"])
    with pytest.raises(RunError, match="netconvert failed"):
        drive_in_sumo(TINY, tmp_path)


def test_without_sumo_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(sumo, "find_spec", lambda name: None)
    monkeypatch.setattr(sumo.shutil, "which", lambda name: None)
    with pytest.raises(SettingError, match="pip install eclipse-sumo"):
        sumo_tool("sumo")
    with pytest.raises(SettingError, match="needs Eclipse SUMO"):
        next(sumo_vehicles(TINY))


def test_a_town_is_written_with_its_hills(tmp_path):
    nodes, edges, trips = write_town(
        SumoTown(vehicles=2, trips=3, junctions=4, traffic=0), tmp_path
    )
    at = {n.get("id"): n for n in ElementTree.parse(nodes).getroot()}
    assert len(at) == 16
    west_south = at["0-0"]
    assert float(west_south.get("x")) == -1.5 * BLOCK_M
    hill = draw_landscape(0).elevation_m(np.array(-1.5 * BLOCK_M), np.array(-1.5 * BLOCK_M))
    assert float(west_south.get("z")) == pytest.approx(float(hill), abs=0.001)
    # 2 · 4 · 3 roads, both ways.
    assert len(ElementTree.parse(edges).getroot()) == 48
    routes = ElementTree.parse(trips).getroot()
    departures = [float(trip.get("depart")) for trip in routes.iter("trip")]
    assert len(departures) == 6
    assert departures == sorted(departures)
    keys = {p.get("key") for p in routes.iter("param")}
    assert {"has.battery.device", "device.battery.capacity", "recuperationEfficiency"} <= keys


def test_draws_are_keyed_by_vehicle(tmp_path):
    def of_first(vehicles):
        town = SumoTown(vehicles=vehicles, trips=3, traffic=0)
        root = ElementTree.parse(write_town(town, tmp_path)[2]).getroot()
        return [trip.attrib for trip in root.iter("trip") if trip.get("type") == "sumo-001"]

    assert of_first(1) == of_first(4)
