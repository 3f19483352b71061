"""Costs of methods, in turns: the order, the sums, and an evaluation on all engines."""

import pytest
import torch

from fedwatt import synthetic_fleet
from fedwatt.methods import RoughnessProximal
from fedwatt.methods.roughness import loss_slices, unit
from fedwatt.metrics import Stopwatch
from fedwatt.windows import DataSettings
from reproduction import timing
from reproduction.cell import key_of
from reproduction.judges import NOT_SUPPORTED, SUPPORTED
from reproduction.lab import Lab
from reproduction.timing import (
    CONTENDERS,
    PERIOD,
    contenders,
    federations,
    measured,
    turns_cell,
)
from tests.reproduction.records import SCALE, made, turns_of, verdict

SMALL = {"directions": 2, "points": 4, "probe_batch": 8}


@pytest.fixture(scope="module")
def fleet():
    return synthetic_fleet(3, trips=4, settings=DataSettings(stride=60, evaluation_stride=60))


def test_the_overhead_is_the_median_over_periods() -> None:
    rounds = [[1.0, 0.0, 0.0, 0.0]] * 3 * PERIOD
    probing = [[1.0, 0.1, 0.5, 0.0] if i % PERIOD == 0 else [1.0, 0.1, 0.0, 0.0] for i in range(15)]
    probing[1] = [9.0, 0.0, 0.0, 0.0]  # something else ran on the machine
    result = {"engines": {"cpu": {"fedavg": rounds, "ri-fedavg": probing}}}
    middle, low, high = timing.overhead(result, "cpu", "ri-fedavg")
    assert (middle, low) == pytest.approx((0.2, 0.2))  # 6 seconds in place of 5
    assert high > middle
    assert timing.part_seconds(result, "cpu", "ri-fedavg")["probe"] == pytest.approx(0.1)


def test_all_engines_take_turns(fleet, monkeypatch) -> None:
    monkeypatch.setattr(timing, "WARM_UP", 1)
    few = {name: CONTENDERS[name] for name in ("fedavg", "ri-fedavg")}
    monkeypatch.setattr(timing, "CONTENDERS", few)
    seen: list[tuple[int, int]] = []
    statistics = measured(fleet, 0.7, PERIOD, SMALL, lambda done, of: seen.append((done, of)))
    for engine in ("plain", "cpu"):
        of_engine = statistics["engines"][engine]
        assert list(of_engine) == list(few)
        for name, rounds in of_engine.items():
            assert len(rounds) == PERIOD and all(parts[0] > 0 for parts in rounds)
            probes = [number for number, parts in enumerate(rounds) if parts[2] > 1e-4]
            if engine == "plain" and name == "ri-fedavg":
                assert probes == [PERIOD - 1]  # rounds 1 to 5 are timed, 5 is a global one
            if name == "fedavg":
                assert probes == []
    assert seen[-1][0] == seen[-1][1] == len(statistics["engines"]) * PERIOD


def test_the_plain_probe_finds_the_slices_of_the_fast_one(fleet) -> None:
    rule = RoughnessProximal(probe_schedule="global", radius=0.5, **SMALL)
    federation = federations(fleet, 1.0, "cpu")["ri-fedavg"]
    method = contenders(SMALL)["ri-fedavg"]
    state, _ = federation.start(method)
    vehicles = federation.simulated
    calls = vehicles.calls(state, vehicles.present(state))[:1]
    begun = vehicles.begin(method, state, calls, Stopwatch())
    start = begun.start
    offsets = torch.linspace(-0.5, 0.5, 5, dtype=torch.float64)
    lines = unit(start.probe_directions(0, 2))
    batch = start.probe_batch(0, 8, "probe batch")
    fast = loss_slices(start.model, start.loss, start.anchor[0], lines, offsets, batch)
    torch.testing.assert_close(timing.plain_probe(begun, rule).double(), fast, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("seconds", "outcome"),
    [
        ({"plain": 1.04, "cpu": 1.08}, SUPPORTED),
        ({"plain": 1.04, "cpu": 1.2}, NOT_SUPPORTED),
        ({"plain": 1.2, "cpu": 1.08}, NOT_SUPPORTED),
    ],
)
def test_c3_is_judged_on_every_engine(tmp_path, seconds: dict[str, float], outcome: str) -> None:
    cell = turns_cell("ved")
    lab = Lab(SCALE, tmp_path, device="cpu")
    turns = turns_of(
        {engine: {"fo-ri-fedavg": method_seconds} for engine, method_seconds in seconds.items()}
    )
    lab._known[key_of(cell, SCALE)] = made(cell, turns=turns)
    judged = verdict(lab, "C3")
    assert judged.outcome == outcome
    assert "FO-RI-FedAvg +4.0 % [+4.0, +4.0]" in judged.sentences[0] or seconds["plain"] > 1.1
    assert "load average 0.5 before and 1.0 after" in judged.sentences[-1]
