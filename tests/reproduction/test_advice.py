"""Advice: from records alone, tuned ones first."""

from reproduction.advice import advice, compared
from reproduction.contests import dataset_contests
from reproduction.main_results import plain, tuned
from reproduction.page import LabView
from reproduction.study import Setting
from tests.reproduction.records import SCALE, VED, lab_of

FEW = ("fedavg", "scaffold", "fo-fedavg", "fo-ri-fedavg")


def test_tuned_records_come_first_even_where_more_methods_ran_untuned(tmp_path) -> None:
    cells = [plain("ved", m) for m in VED.methods] + [tuned(SCALE, "ved", m) for m in FEW]
    lab = lab_of(tmp_path, cells, {"scaffold": 45.0})
    how, found = compared(LabView(VED, lab), "ved")
    assert how == "each method tuned (4 of 11 methods)" and set(found) == set(FEW)
    line = next(iter(advice(LabView(VED, lab))))
    assert line.startswith("On `ved`, each method tuned (4 of 11 methods), use SCAFFOLD.")
    assert "FO-RI-FedAvg minus FedAvg: 0.00 [0.00, 0.00] Wh" in line


def test_without_tuned_ones_it_speaks_of_the_papers_settings(tmp_path) -> None:
    lab = lab_of(tmp_path, [plain("ved", m) for m in FEW], {"fo-ri-fedavg": 52.0})
    (line,) = advice(LabView(VED, lab))
    assert line.startswith(
        "On `ved`, at the paper's settings (4 of 11 methods), use FedAvg at rate 0.05, which ends "
        "at 50.10 Wh: no other method ends lower. FO-RI-FedAvg minus FedAvg: 2.00"
    )
    assert line.endswith("Higher: FO-RI-FedAvg.")
    assert advice(LabView(VED, lab_of(tmp_path, [plain("ved", "fedavg")]))) == []


def test_what_the_rate_does_is_judged_and_not_typed(tmp_path) -> None:
    cells = list(dataset_contests(VED)[0].cells.values())
    same = LabView(VED, lab_of(tmp_path, cells))
    (line,) = (text for text in advice(same) if "rate" in text and "Levels" in text)
    assert line.startswith("Neither a tuned rate nor FO-RI moves the error beyond noise")
    better = LabView(VED, lab_of(tmp_path, cells, {"fo-ri-fedavg": 45.0}))
    (line,) = (text for text in advice(better) if "Levels" in text)
    assert line.startswith("FO-RI brings more than a tuned rate does (ved as it is).")


def test_a_road_that_is_known_is_told_with_its_numbers(tmp_path) -> None:
    setting = Setting(SCALE, ("ved",), ("ved-enriched",), "ved-electrified")
    lab = lab_of(tmp_path, [plain("ved", m) for m in FEW])
    lab._known |= lab_of(tmp_path, [plain("ved-enriched", m) for m in FEW],
                         dict.fromkeys(FEW, 25.0))._known  # fmt: skip
    told = [text for text in advice(LabView(setting, lab)) if text.startswith("Climb")]
    assert told == [
        "Climb and descent as features take FedAvg from 50.10 Wh on `ved` to 25.05 Wh on "
        "`ved-enriched` (its trips that the terrain model covers); the best method without them "
        "reaches 50.10 Wh."
    ]
