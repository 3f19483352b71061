"""The benchmark of the engine: what it counts and what it refuses."""

from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks import reference
from benchmarks.reference import bench_reference
from fedwatt.cli import app
from fedwatt.methods import get
from tests.federation.toys import random_fleet


class Slow:
    """Two rounds of 10 s, of which 2 s evaluate, 5 s are in sections and 3 s in none."""

    now = 0.0

    def start(self, method: Any) -> tuple[int, None]:
        return 0, None

    def finished(self, state: int) -> bool:
        return state == 2

    def advance(self, method: Any, state: int) -> tuple[int, Any]:
        Slow.now += 10
        return state + 1, SimpleNamespace(seconds={"total": 7.0, "evaluation": 2.0})


def test_all_of_a_round_but_evaluation_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference.time, "perf_counter", lambda: Slow.now)
    assert reference._stacked_seconds(Slow(), get("fedavg")) == 16.0


def test_both_ways_are_measured() -> None:
    (result,) = bench_reference(random_fleet(), ["fedavg"], rounds=1, seeds=(1,), repeats=1)
    assert result.ratio == pytest.approx(result.stacked_s / result.plain_s)
    assert min(result.stacked_s, result.plain_s) > 0


def test_a_method_without_a_plain_form_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedwatt.synthetic.synthetic_fleet", lambda **_: random_fleet())
    result = CliRunner().invoke(app, ["bench", "reference", "--method", "scaffold"])
    assert result.exit_code != 0
    shown = " ".join(f"{result.output} {result.exception}".split())
    assert "would leave out ControlVariates and Scaffold" in shown
