"""Verdicts on the paper's claims, from records made up by hand."""

from dataclasses import replace
from math import nan

import numpy as np
import pytest

from fedwatt.report.statistics import estimate
from reproduction.catalogue import STUDIES
from reproduction.cell import METHODS, key_of
from reproduction.controls import CONTROLS, control_cells_of, stress_cells_of
from reproduction.curves import (
    convergence,
    jitter,
    rounds_to_stability,
    steadiness,
    update_variance,
)
from reproduction.grids import SHARES, grid_of, variant
from reproduction.judges import (
    NOT_SUPPORTED,
    NOT_TESTABLE,
    SUPPORTED,
)
from reproduction.main_results import main_cells, own_trials, plain, tuned
from reproduction.markdown import write_markdown
from reproduction.paired import Paired, higher_ones, lower_ones
from reproduction.record import MADE_WITH
from reproduction.study import View
from reproduction.tables import left_of
from reproduction.tuning import settled
from reproduction.tuning_results import fully_searched
from tests.reproduction.records import PROVENANCE, SCALE, VED, lab_of, made, verdict

KIND_CELLS = [
    cell
    for cells in grid_of("vehicle-types", VED, VED.fleet).values()
    for cell in cells
    if cell.kind != "passenger"
]


def test_accuracy_needs_trucks_and_buses_and_one_lost_rival_is_enough(tmp_path) -> None:
    lab = lab_of(tmp_path / "cars", main_cells(VED), {"fo-ri-fedavg": 45.0})
    assert verdict(lab, "C6").outcome == NOT_TESTABLE
    lab = lab_of(tmp_path / "all", main_cells(VED) + KIND_CELLS, {"fo-ri-fedavg": 45.0})
    assert verdict(lab, "C6").outcome == SUPPORTED
    assert "lower than 20 of 20 tuned rivals" in " ".join(verdict(lab, "C6").sentences)
    for key, record in lab._known.items():
        if (record.cell.kind, record.cell.method) == ("bus", "fedavg"):
            lab._known[key] = made(record.cell, 44.0)
    assert verdict(lab, "C6").outcome == NOT_SUPPORTED
    assert verdict(lab, "C6").number.endswith("lower than 29 of 30 tuned rivals")


def test_churn_decides_on_drift_where_it_was_run(tmp_path) -> None:
    shares = [
        replace(plain("ved", method), participation=share)
        for method in ("fedavg", "ri-fedavg")
        for share in SHARES
    ]
    churn = [
        cell
        for method in ("fedavg", "fo-ri-fedavg")
        for cell in grid_of("churn-drift", VED, "ved")[method][1:]
    ]
    levels = {"ri-fedavg": 45.0, "fo-ri-fedavg": 45.0}
    assert verdict(lab_of(tmp_path / "a", shares + churn, levels), "C1").outcome == SUPPORTED
    levels["fo-ri-fedavg"] = 55.0
    other = verdict(lab_of(tmp_path / "b", shares + churn, levels), "C1")
    assert other.outcome == NOT_SUPPORTED and other.number == "drift lower in 8 of 11 comparisons"


def test_stability_and_update_variance_are_those_defined() -> None:
    record = made(plain("ved", "fedavg"))
    # 2 × and 1.5 × the final error are not within 5 % of it.
    assert rounds_to_stability(record) == {1: 300.0, 2: 300.0, 3: 300.0}
    # At round 200, D_mean and D_cv are both 75 in the first seed: (75 · 75)².
    assert update_variance(record, 200)[1] == pytest.approx(75.0**4)


def test_a_method_that_diverged_is_not_the_best_and_loses(tmp_path) -> None:
    levels = {"fo-ri-fedavg": 45.0, "scaffold": 40.0}
    cells = main_cells(VED) + KIND_CELLS
    lab = lab_of(tmp_path, cells, levels, {"scaffold": {2: 200}})
    claim_verdict = verdict(lab, "C6")
    text = " ".join(claim_verdict.sentences)
    assert claim_verdict.outcome == SUPPORTED and "the lowest is FO-RI-FedAvg with 45.09 Wh" in text
    assert "lower error than 10 of 10" in text
    assert "SCAFFOLD diverged (seed 2 by round 200)" in text
    page = write_markdown(lab, tmp_path / "page.md").read_text(encoding="utf-8")
    assert "| `ved` | 50.10 | −5.01 [−5.03, −4.99] | it diverged in seed 2 |" in page
    assert "SCAFFOLD against FedAvg, both tuned: higher on `ved`" in page
    only_lab = lab_of(tmp_path / "own", cells, levels, {"fo-ri-fedavg": {1: 300}})
    lost = verdict(only_lab, "C6")
    assert lost.outcome == NOT_SUPPORTED and "higher than 10" in " ".join(lost.sentences)


def test_convergence_is_speed_steadiness_and_error() -> None:
    cell = plain("ved", "fedavg")
    slow = made(cell)  # 100, 75, 50 Wh: below 55.11 in round 300
    assert steadiness(slow) == pytest.approx({1: 0.0, 2: 0.0, 3: 0.0})  # round 300 alone
    fast = replace(slow, rounds={**slow.rounds, "test_rmse": slow.rounds["test_rmse"] * 0 + 50.0})
    convergence_gap = convergence(fast, slow, 300)
    assert convergence_gap["rounds"].difference.mean == -200.0
    assert convergence_gap["error"].difference.mean == pytest.approx(-0.1)
    high = made(cell, 90.0)  # never below 55: counts as round 301
    assert convergence(high, fast, 300)["rounds"].difference.mean == 201.0


def test_fractional_steps_need_the_control_of_their_length(tmp_path) -> None:
    cells = control_cells_of("ved")
    ran = [*main_cells(VED)]
    lab = lab_of(tmp_path, ran, step_scale={"length": 0.2, "coordinate": 0.2})
    claim_verdict = verdict(lab, "C2")
    assert (
        claim_verdict.outcome == NOT_TESTABLE
        and "FedAvg (matched rate)" in claim_verdict.sentences[0]
    )
    matched = settled(cells["FedAvg at FO's mean step"], [lab.get(cells["FO-FedAvg"])])
    assert dict(matched.settings) == {"learning_rate": 0.01}
    lab._known[key_of(matched, SCALE)] = made(matched)
    judged = verdict(lab, "C2")
    assert judged.outcome == NOT_SUPPORTED and "Its steps are 0.20 times" in judged.sentences[-1]


def test_a_step_scale_that_was_not_measured_leaves_the_rate(tmp_path) -> None:
    cells = control_cells_of("ved")
    lab = lab_of(tmp_path, [cells["FO-FedAvg"], cells["FedAvg"]], step_scale={})
    matched = settled(cells["FedAvg at FO's mean step"], [lab.get(cells["FO-FedAvg"])])
    assert dict(matched.settings) == {"learning_rate": 0.05}
    assert "keeps its rate 0.05" in CONTROLS.show(View(VED, lab)).remarks[0]
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


def test_on_a_gpu_a_reduction_may_end_within_one_percent(tmp_path) -> None:
    settings = ({"alpha": 1.0}, {"lam": 0.0}, {"alpha": 1.0, "lam": 0.0})
    cells = [*main_cells(VED), *(variant("ved", setting) for setting in settings)]

    def judged(folder: str, device: str, fedavg: float, other: str = "") -> str:
        lab = lab_of(tmp_path / folder, cells, {"fedavg": fedavg}, device=device)
        for key, record in lab._known.items():
            kind = other if record.cell.method == "fedavg" else ""
            made = PROVENANCE | {"processor": kind}
            lab._known[key] = replace(record, facts=record.facts | {MADE_WITH: made})
        return verdict(lab, "C4").outcome

    assert judged("a", "NVIDIA H200", 50.4) == SUPPORTED  # 0.4 of 50 Wh in every seed
    assert judged("b", "NVIDIA H200", 50.6) == NOT_SUPPORTED
    assert judged("c", "cpu", 50.4) == NOT_SUPPORTED
    assert judged("d", "cpu", 50.4, other="another kind") == SUPPORTED  # as on a GPU


def test_graceful_degradation_is_that_of_its_own_error(tmp_path) -> None:
    fleet = "ved-electrified"
    grid = grid_of("scaling", VED, fleet)
    sizes = grid["fo-ri-fedavg"]
    for name, growth, outcome in (("flat", 1.2, SUPPORTED), ("steep", 1.3, NOT_SUPPORTED)):
        lab = lab_of(tmp_path / name, [*sizes, *grid["fedavg"]])
        last = lab.get(sizes[-1])
        assert last is not None
        lab._known[key_of(last.cell, SCALE)] = made(last.cell, 50.0 * growth)
        claim_verdict = verdict(lab, "C7")
        assert claim_verdict.outcome == outcome
        assert "declared estimated" in claim_verdict.sentences[-1]


def comparisons(sign: int, *ps: float) -> dict[str, Paired]:
    """Comparisons of three seeds with these p-values, all with differences of one sign."""
    difference = estimate([sign * 1.0, sign * 2.0, sign * 3.0])
    return {f"test {place}": Paired(difference, p) for place, p in enumerate(ps)}


@pytest.mark.parametrize(
    ("ps", "expected"),
    [
        ((0.04,), [True]),
        ((0.03, 0.04), [False, False]),  # Holm: 2 · 0.03 = 0.06 for both
        ((0.02, 0.04), [True, True]),  # 2 · 0.02 = 0.04, then 1 · 0.04
        ((0.04, 0.01, 0.03), [False, True, False]),  # 3 · 0.01, then 2 · 0.03 = 0.06 for the rest
    ],
)
def test_several_comparisons_are_corrected(ps: tuple[float, ...], expected: list[bool]) -> None:
    below = comparisons(-1, *ps)
    above = comparisons(1, *ps)
    assert list(lower_ones(below).values()) == list(higher_ones(above).values()) == expected
    assert not any(lower_ones(above).values()) and not any(higher_ones(below).values())


def test_a_comparison_that_divergence_decided_counts_among_the_others() -> None:
    decided = Paired(estimate([]), nan, first_lost=(), second_lost=(2,))
    assert lower_ones({"decided": decided, **comparisons(-1, 0.03)}) == {
        "decided": True,
        "test 0": False,
    }


def test_drift_of_a_single_participant_has_no_dispersion_to_lower(tmp_path) -> None:
    cells = [
        replace(plain("ved", m), participation=share)
        for m in ("fedavg", "ri-fedavg")
        for share in SHARES
    ]
    lab = lab_of(tmp_path, cells, {"ri-fedavg": 45.0})
    for key, record in lab._known.items():
        if record.cell.participation == 0.1:
            alone = {"participants": record.rounds["participants"] * 0 + 1}
            none = {"drift_cv": record.rounds["drift_cv"] * 0}
            lab._known[key] = replace(record, rounds={**record.rounds, **alone, **none})
    claim_verdict = verdict(lab, "C1")
    text = " ".join(claim_verdict.sentences)
    assert claim_verdict.outcome == SUPPORTED
    assert "D_cv, C = 0.1" not in text and "D_cv, C = 0.2" in text
    assert "At C = 0.1 one vehicle takes part, and D_cv does not exist." in text


def test_a_claim_without_all_its_cells_is_not_testable(tmp_path) -> None:
    regimes = stress_cells_of(VED, "ved")
    first = next(iter(regimes))
    gate = verdict(lab_of(tmp_path / "gate", list(regimes[first].values())), "C5")
    assert gate.outcome == NOT_TESTABLE
    assert gate.sentences == (
        "Cells that it needs have not run, FO-RI-FedAvg (beta_kappa = 0.5) first of all.",
    )
    few = [tuned(SCALE, "ved", m) for m in METHODS if m not in ("moon", "fedel")]
    assert verdict(lab_of(tmp_path / "few", few), "C6").outcome == NOT_TESTABLE


def test_a_method_that_tuning_made_another_one_is_called_that(tmp_path) -> None:
    cell = tuned(SCALE, "ved", "fo-ri-fedavg")
    lab = lab_of(tmp_path, [tuned(SCALE, "ved", "fedavg"), cell])
    for key, record in list(lab._known.items()):
        if record.cell.method == "fedavg" and record.cell.purpose == "trial":
            lab._known[key] = made(record.cell, 30.0)
    lab._settings.clear()
    assert left_of(made(lab.settled(cell))) == "tuned, it is FedAvg"


def test_budgets_of_tuning_are_told_as_they_were() -> None:
    messages = own_trials(SCALE, "ved")
    assert messages.startswith(f"{SCALE.trials} own trials of FedAvg, FedProx")
    assert messages.endswith("; 4 rates of MOON, FedEL, with one seed over 150 rounds")
    assert own_trials(SCALE, "ved-enriched") == "4 trials a method"
    assert set(METHODS) - set(fully_searched(VED, "ved")) == {"moon", "fedel"}
