"""Progress of a reproduction: cells, core-hours on one core of an AMD EPYC, and a progress bar."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final, Self

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedwatt.federation.participation import participant_count
from fedwatt.report.table import ReportTable, TableColumn
from fedwatt.runs.provenance import describe_fleet
from reproduction.cell import Cell, run_config
from reproduction.lab import Lab, all_cells, identity
from reproduction.record import Record
from reproduction.scale import Scale
from reproduction.study import LabView, Setting, Study, View

STEP_S: Final = 6.5e-5
"""A vehicle's local step with the MLP, data and evaluation included; within 15 % over 60 cells."""
SLOWER: Final = {"moon": 6.0, "fedel": 4.5}
"""Method → multiple of that step."""
RECURRENT: Final = {"mlp": 1.0, "gru": 24.0, "lstm": 26.0}
"""Network → multiple of that step, from CPU time of 80 steps."""


@dataclass(frozen=True)
class StudyProgress:
    """Cells of a study that have run, and the core-hours of all and of the missing ones."""

    study: Study
    cells: int
    missing: int
    hours: float
    hours_missing: float
    seeds: str
    """Lowest and highest number of seeds of its results."""
    rounds: str

    @property
    def complete(self) -> bool:
        """Return whether all cells have run."""
        return self.missing == 0 < self.cells


def cell_hours(cell: Cell, scale: Scale, vehicles: int, windows: int) -> float:
    """Return the core-hours of a cell on a fleet of `vehicles` with `windows` training windows."""
    if cell.work in ("latency", "turns"):
        return 0.1
    training = run_config(cell, scale).training
    seeds = len(cell.seeds or scale.seeds)
    steps = ceil(windows / vehicles / training.batch) * training.epochs
    participants = participant_count(vehicles, cell.participation)
    factor = SLOWER.get(cell.method, 1.0) * RECURRENT[cell.model]
    return STEP_S * factor * seeds * training.rounds * participants * steps / 3600


def progress(studies: Iterable[Study], view: View, facts: Iterable[Any]) -> list[StudyProgress]:
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
        missing = [name for name, cell in cells.items() if view.get(cell) is None]
        hours = {name: _hours(cell, scale, fleets) for name, cell in cells.items()}
        configs = [run_config(cell.with_settings({}), scale) for cell in results.values()]
        seeds = {len(config.seeds) for config in configs}
        rounds = {config.training.rounds for config in configs}
        rows.append(
            StudyProgress(
                study,
                len(cells),
                len(missing),
                sum(hours[name] for name in cells if name not in seen),
                sum(hours[name] for name in missing),
                _extent(seeds),
                _extent(rounds),
            )
        )
        seen |= set(cells)
    return rows


def _extent(numbers: set[int]) -> str:
    """Return the lowest and the highest of some numbers, as in "20 to 150"."""
    ordered = sorted(numbers)
    return " to ".join(str(number) for number in sorted({*ordered[:1], *ordered[-1:]}))


def progress_table(rows: Iterable[StudyProgress]) -> ReportTable:
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
                row.seeds,
                row.rounds,
                row.hours,
                row.hours_missing,
            )
            for row in rows
        ),
        "Trials of tuning included. Core-hours of one core of an AMD EPYC, from local steps; a "
        "cell of several studies counts in the first, but is to go in each.",
    )


def _hours(cell: Cell, scale: Scale, fleets: Mapping[str, Mapping[str, Any]]) -> float:
    fleet = fleets.get(cell.dataset)
    if fleet is None:
        return 0.0
    vehicles = cell.vehicles or fleet["vehicles"]
    windows = fleet["windows"]["train"] / fleet["vehicles"] * vehicles
    if cell.stride:
        windows *= dict(scale.strides).get(cell.dataset, scale.stride) / cell.stride
    return cell_hours(cell.with_settings({}), scale, vehicles, round(windows))


def plan_table(lab: Lab, setting: Setting, studies: Sequence[Study]) -> Table:
    """Return the cells and core-hours of each study, in all and missing, for a terminal."""
    names = dict.fromkeys((*setting.ved, *setting.eved, setting.fleet))
    fleets = [(name, describe_fleet(lab.fleet(Cell(dataset=name, method="")))) for name in names]
    rows = progress_table(progress(studies, LabView(setting, lab), fleets))
    table = Table(title=f"Plan at scale '{lab.scale.name}': {lab.scale.what_for}")
    for column in rows.columns:
        table.add_column(column.title, justify="left" if column is rows.columns[0] else "right")
    for row in rows.text_rows():
        table.add_row(*row)
    table.caption = rows.note
    return table


class CellProgress:
    """A bar over the missing cells in a terminal, a line per cell elsewhere."""

    def __init__(self, console: Console, cells: Sequence[Cell], lab: Lab) -> None:
        self.console = console
        self.total = sum(lab.get(cell) is None for cell in all_cells(cells, lab.scale))
        self.done = 0
        self.begun_at = time.monotonic()
        self.progress = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("cells  {task.fields[now]}", markup=False),
            TimeRemainingColumn(),
            console=console,
            expand=True,
            disable=not console.is_terminal,
        )
        self.task = self.progress.add_task("Reproducing", total=self.total, now="")

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the bar on the screen."""
        self.progress.stop()

    def say(self, text: str) -> None:
        """Print a line."""
        self.console.print(text, highlight=False, soft_wrap=True)

    def cell_begins(self, cell: Cell) -> None:
        """Name the cell."""
        self.begun_at = time.monotonic()
        self.progress.update(self.task, now=describe(cell))

    def round_done(self, done: int, rounds: int) -> None:
        """Let the bar follow the rounds of the cell."""
        share = self.done + done / max(rounds, 1)
        self.progress.update(self.task, completed=min(share, self.total))

    def cell_ends(self, cell: Cell, record: Record) -> None:
        """Advance the bar, or print a line with the error."""
        self.done += 1
        self.total = max(self.total, self.done)
        self.progress.update(self.task, completed=self.done, total=self.total)
        if not self.console.is_terminal:
            errors = list(record.final("test_rmse").values())
            error = (
                f"{np.mean(errors):.2f} Wh" if errors else "diverged" if record.diverged else "–"
            )
            took = time.monotonic() - self.begun_at
            self.say(f"[{self.done}/{self.total}] {describe(cell)}: {error}, {took:.1f} s")


def describe(cell: Cell) -> str:
    """Describe a cell in a few words.

    >>> describe(Cell(dataset="ved", method="fo-fedavg", settings=(("alpha", 0.7),)))
    'ved fo-fedavg alpha=0.7'
    """
    usual = Cell(dataset="", method="")
    words = [cell.dataset, cell.method]
    words += [f"{n}={v:g}" if isinstance(v, float) else f"{n}={v}" for n, v in cell.settings]
    for name in ("vehicles", "kind", "noisy", "model", "participation", "p_leave", "p_join"):
        value = getattr(cell, name)
        if value != getattr(usual, name):
            words.append(f"{name}={value}")
    usual_words = ("federated", "", "result")
    words += [word for word in (cell.work, cell.follow, cell.purpose) if word not in usual_words]
    return " ".join(words)
