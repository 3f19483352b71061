"""A trial fleet in real processes, over TLS, on the fast path and on Flower's public interface."""

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedwatt.deploy.plan.quickstart import make_trial, trial_configuration
from fedwatt.deploy.transport import SWITCH
from fedwatt.runs.tables import read_table

ROOT = Path(__file__).parents[3]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.mark.parametrize("fast", ["1", "0"], ids=["fast path", "public interface"])
def test_three_vehicles_train_by_secure_aggregation(fast: str, tmp_path: Path) -> None:
    config = trial_configuration(2)
    patient = replace(config.deploy, enrolment_seconds=900.0, round_seconds=900.0)
    secure = replace(config.secure, stage_seconds=300.0)
    names = make_trial(tmp_path / "trial", replace(config, deploy=patient, secure=secure))
    address = f"127.0.0.1:{free_port()}"
    paths = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", SWITCH: fast}
    command = [sys.executable, "-m", "fedwatt", "deploy"]
    store = ["--store", "trial/server", "--address", address]
    started = []

    def start(name: str, *words: str) -> "subprocess.Popen[bytes]":
        with (tmp_path / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*command, *words], cwd=tmp_path, env=environment, stdout=log, stderr=log
            )
        started.append(process)
        return process

    try:
        start("server", "server", *store)
        for name in names:
            keys = ("--keys", f"trial/keys/{name}", "--state", f"trial/state/{name}")
            start(name, "vehicle", f"trial/fleet/{name}", *keys, "--address", address)
        submitted = start("submit", "run", *store, "--out", "run")
        assert submitted.wait(1500) == 0, (tmp_path / "submit.log").read_text()
    finally:
        for process in reversed(started):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 120
        for process in started:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
    assert read_table(tmp_path / "run", "rounds").column("replies").to_pylist() == [0, 3, 3]
    text = (tmp_path / "submit.log").read_text()
    assert ("the fast path is switched off" in text) == (fast == "0")
