"""The shared field from totals alone, without messages: the nodes and hills of an open exchange."""

import numpy as np
import pytest

from fedwatt.elevation.exchange import learn_from_totals, refuse_unmaskable
from fedwatt.elevation.grid import Area, Grid
from fedwatt.elevation.learn import publishable, shared_map
from fedwatt.elevation.normal_equations import touched_nodes
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.errors import RunError, SettingError
from fedwatt.windows import DataSettings
from tests.elevation.toys import fleet, survey

GRID = Grid(cell_m=80.0)
DATA = DataSettings(features="speed")
AREA = (41.98, 42.08, -83.02, -82.9)


def shared_under_masks(surveys, grid, settings):
    """The map of a fleet of which only totals are seen."""
    return shared_map(surveys, settings, secure=True)


def settings(**changed) -> ElevationSettings:
    return ElevationSettings(**{"minimum_vehicles": 3, "area": AREA} | changed)


@pytest.fixture(scope="module")
def surveys():
    return [survey(v, GRID, 8, DATA) for v in fleet(6, trips=6)]


@pytest.mark.parametrize("refreshes", [0, 2])
def test_totals_give_the_field_of_an_open_exchange(surveys, refreshes):
    """Nobody is faster than 40 m/s and nobody leaves the area: nothing is lost but roundings."""
    terms = settings(refreshes=refreshes)
    masked = shared_under_masks(surveys, GRID, terms)
    clear = shared_map(surveys, terms)
    assert np.array_equal(masked.keys, clear.keys) and masked.nodes > 50
    assert np.array_equal(masked.vehicles, clear.vehicles)
    # Six vehicles' sums, each rounded to 2^-37.
    assert np.abs(masked.elevation_m - clear.elevation_m).max() < 1e-6


def test_ground_outside_the_area_is_nobodys_but_its_drivers(surveys):
    north = settings(area=(42.02, 42.08, -83.02, -82.9))
    masked = shared_under_masks(surveys, GRID, north)
    latitude, _ = GRID.positions(masked.keys)
    assert masked.nodes > 10 and latitude.min() > 42.019
    assert set(masked.keys) < set(publishable(surveys, 3))


@pytest.mark.parametrize("vehicles", [0, 1, 2])
def test_fewer_than_k_share_nothing(surveys, vehicles):
    assert shared_under_masks(surveys[:vehicles], GRID, settings()).nodes == 0


def test_one_vehicle_alone_is_no_secret_sum_even_with_k_of_one(surveys):
    assert shared_under_masks(surveys[:1], GRID, settings(minimum_vehicles=1)).nodes == 0
    two = shared_under_masks(surveys[:2], GRID, settings(minimum_vehicles=1))
    driven = np.unique(np.concatenate([touched_nodes(survey) for survey in surveys[:2]]))
    assert np.array_equal(two.keys, driven)


def test_sums_too_long_to_send_are_refused(surveys, monkeypatch):
    monkeypatch.setattr("fedwatt.metrics.sums.MOST_WORDS", 1000)
    with pytest.raises(RunError, match=r"smaller elevation\.area or a larger elevation\.cell_m"):
        shared_under_masks(surveys, GRID, settings())


def test_totals_that_cannot_be_end_the_exchange():
    def totals(question, present):
        return {"vehicles": np.full(len(question.nodes), 2.5)}, present

    with pytest.raises(RunError, match=r"A node has 2\.5 of 3 vehicles"):
        learn_from_totals(totals, frozenset("abc"), settings())


def learned_after(surveys, spoil, **changed):
    """The field of an exchange whose totals one vehicle has spoiled."""

    def totals(question, present):
        values = [question.answer(surveys[int(name)]) for name in sorted(present)]
        total = {name: sum(value_row[name] for value_row in values) for name in values[0]}
        if question.elevation_map is not None:
            spoil(total)
        return total, present

    return learn_from_totals(totals, frozenset("012345"), settings(**changed))


@pytest.mark.parametrize(
    ("name", "at", "added", "why"),
    [
        ("value", slice(None), -(2.0**24), r"sum of squares is -1\.67"),
        ("value", slice(1, 2), 2.0**24, "larger than those of both nodes allow"),
        ("passes", slice(0, 1), -1e6, "A node has -9.* passes"),
        ("right", slice(0, 1), 2.0**24, r"m apart differ by \S+ m in height"),
        ("vehicles", slice(0, 1), 100.0, "of 6 vehicles"),
        ("right", slice(0, 1), np.inf, "make no map"),
    ],
)
def test_sums_that_no_honest_vehicles_make_are_refused(surveys, name, at, added, why):
    def spoil(total):
        total[name][at] += added

    assert learned_after(surveys, lambda total: None).elevation_map.nodes > 50
    with pytest.raises(RunError, match=f"{why}.*cannot be.*at fault.*--resume tries again"):
        learned_after(surveys, spoil)


def test_too_few_answers_are_no_empty_field(surveys):
    def totals(question, present):
        return {}, frozenset("01")

    with pytest.raises(RunError, match="2 vehicles are in a sum for elevation, and 3 are needed"):
        learn_from_totals(totals, frozenset("012345"), settings())


def test_an_empty_field_says_why(surveys):
    def totals(question, present):
        values = [question.answer(surveys[int(name)]) for name in present]
        return {name: sum(value_row[name] for value_row in values) for name in values[0]}, present

    def why(vehicles, **changed):
        return learn_from_totals(totals, frozenset(vehicles), settings(**changed)).nothing

    assert why("012345") == ""
    assert why("01") == "2 vehicles have enrolled, and 3 must drive a node"
    assert why("012345", area=(10.0, 10.01, 10.0, 10.01)).startswith("nobody has driven")
    corner = (42.0, 42.001, -83.0, -82.999)
    few = "no node has 6 of the 6 vehicles that were counted"
    assert why("012345", minimum_vehicles=6, area=corner) == few


def test_segments_may_not_reach_across_the_map():
    for segment_s in (8, 30):
        refuse_unmaskable(settings(segment_s=segment_s))
    small = (42.0, 42.001, -83.0, -82.999)
    with pytest.raises(SettingError, match="every node would make"):
        refuse_unmaskable(settings(cell_m=1.0, segment_s=600, area=small))


@pytest.mark.parametrize(
    "box",
    [
        AREA,
        (-0.01, 0.01, -0.01, 0.01),
        (-17.0, -16.99, 179.99, -179.99),
        (89.99, 90.0, -180.0, 180.0),
        (89.99, 90.0, 0.0, 360.0),
    ],
)
def test_an_area_knows_its_size_and_holds_its_corners(box):
    south, north, west, east = box
    area = Area(south_deg=south, north_deg=north, west_deg=west, east_deg=east)
    nodes = area.nodes(GRID)
    assert len(nodes) == area.size(GRID) == len(np.unique(nodes))
    assert (np.diff(nodes) > 0).all()
    keys, weights = GRID.corners(np.array([south, north]), np.array([west, east]))
    assert np.isin(keys[weights > 0], nodes).all()


def test_an_area_is_not_the_earth():
    with pytest.raises(SettingError, match="at most 1,000,000 nodes"):
        settings(area=(-90.0, 90.0, -180.0, 180.0))
    assert settings(area=(-90.0, 90.0, -180.0, 180.0), cell_m=50_000.0).area
