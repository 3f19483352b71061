"""Attacks at small size: they work where nothing protects, and not where the policy does."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

from typer.testing import CliRunner

from fedwatt.audit import LEVELS, Card, attack_fleet
from fedwatt.audit.card import MEASURES, SET
from fedwatt.audit.hidden_sums import differenced
from fedwatt.audit.home import CELL_DEGREES, home_position
from fedwatt.audit.levels import CURIOUS, GUESS, MASKS, NOISE, PLAIN, POLICY
from fedwatt.audit.victims import explained
from fedwatt.cli import app
from fedwatt.deploy.guard import Guard
from fedwatt.deploy.ledger import Ledger
from fedwatt.deploy.policy import Policy, Refusal
from fedwatt.deploy.purpose import Purpose
from fedwatt.methods import get
from fedwatt.runs.config import from_tables
from fedwatt.synthetic import synthetic_fleet, synthetic_vehicles
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.windows import DataSettings, Fleet


@pytest.fixture(scope="module")
def card() -> Card:
    settings = DataSettings(window=10, stride=20)
    fleet = synthetic_fleet(6, 0, settings)
    telemetry = list(synthetic_vehicles(6, 0))
    return attack_fleet(fleet, telemetry, inputs=12, windows=10, rounds=1, victims=1)


def test_windows_are_read_without_a_policy_and_not_with_it(card: Card) -> None:
    read = card.attacks["crafted evaluation"]
    assert read[PLAIN] > 0.999 and read[MASKS] > 0.99
    assert read[POLICY] < 0.2 and read[NOISE] == read[POLICY]  # error sums carry no noise


def test_a_gradient_of_one_window_is_that_window_unless_vehicles_hide_it(card: Card) -> None:
    read = card.attacks["inversion of one window's Δ"]
    # The policy refuses a Δ of one window; two of its fewest and one more would differ by one.
    assert read[PLAIN] > 0.99 and read[MASKS] > 0.99
    assert read[NOISE] < 0.2 and read[POLICY] < 0.2 and read[CURIOUS] < 0.6


def test_one_sum_is_about_one_window_only_by_a_model_that_no_round_made(card: Card) -> None:
    read = card.attacks["extreme window by a crafted model"]
    assert read[PLAIN] > 0.99 and read[MASKS] > 0.99
    assert read[NOISE] < 0.2 and read[POLICY] < read[GUESS] < 0.9


def test_a_day_of_differences_says_little_more_than_the_fleets_mean(card: Card) -> None:
    missed = card.attacks["differencing"]
    assert missed[PLAIN] == 0 and missed[MASKS] < 1e-6
    assert 0.05 < missed[CURIOUS] < 1 < missed[NOISE]  # in between, the fleet's mean
    assert missed[POLICY] > 0.8 * missed[CURIOUS]


def test_what_differences_of_hidden_sums_say_by_hand() -> None:
    # R vehicles that are alike but for one: its own part, 0.5, drowns in one pair of sums, whose
    # noise is about 4 √(2 · 10) = 18 lengths, and comes out of 100,000 of them, 0.06 lengths.
    rng = np.random.default_rng(1)
    deltas = torch.zeros(10, 400)
    deltas[:, 0], deltas[3, 1] = 1.0, 0.5
    off = {
        pairs: float((differenced(deltas, 3, pairs, rng) - deltas[3]).norm())
        for pairs in (1, 100_000)
    }
    assert off[100_000] < 0.1 < 0.4 < off[1]


def test_the_policy_refuses_what_the_card_says_it_refuses(tmp_path: Path) -> None:
    """The attacks stand for messages; what is sent there passes the guard or does not, as here."""
    guard, config = Guard(Policy(), Ledger(tmp_path)), from_tables({"training": {"batch": 1}})
    with pytest.raises(Refusal) as refusal:
        guard.training(config, get("fedavg"), 1, 1000, 1000)
    assert refusal.value.rule == "few_trained"
    few = Policy().fewest_trained
    for batch in (few, few + 1):
        guard.training(from_tables({"training": {"batch": batch}}), get("fedavg"), 1, 1000, 1000)
    once, other = (
        Purpose("secure-train", run, "fedavg", 0, model, "", "")
        for run, model in (("run", "a"), ("another", "b"))
    )
    guard.answer(once, masked=True)
    with pytest.raises(Refusal):
        guard.answer(once, masked=True)
    guard.answer(other, masked=True)  # the same under another name: what hiding is for
    assert guard.hiding(get("fedavg")) == Policy().hiding > 0
    assert guard.hiding(get("fedavg@private")) == 0
    # Nobody knows how a crafted model came about, so no sum over it is unmasked.
    with pytest.raises(Refusal) as refusal:
        guard.revealing(once, 0)
    assert refusal.value.rule == "followed"


def test_a_curious_server_knows_the_fleet_and_a_lying_one_the_home(card: Card) -> None:
    km = card.attacks["home position"]
    assert km[PLAIN] == km[MASKS] == km[POLICY] == km[NOISE] < 0.8 * km[CURIOUS]
    assert km[PLAIN] < km[GUESS]


def track(*cells: tuple[int, int]) -> Vehicle:
    """A vehicle with one trip through these cells of 0.001°."""
    at = (np.array(cells) + 0.5) * CELL_DEGREES
    channels = {"latitude_deg": at[:, 0], "longitude_deg": at[:, 1]}
    trip = Trip("1", channels | {"speed_mps": np.ones(len(cells))})
    return Vehicle("car", (trip,), labels="none")


def test_home_positions_by_hand() -> None:
    # Homes at (0, 0), (0, 1) and (0, 12); the second is where two of them drive. A cell is 111.2 m.
    fleet = [track((0, 0), (0, 1)), track((0, 1), (0, 1)), track((0, 12), (0, 10), (0, 11))]
    found = home_position(fleet)
    assert found[PLAIN] == pytest.approx(0.5 * 0.1112)  # 0.5, 0 and 1 cells off
    assert found[MASKS] == found[PLAIN]
    assert found[CURIOUS] == pytest.approx(1 * 0.1112)  # (0, 1): 1, 0 and 11 cells off
    assert found[GUESS] == pytest.approx(9 * 0.1112)  # the middle (0, 10): 10, 9 and 2 cells off


def test_limits_bound_what_liars_do(card: Card) -> None:
    honest = card.poisoning["Δ = 1e30"]["honest"]
    for lie in ("n_k = 4e6, Δ = 1", "Δ = 1e30"):
        own = card.poisoning[lie]
        assert own["no limits"] > 20 * honest
        assert own[PLAIN] < 3 * honest and own[MASKS] < 3 * honest


def test_every_attack_has_every_level_and_a_guess(card: Card) -> None:
    assert card.attacks.keys() == MEASURES.keys() >= SET.keys()
    for own in card.attacks.values():
        assert own.keys() == {*LEVELS, GUESS}
    table = json.loads(json.dumps(card.table()))
    assert (table["vehicles"], table["victims"]) == (6, 1)


def test_a_share_recovered_by_hand() -> None:
    assert explained(np.array([1.0, 1.0]), np.array([1.0, 2.0])) == pytest.approx(1 - 1 / 5)
    assert explained(np.array([9.0, 9.0]), np.ones(2)) == 0.0  # worse than a guess is a guess
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
