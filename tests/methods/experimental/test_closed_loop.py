"""The closed loop on a pull: its golden sequence, its safeguards, and what it is without gain."""

from math import exp, inf

import numpy as np
import pytest
import torch
from pytest import approx

from fedwatt.errors import SettingError
from fedwatt.federation import Federation, Training
from fedwatt.methods import get
from fedwatt.methods.experimental.closed_loop import TransferProximal
from fedwatt.models import MLP
from tests.federation.toys import FULL, random_fleet, toy_rounds, toy_states

LOOP = TransferProximal(
    pull_start=0.2, pull_min=1e-3, transfer_target=0.5, control_gain=0.5, control_keep=0.5
)
# Before round t: λ_t; after it: w_{t+1} and (f_t - f_{t+1}) / Σ p_k (F_k(w_t) - F_k(w_k)).
GOLDEN = [
    (0.2000000000, -0.3721500000, 0.7299655876),
    (0.1874167174, -0.8915962862, 0.5594043987),
    (0.1858993705, -1.2003217850, 0.3448675939),
    (0.1858993705, -1.3837550492, 0.1614740151),  # the dead band
    (0.1953001513, -1.4925777065, 0.0564964248),
    (0.2185585778, None, None),
]


def row_of(value: float) -> torch.Tensor:
    return torch.tensor([value], dtype=torch.float64)


def started(loop: TransferProximal) -> dict[str, torch.Tensor]:
    return {name: value.reshape(1) for name, value in loop.loop_state().items()}


def test_the_pull_follows_the_golden_sequence() -> None:
    state = started(LOOP)
    for pull, _, ratio in GOLDEN:
        assert LOOP.pull(state).item() == approx(pull, abs=1e-9)
        if ratio is not None:
            state = LOOP.updated(state, row_of(ratio), row_of(1.0), 5.0)


def test_the_toy_moves_as_the_pulls_say() -> None:
    at = {"weights": torch.tensor([[0.5]], dtype=torch.float64)}
    for pull, after, _ in GOLDEN[:-1]:
        (moved,) = toy_states(get("fedprox", mu=pull), FULL[:1], **at)
        assert moved[1].weights.item() == approx(after, abs=1e-9)
        at = {"weights": moved[1].weights}


def test_a_ratio_of_one_lets_the_pull_fall_to_its_least() -> None:
    state = started(LOOP)
    for _ in range(3):
        state = LOOP.updated(state, row_of(1.0), row_of(1.0), 5.0)
    assert LOOP.pull(state).item() == approx(0.2 * exp(-0.4 * 0.5) ** 3, rel=1e-12)
    for _ in range(40):
        state = LOOP.updated(state, row_of(1.0), row_of(1.0), 5.0)
    assert LOOP.pull(state).item() == approx(1e-3, rel=1e-12)


def test_nothing_moves_without_a_ratio_or_on_target() -> None:
    state = started(LOOP)
    for ratio in (torch.nan, 0.5, 0.42, torch.nan):
        state = LOOP.updated(state, row_of(ratio), row_of(1.0), 5.0)
        assert LOOP.pull(state).item() == 0.2


def test_a_step_is_bounded_and_so_is_the_pull() -> None:
    eager = TransferProximal(
        pull_start=0.2, transfer_target=1.0, control_gain=50.0, dead_band=0.0, control_keep=0.0
    )
    state = started(eager)
    pulls = []
    for _ in range(4):
        state = eager.updated(state, row_of(-1.0), row_of(1.0), 0.5)
        pulls.append(eager.pull(state).item())
    assert pulls == approx([0.3, 0.45, 0.5, 0.5], rel=1e-12)


def test_at_its_limit_for_ten_updates_it_is_saturated_until_the_error_turns() -> None:
    state = started(LOOP)
    state["log"] = torch.log(row_of(5.0) / 0.2)
    for _ in range(10):
        assert LOOP.condition(state).item() == 0.0
        state = LOOP.updated(state, row_of(0.0), row_of(1.0), 5.0)
    assert LOOP.condition(state).item() == 2.0
    # A higher limit is not followed: more pull has not helped.
    assert LOOP.pull(LOOP.updated(state, row_of(0.0), row_of(1.0), 9.0)).item() == approx(5.0)
    for _ in range(4):
        state = LOOP.updated(state, row_of(1.0), row_of(1.0), 5.0)
    assert LOOP.condition(state).item() == 0.0
    assert LOOP.pull(state).item() < 5.0


def test_a_loss_that_stays_high_resets_the_pull_and_makes_the_loop_pause() -> None:
    state = LOOP.updated(started(LOOP), row_of(-1.0), row_of(1.0), 5.0)
    assert LOOP.pull(state).item() > 0.2
    for _ in range(2):  # means of the loss: 5.5, 7.75
        state = LOOP.updated(state, row_of(-1.0), row_of(10.0), 5.0)
    assert LOOP.pull(state).item() > 0.2
    state = LOOP.updated(state, row_of(-1.0), row_of(10.0), 5.0)
    assert (LOOP.pull(state).item(), LOOP.condition(state).item()) == (0.2, 1.0)
    for _ in range(10):
        assert LOOP.pull(state).item() == 0.2
        state = LOOP.updated(state, row_of(-1.0), row_of(1.0), 5.0)
    assert LOOP.pull(LOOP.updated(state, row_of(-1.0), row_of(1.0), 5.0)).item() > 0.2


def federation(**training) -> Federation:
    settings = {"rounds": 6, "participation": 0.75, "batch": 16, "precision": "float64"} | training
    return Federation(
        random_fleet(), MLP(4, 8, (6, 5)), training=Training(**settings), device="cpu"
    )


@pytest.mark.parametrize("settings", [{"control_gain": 0.0}, {"pull_min": 0.3, "pull_max": 0.3}])
def test_a_loop_that_cannot_move_is_fedprox(settings: dict[str, float]) -> None:
    held = federation().train(get("ti-fedavg", pull_start=0.3, **settings)).state.weights
    assert torch.equal(held, federation().train(get("fedprox", mu=0.3)).state.weights)


def test_a_vehicle_gets_back_what_it_gained_if_it_is_alone() -> None:
    # One vehicle of the toy: w_{t+1} is its own w_k, so that q is 1 from its second turn on.
    schedule = ((0,), (0,), (0,))
    method = get("ti-fedavg", pull_start=0.2)
    pulls = [0.2, 0.2 * exp(-0.2), 0.2 * exp(-0.4)]
    result = toy_rounds(method, schedule)
    at = 0.5
    expected = []
    for mu in pulls:
        w = at
        for _ in range(2):
            w -= 0.1 * ((w - 1) + mu * (w - at))
        expected.append(at := w)
    assert result == approx(expected, abs=1e-12)


def test_the_records_hold_ratio_pull_and_what_the_loop_does() -> None:
    rows = federation(participation=1.0).train("ti-fedavg").history.clients
    first = rows[:4]
    later = rows[4:8]
    assert all(np.isnan(row["transfer"]) and row["pull"] == 0.1 for row in first)
    assert all(-1 <= row["transfer"] <= 1 and row["loop"] == 0.0 for row in later)


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({"pull_start": 0.0}, "pull_start"),
        ({"pull_min": 0.2}, "pull_min"),
        ({"pull_max": 0.01}, "pull_max"),
        ({"transfer_target": 2.0}, "transfer_target"),
        ({"control_gain": -1.0}, "control_gain"),
        ({"control_keep": 1.0}, "control_keep"),
        ({"dead_band": -inf}, "dead_band"),
    ],
)
def test_what_is_refused(settings: dict[str, float], wrong: str) -> None:
    with pytest.raises(SettingError, match=wrong):
        get("ti-fedavg", **settings)
