import numpy as np
import pytest

from fedwatt.elevation.settings import ElevationSettings
from fedwatt.errors import RunError
from fedwatt.journeys.driving_exchange import learn_driving
from fedwatt.journeys.driving_field import (
    NO_PASSES,
    OWN_WEIGHT,
    SUMS,
    DrivingField,
    add,
    published,
    vehicle_field,
    vehicle_sums,
)
from fedwatt.metrics.sums import add_up, floating_total, in_process

from .towns import GRID, a_vehicle, routes_by_vehicle, vehicle_routes

AREA = (41.99, 42.08, -83.01, -82.99)
SETTINGS = ElevationSettings(area=AREA)


def test_a_trip_adds_its_metres_seconds_and_stops():
    vehicle_board = vehicle_routes(a_vehicle("car-0"))
    for driven_pass in vehicle_board.passes:
        total = dict(zip(SUMS, driven_pass.sums.sums.sum(axis=0), strict=True))
        speed = driven_pass.trip.channels["speed_mps"]
        assert total["wheel_m"] == pytest.approx(speed.sum())
        assert total["seconds"] == driven_pass.trip.seconds
        assert total["standing"] == (speed == 0).sum()
        assert total["air"] == pytest.approx((speed**3).sum() / 1000)
        assert total["route_m"] == pytest.approx(driven_pass.route.metres, abs=1)


def test_the_field_knows_how_fast_each_place_is_driven():
    fleet = published([vehicle_board.sums for vehicle_board in routes_by_vehicle().values()], 3)
    field = DrivingField(GRID, fleet)
    route = vehicle_routes(a_vehicle("other", trips=1)).passes[0].route
    rates, reference = field.read(route.cells(GRID))
    at = route.metres_at
    slow = (at > 300) & (at < 800)
    fast = at > 2300
    # Cells with many passes; the fleet's mean still pulls a little.
    assert 1 / rates[slow, 1].mean() == pytest.approx(10, rel=0.1)
    if fast.any():
        assert 1 / rates[fast, 1].mean() == pytest.approx(20, rel=0.2)
    assert reference[at < 900].all()


def test_cells_of_fewer_than_k_vehicles_are_not_published():
    alone = vehicle_routes(a_vehicle("far", start_km=20.0))
    everybody = {**routes_by_vehicle(3), "far": alone}
    fleet = published([vehicle_board.sums for vehicle_board in everybody.values()], 3)
    assert (fleet.vehicles >= 3).all()
    assert not np.isin(alone.sums.keys, fleet.keys).any()
    # On board the vehicle still knows its own street.
    field = vehicle_field(fleet, alone.sums, GRID, contributed=True)
    assert field.read(alone.passes[0].cells)[1].all()


def test_a_training_trip_reads_a_field_that_has_no_part_of_itself():
    everybody = routes_by_vehicle(4)
    vehicle_board = everybody["car-0"]
    passes, *remaining = vehicle_board.passes
    fleet = published([board_.sums for board_ in everybody.values()], 3)
    field = vehicle_field(fleet, vehicle_board.sums, GRID, contributed=True)
    read, _ = field.read(passes.cells, passes.sums.times(OWN_WEIGHT))
    without = vehicle_sums(other.sums for other in remaining)
    remainder = [board_.sums for name, board_ in everybody.items() if name != "car-0"]
    total = add([*remainder, without]).within(fleet.keys)
    same = vehicle_field(total, without, GRID, contributed=True)
    np.testing.assert_allclose(read, same.read(passes.cells)[0], atol=1e-9)


def test_masked_sums_make_the_same_field_as_plain_ones():
    sums = {name: vehicle_board.sums for name, vehicle_board in routes_by_vehicle(4).items()}
    result, who = learn_driving(in_process(add_up, sums), frozenset(sums), SETTINGS)
    direct = published(list(sums.values()), 3)
    assert who == frozenset(sums)
    np.testing.assert_array_equal(result.keys, direct.keys)
    np.testing.assert_allclose(result.sums, direct.sums, atol=1e-5)
    np.testing.assert_array_equal(result.vehicles, direct.vehicles)


def test_messages_have_one_length_and_no_position_time_or_cell_below_k():
    here = vehicle_routes(a_vehicle("here"))
    far = vehicle_routes(a_vehicle("far", start_km=6.0))
    nowhere = vehicle_routes(a_vehicle("abroad", start_km=100.0))
    sums = {"here": here.sums, "far": far.sums, "abroad": nowhere.sums}
    requests = []

    def totals(question, present):
        answers = [question.answer(sums[name]) for name in sorted(present)]
        requests.append(question)
        for answer in answers:
            sizes = {name: len(values) for name, values in answer.items()}
            assert sizes == {name: size for name, (size, _) in question.fields.items()}
            # Counts say whether, never how often or when.
            assert set(np.unique(answer["vehicles"])) <= {0.0, 1.0}
        return add_up(question.fields, len(answers), answers), present

    # No two of them share a street: nothing is published and no sum is asked for.
    result, _ = learn_driving(totals, frozenset(sums), ElevationSettings(area=AREA))
    assert result is NO_PASSES
    assert {question.kind for question in requests} == {"places", "headings"}
    names = {name for question in requests for name in question.fields}
    assert names <= {"vehicles", *SUMS}


def test_whoever_drops_out_takes_its_cells_along():
    sums = {name: vehicle_board.sums for name, vehicle_board in routes_by_vehicle(3).items()}
    plain = in_process(floating_total, sums)

    def totals(question, present):
        if question.kind == "sums":
            present = present - {"car-0"}
        return plain(question, present)

    with pytest.raises(RunError, match="2 vehicles are left"):
        learn_driving(totals, frozenset(sums), SETTINGS)
