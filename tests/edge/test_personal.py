"""A vehicle's own model and its hills, from a run folder to a file on board."""

from pathlib import Path

import numpy as np
import pytest

from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.export import export, read_trained
from fedwatt.edge.export_run import personalised
from fedwatt.edge.trips import outcome
from fedwatt.errors import RunError, SettingError
from fedwatt.runs.config import from_toml
from fedwatt.runs.run import Run
from fedwatt.runs.source import vehicle_map
from fedwatt.runs.tables import read_table
from fedwatt.synthetic.fleet import synthetic_vehicles
from fedwatt.telemetry.store import read_vehicle, write_fleet
from fedwatt.windows.client import split_of_trips
from tests.runs.test_execute import Silent

CONFIG = """
seeds = [1]
device = "cpu"
[fleet]
data = "FLEET"
[data]
features = "speed, elevation"
window = 10
stride = 20
evaluation_stride = 1
[elevation]
minimum_vehicles = 2
[personalisation]
enabled = true
rates = [0.03]
steps = [50]
[model]
hidden = [4, 2]
[training]
rounds = 2
participation = 1.0
[[method]]
name = "fedavg"
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("personalised fleet") / "town"
    write_fleet(path, synthetic_vehicles(3, trips=14), "a small town")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory, fleet) -> Path:
    out = tmp_path_factory.mktemp("personalised run") / "out"
    Run(from_toml(CONFIG.replace("FLEET", str(fleet))), out=out, observer=Silent()).execute()
    return out


@pytest.mark.parametrize("which", ["personalised", "final"])
@pytest.mark.parametrize("name", ["car-001", "car-002", "car-003"])
def test_a_model_on_board_has_the_error_the_run_states(name, which, run, fleet, tmp_path):
    """Personalised weights and private nodes of the map are exported as they were evaluated."""
    trained = read_trained(run)
    vehicle = read_vehicle(fleet / name)
    own = personalised(trained, run, vehicle) if which == "personalised" else trained
    if which == "personalised":
        assert any((own.weights[part] != trained.weights[part]).any() for part in own.weights)
    field = vehicle_map(own.config, run, vehicle.name)
    export(own, tmp_path / "own.onnx", vehicle=vehicle, field=field)
    model = EnergyModel(tmp_path / "own.onnx")
    split = split_of_trips(vehicle, trained.config.data)
    seen = [outcome(model, t, vehicle.name) for t in vehicle.trips if split.get(t.name) == "test"]
    errors = np.concatenate([prediction.windows_wh - prediction.measured_wh for prediction in seen])
    (stated,) = (
        row["rmse"]
        for row in read_table(run, "vehicles").to_pylist()
        if (row["vehicle"], row["model"], row["stratum"]) == (name, which, "all")
    )
    # float32 sums in another order
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(stated, rel=1e-4)


def test_a_personal_model_needs_its_vehicle_and_a_run_that_made_it(run, fleet):
    trained = read_trained(run)
    with pytest.raises(SettingError, match="give its folder with --vehicle"):
        personalised(trained, run, None)
    (stranger, *_) = synthetic_vehicles(1, seed=9, trips=4, kind="bus")
    with pytest.raises(RunError, match="no personalised model of 'bus-001'"):
        personalised(trained, run, stranger)
