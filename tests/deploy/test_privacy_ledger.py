"""What a vehicle has spent in its lifetime, from its own file."""

from math import inf
from pathlib import Path

import pytest

from fedwatt.deploy.privacy_ledger import PrivacyLedger, Spent, shown
from fedwatt.methods import get
from fedwatt.privacy import Budget

PRIVATE = get("fedavg@private", noise_multiplier=2.0)


def test_rounds_add_up_over_runs(tmp_path: Path) -> None:
    ledger = PrivacyLedger.of(tmp_path)
    assert ledger.epsilon(1e-5) == 0.0
    for round in (0, 4):  # not asked in between, which nobody else knows
        ledger.spend("one", "a", PRIVATE, 0.3, round)
    assert ledger.epsilon(1e-5) == Budget(2.0, 0.3, 1e-5).epsilon(5)
    # A server may know who trained, by how long it took.
    assert ledger.epsilon(1e-5, sampled=False) == Budget(2.0, 1.0, 1e-5).epsilon(5)
    ledger.spend("one", "a", PRIVATE, 0.3, 4)  # asked for once more
    ledger.spend("two", "a", PRIVATE, 0.3, 3)
    assert PrivacyLedger.of(tmp_path).epsilon(1e-5) == pytest.approx(
        Budget(2.0, 0.3, 1e-5).epsilon(5 + 1 + 4)
    )
    assert ledger.entries()["one a"] == Spent(2.0, 0.3, rounds=5, repeated=1, last=4)


def test_changing_terms_within_a_run_count_with_the_worst_of_them(tmp_path: Path) -> None:
    ledger = PrivacyLedger.of(tmp_path)
    for round, (noise, share) in enumerate([(9.0, 0.1), (2.0, 0.1), (9.0, 0.3)]):
        ledger.spend("one", "a", get("fedavg@private", noise_multiplier=noise), share, round)
    assert ledger.epsilon(1e-5) == Budget(2.0, 0.3, 1e-5).epsilon(3)


def test_sampling_counts_only_where_it_is_secret(tmp_path: Path) -> None:
    ledger = PrivacyLedger.of(tmp_path)
    ledger.spend("one", "a", get("fedavg@private", amplified=False), 0.3, 0)
    assert ledger.epsilon(1e-5) == Budget(1.0, 1.0, 1e-5).epsilon(1)


@pytest.mark.parametrize("left", ["", "[]", '{"trainings": {"a": {"z": 1}}}'])
def test_what_is_unknown_is_infinite(left: str, tmp_path: Path) -> None:
    (tmp_path / "privacy.json").write_text(left)
    assert PrivacyLedger.of(tmp_path).epsilon(1e-5) == inf


def test_a_training_without_noise_is_infinite(tmp_path: Path) -> None:
    ledger = PrivacyLedger.of(tmp_path)
    ledger.spend("one", "a", PRIVATE, 0.3, 0)
    ledger.spend("one", "b", get("fedavg"), 0.3, 0)
    assert shown(ledger.epsilon(1e-5)) == "∞"
