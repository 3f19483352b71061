"""The audit of ε finds nothing where ε is true, and finds what is not."""

import numpy as np
import pytest

from benchmarks.privacy_audit import (
    CERTAIN,
    Setting,
    audit,
    needing_replies,
    noise_in_shares,
    noise_of_server,
    refuted_up_to,
)


@pytest.mark.parametrize("one_round", [noise_of_server, noise_in_shares])
def test_no_violation_is_found(one_round) -> None:
    found = audit(one_round, Setting(rounds=2), trainings=150)
    # Half of the stated ε would take thousands of trainings to refute.
    assert found["refuted_up_to"] < found["epsilon"]


def test_rounds_that_need_replies_are_found_to_violate_it() -> None:
    # One vehicle decides about five replies: the noise is that of one.
    found = audit(needing_replies, CERTAIN, trainings=400, others=1.0)
    assert found["refuted_up_to"] > found["epsilon"]


def test_what_a_number_of_alarms_refutes() -> None:
    # 100 of 100 true and no false alarms, judged on 50 each: Clopper-Pearson gives 0.9289 and
    # 0.0711 at 95 %, and log((0.9289 - 0.01) / 0.0711) = 2.559.
    present, absent = np.full(100, 1.0), np.full(100, 0.0)
    assert refuted_up_to(present, absent, 0.01) == pytest.approx(2.559, abs=0.001)
    assert refuted_up_to(absent, absent, 0.01) == 0.0
    # 25 of 50 false alarms: at most 0.6447, so silence is log((1 - 0.6447 - 0.01) / 0.0711) = 1.580
    # in favour of none, which is more than alarms are in favour of the canary.
    often = np.arange(100) % 2.0
    assert refuted_up_to(present, often, 0.01) == pytest.approx(1.580, abs=0.002)


def test_a_true_epsilon_is_refuted_in_one_audit_of_twenty_at_most() -> None:
    # An alarm with probability e/(1 + e) or 1/(1 + e) has ε = 1 exactly; seeded.
    rng, rate = np.random.default_rng(1), np.e / (1 + np.e)

    def alarms(probability: float) -> np.ndarray:
        return (rng.random(400) < probability).astype(float)

    found = [refuted_up_to(alarms(rate), alarms(1 - rate), 0.0) for _ in range(60)]
    assert sum(epsilon > 1 for epsilon in found) <= 3
    assert np.median(found) > 0.4  # and most audits find something
