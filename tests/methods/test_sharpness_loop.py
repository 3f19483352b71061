"""Sharpness in closed loop: what it is at its limits, and the loop by other code."""

from itertools import groupby
from math import exp, log

import numpy as np
import pytest
import torch
from pytest import approx

from fedwatt.errors import SettingError
from fedwatt.methods import get
from tests.methods.test_transfer import federation

NAME = "si-fedavg-server"


@pytest.mark.parametrize("settings", [{"control_gain": 0.0}, {"pull_min": 0.3, "pull_max": 0.3}])
def test_a_loop_that_cannot_move_is_si_fedavg(settings: dict[str, float]) -> None:
    held = federation().train(get(NAME, pull_start=0.3, **settings)).state.weights
    assert torch.equal(held, federation().train(get("si-fedavg", lam=0.3)).state.weights)


def test_where_every_loss_counts_as_sharp_it_is_ti_fedavg_server() -> None:
    # At twice the length of the weights every loss is higher.
    found = federation(participation=1.0).train(get(NAME, tau_j=1e-300, radius=2.0))
    assert all(row["sharpness"] > 0 for row in found.history.clients)
    other = federation(participation=1.0).train("ti-fedavg-server")
    assert torch.equal(found.state.weights, other.state.weights)
    assert not torch.equal(
        found.state.weights, federation(participation=1.0).train(NAME).state.weights
    )


def test_a_pull_above_half_over_the_rate_is_cut_unlike_that_of_si_fedavg() -> None:
    # At the rate 0.05/√t the limit in round 1 is 10.
    cut = federation().train(get(NAME, pull_start=30.0, pull_max=30.0, control_gain=0.0))
    assert not torch.equal(
        cut.state.weights, federation().train(get("si-fedavg", lam=30.0)).state.weights
    )


def test_a_vehicle_without_sharpness_is_not_pulled_whatever_tau() -> None:
    rule = get(NAME, tau_j=1e-300).local[0]
    index = torch.tensor([0.0, 1e-3], dtype=torch.float64)
    assert rule.strength(2.0, index).tolist() == [0.0, 2.0]


def test_pulls_are_what_a_loop_of_plain_numbers_makes_of_the_recorded_ratios() -> None:
    rounds = 12
    rows = federation(rounds=rounds, participation=1.0).train(NAME).history.clients
    lam = 0.1
    m = 0.0
    c = 0.0
    seen = []
    for _, group in groupby(rows, key=lambda row: row["round"]):
        own = list(group)
        for row in own:
            response = row["sharpness"] / (row["sharpness"] + 0.03)
            assert row["pull"] == approx(min(lam, 0.5 / (0.05 / row["round"] ** 0.5)) * response)
        seen.append(lam)
        ratios = np.array([row["transfer"] for row in own])
        if np.isnan(ratios).any():  # all four vehicles must have one
            continue
        windows = np.array([row["windows"] for row in own])
        m, c = 0.8 * m + 0.2 * float(windows @ ratios / windows.sum()), 0.8 * c + 0.2
        error = 0.5 - m / c
        error = 0.0 if abs(error) < 0.1 else error - 0.1 * error / abs(error)
        step = max(-log(1.5), min(log(1.5), 0.5 * error))
        lam = min(max(lam * exp(step), 1e-3), 10.0)
    assert len(seen) == rounds and len(set(seen)) > rounds // 2  # it has moved


def test_indices_stay_in_the_vehicles() -> None:
    assert get(NAME).upload_names == ["ratio", "has_ratio", "loss_before"]


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({"probe_schedule": "triggered"}, "'age' or 'global'"),
        ({"tau_j": 0.0}, "tau_j"),
        ({"transfer_batch": 0}, "transfer_batch"),
        ({"pull_start": 0.0}, "pull_start"),
    ],
)
def test_what_is_refused(settings: dict[str, float], wrong: str) -> None:
    with pytest.raises(SettingError, match=wrong):
        get(NAME, **settings)
