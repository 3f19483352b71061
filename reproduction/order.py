"""In which order cells run, and which of them share a stack."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Final

from fedwatt.methods import get
from reproduction.cell import Cell, key_of
from reproduction.scale import MANY, Scale
from reproduction.settle import prerequisites

TOGETHER: Final = 300
"""Trainings (cells times seeds) in one stack at most: with four participants, 1,200 models."""


def all_cells(cells: Iterable[Cell], scale: Scale) -> list[Cell]:
    """Return the cells and all that they follow, each once, in the order in which they run."""
    ordered: dict[str | Cell, Cell] = {}
    for cell in cells:
        for needed in (*all_cells(prerequisites(cell, scale), scale), cell):
            ordered.setdefault(identity(needed, scale), needed)
    return list(ordered.values())


def identity(cell: Cell, scale: Scale) -> str | Cell:
    """Return a key under which cells that differ only in how their settings are written are one."""
    return cell if cell.follow else key_of(cell, scale)


def grouped(cells: Sequence[Cell], scale: Scale) -> list[list[Cell]]:
    """Return groups of cells that can train in one stack.

    What is run for its time, a large fleet, and what is no federation stays alone.
    """
    groups_by_kind: dict[Hashable, list[list[Cell]]] = {}
    for cell in cells:
        groups = groups_by_kind.setdefault(kind_of(cell, scale), [[]])
        if sum(len(member.seeds or scale.seeds) for member in (*groups[-1], cell)) > TOGETHER:
            groups.append([])
        groups[-1].append(cell)
    return [group for groups in groups_by_kind.values() for group in groups if group]


def kind_of(cell: Cell, scale: Scale) -> Hashable:
    """Return the properties that cells of one stack share; rates and seeds may differ."""
    if cell.purpose == "time" or cell.work != "federated" or cell.vehicles > MANY:
        return cell
    rules = tuple(type(rule).__name__ for rule in get(cell.method).local)
    fleet = (cell.dataset, cell.vehicles, cell.partition, cell.split, cell.kind, cell.noisy)
    work = (cell.model, cell.stride, cell.causal, cell.rounds or scale.rounds)
    return (fleet, work, rules)
