"""The latency benchmark: both engines in turns on the same windows, one thread."""

import time

import pytest
import torch
from typer.testing import CliRunner

from benchmarks.latency import (
    WARM_UP,
    Latency,
    Subject,
    backbone_subjects,
    measure,
)
from fedwatt.cli import app


def test_both_engines_at_both_batches():
    threads = torch.get_num_threads()
    seen = []
    latencies = measure(
        backbone_subjects(("mlp",)), windows=640, progress=lambda *done: seen.append(done)
    )
    assert torch.get_num_threads() == threads
    assert [(row.engine, row.batch) for row in latencies] == [
        (engine, batch) for engine in ("PyTorch", "onnxruntime") for batch in (1, 32)
    ]
    assert all(0 < row.median_us <= row.p95_us and row.windows == 640 for row in latencies)
    assert seen == [(done, 40) for done in range(1, 41)]


def test_models_and_engines_take_turns_on_one_thread_without_gradients():
    calls = []

    def engine(name):
        def forward(batch):
            calls.append((name, len(batch)))
            assert torch.get_num_threads() == 1 and torch.is_inference_mode_enabled()

        return forward

    both = Subject("toy", {"one": engine("one"), "two": engine("two")})
    measure([both], windows=400)
    single = [name for name, batch in calls if batch == 1]
    # Warm-up of each, then twenty blocks of 20 windows in turns.
    assert single[: 2 * WARM_UP] == ["one"] * WARM_UP + ["two"] * WARM_UP
    assert single[2 * WARM_UP :] == (["one"] * 20 + ["two"] * 20) * 20
    assert {batch for _, batch in calls} == {1, 32}


def test_a_slow_model_is_measured_on_fewer_windows():
    slow = Subject("slow", {"PyTorch": lambda batch: time.sleep(0.002)})
    latencies = measure([slow], windows=2000, longest_s=0.1)[0]
    # 0.1 s hold about 50 calls of 2 ms; every one of the 20 blocks makes at least one.
    assert 20 <= latencies.windows <= 80 and latencies.median_us >= 2000


def test_the_first_calls_are_not_in_the_numbers():
    count = iter(range(10**6))
    cold = Subject("cold", {"PyTorch": lambda batch: time.sleep(0.01 * (next(count) < 5))})
    assert measure([cold], windows=320)[0].p95_us < 5000


def test_throughput_is_windows_a_second():
    # 1.6 ms a window, the paper's figure, is 625 windows a second.
    assert Latency("mlp", "PyTorch", 32, 10_000, 1600.0, 2000.0).throughput == pytest.approx(625)


def test_the_command_shows_progress_and_a_table():
    done = CliRunner().invoke(
        app, ["bench", "latency", "--backbone", "mlp", "--windows", "64", "--seconds", "0.1"]
    )
    assert done.exit_code == 0 and "Backbones: 100 %" in done.output
    assert "onnxruntime" in done.output and "MLP" in done.output
