"""Vehicles that train only models whose making they, or others of the sum, have followed."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedwatt.deploy.conduct import Conduct
from fedwatt.deploy.followed import largest_divisor
from fedwatt.deploy.guard import FOLLOWED, Guard
from fedwatt.deploy.ledger import Ledger
from fedwatt.deploy.messages import MOST_SUM
from fedwatt.deploy.purpose import Purpose
from fedwatt.deploy.vehicle import Vehicle
from fedwatt.federation import Training
from fedwatt.methods import get
from fedwatt.runs.tables import read_table
from tests.deploy.boards import guarded
from tests.deploy.fleets import deployed, make_fleet
from tests.deploy.test_guard import guard, rule_of
from tests.deploy.test_secure import secured


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("followed") / "fleet")


def replies(run: Path) -> list[int]:
    return read_table(run, "rounds")["replies"].to_pylist()


def refused(run: Path) -> set[str]:
    return {rule for own in Conduct.read(run / "conduct.json").refusals.values() for rule in own}


def test_vehicles_that_are_drawn_anew_and_newcomers_go_by_the_word_of_others(
    fleet: Path, tmp_path: Path
) -> None:
    text = secured(fleet, rounds=3).replace("participation = 1.0", "participation = 0.75")
    text = text.replace("vehicles = 4", "vehicles = 3")
    grid = guarded(fleet, tmp_path / "state")
    grid.offline.add(4)
    grid.before_push = lambda own: own.offline.discard(4) if own.training >= 1 else None
    run = deployed(text, grid, tmp_path / "run")
    assert refused(run) == set() and replies(run) == [0, 3, 3, 3]


def test_a_vehicle_without_the_fleets_key_leaves_training_to_the_others(
    fleet: Path, tmp_path: Path
) -> None:
    grid = guarded(fleet, tmp_path / "state")
    old = grid.vehicles[1]
    keyless = replace(old.board, fleet_key=None)
    grid.vehicles[1] = Vehicle(old.folder, old.state, board=keyless)
    run = deployed(secured(fleet, rounds=2), grid, tmp_path / "run")
    # Without its words nobody could check the sum, so it stays out; it judges all the same.
    assert replies(run) == [0, 3, 3]
    assert Conduct.read(run / "conduct.json").refusals == {old.name: {FOLLOWED: 2}}


def test_a_large_fleet_of_which_few_are_called_is_no_lie() -> None:
    # 20,000 enrolled, q = 0.01: a sum of 200 vehicles, divided by 200.
    private, called = get("fedavg@private"), Training(participation=0.01)
    assert largest_divisor(private, called) == MOST_SUM > 200
    # Who draws for himself is in every sum, of at most 10,000.
    assert largest_divisor(private, replace(called, sampling="poisson")) == 0.01 * MOST_SUM


def purpose(kind: str, model: str = "m", level: str = "", **more: str) -> Purpose:
    return replace(Purpose(kind, "run", "fedavg", 1, model, level, ""), **more)


def judged(own: Guard, about: Purpose, *, follows: bool = False) -> str:
    """The rule that a vehicle breaks by judging a model which it does not follow itself."""
    return rule_of(lambda: own.unfollowed(about, follows=follows))


def test_few_models_a_day_are_judged_that_nobody_knows(tmp_path: Path) -> None:
    own = guard(tmp_path, unfollowed_a_day=2)
    for kind in ("secure-evaluate", "secure-strata"):  # one model counts once
        for model in ("a", "b"):
            assert judged(own, purpose(kind, model)) == ""
    third = purpose("secure-evaluate", "c")
    assert judged(own, third) == "unfollowed_a_day"
    assert judged(own, third, follows=True) == ""
    # They are counted beside the answers, of which each is one already.
    assert own.ledger.answers_today() == 0
    # A word of others comes too late for a third, but gives back what the first took.
    assert rule_of(lambda: own.revealing(purpose("secure-evaluate", "a"), 2)) == ""
    assert judged(own, third) == ""
    assert judged(own, purpose("secure-evaluate", "d")) == "unfollowed_a_day"
    tomorrow = Guard(own.policy, Ledger(tmp_path, lambda: "2026-01-02"))
    assert judged(tomorrow, purpose("secure-evaluate", "d")) == ""


def test_an_unfollowed_model_is_not_judged_again_under_another_name(tmp_path: Path) -> None:
    own = guard(tmp_path)
    assert judged(own, purpose("secure-evaluate")) == ""
    assert judged(own, purpose("secure-evaluate", label="other", run="other")) == "answered"
    free = guard(tmp_path, answers=2)
    assert judged(free, purpose("secure-evaluate", label="third")) == ""


def test_level_models_count_as_unfollowed_also_beside_followed_ones(tmp_path: Path) -> None:
    own = guard(tmp_path, unfollowed_a_day=2)
    assert judged(own, purpose("secure-strata", "a", "l"), follows=True) == ""
    assert judged(own, purpose("secure-personalise", "a", "l"), follows=True) == ""
    # The same beside another model is a second reading of it.
    assert judged(own, purpose("secure-strata", "b", "l"), follows=True) == "answered"
    assert judged(own, purpose("secure-strata", "b", "m"), follows=True) == ""
    assert judged(own, purpose("secure-strata", "b", "n"), follows=True) == "unfollowed_a_day"
    # What was judged as a model of its own counts no more as a level model.
    assert judged(own, purpose("secure-evaluate", "l")) == ""


def test_what_is_known_of_a_model_is_known_by_its_settings(tmp_path: Path) -> None:
    # The same weights in a model of other features would be one that no round made.
    own, method = guard(tmp_path), get("fedavg")
    first = purpose("secure-train", settings="one")
    assert own.follows(first, method, lambda: True)
    assert own.follows(first, method, lambda: None)
    for other in (replace(first, settings="two"), replace(first, label="other")):
        assert not own.follows(other, method, lambda: None)
        assert rule_of(lambda o=other: own.revealing(o, 1)) == FOLLOWED


def test_noise_protects_the_question_that_it_was_asked_for_by(tmp_path: Path) -> None:
    own, private = guard(tmp_path), get("fedavg@private")
    noisy = purpose("secure-train", question="with noise")
    assert not own.follows(noisy, private, lambda: None)
    assert rule_of(lambda: own.revealing(noisy, 0)) == ""
    # The same run, method, round and model without noise.
    assert rule_of(lambda: own.revealing(replace(noisy, question="without"), 0)) == FOLLOWED


def test_two_must_know_a_model_that_is_trained_and_then_all_do(tmp_path: Path) -> None:
    own, method = guard(tmp_path), get("fedavg")
    training, judging = purpose("secure-train"), purpose("secure-evaluate")
    assert rule_of(lambda: own.revealing(training, 1)) == FOLLOWED
    assert rule_of(lambda: own.revealing(judging, 1)) == ""  # it was counted before
    assert not own.follows(training, method, lambda: None)
    # The mean of two models is judged, though it is not the last sum's, and not trained.
    assert not own.follows(judging, method, lambda: False)
    assert own.ledger.answers_today() == 0
    assert rule_of(lambda: own.follows(training, method, lambda: False)) == FOLLOWED
    assert own.ledger.answers_today() == 1  # a server cannot try lies without end
    assert rule_of(lambda: own.revealing(judging, 2)) == ""
    assert own.follows(training, method, lambda: None)  # it took their word
    assert own.follows(purpose("secure-train", "other"), method, lambda: True)
    # Noise protects whatever it is added to, but makes no model known.
    third, private = purpose("secure-train", "third", question="3"), get("fedavg@private")
    assert not own.follows(third, private, lambda: None)
    assert rule_of(lambda: own.revealing(third, 0)) == ""
    assert not own.follows(third, method, lambda: None)
    little = get("fedavg@private", noise_multiplier=0.9)
    fourth = purpose("secure-train", "fourth", question="4")
    assert not own.follows(fourth, little, lambda: None)
    assert rule_of(lambda: own.revealing(fourth, 0)) == FOLLOWED
    # Who leaves models to the server vouches for none, and unmasks all.
    free = guard(tmp_path, followed=0)
    assert not free.follows(purpose("secure-train", "sixth"), method, lambda: True)
    assert rule_of(lambda: free.revealing(purpose("secure-train", "fifth"), 0)) == ""
