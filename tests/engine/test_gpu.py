"""The GPU engine does what the CPU engine does; benchmarks/gpu.py says how closely."""

from dataclasses import replace

import pytest
import torch

from benchmarks.recipe import FEATURES, WINDOW, Recipe
from fedwatt.engine import cpu, gpu, plain
from fedwatt.engine.gpu import recording_key
from fedwatt.engine.job import Job
from fedwatt.engine.kernels.mlp_gpu import gpu_round
from fedwatt.engine.pool import Pool
from fedwatt.federation import Availability, Federation, Training
from fedwatt.federation.federation import train_side_by_side
from fedwatt.methods import METHODS, get
from fedwatt.metrics import Stopwatch
from fedwatt.models import GRU, LSTM, MLP, Model
from tests.federation.toys import random_fleet

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")


def test_one_recording_serves_other_numbers_but_no_other_plan() -> None:
    def key(**settings):
        federation = Federation(random_fleet([40, 9]), training=Training(batch=8), device="cpu")
        method = get("fo-ri-fedavg", **settings)
        state, _ = federation.start(method)
        fleet = federation.simulated
        calls = fleet.calls(state, fleet.present(state))
        return recording_key(fleet.begin(method, state, calls, Stopwatch()).job)

    assert key() == key(alpha=0.7, lam=0.3, p_max=2.0)
    assert key() != key(beta_kappa=0.5)  # the gate plans with κ
    assert key() != key(order="clip-then-gate")


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("name", ["fedavg", "fo-ri-fedavg", "scaffold", "moon", "fedel"])
def test_the_steps_of_a_recording_are_plain_ones(monkeypatch, name: str, deterministic: bool):
    """Without a GPU: the work that would be recorded, done at once."""

    def take(recording: gpu.Recording, pool: Pool, active: int, step: int, shaped: bool) -> None:
        recording._work(pool, active, step if step < 2 else 2 + step % 2, shaped)

    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(gpu, "can_compile", lambda: False)
    monkeypatch.setattr(gpu.Recording, "_take", take)
    monkeypatch.setattr(gpu, "SLAB", 4)  # seven vehicles of different sizes are two slabs
    federation = Federation(
        random_fleet([40, 9, 33, 70, 12, 25, 18]),
        training=Training(
            batch=8, participation=1.0, precision="float64", deterministic=deterministic
        ),
        availability=Availability(speeds=(1.0, 0.5)),
        device="cpu",
    )
    method = get(name)
    state, _ = federation.start(method)
    vehicles = federation.simulated
    calls = vehicles.calls(state, vehicles.present(state))
    job = vehicles.begin(method, state, calls, Stopwatch()).job
    for measured in (False, False, True, True):  # the second time with the buffers of the first
        paths = [torch.zeros(len(job.steps)).double() if measured else None for _ in range(2)]
        result, expected = (replace(job, path=path) for path in paths)
        torch.testing.assert_close(gpu.train(result), plain.train(expected), rtol=0, atol=1e-12)
        torch.testing.assert_close(result.path, expected.path, rtol=0, atol=1e-12)


@on_a_gpu
def test_gated_and_plain_steps_side_by_side() -> None:
    def trained(device: str) -> list[torch.Tensor]:
        fleet = random_fleet([40, 9, 33])
        training = Training(rounds=3, precision="float64")
        methods = [get("fo-ri-fedavg"), get("fo-ri-fedavg", beta_kappa=0.5)]
        federations = [Federation(fleet, training=training, device=device) for _ in methods]
        results = train_side_by_side(list(zip(federations, methods, strict=True)))
        return [result.state.weights.cpu() for result in results]

    for here, present in zip(trained("cpu"), trained("cuda"), strict=True):
        torch.testing.assert_close(present, here, rtol=0, atol=1e-9)


@on_a_gpu
@pytest.mark.parametrize("name", [*METHODS, "fo-fedavg+signals"])
def test_every_method_on_both_devices(name: str) -> None:
    def trained(device: str) -> torch.Tensor:
        federation = Federation(
            random_fleet([40, 9, 33, 70]),
            training=Training(rounds=3, participation=0.75, batch=8, precision="float64"),
            availability=Availability(speeds=(1.0, 0.5)),
            seeds=(1, 2),
            device=device,
        )
        return federation.train(get(name)).state.weights.cpu()

    torch.testing.assert_close(trained("cuda"), trained("cpu"), rtol=0, atol=1e-9)


@on_a_gpu
@pytest.mark.parametrize("method", ["fedavg", "fo-ri-fedavg", "moon"])
@pytest.mark.parametrize("model", [GRU(8, 5), LSTM(8, 5)], ids=["GRU", "LSTM"])
def test_recurrent_models_on_both_devices(model: Model, method: str) -> None:
    def trained(device: str) -> torch.Tensor:
        # Batches of 8: five, two and five steps, so that vehicles drop out, the last batch short.
        training = Training(rounds=2, batch=8, precision="float64")
        federation = Federation(
            random_fleet([40, 9, 33]), model, training=training, seeds=(1, 2), device=device
        )
        return federation.train(get(method)).state.weights.cpu()

    # Two rounds of rounding in float64, through windows of a few seconds.
    torch.testing.assert_close(trained("cuda"), trained("cpu"), rtol=0, atol=1e-9)


@on_a_gpu
@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fo-ri-fedavg", "scaffold", "feddyn"])
def test_a_whole_round_in_one_kernel_is_the_processor_s(name: str) -> None:
    """In float32, five steps of the paper's network; benchmarks/gpu.py measures the same."""
    settings = {"probe_every": 10**6} if name == "fo-ri-fedavg" else {}

    def job(device: str) -> Job:
        training = Training(participation=0.3, steps=5)
        federation = Federation(
            Recipe().fleet(), MLP(WINDOW, FEATURES), training=training, device=device
        )
        method = get(name, **settings)
        fleet = federation.simulated
        state, _ = federation.start(method)
        calls = fleet.calls(state, fleet.present(state))
        return fleet.begin(method, state, calls, Stopwatch()).job

    complete = gpu_round(job("cuda"))
    assert complete is not None
    gpu_deltas = complete(job("cuda")).cpu()
    expected = cpu.train(job("cpu"), Stopwatch())
    assert (gpu_deltas - expected).norm() <= 1e-5 * expected.norm()
