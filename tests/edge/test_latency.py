"""The latency benchmark measures both engines on the same windows and restores the threads."""

import pytest
import torch
from typer.testing import CliRunner

from fedwatt.bench.latency import Latency, bench_backbones
from fedwatt.cli import app


def test_both_engines_at_both_batches():
    threads = torch.get_num_threads()
    found = bench_backbones(("mlp",), windows=64, repeats=1)
    assert torch.get_num_threads() == threads
    assert {(row.engine, row.batch) for row in found} == {
        (engine, batch) for engine in ("PyTorch", "onnxruntime") for batch in (1, 32)
    }
    assert all(0 < row.median_us <= row.p95_us for row in found)


def test_throughput_is_windows_a_second():
    # 1.6 ms a window, the paper's figure, is 625 windows a second.
    assert Latency("mlp", "PyTorch", 32, 1600.0, 2000.0).throughput == pytest.approx(625)


def test_the_command_shows_a_table():
    done = CliRunner().invoke(
        app, ["bench", "latency", "--backbone", "mlp", "--windows", "64", "--repeats", "1"]
    )
    assert done.exit_code == 0 and "onnxruntime" in done.output
