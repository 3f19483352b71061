"""Equal rounds, bytes and compute: what a round costs, and that no comparison counts twice."""

import json
from dataclasses import replace

import pytest

from reproduction.budgets import against_fedavg, budgets_of, show_budgets
from reproduction.main_results import plain
from reproduction.page import LabView
from reproduction.round_cost import MEASURED, round_cost
from tests.reproduction.records import SCALE, VED, lab_of, made

MEASURED_TIMES = json.loads(MEASURED.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("method", "times"), [("fedavg", 1.0), ("scaffold", 2.0), ("fo-ri-fedavg", 1.0)]
)
def test_bytes_are_those_that_a_method_declares(method, times) -> None:
    cost = round_cost(made(plain("ved", method)), SCALE)
    assert cost.bytes == pytest.approx(times, abs=1e-3)  # FO-RI sends an index along


def test_probes_are_charged_as_often_as_they_are_made() -> None:
    # Every fifth round, and 0.8 of vehicles' first ones of 90; 60 steps of three participants.
    share = 1 / 5 + 0.8 / 90
    probe = share * MEASURED_TIMES["probe_in_steps"] / 20
    steps = MEASURED_TIMES["times_fedavg"]["fo-ri-fedavg"]
    own = plain("ved", "fo-ri-fedavg")
    assert round_cost(made(own), SCALE).compute == pytest.approx(steps + probe)
    seldom = round_cost(made(own.with_settings({"probe_every": 10})), SCALE).compute
    assert seldom == pytest.approx(steps + probe * (1 / 10 + 0.9 / 90) / share)


def test_a_method_without_its_mechanism_costs_what_is_left() -> None:
    off = made(plain("ved", "fo-ri-fedavg").with_settings({"alpha": 1.0, "lam": 0.0}))
    assert round_cost(off, SCALE).compute == 1.0
    fractional = made(plain("ved", "fo-ri-fedavg").with_settings({"lam": 0.0}))
    assert round_cost(fractional, SCALE) == round_cost(made(plain("ved", "fo-fedavg")), SCALE)


def test_budgets_of_equal_rounds_are_one_comparison(tmp_path) -> None:
    cells = [plain("ved", m) for m in ("fedavg", "scaffold", "fo-ri-fedavg", "fednova")]
    lab = lab_of(tmp_path, cells, {"scaffold": 48.0})
    view = LabView(VED, lab)
    assert list(budgets_of(lab.get(cells[1]), view)) == ["rounds", "bytes", "client compute"]
    assert list(budgets_of(lab.get(cells[2]), view)) == ["rounds and bytes", "client compute"]
    # A number more than FedAvg's does not cost a round.
    assert "bytes" in next(iter(budgets_of(lab.get(cells[3]), view)))
    found = against_fedavg(view, "ved", "scaffold")
    # The mean of the evaluations up to round 300, which are 2, 1.5 and 1 times the final error
    assert found["rounds"].difference.mean == pytest.approx(-2.004 * 1.5)
    # After half the rounds, the only evaluation is that of round 100: twice the final error.
    assert found["bytes"].difference.mean == pytest.approx((2 * 48 - 1.5 * 50) * 1.002)
    table = show_budgets(view).blocks[0].table
    assert sum(row[0] == "FO-RI-FedAvg" for row in table.rows) == 2


def test_a_dearer_probe_costs_more() -> None:
    own = plain("ved", "ri-fedavg")
    twice = own.with_settings({"directions": 20})
    usual, dear = (round_cost(made(cell), SCALE).compute for cell in (own, twice))
    steps = max(1.0, MEASURED_TIMES["times_fedavg"]["ri-fedavg"])
    assert dear - steps == pytest.approx(2 * (usual - steps))
    assert round_cost(made(replace(own, method="fedavg")), SCALE).compute == 1.0
