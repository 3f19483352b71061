"""Cost of many vehicles for one server: light vehicles over real TLS and keys, a real run.

    fedwatt bench fleet --vehicles 1000 --asked 100
    python benchmarks/many_vehicles.py [NUMBER ...]   measures rows of `ROWS`, or all: half an hour
    python benchmarks/many_vehicles.py --record       puts the recorded rows on the page

Server, run and vehicles (`light_vehicles`) are processes of their own on this machine, so seconds
are those of cores that all of them share. CPU-seconds are the server's (Flower's SuperLink) and the
run's (its ServerApp) alone, by /proc.
"""

import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding

from benchmarks.light_vehicles import fault_of
from benchmarks.machine import machine
from benchmarks.marked import write_blocks
from fedwatt.deploy.plan.certificates import (
    CERTIFICATE,
    KEY,
    OWNER,
    SERVER,
    VEHICLE,
    Owner,
    make_request,
    owner_certificate,
    private_bytes,
    write_certificate,
)
from fedwatt.deploy.plan.plan import make_plan
from fedwatt.deploy.plan.store import VEHICLES, KeyStore
from fedwatt.deploy.server.requests import EVENTS, FAILED, LATE, REJECTED
from fedwatt.deploy.transport import SWITCH
from fedwatt.deploy.transport.control import Control
from fedwatt.deploy.transport.processes import Flower
from fedwatt.errors import RunError
from fedwatt.files import read_rows, write_text
from fedwatt.runs.config import from_toml
from fedwatt.runs.observers import FILE

ROOT: Final = Path(__file__).parents[1]
RESULT: Final = ROOT / "results" / "many_vehicles.json"
PAGE: Final = ROOT / "docs" / "scale.md"
TICKS: Final = os.sysconf("SC_CLK_TCK")
IDLE_SECONDS: Final = 50.0
"""In which every idle vehicle looks for questions once."""
SETTLE_SECONDS: Final = 5.0
SPARE_FILES: Final = 200
"""That a server opens beside its vehicles' connections."""
PER_PROCESS: Final = 2_500
"""Light vehicles in one process."""
CONFIG: Final = """
seeds = [1]
device = "cpu"
[training]
rounds = {rounds}
participation = {share}
evaluate_vehicles = {called}
[personalisation]
enabled = false
[deploy]
vehicles = {connected}
enrolment_seconds = 1800
round_seconds = {round_seconds}
evaluation_seconds = {round_seconds}
over_selection = {over_selection}
[[method]]
name = "fedavg"
"""


@dataclass(frozen=True)
class Load:
    """Load of a server: vehicles, requests per round and settings of the run."""

    vehicles: int
    called: int
    rounds: int = 5
    poll: float = 5.0
    """Longest pause between two looks of a vehicle for questions, s."""
    faulty: int = 0
    """Vehicles of a hundred that misbehave."""
    fast_path: bool = True
    """Whether the fast path is on (`deploy.transport`); without it, Flower's public interface."""
    round_seconds: float = 600.0
    over_selection: float = 0.0
    """As in `[deploy]`."""

    @property
    def connected(self) -> int:
        """Vehicles that a server lets in: those whose clocks are right."""
        return sum(fault_of(n, self.faulty) != "clock" for n in range(self.vehicles))


@dataclass(frozen=True)
class Cost:
    """Measured cost of a load."""

    connected_s: float
    """Until all vehicles were connected, from the first one's start."""
    idle_cores: float
    """Of the server, while all vehicles only look for questions."""
    enrolled_s: float
    """Until all were enrolled, from the run's submission."""
    round_s: float
    """Median of the rounds after the first, judging included."""
    server_cpu_s: float
    """Of the server in such a round, in the mean."""
    run_cpu_s: float
    noticed_p95_s: float
    """From the making of a question to train until a vehicle noticed it."""
    idle_mb: float
    """Memory of the server while all are connected and nothing is asked."""
    server_mb: float
    """Largest memory of the server."""
    replies: list[int] = field(default_factory=list)
    """That counted in each round."""
    lost: int = 0
    """Answers of vehicles without a fault that were late, failed or could not be read."""

    def rows(self) -> list[tuple[str, str]]:
        """For people."""
        return [
            ("until all were connected", f"{self.connected_s:.1f} s"),
            ("server while all are idle", f"{100 * self.idle_cores:.0f} % of a core"),
            ("until all were enrolled", f"{self.enrolled_s:.1f} s"),
            ("a round, judging included", f"{self.round_s:.1f} s"),
            ("server in a round", f"{self.server_cpu_s:.2f} CPU-s"),
            ("run in a round", f"{self.run_cpu_s:.2f} CPU-s"),
            ("a question is noticed, p95", f"{self.noticed_p95_s:.2f} s"),
            ("memory of the server while all are idle", f"{self.idle_mb:.0f} MB"),
            ("memory of the server, at most", f"{self.server_mb:.0f} MB"),
            ("replies that counted", ", ".join(map(str, self.replies))),
            ("answers lost of vehicles without a fault", str(self.lost)),
        ]


def measured(load: Load, say: Callable[[str], None] = print) -> Cost:
    """Start a server, its vehicles and a run, and measure."""
    refuse_few_files(load.vehicles)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        say(f"Making {load.vehicles:,} keys ...")
        store = make_store(folder / "server", load.vehicles, configuration(load))
        flower = Flower(store, f"127.0.0.1:{free_port()}")
        with processes(folder, load) as start:
            server = start("server", "deploy", "server", "--address", flower.address)
            with Control(flower) as control:
                say("Starting the server, and telling it the keys ...")
                until(lambda: len(nodes(control)) >= load.vehicles, server)
                return _measured(folder, load, flower, control, start, say)


def _measured(
    folder: Path,
    load: Load,
    flower: Flower,
    control: Control,
    start: Callable[..., "subprocess.Popen[bytes]"],
    say: Callable[[str], None],
) -> Cost:
    say("Starting the vehicles ...")
    began = time.monotonic()
    vehicles = []
    for first in range(0, load.vehicles, PER_PROCESS):
        last = min(first + PER_PROCESS, load.vehicles)
        words = [flower.address, first, last, load.poll, load.faulty, f"noticed-{first}.txt"]
        vehicles.append(start(f"vehicles-{first}", *map(str, words)))
    until(lambda: nodes(control).count("online") >= load.connected, *vehicles)
    connected = time.monotonic() - began
    say(f"All are connected after {connected:.0f} s; measuring the idle server ...")
    link = pid_of("fedwatt.deploy.transport.superlink", flower.address.rpartition(":")[2])
    time.sleep(SETTLE_SECONDS)
    before = cpu_seconds(link)
    time.sleep(IDLE_SECONDS)
    idle = (cpu_seconds(link) - before) / IDLE_SECONDS
    idle_mb = peak_mb(link)
    say("Submitting the run ...")
    submitted = time.monotonic()
    run = start("submit", "deploy", "run", "--out", "run", "--address", flower.address)
    watched = Watched(folder / "run" / FILE)
    until(watched.has_begun, run, *vehicles)
    say(f"All are enrolled after {watched.began - submitted:.0f} s.")
    until(lambda: watched.rounds() >= 1, run, *vehicles)
    both = link, pid_of("flwr-serverapp", str(folder))
    after_first = [cpu_seconds(pid) for pid in both]
    until(lambda: watched.rounds() >= load.rounds, run, *vehicles)
    spent = [cpu_seconds(pid) - before for pid, before in zip(both, after_first, strict=True)]
    of_server, of_run = (seconds / (load.rounds - 1) for seconds in spent)
    say(f"{load.rounds} rounds are done.")
    return Cost(
        connected,
        idle,
        watched.began - submitted,
        float(median(np.diff(watched.times))),
        of_server,
        of_run,
        noticed_p95(folder),
        idle_mb,
        peak_mb(link),
        watched.replies,
        lost_answers(folder / "run" / EVENTS, load.faulty),
    )


class Watched:
    """The rounds of a run, and when this process saw them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.began = 0.0
        self.times: list[float] = []
        self.replies: list[int] = []

    def has_begun(self) -> bool:
        """Tell whether the vehicles have enrolled."""
        self.rounds()
        return self.began > 0

    def rounds(self) -> int:
        """Return the number of finished rounds."""
        events = read_rows(self.path)
        if events and not self.began:
            self.began = time.monotonic()
        rounds = [event for event in events if event["event"] == "round"]
        for event in rounds[len(self.times) :]:
            self.times.append(time.monotonic())
            self.replies.append(int(event["rows"][0]["replies"]))
        return len(rounds)


def make_store(folder: Path, vehicles: int, config: str) -> KeyStore:
    """Return a key store with a plan, whose vehicles have keys beside it and nothing else."""
    signing = ed25519.Ed25519PrivateKey.generate()
    owner = Owner(signing, owner_certificate(signing))
    make_request("server", folder, ["127.0.0.1"])
    write_certificate(folder / CERTIFICATE, owner.sign_request(folder, SERVER, 1))
    write_certificate(folder / OWNER, owner.certificate)
    store = KeyStore(folder)
    (folder / VEHICLES).mkdir()
    for number in range(vehicles):
        # Not by the commands, which wait for the disk at each file.
        name = f"car-{number:05d}"
        key = ec.generate_private_key(ec.SECP256R1())
        keys = folder.parent / "keys" / name
        keys.mkdir(parents=True)
        (keys / KEY).write_bytes(private_bytes(key))
        certificate = owner.issue(name, VEHICLE, key.public_key(), 1)
        (folder / VEHICLES / f"{name}.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    store.install_plan(make_plan(from_toml(config), owner, days=1))
    return store


def configuration(load: Load) -> str:
    """Of the run."""
    share = min(load.called / load.connected, 1.0)
    return CONFIG.format(share=share, connected=load.connected, **asdict(load))


def refuse_few_files(vehicles: int) -> None:
    """RunError where this machine does not let a server open a connection for each vehicle."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < vehicles + SPARE_FILES:
        raise RunError(
            f"A process may open {most:,} files here, and the server needs one for each of the "
            f"{vehicles:,} vehicles. Raise the limit (ulimit -Hn), or take fewer --vehicles."
        )


@contextmanager
def processes(folder: Path, load: Load) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Start processes that end with the block, in the reverse order."""
    started: list[subprocess.Popen[bytes]] = []
    environment = os.environ | {"OMP_NUM_THREADS": "1", SWITCH: str(int(load.fast_path))}

    def start(name: str, *words: str) -> "subprocess.Popen[bytes]":
        what = ["-m", "fedwatt", *words]
        if name.startswith("vehicles"):
            what = ["-m", "benchmarks.light_vehicles", str(folder / "server"), *words]
        with (folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *what], cwd=folder, env=environment, stdout=log, stderr=log
            )
        started.append(process)
        return process

    try:
        yield start
    except RunError as error:
        logs = {p.name: p.read_text(errors="replace")[-1500:] for p in folder.glob("*.log")}
        raise RunError(f"{error}\n{json.dumps(logs, indent=1)}") from error
    finally:
        for process in reversed(started):
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def until(
    holds: Callable[[], bool],
    *processes: "subprocess.Popen[bytes]",
    seconds: float = 1800.0,
) -> None:
    """Wait until something holds; RunError if a process ends before, or it takes too long."""
    deadline = time.monotonic() + seconds
    while not holds():
        ended = any(process.poll() is not None for process in processes)
        if ended or time.monotonic() > deadline:
            raise RunError("What is measured has ended, or does not go on.")
        time.sleep(0.05)


def nodes(control: Control) -> list[str]:
    """States of the vehicles that the server knows; none while it is not up."""
    began = time.monotonic()
    try:
        states = [node.status for node in control.nodes()]
    except RunError:
        states = []
    time.sleep(min(max(1.0, 5 * (time.monotonic() - began)), 10.0))  # each costs the server
    return states


def pid_of(*parts: str) -> int:
    """Return the process whose command has all of `parts` in it; 0 if there is none."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if all(part in command for part in parts):
                return int(entry.name)
    return 0


def cpu_seconds(pid: int) -> float:
    """Of a process and all its threads."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak_mb(pid: int) -> float:
    """Return the peak memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def noticed_p95(folder: Path) -> float:
    """Of all questions to train."""
    lines = [line for file in folder.glob("noticed-*.txt") for line in file.read_text().split("\n")]
    samples = [json.loads(line) for line in lines if line]
    seconds = [row[2] for row in samples if row[1] == "train"]
    return float(np.percentile(seconds, 95)) if seconds else 0.0


def lost_answers(path: Path, faulty: int) -> int:
    """Questions in the events of a run that vehicles without a fault did not answer in time."""
    events = read_rows(path)
    missed = (event for event in events if event["event"] in (LATE, FAILED, REJECTED))
    return sum(not fault_of(int(event["vehicle"][-5:]), faulty) for event in missed)


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


ROWS: Final = (
    Load(30, 30, rounds=3, poll=30.0, fast_path=False),
    Load(30, 30, rounds=3),
    Load(1000, 100, rounds=4, poll=30.0, fast_path=False),
    Load(1000, 100, rounds=9),
    Load(1000, 100, rounds=9, faulty=20, round_seconds=60.0, over_selection=0.25),
    Load(10_000, 100),
    Load(10_000, 1000, rounds=4),
)
"""What docs/scale.md shows."""


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    lines = [
        "| vehicles | asked | server | a round | CPU, server and run | by vehicle asked | memory |",
        "|--:|--:|---|--:|--:|--:|--:|",
    ]
    for row in rows:
        load = row["load"]
        cost = row["cost"]
        server = "fast path" if load["fast_path"] else "public interface"
        if load["faulty"]:
            server += f", {load['faulty']} % at fault"
        lines.append(
            f"| {load['vehicles']:,} | {load['called']:,} | {server} | {cost['round_s']:.1f} s | "
            f"{cost['server_cpu_s']:.2f}, {cost['run_cpu_s']:.2f} s | "
            f"{1000 * (cost['server_cpu_s'] + cost['run_cpu_s']) / load['called']:.1f} ms | "
            f"{cost['server_mb']:.0f} MB |"
        )
    return "\n".join(lines)


def summary_text(record: dict[str, Any]) -> str:
    """Return a sentence on the hardware, the versions and the load of the machine."""
    busy = [row["busy"] for row in record["rows"]]
    return (
        f"{record['machine']['cores']} cores ({record['machine']['processor']}), Python "
        f"{record['machine']['python']}, Flower {record['flower']}, vehicles on the same machine, "
        f"{min(busy):.1f} to {max(busy):.1f} other processes at work."
        f"{''.join(map(lost, record['rows']))}"
    )


def lost(row: dict[str, Any]) -> str:
    """Return a sentence on missing replies where vehicles are at fault; empty elsewhere."""
    if not row["load"]["faulty"]:
        return ""
    return (
        f" With {row['load']['faulty']} % of the vehicles at fault, {row['cost']['lost']} "
        "answers of the others were lost."
    )


def main() -> None:
    """Measure all rows, or put the record on its page."""
    if "--record" in sys.argv:
        record = json.loads(RESULT.read_text(encoding="utf-8"))
        write_blocks(PAGE, {"many vehicles": f"{table(record['rows'])}\n\n{summary_text(record)}"})
        return
    chosen = [ROWS[int(word)] for word in sys.argv[1:]] or ROWS
    record = json.loads(RESULT.read_text(encoding="utf-8"))
    rows = {json.dumps(row["load"]): row for row in record["rows"]}
    for load in chosen:
        busy = os.getloadavg()[0]
        cost = measured(load)
        rows[json.dumps(asdict(load))] = {"load": asdict(load), "cost": asdict(cost), "busy": busy}
        print(table([rows[json.dumps(asdict(load))]]), flush=True)
        order = [json.dumps(asdict(load)) for load in ROWS]
        kept_rows = [rows[key] for key in order if key in rows]
        record = {"machine": machine(), "flower": version("flwr"), "rows": kept_rows}
        write_text(RESULT, json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
