"""A cache of records and open fleets that trains the cells it lacks, in groups and in order."""

import fcntl
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from fedwatt.engine.pool import resolve_device
from fedwatt.errors import RunError
from fedwatt.files import writing
from fedwatt.methods import get
from fedwatt.windows import DataSettings, Fleet
from reproduction.cell import Cell, data_settings, key_of, trips_of
from reproduction.data import Selection, Sources, open_dataset
from reproduction.record import (
    Record,
    read_records,
    same_training,
    scale_of_records,
    setting_of_records,
    with_seeds,
    write_records,
)
from reproduction.scale import MANY, Scale
from reproduction.train import train_group
from reproduction.tuning import prerequisites, settled

if TYPE_CHECKING:
    from reproduction.study import Setting


TOGETHER: Final = 300
"""Trainings (cells times seeds) in one stack at most: with four participants, 1,200 models."""


@contextmanager
def exclusively(folder: Path) -> Iterator[None]:
    """Wait until nobody else, in this process or another, has `folder` exclusively.

    Who has it already must not ask again: that would wait for ever.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        # Not the folder itself: network file systems lock only what is open for writing.
        file = (folder / ".lock").open("w")
    with file:
        with writing(folder):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


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


class Observer(Protocol):
    """An observer of a reproduction."""

    def say(self, text: str) -> None:
        """Report a single event."""

    def cell_begins(self, cell: Cell) -> None:
        """Report that a cell is about to be trained."""

    def round_done(self, done: int, rounds: int) -> None:
        """Report that a round of it is over."""

    def cell_ends(self, cell: Cell, record: Record) -> None:
        """Report its record."""


@dataclass
class Lab:
    """The cache of a reproduction at one scale, and the means to fill it."""

    scale: Scale
    out: Path
    sources: Sources = field(default_factory=Sources)
    device: str = "auto"
    records: Path | None = None
    """Folder of compact records: read at the start and written at the end."""
    setting: dict[str, Any] = field(default_factory=dict)
    """Datasets the records were made for; empty where they do not say."""
    _fleets: dict[tuple[Selection, DataSettings], Fleet] = field(default_factory=dict)
    _hashes: dict[int, str] = field(default_factory=dict)
    _known: dict[str, Record] = field(default_factory=dict)
    _own: set[str] = field(default_factory=set)
    """Keys of records that are newer than those of the folder: trained here, or found in `out`."""
    _subsets: dict[str, Record] = field(default_factory=dict)
    """Records of some seeds, taken from records of all."""
    _settings: dict[Cell, Cell] = field(default_factory=dict)
    """Cells that follow others → with the settings that these led to."""

    def __post_init__(self) -> None:
        if self.records is not None:
            self._refuse_other_scale(self.records)
            self._known |= read_records(self.records)
            self.setting = setting_of_records(self.records)
        for folder in sorted(self.cells.glob("*")):
            for key, record in read_records(folder).items():
                before = self._known.get(key)
                if before is None or not same_training(before, record):
                    self._own.add(key)
                self._known[key] = record

    @property
    def cells(self) -> Path:
        """Return the cache of records."""
        return self.out / "cells"

    def get(self, cell: Cell) -> Record | None:
        """Return the record of a cell if it, and all it follows, has run."""
        concrete = self.settled(cell)
        return None if concrete is None else self._record(concrete)

    def _record(self, cell: Cell) -> Record | None:
        """Return the record of a cell with settings, or those seeds of the one with all seeds."""
        key = key_of(cell, self.scale)
        if key in self._known or not set(cell.seeds) < set(self.scale.seeds):
            return self._known.get(key)
        if key not in self._subsets:
            complete = self._known.get(key_of(replace(cell, seeds=()), self.scale))
            if complete is None:
                return None
            self._subsets[key] = with_seeds(complete, cell.seeds)
        return self._subsets[key]

    def settled(self, cell: Cell) -> Cell | None:
        """Return the cell with its settings; None while cells that it follows have not run."""
        if cell not in self._settings and (concrete := self._settled(cell)) is not None:
            self._settings[cell] = concrete
        return self._settings.get(cell)

    def run(self, cells: Iterable[Cell], observer: Observer) -> None:
        """Train what is missing, wave by wave: first what others follow, then these.

        On a GPU cells of one composition share a stack, which makes them nearly free. On a CPU
        each trains alone, so that its records do not depend on what else was asked for.
        """
        waiting = all_cells(cells, self.scale)
        while waiting:
            pairs = [(cell, self._settled(cell, observer)) for cell in waiting]
            ready = [concrete for _, concrete in pairs if concrete is not None]
            on_gpu = resolve_device(self.device).type == "cuda"
            groups = grouped(ready, self.scale) if on_gpu else [[cell] for cell in ready]
            missing = [
                [cell for cell in group if not self._has(cell, observer)] for group in groups
            ]
            self._train_all([group for group in missing if group], observer)
            waiting = [cell for cell, concrete in pairs if concrete is None]

    def save(self, setting: "Setting | None" = None) -> None:
        """Write the compact records, with all that they were made for so far.

        Others may have written to the same folder since it was read: what they added or trained
        anew stays, but for cells that were trained here as well.
        """
        if setting is not None:
            self.setting = _united(self.setting, setting.table)
        if self.records is None or not self._known:
            return
        with exclusively(self.records):
            self._refuse_other_scale(self.records)
            newer = {key: self._known[key] for key in self._own}
            self._known |= read_records(self.records) | newer
            self.setting = _united(setting_of_records(self.records), self.setting)
            write_records(self.records, self.scale.name, self._known, self.setting)

    def _refuse_other_scale(self, records: Path) -> None:
        other = scale_of_records(records)
        if other not in ("", self.scale.name):
            raise RunError(
                f"{records} holds records of the scale '{other}', not of '{self.scale.name}'. "
                "Choose another --records."
            )

    @property
    def every(self) -> list[Record]:
        """Return all records."""
        return list(self._known.values())

    def fleet(self, cell: Cell, say: Callable[[str], None] = lambda text: None) -> Fleet:
        """Return the vehicles of a cell."""
        identity = self.identity(cell)
        if identity not in self._fleets:
            folder = self.out / "data"
            self._fleets[identity] = open_dataset(*identity, self.sources, folder, say)
        return self._fleets[identity]

    def identity(self, cell: Cell) -> tuple[Selection, DataSettings]:
        """Return what determines the vehicles of a cell."""
        trips = trips_of(cell, self.scale)
        selection = (cell.dataset, cell.vehicles, cell.kind, cell.noisy, trips, cell.partition)
        return Selection(*selection), data_settings(cell, self.scale)

    def _settled(self, cell: Cell, observer: Observer | None = None) -> Cell | None:
        """Return the cell with its settings; None while cells that it follows have not run.

        With an observer, a record of other telemetry does not count.
        """
        before = []
        for prerequisite in prerequisites(cell, self.scale):
            concrete = self._settled(prerequisite, observer)  # it may follow others itself
            record = None if concrete is None else self.get(concrete)
            if concrete is None or record is None:
                return None
            if observer is not None and not self._has(concrete, observer):
                return None
            before.append(record)
        return settled(cell, before)

    def _has(self, cell: Cell, observer: Observer) -> bool:
        """Return whether a cell has a record, made on the telemetry that is there."""
        record = self._record(cell)
        fleet = self.fleet(cell, observer.say)
        return record is not None and record.facts["fleet"]["hash"] == self._hash(fleet)

    def _train_all(self, groups: Sequence[Sequence[Cell]], observer: Observer) -> None:
        """Train groups of cells, each on one fleet, and keep their records."""
        for group in groups:
            fleet = self.fleet(group[0], observer.say)
            for cell in group:
                observer.cell_begins(cell)
            records = train_group(group, self.scale, fleet, self.device, observer.round_done)
            for cell, record in zip(group, records, strict=True):
                key = key_of(cell, self.scale)
                write_records(self.cells / key, self.scale.name, {key: record}, {})
                self._known |= read_records(self.cells / key)
                self._own.add(key)
                observer.cell_ends(cell, record)
            self._subsets.clear()
            self._settings.clear()  # a trial that was trained anew may lead elsewhere

    def _hash(self, fleet: Fleet) -> str:
        """Return the hash of a fleet's telemetry, computed once."""
        if id(fleet) not in self._hashes:
            self._hashes[id(fleet)] = fleet.data_hash()
        return self._hashes[id(fleet)]


def _united(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Return the union of two settings, with the later one's fleet."""
    return {
        name: list(dict.fromkeys((*before.get(name, ()), *entries))) if name != "fleet" else entries
        for name, entries in (before | now).items()
    }
