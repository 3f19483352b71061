"""One training over workers of a Ray cluster."""

import gc
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch

from fedwatt.errors import SettingError
from fedwatt.federation import Federation
from fedwatt.runs.config import from_toml
from fedwatt.runs.simulation import federation_for
from fedwatt.runs.source import open_fleet
from fedwatt.tuning import workers as workers_module
from fedwatt.tuning.grid import versions
from fedwatt.tuning.workers import RayWorkers, deals_participants
from tests.cluster import on_ray

CONFIG = from_toml(
    "seeds = [1, 2]\ndevice = 'cpu'\n[fleet]\nvehicles = 9\ntrips = 3\n[training]\nrounds = 3\n"
    "participation = 0.7\nsteps = 300\nbatch = 16\n[[method]]\nname = 'scaffold'\n"
    "learning_rate = 0.05"
)
CHOICE = CONFIG.methods[0]


@pytest.fixture
def five_cores() -> Iterator[Any]:
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=5, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    yield ray
    ray.shutdown()
    gc.collect()  # while what Ray leaves behind may still warn


@on_ray
def test_workers_of_which_one_is_killed_make_the_same_model(
    five_cores: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = federation_for(CONFIG, CHOICE, open_fleet(CONFIG))
    whole = plain.train(CHOICE.method).state.weights
    workers = RayWorkers(CONFIG)
    assert workers.count == 5
    spread = workers.federation(plain, CHOICE)
    dealt = spread.train(CHOICE.method).state.weights
    # Sums in float64 in another order: a float32 model agrees but for a few last bits.
    torch.testing.assert_close(dealt, whole, rtol=1e-5, atol=1e-6)
    assert torch.equal(_with_a_killed_worker(spread), dealt)
    # What a worker cannot begin with is said as it is: no worker was lost.
    with monkeypatch.context() as other:
        other.setattr(workers_module, "versions", lambda: {**versions(), "torch": "1.0"})
        with pytest.raises(SettingError, match=r"torch.*1\.0"):
            RayWorkers(CONFIG).federation(plain, CHOICE).train(CHOICE.method)


def _with_a_killed_worker(spread: Federation) -> torch.Tensor:
    """The model after a worker was killed in the midst of a round."""
    state, _ = spread.start(CHOICE.method)
    killed: list[int] = []
    killing = Thread(target=_kill_a_working_one, args=(killed,))
    killing.start()
    while not spread.finished(state):
        state, _ = spread.advance(CHOICE.method, state)
    killing.join()
    assert killed
    return state.weights


def _kill_a_working_one(killed: list[int]) -> None:
    """Ray names a process after the task that it is at."""
    end = time.monotonic() + 20
    while not killed and time.monotonic() < end:
        for process in Path("/proc").glob("[0-9]*"):
            try:
                title = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if title.startswith(b"ray::") and b"train" in title:
                os.kill(int(process.name), signal.SIGKILL)
                killed.append(int(process.name))
                return


def test_a_training_is_spread_where_tasks_are_few_and_participants_many() -> None:
    few = from_toml("seeds = [1]\n[training]\nparticipation = 0.1\n[[method]]\nname = 'fedavg'")
    assert deals_participants(few, vehicles=10_000, workers=8)  # one task, 1,000 participants
    assert not deals_participants(few, vehicles=600, workers=8)  # 60 participants for 8 workers
    assert not deals_participants(few, vehicles=10_000, workers=1)
    three = from_toml("seeds = [1, 2, 3]\n[training]\nparticipation = 0.1")
    assert deals_participants(three, vehicles=10_000, workers=4)  # two methods
    buffered = from_toml("[training]\nparticipation = 0.5\n[asynchronous]\nbuffer = 4")
    assert not deals_participants(buffered, vehicles=10_000, workers=8)
