"""The map of engagement: every point stands beside FedAvg at its best learning rate."""

import pytest

from reproduction.cell import key_of
from reproduction.controls import ENGAGEMENT, engagement_cells_of
from reproduction.study import View
from reproduction.tuning import settled
from tests.reproduction.records import SCALE, VED, lab_of, made

REGIME = "severe skew"


def view_of(tmp_path, **more) -> View:
    cells = engagement_cells_of(VED, REGIME)
    ran = [cells[name] for name in ("FedAvg, tuned", "FO-FedAvg, α = 0.8", "FO-FedAvg, α = 0.5")]
    return View(VED, lab_of(tmp_path, ran, **more))


def rows(view: View) -> dict[str, tuple]:
    """Name → the other cells of each row of the regime's table."""
    tables = {block.table.name: block.table for block in ENGAGEMENT.show(view).blocks}
    return {row[0]: row[1:] for row in tables["engagement-severe-skew"].rows}


def test_a_point_that_diverged_has_lost_and_is_shown_so(tmp_path) -> None:
    output = rows(view_of(tmp_path, diverged={"fo-fedavg": {2: 200}}))
    for change in ("α = 0.8", "α = 0.5"):
        name = f"FO-FedAvg, {change}"
        assert output[name][1] == f"{name} diverged in seed 2"


def test_a_point_below_fedavg_is_lower(tmp_path) -> None:
    output = rows(view_of(tmp_path, levels={"fo-fedavg": 45.0}))
    assert output["FO-FedAvg, α = 0.8"][1].mean < 0


def test_the_control_has_the_length_of_fos_steps(tmp_path) -> None:
    view = view_of(tmp_path, step_scale={"length": 0.2, "coordinate": 0.2})
    assert rows(view)["FedAvg at FO's mean step"][0] == "not run"
    cells = engagement_cells_of(VED, REGIME)
    fo = view.get(cells["FO-FedAvg, α = 0.8"])
    matched = settled(cells["FedAvg at FO's mean step"], [fo])
    best = dict(fo.cell.settings)["learning_rate"]
    assert dict(matched.settings) == {"learning_rate": float(f"{0.2 * best:.4g}")} and best != 0.05
    view.lab._known[key_of(matched, SCALE)] = made(matched, 49.0)
    assert rows(view)["FedAvg at FO's mean step"][0].mean == pytest.approx(49, abs=0.5)
