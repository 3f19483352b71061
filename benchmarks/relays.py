"""Two relays with three real vehicles each, against one server with the six: the same model?

    python -m benchmarks.relays [--record]

Real processes with TLS and keys on this machine: a centre, two relays, six vehicles that train. In
the clear one relay is killed as soon as a round is done and started again, and later the centre is,
whose run is resumed. Under masks the centre is killed first; the relays finish what they were asked
and keep it; then a relay is killed, both are started again and the run is resumed. The models are
compared bit for bit with those of one server with the same vehicles. About ten minutes on 2 cores;
--record writes results/relays.json.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors.numpy import load_file

from benchmarks.machine import machine
from benchmarks.many_vehicles import free_port, until
from benchmarks.marked import write_blocks
from fedwatt.deploy.orphans import orphans
from fedwatt.deploy.policy import Policy, create_owner, install
from fedwatt.errors import RunError
from fedwatt.files import write_text
from fedwatt.synthetic import synthetic_vehicles
from fedwatt.telemetry.store import write_fleet

RESULT: Final = Path(__file__).parents[1] / "results" / "relays.json"
PAGE: Final = Path(__file__).parents[1] / "docs" / "relays.md"
KILLED: Final = (
    "a relay after round 1, the centre after round 3",
    "the centre after round 2, then a relay that had gone on without it",
)
"""In the clear, and under masks."""
ROUNDS: Final = 6
NAMES: Final = tuple(f"car-{number:03d}" for number in range(1, 7))
HALVES: Final = {"north": NAMES[:3], "south": NAMES[3:]}
CONFIG: Final = """
seeds = [1]
device = "cpu"
[data]
window = 10
stride = 20
[model]
hidden = [8, 4]
[training]
rounds = {rounds}
participation = 1.0
batch = 16
[secure]
enabled = {masks}
[deploy]
vehicles = 6
quorum = 6
relays = 100
enrolment_seconds = 300
round_seconds = 300
[[method]]
name = "fo-ri-fedavg"
directions = 2
points = 4
radius = 0.5
"""
POLICY: Final = replace(
    Policy(), masks=False, hiding=0.0, window=10, stride=20, fewest_windows=5, fewest_trained=16
)
"""The default but for what a small fleet needs, and without the noise that no run can repeat."""


@dataclass
class Machines:
    """Processes that stand for machines, by their names."""

    folder: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def fedwatt(self, *words: str) -> None:
        """A command to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "fedwatt", *words], cwd=self.folder, capture_output=True
        )
        if done.returncode:
            raise RunError(f"fedwatt {' '.join(words)}: {done.stdout!r} {done.stderr!r}")

    def start(self, name: str, *words: str) -> "subprocess.Popen[bytes]":
        """A command that goes on."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "fedwatt", *words],
                cwd=self.folder, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=log, stderr=log,
            )  # fmt: skip
        return self.running[name]

    def kill(self, name: str, depot: str) -> None:
        """Pull the plug of a server or a relay: all its processes at once."""
        process = self.running.pop(name)
        for number in (process.pid, *orphans((self.folder / depot).resolve() / "flower")):
            try:
                os.kill(number, 9)
            except ProcessLookupError:
                continue
        process.wait()

    def end(self) -> None:
        """End all of them, vehicles first."""
        for process in reversed(self.running.values()):
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
        self.running.clear()


def keys(machines: Machines, depot: str, names: tuple[str, ...]) -> None:
    """A depot with keys of its own and the fleet.key of the first one."""
    machines.fedwatt("deploy", "keys", "create", "--host", "127.0.0.1", "--depot", depot)
    shared = machines.folder / "depot-centre" / "fleet.key"
    if shared.exists():
        shutil.copy(shared, machines.folder / depot / "fleet.key")
    machines.fedwatt("deploy", "keys", "add", *names, "--depot", depot)


def vehicles(machines: Machines, depot: str, names: tuple[str, ...], port: int, state: str) -> None:
    """Start vehicles of a depot."""
    for name in names:
        machines.start(
            name, "deploy", "vehicle", f"fleet/{name}", "--server", f"127.0.0.1:{port}",
            "--keys", f"{depot}/vehicles/{name}", "--state", f"{state}/{name}",
            "--policy", "policy", "--nice", "0",
        )  # fmt: skip


class Tree:
    """A centre with two relays, each with three vehicles."""

    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self.ports = {name: free_port() for name in ("centre", *HALVES)}

    def server(self) -> None:
        """Start the centre."""
        self.machines.start(
            "centre", "deploy", "server", "--depot", "depot-centre",
            "--address", f"127.0.0.1:{self.ports['centre']}",
        )  # fmt: skip

    def relay(self, name: str) -> None:
        """Start a relay."""
        self.machines.start(
            name, "deploy", "relay", name, "--centre", f"127.0.0.1:{self.ports['centre']}",
            "--keys", f"depot-centre/vehicles/{name}", "--depot", f"depot-{name}",
            "--address", f"127.0.0.1:{self.ports[name]}", "--state", f"relay-{name}",
        )  # fmt: skip

    def submit(self, config: str, out: str, *more: str) -> "subprocess.Popen[bytes]":
        """Start a run."""
        return self.machines.start(
            f"submit-{out}", "deploy", "submit", *((config,) if not more else ()), *more,
            "--out", out, "--depot", "depot-centre",
            "--address", f"127.0.0.1:{self.ports['centre']}",
        )  # fmt: skip

    def clear(self, say: Callable[[str], None]) -> None:
        """A run in the clear, with a relay killed in a round and then the centre."""
        out = self.machines.folder / "tree-clear"
        run = self.submit("clear.toml", out.name)
        until(lambda: rounds(out) >= 1, run)
        self.machines.kill("north", "depot-north")
        say("The relay north was killed after a round, and is started again.")
        time.sleep(3)
        self.relay("north")
        until(lambda: rounds(out) >= 3, run)
        self.machines.kill("centre", "depot-centre")
        say("The centre was killed after a round, and its run is resumed.")
        run.wait()
        self.server()
        finished(self.submit("", out.name, "--resume"))

    def masked(self, say: Callable[[str], None]) -> None:
        """A run under masks, with the centre killed and then, on its own, a relay."""
        out = self.machines.folder / "tree-masks"
        run = self.submit("masks.toml", out.name)
        until(lambda: rounds(out) >= 2, run)
        self.machines.kill("centre", "depot-centre")
        say("The centre was killed after a round under masks; the relays go on.")
        run.wait()
        time.sleep(20)
        self.machines.kill("south", "depot-south")
        say("The relay south was killed, and both are started again.")
        self.relay("south")
        self.server()
        finished(self.submit("", out.name, "--resume"))


def finished(run: "subprocess.Popen[bytes]") -> None:
    """Wait for the end of a run; RunError if it did not come to its end."""
    if run.wait():
        raise RunError("A run did not come to its end.")


def rounds(out: Path) -> int:
    """Rounds of a run that have a checkpoint."""
    done = (int(f.name.removeprefix("round-")) for f in out.glob("checkpoint/*/round-*"))
    return max(done, default=0)


@contextmanager
def machines_in(folder: Path) -> Iterator[Machines]:
    """Processes that end with the block."""
    machines = Machines(folder)
    try:
        yield machines
    except (RunError, AssertionError) as error:
        logs = {p.name: p.read_text(errors="replace")[-2500:] for p in folder.glob("*.log")}
        raise RunError(f"{error}\n{json.dumps(logs, indent=1)}") from error
    finally:
        machines.end()


def compared(one: Path, other: Path) -> dict[str, Any]:
    """How the models of two runs differ."""
    left, right = (load_file(run / "model.safetensors") for run in (one, other))
    assert left.keys() == right.keys()
    away = max(float(np.abs(own - right[name]).max()) for name, own in left.items())
    same = all(own.tobytes() == right[name].tobytes() for name, own in left.items())
    return {"run": other.name, "tensors": len(left), "same_bits": same, "largest_difference": away}


def measured(folder: Path, say: Callable[[str], None] = print) -> list[dict[str, Any]]:
    """Both runs of the tree beside those of one server."""
    write_fleet(folder / "fleet", synthetic_vehicles(6, 3), "synthetic")
    create_owner(folder / "policy")
    install(POLICY, folder / "policy", folder / "policy")
    for name, masks in (("clear", "false"), ("masks", "true")):
        write_text(folder / f"{name}.toml", CONFIG.format(rounds=ROUNDS, masks=masks))
    with machines_in(folder) as machines:
        keys(machines, "depot-centre", tuple(HALVES))
        for name, own in HALVES.items():
            keys(machines, f"depot-{name}", own)
        tree = Tree(machines)
        tree.server()
        for name, own in HALVES.items():
            tree.relay(name)
            vehicles(machines, f"depot-{name}", own, tree.ports[name], "state-tree")
        tree.clear(say)
        tree.masked(say)
    one_server(folder, say)
    return [compared(folder / f"one-{n}", folder / f"tree-{n}") for n in ("clear", "masks")]


def one_server(folder: Path, say: Callable[[str], None]) -> None:
    """The same runs of one server with the six vehicles."""
    with machines_in(folder) as machines:
        keys(machines, "depot-one", NAMES)
        port = free_port()
        address = f"127.0.0.1:{port}"
        machines.start("one", "deploy", "server", "--depot", "depot-one", "--address", address)
        vehicles(machines, "depot-one", NAMES, port, "state-one")
        for name in ("clear", "masks"):
            say(f"One server with six vehicles: {name}.")
            finished(machines.start(f"submit-one-{name}", "deploy", "submit", f"{name}.toml",
                                    "--out", f"one-{name}", "--depot", "depot-one",
                                    "--address", address))  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """What docs/relays.md shows."""
    lines = ["| run | what was killed | tensors | the same bits | largest difference |",
             "|---|---|--:|---|--:|"]  # fmt: skip
    for row, killed in zip(rows, KILLED, strict=True):
        same = "yes" if row["same_bits"] else "no"
        name = row["run"].removeprefix("tree-")
        away = f"{row['largest_difference']:g}"
        lines.append(f"| {name} | {killed} | {row['tensors']} | {same} | {away} |")
    return "\n".join(lines)


def main(words: list[str]) -> None:
    """Measure, and record if asked to."""
    with tempfile.TemporaryDirectory() as name:
        rows = measured(Path(name))
    print(json.dumps(rows, indent=2))
    if "--record" in words:
        record(rows)


def record(rows: list[dict[str, Any]]) -> None:
    """Write down what was found, and the table of docs/relays.md."""
    found = {"machine": machine(), "rounds": ROUNDS, "runs": rows}
    write_text(RESULT, json.dumps(found, indent=2) + "\n")
    write_blocks(PAGE, {"relays": table(rows)})


if __name__ == "__main__":
    main(sys.argv[1:])
