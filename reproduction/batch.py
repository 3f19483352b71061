"""Many cells on one machine in a given time: processes share its GPU, others use its cores.

    python -m reproduction.batch PLAN --data DIR ... --out DIR --records DIR --seconds 480

PLAN is a list of cells, the important ones first (`fedwatt reproduce ... --write-plan PLAN`). Cells
of one composition train in one stack on the GPU, the largest stacks first; single cells train on
cores in the order of the list. When time is up, what is finished is kept, and the
same command continues. Needs neither polars nor anything that draws.
"""

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from math import ceil
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from fedwatt.federation.participation import participant_count
from fedwatt.files import write_text
from fedwatt.windows import DataSettings, Fleet
from reproduction.cell import Cell, key_of, run_config
from reproduction.data import Wanted, find_sources
from reproduction.lab import Lab
from reproduction.order import TOGETHER, all_cells, kind_of
from reproduction.record import cell_from, read_record
from reproduction.scale import Scale, scale_of
from reproduction.tasks import train_group

FORK: Final = multiprocessing.get_context("fork")  # children share the fleets that are open
BUILDERS: Final = 5
"""Fleets that are opened at a time."""
WINDOW: Final = 150
"""So many of the most important cells are looked at for the largest stack."""
GRACE_S: Final = 60
"""No stack is begun so shortly before time is up."""
STEP_S: Final = 1.3e-4
"""What a local step of the MLP takes one core, data and evaluation included (AMD EPYC)."""
LONGEST_S: Final = 300
"""What would take one core longer is left to the GPU, where there is one."""


Named = tuple[Wanted, DataSettings]
"""What determines a fleet."""


@dataclass
class Task:
    """A process, and what it was given."""

    process: BaseProcess
    cells: list[Cell]
    core: int | None
    begun: float = field(default_factory=time.monotonic)


@dataclass
class Batch:
    """What is wanted, what is known, and who is at work."""

    lab: Lab
    wanted: list[Cell]
    """All cells in the order of importance, each behind those that it follows."""
    cores: list[int]
    """Cores that train single cells."""
    stacks: int
    """Processes on the GPU; 0: there is none."""
    tasks: list[Task] = field(default_factory=list)
    builders: dict[Named, tuple[BaseProcess, Connection]] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    """Keys of cells whose training broke off."""
    closed: set[Named] = field(default_factory=set)
    """Fleets that cannot be opened."""
    concrete: dict[Cell, Cell] = field(default_factory=dict)
    """Cells whose settings are known, with these."""

    def ready(self) -> list[Cell]:
        """Cells that could begin, with their settings."""
        busy = {key_of(c, self.lab.scale) for task in self.tasks for c in task.cells}
        found: dict[str, Cell] = {}
        for cell in self.wanted:
            if cell not in self.concrete:
                own = self.lab.settled(cell)
                if own is None:
                    continue
                self.concrete[cell] = own
            concrete = self.concrete[cell]
            key = key_of(concrete, self.lab.scale)
            there = self.lab.wanted(concrete) not in self.closed
            if there and key not in busy | self.failed and not self.lab.knows(key):
                found.setdefault(key, concrete)
        return list(found.values())

    def open_fleets(self, ready: Sequence[Cell]) -> None:
        """Receive fleets that are open, and let the next ones be opened."""
        for name, (process, inbox) in list(self.builders.items()):
            if inbox.poll():
                try:
                    self.lab.add_fleet(name, inbox.recv())
                except EOFError:  # its own message is on the screen
                    self.closed.add(name)
                process.join()
                del self.builders[name]
        for cell in ready:
            name = self.lab.wanted(cell)
            if len(self.builders) == BUILDERS:
                return
            if name not in {*self.builders, *self.closed} and not self.lab.is_open(cell):
                inbox, outbox = FORK.Pipe(duplex=False)
                process = FORK.Process(target=_open, args=(self.lab, cell, outbox))
                process.start()
                outbox.close()
                self.builders[name] = process, inbox

    def begin(self, ready: list[Cell], left_s: float) -> None:
        """Give whoever is idle something to do, which leaves `ready`.

        A stack takes about as long with one training as with a hundred, so the GPU takes the kind
        of which most can begin; cores take single cells, the important ones first, of those that
        they can finish in the `left_s` seconds that are left.
        """
        scale = self.lab.scale
        while left_s > GRACE_S and sum(task.core is None for task in self.tasks) < self.stacks:
            stackable = [c for c in ready if c.work == "federated" and self.lab.is_open(c)]
            kinds: dict[object, list[Cell]] = {kind_of(c, scale): [] for c in stackable[:WINDOW]}
            for cell in stackable:
                kinds.get(kind_of(cell, scale), []).append(cell)
            if not kinds:
                break
            totals = {
                kind: list(accumulate(len(c.seeds or scale.seeds) for c in own))
                for kind, own in kinds.items()
            }
            most = max(totals, key=lambda kind: totals[kind][-1])
            fitting = sum(trainings <= TOGETHER for trainings in totals[most])
            group = kinds[most][: max(1, fitting)]
            self._start(group, None)
            for cell in group:
                ready.remove(cell)
        idle = [c for c in self.cores if all(task.core != c for task in self.tasks)]
        limit_s = min(left_s, LONGEST_S) if self.stacks else left_s
        for cell in list(ready):
            if idle and self._fits_a_core(cell, limit_s):
                self._start([cell], idle.pop())
                ready.remove(cell)

    def _fits_a_core(self, cell: Cell, limit_s: float) -> bool:
        """Whether one core trains it within a limit, and that would not break a large stack up."""
        single = not self.stacks or cell.purpose == "result" or len(cell.seeds) == 1
        if not (single and cell.model == "mlp" and self.lab.is_open(cell)):
            return False
        return core_seconds(cell, self.lab.scale, self.lab.fleet(cell)) <= limit_s

    def _start(self, cells: list[Cell], core: int | None) -> None:
        device = "cuda" if core is None else "cpu"
        shared = (self.lab.scale, self.lab.fleet(cells[0]), device)
        process = FORK.Process(target=_train, args=(tuple(cells), shared, self.lab.cells, core))
        process.start()
        self.tasks.append(Task(process, cells, core))

    def collect(self) -> bool:
        """Take up the records of processes that ended; whether any did."""
        ended = [task for task in self.tasks if not task.process.is_alive()]
        for task in ended:
            self.tasks.remove(task)
            lost = 0
            for cell in task.cells:
                key = key_of(cell, self.lab.scale)
                record = read_record(self.lab.cells, key)
                if record is None:
                    self.failed.add(key)
                    lost += 1
                else:
                    self.lab.add(key, record)
            first, place = task.cells[0], "GPU" if task.core is None else f"core {task.core}"
            print(
                f"{len(task.cells)} cells like {first.dataset} {first.partition} {first.method} "
                f"on the {place}: {time.monotonic() - task.begun:.0f} s"
                + (f", {lost} FAILED" if lost else ""),
                flush=True,
            )
        return bool(ended)

    def stop(self) -> None:
        """End all processes; what they had not finished is lost."""
        for process in [t.process for t in self.tasks] + [p for p, _ in self.builders.values()]:
            process.terminate()
        self.collect()


def run(batch: Batch, seconds: float) -> None:
    """Train until everything is done or time is up."""
    end = time.monotonic() + seconds
    ready = batch.ready()
    while (ready or batch.tasks) and time.monotonic() < end:
        batch.open_fleets(ready)
        batch.begin(ready, end - time.monotonic())
        time.sleep(0.2)
        if batch.collect():
            ready = batch.ready()
        elif not batch.tasks and time.monotonic() > end - GRACE_S:
            break
    batch.stop()
    left = len(batch.ready())
    print(f"{batch.lab.count} records; {left} cells could begin now", flush=True)


def _open(lab: Lab, cell: Cell, outbox: Connection) -> None:
    outbox.send(lab.opened(cell))


def _train(
    cells: tuple[Cell, ...], shared: tuple[object, Fleet, str], folder: Path, core: int | None
) -> None:
    if core is not None:
        os.sched_setaffinity(0, {core})
    train_group(cells, shared, folder)  # type: ignore[arg-type]


def core_seconds(cell: Cell, scale: Scale, fleet: Fleet) -> float:
    """About how long one core takes to train a cell of the MLP: its local steps."""
    config, vehicles = run_config(cell, scale), len(fleet.clients)
    training = config.training
    windows = sum(len(client.ends["train"]) for client in fleet.clients) / vehicles
    asked = participant_count(vehicles, training.participation)
    a_round = asked * training.epochs * ceil(windows / training.batch)
    return STEP_S * len(config.seeds) * training.rounds * a_round


def write_plan(path: Path, cells: Sequence[Cell]) -> None:
    """The cells as a file."""
    write_text(path, json.dumps([asdict(cell) for cell in cells]) + "\n")


def main() -> None:
    """Carry out a plan."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plan", type=Path)
    parser.add_argument("--scale", default="paper")
    parser.add_argument("--data", type=Path, nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=Path("runs/reproduction"))
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--stacks", type=int, default=3, help="processes on the GPU; 0: none")
    parser.add_argument("--cores", type=int, default=0, help="cores that train single cells")
    asked = parser.parse_args()
    scale = scale_of(asked.scale)
    lab = Lab(scale, asked.out / scale.name, find_sources(asked.data), records=asked.records)
    plan = [cell_from(table) for table in json.loads(asked.plan.read_text(encoding="utf-8"))]
    cores = sorted(os.sched_getaffinity(0))[: asked.cores]
    batch = Batch(lab, all_cells(plan, scale), cores, asked.stacks)
    try:
        run(batch, asked.seconds)
    finally:
        lab.save()


if __name__ == "__main__":
    main()
