"""Cells on the machines of a Ray cluster.

A task is what would train in one stack here, so its records are the same. What is run for its time
stays on this machine: times of different machines say nothing about methods. Every machine needs
the repository, whose root an editable install puts on Python's path.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from fedwatt.tuning.grid import fingerprint, run_cells
from fedwatt.windows import Fleet
from reproduction.cell import Cell, key_of
from reproduction.record import Record, read_record, write_record
from reproduction.scale import Scale
from reproduction.train import train_cell, train_cells

Group = tuple[Cell, ...]
Shared = tuple[Scale, Fleet, str]
"""Scale, vehicles and device of all tasks."""


def stays_here(cell: Cell) -> bool:
    """Return whether a cell is about this machine."""
    return cell.purpose == "time" or cell.work in ("latency", "turns")


def train_on_ray(
    groups: Sequence[Sequence[Cell]],
    shared: Shared,
    folder: Path,
    ray: str,
    on_record: Callable[[Cell, Record], None],
) -> None:
    """Train groups of cells on one fleet, each group a task.

    `on_record` is called with each record as it comes in.
    """
    scale, fleet, device = shared
    named = {fingerprint((tuple(group), fleet.data_hash())): tuple(group) for group in groups}

    def done(name: str, finished: int, of: int) -> None:
        for cell in named[name]:
            record = read_record(folder / name, key_of(cell, scale))
            assert record is not None  # a finished task has the records of all its cells
            on_record(cell, record)

    gpus = 1 if device == "cuda" else 0
    run_cells(named, train_group, folder, shared=shared, ray=ray, gpus=gpus, on_done=done)


def train_group(cells: Group, shared: Shared, folder: Path) -> None:
    """Train the cells of a task and write their records to `folder`."""
    for cell, record in zip(cells, train_group_here(cells, shared, _silent), strict=True):
        write_record(folder, key_of(cell, shared[0]), record)


def train_group_here(
    cells: Sequence[Cell], shared: Shared, on_round: Callable[[int, int], None]
) -> list[Record]:
    """Return the records of cells that train in one stack."""
    scale, fleet, device = shared
    if len(cells) > 1:
        return train_cells(cells, scale, fleet, device, on_round)
    return [train_cell(cells[0], scale, fleet, device, on_round)]


def _silent(done: int, rounds: int) -> None:
    """Ignore a round."""
