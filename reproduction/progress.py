"""Progress of a reproduction: a bar in a terminal, a line per cell elsewhere."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from reproduction.cell import Cell
from reproduction.lab import Lab
from reproduction.order import all_cells
from reproduction.record import Record


def progress_for(console: Console, cells: Sequence[Cell], lab: Lab) -> "CellProgress":
    """Return the view of a run over `cells` and all they follow."""
    missing = [cell for cell in all_cells(cells, lab.scale) if lab.get(cell) is None]
    return CellProgress(console, len(missing))


class CellProgress:
    """Cells done of all that are missing, with the one at work and its rounds."""

    def __init__(self, console: Console, total: int) -> None:
        self.console = console
        self.total = total
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
        self.task = self.progress.add_task("Reproducing", total=total, now="")

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
    """Return a cell in a few words.

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
    words += [word for word in (cell.work, cell.follow, cell.purpose) if word not in _USUAL]
    return " ".join(words)


_USUAL = ("federated", "", "result")
