"""A run with mixtures and aligned vehicles, from its configuration to a model file."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fedwatt.deploy.server.execute import refuse_undeployable
from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.export_run import export_run
from fedwatt.edge.trips import predict_trip
from fedwatt.elevation.elevation_map import empty_map
from fedwatt.errors import RunError, SettingError
from fedwatt.journeys.filter import TripPrior
from fedwatt.runs.config import from_toml
from fedwatt.runs.journeys import read_fleet_ridge, read_intervals, read_trip_prior
from fedwatt.runs.run import Run
from fedwatt.runs.source import learned_elevation, run_fleet, unsurveyed_clients
from fedwatt.runs.tables import read_table
from fedwatt.synthetic import synthetic_vehicles
from fedwatt.telemetry.store import read_vehicle, vehicle_folders, write_fleet
from tests.runs.test_execute import Silent

CONFIG = """
seeds = [1]
device = "cpu"
[fleet]
data = "FLEET"
[data]
features = "physics"
stride = 20
align = true
[model]
hidden = [4]
mixture = MIXTURE
[training]
rounds = 1
steps = 5
participation = 1.0
[[method]]
name = "fedavg"
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleet") / "town"
    write_fleet(folder, synthetic_vehicles(3, trips=12), "a town")
    return folder


@pytest.fixture(scope="module")
def run(fleet, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "mixed"
    text = CONFIG.replace("FLEET", str(fleet))
    Run(from_toml(text.replace("MIXTURE", "true")), out=out, observer=Silent()).execute()
    Run(
        from_toml(text.replace("MIXTURE", "false")), out=out.parent / "network", observer=Silent()
    ).execute()
    return out


def kept_rmse(folder):
    rows = read_table(folder, "vehicles").to_pylist()
    result = [r["rmse"] for r in rows if r["model"] == "final" and r["stratum"] == "all"]
    return float(np.mean(result))


def test_ridges_help_a_network_that_has_hardly_been_trained(run):
    assert kept_rmse(run) < 0.95 * kept_rmse(run.parent / "network")
    assert read_fleet_ridge(run).mean.shape == (12,)  # 11 physics features and the intercept
    intervals = read_intervals(run, "fedavg")
    assert intervals.vehicles == 3 and intervals.factor("trips") > 0
    unseen = read_intervals(run, "fedavg", unseen=True)
    assert unseen.vehicles == 3 and unseen.means["windows"] != intervals.means["windows"]
    assert read_fleet_ridge(run.parent / "network") is None
    assert isinstance(read_trip_prior(run, "fedavg"), TripPrior)


def test_unseen_vehicles_are_scored_with_published_elevation_alone(fleet):
    text = CONFIG.replace("FLEET", str(fleet)).replace("MIXTURE", "true")
    text = text.replace('"physics"', '"base, elevation"')
    config = from_toml(f'{text}[elevation]\nsource = "learn"\n')
    learned = learned_elevation(config)
    nothing_shared = replace(learned, shared=empty_map(config.elevation.grid))
    climb_known = config.data.columns.index("climb_known")
    with_private = run_fleet(config).clients
    for client in with_private:
        assert client.series[:, climb_known].any()
    scored = list(unsurveyed_clients(config, nothing_shared))
    assert [client.name for client in scored] == [client.name for client in with_private]
    for client in scored:
        assert not client.series[:, climb_known].any()
    two = replace(learned, contributors=learned.contributors - {scored[0].name})
    assert [client.name for client in unsurveyed_clients(config, two)] == [
        client.name for client in scored[1:]
    ]


def test_the_file_of_a_vehicle_predicts_as_well_as_its_run_said(run, fleet, tmp_path):
    vehicle = read_vehicle(vehicle_folders(fleet)[0])
    _, card = export_run(run, tmp_path / "m.onnx", vehicle=vehicle_folders(fleet)[0])
    assert card.network_weight < 1 and 0 < card.lag_s <= 1 and card.trip_prior
    model = EnergyModel(tmp_path / "m.onnx")
    errors = []
    for trip in vehicle.trips:
        if not card.role_of(trip.name, vehicle.name):
            windows_wh = predict_trip(model, trip, vehicle.name).windows_wh[::10]
            total = np.concatenate([[0.0], np.cumsum(trip.channels["energy_wh"])])
            errors.append(windows_wh - (total[60:] - total[:-60])[::10])
    rows = read_table(run, "vehicles").to_pylist()
    (message,) = (
        row["rmse"]
        for row in rows
        if (row["model"], row["vehicle"], row["stratum"]) == ("final", vehicle.name, "all")
    )
    assert np.sqrt(np.mean(np.concatenate(errors) ** 2)) == pytest.approx(message, rel=1e-4)


def test_a_real_fleet_refuses_mixtures(fleet):
    text = CONFIG.replace("FLEET", str(fleet)).replace("MIXTURE", "true")
    with pytest.raises(SettingError, match=r"model\.mixture needs the sums of all vehicles"):
        refuse_undeployable(from_toml(text))


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "trip_prior.json").write_text("{")
    with pytest.raises(RunError, match=r"trip_prior\.json is damaged"):
        read_trip_prior(tmp_path, "fedavg")
    (tmp_path / "fleet_ridge.json").write_text(json.dumps({"beta": [1.0, 2.0]}))
    with pytest.raises(RunError, match="another version wrote it"):
        read_fleet_ridge(tmp_path)
