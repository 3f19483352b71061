"""Rounds of a very large fleet on paper: numbers that can be worked out by hand."""

import numpy as np
import pytest

from benchmarks.traffic import (
    LargeFleet,
    Load,
    churn,
    round_end,
    simulate,
    simulate_methods,
)
from fedwatt.errors import SettingError
from fedwatt.federation import Availability
from fedwatt.federation.participation import first_available, participants

ALIKE = LargeFleet(
    vehicles=100,
    participation=0.1,
    steps=50,
    down_mbps=8.0,
    up_mbps=4.0,
    latency_s=0.25,
    steps_per_s=10.0,
    spread=0.0,
    enough=1.0,
)


def test_the_time_of_a_round_is_that_of_its_links_and_computers() -> None:
    # 2 MB down at 1 MB/s, 50 steps at 10 a second, 1 MB up at 0.5 MB/s, two latencies.
    found = simulate(ALIKE, Load(2_000_000, 1_000_000, 0.01), Availability(), rounds=3)
    assert found.seconds == pytest.approx([2 + 5 + 2 + 0.5] * 3, abs=1e-12)
    assert found.called.tolist() == found.replied.tolist() == [10] * 3
    assert found.down_bytes.tolist() == [2e7] * 3
    assert found.up_bytes.tolist() == [1e7] * 3
    assert found.server_s == pytest.approx([0.1] * 3, abs=1e-15)
    assert found.times.sum() == 30
    assert found.reached[-1] == np.count_nonzero(found.times)
    totals = found.summary()
    assert totals["round_s"] == pytest.approx(9.5)
    # 30 MB a round in 9.5 s.
    assert totals["gigabit_per_s"] == pytest.approx(0.24 / 9.5)
    assert totals["server_cores"] == pytest.approx(0.1 / 9.5)
    assert totals["megabytes_per_vehicle"] == pytest.approx(0.9)


def test_those_who_take_part_are_those_of_a_federation() -> None:
    there = churn(0.5, 0.1)
    found = simulate(ALIKE, Load(1, 1, 0.0), there, rounds=1, seed=7)
    available = first_available(7, 100, there)
    wanted = np.zeros(100, int)
    wanted[participants(7, 0, available, 0.1)] = 1
    assert found.times.tolist() == wanted.tolist()
    assert found.available.tolist() == [int(available.sum())]


def test_lost_replies_hold_a_round_up_to_its_deadline() -> None:
    lossy = Availability(reply_loss=1.0)
    found = simulate(ALIKE, Load(8, 8, 1.0), lossy, rounds=2)
    assert found.seconds.tolist() == [60.0, 60.0]
    assert found.replied.tolist() == [0, 0] and found.lost.tolist() == [10, 10]
    assert found.up_bytes.tolist() == [0.0, 0.0] and found.server_s.tolist() == [0.0, 0.0]


def test_what_comes_after_enough_replies_is_late() -> None:
    different = LargeFleet(vehicles=1000, participation=0.1, enough=0.75, deadline_s=1e9)
    found = simulate(different, Load(1000, 1000, 0.0), Availability(), rounds=4)
    assert found.replied.tolist() == [75] * 4 and found.late.tolist() == [25] * 4
    # Sent is sent, late or not.
    assert found.up_bytes.tolist() == [100_000.0] * 4


@pytest.mark.parametrize(
    ("enough", "end"), [(0.25, 1.0), (0.5, 2.0), (0.75, 3.0), (1.0, 60.0), (0.01, 1.0)]
)
def test_the_end_of_a_round(enough: float, end: float) -> None:
    assert round_end(np.array([3.0, 1.0, 2.0, 70.0]), 4, enough, 60.0) == end


def test_a_fleet_stays_as_large_as_it_was() -> None:
    found = simulate(
        LargeFleet(vehicles=200_000), Load(1, 1, 0.0), churn(0.2, 0.1, 0.05), rounds=30
    )
    # Binomial: the standard deviation of the share is 0.0009.
    assert np.abs(found.available / 200_000 - 0.2).max() < 0.005
    assert found.lost.sum() / found.called.sum() == pytest.approx(0.05, abs=0.01)


def test_methods_that_send_as_much_share_their_rounds() -> None:
    loads = {"a": Load(10, 20, 1.0), "b": Load(10, 20, 3.0), "c": Load(20, 20, 1.0)}
    seen = []
    found = simulate_methods(
        ALIKE, loads, Availability(), rounds=2, progress=lambda *a: seen.append(a)
    )
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert found["b"].seconds is found["a"].seconds
    assert found["b"].server_s.tolist() == [30.0, 30.0]
    assert found["c"].down_bytes.tolist() == [200.0, 200.0]
    assert found["c"].times.tolist() == found["a"].times.tolist()


@pytest.mark.parametrize(
    ("share", "leave", "message"), [(0.0, 0.1, r"in \(0, 1\]"), (0.9, 0.5, "faster than at once")]
)
def test_churn_that_cannot_be_is_refused(share: float, leave: float, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        churn(share, leave)
