"""Progress of a reproduction: cells, core-hours, and a progress bar."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, nan
from typing import Any, Final, Self

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedwatt.federation.participation import participant_count
from fedwatt.report.table import ReportTable, TableColumn
from reproduction.cell import Cell, training_of
from reproduction.lab import Lab, all_cells, identity
from reproduction.record import CORE_SECONDS, Record
from reproduction.scale import Scale
from reproduction.study import Setting, Study, View

Steps = Mapping[tuple[str, str], float]
"""Method and network → core-seconds of a vehicle's local step, data and evaluation included."""
NETWORK: Final = "mlp"


@dataclass(frozen=True)
class StudyProgress:
    """Cells of a study on a dataset, and the core-hours of all and of those that have not run."""

    study: Study
    dataset: str
    cells: int
    missing: int
    hours: float
    hours_missing: float
    seeds: str
    """Lowest and highest number of seeds."""
    rounds: str


def local_steps(cell: Cell, scale: Scale, vehicles: int, windows: float) -> int:
    """Return the local steps of a cell on `vehicles` with `windows` training windows in all."""
    training = training_of(cell, scale)
    steps = ceil(windows / vehicles / training.batch) * training.epochs
    participants = participant_count(vehicles, cell.participation)
    return len(cell.seeds or scale.seeds) * training.rounds * participants * steps


def measured_steps(records: Iterable[Record], scale: Scale) -> Steps:
    """Return the mean core-seconds of a step, from the records that tell theirs."""
    seconds = Counter[tuple[str, str]]()
    steps = Counter[tuple[str, str]]()
    for record in records:
        fleet = record.facts["fleet"]
        kind = (record.cell.method, record.cell.model)
        if CORE_SECONDS in record.facts:
            seconds[kind] += record.facts[CORE_SECONDS]
            windows = fleet["windows"]["train"]
            steps[kind] += local_steps(record.cell, scale, fleet["vehicles"], windows)
    return {kind: seconds[kind] / steps[kind] for kind in steps}


def step_seconds(cell: Cell, steps: Steps) -> float:
    """Return the core-seconds of a cell's step: its method's, times its network's over the MLP's.

    NaN without a measurement of FedAvg, which stands for methods and networks without their own.
    """
    base = steps.get(("fedavg", NETWORK), nan)
    method = steps.get((cell.method, NETWORK), base)
    return method * steps.get(("fedavg", cell.model), base) / base


def progress(
    studies: Iterable[Study], view: View, records: Sequence[Record]
) -> list[StudyProgress]:
    """Return the progress of studies by dataset; the hours of a cell count where it first occurs.

    Sizes of fleets and the time of a step are those that `records` tell.
    """
    scale = view.setting.scale
    fleets = fleet_facts(records)
    steps = measured_steps(records, scale)
    rows = []
    seen = set[object]()
    for study in studies:
        results = {identity(cell, scale): cell for cell in study.cells(view.setting)}
        cells = {identity(cell, scale): cell for cell in all_cells(results.values(), scale)}
        for dataset in dict.fromkeys(cell.dataset for cell in cells.values()):
            here = {name: cell for name, cell in cells.items() if cell.dataset == dataset}
            missing = [name for name, cell in here.items() if view.get(cell) is None]
            hours = {name: cell_hours(cell, scale, fleets, steps) for name, cell in here.items()}
            result_cells = [cell for name, cell in results.items() if name in here]
            rows.append(
                StudyProgress(
                    study,
                    dataset,
                    len(here),
                    len(missing),
                    sum(hours[name] for name in here if name not in seen),
                    sum(hours[name] for name in missing),
                    _extent({len(cell.seeds or scale.seeds) for cell in result_cells}),
                    _extent({training_of(cell, scale).rounds for cell in result_cells}),
                )
            )
        seen |= set(cells)
    return rows


def fleet_facts(records: Iterable[Record]) -> dict[str, Mapping[str, Any]]:
    """Return dataset → description of its fleet with the usual vehicles and windows."""
    return {
        record.cell.dataset: record.facts["fleet"]
        for record in records
        if not record.cell.vehicles
        and not record.cell.stride
        and record.cell.partition == "natural"
    }


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
            TableColumn("Dataset"),
            TableColumn("Cells", "", 0),
            TableColumn("Not run", "", 0),
            TableColumn("Seeds"),
            TableColumn("Rounds"),
            TableColumn("Core-hours", "h", 2),
            TableColumn("To go", "h", 2),
        ),
        tuple(
            (
                row.study.name,
                row.dataset,
                float(row.cells),
                float(row.missing),
                row.seeds,
                row.rounds,
                row.hours,
                row.hours_missing,
            )
            for row in rows
        ),
        "Trials of tuning included. Core-hours follow from the local steps of a cell and the "
        "core-seconds of a step in records of its method and network; measurements of turns and "
        "latencies are left out. A cell of several studies counts in the first, but is to go in "
        "each.",
    )


def cell_hours(
    cell: Cell, scale: Scale, fleets: Mapping[str, Mapping[str, Any]], steps: Steps
) -> float:
    """Return the core-hours of a cell: 0 where nothing is trained or no fleet is known."""
    fleet = fleets.get(cell.dataset)
    if fleet is None or cell.work in ("latency", "turns"):
        return 0.0
    vehicles = cell.vehicles or fleet["vehicles"]
    windows = fleet["windows"]["train"] / fleet["vehicles"] * vehicles
    if cell.stride:
        windows *= dict(scale.strides).get(cell.dataset, scale.stride) / cell.stride
    return step_seconds(cell, steps) * local_steps(cell, scale, vehicles, windows) / 3600


def plan_table(lab: Lab, setting: Setting, studies: Sequence[Study]) -> Table:
    """Return the cells and core-hours of each study, in all and missing, for a terminal."""
    rows = progress_table(progress(studies, View(setting, lab), lab.every))
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
