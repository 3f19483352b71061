"""Attacks at small size: they work where nothing protects, and not where the policy does."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from typer.testing import CliRunner

from fedwatt.audit import LEVELS, Card, attack_fleet
from fedwatt.audit.victims import GUESS, MASKS, NOISE, PLAIN, POLICY, explained
from fedwatt.cli import app
from fedwatt.data import DataSettings, Fleet, Vehicle, synthetic_fleet, synthetic_vehicles


@pytest.fixture(scope="module")
def card() -> Card:
    settings = DataSettings(window=10, stride=20)
    fleet = synthetic_fleet(6, 0, settings)
    telemetry = list(synthetic_vehicles(6, 0))
    return attack_fleet(fleet, telemetry, inputs=12, windows=10, rounds=1, victims=1)


def test_windows_are_read_without_a_policy_and_not_with_it(card: Card) -> None:
    read = card.attacks["crafted evaluation"]
    assert read[PLAIN] > 0.999 and read[MASKS] > 0.99
    assert read[POLICY] < 0.2 and read[NOISE] < 0.2


def test_a_gradient_of_one_window_is_that_window(card: Card) -> None:
    read = card.attacks["inversion of one window's Δ"]
    assert read[PLAIN] > 0.99 and read[MASKS] > 0.99
    assert read[NOISE] < 0.6 < read[MASKS]


def test_a_round_asked_twice_gives_one_vehicle_away_unless_the_policy_refuses(card: Card) -> None:
    missed = card.attacks["differencing"]
    assert missed[MASKS] < 1e-6 and missed[POLICY] > 0.1 and missed[NOISE] > missed[POLICY]


def test_limits_bound_what_liars_do(card: Card) -> None:
    honest = card.poisoning["Δ = 1e30"]["honest"]
    for lie in ("n_k = 4e6, Δ = 1", "Δ = 1e30"):
        own = card.poisoning[lie]
        assert own["no limits"] > 20 * honest
        assert own[PLAIN] < 3 * honest and own[MASKS] < 3 * honest


def test_every_attack_has_every_level_and_a_guess(card: Card) -> None:
    for own in card.attacks.values():
        assert {*LEVELS, GUESS} <= own.keys()
    assert json.loads(json.dumps(card.table()))["vehicles"] == 6
    assert explained(np.full(3, np.nan), np.ones(3)) == 0.0


def test_a_run_is_audited_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        "[fleet]\nvehicles = 3\n[data]\nwindow = 10\nstride = 50\nevaluation_stride = 50\n"
    )
    done = CliRunner().invoke(app, ["audit", str(tmp_path), "--small"], catch_exceptions=False)
    assert done.exit_code == 0 and "crafted" in done.output
    assert "attacks" in json.loads((tmp_path / "audit.json").read_text())


def test_an_audit_has_the_windows_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, card: Card
) -> None:
    (tmp_path / "config.toml").write_text(
        "[fleet]\nvehicles = 4\ntrips = 5\nseed = 3\n"
        '[data]\nfeatures = "speed, ascent"\nwindow = 10\nstride = 50\nalign = true\n'
    )
    seen: dict[str, Any] = {}

    def attack(fleet: Fleet, vehicles: list[Vehicle], **size: object) -> Card:
        seen.update(fleet=fleet, vehicles=[vehicle.name for vehicle in vehicles])
        return card

    monkeypatch.setattr("fedwatt.audit.attack_fleet", attack)
    CliRunner().invoke(app, ["audit", str(tmp_path), "--vehicles", "3"], catch_exceptions=False)
    settings = DataSettings(features="speed", window=10, stride=50, align=True)
    expected = synthetic_fleet(3, 3, settings, trips=5)
    assert seen["fleet"].data_hash() == expected.data_hash()
    assert seen["vehicles"] == ["car-001", "car-002", "car-003"]
