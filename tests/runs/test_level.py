"""The level model of a run with hills."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fedwatt.elevation.level import LEVEL, Predictions
from fedwatt.errors import RunError, SettingError
from fedwatt.federation.selection import GLOBAL_MODELS
from fedwatt.report.baselines import method_stages
from fedwatt.report.load import load_run, load_runs
from fedwatt.runs.config import RunConfig, from_toml, to_toml
from fedwatt.runs.elevation import (
    ModelPredictions,
    config_without_elevation,
    predictions_in_use,
)
from fedwatt.runs.run import Run
from fedwatt.runs.tables import read_table
from fedwatt.synthetic.fleet import synthetic_vehicles
from fedwatt.telemetry.store import write_fleet
from tests.elevation.toys import without_positions
from tests.runs.test_execute import Silent, results

CONFIG = """
seeds = [1, 2]
device = "cpu"
[fleet]
data = "FLEET"
[data]
features = "base, elevation"
window = 10
stride = 40
evaluation_stride = 10
[elevation]
source = "learn"
minimum_vehicles = 2
[personalisation]
enabled = true
rates = [0.03]
steps = [50]
[model]
hidden = [8, 4]
[training]
rounds = 3
participation = 1.0
learning_rate = 0.1
[[method]]
name = "fedavg"
[[method]]
name = "fo-ri-fedavg"
"""
LOST = "car-001"


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> RunConfig:
    """Four vehicles, the first of which has no receiver."""
    first, *others = synthetic_vehicles(4, trips=10)
    folder = tmp_path_factory.mktemp("fleet") / "town"
    write_fleet(folder, [without_positions(first), *others], "a town")
    return from_toml(CONFIG.replace("FLEET", str(folder)))


@pytest.fixture(scope="module")
def run(config, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("run") / "out"
    Run(config, out=out, observer=Silent()).execute()
    return out


def errors(run: Path, model: str) -> dict[tuple, float]:
    """RMSE by method, seed and vehicle."""
    return {
        (row["method"], row["seed"], row["vehicle"]): row["rmse"]
        for row in read_table(run, "vehicles").to_pylist()
        if row["stratum"] == "all" and row["model"] == model
    }


def test_it_is_the_same_run_without_climb(config):
    level = config_without_elevation(config)
    assert level.data.features == (
        "speed, acceleration, speed_squared, speed_cubed, specific_power, ambient, ac, heater"
    )
    assert not level.baselines.enabled  # they are worked out once, beside the run
    same = {"data": config.data, "elevation": config.elevation, "baselines": config.baselines}
    assert replace(level, **same) == config
    assert config_without_elevation(level) is None


def test_it_is_the_run_that_a_fleet_without_terrain_would_make(config, run, tmp_path):
    Run(config_without_elevation(config), out=tmp_path / "plain", observer=Silent()).execute()
    for model in (*GLOBAL_MODELS, "personalised"):
        assert errors(run / LEVEL, model) == errors(tmp_path / "plain", model)


@pytest.mark.parametrize("model", ["final", "personalised"])
def test_a_vehicle_without_positions_is_predicted_as_without_terrain(run, model):
    with_hills = errors(run, model)
    without = errors(run / LEVEL, model)
    assert len(with_hills) == 2 * 2 * 4
    for key, rmse in with_hills.items():
        if key[2] == LOST:
            assert rmse == without[key]
    # A small town and a short training, but hills are of use to some.
    assert any(rmse < 0.95 * without[key] for key, rmse in with_hills.items())


def test_the_last_model_is_the_network_with_hills_alone(run):
    final = {
        (row["method"], row["seed"]): row["test_rmse"]
        for row in read_table(run, "rounds").to_pylist()
        if row["round"] == 3
    }
    windows = {
        (row["method"], row["seed"], row["vehicle"]): row["windows"]
        for row in read_table(run, "vehicles").to_pylist()
        if row["stratum"] == "all" and row["model"] == "last"
    }
    last = errors(run, "last")
    for (method, seed), rmse in final.items():
        keys = [key for key in last if key[:2] == (method, seed)]
        total = sum(windows[key] * last[key] ** 2 for key in keys)
        assert rmse == pytest.approx((total / sum(windows[key] for key in keys)) ** 0.5)


@pytest.mark.parametrize("rounds", [2, 5, 8])
def test_a_run_stopped_in_either_training_goes_on_to_the_same_bytes(config, run, tmp_path, rounds):
    """Twelve rounds in all: the level model of both methods, then the networks with hills."""
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        Run(config, out=out, observer=Silent(stop_after=rounds), checkpoint_seconds=0.0).execute()
    Run(config, out=out, observer=Silent(), resume=True).execute()
    assert results(out) == results(run)
    assert results(out / LEVEL) == results(run / LEVEL)


def test_it_can_be_switched_off(config, run, tmp_path):
    alone = replace(config, elevation=replace(config.elevation, model_without_elevation=False))
    Run(alone, out=tmp_path / "alone", observer=Silent()).execute()
    assert not (tmp_path / "alone" / LEVEL).exists()
    # The network is the same; for a vehicle without positions it is another than the level model.
    assert errors(tmp_path / "alone", "last") == errors(run, "last")
    hilly = errors(tmp_path / "alone", "final")
    used = errors(run, "final")
    assert all(hilly[key] != rmse for key, rmse in used.items() if key[2] == LOST)


def test_a_report_tells_runs_with_a_level_model_from_others(config, run):
    alone = load_run(run)
    both = load_runs([run, run / LEVEL])
    assert list(method_stages(alone, "fedavg"))[:2] == ["shared model", "with elevation"]
    names = {origin.name: origin for origin in both.origins}
    for method in names[run.name].methods:
        assert "with elevation" in method_stages(both, method)
    for method in names[LEVEL].methods:
        assert "with elevation" not in method_stages(both, method)


def one_vehicle(known: list[bool]) -> SimpleNamespace:
    """A federation for `predictions_in_use`: one vehicle, two validation and two test windows."""
    labels = np.zeros(2, dtype=np.float32)
    client = SimpleNamespace(
        window=10,
        ends={"validation": np.array([9, 19])},
        labels={"validation": labels},
        climb_known={"validation": np.array([True, True]), "test": np.array(known)},
    )
    windows = SimpleNamespace(offsets=[0, 2])
    pool = SimpleNamespace(validation=windows, test=windows)
    return SimpleNamespace(pool=pool, fleet=SimpleNamespace(clients=(client,)))


def test_the_level_model_of_a_diverged_seed_is_not_used():
    """Hills are right, 0 against 5; climb is known in the second test window alone."""
    right = np.zeros((2, 2))
    wrong = np.full((2, 2), 5.0)
    hilly = ModelPredictions(Predictions(right, np.full((2, 2), 1.0)), None, (0, 1))
    level = ModelPredictions(Predictions(wrong, wrong), None, (0,))
    used = predictions_in_use(one_vehicle([False, True]), hilly, level)
    assert used["final"].tolist() == [[5, 1], [1, 1]]


def test_a_checkpoint_of_another_run_is_refused_before_anything_is_trained(config, run, tmp_path):
    out = tmp_path / "out"
    other = replace(config, training=replace(config.training, rounds=2))
    Run(
        replace(other, elevation=replace(other.elevation, model_without_elevation=False)),
        out=out,
        observer=Silent(),
    ).execute()
    (out / "config.toml").write_text(to_toml(config))
    with pytest.raises(RunError, match="belongs to another configuration"):
        Run(config, out=out, observer=Silent(), resume=True).execute()
    assert not (out / LEVEL).exists()


def test_features_that_all_need_climb_leave_no_level_model(config):
    assert (
        config_without_elevation(replace(config, data=replace(config.data, features="elevation")))
        is None
    )


def test_as_many_components_as_there_are_features(config):
    most = replace(config, data=replace(config.data, components=10))
    assert config_without_elevation(most).data.components == 8


def test_a_private_method_is_not_trained_twice(config):
    text = to_toml(config) + '\n[[method]]\nname = "fedavg@private"\nlabel = "noisy"\n'
    private = from_toml(text)
    with pytest.raises(
        SettingError, match=r"Method 'noisy' adds noise .*model_without_elevation = false"
    ):
        config_without_elevation(private)
