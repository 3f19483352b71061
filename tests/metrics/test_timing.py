"""A clock that only moves when told makes every duration exact."""

from math import isnan

import pytest
from pytest import approx

from fedwatt.metrics import (
    Stopwatch,
    amortised_diagnostics_fraction,
    diagnostics_fraction,
    rounds,
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(rounds, "perf_counter", clock)
    return clock


def test_inner_section_is_not_counted_twice(clock):
    watch = Stopwatch()
    with watch.section("training"):
        clock.now += 1
        with watch.section("preconditioner"):
            clock.now += 10
        clock.now += 2
    clock.now += 50
    with watch.section("training"):
        clock.now += 4
    assert watch.seconds == {"training": 7.0, "preconditioner": 10.0}


def test_section_inside_its_own_name(clock):
    watch = Stopwatch()
    with watch.section("probe"):
        clock.now += 1
        with watch.section("probe"):
            clock.now += 1
    assert watch.seconds == {"probe": 2.0}


def test_failure_still_closes_the_section(clock):
    watch = Stopwatch()
    with watch.section("training"):
        with pytest.raises(ZeroDivisionError), watch.section("probe"):
            clock.now += 3
            _ = 1 / 0
        clock.now += 1
    assert watch.seconds == {"probe": 3.0, "training": 1.0}


def test_the_clock_is_read_when_pending_work_is_done(clock):
    def wait():
        clock.now += pending.pop() if pending else 0

    pending = []
    watch = Stopwatch(sync=wait)
    with watch.section("training"):
        pending.append(3)  # told to the GPU inside the section, done later
    with watch.section("evaluation"), watch.section("evaluation"):
        pending.append(5)
    assert watch.seconds == {"training": 3.0, "evaluation": 5.0}


def test_diagnostics_of_one_round():
    seconds = {"training": 5.0, "preconditioner": 1.0, "probe": 2.0, "spectral": 1.0}
    seconds |= {"aggregation": 1.0, "evaluation": 90.0}
    # 3 of the 10 seconds that serve the fleet.
    assert diagnostics_fraction(seconds) == approx(0.3)


def test_amortised_over_a_probe_every_second_round():
    probed = {"training": 1.0, "probe": 3.0}
    plain = {"training": 1.0}
    assert diagnostics_fraction(probed) == approx(0.75)
    # 3 of 5 seconds; the mean of the two fractions would be 0.375.
    assert amortised_diagnostics_fraction([probed, plain]) == approx(0.6)


def test_no_time_is_undefined():
    assert isnan(diagnostics_fraction({}))
    assert isnan(amortised_diagnostics_fraction([]))
