"""Hard limits of the computing process: memory, CPU time, wall-clock time."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedwatt.deploy import log
from fedwatt.deploy.vehicle.acceptance import Acceptance
from fedwatt.deploy.vehicle.handler import RequestHandler
from fedwatt.deploy.vehicle.worker import Worker, answer_jobs, limit_memory
from fedwatt.deploy.wire import Content, pack, unpack
from fedwatt.errors import DataError
from fedwatt.telemetry.store import read_vehicle, vehicle_folders
from tests.deploy.fleets import OPEN, config_text, credentials, make_fleet, plan_of, signed
from tests.deploy.vehicle.test_malicious_requests import SIZE


class Greedy:
    """Computes what a job says."""

    def compute(self, job: Any) -> Content:
        kind, amount = job
        if kind == "memory":
            return Content({"bytes": len(np.ones(amount * 2**17))})
        until = time.process_time() + amount
        while kind == "cpu" and time.process_time() < until:
            pass
        if kind == "sleep":
            time.sleep(amount)
        return Content({"done": True})


def child(pipe: Any, folder: Path, state: Path, acceptance: Acceptance, *_: Any) -> None:
    limit_memory(acceptance.memory_mb)
    answer_jobs(pipe, Greedy(), acceptance)


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One for all tests: a process that was ended is followed by a new one."""
    folder = tmp_path_factory.mktemp("worker")
    limits = Acceptance(cpu_seconds=1, wall_seconds=600.0, memory_mb=256)
    started = Worker(folder, folder, limits, target=child)
    yield started
    started.stop()


def test_a_job_within_its_limits_is_computed(worker: Worker) -> None:
    assert worker.compute(("memory", 10)).values == {"bytes": 10 * 2**17}


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (("memory", 1000), "needs more than memory_mb = 256"),
        (("cpu", 600), "the computing process ended"),
    ],
)
def test_a_job_beyond_a_limit_ends_and_the_next_is_computed(
    worker: Worker, job: Any, reason: str
) -> None:
    worker.compute(("memory", 1))
    with pytest.raises(DataError, match=reason):
        worker.compute(job)
    assert worker.compute(("memory", 1)).values


def test_a_job_beyond_its_time_ends_and_the_next_is_computed(worker: Worker) -> None:
    worker.compute(("memory", 1))
    worker.acceptance = replace(worker.acceptance, wall_seconds=2.0)
    began = time.monotonic()
    with pytest.raises(DataError, match="took longer than wall_seconds = 2 and was ended"):
        worker.compute(("sleep", 600))
    assert time.monotonic() - began < 300
    worker.acceptance = replace(worker.acceptance, wall_seconds=600.0)
    assert worker.compute(("memory", 1)).values


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("batch = 1000000000", "needs more than memory_mb = 1024"),
        ("epochs = 400000", "exceeded cpu_seconds = 2"),
    ],
)
def test_a_greedy_plan_is_ended_and_the_vehicle_goes_on(
    setting: str,
    reason: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The owner has signed its expensive settings."""
    fleet = make_fleet(tmp_path / "fleet")
    limits = replace(OPEN, cpu_seconds=2, memory_mb=1024)
    folder = vehicle_folders(fleet)[0]
    state = tmp_path / "state"
    worker = Worker(folder, state, limits)
    own = credentials(read_vehicle(folder).name)
    vehicle = RequestHandler(folder, state, own, limits, worker)
    text = config_text(fleet, "fo-ri-fedavg")
    content = signed(text.replace("batch = 16", setting))
    request = {"plan": plan_of(content).digest, "method": "fo-ri-fedavg", "round": 0}
    weights = {"weights": np.full(SIZE, 0.1, dtype=np.float32)}
    sent = {"counted": -1, "population": 4, "population_windows": 400.0}

    def status(kind: str, arrays: dict[str, Any], **values: Any) -> str:
        reply = vehicle.handle(pack(Content({"kind": kind, **values}, arrays)))
        return str(unpack(reply).values["status"])

    try:
        assert status("enrol", {}, signed_plan=content) == "done"
        monkeypatch.setattr(log, "propagate", True)
        assert status("train", weights, **request, **sent) == "failed"
        assert reason in caplog.text
        assert status("evaluate", weights, **request) == "done"
    finally:
        worker.stop()
