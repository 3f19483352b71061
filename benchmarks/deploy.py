"""Seconds a round takes on loopback Flower, beside the training alone.

    python benchmarks/deploy.py                3 and 10 vehicles, about 3 minutes on 2 cores
    python benchmarks/performance_tables.py    the table of docs/performance.md

Real processes (server, vehicles with keys, TLS) on one machine, against the same rounds of the same
vehicles in one process without a message. The vehicles share the cores, so training itself is
counted as what all of them do, and the rest is what messages, looks for messages and records add.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from flwr.app import Message

from benchmarks.machine import machine
from fedwatt.deploy import flower, node
from fedwatt.deploy.connection import Connection
from fedwatt.deploy.limits import Limits
from fedwatt.deploy.messages import MESSAGE_TYPES
from fedwatt.deploy.one_vehicle import fleet_of_one, local_work
from fedwatt.deploy.questions import RoundQuestion
from fedwatt.deploy.vehicle import Vehicle
from fedwatt.files import write_text
from fedwatt.runs.config import from_toml
from fedwatt.runs.tables import read_table
from fedwatt.synthetic import synthetic_vehicles
from fedwatt.telemetry.store import load_fleet, write_fleet

RESULT = Path(__file__).parents[1] / "results" / "performance_deploy.json"
FEDWATT = str(Path(sys.executable).parent / "fedwatt")
ROUNDS = 20
CONFIG = """
seeds = [1]
device = "cpu"
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
    load = os.getloadavg()[0]
    rows = [measured(vehicles) for vehicles in (3, 10)]
    found = {
        "machine": machine(),
        "flower": version("flwr"),
        "load_before": load,
        "rounds": ROUNDS,
        "fleets": rows,
    }
    write_text(RESULT, json.dumps(found, indent=2) + "\n")
    print(json.dumps(rows, indent=2))


def measured(vehicles: int) -> dict[str, float]:
    """Medians over the rounds after the first, in seconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_fleet(folder / "fleet", synthetic_vehicles(vehicles, 0), "synthetic")
        text = CONFIG.format(vehicles=vehicles, rounds=ROUNDS)
        write_text(folder / "fleet.toml", text)
        training = trained_alone(folder / "fleet", text)
        total, noticed = rounds_on_flower(folder)
    return {
        "vehicles": vehicles,
        "round_seconds": total,
        "training_seconds": training,
        "added_seconds": total - training,
        "until_noticed_seconds": noticed,
    }


def trained_alone(fleet: Path, text: str) -> float:
    """Seconds in which all vehicles train one round, one after the other, as they do on board."""
    torch.set_num_threads(1)
    config = from_toml(text)
    choice = config.methods[0]
    clients = load_fleet(fleet, config.data).clients
    vehicles = [fleet_of_one(client, config, choice) for client in clients]
    weights = vehicles[0].model.initial(np.random.default_rng(0)).float().numpy()
    times = []
    for round in range(ROUNDS):
        began = time.perf_counter()
        question = RoundQuestion(round, -1, 1, 1.0, False, weights, {})
        for vehicle in vehicles:
            local_work(vehicle, choice.method, question, {})
        times.append(time.perf_counter() - began)
    return median(times[1:]) / min(os.cpu_count() or 1, len(vehicles))


def rounds_on_flower(folder: Path) -> tuple[float, float]:
    """Of a round: seconds of training and aggregation; seconds until every vehicle knows of it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    names = sorted(f.name for f in (folder / "fleet").iterdir() if f.is_dir())
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    processes: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> None:
        with (folder / f"log-{len(processes)}.txt").open("wb") as log:
            processes.append(
                subprocess.Popen(words, cwd=folder, env=environment, stdout=log, stderr=log)
            )

    def run(*words: str) -> None:
        subprocess.run(
            [FEDWATT, *words], cwd=folder, env=environment, check=True, capture_output=True
        )

    run("deploy", "keys", "create", "--host", "127.0.0.1")
    run("deploy", "keys", "add", *names)
    try:
        start(FEDWATT, "deploy", "server", "--address", address)
        for name in names:
            start(sys.executable, __file__, "vehicle", name, address)
        run("deploy", "submit", "fleet.toml", "--out", "run", "--address", address)
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(30)
    table = read_table(folder / "run", "timing").to_pylist()
    # The first row is the state before any round, the second loads what the vehicles need.
    seconds = median(row["training"] + row["aggregation"] for row in table[2:])
    waits = [
        [float(line) for line in (folder / f"waits-{name}.txt").read_text().split()]
        for name in names
    ]
    return seconds, median(max(of) for of in list(zip(*waits, strict=True))[1:])


def vehicle(name: str, address: str) -> None:
    """As `fedwatt deploy vehicle`; writes down when it notices each question to train."""
    fetch, answer = vars(flower)["pull_objects"], node.answer
    noticed = [0.0]

    def fetching(*arguments: Any, **options: Any) -> Any:
        noticed[0] = time.time()
        return fetch(*arguments, **options)

    def answering(own: Vehicle, message: Message) -> Message:
        if message.metadata.message_type == MESSAGE_TYPES["train"]:
            # Of the same clock: server and vehicles are on this machine.
            with Path(f"waits-{name}.txt").open("a") as file:
                file.write(f"{noticed[0] - message.metadata.created_at}\n")
        return answer(own, message)

    vars(flower).update(pull_objects=fetching)
    vars(node).update(answer=answering)
    Limits(threads=1, nice=0).apply()
    keys = Path("depot", "vehicles", name)
    connection = Connection(address, keys / "ca.pem", keys / "key")
    node.drive(Vehicle(Path("fleet", name), Path("state", name)), connection)


def command(words: Sequence[str]) -> None:
    """This file, as it is started: to measure, or as one of the vehicles measured."""
    if words[:1] == ["vehicle"]:
        vehicle(*words[1:])
    else:
        main()


if __name__ == "__main__":
    command(sys.argv[1:])
