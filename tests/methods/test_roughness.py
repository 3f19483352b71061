"""The roughness index on slices whose shape is known, and the rule that probes for it."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from pytest import approx

from fedwatt.errors import SettingError
from fedwatt.methods import RoughnessProximal, roughness
from fedwatt.methods.roughness import (
    Slicing,
    loss_slices,
    measured,
    roughness_index,
    side_by_side,
    together,
    unit,
)
from fedwatt.methods.rule import Batch, Start
from fedwatt.models import GRU, MLP, Model
from fedwatt.models.model import squared
from tests.federation.toys import a_start


def ratio(u: float) -> float:
    """TV/A of a quadratic slice whose extremum lies at the share u of the radius."""
    return 2 * (1 + u**2) / (1 + u) ** 2 if u < 1 else 1.0


@pytest.mark.parametrize(
    ("u", "rho"), [(0.0, 2.0), (0.1, 1.669421), (0.25, 1.36), (0.5, 1.111111), (1.0, 1.0)]
)
def test_total_variation_over_amplitude_of_a_quadratic(u: float, rho: float) -> None:
    assert ratio(u) == approx(rho, abs=1e-6)
    # m = 400 puts a grid point on every extremum; the other slice is monotone, so its ratio is 1.
    s = torch.linspace(-0.01, 0.01, 401).double()
    slices = torch.stack([u * 0.01 * 50 * s + 25 * s**2, -3 * s])
    mean = (rho + 1) / 2
    spread = (rho - 1) / 2
    assert roughness_index(slices, 0.01, epsilon_a=1e-15).item() == approx(spread / mean, abs=1e-6)


def test_monotone_slices_have_no_roughness_however_steep() -> None:
    s = torch.linspace(-1, 1, 11).double()
    slices = torch.stack([s, -100 * s, torch.exp(3 * s), s**3])
    assert roughness_index(slices, 1.0, epsilon_a=1e-15).item() == approx(0.0, abs=1e-12)


def test_the_spread_is_that_of_the_population() -> None:
    # TV/A: 2, 1, 1, 1. Population spread √3/4 over the mean 5/4.
    well = [1.0, 0.0, 1.0]
    line = [0.0, 1.0, 2.0]
    slices = torch.tensor([well, line, line, line]).double()
    assert roughness_index(slices, 0.5).item() == approx(3**0.5 / 4 / 1.25, abs=1e-6)


@pytest.mark.parametrize("model", [MLP(5, 2, (6, 4)), GRU(2, 3)], ids=["MLP", "GRU"])
def test_slices_equal_losses_evaluated_one_point_at_a_time(model: Model) -> None:
    rng = np.random.default_rng(0)
    weights = model.initial(rng).float()  # probed in float64 all the same
    directions = torch.from_numpy(rng.standard_normal((3, model.layout.size)))
    batch = Batch(
        torch.from_numpy(rng.standard_normal((8, 5, 2))).float(),
        torch.from_numpy(rng.standard_normal(8)).float(),
    )
    offsets = torch.linspace(-0.5, 0.5, 11).double()
    slices = loss_slices(model, squared, weights, unit(directions), offsets, batch)
    for i, direction in enumerate(directions):
        for j, s in enumerate(offsets):
            point = weights.double() + s * direction / direction.norm()
            naive = (model.predict(point, batch.windows.double()) - batch.labels.double()) ** 2
            assert slices[i, j].item() == approx(naive.mean().item(), abs=1e-10)


def of_two_runs(model: Model) -> tuple[Start, Slicing]:
    """Five vehicles of two runs, mixed, with 3 to 7 windows each."""
    rng = np.random.default_rng(4)
    runs = (0, 1, 0, 0, 1)
    models = torch.stack([model.initial(rng), model.initial(rng)])
    drawn = [torch.from_numpy(rng.standard_normal((4, model.layout.size))) for _ in range(2)]

    def batch(row: int) -> Batch:
        draws = np.random.default_rng(row)
        windows = draws.standard_normal((3 + row, 5, 2))
        labels = draws.standard_normal(3 + row)
        return Batch(torch.from_numpy(windows), torch.from_numpy(labels))

    def directions(row: int, count: int) -> torch.Tensor:
        return drawn[runs[row]][:count]

    offsets = torch.linspace(-0.5, 0.5, 11).double()  # far enough for units to switch
    start = a_start(models[list(runs)], model, runs=runs, probe_directions=directions)
    measure = partial(roughness_index, radius=0.5)
    return start, Slicing(3, lambda _, drawn: unit(drawn), offsets, batch, measure)


@pytest.mark.parametrize("model", [MLP(5, 2, (6, 4)), GRU(2, 3)], ids=["MLP", "GRU"])
@pytest.mark.parametrize("at_once", [1, 2, 32])
def test_vehicles_are_probed_together_as_they_are_side_by_side(
    model: Model, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roughness, "TOGETHER", at_once)
    start, slicing = of_two_runs(model)
    lines = unit(start.probe_directions(0, 3))
    slices = Slicing(3, slicing.lines, slicing.offsets, slicing.batch, lambda result: result)
    rows = [0, 2, 3]
    expected = side_by_side(start, slices, start.origin[0], lines, rows)
    statistics = together(start, slices, start.origin[0], lines, rows)
    # Products of another height are rounded differently, in float64.
    torch.testing.assert_close(statistics, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("runs_known", [True, False], ids=["runs known", "runs unknown"])
def test_each_vehicle_has_the_index_of_its_own_run_and_windows(runs_known: bool) -> None:
    start, slicing = of_two_runs(MLP(5, 2, (6, 4)))
    if not runs_known:
        start = replace(start, runs=())
    statistics = measured(start, [4, 0, 1], slicing)
    for row, index in zip([4, 0, 1], statistics, strict=True):
        lines = unit(start.probe_directions(row, 3))
        slices = loss_slices(
            start.model, squared, start.anchor[row], lines, slicing.offsets, slicing.batch(row)
        )
        assert torch.equal(index, roughness_index(slices, 0.5))
    assert len({index.item() for index in statistics}) == 3


def test_vehicles_that_begin_elsewhere_are_probed_where_they_begin() -> None:
    start, slicing = of_two_runs(MLP(5, 2, (6, 4)))
    moved = replace(start, begins_at=start.anchor + torch.arange(5.0).double()[:, None])
    result, before = (measured(stack, [0, 2], slicing) for stack in (moved, start))
    assert torch.equal(result[0], before[0])  # moved by 0
    assert not torch.equal(result[1], before[1])


class Probes:
    """A stack of three vehicles that counts how often each is probed."""

    def __init__(self) -> None:
        self.model = MLP(2, 1, (3, 2))
        self.anchor = self.model.initial(np.random.default_rng(0)).repeat(3, 1)
        self.seen: list[int] = []

    def batch(self, row: int, size: int, purpose: str) -> Batch:
        assert purpose == "probe batch"
        self.seen.append(row)
        rng = np.random.default_rng(row)
        return Batch(
            torch.from_numpy(rng.standard_normal((size, 2, 1))),
            torch.from_numpy(rng.standard_normal(size)),
        )

    def directions(self, row: int, count: int) -> torch.Tensor:
        return torch.from_numpy(
            np.random.default_rng(9).standard_normal((count, self.anchor.shape[1]))
        )

    def start(self, round: int) -> Start:
        return a_start(
            self.anchor,
            self.model,
            round=round,
            probe_batch=self.batch,
            probe_directions=self.directions,
        )


def test_a_vehicle_probes_when_its_index_is_old_enough() -> None:
    probes = Probes()
    rule = RoughnessProximal(probe_every=5, points=4, directions=2)
    client_state = {
        "roughness": torch.tensor([0.3, 0.3, 0.3], dtype=torch.float64),
        "probed_in": torch.tensor([-1, 6, 5]),  # never, 4 rounds ago, 5 rounds ago
    }
    client_state, plan = rule.begin(client_state, probes.start(10))
    assert probes.seen == [0, 2]
    assert plan["probed"].tolist() == [True, False, True]
    assert client_state["probed_in"].tolist() == [10, 6, 10]
    assert client_state["roughness"][1].item() == 0.3
    assert plan["pull"][1].item() == approx(0.1 * 0.3 / 0.4)


@pytest.mark.parametrize(("round", "probed"), [(10, [0, 1, 2]), (11, [0]), (14, [0])])
def test_global_probe_rounds_are_the_same_for_all_that_have_an_index(
    round: int, probed: list[int]
) -> None:
    probes = Probes()
    rule = RoughnessProximal(probe_every=5, probe_schedule="global", points=4, directions=2)
    client_state = {
        "roughness": torch.tensor([0.3, 0.3, 0.3], dtype=torch.float64),
        "probed_in": torch.tensor([-1, 9, 1]),
    }
    rule.begin(client_state, probes.start(round))
    assert probes.seen == probed


def test_both_responses() -> None:
    index = torch.tensor([0.0, 0.1, 0.9])
    assert RoughnessProximal().respond(index).tolist() == approx([0.0, 0.5, 0.9])
    clipped = RoughnessProximal(response="clipped", i_min=0.05, i_max=0.5)
    assert clipped.respond(index).tolist() == approx([0.05, 0.1, 0.5])


def test_the_strength_follows_its_schedule() -> None:
    probes = Probes()
    rule = RoughnessProximal(lam=0.4, lam_schedule="inverse-sqrt", probe_every=100)
    client_state = {"roughness": torch.full((3,), 0.1).double(), "probed_in": torch.zeros(3).long()}
    _, plan = rule.begin(client_state, probes.start(3))
    assert plan["pull"].tolist() == approx([0.4 / 2 / 2] * 3)  # √4, and r = 1/2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"directions": 1}, r"RoughnessProximal\(directions=1\): directions must be at least 2"),
        ({"points": 1}, "points must be at least 2"),
        ({"radius": 0.0}, "radius must be above 0"),
        ({"lam": -0.1}, "lam must be at least 0"),
        ({"lam_schedule": "cosine"}, "lam_schedule must be 'constant' or 'inverse-sqrt'"),
        ({"probe_every": 0}, "probe_every must be at least 1 round"),
        ({"probe_schedule": "daily"}, "must be 'age' or 'global'"),
        ({"response": "linear"}, "response must be 'saturating' or 'clipped'"),
        ({"i_min": 2.0}, r"i_min must be in \[0, i_max=1.0\]"),
        ({"tau_i": 0.0}, "tau_i must be above 0"),
        ({"epsilon_t": 0.0}, "epsilon_t must be above 0"),
    ],
)
def test_bad_hyperparameters_are_refused(settings, message) -> None:
    with pytest.raises(SettingError, match=message):
        RoughnessProximal(**settings)
