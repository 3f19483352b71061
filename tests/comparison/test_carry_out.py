"""A run: what is tried, what is recorded, and that it is what the library trains."""

import json
from dataclasses import asdict, replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
from pytest import approx

from comparison.candidates import ALONE, CANDIDATES
from comparison.carry_out import PlannedRun, carry_out
from comparison.costs import MEASURED, Multiples, costed_today, matched_rounds, multiples
from comparison.datasets import DATASETS, read_windows, write_windows
from comparison.plan import Plan
from comparison.records import Record, edge
from comparison.schedule import Workspace, missing, planned_runs, run_all
from comparison.search import best_of, trials
from fedwatt.errors import SettingError
from fedwatt.evaluation import personalise
from fedwatt.federation import Federation
from fedwatt.windows import Fleet
from tests.comparison.conftest import TINY


def test_the_defaults_are_tried_first_and_every_part_of_a_range_once() -> None:
    candidates = trials(CANDIDATES["fedprox"], 5)
    assert candidates[0] == {"learning_rate": 0.05}
    assert [t["learning_rate"] for t in candidates[1:]] == [0.001778, 0.005623, 0.01778, 0.05623]
    # Four parts of three decades: the middles are 10^-2.625, 10^-1.875, 10^-1.125, 10^-0.375.
    assert sorted(t["mu"] for t in candidates[1:]) == [0.002371, 0.01334, 0.07499, 0.4217]


def test_equal_costs_end_at_different_rounds() -> None:
    plan = Plan(rounds=60, every=5)
    assert matched_rounds(Multiples(1.5, 2.4), plan) == {"rounds": 60, "bytes": 40, "compute": 25}
    # 25 rounds of 2.55 are 63.75 of FedAvg's: beyond its 60 and the 5 % to which times repeat.
    assert matched_rounds(Multiples(1.05, 2.55), plan) == {"rounds": 60, "bytes": 60, "compute": 20}
    assert matched_rounds(Multiples(1.06, 50.0), plan) == {"rounds": 60, "bytes": 55, "compute": 5}


def test_old_records_are_charged_for_the_probes_that_they_made() -> None:
    plan = Plan()
    old = {"dataset": "ved elevation", "method": "ri-fedavg", "plan": asdict(plan)}
    old |= {"costs": {"bytes": 1.0, "compute": 2.0}, "matched": {"compute": 30}}
    measured = json.loads(MEASURED.read_text())
    # 5 directions of 21 points, not 10 of 101, once in 0.3 · 9 + 1 participations of 20 steps.
    probes = measured["probe_in_steps"] * (5 * 21) / (10 * 101) / 3.7 / 20
    costs = costed_today(old)
    assert costs["costs"]["compute"] == approx(measured["times_fedavg"]["ri-fedavg"] + probes)
    assert costs["costs"]["bytes"] == 1.0
    assert costs["matched"] == matched_rounds(Multiples(**costs["costs"]), plan)
    assert costed_today({"dataset": "ved elevation"}) == {
        "dataset": "ved elevation"
    }  # all trials diverged


def test_costs_of_scaffold_and_of_vehicles_alone(few_cars: Fleet) -> None:
    model = Federation(few_cars, device="cpu").model
    assert multiples(CANDIDATES["scaffold"], model, TINY, 0.3).bytes == 2.0
    assert multiples(CANDIDATES[ALONE], model, TINY, 0.3) == Multiples(1.0, 1.0)


def test_a_match_records_what_the_library_trains(few_cars: Fleet, tmp_path: Path) -> None:
    carry_out(PlannedRun("synthetic base", "scaffold", TINY, "cpu"), few_cars, tmp_path)
    record = json.loads((tmp_path / "record.json").read_text())
    scores = [trial["score"] for trial in record["trials"]]
    assert record["settings"] == record["trials"][scores.index(min(scores))]["settings"]
    assert record["matched"] == {"rounds": 2, "bytes": 1, "compute": 1}  # 1.1 times FedAvg's
    training = TINY.training(record["settings"]["learning_rate"], 0.3, trial=False)
    federation = Federation(few_cars, training=training, seeds=(1, 2), device="cpu")
    trained = federation.train("scaffold")
    last = trained.history.last("test_rmse")
    assert record["curves"]["global"][-1] == {str(s): float(f"{v:.5g}") for s, v in last.items()}
    tuned = personalise(federation, trained.state.weights, TINY.personalised)
    rows = federation.prediction_rows(tuned.test)
    away = [r["rmse"] for r in rows if r["held_out"] and r["stratum"] == "all" and r["seed"] == 1]
    assert record["tuned"]["2"]["unseen"]["1"] == float(f"{away[0]:.5g}")


def test_where_the_best_rate_is_the_last_one_higher_ones_are_tried(
    few_cars: Fleet, tmp_path: Path
) -> None:
    plan = replace(TINY, trials=3, further=2)
    carry_out(PlannedRun("synthetic base", "fedavg", plan, "cpu"), few_cars, tmp_path)
    record = json.loads((tmp_path / "record.json").read_text())
    # Two rounds of two steps are too few for any rate: the highest is best, which is the default's
    # 0.05 after 0.0032 and 0.0316; then twice two more, each 1.58 times the last.
    rates = [trial["settings"]["learning_rate"] for trial in record["trials"]]
    assert rates == [0.05, 0.003162, 0.03162, 0.07906, 0.125, 0.1976, 0.3125]
    assert record["settings"] == {
        "learning_rate": best_of(record["trials"])["settings"]["learning_rate"]
    }
    # A record without the last four is tuned out, one with them is done.
    short = record | {"trials": record["trials"][:3], "settings": {"learning_rate": 0.05}}
    chosen = [PlannedRun("synthetic base", "fedavg", plan, "cpu")]
    (left,) = missing(chosen, {("synthetic base", "fedavg"): Record("", "", short)})
    assert missing(chosen, {("synthetic base", "fedavg"): Record("", "", record)}) == []
    assert missing(chosen, {}) == chosen
    carry_out(left, few_cars, tmp_path)
    again = json.loads((tmp_path / "record.json").read_text())
    assert {n: v for n, v in again.items() if n != "seconds"} == {
        n: v for n, v in record.items() if n != "seconds"
    }


def test_whoever_diverges_beyond_the_range_goes_back_to_it(
    few_cars: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(TINY, trials=3, further=2)
    lost = lambda federation, trained: [2] if federation.training.learning_rate > 0.05 else []  # noqa: E731
    monkeypatch.setattr("comparison.carry_out._lost", lost)
    carry_out(PlannedRun("synthetic base", "fedavg", plan, "cpu"), few_cars, tmp_path)
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["settings"] == {"learning_rate": 0.05} and record["diverged"] == []
    assert (
        record["given_up"]["diverged"] == [2]
        and record["given_up"]["settings"]["learning_rate"] > 0.05
    )


def test_a_result_is_taken_over_where_higher_rates_are_no_better(
    few_cars: Fleet, tmp_path: Path
) -> None:
    before = {
        "trials": [
            {"settings": {"learning_rate": r}, "score": s} for r, s in ((0.01, 9), (0.02, 0.1))
        ]
    }
    before |= {"settings": {"learning_rate": 0.02}, "curves": "as they were", "seconds": 100.0}
    before |= {"diverged": []}
    plan = replace(TINY, further=5)
    carry_out(PlannedRun("synthetic base", "fedavg", plan, "cpu", before), few_cars, tmp_path)
    record = json.loads((tmp_path / "record.json").read_text())
    assert (record["curves"], record["settings"]) == ("as they were", {"learning_rate": 0.02})
    # Five quick trials may round to no time at all; what the earlier ones took stays counted.
    assert len(record["trials"]) == 2 + 5 and record["seconds"] >= 100


def _tried(*scores: tuple[float, float]) -> list[dict[str, Any]]:
    return [
        {"settings": {"learning_rate": learning_rate}, "score": score}
        for learning_rate, score in scores
    ]


def test_a_known_result_that_diverged_beyond_the_range_is_not_taken_over(
    few_cars: Fleet, tmp_path: Path
) -> None:
    # Two trials are within the range; the third is best, and is known to have lost seed 1.
    before = {"trials": _tried((0.01, 3.0), (0.02, 2.0), (0.04, 1.0), (0.08, 4.0))}
    before |= {"plan": asdict(TINY), "settings": {"learning_rate": 0.04}, "diverged": [1]}
    before |= {"stragglers": {"diverged": []}, "curves": "of the lost one"}
    chosen = [PlannedRun("synthetic base", "scaffold", TINY, "cpu")]
    (left,) = missing(chosen, {("synthetic base", "scaffold"): Record("", "", before)})
    carry_out(left, few_cars, tmp_path)
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["settings"] == {"learning_rate": 0.02} and record["diverged"] == []
    assert record["given_up"] == {"settings": {"learning_rate": 0.04}, "diverged": [1]}
    assert record["curves"] != "of the lost one"
    assert missing(chosen, {("synthetic base", "scaffold"): Record("", "", record)}) == []


@pytest.mark.parametrize("slow", [False, True])
def test_where_fedavg_in_other_words_diverges_everybody_gives_up_the_rate(
    few_cars: Fleet, tmp_path: Path, slow: bool
) -> None:
    def at(candidate: str, learning_rate: float, lost: list[int]) -> dict[tuple[str, str], Record]:
        # All end at the highest of four rates, so that there would be more to try.
        content = {"trials": _tried((0.01, 4.0), (0.02, 3.0), (0.04, 2.0), (0.08, 1.0))}
        content |= {"plan": asdict(plan), "settings": {"learning_rate": learning_rate}}
        content |= {"matched": {"rounds": 2}, "tuned": {"2": {"test": {"1": 6.0}}}}
        content |= {"curves": {"global": [{"1": 8.0}, {"1": 7.0}]}}
        content |= {
            "diverged": [] if slow else lost,
            "stragglers": {"diverged": lost if slow else []},
        }
        return {("synthetic base", candidate): Record("synthetic base", candidate, content)}

    plan = replace(TINY, further=2)
    names = ("fedavg", "fednova", "scaffold", "fedprox")
    chosen = [PlannedRun("synthetic base", name, plan, "cpu") for name in names]
    survived = at("fedavg", 0.08, []) | at("scaffold", 0.04, []) | at("fedprox", 0.02, [])
    # FedNova is FedAvg here: where it diverges, FedAvg's seeds have survived by luck.
    records = survived | at("fednova", 0.04, [2])
    assert edge("synthetic base", records) == 0.04 and edge("ved base", records) == inf
    left = {planned.candidate: planned for planned in missing(chosen, records)}
    assert set(left) == {"fedavg", "fednova", "scaffold"}  # fedprox is below, and may not go on
    carry_out(left["fedavg"], few_cars, tmp_path)
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["settings"] == {"learning_rate": 0.02} and len(record["trials"]) == 4
    given_up = {"settings": {"learning_rate": 0.08}, "diverged": [], "edge": 0.04}
    # What it had there is kept.
    remaining = {"global": {"1": 7.0}, "personalised": {"1": 6.0}}
    assert record["given_up"] == given_up | {"errors": remaining}
    # What it was given up for stays known when FedNova has gone back, too.
    later = survived | {("synthetic base", "fedavg"): Record("synthetic base", "fedavg", record)}
    assert edge("synthetic base", later) == 0.04
    # Others than FedAvg answer for themselves alone.
    assert edge("synthetic base", survived | at("moon", 0.04, [2])) == inf


def test_windows_are_read_back_as_they_were(few_cars: Fleet, tmp_path: Path) -> None:
    write_windows(tmp_path / "few.npz", few_cars)
    assert read_windows(tmp_path / "few.npz").data_hash() == few_cars.data_hash()


def test_what_was_played_is_not_played_again(few_cars: Fleet, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, {}, "cpu")
    message = list[str]()
    write_windows(tmp_path / "fleets" / "synthetic-base.npz", few_cars)
    chosen = planned_runs(TINY, ["synthetic base fedavg", "synthetic base fedprox"])
    assert len(run_all(chosen[:1], workspace, message.append)) == 1
    before = (tmp_path / "cells" / chosen[0].name / "record.json").stat().st_mtime_ns
    assert len(run_all(chosen, workspace, message.append)) == 2
    after = (tmp_path / "cells" / chosen[0].name / "record.json").stat().st_mtime_ns
    assert after == before
    assert "2 runs, 1 of them run before" in message


def test_a_folder_of_another_plan_is_refused(few_cars: Fleet, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, {}, "cpu")
    write_windows(tmp_path / "fleets" / "synthetic-base.npz", few_cars)
    run_all(planned_runs(TINY, ["synthetic base fedavg"]), workspace, lambda text: None)
    longer = planned_runs(replace(TINY, rounds=3), ["synthetic base fedavg"])
    with pytest.raises(SettingError, match=r"another plan \(rounds is 2, not 3\). .* --out"):
        run_all(longer, workspace, lambda text: None)


def test_a_match_that_fails_is_told_and_stops_nobody(tmp_path: Path) -> None:
    message = list[str]()
    (tmp_path / "fleets").mkdir()
    (tmp_path / "fleets" / "synthetic-base.npz").write_bytes(b"not windows")
    run_all(
        planned_runs(TINY, ["synthetic base fedavg"]),
        Workspace(tmp_path, {}, "cpu"),
        message.append,
    )
    assert message[-1].startswith("not run: synthetic base fedavg (")


def test_only_datasets_with_positions_have_elevation() -> None:
    impossible = [name for name, dataset in DATASETS.items() if dataset.impossible]
    assert impossible == ["electrified-50 elevation", "electrified-175 elevation"]
