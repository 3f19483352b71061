"""A vehicle that was not in the run, from none of its trips to many."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedwatt import adapt
from fedwatt.cli import app
from fedwatt.edge.calibration import PredictionIntervals
from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.trips import outcome
from fedwatt.elevation.climb import trip_rise_m
from fedwatt.elevation.elevation_map import empty_map
from fedwatt.elevation.grid import Grid
from fedwatt.errors import RunError, SettingError
from fedwatt.journeys.ridge import FleetRidge
from fedwatt.runs.config import from_toml
from fedwatt.runs.run import Run
from fedwatt.synthetic.fleet import synthetic_vehicles
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.telemetry.store import write_fleet, write_vehicle
from fedwatt.telemetry.trip import FloatArray
from fedwatt.windows import Client, build_client
from fedwatt.windows.scaling import FleetScaling, Scaler, pooled
from tests.edge.toys import run_folder
from tests.runs.test_execute import Silent

CONFIG = """
seeds = [1]
device = "cpu"
[fleet]
data = "FLEET"
[data]
features = "base, elevation"
stride = 30
[elevation]
minimum_vehicles = 2
[personalisation]
enabled = true
rates = [0.03]
steps = [50]
[baselines]
enabled = false
[model]
mixture = true
hidden = [16, 8]
[training]
rounds = 6
participation = 1.0
[[method]]
name = "fedavg"
"""


@pytest.fixture(scope="module")
def vehicles() -> list[Vehicle]:
    return list(synthetic_vehicles(6, trips=24))


@pytest.fixture(scope="module")
def run(tmp_path_factory, vehicles) -> Path:
    folder = tmp_path_factory.mktemp("adapt")
    write_fleet(folder / "town", vehicles[:5], "a small town")
    config = from_toml(CONFIG.replace("FLEET", str(folder / "town")))
    Run(config, out=folder / "run", observer=Silent()).execute()
    return folder / "run"


def few(vehicle: Vehicle, trips: int) -> Vehicle:
    return replace(vehicle, trips=vehicle.trips[:trips])


def rmse_wh(file: Path, vehicle: Vehicle) -> float:
    model = EnergyModel(file)
    outcomes = [outcome(model, trip, vehicle.name) for trip in vehicle.trips[16:]]
    errors = np.concatenate([o.windows_wh - o.measured_wh for o in outcomes])
    return float(np.sqrt((errors**2).mean()))


def test_trips_lower_the_error_and_narrow_nothing_that_they_have_not_shown(run, vehicles, tmp_path):
    file = tmp_path / "car.onnx"
    errors = []
    for trips in (0, 2, 16):
        adaptation = adapt(run, file, vehicle=few(vehicles[5], trips))
        errors.append(rmse_wh(file, vehicles[5]))
        card = EnergyModel(file).card
        assert card.to_json() == adaptation.card.to_json()
        assert len(card.trips["training"]) + len(card.trips["validation"]) == trips
        assert card.calibration["source"] == "trips of 5 other vehicles"
        usual = PredictionIntervals.of(card).usual
        low, high = usual.around(np.array([100.0]), np.array([10.0]))
        assert np.isfinite([low, high]).all()
    assert errors[2] < errors[1]
    assert errors[2] < 0.9 * errors[0]


def test_two_lines_say_what_was_chosen_and_why(run, vehicles, tmp_path):
    says = {}
    for trips in (0, 1, 3, 12):
        adaptation = adapt(run, tmp_path / "car.onnx", vehicle=few(vehicles[5], trips))
        says[trips] = adaptation.chosen + " " + adaptation.reason
    assert "fleet's scaling, network of the run" in says[0]
    assert "without trips all comes from the fleet" in says[0]
    assert "scaling of 1 trip and the fleet" in says[1]
    assert "fine-tuning the network needs 5 trips" in says[1]
    assert "fine-tuning the network needs 5 trips" in says[3]
    assert "fine-tuned by 50 steps at 0.03" in says[12]
    assert "lowest error on 3 validation trips" in says[12]


def test_a_known_consumption_scales_the_energy_of_a_vehicle_without_trips(run, vehicles, tmp_path):
    trip = vehicles[5].trips[0]

    def total_wh(**known: float) -> float:
        adapt(run, tmp_path / "car.onnx", **known)
        model = EnergyModel(tmp_path / "car.onnx")
        return outcome(model, trip, "unseen vehicle").trip_wh

    assert total_wh(wh_per_km=300.0) == pytest.approx(2 * total_wh(wh_per_km=150.0), rel=1e-6)
    assert total_wh(mass_kg=3000.0) == pytest.approx(2 * total_wh(mass_kg=1500.0), rel=1e-6)
    with pytest.raises(SettingError, match=r"15\.2 kWh/100 km is 152"):
        adapt(run, tmp_path / "car.onnx", wh_per_km=15.2)


def test_the_command_line_and_routes(run, vehicles, tmp_path):
    write_vehicle(tmp_path / "car", few(vehicles[5], 4))
    words = ["adapt", str(run), "--vehicle", str(tmp_path / "car"), "--routes", "--out"]
    done = CliRunner().invoke(app, [*words, str(tmp_path / "car.onnx")])
    assert done.exit_code == 0, done.output
    assert "Chosen for" in done.output
    assert "Why: fine-tuning the network needs 5 trips" in " ".join(done.output.split())
    routes = EnergyModel(tmp_path / "car.onnx").routes()
    assert routes is not None
    assert routes.trips == 3  # the fourth is for test


def test_a_run_whose_vehicles_shared_no_scaling_is_refused(tmp_path):
    with pytest.raises(RunError, match=r"has no unseen\.json"):
        adapt(run_folder(tmp_path / "run"), tmp_path / "car.onnx")


def test_scaling_pools_an_hour_of_the_fleet_with_the_vehicles_seconds(vehicles):
    # Two hours at 4 ± 2 and the fleet's hour at 1 ± 1: centre 3, variance 1/3 + 8/3 + 2/9 · 9.
    made = pooled(Scaler(np.array(1.0), np.array(1.0)), Scaler(np.array(4.0), np.array(2.0)), 7200)
    assert made.center == pytest.approx(3.0)
    assert made.scale**2 == pytest.approx(5.0)


def test_a_vehicle_without_trips_has_the_fleets_scaling():
    from fedwatt.windows import DataSettings

    fleet = FleetScaling(np.full(8, 2.0), np.full(8, 3.0), 50.0, 40.0)
    client = build_client(Vehicle("new", ()), DataSettings(), unseen=fleet.times(1.5))
    assert (client.label_center_wh, client.label_scale_wh) == (75.0, 60.0)
    assert client.series.shape == (0, 8)
    assert not any(len(ends) for ends in client.ends.values())


def test_few_validation_trips_do_not_give_the_fleets_map_up(run, vehicles, tmp_path, monkeypatch):
    empty = empty_map(Grid(cell_m=80.0))
    monkeypatch.setattr("fedwatt.edge.adapt.vehicle_elevation", lambda *arguments: empty)
    nodes = []
    for trips in (5, 20):
        card = adapt(run, tmp_path / "car.onnx", vehicle=few(vehicles[5], trips)).card
        nodes.append(card.elevation["nodes"])
    assert nodes[0] > 100 and nodes[1] == 0


def test_elevation_is_learned_from_every_trip_from_the_first_on(run, vehicles, tmp_path):
    def elsewhere(trip: Trip) -> Trip:
        latitude_deg = trip.channels["latitude_deg"] + 1
        return replace(trip, channels={**trip.channels, "latitude_deg": latitude_deg})

    file = tmp_path / "car.onnx"
    for count in (1, 3):
        trips = tuple(elsewhere(trip) for trip in vehicles[5].trips[:count])
        adapt(run, file, vehicle=replace(vehicles[5], trips=trips))
        model = EnergyModel(file)
        assert len(model.card.trips["validation"]) == (0 if count == 1 else 2)
        for trip in trips:
            assert np.isfinite(trip_rise_m(trip, model.field)).all()


def test_validation_trips_teach_the_ridge_after_intervals(run, vehicles, tmp_path, monkeypatch):
    vehicle = few(vehicles[5], 12)
    usual = adapt(run, tmp_path / "usual.onnx", vehicle=vehicle).card

    def nothing(client: Client, fleet: FleetRidge, *, validation: bool) -> FloatArray:
        assert validation
        return np.zeros(len(client.features) + 1)

    monkeypatch.setattr("fedwatt.edge.export.mixed_ridge", nothing)
    without = adapt(run, tmp_path / "without.onnx", vehicle=vehicle).card
    assert without.calibration == usual.calibration
    assert without.network_weight == usual.network_weight == 0.4
    assert rmse_wh(tmp_path / "without.onnx", vehicles[5]) > 10 + rmse_wh(
        tmp_path / "usual.onnx", vehicles[5]
    )
