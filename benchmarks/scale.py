"""Large fleets: results/scale.json and the sentences of docs/scale.md.

    python benchmarks/scale.py           measure, then write the page
    python benchmarks/scale.py --write   write the page from the record

Rounds of 100, 1,000 and 10,000 synthetic vehicles with 100 participants; the server's time per
upload; 300 simulated rounds of the traffic of a million vehicles. About a quarter of an hour on two
quiet cores, most of it for making 11,100 vehicles.

Every fleet has a process of its own, whose memory can be told from that of the others; their rounds
take turns, so that all of them meet the same machine. Windows and client state of all fleets are on
disk, and each is evaluated on as many vehicles.
"""

import argparse
import json
import multiprocessing
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from time import process_time
from typing import TYPE_CHECKING, Any

from benchmarks.machine import machine
from benchmarks.marked import write_blocks
from benchmarks.server import method_loads
from benchmarks.traffic import LargeFleet, churn, simulate_methods
from fedwatt.errors import RunError
from fedwatt.files import write_text
from fedwatt.methods import get
from fedwatt.methods.method import costs
from fedwatt.models import get_model
from fedwatt.report.style import name_of

if TYPE_CHECKING:
    from fedwatt.federation import State

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "scale.json"
PAGE = ROOT / "docs" / "scale.md"

SIZES = (100, 1_000, 10_000)
PARTICIPANTS = 100
TRIPS = 10
STEPS = 20
ROUNDS = 9
TRAINED = ("fedavg", "scaffold")
COUNTED = ("fedavg", "fo-ri-fedavg", "scaffold", "fednova", "fedadam", "moon", "feddyn", "fedel")
AVAILABLE = 0.2
LEAVE = 0.02
LOSS = 0.05
PAPER_ROUNDS = 300
MB = 2**20


@dataclass(frozen=True)
class Rounds:
    """Time and memory of the rounds of a method with one fleet."""

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
        least = min(answers["resting_mb"] for answers in built.values())
        results = []
        for place, method in enumerate(methods):
            seen: dict[int, list[dict[str, float]]] = {count: [] for count in vehicles}
            for number in range(rounds + 1):
                for count, pipe in pipes.items():
                    pipe.send(method)
                    seen[count].append(_answer(pipe))
                if progress is not None:
                    progress(place * (rounds + 1) + number + 1, len(methods) * (rounds + 1))
            for count, answers in seen.items():
                before = built[count]
                results.append(
                    Rounds(
                        method,
                        count,
                        # The first round of a method makes what the others find.
                        seconds=median(answer["seconds"] for answer in answers[1:]),
                        rounds_mb=max(answer["peak_mb"] for answer in answers)
                        - before["resting_mb"],
                        own_mb=median(answer["own_mb"] for answer in answers) - before["own_mb"],
                        fleet_mb=before["resting_mb"] - least,
                        disk_mb=before["disk_mb"],
                    )
                )
        return results
    finally:
        for pipe in pipes.values():
            pipe.close()
        for worker in workers:
            worker.join(10)
            worker.kill()


def as_rows(results: Sequence[Rounds]) -> list[dict[str, Any]]:
    """The results with their ratios to the smallest fleet of the same method."""
    least = min(result.vehicles for result in results)
    first = {result.method: result for result in results if result.vehicles == least}
    return [
        asdict(result)
        | {
            "time_ratio": result.seconds / first[result.method].seconds,
            "memory_ratio": result.rounds_mb / first[result.method].rounds_mb,
        }
        for result in results
    ]


def _answer(pipe: Connection) -> dict[str, float]:
    try:
        answer: dict[str, float] = pipe.recv()
    except EOFError as error:
        raise RunError("A process of the benchmark ended early; see its own message.") from error
    return answer


def _fleet(pipe: Connection, vehicles: int, participants: int, trips: int, steps: int) -> None:
    """A process with one fleet: a round of a method whenever it is asked for one."""
    import torch

    from fedwatt.federation import Federation, Training
    from fedwatt.federation import state as client_state
    from fedwatt.methods import get
    from fedwatt.synthetic import synthetic_fleet
    from fedwatt.windows import paged

    torch.set_num_threads(1)
    paged.DENSE_BYTES = client_state.DENSE_BYTES = 0
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
    resting = _memory_mb()
    pipe.send(
        {
            "disk_mb": sum(file.size() for file in files) / MB,
            "resting_mb": resting["VmRSS"],
            "own_mb": resting["RssAnon"],
        }
    )
    name = ""
    method = get("fedavg")
    state: State | None = None
    while True:
        try:
            method_name = pipe.recv()
        except EOFError:
            return
        if state is None or method_name != name:
            name = method_name
            method = get(method_name)
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


def measure() -> dict[str, Any]:
    """Return the record: rounds of three fleets, and the traffic of a million vehicles."""
    return {
        "machine": machine(),
        "rounds": {
            "participants": PARTICIPANTS,
            "trips": TRIPS,
            "steps": STEPS,
            "rounds": ROUNDS,
            "rows": as_rows(
                bench_scale(
                    SIZES,
                    TRAINED,
                    participants=PARTICIPANTS,
                    trips=TRIPS,
                    steps=STEPS,
                    rounds=ROUNDS,
                    progress=lambda done, of: print(f"rounds: {done} of {of}", flush=True),
                )
            ),
        },
        "traffic": on_paper(),
    }


def on_paper() -> dict[str, Any]:
    """Simulate the traffic of a million vehicles with every method."""
    fleet = LargeFleet()
    loads = method_loads(COUNTED)
    traffic = simulate_methods(fleet, loads, churn(AVAILABLE, LEAVE, LOSS), rounds=PAPER_ROUNDS)
    methods = {}
    for name, load in traffic.items():
        base = get_model("mlp", window=60, features=8)
        cost = costs(get(name), base)
        methods[name] = (
            asdict(loads[name])
            | {"vehicle_bytes": 4 * cost.vehicle, "server_bytes": 4 * cost.server}
            | load.summary()
        )
    return {
        "fleet": asdict(fleet),
        "available": AVAILABLE,
        "p_leave": LEAVE,
        "reply_loss": LOSS,
        "methods": methods,
    }


def tables(record: dict[str, Any]) -> dict[str, str]:
    """Return the sentences of the page by the name of their place."""
    return {"rounds": about_rounds(record)} | about_traffic(record["traffic"])


def about_rounds(record: dict[str, Any]) -> str:
    """Return the time and memory of a round in the smallest and the largest fleet."""
    rounds = record["rounds"]
    computer = record["machine"]
    costs_of_methods = []
    for method in TRAINED:
        rows = [row for row in rounds["rows"] if row["method"] == method]
        cells = " and ".join(
            f"{row['seconds']:.2f} s, {row['rounds_mb']:.0f} MB with {row['vehicles']:,} vehicles"
            for row in (rows[0], rows[-1])
        )
        costs_of_methods.append(f"{name_of(method)} takes {cells}")
    return (
        f"A round of {rounds['participants']} participants with {rounds['steps']} steps each: "
        f"{'; '.join(costs_of_methods)}. {computer['cores']} cores "
        f"({computer.get('processor') or computer['platform']}), one thread, PyTorch "
        f"{computer['torch']}, medians of {rounds['rounds']} rounds."
    )


def about_traffic(paper: dict[str, Any]) -> dict[str, str]:
    """Return sentences on the vehicles reached and on the duration of a round."""
    first = next(iter(paper["methods"].values()))
    fleet = paper["fleet"]
    most_mb = first["most_times"] * (first["down_bytes"] + first["up_bytes"]) / 1e6
    reached = (
        f"Of {fleet['vehicles']:,} vehicles {first['available']:,.0f} can be reached at a time and "
        f"{first['asked']:,.0f} are asked in a round; {first['replied']:,.0f} replies count, "
        f"{first['late']:,.0f} are late, {first['lost']:,.0f} get lost. {first['rounds']} rounds "
        f"last {first['hours']:.1f} hours with {name_of(next(iter(paper['methods'])))}; by then "
        f"{first['reached']:.0%} of the vehicles have been asked at least once, none more than "
        f"{first['most_times']} times, which is {most_mb:.1f} MB."
    )
    megabits = {way: 8e-6 * first[f"{way}_bytes"] for way in ("down", "up")}
    median_s = 2 * fleet["latency_s"] + fleet["steps"] / fleet["steps_per_s"]
    median_s += sum(megabits[way] / fleet[f"{way}_mbps"] for way in megabits)
    server_cores = max(figures["server_cores"] for figures in paper["methods"].values())
    waiting = (
        "The spread between vehicles decides how long a round lasts: a vehicle with median "
        "computer and link is done in "
        f"{median_s:.1f} s, and the server waits {first['round_s']:.1f} s until "
        f"{fleet['enough']:.0%} of those asked have replied. Its work takes at most "
        f"{server_cores:.2f} of a core."
    )
    return {"rounds of a million": reached, "waiting": waiting}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="only write the page")
    if not parser.parse_args().write:
        write_text(RESULTS, json.dumps(measure(), indent=2) + "\n")
    write_blocks(PAGE, tables(json.loads(RESULTS.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
