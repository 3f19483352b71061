"""The map of engagement: diverged points are shown as such, and lose."""

from dataclasses import replace

from reproduction.cell import key_of
from reproduction.engagement import (
    control,
    controlled,
    differences,
    map_cells,
    reference,
    show_engagement,
)
from reproduction.page import LabView
from reproduction.settle import settled
from tests.reproduction.records import SCALE, VED, lab_of, made

REGIME = "severe skew"


def view_of(tmp_path, **more) -> LabView:
    cells = map_cells(VED, REGIME)
    wanted = [reference(VED, REGIME), *(cells[k] for k in cells if k[0] == "fo-fedavg")]
    return LabView(VED, lab_of(tmp_path, [replace(c) for c in wanted], **more))


def test_a_point_that_diverged_has_lost_and_is_shown_so(tmp_path) -> None:
    view = view_of(tmp_path, diverged={"fo-fedavg": {2: 200}})
    points = differences(view)
    assert len(points) == 2
    assert all(point.higher and not point.lower for point in points)
    blocks = {block.table.name: block.table for block in show_engagement(view).blocks}
    assert {row[2] for row in blocks["engagement-severe-skew"].rows} == {"it diverged in seed 2"}


def test_a_point_below_fedavg_is_lower(tmp_path) -> None:
    view = view_of(tmp_path, levels={"fo-fedavg": 45.0})
    assert [point.lower for point in differences(view)] == [True, True]


def test_the_control_has_the_length_of_fos_steps_and_is_no_point_of_the_map(tmp_path) -> None:
    view = view_of(tmp_path, step_scale={"length": 0.2, "coordinate": 0.2})
    assert controlled(view, REGIME) is None  # it has not run
    fo = view.get(map_cells(VED, REGIME)["fo-fedavg", "α = 0.8"])
    own = settled(control(VED, REGIME), [fo])
    best = dict(fo.cell.settings)["learning_rate"]
    assert dict(own.settings) == {"learning_rate": float(f"{0.2 * best:.4g}")} and best != 0.05
    view.lab._known[key_of(own, SCALE)] = made(own, 49.0)
    assert len(differences(view)) == 2
    blocks = {block.table.name: block.table for block in show_engagement(view).blocks}
    assert blocks["engagement-severe-skew"].rows[-1][:2] == ("FedAvg", "FO's mean step")
