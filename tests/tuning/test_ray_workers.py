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
    "participation = 0.7\nsteps = 4\nbatch = 16\n[[method]]\nname = 'scaffold'\n"
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
def test_two_and_four_workers_and_a_killed_one_make_the_same_model(
    five_cores: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = federation_for(CONFIG, CHOICE, open_fleet(CONFIG))
    whole = plain.train(CHOICE.method).state.weights
    workers = RayWorkers(CONFIG, count=2)
    spread = workers.federation(plain, CHOICE)
    two = spread.train(CHOICE.method).state.weights
    # Sums in float64 in another order: a float32 model agrees but for a few last bits.
    torch.testing.assert_close(two, whole, rtol=1e-5, atol=1e-6)
    assert torch.equal(_with_a_killed_worker(workers, spread), two)
    for _ in range(2):
        workers._add()
    assert torch.equal(spread.train(CHOICE.method).state.weights, two)
    assert len(workers.idle) + len(workers.busy) == 4
    # What a worker cannot begin with is said as it is: no worker was lost.
    with monkeypatch.context() as other:
        other.setattr(workers_module, "versions", lambda: {**versions(), "torch": "1.0"})
        with pytest.raises(SettingError, match=r"torch.*1\.0"):
            RayWorkers(CONFIG, count=1).federation(plain, CHOICE).train(CHOICE.method)


def _with_a_killed_worker(workers: RayWorkers, spread: Federation) -> torch.Tensor:
    """The model after a worker was killed in the midst of a round."""
    state, _ = spread.start(CHOICE.method)
    victim = workers.ray.get(workers.idle[0].begin.remote())
    while not spread.finished(state):
        if state.round == 1:
            killing = Thread(target=lambda: (time.sleep(0.02), os.kill(victim, signal.SIGKILL)))
            killing.start()
        state, _ = spread.advance(CHOICE.method, state)
    killing.join()
    assert not _lives(victim)
    return state.weights


def _lives(process: int) -> bool:
    about = Path(f"/proc/{process}/stat")
    return about.exists() and about.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_training_is_spread_where_tasks_are_few_and_participants_many() -> None:
    few = from_toml("seeds = [1]\n[training]\nparticipation = 0.1\n[[method]]\nname = 'fedavg'")
    assert deals_participants(few, vehicles=10_000, workers=8)  # one task, 1,000 participants
    assert not deals_participants(few, vehicles=600, workers=8)  # 60 participants for 8 workers
    assert not deals_participants(few, vehicles=10_000, workers=1)
    three = from_toml("seeds = [1, 2, 3]\n[training]\nparticipation = 0.1")
    assert deals_participants(three, vehicles=10_000, workers=4)  # two methods
    buffered = from_toml("[training]\nparticipation = 0.5\n[asynchronous]\nbuffer = 4")
    assert not deals_participants(buffered, vehicles=10_000, workers=8)
