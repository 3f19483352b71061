"""The benchmarks of speed: that all ways do the same work, and what is made of their times."""

import pytest
import torch
from typer.testing import CliRunner

from benchmarks import recipe as recipes
from benchmarks.engine import METHODS, bench_recurrent, bench_rounds
from benchmarks.networks import flat_weights, network
from benchmarks.probe import ProbingRound, bench_components, drawn, naive_slices
from benchmarks.recipe import Loop, Recipe, interleaved
from fedwatt.cli import app
from fedwatt.engine.batches import drawn_directions
from fedwatt.federation import Federation
from fedwatt.methods.roughness import loss_slices, unit
from fedwatt.models import MLP
from fedwatt.models.model import squared
from tests.engine.kernels.compilers import compiling_with

TINY = Recipe(vehicles=3, participants=2, windows=64)


def test_operations_of_a_round() -> None:
    # One vehicle, one step: forward and weights of 480·64 + 64·32 + 32 = 32,800, errors of 2,080,
    # two operations each for 64 windows.
    assert Recipe(vehicles=1, participants=1, windows=64).flops == 128 * (2 * 32_800 + 2_080)
    assert Recipe().client_steps == 900


def test_the_plain_loop_is_fedavg() -> None:
    # All windows of a vehicle are one batch, so their order does not matter.
    fleet = TINY.fleet()
    model = MLP(60, 8)
    loop = Loop(fleet, TINY, network(model), "cpu")
    start = [p.detach().clone() for p in loop.network.parameters()]
    flattened = flat_weights(model, loop.round(start, [0, 2]))
    weights = flat_weights(model, start)
    steps = []
    for k in (0, 2):
        client = fleet.clients[k]
        windows = torch.stack([torch.from_numpy(client.series[i : i + 60]) for i in range(64)])
        labels = torch.from_numpy(client.labels["train"])
        share = torch.full((64,), 1 / 64)
        steps.append(model.gradient(weights, windows, labels, share, squared))
    expected = weights - TINY.learning_rate * torch.stack(steps).mean(dim=0)
    torch.testing.assert_close(flattened, expected, rtol=0, atol=1e-6)


def test_ways_take_turns_and_the_median_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    order = ""
    monkeypatch.setattr(recipes, "perf_counter", lambda: clock[0])
    times = {"a": iter([9.0, 1.0, 5.0, 2.0]), "b": iter([9.0, 4.0, 4.0, 4.0])}

    def way(name: str):
        def once() -> None:
            nonlocal order
            order += name
            clock[0] += next(times[name])

        return once

    assert interleaved({"a": way("a"), "b": way("b")}, repeats=3) == {"a": 2.0, "b": 4.0}
    assert order == "abababab"


def test_a_small_recipe_is_measured_every_way() -> None:
    timings = bench_rounds(TINY, repeats=1)
    assert set(timings["seconds_a_round"]) == {"plain loop", "fedavg, 1 thread", *METHODS}
    assert timings["times_fedavg"]["fedavg"] == 1.0
    seconds = timings["seconds_a_round"]["plain loop"]
    assert timings["times_the_floor"]["plain loop"] == pytest.approx(seconds / timings["floor_s"])
    steps = bench_recurrent(TINY, repeats=1)["seconds_a_client_step"]
    assert set(steps) == {"GRU", "LSTM"}


@pytest.mark.parametrize("compiler", ["cc", "no-such-compiler"])
@pytest.mark.parametrize(("windows", "radius"), [(128, 0.01), (5, 0.01), (128, 1.0)])
def test_the_naive_probe_is_the_probe(windows: int, radius: float, compiler: str) -> None:
    # The paper's probe, of a vehicle with fewer windows, and with units that switch everywhere.
    model = MLP(60, 8)
    weights, lines, batch = drawn(model, directions=3, batch=windows)
    s = torch.linspace(-radius, radius, 21).double()
    naive = naive_slices(model, weights, lines, s, batch)
    with compiling_with(compiler):
        fast = loss_slices(model, squared, weights, unit(lines), s, batch)
    torch.testing.assert_close(naive, fast, rtol=0, atol=1e-10)


def test_every_probing_round_draws_its_directions() -> None:
    # The round is always the same one; without the draw its probe would seem cheaper than it is.
    once = ProbingRound(Federation(TINY.fleet(), training=TINY.training, device="cpu"), 2, 2, 8)
    for _ in range(2):
        once()
        assert drawn_directions.cache_info().misses == 1


def test_the_parts_of_a_round() -> None:
    timings = bench_components(64, repeats=1)
    assert timings["parts_s"]["probe"] > 0 and timings["parts_s"]["spectral"] > 0
    fedavg_s = timings["seconds_a_round"]["fedavg"]
    assert timings["amortised_probe_share_R5"] == timings["probe_s"] / 5 / fedavg_s


def test_the_probe_is_shown() -> None:
    result = CliRunner().invoke(app, ["bench", "probe", "--repeats", "1", "--windows", "64"])
    assert result.exit_code == 0, result.output
    words = " ".join(result.output.split())
    assert "1,010 forward passes" in words and "times faster" in words
    assert "64 windows per vehicle" in words and "preconditioner" in words
