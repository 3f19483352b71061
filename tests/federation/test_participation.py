"""Available vehicles, participants, and the steps of each."""

import numpy as np
import pytest

from fedwatt.errors import SettingError
from fedwatt.federation import Availability, History, Training
from fedwatt.federation.participation import (
    device_speed,
    first_available,
    local_steps,
    lost_replies,
    next_available,
    participants,
)
from tests.federation.toys import line_client, line_federation


@pytest.mark.parametrize(
    ("vehicles", "participation", "count"),
    [(10, 0.3, 3), (10, 0.31, 4), (100, 0.07, 7), (3, 0.1, 1), (5, 1.0, 5), (0, 0.5, 0)],
)
def test_a_share_of_the_available_vehicles_takes_part(vehicles, participation, count) -> None:
    available = np.concatenate([np.ones(vehicles, dtype=bool), np.zeros(4, dtype=bool)])
    called = participants(1, 0, available, participation)
    assert len(called) == count
    assert sorted(set(called)) == called.tolist()
    assert all(k < vehicles for k in called)


def test_participants_depend_on_seed_and_round_alone() -> None:
    everyone = np.ones(50, dtype=bool)
    again = [participants(1, 3, everyone, 0.2).tolist() for _ in range(2)]
    assert again[0] == again[1]
    assert participants(2, 3, everyone, 0.2).tolist() != again[0]
    assert participants(1, 4, everyone, 0.2).tolist() != again[0]


def test_poisson_sampling_calls_each_vehicle_on_its_own() -> None:
    everyone = np.ones(4000, dtype=bool)
    called = participants(1, 0, everyone, 0.2, sampling="poisson")
    assert len(called) == pytest.approx(800, abs=100)  # four standard deviations of 25
    # Half the fleet being away changes nobody else's draw.
    half = everyone.copy()
    half[::2] = False
    assert participants(1, 0, half, 0.2, sampling="poisson").tolist() == [
        k for k in called if k % 2
    ]


def test_vehicles_leave_and_join() -> None:
    before = np.array([True, True, False, False])
    swap = Availability(p_leave=1.0, p_join=1.0)
    assert next_available(1, 1, before, swap).tolist() == [False, False, True, True]
    still = Availability()
    assert next_available(1, 1, before, still).tolist() == before.tolist()


def test_churn_settles_where_joining_and_leaving_balance() -> None:
    churn = Availability(p_leave=0.1, p_join=0.3)
    present = np.ones(4000, dtype=bool)
    for t in range(1, 60):
        present = next_available(7, t, present, churn)
    # p_join / (p_join + p_leave) = 0.75; four standard deviations of 4,000 coins are 0.027.
    assert present.mean() == pytest.approx(0.75, abs=0.03)


def test_every_round_of_churn_is_a_draw_of_its_own() -> None:
    # Drawn again with the numbers u of the first round, everybody would go and nobody come: whoever
    # is there has u < 0.5 and leaves, whoever is not has u ≥ 0.5 and stays away.
    history = churning(Availability(initially=0.5, p_leave=0.5, p_join=0.5))
    present = [row["available"] for row in history.rounds]
    assert present[0] == present[1]  # round 1 is that of A_0
    assert present == pytest.approx([50] * 6, abs=20)  # four deviations
    assert len(set(present[1:])) > 1


def test_churn_and_lost_replies_are_independent() -> None:
    # With one draw for both, whoever is there would lose its reply.
    history = churning(Availability(initially=0.5, reply_loss=0.5))
    for row in history.rounds[1:]:
        assert row["lost"] / row["participants"] == pytest.approx(0.5, abs=0.3)


def test_who_stays_may_lose_its_reply() -> None:
    # With one draw u for both, whoever stays has u ≥ 0.4 and would never lose its reply.
    later = churning(Availability(p_leave=0.4, reply_loss=0.4)).rounds[2:]
    called = sum(row["participants"] for row in later)
    assert called > 80
    # Four standard deviations of 80 coins are 0.22.
    assert sum(row["lost"] for row in later) / called == pytest.approx(0.4, abs=0.22)


def test_each_round_loses_other_replies() -> None:
    clients = churning(Availability(reply_loss=0.5)).clients
    arrived: dict[str, set[bool]] = {}
    for row in clients:
        arrived.setdefault(row["vehicle"], set()).add(row["replied"])
    # A vehicle has the same luck in all five rounds with probability 1/16.
    assert sum(len(luck) == 2 for luck in arrived.values()) == pytest.approx(94, abs=6)


def churning(availability: Availability) -> History:
    """Five rounds of a hundred vehicles, all of which are called."""
    still = {split: [(0.0, 0.0)] for split in ("train", "validation", "test")}
    clients = [line_client(f"car-{k}", **still) for k in range(100)]
    federation = line_federation(clients, availability=availability, training={"rounds": 5})
    return federation.train("fedavg").history


def test_a_fleet_can_start_half_empty() -> None:
    present = first_available(3, 4000, Availability(initially=0.5))
    assert present.mean() == pytest.approx(0.5, abs=0.04)


def test_replies_are_lost_at_the_given_rate() -> None:
    assert not lost_replies(1, 0, 1000, Availability()).any()
    assert lost_replies(1, 0, 1000, Availability(reply_loss=1.0)).all()
    some = lost_replies(1, 0, 4000, Availability(reply_loss=0.2))
    assert some.mean() == pytest.approx(0.2, abs=0.03)


def steps(windows: int, speed: float, *, steps: int = 0, **availability) -> int:
    training = Training(epochs=2, steps=steps, batch=64)
    return local_steps(windows, speed, training, Availability(**availability))


def test_local_work_of_a_vehicle() -> None:
    assert steps(130, 1.0) == 6  # two epochs of ⌈130/64⌉
    assert steps(130, 1.0, steps=4) == 4
    assert steps(130, 0.5) == 6  # slow, but nobody waits for it
    assert steps(130, 0.5, deadline=8) == 4
    assert steps(6400, 0.29, deadline=100) == 29
    assert steps(130, 1.0, deadline=8) == 6
    assert steps(130, 0.5, relative_deadline=1) == 3
    assert steps(130, 0.5, relative_deadline=1, deadline=4) == 2
    assert steps(130, 0.25, relative_deadline=1, stragglers="drop") == 0
    assert steps(130, 0.5, deadline=8, stragglers="drop") == 0
    assert steps(130, 1.0, deadline=8, stragglers="drop") == 6


def test_a_vehicle_keeps_its_device() -> None:
    classes = Availability(speeds=(1.0, 0.5, 0.25))
    drawn = {name: device_speed(1, name, classes) for name in map(str, range(60))}
    assert set(drawn.values()) == {1.0, 0.5, 0.25}
    assert drawn["7"] == device_speed(1, "7", classes)
    assert drawn != {name: device_speed(2, name, classes) for name in drawn}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Availability(p_leave=1.2), r"Availability\(p_leave=1.2\): p_leave must be"),
        (lambda: Availability(reply_loss=-0.1), r"reply_loss must be in \[0, 1\]"),
        (lambda: Availability(speeds=()), "speeds must be one or more"),
        (lambda: Availability(speeds=(1.0, 0.0)), "speeds must be one or more"),
        (lambda: Availability(initially=0.0), r"initially must be in \(0, 1\]"),
        (lambda: Availability(stragglers="wait"), "'partial' or 'drop'"),
        (lambda: Training(participation=0.0), r"Training\(participation=0.0\)"),
        (lambda: Training(rounds=0), "rounds must be at least 1"),
        (lambda: Training(learning_rate=float("inf")), "rate must be above 0 and finite"),
        (lambda: Training(batch=0), "batch must be at least 1 window"),
        (lambda: Training(schedule="linear"), "schedule must be 'constant' or 'inverse-sqrt'"),
        (lambda: Training(precision="half"), "'float32' or 'float64'"),
        (lambda: Training(loss="mae"), "loss must be 'mse' or 'huber'"),
    ],
)
def test_bad_settings_are_refused(build, message) -> None:
    with pytest.raises(SettingError, match=message):
        build()
