"""A trial fleet in real processes over TLS: fedwatt's nodes, and Flower's own SuperNode."""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fedwatt.cli import main
from fedwatt.deploy.plan.certificates import KEY, OWNER, read_vehicle_key
from fedwatt.deploy.plan.quickstart import make_trial, trial_configuration
from fedwatt.deploy.transport import SWITCH
from fedwatt.deploy.vehicle.acceptance import FILE
from fedwatt.files import write_secret
from fedwatt.runs.config import RunConfig
from fedwatt.runs.tables import read_table

ROOT = Path(__file__).parents[3]
DEPLOY = (sys.executable, "-m", "fedwatt", "deploy")
Start = Callable[..., "subprocess.Popen[bytes]"]
LOADED = multiprocessing.get_context("forkserver")
"""Starts processes from one that has loaded what vehicles need, which takes most of their time."""
LOADED.set_forkserver_preload([
    __name__,
    "fedwatt.deploy.vehicle.handler",
    "fedwatt.deploy.vehicle.worker",
    "fedwatt.deploy.transport.node",
])  # fmt: skip


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def surroundings(**more: str) -> dict[str, str]:
    """Return the environment of a command."""
    folders = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    paths = os.pathsep.join((str(ROOT), *(str(Path(folder).absolute()) for folder in folders)))
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PYTHONPATH": paths, "PATH": programs, "OMP_NUM_THREADS": "1"} | more


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start commands by name with a log file each, and end them after the test."""
    started = []

    def begin(name: str, *command: str, **environment: str) -> "subprocess.Popen[bytes]":
        with (tmp_path / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=tmp_path,
                env=surroundings(**environment),
                stdout=log,
                stderr=log,
            )
        started.append(process)
        return process

    yield begin
    for process in reversed(started):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + 120
    for process in started:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()


def deploy_in(folder: Path, name: str, environment: dict[str, str], *words: str) -> None:
    """Be the process of a command of `fedwatt deploy`."""
    os.chdir(folder)
    os.environ.update(environment)
    log = os.open(f"{name}.log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.argv = ["fedwatt", "deploy", *words]
    main()


@pytest.fixture
def fork(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Start commands of `fedwatt deploy` as `start` does, from a process that has loaded them."""
    started = []

    def begin(name: str, *words: str, **environment: str) -> Any:
        arguments = (tmp_path, name, surroundings(**environment), *words)
        process = LOADED.Process(target=deploy_in, args=arguments)
        process.start()
        started.append(process)
        return process

    yield begin
    for process in started:
        process.terminate()
    for process in started:
        process.join(120)
        process.kill()
        process.join()
        process.close()


def patient(rounds: int) -> RunConfig:
    """Return the configuration of a trial with time for a busy machine."""
    config = trial_configuration(rounds)
    deploy = replace(config.deploy, enrolment_seconds=900.0, round_seconds=900.0)
    return replace(
        config,
        deploy=replace(deploy, evaluation_seconds=900.0),
        secure=replace(config.secure, stage_seconds=300.0),
    )


@pytest.mark.parametrize("fast", ["1", "0"], ids=["fast path", "public interface"])
def test_three_vehicles_train_by_secure_aggregation(
    fast: str, start: Start, fork: Callable[..., Any], tmp_path: Path
) -> None:
    names = make_trial(tmp_path / "trial", patient(2))
    address = f"127.0.0.1:{free_port()}"
    switch = {SWITCH: fast}
    store = ["--store", "trial/server", "--address", address]
    start("server", *DEPLOY, "server", *store, **switch)
    for name in names:
        keys = ("--keys", f"trial/keys/{name}", "--state", f"trial/state/{name}")
        vehicle = ("vehicle", f"trial/fleet/{name}", *keys, "--address", address)
        if name == names[0]:
            start(name, *DEPLOY, *vehicle, **switch)
        else:
            fork(name, *vehicle, **switch)
    submitted = fork("submit", "run", *store, "--out", "run", **switch)
    submitted.join(1500)
    assert submitted.exitcode == 0, (tmp_path / "submit.log").read_text()
    assert read_table(tmp_path / "run", "rounds").column("replies").to_pylist() == [0, 3, 3]
    text = (tmp_path / "submit.log").read_text()
    assert ("the fast path is switched off" in text) == (fast == "0")


def test_a_supernode_of_flower_trains(start: Start, tmp_path: Path) -> None:
    """It starts a process per message, so one vehicle and one round without secure aggregation."""
    config = patient(1)
    (name, *_) = make_trial(
        tmp_path / "trial",
        replace(
            config,
            deploy=replace(config.deploy, vehicles=1),
            secure=replace(config.secure, enabled=False),
            personalisation=replace(config.personalisation, enabled=False),
        ),
    )
    trial = tmp_path / "trial"
    keys = trial / "keys" / name
    (keys / FILE).write_text("secure_aggregation = false\n")
    key = read_vehicle_key(keys / KEY)
    converted = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    write_secret(tmp_path / "key", converted)
    address = f"127.0.0.1:{free_port()}"
    store = ["--store", "trial/server", "--address", address]
    server = start("server", *DEPLOY, "server", *store)
    while "The server is up" not in (tmp_path / "server.log").read_text():
        assert server.poll() is None, (tmp_path / "server.log").read_text()
        time.sleep(0.2)
    folders = {"folder": trial / "fleet" / name, "state": tmp_path / "state", "keys": keys}
    start(
        "supernode",
        *("flower-supernode", "--superlink", address, "--port", str(free_port())),
        *("--root-certificates", str(keys / OWNER)),
        *("--auth-supernode-private-key", str(tmp_path / "key")),
        *("--node-config", " ".join(f'{n}="{path}"' for n, path in folders.items())),
        FLWR_HOME=str(tmp_path / "flower"),
        FLWR_TELEMETRY_ENABLED="0",
        FLWR_DISABLE_UPDATE_CHECK="1",
    )
    submitted = start("submit", *DEPLOY, "run", *store, "--out", "run")
    logs = ("submit", "supernode")
    status = submitted.wait(1500)
    assert status == 0, "\n".join((tmp_path / f"{log}.log").read_text() for log in logs)
    assert read_table(tmp_path / "run", "rounds").column("replies").to_pylist() == [0, 1]
