"""The guide, typed as it stands, on real Flower processes; and what keys and kills do to them."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("flwr")

import numpy as np
import torch
from flwr.app import RecordDict
from typer.testing import CliRunner

from fedwatt.cli import app
from fedwatt.deploy.connection import key_pair
from fedwatt.deploy.keys import Depot
from fedwatt.deploy.messages import from_records
from fedwatt.deploy.state import RunState
from fedwatt.elevation.level import LEVEL
from fedwatt.elevation.store import read_field
from fedwatt.federation.kept import GLOBAL_MODELS
from fedwatt.privacy.secure.identity import public_bytes, vouch
from fedwatt.runs import execute, from_toml
from fedwatt.runs.tables import read_table
from tests.deploy.fleets import deployed, loopback, pooled, weights
from tests.deploy.hilly import AREA
from tests.runs.test_execute import Silent

GUIDE = Path(__file__).parents[2] / "docs" / "deploy.md"
FEDWATT = str(Path(sys.executable).parent / "fedwatt")
CARS = ("car-001", "car-002", "car-003")
KEYS = "keys"
"""Folder of the vehicles' keys in the guide."""
LONG = 300
"""Seconds after which something has gone wrong, on however busy a machine."""
POLICY = ("--open", "--set", "signed_sums=true", "--set", "smallest_sum=3")
"""In the place of the default policy: windows are smaller here, and one run is in the clear."""
SMALL = "[data]\nwindow = 10\nstride = 20\n[model]\nhidden = [8, 4]\n"
"""Put into the guide's configuration, so that a test is done in seconds."""


def guide() -> tuple[str, list[str]]:
    """The configuration and the commands of the guide's first example."""
    text = GUIDE.read_text(encoding="utf-8").split("## On real machines")[0]
    (config,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    return config, [line for line in "\n".join(blocks).splitlines() if line]


@dataclass
class Machine:
    """A folder, a port and the processes that were started in it."""

    folder: Path
    port: int
    processes: list[subprocess.Popen] = field(default_factory=list)
    logs: dict[str, Path] = field(default_factory=dict)

    def words(self, line: str) -> list[str]:
        """A command with this machine's port in it."""
        words = shlex.split(line.removesuffix("&"))
        if words[:2] == ["fedwatt", "deploy"]:
            address = f"127.0.0.1:{self.port}"
            asks = words[2] in ("server", "submit", "status") or words[3] == "apply"
            if asks and "--address" not in words:
                words += ["--address", address]
            if words[2] == "vehicle":
                words += ["--server", address, "--nice", "0"]
                if "--patience" not in words:
                    # On a busy machine it takes a server long to know its vehicles again.
                    words += ["--patience", "600"]
        return [FEDWATT if word == "fedwatt" else word for word in words]

    def environment(self) -> dict[str, str]:
        return os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}

    def type(self, line: str, name: str = "") -> subprocess.Popen:
        """Start a command; what it says goes to a file."""
        name = name or f"log-{len(self.logs)}"
        self.logs[name] = self.folder / f"{name}.txt"
        with self.logs[name].open("w") as log:
            process = subprocess.Popen(
                self.words(line),
                cwd=self.folder,
                env=self.environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def say(self, name: str) -> str:
        return self.logs[name].read_text(encoding="utf-8", errors="replace")

    def process(self, name: str) -> subprocess.Popen:
        return self.processes[list(self.logs).index(name)]

    def done(self, line: str, seconds: float = LONG, name: str = "") -> str:
        """What a command says that must end well."""
        process = self.type(line, name)
        status = process.wait(seconds)
        said = self.say(list(self.logs)[-1])
        assert status == 0, said
        return said

    def stop(self) -> None:
        for process in reversed(self.processes):
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def until(holds: Callable[[], bool], seconds: float = LONG) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """The guide's commands as they stand, with a port of our own and a smaller model.

    One bring-up for all tests here: starting Flower's processes is what takes the time.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    machine = Machine(tmp_path_factory.mktemp("machine"), port)
    config, lines = guide()
    config = config.replace("rounds = 5", "rounds = 3") + "directions = 2\npoints = 4\n"
    config = config.replace("[training]", SMALL + "[training]")
    (machine.folder / "fleet.toml").write_text(config)
    try:
        for line in lines:
            name = re.findall(r"deploy (server|submit)|(car-\d+)", line)
            if line.endswith("&"):
                machine.type(line, "".join(name[0]))
            elif "keys sign" in line:
                machine.done(line)
                for vehicle in CARS:
                    write = ["deploy", "policy", "write", f"{KEYS}/{vehicle}", *POLICY]
                    with chdir(machine.folder):
                        assert CliRunner().invoke(app, write).exit_code == 0
            else:
                machine.done(line, name="submit" if "submit" in line else "")
        yield machine
    finally:
        machine.stop()


def test_the_guide_ends_with_the_simulations_model_and_a_report(followed: Machine) -> None:
    run = followed.folder / "runs" / "fleet"
    assert "fo-ri-fedavg: round 3/3, 3 of 3 replies" in followed.say("submit")
    assert (run / "report.html").stat().st_size > 10_000
    text = (followed.folder / "fleet.toml").read_text()
    text = text.replace("[training]", f'[fleet]\ndata = "{followed.folder}/fleet"\n[training]')
    execute(from_toml(text), followed.folder / "simulated", Silent())
    wanted, got = weights(followed.folder / "simulated"), weights(run)
    assert wanted.keys() == got.keys()
    for name in wanted:
        torch.testing.assert_close(got[name], wanted[name], rtol=0, atol=1e-6, msg=name)
    assert "flower-supernode" in followed.say("car-001")
    assert "flwr run" in followed.say("submit")
    said = followed.done("fedwatt deploy status --out runs/fleet")
    assert all(re.search(rf"car-00{n} +\d+ +online", said) for n in (1, 2, 3))
    assert "fo-ri-fedavg: 3 rounds done" in said


HILLS = f"""
seeds = [1]
device = "cpu"
[fleet]
data = "fleet"
[data]
features = "base, terrain"
window = 10
stride = 20
[model]
hidden = [8, 4]
[training]
rounds = 1
participation = 1.0
batch = 16
[terrain]
area = {AREA}
minimum_vehicles = 2
refreshes = 0
choose_prior = false
[secure]
enabled = true
[personal]
rates = [0.01]
steps = [20]
[deploy]
vehicles = 3
[[method]]
name = "fedavg"
"""


def test_hills_and_rounds_under_masks_end_with_the_simulations_models(followed: Machine) -> None:
    """Hills, a level model, secure sums and personal models in one run, over TLS."""
    pytest.importorskip("cryptography")
    folder, run = followed.folder, followed.folder / "runs" / "hills"
    (folder / "hills.toml").write_text(HILLS)
    # What a cut in its power leaves of a vehicle's file must not shut it out.
    (folder / "state" / "car-001" / "secure-sums.json").write_text("")
    submitted = followed.type(
        "fedwatt deploy submit hills.toml --out runs/hills --personalise", "hills"
    )
    # Simulated meanwhile: Flower's processes are mostly waited for.
    alike = folder / "simulated hills"
    text = HILLS.replace('data = "fleet"', f'data = "{folder}/fleet"')
    execute(from_toml(text.replace("[personal]", "[personal]\nenabled = true")), alike, Silent())
    assert submitted.wait(LONG) == 0, followed.say("hills")
    said = followed.say("hills")
    assert "secure-sums.json is damaged" in followed.say("car-001")
    assert re.search(r"hills: \d+ nodes are published, of 3 vehicles", said)
    for label in ("fedavg, level roads", "fedavg"):
        assert f"{label}: round 1/1, 3 of 3 replies" in said
    got, wanted = (read_field(one / "field.parquet") for one in (run, alike))
    assert got.nodes == wanted.nodes > 0
    # To the last bit: both add the same whole numbers.
    assert np.array_equal(got.elevation_m, wanted.elevation_m)
    for real, simulated in ((run, alike), (run / LEVEL, alike / LEVEL)):
        for model in GLOBAL_MODELS:
            expected, found = weights(simulated, model), weights(real, model)
            assert expected.keys() == found.keys()
            for name in expected:
                torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-6, msg=name)
        mine, theirs = pooled(real), pooled(simulated)
        assert {model for model, _ in mine} == {*GLOBAL_MODELS, "personal"}
        assert mine.keys() == theirs.keys()
        for key, errors in mine.items():
            assert errors == pytest.approx(theirs[key], rel=1e-4)
    for number in (1, 2, 3):
        memory = folder / "state" / f"car-00{number}" / "memory"
        assert len(list(memory.glob("*/hills-*.parquet"))) == 1
        assert len(list(memory.rglob("personal.safetensors"))) == 2


def test_a_stranger_gets_nowhere(followed: Machine) -> None:
    other, known = Depot(followed.folder / "other"), Depot(followed.folder / "depot")
    other.create(["127.0.0.1"])
    stranger = other.add_vehicle("car-001")
    shutil.copytree(known.add_vehicle("stolen"), followed.folder / "stolen")
    followed.done("fedwatt deploy keys apply")  # or by itself, whichever is first
    # Nobody asks for it: the server notices by itself.
    known.revoke_vehicle("stolen")
    until(lambda: "unregister" in followed.say("server"))
    vehicle = "fedwatt deploy vehicle fleet/car-001 --patience 0 --state elsewhere --keys "
    mixed = followed.folder / "mixed"
    mixed.mkdir()
    (mixed / "key").write_bytes((stranger / "key").read_bytes())
    (mixed / "ca.pem").write_bytes(known.ca.read_bytes())
    shutil.copy(stranger / "voucher", mixed)
    _, public = key_pair(followed.folder / "stolen" / "key")
    voucher = vouch(known._authority(), "car-001", public_bytes(public))
    (followed.folder / "stolen" / "voucher").write_bytes(voucher)
    wrong_key = followed.type(vehicle + "mixed", "wrong key")
    revoked = followed.type(vehicle + "stolen", "revoked")
    wrong_server = followed.type(vehicle + "other/vehicles/car-001", "wrong server")
    assert [p.wait(LONG) for p in (wrong_key, revoked, wrong_server)] == [2, 2, 2]
    assert "has not vouched for mixed/key as a key of car-001" in followed.say("wrong key")
    assert "does not accept this vehicle's key" in followed.say("revoked")
    assert "CERTIFICATE_VERIFY_FAILED" in followed.say("wrong server")


def test_a_second_server_leaves_no_way_around_a_revocation(followed: Machine) -> None:
    """One on another port once held the depot's vehicles, and a revoked one stayed online."""
    lost = Depot(followed.folder / "depot").add_vehicle("lost")
    second = followed.type("fedwatt deploy server --address 127.0.0.1:0", "other port")
    assert second.wait(LONG) == 2
    assert "A server is running on depot already" in followed.say("other port")
    shutil.copytree(lost, followed.folder / "lost")
    shutil.copytree(followed.folder / "fleet" / "car-001", followed.folder / "lost car")
    data = json.loads((followed.folder / "lost car" / "vehicle.json").read_text())
    (followed.folder / "lost car" / "vehicle.json").write_text(json.dumps(data | {"name": "lost"}))
    vehicle = "fedwatt deploy vehicle 'lost car' --patience 0 --state lost-state --keys lost"
    followed.done("fedwatt deploy keys apply")
    followed.type(vehicle, "lost")
    until(lambda: "is connected to" in followed.say("lost"))
    followed.done("fedwatt deploy keys revoke lost")
    followed.done("fedwatt deploy keys apply")  # or by itself, whichever is first
    said = followed.done("fedwatt deploy status")
    assert "lost" not in re.sub(r"lost +\d+ +(offline|refused).*", "", said), said


AWAY = """
seeds = [1]
[training]
rounds = 30
participation = 1.0
batch = 16
steps = 1
evaluate_every = 30
[deploy]
vehicles = 3
enrolment_seconds = 400
quorum = 3
round_seconds = 60
[[method]]
name = "scaffold"
"""
FAST_CLOCK = """
import sys, time

ticks = time.time
time.time = lambda: ticks() + 10

from datetime import timedelta
from pathlib import Path
from flwr.supernode import node_auth_http_interceptor as signing
from fedwatt.deploy import node
from fedwatt.deploy.connection import Connection
from fedwatt.deploy.vehicle import Vehicle
from fedwatt.errors import RunError

right = signing.now
signing.now = lambda: right() + timedelta(seconds=10)
folder, keys, state, server = sys.argv[1:]
connection = Connection(server, Path(keys) / "ca.pem", Path(keys) / "key")
try:
    node.drive(Vehicle(Path(folder), Path(state)), connection, patience_seconds=0.0)
except RunError as error:
    sys.exit(str(error))
"""


def test_a_fleet_that_goes_offline_pauses_its_run(followed: Machine) -> None:
    """All vehicles off after some of 30 rounds: the run waits, and ends as an undisturbed one."""
    folder, run = followed.folder, followed.folder / "runs" / "away"
    text = AWAY.replace("[training]", SMALL + "[training]")
    (folder / "away.toml").write_text(text)
    submitted = followed.type("fedwatt deploy submit away.toml --out runs/away", "away")
    until(lambda: (run / "checkpoint" / "scaffold" / "round-000002").exists())
    for name in CARS:
        _end(followed, name)
    until(lambda: "vehicles that a round" in RunState.read(run / "deployment.json").about)
    done = max((run / "checkpoint" / "scaffold").glob("round-*")).name
    # Meanwhile: one run a folder, one server a depot, and a word about a clock that is off.
    (folder / "fast.py").write_text(FAST_CLOCK)
    own = f"fleet/car-001 {KEYS}/car-001 elsewhere 127.0.0.1:{followed.port}"
    second = followed.type("fedwatt deploy submit away.toml --out runs/away --resume", "second")
    server = followed.type("fedwatt deploy server", "second server")
    fast = followed.type(f"{sys.executable} fast.py {own}", "fast")
    status = followed.type("fedwatt deploy status --out runs/away", "paused")
    assert [one.wait(LONG) for one in (second, server, fast, status)] == [2, 2, 1, 0]
    assert "A run is going on in runs/away" in followed.say("second")
    assert "A server is running on depot already" in followed.say("second server")
    assert re.search(r"clock is (9|10|11) s ahead of the server's", followed.say("fast"))
    assert re.search(r"The run is paused since .* \d of the 3 vehicles", followed.say("paused"))
    assert max((run / "checkpoint" / "scaffold").glob("round-*")).name == done < "round-000030"
    for name in CARS:
        followed.type(_line(name), f"{name} again")
    assert submitted.wait(LONG) == 0, followed.say("away")
    assert "paused after round" in followed.say("away")
    assert "goes on after round" in followed.say("away")
    rows = read_table(run, "rounds").to_pylist()
    assert [row["replies"] for row in rows] == [0] + [3] * 30
    text = text.replace("[training]", f'[fleet]\ndata = "{folder}/fleet"\n[training]')
    execute(from_toml(text), folder / "undisturbed", Silent())
    wanted, got = weights(folder / "undisturbed"), weights(run)
    for name in wanted:
        torch.testing.assert_close(got[name], wanted[name], rtol=0, atol=1e-6, msg=name)


def test_what_was_connected_is_cut_off_and_not_let_in_again(followed: Machine) -> None:
    """Its last look for questions is held for most of a minute, which has gone by meanwhile."""
    if "lost" not in followed.logs:
        pytest.skip("it is connected by the test that revokes its key")
    assert followed.process("lost").wait(LONG) == 2
    assert "does not accept this vehicle's key" in followed.say("lost")


DYING = """
import os, signal, sys
from pathlib import Path
from fedwatt.deploy import node
from fedwatt.deploy.board import Board
from fedwatt.deploy.vehicle import Vehicle
from fedwatt.deploy.connection import Connection
from fedwatt.deploy.messages import from_records
from fedwatt.deploy.state import PAUSED, RunState

class Dying(Vehicle):
    def answer(self, kind, records):
        reply = super().answer(kind, records)
        if kind == "train" and from_records(reply).values["round"] == 2:
            os.kill(os.getpid(), signal.SIGKILL)  # trained and remembered, not sent
        return reply

folder, keys, state, server = sys.argv[1:]
connection = Connection(server, Path(keys) / "ca.pem", Path(keys) / "key")
node.drive(Dying(Path(folder), Path(state), board=Board.of(Path(keys))), connection)
"""
FAULTY = """
seeds = [1]
[training]
rounds = 3
participation = 1.0
batch = 16
[deploy]
vehicles = 3
enrolment_seconds = 400
round_seconds = {seconds}
evaluation_seconds = 2
[[method]]
name = "scaffold"
"""


def test_the_server_and_a_vehicle_are_killed_in_mid_round(followed: Machine) -> None:
    """The run goes on after the server's death; a dead vehicle's round is that of the others."""
    folder, run = followed.folder, followed.folder / "runs" / "faulty"
    text = FAULTY.format(seconds=20).replace("[training]", SMALL + "[training]")
    (folder / "faulty.toml").write_text(text)
    (folder / "dying.py").write_text(DYING)
    _end(followed, "car-003 again")
    dying = f"fleet/car-003 {KEYS}/car-003 state/car-003 127.0.0.1:{followed.port}"
    killed = followed.type(f"{sys.executable} dying.py {dying}", "dying")
    followed.type("fedwatt deploy submit faulty.toml --out runs/faulty", "faulty")
    until(lambda: (run / "checkpoint" / "scaffold" / "round-000001").exists())
    # The run dies with the server. What is left holds its port, until the next one ends it.
    followed.process("server").kill()
    for process in _of_server(followed, "flwr-serverapp"):
        os.kill(process, signal.SIGKILL)
    assert _of_server(followed)
    done = len(list((run / "checkpoint" / "scaffold").glob("round-*")))
    assert done and not (run / "report.html").exists()

    followed.type("fedwatt deploy server", "server again")
    until(lambda: "of a server that was killed" in followed.say("server again"))
    until(lambda: "The server is up at" in followed.say("server again"))
    followed.done("fedwatt deploy submit --resume --out runs/faulty", name="resumed")
    assert "continuing after round" in followed.say("resumed")
    assert killed.wait(1) == -signal.SIGKILL
    rows = read_table(run, "rounds").to_pylist()
    assert [(row["replies"], row["lost"]) for row in rows[1:]] == [(3, 0), (3, 0), (2, 1)]

    def lose(kind: str, node: int, reply: RecordDict) -> RecordDict | None:
        name = grid.vehicles[node].name
        lost = kind == "train" and name == "car-003" and from_records(reply).values["round"] == 2
        return None if lost else reply

    grid = loopback(folder / "fleet", folder / "loopback")
    grid.tamper = lose
    text = text.replace("round_seconds = 20", "round_seconds = 0.1")
    wanted, got = weights(deployed(text, grid, folder / "survivors")), weights(run)
    for name in wanted:
        torch.testing.assert_close(got[name], wanted[name], rtol=0, atol=1e-6, msg=name)


def _line(name: str) -> str:
    """The guide's command for a vehicle."""
    (line,) = [line for line in guide()[1] if f"vehicle fleet/{name}" in line and "&" in line]
    return line


def _end(machine: Machine, name: str) -> None:
    machine.process(name).terminate()
    machine.process(name).wait(20)


def _of_server(machine: Machine, *named: str) -> list[int]:
    """Processes that work for this machine's server, its run included; or those so `named`."""
    listed = subprocess.run(
        ["ps", "-ww", "-eo", "pid,args"], capture_output=True, text=True, check=True
    )
    mine = (str(machine.folder), f":{machine.port}")
    named = named or ("fedwatt.deploy.superlink", "flower-superexec", "flwr-serverapp")
    return [
        int(line.split()[0])
        for line in listed.stdout.splitlines()
        if any(n in line for n in named) and any(m in line for m in mine)
    ]
