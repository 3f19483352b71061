"""Triggered probing: its golden sequence, and what it is without triggers."""

from math import inf

import pytest
import torch
from pytest import approx

from fedwatt.errors import SettingError
from fedwatt.federation import Federation, Training
from fedwatt.methods import get
from fedwatt.methods.trigger import REASONS, Trigger
from fedwatt.models import MLP
from tests.federation.toys import random_fleet

# Round, drift, path, over the typical drift → why it probed, bank and alert afterwards.
GOLDEN = [
    (0, 0.0, 0.00, 0.0, "first", 0.2, False),
    (1, 1.0, 0.10, 1.0, "", 0.4, False),
    (3, 1.2, 0.18, 1.1, "", 0.6, False),
    (6, 1.6, 0.22, 1.2, "", 0.8, False),  # drift, without credit
    (9, 1.5, 0.30, 2.1, "drift", 0.0, True),
    (12, 1.4, 0.40, 2.4, "", 0.2, True),
    (15, 1.5, 0.44, 1.6, "", 0.4, True),
    (18, 1.5, 0.46, 1.2, "", 0.6, False),
    (21, 1.5, 0.47, 2.2, "", 0.8, False),  # outlier, without credit
    (24, 1.5, 0.48, 2.3, "outlier", 0.0, True),
    (27, 1.5, 0.49, 2.3, "", 0.2, True),
    (52, 1.5, 0.60, 1.0, "age", 0.0, False),
]


def test_the_golden_sequence() -> None:
    trigger = Trigger()
    last = torch.tensor([-1])
    state = {name: value.reshape(1) for name, value in trigger.state().items()}
    for t, drift, path, odd, why, bank, alert in GOLDEN:
        signs = tuple(torch.tensor([value]).double() for value in (drift, path, odd))
        state, reason = trigger.decided(state, last, t, signs)
        assert (REASONS[reason.item()], bool(state["alert"])) == (why, alert), t
        assert state["bank"].item() == approx(bank, abs=1e-12)
        last = last.masked_fill(reason > 0, t)


def test_without_thresholds_it_is_the_age_rule_and_without_limits_every_turn() -> None:
    never = Trigger(oldest=5, drift=inf, path=inf, high=inf)
    always = Trigger(youngest=1, path=0.0, credit=inf, cap=inf)
    for trigger, expected in ((never, [0, 5, 10]), (always, list(range(12)))):
        last = torch.tensor([-1])
        probed = []
        state = {name: value.reshape(1) for name, value in trigger.state().items()}
        for t in range(12):
            signs = tuple(torch.tensor([v]).double() for v in (1.0 + t, 0.3 * t, 5.0))
            state, reason = trigger.decided(state, last, t, signs)
            probed += [t] if reason.item() else []
            last = last.masked_fill(reason > 0, t)
        assert probed == expected


def federation(rounds: int = 8) -> Federation:
    training = Training(rounds=rounds, participation=0.75, batch=16, precision="float64")
    return Federation(random_fleet(), MLP(4, 8, (6, 5)), training=training, device="cpu")


def test_vehicles_probe_for_reasons_of_their_own() -> None:
    method = get("si-fedavg@path", probe_schedule="triggered", probe_every=25)
    rows = federation(20).train(method).history.clients
    reasons = {row["probe_reason"] for row in rows}
    assert reasons >= {0.0, 1.0} and reasons & {3.0, 4.0, 5.0}
    assert all(row["probed"] == (row["probe_reason"] > 0) for row in rows)
    first = {row["vehicle"]: row["probe_reason"] for row in reversed(rows)}
    assert set(first.values()) == {1.0}


@pytest.mark.parametrize("name", ["si-fedavg", "ri-fedavg"])
def test_who_probes_changes_nothing_without_a_pull(name: str) -> None:
    held = federation().train(get(f"{name}@path", probe_schedule="triggered", lam=0.0))
    assert torch.equal(held.state.weights, federation().train("fedavg").state.weights)


def test_the_server_that_tells_how_far_the_model_came_is_needed() -> None:
    with pytest.raises(SettingError, match="PathAverage"):
        get("si-fedavg", probe_schedule="triggered")


def test_the_path_is_the_relative_way_of_the_model() -> None:
    method = get("si-fedavg@path", probe_schedule="triggered")
    fed = federation()
    state, _ = fed.start(method)
    way = 0.0
    for _ in range(3):
        before = state.weights[0]
        state, _ = fed.advance(method, state)
        way += float((state.weights[0] - before).norm() / before.norm())
    assert state.server["path"].item() == approx(way, rel=1e-12)
