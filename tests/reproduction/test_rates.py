"""Validation error by rate: every trial in its place."""

from dataclasses import replace

from reproduction.conditions import BASE, conditions_of
from reproduction.study import View
from reproduction.tuning_results import rate_conditions, show_rates, tried
from tests.reproduction.records import VED, lab_of


def test_trials_stand_at_their_rates(tmp_path) -> None:
    name, (title, base) = next(iter(rate_conditions(VED).items()))
    assert name == "stride-ved" and base == conditions_of("stride", VED)[0].cells[BASE]
    cells = tried(VED, base, "fo-fedavg")
    assert list(cells) == [0.0015, 0.005, 0.015, 0.05, 0.15]
    assert {(cell.stride, cell.method) for cell in cells.values()} == {(1, "fo-fedavg")}
    # Of FedAvg's trials the second one, at rate 0.0015, ends at 40 and the others at 60; beyond
    # the range nothing has run.
    view = View(VED, lab_of(tmp_path, [replace(base, method="fedavg")]))
    table = show_rates(view)
    (block,) = table.blocks
    (picture,) = table.pictures
    (remark,) = table.remarks
    assert block.table.title == f"Validation RMSE by learning rate. {title}"
    assert [round(entry.mean, 2) for entry in block.table.rows[0][1:]] == [40.0] + [60.0] * 3
    assert set(block.table.rows[1][1:]) == {"not run"}
    assert picture.name == "rates-stride-ved"
    assert remark.endswith(f"a better one may lie beyond: FedAvg, {title}: the lowest.")
