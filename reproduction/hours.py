"""Core-hours of cells and studies on one core of an AMD EPYC."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from fedwatt.federation.participation import participant_count
from fedwatt.report.table import ReportTable, TableColumn
from reproduction.cell import Cell, run_config
from reproduction.order import all_cells, identity
from reproduction.scale import Scale
from reproduction.study import Study, View

STEP_S: Final = 6.5e-5
"""A vehicle's local step with the MLP, data and evaluation included; within 15 % over 60 cells."""
SLOWER: Final = {"moon": 6.0, "fedel": 4.5}
"""Method → multiple of that step."""
RECURRENT: Final = {"mlp": 1.0, "gru": 24.0, "lstm": 26.0}
"""Network → multiple of that step, from CPU time of 80 steps."""


@dataclass(frozen=True)
class Progress:
    """Cells of a study that have run, and the core-hours of all and of the missing ones."""

    study: Study
    cells: int
    missing: int
    hours: float
    hours_missing: float
    seeds: tuple[int, ...]
    """Lowest and highest number of seeds of its results."""
    rounds: tuple[int, ...]

    @property
    def complete(self) -> bool:
        """Tell whether all cells have run."""
        return self.missing == 0 < self.cells


def cell_hours(cell: Cell, scale: Scale, vehicles: int, windows: int) -> float:
    """Return the core-hours of a cell on a fleet with so many vehicles and training windows."""
    if cell.work in ("latency", "turns"):
        return 0.1
    training = run_config(cell, scale).training
    seeds = len(cell.seeds or scale.seeds)
    steps = ceil(windows / vehicles / training.batch) * training.epochs
    participants = participant_count(vehicles, cell.participation)
    factor = SLOWER.get(cell.method, 1.0) * RECURRENT[cell.model]
    return STEP_S * factor * seeds * training.rounds * participants * steps / 3600


def progress(studies: Iterable[Study], view: View, facts: Iterable[Any]) -> list[Progress]:
    """Return the progress of studies; a cell counts where it first occurs.

    `facts` describe recorded fleets, from which sizes of those that have not been opened follow.
    """
    scale = view.setting.scale
    fleets: dict[str, Mapping[str, Any]] = {}
    for dataset, fleet in facts:
        fleets.setdefault(dataset, fleet)
    rows = []
    seen = set[object]()
    for study in studies:
        results = {identity(cell, scale): cell for cell in study.cells(view.setting)}
        cells = {identity(cell, scale): cell for cell in all_cells(results.values(), scale)}
        missing = {name for name, cell in cells.items() if view.get(cell) is None}
        hours = {name: _hours(cell, scale, fleets) for name, cell in cells.items()}
        configs = [run_config(cell, scale) for cell in results.values() if not cell.follow] + [
            run_config(_plain(cell), scale) for cell in results.values() if cell.follow
        ]
        seeds = sorted({len(config.seeds) for config in configs})
        rounds = sorted({config.training.rounds for config in configs})
        rows.append(
            Progress(
                study,
                len(cells),
                len(missing),
                sum(hours[name] for name in cells if name not in seen),
                sum(hours[name] for name in missing),
                tuple(dict.fromkeys((seeds[0], seeds[-1]))) if seeds else (),
                tuple(dict.fromkeys((rounds[0], rounds[-1]))) if rounds else (),
            )
        )
        seen |= set(cells)
    return rows


def progress_table(rows: Iterable[Progress]) -> ReportTable:
    """Return the progress of studies as a table."""
    return ReportTable(
        "studies",
        "Studies: cells, seeds, rounds and core-hours",
        (
            TableColumn("Study"),
            TableColumn("Cells", "", 0),
            TableColumn("Not run", "", 0),
            TableColumn("Seeds"),
            TableColumn("Rounds"),
            TableColumn("Core-hours", "h", 1),
            TableColumn("To go", "h", 1),
        ),
        tuple(
            (
                row.study.name,
                float(row.cells),
                float(row.missing),
                " to ".join(map(str, row.seeds)),
                " to ".join(map(str, row.rounds)),
                row.hours,
                row.hours_missing,
            )
            for row in rows
        ),
        "Trials of tuning included. Core-hours of one core of an AMD EPYC, from local steps; a "
        "cell of several studies counts in the first, but is to go in each.",
    )


def _plain(cell: Cell) -> Cell:
    return cell.with_settings({})


def _hours(cell: Cell, scale: Scale, fleets: Mapping[str, Mapping[str, Any]]) -> float:
    fleet = fleets.get(cell.dataset)
    if fleet is None:
        return 0.0
    vehicles = cell.vehicles or fleet["vehicles"]
    windows = fleet["windows"]["train"] / fleet["vehicles"] * vehicles
    if cell.stride:
        windows *= dict(scale.strides).get(cell.dataset, scale.stride) / cell.stride
    return cell_hours(_plain(cell), scale, vehicles, round(windows))
