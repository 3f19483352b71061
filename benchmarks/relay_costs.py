"""What relays cost: the centre for each relay, and a relay for each of its vehicles.

    python -m benchmarks.relay_costs [--relays 100] [--behind 100] [--record]

The centre is real, with TLS and keys, and its relays are light (`light_relays`), since two cores do
not hold ten thousand vehicles; then a real relay has a hundred light vehicles. CPU-seconds are by
/proc, of the server (Flower's SuperLink) and of the run or the relay (its ServerApp). A round is a
question to train and one to judge the model. --record writes results/relay_costs.json and
the tables of docs/relays.md.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.machine import machine
from benchmarks.many_vehicles import (
    Watched,
    cpu_seconds,
    free_port,
    make_depot,
    nodes,
    peak_mb,
    pid_of,
    until,
)
from benchmarks.marked import write_blocks
from fedwatt.deploy.commands import Flower
from fedwatt.deploy.control import Control
from fedwatt.errors import RunError
from fedwatt.files import write_text
from fedwatt.observers.progress_log import FILE

ROOT: Final = Path(__file__).parents[1]
RESULT: Final = ROOT / "results" / "relay_costs.json"
PAGE: Final = ROOT / "docs" / "relays.md"
ROUNDS: Final = 5
CONFIG: Final = """
seeds = [1]
device = "cpu"
[training]
rounds = {rounds}
participation = 1.0
[personal]
enabled = false
[deploy]
vehicles = {vehicles}
relays = {vehicles}
enrolment_seconds = 900
[[method]]
name = "fedavg"
"""


@contextmanager
def processes(folder: Path) -> Iterator[Any]:
    """Start processes that end with the block, the last one first."""
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: object) -> "subprocess.Popen[bytes]":
        with (folder / f"{name}.log").open("wb") as log:
            command = [sys.executable, "-m", *map(str, words)]
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            started.append(
                subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
            )
        return started[-1]

    try:
        yield start
    except RunError as error:
        logs = {p.name: p.read_text(errors="replace")[-1500:] for p in folder.glob("*.log")}
        raise RunError(f"{error}\n{json.dumps(logs, indent=1)}") from error
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(120)


def costs(relays: int, behind: int, *, real: bool) -> dict[str, Any]:
    """CPU-seconds a round; with a `real` relay, of that one for its light vehicles."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        centre = Flower(make_depot(folder / "depot", relays), f"127.0.0.1:{free_port()}")
        own = Flower(make_depot(folder / "own", behind), f"127.0.0.1:{free_port()}")
        config = CONFIG.format(rounds=ROUNDS, vehicles=relays * behind)
        write_text(folder / "fleet.toml", config)
        with processes(folder) as start, Control(centre) as control:
            server = start("server", "fedwatt", "deploy", "server", "--address", centre.address)
            until(lambda: len(nodes(control)) >= relays, server)
            if real:
                start("relay", "fedwatt", "deploy", "relay", "car-00000", "--centre",
                      centre.address, "--keys", "depot/vehicles/car-00000", "--depot", "own",
                      "--address", own.address, "--state", "relay-state")  # fmt: skip
                (folder / "depot/vehicles/car-00000/ca.pem").write_bytes(
                    (folder / "depot/ca.pem").read_bytes()
                )
                start("vehicles", "benchmarks.light_vehicles", folder / "own", own.address, 0,
                      behind, 5.0, 0, "noticed.txt")  # fmt: skip
            else:
                start("relays", "benchmarks.light_relays", folder / "depot", centre.address,
                      relays, behind)  # fmt: skip
            until(lambda: nodes(control).count("online") >= relays)
            run = start("submit", "fedwatt", "deploy", "submit", "fleet.toml", "--out", "run",
                        "--address", centre.address)  # fmt: skip
            watched = Watched(folder / "run" / FILE)
            until(lambda: watched.rounds() >= 1, run)
            pids = {"server": pid_of("fedwatt.deploy.superlink", centre.address.split(":")[1]),
                    "run": pid_of("flwr-serverapp", str(folder / "depot"))}  # fmt: skip
            if real:
                pids |= {"relay_server": pid_of("fedwatt.deploy.superlink",
                                                own.address.split(":")[1]),
                         "relay": pid_of("flwr-serverapp", str(folder / "own"))}  # fmt: skip
            before = {what: cpu_seconds(pid) for what, pid in pids.items()}
            until(lambda: watched.rounds() >= ROUNDS, run)
            spent = {
                what: (cpu_seconds(pid) - before[what]) / (ROUNDS - 1) for what, pid in pids.items()
            }
            memory = peak_mb(pids["server"])
    seconds = [late - early for early, late in zip(watched.times, watched.times[1:], strict=False)]
    return {"relays": relays, "behind": behind, "real": real, "cpu_s": spent,
            "round_s": sorted(seconds)[len(seconds) // 2], "server_mb": memory,
            "replies": watched.replies}  # fmt: skip


def pages(rows: list[dict[str, Any]]) -> str:
    """The table of docs/relays.md."""
    head = (
        "relays", "vehicles behind each", "asked a round", "centre's server, CPU-s a round",
        "centre's run, CPU-s", "relay, CPU-ms a vehicle and round", "a round",
    )  # fmt: skip
    lines = [f"| {' | '.join(head)} |", "|" + "--:|" * len(head)]
    for row in rows:
        spent, asked = row["cpu_s"], row["relays"] * row["behind"]
        own = sum(spent.get(n, 0.0) for n in ("relay", "relay_server")) / row["behind"]
        lines.append(
            f"| {row['relays']}{'' if row['real'] else ', light'} | {row['behind']} | {asked:,} | "
            f"{spent['server']:.2f} | {spent['run']:.2f} | "
            f"{f'{1000 * own:.1f}' if row['real'] else '–'} | {row['round_s']:.1f} s |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, and record if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--relays", type=int, default=100)
    parser.add_argument("--behind", type=int, default=100)
    parser.add_argument("--record", action="store_true")
    words = parser.parse_args()
    load = os.getloadavg()[0]
    rows = [costs(words.relays, words.behind, real=False), costs(1, words.behind, real=True)]
    print(json.dumps(rows, indent=2))
    if words.record:
        record(rows, load)


def record(rows: list[dict[str, Any]], load: float) -> None:
    """Write down what was measured while so many other processes were at work."""
    found = {"machine": machine(), "load_before": load, "rows": rows}
    write_text(RESULT, json.dumps(found, indent=2) + "\n")
    about = f"Measured on 2 cores; {load:.1f} processes were at work on them before (load)."
    write_blocks(PAGE, {"relay costs": f"{pages(rows)}\n\n{about}"})


if __name__ == "__main__":
    main()
