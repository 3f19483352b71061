"""Advice: from records alone, tuned FedAvg the reference."""

from dataclasses import replace

from reproduction.advice import BETTER, NEITHER, advice, candidates
from reproduction.cell import key_of
from reproduction.contests import dataset_contests
from reproduction.controls import control_cells_of
from reproduction.main_results import plain, tuned
from reproduction.page import LabView
from reproduction.settle import prerequisites, settled
from reproduction.study import Setting
from reproduction.summary import summary_lines
from tests.reproduction.records import SCALE, VED, lab_of, made

FEW = ("fedavg", "scaffold", "fo-fedavg", "fo-ri-fedavg")


def test_everything_is_held_against_tuned_fedavg(tmp_path) -> None:
    cells = [plain("ved", m) for m in VED.methods] + [tuned(SCALE, "ved", m) for m in FEW]
    lab = lab_of(tmp_path, cells, {"scaffold": 45.0})
    names = list(candidates(LabView(VED, lab), "ved"))
    assert names[0].startswith("FedAvg, rate 0.0") and names[0] != "FedAvg, rate 0.05"
    assert "MOON, rate 0.05" in names and "SCAFFOLD, rate 0.05" in names
    line = next(iter(advice(LabView(VED, lab))))
    assert line.startswith("On `ved`, use SCAFFOLD, rate ")
    assert f"Lower than {names[0]} (50.10 Wh): SCAFFOLD, rate " in line
    assert "−5.01 [−5.03, −4.99] Wh, −10.0 %" in line
    assert "FO-RI-FedAvg, rate 0.05: 0.00 [0.00, 0.00] Wh." in line


def test_without_a_better_method_it_is_fedavg(tmp_path) -> None:
    lab = lab_of(tmp_path, [plain("ved", m) for m in FEW], {"fo-ri-fedavg": 52.0})
    (line,) = advice(LabView(VED, lab))
    assert line == (
        "On `ved`, use FedAvg, rate 0.05 (50.10 Wh): no other setting is significantly lower "
        "(3 were compared). "
        "FO-RI-FedAvg, rate 0.05: 2.00 [1.99, 2.01] Wh. Higher: FO-RI-FedAvg, rate 0.05."
    )
    assert advice(LabView(VED, lab_of(tmp_path, [plain("ved", "fedavg")]))) == []


def test_what_diverged_is_never_the_lowest(tmp_path) -> None:
    lab = lab_of(tmp_path, [plain("ved", m) for m in FEW])
    lost = {"fo-fedavg": {1: 100, 2: 100}}
    lab._known |= lab_of(tmp_path, [plain("ved", "fo-fedavg")], {"fo-fedavg": 49.0}, lost)._known
    (line,) = advice(LabView(VED, lab))
    assert "lowest mean" not in line  # it diverged
    assert "FO-FedAvg, rate 0.05 diverged (seed 1 by round 100, seed 2 by round 100)." in line


def test_seeds_far_above_the_rest_are_named(tmp_path) -> None:
    lab = lab_of(tmp_path, [plain("ved", m) for m in FEW], {"scaffold": 90.0})
    (line,) = advice(LabView(VED, lab))
    assert "SCAFFOLD, rate 0.05 is unsteady: seed 1 at 90.00 Wh, seed 2 at 90.18 Wh" in line


def test_what_the_rate_does_is_judged_and_not_typed(tmp_path) -> None:
    cells = list(dataset_contests(VED)[0].cells.values())
    for levels, verdict in (({}, NEITHER), ({"fo-ri-fedavg": 45.0}, BETTER)):
        found = advice(LabView(VED, lab_of(tmp_path, cells, levels)))
        (line,) = (text for text in found if "FedAvg at its best rate minus" in text)
        assert line.startswith(f"{verdict} (FedAvg at its best rate minus FedAvg at 0.05")
        assert "ved as it is: 0.00 [0.00, 0.00] Wh by the rate, " in line


def test_a_road_that_is_known_is_told_with_its_numbers(tmp_path) -> None:
    setting = Setting(SCALE, ("ved",), ("ved-enriched",), "ved-electrified")
    lab = lab_of(tmp_path, [plain("ved", m) for m in FEW])
    known = [plain("ved-enriched", m) for m in FEW]
    lab._known |= lab_of(tmp_path, known, dict.fromkeys(FEW, 25.0))._known
    told = [text for text in advice(LabView(setting, lab)) if text.startswith("Know the road")]
    assert told == [
        "Know the road: climb and descent as features take FedAvg from 50.10 Wh on `ved` to 25.05 "
        "Wh on `ved-enriched`; the best method without them reaches 50.10 Wh. The test windows are "
        "not all the same: `ved` has 100, `ved-enriched` the 100 of trips that the terrain model "
        "covers."
    ]


def test_the_summary_is_a_table_from_the_records(tmp_path) -> None:
    cells = [
        *dataset_contests(VED)[0].cells.values(),
        control_cells_of("ved")["local-only"],
    ]
    lab = lab_of(tmp_path, cells, {"scaffold": 45.0})
    lines = summary_lines(LabView(VED, lab))
    assert lines[0].startswith("| Dataset | FedAvg at its best |")
    dataset, first, gained, use, alone = lines[2].strip("| ").split(" | ")
    assert (dataset, alone) == ("`ved`", "50.10 Wh")
    assert gained == "0.00 [0.00, 0.00] Wh"
    assert first.startswith("FedAvg, rate 0.0") and first.endswith(": 50.10 Wh")
    assert use.startswith("SCAFFOLD, rate") and use.endswith(": −5.01 [−5.03, −4.99] Wh")
    assert f"- {NEITHER} (ved as it is)." in lines
    assert summary_lines(LabView(VED, lab_of(tmp_path, [plain("ved", "fedavg")]))) == []


def test_the_summary_names_vehicles_that_do_better_alone_and_bytes(tmp_path) -> None:
    alone = control_cells_of("ved")["local-only"]
    lab = lab_of(tmp_path, list(dataset_contests(VED)[0].cells.values()), {"scaffold": 45.0})
    for level, told in ((40.0, True), (46.0, False)):
        lab._known[key_of(alone, SCALE)] = made(alone, level)
        lines = summary_lines(LabView(VED, lab))
        (line,) = [own for own in lines if own.startswith("- Do not stop")] or [""]
        end = "on `ved` (−5.01 [−5.03, −4.99] Wh, 100 training windows a vehicle)."
        assert line.endswith(end) if told else not line
    (line,) = (own for own in lines if own.startswith("- Count bytes"))
    assert ": `ved`, SCAFFOLD after 150 of 300 rounds, " in line


def test_a_method_that_tuning_made_another_one_is_not_compared_again(tmp_path) -> None:
    lab = lab_of(tmp_path, [plain("ved", m) for m in FEW])
    cell = tuned(SCALE, "ved", "fedprox")
    before = [made(t, 30.0 if t.method == "fedavg" else 60.0) for t in prerequisites(cell, SCALE)]
    lab._known |= {key_of(record.cell, SCALE): record for record in before}
    concrete = settled(cell, before)
    lab._known[key_of(concrete, SCALE)] = made(concrete, 40.0)
    view = LabView(VED, lab)
    assert not any(name.startswith("FedProx") for name in candidates(view, "ved"))
    assert "Tuned, FedProx is FedAvg, counted once." in advice(view)[0]


def test_several_splits_decide_where_they_ran(tmp_path) -> None:
    base = {m: tuned(SCALE, "ved", m) for m in FEW}
    splits = {0: 45.0, 1: 45.1, 2: 45.2}
    cells = {
        (m, s): replace(cell, split=s, seeds=SCALE.split_seeds if s else ())
        for m, cell in base.items()
        for s in splits
    }
    lab = lab_of(tmp_path, [*cells.values(), *(plain("ved", m) for m in FEW)])
    for first, beginning in ((45.0, "use SCAFFOLD, rate"), (51.0, "use FedAvg, rate")):
        for split, level in (splits | {0: first}).items():
            own = lab.settled(cells["scaffold", split])
            lab._known[key_of(own, SCALE)] = made(own, level)
        line = advice(LabView(VED, lab))[0]
        assert line.startswith(f"On `ved`, {beginning}")
        assert "Higher: SCAFFOLD" not in line  # which it is over the seeds of the first split
        if first == 45.0:
            # Seeds 1 and 2, 0 and 0.2 % above: (-5 - 4.9 - 4.8) / 3 · 1.001
            told = "(over 3 splits of the trips; over the seeds of one −5.01 [−5.03, −4.99] Wh"
            assert f": −4.90 [−5.15, −4.66] Wh, −9.8 % {told}" in line
