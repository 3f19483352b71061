"""Differential privacy of the field: bounds worked out by hand, noise of the stated size."""

from dataclasses import replace
from math import log, sqrt

import numpy as np
import pytest

from fedwatt.elevation.grid import Grid, agreed_pairs, marked
from fedwatt.elevation.learn import shared_map
from fedwatt.elevation.noise import (
    PairSums,
    counted_nodes,
    equations,
    pair_sums,
    seeded,
    surely_driven,
    with_noise,
)
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.survey import Residual, Survey, residual
from fedwatt.errors import SettingError
from fedwatt.runs.source import elevation_budget
from fedwatt.windows import DataSettings
from tests.elevation.test_learn import truth_m
from tests.elevation.toys import fleet, survey

GRID = Grid(cell_m=80.0)
DATA = DataSettings(features="speed")
AREA = (41.99, 42.06, -83.01, -82.92)
SETTINGS = ElevationSettings(noise_multiplier=1.0, area=AREA)


@pytest.fixture(scope="module")
def surveys() -> list[Survey]:
    return [survey(vehicle, GRID, 8, DATA) for vehicle in fleet(6, trips=6)]


def test_a_contribution_is_clipped_to_its_bound():
    # √(3² + 4² + (36 / 3)²) = 13
    sums = PairSums(np.array([3.0, 4.0]), np.array([0.0, 36.0]))
    assert sums.length == 13.0
    half = sums.clipped(6.5)
    assert half.weight.tolist() == [1.5, 2.0]
    assert half.climb.tolist() == [0.0, 18.0]
    assert half.length == 6.5
    assert sums.clipped(13.0).climb.tolist() == [0.0, 36.0]


def test_segments_to_and_fro_add_up_to_one_pair():
    """Between two nodes at 2 Wh/m with 4 Wh of noise: W = 3 · (2/4)², climbs 5, -3 and 4 m."""
    nodes = np.array([10, 20, 30])
    corner = np.array([1.0, 0, 0, 0])
    keys = np.full((4, 8), 30)
    keys[:, 0] = [20, 10, 20, 30]
    keys[:, 4] = [10, 20, 10, 10]
    weights = np.tile(np.concatenate([corner, -corner]), (4, 1))
    placed = np.array([True, True, True, False])  # the last one leaps and does not count
    one = Survey(np.zeros((4, 0)), np.zeros(4), keys, weights, placed, 2.0)
    own = Residual(np.array([10.0, -6.0, 8.0, 99.0]), np.full(4, 2.0), 4.0)
    sums = pair_sums(one, own, nodes, (np.array([0, 0, 1]), np.array([1, 2, 2])))
    assert sums.weight.tolist() == [0.75, 0, 0]
    # 0.25 · (5 + 3 + 4): the second was driven down the same hill.
    assert sums.climb.tolist() == [3.0, 0, 0]
    published = equations(nodes, (np.array([0]), np.array([1])), sums.weight[:1], sums.climb[:1])
    assert published.matrix.toarray().tolist() == [[0.75, -0.75, 0], [-0.75, 0.75, 0], [0, 0, 0]]
    assert published.right.tolist() == [-3, 3, 0]


def test_one_vehicle_moves_a_published_sum_by_no_more_than_the_bound(surveys):
    nodes = np.unique(np.concatenate([one.keys[one.placed].ravel() for one in surveys]))
    pairs = agreed_pairs(GRID, nodes, 8)
    first = pair_sums(surveys[0], residual(surveys[0]), nodes, pairs)
    bound = first.length / 2
    sent = first.clipped(bound)
    # It is longer than the bound, so it moves the sum by all of it.
    assert sent.length == pytest.approx(bound, rel=1e-12)
    assert first.clipped(10 * bound).weight.tolist() == first.weight.tolist()


def noisy_sums(sums, pairs, settings, exchange=0):
    """The clipped sums of a fleet with the noise of its seed."""
    total = PairSums(np.zeros(pairs), np.zeros(pairs))
    for each in sums:
        own = each.clipped(settings.clip)
        total = PairSums(total.weight + own.weight, total.climb + own.climb)
    return with_noise(total, settings, exchange, seeded(settings.noise_seed))


def noisy_counts(surveys, area, settings):
    """The nodes and noisy counts of a fleet that exceed the threshold."""
    counts = sum(
        (marked(counted_nodes(one, settings.most_nodes), area) for one in surveys),
        np.zeros(len(area)),
    )
    return surely_driven(counts, area, settings, seeded(settings.noise_seed))


def test_one_vehicle_moves_the_noisy_sums_by_no_more_than_clip(surveys):
    """The noise of a seed is the same with and without it, so the difference is the vehicle."""
    nodes = np.unique(np.concatenate([one.keys[one.placed].ravel() for one in surveys]))
    pairs = agreed_pairs(GRID, nodes, 8)
    own = [pair_sums(one, residual(one), nodes, pairs) for one in surveys]
    bound = min(one.length for one in own) / 2
    settings = replace(SETTINGS, clip=bound)
    most = PairSums(1e6 * own[0].weight, 1e6 * own[0].climb)
    for joins in (*own, most):
        before, after = (
            noisy_sums(fleet_, len(pairs[0]), settings) for fleet_ in (own, [*own, joins])
        )
        moved = PairSums(after.weight - before.weight, after.climb - before.climb)
        # All are longer than the bound. Rounding is that of sums of noise of about `bound`.
        assert moved.length == pytest.approx(bound, rel=1e-9)
    nothing = replace(settings, clip=1e9, noise_multiplier=1e-12)
    clear = noisy_sums(own, len(pairs[0]), nothing)
    assert clear.weight == pytest.approx(sum(one.weight for one in own), abs=0.02)


def test_noise_on_sums_has_the_stated_size():
    """z · clip = 2 · 5 on weights, 3 m times that on climbs; drawn anew in each exchange."""
    settings = replace(SETTINGS, noise_multiplier=2.0, clip=5.0)
    count = 20_000
    first, second = (noisy_sums([], count, settings, exchange) for exchange in (0, 1))
    error = 5 / sqrt(2 * count)  # 5 standard deviations of a standard deviation, relative
    for one in (first, second):
        assert one.weight.std() == pytest.approx(10.0, rel=error)
        assert one.climb.std() == pytest.approx(30.0, rel=error)
    several = (first.weight, first.climb, second.weight, second.climb)
    between = np.corrcoef(several)[np.triu_indices(4, 1)]
    assert np.abs(between).max() < 5 / sqrt(count)
    again = noisy_sums([], count, replace(settings, noise_seed=1))
    assert abs(np.corrcoef(first.weight, again.weight)[0, 1]) < 5 / sqrt(count)


def test_the_field_is_made_of_noisy_sums_alone(surveys, monkeypatch):
    """Sums that the noise has drowned leave a level field; each exchange asks for them once."""
    exchanges = []

    def drowned(total, settings, exchange, draws):
        exchanges.append(exchange)
        return PairSums(0 * total.weight, 0 * total.climb)

    monkeypatch.setattr("fedwatt.elevation.exchange.with_noise", drowned)
    settings = replace(SETTINGS, most_nodes=600, refreshes=1)
    field = shared_map(surveys * 60, GRID, settings)
    assert exchanges == [0, 1]
    assert field.nodes > 0
    assert (field.elevation_m == 0).all()


def test_a_vehicle_counts_for_so_many_nodes_and_the_most_driven_ones(surveys):
    one = surveys[0]
    everything = counted_nodes(one, 10**6)
    few = counted_nodes(one, 50)
    assert len(few) == 50 < len(everything)
    used = one.placed[:, None] & (one.weights != 0)
    passes = {int(key): int((one.keys[used] == key).sum()) for key in everything}
    least = min(passes[int(key)] for key in few)
    others = set(everything.tolist()) - set(few.tolist())
    assert all(passes[key] <= least for key in others)


def test_noise_on_counts_has_the_stated_size(surveys):
    """With k so low that every node passes, what is added to the true counts is seen whole."""
    area = replace(SETTINGS, area=AREA).service_area.nodes(GRID)
    far = replace(SETTINGS, minimum_vehicles=1, most_nodes=25)
    kept, counts = noisy_counts([], area, far)
    # Empty: noise alone, 5 = 1.0 · √25, and what passes is at least 1 + 4 · 5.
    assert len(kept) <= 5
    assert (counts >= 21).all()
    _, many = noisy_counts([surveys[0]] * 400, area, far)
    assert len(many) == 25
    assert many.mean() == pytest.approx(400, abs=5 * 5 / sqrt(25))
    assert 2 < many.std() < 9


def test_hills_are_found_under_noise_by_a_fleet_that_is_large_enough(surveys):
    """Six toy vehicles 120 times over: 720 vehicles in a small town, ε finite."""
    settings = replace(SETTINGS, most_nodes=600, clip=3.0, refreshes=0)
    field = shared_map(surveys * 120, GRID, settings)
    assert field.nodes > 300
    found = np.corrcoef(field.elevation_m, truth_m(field))[0, 1]
    clear = shared_map(surveys * 120, GRID, ElevationSettings(minimum_vehicles=150, refreshes=0))
    assert found > 0.9 * np.corrcoef(clear.elevation_m, truth_m(clear))[0, 1]


def test_under_much_noise_nothing_is_published(surveys):
    loud = shared_map(surveys * 5, GRID, replace(SETTINGS, noise_multiplier=1e3))
    assert loud.nodes <= 5  # of 7,000 nodes of the area, one in 30,000 passes by chance


def test_epsilon_is_that_of_so_many_gaussian_mechanisms():
    settings = replace(SETTINGS, noise_multiplier=2.0, refreshes=1)
    assert settings.releases == 3  # counts, then two exchanges
    budget = elevation_budget(settings, population=1000)
    delta = 1000**-1.1
    # Rényi: 3 mechanisms of a / (2 · 2²) each, to (ε, δ) at the best integer order.
    spent = min(
        3 * a / 8 + log((a - 1) / a) - (log(delta) + log(a)) / (a - 1) for a in range(2, 256)
    )
    assert budget.epsilon(settings.releases) == pytest.approx(spent, rel=1e-9)
    assert elevation_budget(ElevationSettings(), population=1000) is None


def test_noise_needs_an_area_that_does_not_come_from_the_data():
    with pytest.raises(SettingError, match="area"):
        ElevationSettings(noise_multiplier=1.0)
    with pytest.raises(SettingError, match="above south_deg"):
        ElevationSettings(noise_multiplier=1.0, area=(2.0, 1.0, 0.0, 1.0))
