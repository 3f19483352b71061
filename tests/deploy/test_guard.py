"""What the guard on board lets pass, rule by rule, with numbers worked out by hand."""

from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedwatt.deploy.guard import Guard
from fedwatt.deploy.ledger import Ledger
from fedwatt.deploy.policy import Policy, Refusal
from fedwatt.deploy.purpose import Purpose
from fedwatt.methods import get
from fedwatt.privacy.secure_settings import Terms
from fedwatt.runs.config import from_tables

CONFIG = from_tables({"training": {"batch": 64}})
TERMS = Terms(run="run", number=1, called=4, threshold=3, length=1000, bits=48)


def guard(folder: Path, **rules: object) -> Guard:
    return Guard(replace(Policy(), **rules), Ledger(folder, lambda: "2026-01-01"))


def rule_of(question: Callable[[], None]) -> str:
    """The rule that a question breaks; empty if it is let pass."""
    try:
        question()
    except Refusal as refusal:
        return refusal.rule
    return ""


PRIVATE = {"training": {"sampling": "poisson"}, "method": [{"name": "fedavg@private"}]}
HILLY = {
    "data": {"features": "base, terrain"},
    "terrain": {"source": "learn", "minimum_vehicles": 3, "area": [42.2, 42.3, -83.8, -83.7]},
}


def _cells(cell_m: float) -> dict[str, object]:
    return HILLY | {"terrain": HILLY["terrain"] | {"cell_m": cell_m}}


ROUTED = {"terrain": HILLY["terrain"], "deploy": {"routes": True}}


@pytest.mark.parametrize(
    ("asked_for", "rules", "rule"),
    [
        ({}, {}, ""),
        ({"secure": {"enabled": False}}, {}, "masks"),
        ({"secure": {"enabled": False}}, {"masks": False}, ""),
        ({"data": {"window": 1}}, {}, "data"),
        ({"data": {"stride": 50}}, {}, "data"),
        ({"data": {"evaluation_stride": 500}}, {}, "data"),
        ({"data": {"split": [0.9, 0.05, 0.05]}}, {}, "data"),
        ({"data": {"split_seed": 7}}, {}, "data"),
        ({"training": {"steps": 1, "batch": 63}}, {}, "few_trained"),
        ({"training": {"steps": 1, "batch": 64}}, {}, ""),
        (HILLY, {}, ""),
        (HILLY, {"hills": False}, "hills"),
        (HILLY, {"hills_vehicles": 4}, "hills"),
        (_cells(79.0), {}, "smallest_cell"),
        (_cells(160.0), {}, ""),
        (_cells(20.0), {"smallest_cell": 20.0}, ""),
        (_cells(20.0), {"smallest_cell": 0.0}, ""),
        # Routes are asked about in sums of their own, which a vehicle may stay out of.
        (ROUTED, {}, ""),
        (ROUTED, {"routes": False}, ""),
        (ROUTED, {"hills_vehicles": 4}, "hills"),
        ({}, {"methods": ("scaffold",)}, "methods"),
        ({}, {"methods": ("fedavg", "fo-ri-fedavg")}, ""),
        ({}, {"noise": 1.0}, "noise"),
        ({"method": [{"name": "scaffold"}]}, {}, "followed"),
        ({"method": [{"name": "scaffold"}]}, {"followed": 0}, ""),
        ({"method": [{"name": "fedprox"}]}, {}, ""),
        # Words so coarse that another model would pass for the one that a sum made.
        ({"secure": {"enabled": True, "bits": 32}}, {}, "followed"),
        ({"secure": {"enabled": True, "delta_limit": 17.0}}, {}, "followed"),
        ({"secure": {"enabled": True, "windows_limit": 200_001}}, {}, "followed"),
        ({"secure": {"enabled": True, "bits": 64}}, {}, ""),
        ({"secure": {"enabled": True, "bits": 32}}, {"followed": 0}, ""),
        (PRIVATE, {"noise": 1.0}, ""),
        (PRIVATE, {"noise": 1.01}, "noise"),
        ({}, {"lifetime_epsilon": 8.0}, "lifetime_epsilon"),
        (PRIVATE, {"lifetime_epsilon": 8.0}, ""),
    ],
)
def test_a_run_is_on_the_policys_terms_or_refused(
    asked_for: dict[str, object], rules: dict[str, object], rule: str, tmp_path: Path
) -> None:
    config = from_tables({"secure": {"enabled": True}} | asked_for)
    assert rule_of(lambda: guard(tmp_path, **rules).configuration(config)) == rule


@pytest.mark.parametrize("kind", ["secure-terrain", "terrain-field", "secure-routes"])
def test_places_are_not_told_in_a_run_that_says_it_learns_none(kind: str, tmp_path: Path) -> None:
    # Without features of climb and without routes nothing in the settings asks for hills.
    level = from_tables({"secure": {"enabled": True}, "terrain": HILLY["terrain"]})
    for rules in ({"hills": False}, {"hills_vehicles": 4}):
        own = guard(tmp_path, **rules)
        assert rule_of(lambda g=own: g.configuration(level, kind)) == "hills"
        assert rule_of(lambda g=own: g.configuration(level, "secure-train")) == ""
    assert rule_of(lambda: guard(tmp_path).configuration(level, kind)) == ""


def test_places_are_counted_on_one_grid_a_day(tmp_path: Path) -> None:
    # Nodes 80 m and 81 m apart cut the ground into pieces that are smaller than either.
    own = guard(tmp_path)
    assert rule_of(lambda: own.grid(80.0)) == rule_of(lambda: own.grid(80.0)) == ""
    assert rule_of(lambda: own.grid(81.0)) == "smallest_cell"
    tomorrow = Guard(own.policy, Ledger(tmp_path, lambda: "2026-01-02"))
    assert rule_of(lambda: tomorrow.grid(81.0)) == ""
    assert rule_of(lambda: guard(tmp_path, smallest_cell=0.0).grid(20.0)) == ""


def test_what_is_refused_today_is_not_used_up(tmp_path: Path) -> None:
    day = ["2026-01-01"]
    own = Guard(replace(Policy(), set_changes_a_day=0), Ledger(tmp_path, lambda: day[0]))
    first, second, third = (Purpose("secure-terrain", "run", "", 0, "", "", q) for q in "123")

    def asked(purpose: Purpose, cell_m: float, names: str = "abc") -> str:
        return rule_of(lambda: own.adds(purpose, tuple(names), cell_m=cell_m))

    assert [asked(first, 100.0), asked(second, 80.0)] == ["", "smallest_cell"]
    assert own.ledger.answers_today() == 1
    day[0] = "2026-01-02"
    # Refused for its vehicles, so the grid is not the day's, either.
    assert asked(third, 100.0, "abd") == "set_changes_a_day"
    assert [asked(second, 80.0), asked(second, 80.0)] == ["", "answered"]
    own = Guard(own.policy, Ledger(tmp_path, lambda: day[0]))  # as it is on the disk
    assert own.ledger.answers_today() == 1
    assert asked(third, 81.0) == "smallest_cell"


def test_the_same_vehicles_again_are_not_written_down_again(tmp_path: Path) -> None:
    own = guard(tmp_path)
    own.joins("secure-strata", tuple("abc"))
    own.ledger.path.unlink()
    own.joins("secure-strata", tuple("cba"))
    assert not own.ledger.path.exists()
    own.joins("secure-strata", tuple("abd"))
    assert own.ledger.path.exists()


@pytest.mark.parametrize("kind", ["secure-routes", "driving-field"])
def test_a_vehicle_may_keep_how_it_drives_to_itself(kind: str, tmp_path: Path) -> None:
    shy = guard(tmp_path, routes=False)
    assert rule_of(lambda: shy.kind(kind)) == "routes"
    assert not rule_of(lambda: shy.kind("secure-terrain"))
    assert not rule_of(lambda: guard(tmp_path).kind(kind))


@pytest.mark.parametrize(
    ("steps", "windows", "rule"),
    [
        (2, 1000, ""),  # 128 windows
        (1, 1000, "few_trained"),  # 64
        (2, 100, ""),  # all of them, 100
        (2, 99, "few_trained"),
        (0, 1000, ""),  # no step, no Δ
    ],
)
def test_a_displacement_is_of_windows_enough(
    steps: int, windows: int, rule: str, tmp_path: Path
) -> None:
    own = guard(tmp_path, fewest_trained=100)
    found = rule_of(lambda: own.training(CONFIG, get("fedavg"), steps, windows, 1000))
    assert found == rule


def test_the_default_batch_passes_the_default_policy(tmp_path: Path) -> None:
    default = from_tables({})
    guard(tmp_path).training(default, get("fo-ri-fedavg"), 1, default.training.batch, 27_061)


def test_judging_is_work_too(tmp_path: Path) -> None:
    # 2 operations a weight and window, a billion a second: 2 · 1,000 · 500,000 is one second.
    own = guard(tmp_path, seconds=1.0)
    assert rule_of(lambda: own.judging(CONFIG, 1000, 500_000)) == ""
    assert rule_of(lambda: own.judging(CONFIG, 1000, 500_001)) == "work"
    recurrent = from_tables({"model": {"name": "gru"}})  # its weights are used 60 times a window
    assert rule_of(lambda: own.judging(recurrent, 1000, 10_000)) == "work"


@pytest.mark.parametrize(("megabytes", "rule"), [(0.006, ""), (0.005999, "megabytes")])
def test_an_answer_is_as_small_as_a_question(megabytes: float, rule: str, tmp_path: Path) -> None:
    own = guard(tmp_path, megabytes=megabytes)
    assert rule_of(lambda: own.terms(TERMS)) == rule  # 1,000 words of 6 bytes


def summed(own: Guard, kind: str, vehicles: str) -> str:
    """The rule that a sum of this kind over these vehicles breaks, when it is to be unmasked."""
    purpose = Purpose(f"secure-{kind}", "run", "", 0, "", "", "").text
    return rule_of(lambda: own.agreed(replace(TERMS, purpose=purpose), tuple(vehicles)))


def test_all_that_judges_a_model_is_one_group(tmp_path: Path) -> None:
    # By turns, with the victim "d" and without it: each pair of sums would be a difference.
    own = guard(tmp_path, set_changes_a_day=1)
    assert summed(own, "evaluate", "abcd") == ""
    assert summed(own, "strata", "abcd") == ""
    assert summed(own, "strata", "abc") == ""  # the one change
    assert summed(own, "evaluate", "abcd") == "set_changes_a_day"
    assert summed(own, "personalise", "abcd") == "set_changes_a_day"
    assert summed(own, "evaluate", "abc") == ""


def test_changes_are_counted_before_anything_is_added(tmp_path: Path) -> None:
    # The server need not ask this vehicle to agree: the others unmask the sum without it.
    own = guard(tmp_path, set_changes_a_day=2)
    sums = ("abcd", "abc", "abce", "abce", "abcd")
    rules = [rule_of(lambda s=s: own.joins("secure-strata", tuple(s))) for s in sums]
    assert rules == ["", "", "", "", "set_changes_a_day"]
    assert rule_of(lambda: own.joins("secure-train", tuple("abcd"))) == ""
    # Who drops out later is counted apart: in quiet fleets it is the same change.
    assert [summed(own, "strata", s) for s in ("abcd", "abc", "abce")] == ["", "", ""]


def test_counts_of_hills_are_a_group_of_their_own(tmp_path: Path) -> None:
    own = guard(tmp_path, set_changes_a_day=1)
    assert summed(own, "evaluate", "abcd") == ""
    assert summed(own, "terrain", "abc") == ""  # asks for other numbers than judging does
    assert summed(own, "terrain", "abcd") == ""
    assert summed(own, "terrain", "abc") == "set_changes_a_day"
    assert summed(own, "train", "abc") == summed(own, "train", "abcd") == ""


def test_a_lifetime_is_worked_out_only_where_it_has_a_bound(tmp_path: Path) -> None:
    own = guard(tmp_path, lifetime_epsilon=2.0)
    assert rule_of(lambda: own.spending(lambda: 2.0)) == ""
    assert rule_of(lambda: own.spending(lambda: 2.01)) == "lifetime_epsilon"
    assert rule_of(lambda: own.spending(lambda: inf)) == "lifetime_epsilon"
    free = guard(tmp_path)
    assert rule_of(lambda: free.spending(lambda: 1 / 0)) == ""
