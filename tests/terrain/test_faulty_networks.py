"""Bad positions and federated networks: what the ridge of test_faults bears, networks bear too."""

import numpy as np
import pytest

from fedwatt.federation import Federation, Training
from fedwatt.fleet import DataSettings, Vehicle, build_fleet
from fedwatt.models import get_model
from fedwatt.personal import Personal, personalise
from fedwatt.terrain import TerrainSettings, give_terrain, learn
from tests.terrain.test_faults import FAULTS, nothing, spoiled
from tests.terrain.toys import fleet

SETTINGS = TerrainSettings(minimum_vehicles=2)
TRAINING = Training(rounds=10, rate=0.1, participation=1.0, evaluate_every=10)
TUNING = Personal(rates=(0.03,), steps=(100, 200))
SEEDS = (1, 2)


def errors_wh(vehicles: list[Vehicle], *, hills: bool, personal: bool) -> np.ndarray:
    """Test RMSE of each vehicle over the seeds, [vehicles]."""
    features = "speed, terrain" if hills else "speed"
    data = DataSettings(features=features, window=20, stride=4)
    if hills:
        vehicles = list(give_terrain(vehicles, learn(vehicles, SETTINGS, data)))
    built = build_fleet(vehicles, data, "toys")
    model = get_model("mlp", window=20, features=len(built.features), hidden=(16, 8))
    federation = Federation(built, model, training=TRAINING, seeds=SEEDS, device="cpu")
    weights = federation.train("fedavg").state.weights
    rows = federation.vehicle_rows(weights)
    if personal:
        own = personalise(federation, weights, TUNING)
        rows = federation.prediction_rows(own.predictions)
    squares = np.array([row["rmse"] for row in rows if row["stratum"] == "all"]) ** 2
    return np.sqrt(squares.reshape(len(SEEDS), len(vehicles)).mean(axis=0))


@pytest.fixture(scope="module")
def sound() -> list[Vehicle]:
    return fleet(5, trips=20)


def test_sound_positions_help_a_network(sound):
    with_hills = errors_wh(sound, hills=True, personal=False)
    assert (with_hills < 0.3 * errors_wh(sound, hills=False, personal=False)).all()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fleet_in_which_all_are_spoiled_is_not_worse_off(sound, fault):
    vehicles = [spoiled(vehicle, fault) for vehicle in sound]
    with_hills = errors_wh(vehicles, hills=True, personal=False)
    without = errors_wh(vehicles, hills=False, personal=False)
    assert np.sqrt(np.mean(with_hills**2)) <= 1.02 * np.sqrt(np.mean(without**2))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_one_spoiled_vehicle_with_its_own_model_is_not_worse_off(sound, fault):
    """The global model of a fleet that sees hills is a little off for one that does not."""
    vehicles = [spoiled(sound[0], fault), *sound[1:]]
    with_hills = errors_wh(vehicles, hills=True, personal=True)
    assert (with_hills <= 1.02 * errors_wh(vehicles, hills=False, personal=True)).all()


def test_the_global_model_costs_a_vehicle_without_positions_little(sound):
    vehicles = [spoiled(sound[0], nothing), *sound[1:]]
    blind = errors_wh(vehicles, hills=True, personal=False)[0]
    assert blind <= 1.05 * errors_wh(vehicles, hills=False, personal=False)[0]
