"""Bad positions and federated networks: what the ridge of test_faults bears, networks bear too."""

import numpy as np
import pytest

from fedwatt.federation import Federation, Training
from fedwatt.fleet import DataSettings, Trip, Vehicle, build_fleet
from fedwatt.fleet.client import build_client
from fedwatt.models import get_model
from fedwatt.personal import Personal, personalise
from fedwatt.terrain import TerrainSettings, give_terrain, learn
from tests.terrain.test_faults import FAULTS, spoiled
from tests.terrain.toys import fleet

SETTINGS = TerrainSettings(minimum_vehicles=2)
TRAINING = Training(rounds=10, rate=0.1, participation=1.0, evaluate_every=10)
TUNING = Personal(rates=(0.03,), steps=(100, 200))
SEEDS = (1, 2, 3)


def errors_wh(vehicles: list[Vehicle], *, hills: bool) -> tuple[np.ndarray, np.ndarray]:
    """Test RMSE of each vehicle over the seeds, [vehicles]: of the global model and of its own."""
    features = "speed, terrain" if hills else "speed"
    data = DataSettings(features=features, window=20, stride=4)
    if hills:
        vehicles = list(give_terrain(vehicles, learn(vehicles, SETTINGS, data)))
    built = build_fleet(vehicles, data, "toys")
    model = get_model("mlp", window=20, features=len(built.features), hidden=(16, 8))
    federation = Federation(built, model, training=TRAINING, seeds=SEEDS, device="cpu")
    weights = federation.train("fedavg").state.weights
    own = personalise(federation, weights, TUNING)
    rows = federation.vehicle_rows(weights), federation.prediction_rows(own.predictions)
    one, other = (
        np.array([row["rmse"] for row in part if row["stratum"] == "all"]) ** 2 for part in rows
    )
    shape = len(SEEDS), len(vehicles)
    return np.sqrt(one.reshape(shape).mean(axis=0)), np.sqrt(other.reshape(shape).mean(axis=0))


@pytest.fixture(scope="module")
def sound() -> list[Vehicle]:
    return fleet(5, trips=20)


def test_sound_positions_help_a_network(sound):
    with_hills, _ = errors_wh(sound, hills=True)
    assert (with_hills < 0.3 * errors_wh(sound, hills=False)[0]).all()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_one_spoiled_vehicle_is_not_worse_off_nor_are_the_others(sound, fault):
    """Neither with the global model, which is made for vehicles that see hills, nor its own."""
    vehicles = [spoiled(sound[0], fault), *sound[1:]]
    for with_hills, without in zip(
        errors_wh(vehicles, hills=True), errors_wh(vehicles, hills=False), strict=True
    ):
        assert (with_hills <= 1.02 * without).all()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fleet_in_which_all_are_spoiled_is_not_worse_off(sound, fault):
    vehicles = [spoiled(vehicle, fault) for vehicle in sound]
    for with_hills, without in zip(
        errors_wh(vehicles, hills=True), errors_wh(vehicles, hills=False), strict=True
    ):
        assert np.sqrt(np.mean(with_hills**2)) <= 1.02 * np.sqrt(np.mean(without**2))


def driven(name: str, climb_m: np.ndarray) -> Trip:
    flat = np.zeros(len(climb_m))
    speed = 10 + np.sin(np.arange(len(climb_m)))
    channels = {"speed_mps": speed, "energy_wh": 4 * climb_m + speed}
    return Trip(name, {**channels, "climb_m": climb_m, "descent_m": flat})


@pytest.mark.parametrize("known", [10, 5, 1])
def test_hills_are_as_steep_however_few_trips_have_positions(known):
    """Half a metre and one and a half by turns: 1 is a metre, and 0 is a level road."""
    hilly = np.tile([0.5, 1.5], 20)
    trips = [driven(f"t{i}", hilly * (i < known)) for i in range(10)]
    data = DataSettings(features="speed, terrain", window=10, split=(0.8, 0.1, 0.1))
    # The split is by name; which trips train is not what is tested, so all orders of names are.
    for turn in range(10):
        named = tuple(Trip(f"t{(i + turn) % 10}", t.channels) for i, t in enumerate(trips))
        client = build_client(Vehicle("v", named), data)
        ways = dict(zip(client.features, client.series.T, strict=True))
        assert set(np.unique(ways["descent"])) == {0.0}
        seen = {t.name for t in named if t.channels["climb_m"].any()}
        if seen & set(client.trips["train"]):
            assert set(np.unique(ways["ascent"])) <= {0.0, 0.5, 1.5}
