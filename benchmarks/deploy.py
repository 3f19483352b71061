"""Seconds a round takes on loopback Flower, beside the training alone.

    python benchmarks/deploy.py                3 and 10 vehicles, about 5 minutes on 2 cores

Real processes (server, vehicles with keys, TLS) on one machine, against the same rounds simulated
one vehicle at a time in one process. The vehicles share the cores, so training itself is counted as
what all of them do, and the rest is what messages, looks for messages and records add.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from fedwatt.deploy.board import OnBoard
from fedwatt.fleet import synthetic_vehicles
from fedwatt.fleet.store import load_fleet, write_fleet
from fedwatt.runs.config import from_toml
from fedwatt.runs.environment import describe_environment
from fedwatt.runs.tables import read_table

PAGE = Path(__file__).parents[1] / "docs" / "deploy.md"
RESULT = Path(__file__).parents[1] / "results" / "deploy.json"
FEDWATT = str(Path(sys.executable).parent / "fedwatt")
ROUNDS = 8
CONFIG = """
seeds = [1]
device = "cpu"
[data]
stride = {stride}
[training]
rounds = {rounds}
participation = 1.0
evaluate_every = {rounds}
[deploy]
vehicles = {vehicles}
[[method]]
name = "fedavg"
"""


def main() -> None:
    rows = [measured(vehicles) for vehicles in (3, 10)]
    about = describe_environment(torch.device("cpu")) | {"cores": os.cpu_count()}
    RESULT.write_text(json.dumps({"environment": about, "rounds": rows}, indent=2) + "\n")
    write_table(rows)


def write_table(rows: list[dict[str, float]]) -> None:
    """Put the figures into the guide."""
    lines = ["| vehicles | seconds a round | of which training | added |", "|--:|--:|--:|--:|"]
    lines += [
        f"| {row['vehicles']} | {row['round_seconds']:.2f} | {row['training_seconds']:.2f} "
        f"| {row['added_seconds']:.2f} |"
        for row in rows
    ]
    told = (
        "## What messages cost\n\nMedian of a round on loopback, TLS and keys on, all vehicles "
        f"on the same {os.cpu_count()} cores; `benchmarks/deploy.py` measures it again.\n\n"
    )
    block = "<!-- overhead -->\n" + told + "\n".join(lines) + "\n<!-- /overhead -->"
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(
        re.sub(r"<!-- overhead -->.*<!-- /overhead -->", lambda _: block, page, flags=re.DOTALL)
    )


def measured(vehicles: int) -> dict[str, float]:
    """Medians over the rounds after the first, in seconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_fleet(folder / "fleet", synthetic_vehicles(vehicles, 0), "synthetic")
        text = CONFIG.format(vehicles=vehicles, rounds=ROUNDS, stride=10)
        (folder / "fleet.toml").write_text(text)
        training = trained_alone(folder / "fleet", text)
        seconds = rounds_on_flower(folder, vehicles)
    total = sorted(seconds)[len(seconds) // 2]
    return {
        "vehicles": vehicles,
        "rounds": ROUNDS,
        "round_seconds": total,
        "training_seconds": training,
        "added_seconds": total - training,
    }


def trained_alone(fleet: Path, text: str) -> float:
    """Seconds in which all vehicles train one round, one after the other, as they do on board."""
    config = from_toml(text)
    choice = config.methods[0]
    boards = [OnBoard(c, config, choice) for c in load_fleet(fleet, config.data).clients]
    weights = boards[0].model.initial(np.random.default_rng(0)).float().numpy()
    times = []
    for round in range(ROUNDS):
        began = time.perf_counter()
        for board in boards:
            board.population_windows = 1.0
            board.work(choice.method, round, weights, {})
        times.append(time.perf_counter() - began)
    return sorted(times)[len(times) // 2] / min(os.cpu_count() or 1, len(boards))


def rounds_on_flower(folder: Path, vehicles: int) -> list[float]:
    """Seconds of training and aggregation of each round after the first."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    names = sorted(f.name for f in (folder / "fleet").iterdir() if f.is_dir())
    environment = os.environ | {"OMP_NUM_THREADS": "1"}

    def start(*words: str) -> subprocess.Popen[bytes]:
        log = (folder / f"{words[1]}-{len(processes)}.log").open("wb")
        return subprocess.Popen(
            [FEDWATT, *words], cwd=folder, env=environment, stdout=log, stderr=log
        )

    def run(*words: str) -> None:
        subprocess.run(
            [FEDWATT, *words], cwd=folder, env=environment, check=True, capture_output=True
        )

    processes: list[subprocess.Popen[bytes]] = []
    run("deploy", "keys", "create", "--host", "127.0.0.1")
    run("deploy", "keys", "add", *names)
    try:
        processes.append(start("deploy", "server", "--address", address))
        log = folder / "server-0.log"
        while b"is up" not in log.read_bytes():
            time.sleep(0.2)
        for name in names:
            keys = f"depot/vehicles/{name}"
            words = ["--server", address, "--keys", keys, "--state", f"state/{name}", "--nice", "0"]
            processes.append(start("deploy", "vehicle", f"fleet/{name}", *words))
        run("deploy", "submit", "fleet.toml", "--out", "run", "--address", address)
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(20)
    table = read_table(folder / "run", "timing").to_pylist()
    return [row["training"] + row["aggregation"] for row in table[2:]]


if __name__ == "__main__":
    main()
