"""What the reproduction says of records: partly run studies, diverged seeds, claims, settings."""

import json
from dataclasses import replace
from math import isnan
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedwatt.cli import app
from fedwatt.errors import SettingError
from fedwatt.report.table import Column, Table
from reproduction.ablations import variant
from reproduction.catalogue import STUDIES
from reproduction.cell import Cell, key_of
from reproduction.claims import verdicts
from reproduction.conditions import (
    KINDS,
    SIZES,
    best,
    kind_grid,
    participation_grid,
)
from reproduction.controls import control_cells_of, show_controls
from reproduction.data import Sources, usual_folder
from reproduction.judges import (
    NOT_SUPPORTED,
    NOT_TESTABLE,
    SUPPORTED,
    convergence,
    jitter,
    steadiness,
)
from reproduction.lab import Lab
from reproduction.main_results import main_cells, plain, tuned
from reproduction.markdown import write_markdown
from reproduction.mechanism import early_values
from reproduction.page import LabView
from reproduction.paired import paired
from reproduction.paper import Printed, names, printed
from reproduction.partial import done, only_run
from reproduction.probe_cost import probes_per_participation
from reproduction.record import ROUNDS, VEHICLES, Record, columns_of
from reproduction.recorded_setting import setting_of
from reproduction.scale import SCALES
from reproduction.settle import prerequisites, settled
from reproduction.show import Line, comparison
from reproduction.study import METHODS, Setting, setting_for

SCALE = replace(SCALES["paper"], seeds=(1, 2, 3))
VED = Setting(SCALE, ("ved",), (), "ved-electrified")
PATH = {100: 2.0, 200: 1.5, 300: 1.0}
"""Round → multiple of the final error"""


def made(cell: Cell, level: float = 50.0, diverged: dict[int, int] | None = None, **more) -> Record:
    """A record whose seeds 1, 2, 3 end 0, 0.2 and 0.4 % above `level`, by way of 2 × and 1.5 ×."""
    rows = []
    for seed in (1, 2, 3):
        for at, factor in PATH.items():
            error = level * factor * (1 + (seed - 1) / 500)
            lost = bool(diverged) and seed in diverged and at >= diverged[seed]
            row = {"seed": seed, "round": at, "participants": 3, "diverged": lost}
            row |= {"steps": 1, "best_round": at}
            scores = ("test_rmse", "test_mae", "validation_rmse", "drift_mean", "drift_cv")
            rows.append(row | {name: np.nan if lost else error for name in scores})
    fleet = {
        "source": "made up",
        "vehicles": cell.vehicles,
        "windows": {"train": 1000, "test": 100},
        "labels": {"measured": cell.vehicles, "simulated": 0},
        "hash": "0",
    }
    reply = {"seed": 1, "round": 1, "vehicle": "a", "drift": 1.0, "roughness": 0.0, "pull": 0.01}
    facts = {"fleet": fleet, "device": "cpu"} | more
    return Record(cell, facts, columns_of(rows, ROUNDS), columns_of([reply], VEHICLES))


def trials_of(cells: list[Cell]) -> list[Record]:
    """Trials of which the second one is the best, so that tuned cells are not the plain ones."""
    found = {
        key_of(trial, SCALE): made(trial, 40.0 if place == 1 else 60.0)
        for cell in cells
        if cell.follow == "tuned"
        for place, trial in enumerate(prerequisites(cell, SCALE))
    }
    return list(found.values())


def lab_of(folder: Path, cells: list[Cell], levels=None, diverged=None, **more) -> Lab:
    """A lab in which cells have run; `levels` and `diverged` by method."""
    lab = Lab(SCALE, folder, device="cpu")
    for record in trials_of(cells):
        lab._known[key_of(record.cell, SCALE)] = record
    for cell in cells:
        before = [
            made(t, 40.0 if i == 1 else 60.0) for i, t in enumerate(prerequisites(cell, SCALE))
        ]
        concrete = settled(cell, before) if cell.follow == "tuned" else cell
        level = (levels or {}).get(cell.method, 50.0)
        record = made(concrete, level, (diverged or {}).get(cell.method), **more)
        lab._known[key_of(concrete, SCALE)] = record
    return lab


def verdict(lab: Lab, claim: str, setting: Setting = VED):
    (found,) = (v for v in verdicts(LabView(setting, lab)) if v.claim == claim)
    return found


def test_records_keep_the_setting_they_were_made_in(tmp_path) -> None:
    lab = lab_of(tmp_path / "lab", [plain("ved", "fedavg")])
    lab.records = tmp_path / "records"
    lab.save(replace(VED, eved=("eved",), methods=("fedavg",)))
    again = Lab(SCALE, tmp_path / "other", records=lab.records)
    assert setting_of(again) == replace(VED, eved=("eved",), methods=("fedavg",))
    again.save(replace(VED, ved=("ved", "synthetic"), methods=("fedprox",)))
    stored = json.loads((lab.records / "cells.json").read_text(encoding="utf-8"))["setting"]
    assert stored["ved"] == ["ved", "synthetic"] and stored["eved"] == ["eved"]
    assert setting_of(Lab(SCALE, tmp_path / "o", records=lab.records)).methods == (
        "fedavg",
        "fedprox",
    )


@pytest.mark.parametrize("fleet", ["ved-electrified", "synthetic"])
def test_the_fleet_of_other_studies_is_not_taken_for_a_main_dataset(tmp_path, fleet) -> None:
    setting = replace(VED, fleet=fleet)
    kinds = [cell for cells in kind_grid(setting, fleet).values() for cell in cells]
    lab = lab_of(tmp_path, main_cells(setting) + kinds)
    assert setting_of(lab) == setting
    text = write_markdown(lab, tmp_path / "page.md").read_text(encoding="utf-8")
    assert f"RMSE on {fleet}, the paper's" not in text and "RMSE on ved, the paper's" in text
    assert "## Convergence" in text and "## Client drift" in text
    assert len(kinds) == len(METHODS) * len(KINDS)


def test_the_page_shows_what_ran_and_names_what_did_not(tmp_path) -> None:
    grid = participation_grid(VED, "ved")
    lab = lab_of(tmp_path, main_cells(VED) + grid["fedavg"] + grid["fednova"])
    view = LabView(setting_of(lab), lab)
    state = done(STUDIES.values(), view)
    assert state["main"].complete and state["seeds"].complete
    assert (state["participation"].ran, state["participation"].cells) == (11 + 6, 44)
    assert state["participation"].begun and not state["ablations"].begun
    # Its MLP cells are those of the main results: the study itself has not begun.
    assert state["architectures"].ran == 11 and not state["architectures"].begun
    text = write_markdown(lab, tmp_path / "page.md").read_text(encoding="utf-8")
    assert "Partly run: 17 of 44 cells; `fedwatt reproduce participation` continues it." in text
    part = text.partition("## Sensitivity to participation")[2].partition("\n## ")[0]
    assert "| FedNova |" in part and "| MOON |" not in part
    assert "Not run but for one regime: FedProx, SCAFFOLD, FedAdam, MOON" in part
    missing = text.partition("## Not run")[2].partition("\n## ")[0]
    assert "have not run at this scale; see `fedwatt reproduce NAME" in missing
    for name in STUDIES:
        assert (f"- `{name}`:" in missing) == (not state[name].begun), name
    assert "5 s apart" in text and "three pure EVs" in text


def test_rows_without_a_number_of_ours_are_left_out() -> None:
    columns = (Column("Method"), Column("C = 0.1"), Column("printed"), Column("C = 0.2"))
    rows = (("a", 1.0, "2", 1.0), ("b", "not run", "2", "not run"), ("c", "not run", "2", 1.0))
    table, empty, single = only_run(Table("t", "T", columns, rows))
    assert ([row[0] for row in table.rows], empty, single) == (["a"], ["b"], ["c"])


def test_a_comparison_is_lost_by_the_side_that_diverged() -> None:
    low, high = {1: 1.0, 2: 1.1, 3: 1.2}, {1: 2.0, 2: 2.1, 3: 2.25}
    plain_test = paired(low, high)
    assert plain_test.below(plain_test.p, 0.05) and not plain_test.above(plain_test.p, 0.05)
    lost = paired({1: 1.0, 2: 1.1}, high, own_lost=[3])
    assert isnan(lost.p) and not lost.below(lost.p, 0.05) and lost.above(lost.p, 0.05)
    won = paired(high, {1: 1.0, 2: 1.1}, other_lost=[3])
    assert won.below(won.p, 0.05) and not won.above(won.p, 0.05)
    both = paired({1: 1.0}, {2: 1.0}, [2, 3], [1])
    assert not both.below(both.p, 0.05) and not both.above(both.p, 0.05)
    assert both.losses("A", "B") == "A diverged in seeds 2, 3 and B diverged in seed 1"


def test_diverged_seeds_are_named_in_tables() -> None:
    cell = plain("ved", "fedavg")
    lines = [Line("A", "", made(cell)), Line("B", "", made(cell, 40.0, {2: 200}))]
    row = comparison("t", "T", lines, "test_rmse").table.rows[1]
    assert "seed 2 diverged at round 200" in str(row[1])
    assert row[2:] == ("B diverged in seed 2", "–")


def test_a_method_that_diverged_is_not_the_best_and_loses(tmp_path) -> None:
    levels = {"fo-ri-fedavg": 45.0, "scaffold": 40.0}
    lab = lab_of(tmp_path, main_cells(VED), levels, {"scaffold": {2: 200}})
    found = verdict(lab, "C6")
    text = " ".join(found.sentences)
    assert found.outcome == SUPPORTED and "the lowest is FO-RI-FedAvg with 45.09 Wh" in text
    assert "lower error than 10 of 10" in text
    assert "SCAFFOLD diverged (seed 2 at round 200)" in text
    page = write_markdown(lab, tmp_path / "page.md").read_text(encoding="utf-8")
    assert "tuned with equal budgets, the lowest error is FO-RI-FedAvg's with 45.09 Wh" in page
    own = lab_of(tmp_path / "own", main_cells(VED), levels, {"fo-ri-fedavg": {1: 300}})
    lost = verdict(own, "C6")
    assert lost.outcome == NOT_SUPPORTED and "higher than 10" in " ".join(lost.sentences)


def test_nothing_is_called_tuned_that_was_not(tmp_path) -> None:
    cells = [plain("ved", m) for m in METHODS] + [tuned("ved", "fedavg")]
    text = write_markdown(lab_of(tmp_path, cells), tmp_path / "page.md").read_text(encoding="utf-8")
    practice = text.partition("## What to use")[2]
    assert "at the paper's settings, the lowest error" in practice
    assert "equal budgets" not in practice


def test_accuracy_is_judged_without_fedavg(tmp_path) -> None:
    setting = replace(VED, methods=("fedprox", "fo-ri-fedavg"))
    lab = lab_of(tmp_path, main_cells(setting), {"fo-ri-fedavg": 45.0})
    found = verdict(lab, "C6", setting)
    assert found.outcome == SUPPORTED and "FedAvg ends" not in found.sentences[0].replace(
        "FO-RI-FedAvg ends", ""
    )
    assert verdict(lab, "C7", setting).outcome == NOT_TESTABLE
    alone = replace(VED, methods=("fedprox",))
    assert verdict(lab, "C7", alone).sentences == ("A method that it needs was not asked for.",)


def test_convergence_is_speed_steadiness_and_error() -> None:
    cell = plain("ved", "fedavg")
    slow = made(cell)  # 100, 75, 50 Wh: below 55.11 in round 300
    assert steadiness(slow) == pytest.approx({1: 0.0, 2: 0.0, 3: 0.0})  # round 300 alone
    fast = replace(slow, rounds={**slow.rounds, "test_rmse": slow.rounds["test_rmse"] * 0 + 50.0})
    found = convergence(fast, slow, 300)
    assert found["rounds"].difference.mean == -200.0
    assert found["error"].difference.mean == pytest.approx(-0.1)
    high = made(cell, 90.0)  # never below 55: counts as round 301
    assert convergence(high, fast, 300)["rounds"].difference.mean == 201.0


def test_fractional_steps_need_the_control_of_their_length(tmp_path) -> None:
    cells = control_cells_of("ved")
    ran = [*main_cells(VED)]
    lab = lab_of(tmp_path, ran, step_scale={"length": 0.2, "coordinate": 0.2})
    found = verdict(lab, "C2")
    assert found.outcome == NOT_TESTABLE and "study 'controls'" in found.sentences[0]
    matched = settled(cells["FedAvg at FO's mean step"], [lab.get(cells["FO-FedAvg"])])
    assert dict(matched.settings) == {"rate": 0.01}
    lab._known[key_of(matched, SCALE)] = made(matched)
    judged = verdict(lab, "C2")
    assert judged.outcome == NOT_SUPPORTED and "Its steps are 0.20 times" in judged.sentences[-1]


def test_a_step_scale_that_was_not_measured_leaves_the_rate(tmp_path) -> None:
    cells = control_cells_of("ved")
    lab = lab_of(tmp_path, [cells["FO-FedAvg"], cells["FedAvg"]], step_scale={})
    matched = settled(cells["FedAvg at FO's mean step"], [lab.get(cells["FO-FedAvg"])])
    assert dict(matched.settings) == {"rate": 0.05}
    assert "keeps its rate 0.05" in show_controls(LabView(VED, lab)).remarks[0]
    write_markdown(lab, tmp_path / "page.md")


def test_reductions_are_checked_down_to_fedavg(tmp_path) -> None:
    off = variant("ved", {"alpha": 1.0, "lam": 0.0})
    assert off in STUDIES["ablations"].cells(VED)
    cells = [*main_cells(VED), variant("ved", {"alpha": 1.0}), variant("ved", {"lam": 0.0})]
    assert verdict(lab_of(tmp_path / "a", cells), "C4").outcome == NOT_TESTABLE
    assert verdict(lab_of(tmp_path / "b", [*cells, off]), "C4").outcome == SUPPORTED
    other = verdict(lab_of(tmp_path / "c", [*cells, off], {"fedavg": 51.0}), "C4")
    assert other.outcome == NOT_SUPPORTED
    assert "α = 1 and λ = 0 is FedAvg: largest" in " ".join(other.sentences)


def test_jitter_is_not_trend() -> None:
    assert jitter(np.array([9.0, 7.0, 5.0, 3.0])) == 0.0
    # Differences 2, -2, 2: mean 2/3, deviations 4/3, -8/3, 4/3, variance 96/27
    assert jitter(np.array([1.0, 3.0, 1.0, 3.0])) == pytest.approx(np.sqrt(96 / 27 / 2))


def test_early_roughness_is_that_of_the_round_named() -> None:
    """Row t + 1 has the roughness of round t; a vehicle that did not reply later is left out."""
    rows = [
        {"seed": 1, "round": r, "vehicle": v, "drift": d, "roughness": i, "pull": 0.0}
        for own, v in enumerate("abcdefgh")
        for r, i, d in ((20, -own, 0.0), (21, own, 0.0), (51, 0.0, own))
    ]
    rows.append({"seed": 1, "round": 21, "vehicle": "i", "drift": 0, "roughness": 9, "pull": 0})
    record = made(plain("ved", "fedavg"))
    record = replace(record, vehicles=columns_of(rows, VEHICLES))
    assert early_values(record, 21, (51, 101)) == {1: pytest.approx(1.0)}


def test_on_a_gpu_a_reduction_may_end_within_one_percent(tmp_path) -> None:
    settings = ({"alpha": 1.0}, {"lam": 0.0}, {"alpha": 1.0, "lam": 0.0})
    cells = [*main_cells(VED), *(variant("ved", own) for own in settings)]

    def judged(folder: str, device: str, fedavg: float) -> str:
        lab = lab_of(tmp_path / folder, cells, {"fedavg": fedavg}, device=device)
        return verdict(lab, "C4").outcome

    assert judged("a", "NVIDIA H200", 50.4) == SUPPORTED  # 0.4 of 50 Wh in every seed
    assert judged("b", "NVIDIA H200", 50.6) == NOT_SUPPORTED
    assert judged("c", "cpu", 50.4) == NOT_SUPPORTED


def test_graceful_degradation_is_that_of_its_own_error(tmp_path) -> None:
    fleet = "ved-electrified"
    setting = replace(VED, methods=("fo-ri-fedavg",))
    sizes = [replace(tuned(fleet, "fo-ri-fedavg"), vehicles=size) for size in SIZES]
    for name, growth, outcome in (("flat", 1.2, SUPPORTED), ("steep", 1.3, NOT_SUPPORTED)):
        lab = lab_of(tmp_path / name, sizes)
        last = lab.get(sizes[-1])
        assert last is not None
        lab._known[key_of(last.cell, SCALE)] = made(last.cell, 50.0 * growth)
        found = verdict(lab, "C7", setting)
        assert found.outcome == outcome
        assert "declared estimated" in found.sentences[-1]


def test_every_printed_row_is_looked_up(monkeypatch) -> None:
    seen: set[tuple[str, str]] = set()
    entry = Printed.entry

    def watched(self: Printed, row: str, column: str):
        found = entry(self, row, column)
        if found is not None:
            seen.add((self.name, row))
        return found

    monkeypatch.setattr(Printed, "entry", watched)
    speeds = [
        {"method": m, "batch": b, "median_ms": 1.0, "p95_ms": 1.0, "throughput": 1.0}
        for m in METHODS
        for b in (1, 32)
    ]

    class Bare:
        """A view in which latencies have been measured and nothing was trained."""

        setting = replace(VED, eved=("eved",))

        def get(self, cell: Cell) -> Record | None:
            return made(cell, latency=speeds) if cell.work == "latency" else None

    for study in STUDIES.values():
        study.show(Bare())
    # Scatters are drawn whole; no fleet of ours has kinds and enriched features.
    whole = {"scatter-ved", "scatter-eved", "vehicle-types-eved"}
    wanted = {(name, row) for name in names() if name not in whole for row in printed(name).rows}
    assert wanted - seen == set()


def test_probes_are_counted_per_participation() -> None:
    rounds = {"a": (1, 2, 6, 8, 20), "b": (3, 13)}
    rows = [
        {"seed": 1, "round": at, "vehicle": name, "drift": 0.0, "roughness": 0.0, "pull": 0.0}
        for name, own in rounds.items()
        for at in own
    ]
    record = replace(made(plain("ved", "fedavg")), vehicles=columns_of(rows, VEHICLES))
    assert probes_per_participation(record, 5) == 5 / 7  # a: 1, 6, 20; b: 3, 13
    assert probes_per_participation(record, 1) == 1.0


def test_unknown_datasets_and_methods_are_refused(tmp_path) -> None:
    with pytest.raises(SettingError, match=r"Unknown dataset 'vedd'\. Did you mean 'ved'"):
        setting_for(SCALE, Sources(), ["vedd"])
    with pytest.raises(SettingError, match="Did you mean 'fedprox'"):
        setting_for(SCALE, Sources(), ["synthetic"], ["fedporx"])
    told = CliRunner().invoke(
        app, ["reproduce", "main", "--dataset", "synthetic-enriched", "--out", str(tmp_path)]
    )
    assert isinstance(told.exception, SettingError)
    assert "place of the paper's eVED" in str(told.exception)
    assert setting_for(SCALE, Sources(), ["synthetic", "synthetic-enriched"]).eved


def test_data_is_looked_for_where_the_variable_says_only(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("FEDWATT_DATA", raising=False)
    assert usual_folder() is None
    monkeypatch.setenv("FEDWATT_DATA", str(tmp_path))
    assert usual_folder() is None
    (tmp_path / "ved").mkdir()
    (tmp_path / "ved" / "EV_PHEV.parquet").touch()
    assert usual_folder() == tmp_path


def test_the_note_on_kinds_is_about_the_fleet_that_drove(tmp_path) -> None:
    lab = Lab(SCALE, tmp_path, device="cpu")
    show = STUDIES["vehicle-types"].show
    driven = show(LabView(VED, lab)).blocks[0].table.note
    synthetic = show(LabView(replace(VED, fleet="synthetic"), lab)).blocks[0].table.note
    assert "the same trips" in driven and "synthetic trips of its own" in synthetic


def test_a_study_is_shown_wherever_it_was_run() -> None:
    class Seen:
        """A view of the usual cells and of some more."""

        setting = replace(VED, ved=("ved", "ved-electrified"), fleet="synthetic")

        def __init__(self, *more: Cell) -> None:
            usual = [
                best(self.setting, dataset, method)
                for dataset in ("ved", "ved-electrified", "synthetic")
                for method in self.setting.methods
            ]
            self.known = {*usual, *more}

        def get(self, cell: Cell) -> Record | None:
            return made(cell) if cell in self.known else None

    def titles(study: str, *more: Cell) -> list[str]:
        blocks = STUDIES[study].show(Seen(*more)).blocks
        return [b.table.title for b in blocks if b.table.title.endswith(": RMSE")]

    usual = best(Seen.setting, "ved-electrified", "fedavg")
    bus, few = replace(usual, kind="bus"), replace(usual, participation=0.1)
    synthetic, driven = (f"Vehicle types on {d}: RMSE" for d in ("synthetic", "ved-electrified"))
    assert titles("vehicle-types") == [synthetic]
    assert titles("vehicle-types", bus) == [driven, synthetic]
    assert titles("participation", bus) == ["Participation on ved: RMSE"]
    both = [f"Participation on {d}: RMSE" for d in ("ved", "ved-electrified")]
    assert titles("participation", few) == both
