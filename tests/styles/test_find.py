"""Two ways of driving are found; one way is one; and what a vehicle hands over are sums."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from examples.driving_styles import Styles, find_styles
from examples.driving_styles.__main__ import main
from examples.driving_styles.vehicle_sums import Driving, fleet_scale, motion_features, scale_sums
from examples.driving_styles.verdict import adjusted_rand
from fedwatt.errors import DataError, SettingError
from fedwatt.federation import Federation, Training
from fedwatt.runs.config import from_tables
from fedwatt.runs.run import Run
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.telemetry.store import write_fleet
from fedwatt.windows import DataSettings, Fleet, build_fleet
from fedwatt.windows.features import trip_features

SETTINGS = DataSettings(window=20, stride=10, features="speed, acceleration, ambient")
CALM = 0.6
BRISK = 2.4


def vehicle(name: str, ramp_mps2: float, draw: np.random.Generator) -> Vehicle:
    """One that takes every change of the wanted speed at about the same rate."""
    trips = []
    vehicle_ramp = ramp_mps2 * np.exp(0.08 * draw.normal())
    for number in range(6):
        expected = np.repeat(draw.uniform(5, 20, 20), 20)
        speed = np.empty(400)
        now = expected[0]
        for second, goal in enumerate(expected):
            now += np.clip(goal - now, -vehicle_ramp, vehicle_ramp)
            speed[second] = now
        change = np.gradient(speed)
        energy = 0.1 + 0.03 * speed + 0.4 * speed * change / 3.6 + draw.normal(0, 0.05, 400)
        ambient = np.full(400, draw.uniform(-5, 25))
        channels = {"speed_mps": speed, "energy_wh": energy, "ambient_c": ambient}
        trips.append(Trip(str(number), channels))
    return Vehicle(name, tuple(trips), labels="measured")


def vehicles(ramps: list[float]) -> list[Vehicle]:
    draw = np.random.default_rng(5)
    return [vehicle(f"car-{n:02d}", ramp, draw) for n, ramp in enumerate(ramps)]


def looked_at(fleet: Fleet) -> Styles:
    federation = Federation(fleet, training=Training(rounds=3, learning_rate=0.02), seeds=(1, 2))
    return styles_of(federation, max_clusters=3)


def styles_of(federation: Federation, **options: int) -> Styles:
    trained = federation.train("fedavg")
    return find_styles(federation, trained.state.final_weights, trained.history.method, **options)


def test_calm_and_brisk_drivers_are_two_styles() -> None:
    truth = [0, 1] * 8
    fleet = build_fleet(vehicles([(CALM, BRISK)[style] for style in truth]), SETTINGS, "two")
    page_state = looked_at(fleet)
    assert (page_state.clusters, page_state.sizes, page_state.seeds) == (2, (8, 8), (1, 2))
    assert page_state.probability <= 0.05 and page_state.agreement == 1.0
    assert adjusted_rand(np.array(truth), np.array([*page_state.members.values()])) == 1.0
    assert page_state.sentence.startswith("2 driving styles beyond chance (p = 0.0")
    # What tells them apart is how speed changes, not how fast the roads are.
    assert next(iter(page_state.profile)) == "spread of acceleration, m/s²"
    assert Styles.from_json(page_state.to_json()) == page_state


def test_drivers_of_one_kind_are_one_style() -> None:
    ramps = [1.2 * np.exp(0.3 * x) for x in np.random.default_rng(1).normal(size=16)]
    page_state = looked_at(build_fleet(vehicles(ramps), SETTINGS, "one"))
    assert (page_state.clusters, page_state.sizes) == (1, (16,))
    assert page_state.sentence.startswith("No driving styles")


def test_nothing_is_left_of_what_the_fleet_does_at_the_same_speed() -> None:
    speed = np.linspace(-2, 2, 9)
    powers = speed[:, None] ** np.arange(4)
    beta = np.array([[1.0, -2.0], [0.5, 0.0], [0.0, 3.0], [0.25, -1.0]])
    usual = Driving(powers, powers @ beta, powers.T @ powers / 9, powers.T @ (powers @ beta) / 9)
    assert usual.at_equal_speed(beta) == pytest.approx(0)
    brisk = replace(usual, hidden=usual.hidden + np.array([0.0, 0.7]))
    assert brisk.at_equal_speed(beta).mean(axis=0) == pytest.approx([0.0, 0.7])


def test_the_scale_of_a_fleet_is_that_of_all_its_seconds() -> None:
    three = vehicles([CALM, BRISK, BRISK])
    fleet = build_fleet(three, SETTINGS, "three")
    scale = fleet_scale(np.sum([scale_sums(client) for client in fleet.clients], axis=0), 3)
    # All trips are equally long, and all vehicles have as many to train with.
    rows = np.concatenate(
        [
            trip_features(trip, fleet.features, style_of_vehicle.name)
            for style_of_vehicle, client in zip(three, fleet.clients, strict=True)
            for trip in style_of_vehicle.trips
            if trip.name in client.trips["train"]
        ]
    )
    assert scale.center == pytest.approx(rows.mean(axis=0))
    assert scale.scale == pytest.approx(rows.std(axis=0))
    assert motion_features(fleet.features).tolist() == [True, True, False]


def test_one_clear_sentence_each() -> None:
    three = vehicles([CALM, BRISK, BRISK])
    with pytest.raises(DataError, match="3 vehicles make no two styles of at least 3"):
        looked_at(build_fleet(three, SETTINGS, "three"))
    six = vehicles([CALM, BRISK] * 3)
    with pytest.raises(SettingError, match="'speed' is not among the features"):
        looked_at(build_fleet(six, replace(SETTINGS, features="acceleration"), "six"))
    network = nn.Sequential(nn.Flatten(), nn.Linear(60, 3), nn.Tanh(), nn.Linear(3, 1))
    trained_federation = Federation(
        build_fleet(six, SETTINGS, "six"), network, training=Training(rounds=1)
    )
    with pytest.raises(SettingError, match="read off a hidden layer"):
        styles_of(trained_federation)


def test_the_example_reads_a_run_and_writes_its_clusters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_fleet(tmp_path / "fleet", vehicles([CALM, BRISK] * 3), "six")
    run = tmp_path / "run"
    tables = {
        "fleet": {"data": str(tmp_path / "fleet")},
        "data": {"window": 20, "stride": 10, "features": "speed, acceleration"},
        "training": {"rounds": 1},
        "baselines": {"enabled": False},
        "seeds": [1],
        "method": [{"name": "fedavg"}],
    }
    Run(from_tables(tables), out=run).execute()
    monkeypatch.setattr("sys.argv", ["driving_styles", str(run), "--max-clusters", "2"])
    main()
    styles = Styles.from_json(json.loads((run / "styles.json").read_text(encoding="utf-8")))
    printed = capsys.readouterr().out
    assert printed.startswith(styles.sentence) and printed.count("cluster ") >= styles.clusters
