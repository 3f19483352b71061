"""Fleets whose vehicles have the default policy: they train, and stop where it says so."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("flwr")


from fedwatt.deploy.board import Board
from fedwatt.deploy.conduct import Conduct
from fedwatt.deploy.vehicle import Vehicle
from fedwatt.errors import RunError
from fedwatt.privacy import Budget
from fedwatt.runs.tables import read_table
from tests.deploy.boards import guarded
from tests.deploy.fleets import deployed, make_fleet
from tests.deploy.test_secure import assert_same_models, plain, secured


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("policy") / "fleet")


def test_without_hiding_a_guarded_fleet_trains_the_same_model(fleet: Path, tmp_path: Path) -> None:
    text = secured(fleet, "fo-ri-fedavg")
    grid = guarded(fleet, tmp_path / "a", hiding=0.0)
    strict = deployed(text, grid, tmp_path / "strict")
    assert not Conduct.read(strict / "conduct.json").refusals
    clear = deployed(plain(text), guarded(fleet, tmp_path / "b", masks=False), tmp_path / "clear")
    assert_same_models(strict, clear)
    for name in ("test_rmse", "validation_rmse", "test_mae", "test_rmse_macro"):
        masked, known = (read_table(run, "rounds")[name].to_pylist() for run in (strict, clear))
        assert masked == pytest.approx(known, rel=1e-6)
    (row,) = [r for r in read_table(strict, "vehicles").to_pylist()
              if r["stratum"] == "all" and r["model"] == "last"]  # fmt: skip
    assert row["vehicle"] == "all vehicles"
    assert row["rmse"] == pytest.approx(read_table(clear, "rounds")["test_rmse"].to_pylist()[-1])


def test_a_resumed_run_goes_on_though_vehicles_answer_once(fleet: Path, tmp_path: Path) -> None:
    text = secured(fleet, "fedavg", rounds=3)
    whole = deployed(text, guarded(fleet, tmp_path / "a", hiding=0.0), tmp_path / "whole")
    grid = guarded(fleet, tmp_path / "b", hiding=0.0)
    with pytest.raises(KeyboardInterrupt):
        deployed(text, grid, tmp_path / "cut", stop=2)
    for file in sorted((tmp_path / "cut" / "checkpoint").rglob("round-*"))[-1:]:
        shutil.rmtree(file)  # the server was killed before it wrote the last one
    resumed = deployed(text, grid, tmp_path / "cut", resume=True)
    assert_same_models(resumed, whole)


@pytest.mark.parametrize(
    ("asked_for", "rules", "rule"),
    [
        ("batch = 16\nepochs = 100000", {}, "work"),
        ("batch = 16", {"fewest_trained": 10_000}, "few_trained"),  # nobody has so many windows
    ],
)
def test_endless_work_and_a_reply_of_few_windows_are_refused_before_they_begin(
    asked_for: str, rules: dict[str, int], rule: str, fleet: Path, tmp_path: Path
) -> None:
    text = secured(fleet, rounds=1).replace("batch = 16", asked_for)
    grid = guarded(fleet, tmp_path / "state", **rules)
    run = deployed(text, grid, tmp_path / "run")
    refusals = Conduct.read(run / "conduct.json").refusals
    assert [set(own) for own in refusals.values()] == [{rule}] * 4
    assert not any(kind == "secure-train" for _, kind, _ in grid.sent)


def test_a_vehicle_trains_until_its_lifetime_is_spent(fleet: Path, tmp_path: Path) -> None:
    # z = 4: two rounds are ε = 1.48 at δ = 1e-5 against a server, who may know who draws itself,
    # and three are 1.85.
    enough = Budget(4.0, 1.0, 1e-5).epsilon(2)
    more = "noise_multiplier = 4.0\nclip_norm = 0.05\n"
    text = secured(fleet, "fedavg@private", rounds=3, more=more)
    text = text.replace("participation = 1.0", 'participation = 0.5\nsampling = "poisson"')
    grid = guarded(fleet, tmp_path / "state", lifetime_epsilon=enough)
    run = deployed(text, grid, tmp_path / "run")
    assert read_table(run, "rounds")["replies"].to_pylist() == [0, 4, 4, 0]
    refusals = Conduct.read(run / "conduct.json").refusals
    assert [set(own) for own in refusals.values()] == [{"lifetime_epsilon"}] * 4
    spent = grid.vehicles[1].spent
    assert spent.epsilon(1e-5, sampled=False) == enough > spent.epsilon(1e-5)  # no more than that


def test_too_small_a_sum_is_refused(fleet: Path, tmp_path: Path) -> None:
    grid = guarded(fleet, tmp_path / "state", smallest_sum=4)  # three of four would do elsewhere
    run = deployed(secured(fleet, rounds=1), grid, tmp_path / "run")
    refusals = Conduct.read(run / "conduct.json").refusals
    assert [set(own) for own in refusals.values()] == [{"smallest_sum"}] * 4


def test_a_vehicle_without_signed_neighbours_takes_no_part(fleet: Path, tmp_path: Path) -> None:
    grid = guarded(fleet, tmp_path / "state")
    lonely = grid.vehicles[1]
    grid.vehicles[1] = Vehicle(lonely.folder, lonely.state, board=Board(lonely.board.policy))
    run = deployed(secured(fleet, rounds=1), grid, tmp_path / "run")
    refusals = Conduct.read(run / "conduct.json").refusals
    assert refusals == {lonely.name: {"signed_sums": refusals[lonely.name]["signed_sums"]}}
    assert read_table(run, "rounds")["replies"].to_pylist()[-1] == 3


def test_a_day_has_so_many_answers_and_changes(fleet: Path, tmp_path: Path) -> None:
    grid = guarded(fleet, tmp_path / "a", answers_a_day=2)
    with pytest.raises(RunError, match="0 of 4 vehicles answered round 2"):
        deployed(secured(fleet, rounds=2), grid, tmp_path / "run")
    conduct = Conduct.read(tmp_path / "run" / "conduct.json")
    assert {rule for own in conduct.refusals.values() for rule in own} == {"answers_a_day"}
    answers = [kind for node, kind, _ in grid.sent if node == 1 and kind.startswith("secure-")]
    vectors = [kind for kind in answers if kind in ("secure-train", "secure-evaluate")]
    assert vectors == ["secure-evaluate", "secure-train"]

    grid = guarded(fleet, tmp_path / "b", set_changes_a_day=0)
    grid.before_push = lambda own: own.offline.add(4) if own.training == 1 else None
    run = deployed(secured(fleet, rounds=2), grid, tmp_path / "changed")
    rules = {rule for own in Conduct.read(run / "conduct.json").refusals.values() for rule in own}
    assert rules == {"set_changes_a_day"}
    assert read_table(run, "rounds")["evaluated"].to_pylist() == [True, True, False]
