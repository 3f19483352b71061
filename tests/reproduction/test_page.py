"""The page of records: partly run studies, settings, rows and notes."""

import json
from dataclasses import replace
from math import isnan

import pytest

from fedwatt.errors import RunError
from reproduction.catalogue import STUDIES, select
from reproduction.cell import METHODS, Cell
from reproduction.claims import verdicts
from reproduction.coupling import early_values
from reproduction.data import Sources
from reproduction.grids import grid_of
from reproduction.judges import (
    NOT_TESTABLE,
)
from reproduction.lab import Lab
from reproduction.main_results import main_cells, plain
from reproduction.markdown import write_markdown
from reproduction.page import write_page
from reproduction.paper import Printed, names, printed
from reproduction.progress import cell_hours, measured_steps, progress, step_seconds
from reproduction.record import VEHICLES, Record, columns_of
from reproduction.study import View, setting_for, setting_of
from reproduction.tables import comparison, line
from tests.reproduction.records import SCALE, VED, lab_of, made, turns_of
from tests.reproduction.small import TINY


def test_studies_that_have_not_run_say_so(lab, tmp_path) -> None:
    view = View(setting_for(TINY, Sources()), lab)
    assert {verdict.outcome for verdict in verdicts(view)} == {NOT_TESTABLE}
    assert {v.claim for v in verdicts(view)} == {f"C{number}" for number in range(1, 8)}
    page = write_page(lab, view.setting, select(["main", "scaling"]), tmp_path / "report.html")
    assert page.read_text(encoding="utf-8").count("not run") > 50


def test_the_page_for_the_documentation_is_written_from_records(lab, tmp_path) -> None:
    with pytest.raises(RunError, match="do not tell their setting"):
        setting_of(lab)
    lab.setting = setting_for(TINY, Sources()).table
    assert setting_of(lab).ved == ("synthetic",)
    text = write_markdown(lab, tmp_path / "reproduction.md").read_text(encoding="utf-8")
    assert "Smoke scale" in text and "three pure EVs" not in text  # none is on the page
    assert "None of the paper's seven claims are supported." in text


def test_records_keep_the_setting_they_were_made_in(tmp_path) -> None:
    lab = lab_of(tmp_path / "lab", [plain("ved", "fedavg")])
    lab.records = tmp_path / "records"
    lab.setting = {}
    lab.save(replace(VED, eved=("eved",)))
    again = Lab(SCALE, tmp_path / "other", records=lab.records)
    assert setting_of(again) == replace(VED, eved=("eved",))
    again.save(replace(VED, ved=("ved", "synthetic")))
    stored = json.loads((lab.records / "cells.json").read_text(encoding="utf-8"))["setting"]
    assert stored["ved"] == ["ved", "synthetic"] and stored["eved"] == ["eved"]


def test_progress_counts_cells_and_hours_of_what_is_missing(tmp_path) -> None:
    grid = grid_of("participation", VED, "ved")
    # Steps of a record: 2 of 100 windows, by three participants and seeds, in 300 rounds: 5,400.
    cells = main_cells(VED) + grid["fedavg"] + grid["fednova"]
    lab = lab_of(tmp_path, cells, core_seconds=5.4)
    view = View(setting_of(lab), lab)
    rows = {row.study.name: row for row in progress(STUDIES.values(), view, lab.every)}
    assert rows["main"].missing == rows["seeds"].missing == rows["main"].hours_missing == 0
    missing = [c for m, cells in grid.items() for c in cells if lab.get(c) is None]
    # MOON has 4 rates of its own and 4 of FedAvg, FedEL 4 of its own, at three other C.
    assert len(missing) == 9 * 3 and rows["participation"].missing == 9 * 3 + 12 * 3
    assert measured_steps(lab.every, SCALE)["scaffold", "mlp"] == pytest.approx(1e-3)
    text = write_markdown(lab, tmp_path / "page.md").read_text(encoding="utf-8")
    assert "participation on `ved` 63 (" in text and "main on" not in text


def test_hours_follow_from_measured_steps_of_method_and_network() -> None:
    steps = {("fedavg", "mlp"): 2.0, ("moon", "mlp"): 10.0, ("fedavg", "gru"): 40.0}
    moon = plain("ved", "moon")
    assert step_seconds(moon, steps) == 10.0
    assert step_seconds(replace(moon, model="gru"), steps) == 200.0  # 10 · 40 / 2
    assert step_seconds(plain("ved", "scaffold"), steps) == 2.0
    assert isnan(step_seconds(moon, {}))
    # 64,000 windows of ten vehicles are 100 steps each, by three participants, seeds, 300 rounds.
    fleets = {"ved": {"vehicles": 10, "windows": {"train": 64_000}}}
    assert cell_hours(moon, SCALE, fleets, steps) == 10.0 * 100 * 3 * 3 * 300 / 3600


def test_diverged_seeds_are_named_in_tables() -> None:
    cell = plain("ved", "fedavg")
    lines = [line("A", made(cell)), line("B", made(cell, 40.0, {2: 200}))]
    row = comparison("t", "T", lines).table.rows[1]
    assert "seed 2 diverged by round 200" in str(row[1])
    assert row[2:4] == ("B diverged in seed 2", "–")


def test_early_roughness_is_that_of_the_round_named() -> None:
    """Row t + 1 has the roughness of round t; a vehicle that did not reply later is left out."""
    rows = [
        {"seed": 1, "round": r, "vehicle": v, "drift": d, "roughness": i, "pull": 0.0}
        for column, v in enumerate("abcdefgh")
        for r, i, d in ((20, -column, 0.0), (21, column, 0.0), (51, 0.0, column))
    ]
    rows.append({"seed": 1, "round": 21, "vehicle": "i", "drift": 0, "roughness": 9, "pull": 0})
    record = made(plain("ved", "fedavg"))
    record = replace(record, vehicles=columns_of(rows, VEHICLES))
    assert early_values(record, 21, (51, 101)) == {1: pytest.approx(1.0)}


def test_every_printed_row_is_looked_up(monkeypatch) -> None:
    seen: set[tuple[str, str]] = set()
    entry = Printed.entry

    def watched(self: Printed, row: str, column: str):
        result = entry(self, row, column)
        if result is not None:
            seen.add((self.name, row))
        return result

    monkeypatch.setattr(Printed, "entry", watched)
    speeds = [
        {"method": m, "batch": b, "median_ms": 1.0, "p95_ms": 1.0, "throughput": 1.0}
        for m in METHODS
        for b in (1, 32)
    ]

    class Bare:
        """A view in which times have been measured and nothing was trained."""

        setting = replace(VED, eved=("eved",))

        def get(self, cell: Cell) -> Record | None:
            if cell.work == "turns":
                return made(cell, turns=turns_of({"cpu": {}}))
            return made(cell, latency=speeds) if cell.work == "latency" else None

    for study in STUDIES.values():
        study.show(Bare())
    # Scatters are drawn whole. What the paper shows of kinds, sizes and eVED's churn has no dataset
    # of ours that is the paper's, and no printed number stands beside one that stands in.
    whole = {
        "scatter-ved",
        "scatter-eved",
        "vehicle-types-ved",
        "vehicle-types-eved",
        "scaling",
        "churn-asymmetric-eved",
    }
    expected = {(name, row) for name in names() if name not in whole for row in printed(name).rows}
    assert expected - seen == set()


def test_the_note_on_kinds_is_about_the_fleet_that_drove(tmp_path) -> None:
    lab = Lab(SCALE, tmp_path, device="cpu")
    show = STUDIES["vehicle-types"].show
    driven = show(View(VED, lab)).blocks[0].table.note
    synthetic = show(View(replace(VED, fleet="synthetic"), lab)).blocks[0].table.note
    assert "the same trips" in driven and "synthetic trips of its own" in synthetic
