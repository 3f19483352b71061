"""Hard limits of the computing process: memory, CPU time, wall-clock time."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedwatt.deploy.vehicle.acceptance import Acceptance
from fedwatt.deploy.vehicle.worker import Worker, answer_jobs, limit_memory
from fedwatt.deploy.wire import Content
from fedwatt.errors import DataError


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


@pytest.fixture
def worker(tmp_path: Path) -> Any:
    limits = Acceptance(cpu_seconds=1, wall_seconds=10.0, memory_mb=256)
    started = Worker(tmp_path, tmp_path, limits, target=child)
    yield started
    started.stop()


def test_a_job_within_its_limits_is_computed(worker: Worker) -> None:
    assert worker.compute(("memory", 10)).values == {"bytes": 10 * 2**17}


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (("memory", 1000), "needs more than memory_mb = 256"),
        (("cpu", 60), "the computing process ended"),
        (("sleep", 60), "took longer than wall_seconds = 10"),
    ],
)
def test_a_job_beyond_a_limit_ends_and_the_next_is_computed(
    worker: Worker, job: Any, reason: str
) -> None:
    began = time.monotonic()
    worker.compute(("memory", 1))
    with pytest.raises(DataError, match=reason):
        worker.compute(job)
    assert time.monotonic() - began < 50
    assert worker.compute(("memory", 1)).values
