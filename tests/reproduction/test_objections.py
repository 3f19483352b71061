"""Objections: who wins decides, and what has not run is called that."""

from dataclasses import replace

import pytest

from fedwatt.report.statistics import estimate
from reproduction.cell import Cell, key_of
from reproduction.contests import BASE, OWN, contest, skew_contests, stride_contests
from reproduction.judges import NOT_TESTABLE, all_must_hold
from reproduction.main_results import plain, tuned
from reproduction.objection import NOT_RUN, NOT_UPHELD, UPHELD
from reproduction.objections import objections
from reproduction.page import LabView
from reproduction.paired import detectable
from reproduction.settle import search
from reproduction.show import left_of
from reproduction.splits import over_splits, show_splits
from tests.reproduction.records import SCALE, VED, lab_of


def rows(lab) -> dict[str, tuple[str, str]]:
    return {o.objection: (o.result, o.verdict) for o in objections(LabView(VED, lab), [])}


def test_what_has_not_run_is_neither_upheld_nor_refuted(tmp_path) -> None:
    found = rows(lab_of(tmp_path, [plain("ved", "fedavg")]))
    assert len(found) == 11
    assert all(verdict.startswith(NOT_RUN) for _, verdict in found.values())


@pytest.mark.parametrize(("level", "verdict"), [(45.0, UPHELD), (50.0, NOT_UPHELD)])
def test_an_objection_is_upheld_where_the_papers_method_is_lower(tmp_path, level, verdict) -> None:
    (moderate,) = skew_contests(VED, ("moderate",))
    lab = lab_of(tmp_path, list(moderate.cells.values()), {"fo-ri-fedavg": level})
    result, found = rows(lab)["The paper's heterogeneity was left out."]
    assert found.startswith(verdict)
    if level == 45.0:  # sd 0.01 of three: 5.653 · 0.01 / √3
        assert "Both tuned, moderate: −5.01 [−5.03, −4.99] Wh (detectable 0.03)" in result
    else:
        assert "Both tuned, moderate: the same in every seed" in result


def test_what_tuning_left_of_a_method_is_read_off_its_settings(tmp_path) -> None:
    (moderate,) = skew_contests(VED, ("moderate",))
    lab = lab_of(tmp_path, list(moderate.cells.values()))
    before = lab.get(moderate.cells[OWN])
    for other, off in (
        ("FO-FedAvg", {"lam": 0.0}),
        ("RI-FedAvg", {"alpha": 1.0}),
        ("FedAvg", {"alpha": 1.0, "lam": 0.0}),
    ):
        own = replace(before, cell=before.cell.with_settings(off))
        assert left_of(own) == f"tuned, it is {other}"
    assert left_of(replace(before, cell=plain("ved", "fo-ri-fedavg"))) == ""
    # Of trials as good as each other the first counts, and it is one of FO-RI's own.
    result, _ = rows(lab)["The paper's heterogeneity was left out."]
    assert "tuned, it is" not in result


def test_one_comparison_that_fails_is_enough() -> None:
    assert all_must_hold({"a": False}, 2) == "not supported"
    assert all_must_hold({"a": True}, 2) == NOT_TESTABLE
    assert all_must_hold({"a": True, "b": True}, 2) == "supported"


def test_contests_hold_every_method_to_every_rate() -> None:
    (one,) = stride_contests(VED)
    assert {cell.stride for cell in one.cells.values()} == {1}
    assert one.cells["FO-RI-FedAvg, FedAvg's rate"].follow == "own rate:fedavg"
    assert one.cells["FedAvg at FO's mean step"].follow == "matched rate"
    natural = contest(VED, "a", "b", plain("ved", "fedavg"), ("fo-ri-fedavg", "moon"))
    assert natural.cells[BASE].follow == natural.cells[OWN].follow == "tuned"
    assert natural.cells["MOON, tuned"].follow == "own rate"  # the scale spares it the search


def test_splits_are_paired_by_split(tmp_path) -> None:
    cells = {
        s: [replace(plain("ved", m), split=s, seeds=SCALE.split_seeds if s else (), follow="tuned")
            for m in ("fedavg", "fo-ri-fedavg")]
        for s in SCALE.splits[:3]
    }  # fmt: skip
    lab = lab_of(tmp_path, [c for own in cells.values() for c in own], {"fo-ri-fedavg": 49.0})
    (row,) = (r for r in show_splits(LabView(VED, lab)).blocks[0].table.rows if r[0] == OWN)
    assert row[1] == f"3 of {len(SCALE.splits)}"
    found = over_splits(LabView(VED, lab), OWN, BASE)
    assert found.difference.seeds == 3  # splits
    assert found.difference.mean == pytest.approx(-1.001)  # seeds 1 and 2: 0 and 0.2 % above


def test_the_detectable_effect_shrinks_with_more_seeds() -> None:
    few, many = estimate([0.0, 1.0, 2.0]), estimate([0.0, 1.0, 2.0] * 4)
    assert detectable(many) < detectable(few) / 2


def test_a_row_names_what_of_it_has_not_run(tmp_path) -> None:
    mild, moderate, *_ = skew_contests(VED)
    lab = lab_of(tmp_path, list(moderate.cells.values()), {"fo-ri-fedavg": 52.0})
    result, _ = rows(lab)["The paper's heterogeneity was left out."]
    assert mild.short == "mild" and result.endswith("Not run: mild; severe; dirichlet:0.3.")


def test_mistuning_is_judged_with_all_trials_of_its_own_or_not_at_all(tmp_path) -> None:
    lab = lab_of(tmp_path, [tuned(SCALE, "ved", m) for m in ("fedavg", "fo-ri-fedavg")])
    result, verdict = rows(lab)["FO-RI-FedAvg was mistuned."]
    assert verdict == NOT_UPHELD
    assert "The second half of FO-RI-FedAvg's trials lowered its validation error by 0.00" in result
    trial = search(Cell(dataset="ved", method="fo-ri-fedavg"), SCALE)[-1]
    del lab._known[key_of(trial, SCALE)]
    lab._settings.clear()
    assert rows(lab)["FO-RI-FedAvg was mistuned."][1] == NOT_RUN


def test_more_comparisons_need_larger_effects() -> None:
    seeds = estimate([0.0, 1.0, 2.0])
    # Noncentral t of two degrees of freedom: 5.653 at 5 %, 11.338 at 5 % over 4
    assert detectable(seeds, 4) / detectable(seeds) == pytest.approx(11.338 / 5.653, rel=1e-3)
