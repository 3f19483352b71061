"""Rounds of fleets of very different size with as many participants: time and memory of each.

Every fleet has a process of its own, whose memory can be told from that of the others; their rounds
are done in turns, so that all of them meet the same machine. The windows and the memory of all
fleets are on disk, of the small ones too, and each is evaluated on as many vehicles.
"""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from time import process_time
from typing import TYPE_CHECKING, Any

from fedwatt.errors import RunError

if TYPE_CHECKING:
    from fedwatt.federation import State

MB = 2**20


@dataclass(frozen=True)
class Rounds:
    """What the rounds of a method take with one fleet."""

    method: str
    vehicles: int
    seconds: float
    """Processor time of a round, median."""
    rounds_mb: float
    """The most that the process ever held in a round, above what it held before the first one."""
    own_mb: float
    """Of that, memory of its own between rounds, median; other memory are pages of files."""
    fleet_mb: float
    """What the process held before the first round beyond that of the smallest fleet."""
    disk_mb: float
    """The fleet's files."""


def bench_scale(
    vehicles: Sequence[int],
    methods: Sequence[str],
    *,
    participants: int = 100,
    trips: int = 10,
    steps: int = 20,
    rounds: int = 9,
    progress: Callable[[int, int], None] | None = None,
) -> list[Rounds]:
    """Rounds of every method on synthetic fleets of each size, in turns."""
    # Not forked: a fork would inherit the state of threads that it does not have.
    context = multiprocessing.get_context("spawn")
    pipes: dict[int, Connection] = {}
    workers = []
    for count in vehicles:
        pipes[count], end = context.Pipe()
        terms = (end, count, participants, trips, steps)
        workers.append(context.Process(target=_fleet, args=terms, daemon=True))
        workers[-1].start()
        end.close()
    try:
        built = {count: _answer(pipe) for count, pipe in pipes.items()}
        least = min(own["resting_mb"] for own in built.values())
        found = []
        for place, method in enumerate(methods):
            seen: dict[int, list[dict[str, float]]] = {count: [] for count in vehicles}
            for number in range(rounds + 1):
                for count, pipe in pipes.items():
                    pipe.send(method)
                    seen[count].append(_answer(pipe))
                if progress is not None:
                    progress(place * (rounds + 1) + number + 1, len(methods) * (rounds + 1))
            for count, own in seen.items():
                before = built[count]
                found.append(
                    Rounds(
                        method,
                        count,
                        # The first round of a method makes what the others find.
                        seconds=median(one["seconds"] for one in own[1:]),
                        rounds_mb=max(one["peak_mb"] for one in own) - before["resting_mb"],
                        own_mb=median(one["own_mb"] for one in own) - before["own_mb"],
                        fleet_mb=before["resting_mb"] - least,
                        disk_mb=before["disk_mb"],
                    )
                )
        return found
    finally:
        for pipe in pipes.values():
            pipe.close()
        for worker in workers:
            worker.join(10)
            worker.kill()


def as_rows(found: Sequence[Rounds]) -> list[dict[str, Any]]:
    """The results with their ratios to the smallest fleet of the same method."""
    least = min(one.vehicles for one in found)
    first = {one.method: one for one in found if one.vehicles == least}
    return [
        asdict(one)
        | {
            "time_ratio": one.seconds / first[one.method].seconds,
            "memory_ratio": one.rounds_mb / first[one.method].rounds_mb,
        }
        for one in found
    ]


def _answer(pipe: Connection) -> dict[str, float]:
    try:
        found: dict[str, float] = pipe.recv()
    except EOFError as error:
        raise RunError("A process of the benchmark ended early; see its own message.") from error
    return found


def _fleet(pipe: Connection, vehicles: int, participants: int, trips: int, steps: int) -> None:
    """A process with one fleet: a round of a method whenever it is asked for one."""
    import torch

    from fedwatt.federation import Federation, Training, state
    from fedwatt.methods import get
    from fedwatt.synthetic import synthetic_fleet
    from fedwatt.windows import paged

    torch.set_num_threads(1)
    paged.DENSE_BYTES = state.DENSE_BYTES = 0
    fleet = synthetic_fleet(vehicles, trips=trips)
    files = fleet.mapped.files if fleet.mapped is not None else ()
    training = Training(
        rounds=10**6,
        participation=participants / vehicles,
        steps=steps,
        evaluate_vehicles=participants,
    )
    federation = Federation(fleet, training=training, device="cpu")
    federation.pool.release()
    rest = _memory_mb()
    pipe.send(
        {
            "disk_mb": sum(file.size() for file in files) / MB,
            "resting_mb": rest["VmRSS"],
            "own_mb": rest["RssAnon"],
        }
    )
    name = ""
    method = get("fedavg")
    state: State | None = None
    while True:
        try:
            asked = pipe.recv()
        except EOFError:
            return
        if state is None or asked != name:
            name = asked
            method = get(asked)
            state, _ = federation.start(method)
        _forget_peak()
        begun = process_time()
        state, _ = federation.advance(method, state)
        seconds = process_time() - begun
        after = _memory_mb()
        pipe.send({"seconds": seconds, "peak_mb": after["VmHWM"], "own_mb": after["RssAnon"]})


def _memory_mb() -> dict[str, float]:
    """Memory of this process: VmRSS, its peak VmHWM, and RssAnon, that of no file."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {name: int(fields[name].split()[0]) / 1024 for name in ("VmHWM", "VmRSS", "RssAnon")}


def _forget_peak() -> None:
    """Let VmHWM begin anew (Linux, proc(5): clear_refs)."""
    with Path("/proc/self/clear_refs").open("wb") as file:
        os.write(file.fileno(), b"5")
