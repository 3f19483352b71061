"""Questions about routes on their way: what a message holds is what was asked, or is refused."""

import numpy as np
import pytest

from fedwatt.elevation.grid import Grid
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.errors import DataError, RunError
from fedwatt.journeys.driving_exchange import DrivingRequest
from fedwatt.journeys.driving_field import SUMS, published
from fedwatt.journeys.fleet_routes import VehicleRoutes
from fedwatt.journeys.mixed_effects import Fitted, FleetEffects
from fedwatt.journeys.route import HEADINGS
from fedwatt.journeys.route_exchange import (
    COLUMNS,
    ROUTE_SUMS,
    RouteContributor,
    RouteRequest,
    SharedDriving,
    SimulatedContributors,
    TooFewContributors,
    learn_from_contributors,
)
from fedwatt.metrics.sums import floating_total

from .towns import GRID, routes_by_vehicle

SETTINGS = ElevationSettings(area=(41.99, 42.08, -83.01, -82.99))


def effects(noise=1.0):
    first = np.ones(COLUMNS)
    return {"energy": FleetEffects(first, 2 * first, 3 * first, noise),
            "duration": FleetEffects(4 * first, 5 * first, 6 * first, noise)}  # fmt: skip


def fitted():
    return {
        target: Fitted(effect, np.eye(COLUMNS), np.ones(COLUMNS))
        for target, effect in effects().items()
    }


@pytest.fixture(scope="module")
def contributor():
    everybody = routes_by_vehicle(3)
    driving = published([vehicle_routes.sums for vehicle_routes in everybody.values()], 3)
    return RouteContributor(everybody["car-0"], SharedDriving(driving, None, 3))


QUESTIONS = {
    "units": lambda: RouteRequest("units"),
    "effects": lambda: RouteRequest("effects", effects()),
    "errors": lambda: RouteRequest.about_errors(fitted()),
}


@pytest.mark.parametrize("kind", ROUTE_SUMS)
def test_a_question_is_answered_alike_after_its_way(kind, contributor):
    requests = QUESTIONS[kind]()
    request = RouteRequest.read(kind, requests.arrays)
    first = requests.answer(contributor)
    second = request.answer(contributor)
    assert first.keys() == second.keys() == requests.fields.keys()
    for name, (size, _) in requests.fields.items():
        assert len(first[name]) == size
        np.testing.assert_array_equal(first[name], second[name])


def test_answers_of_a_vehicle_without_trips_are_zeros_of_the_same_length(contributor):
    nothing = RouteContributor(VehicleRoutes((), None, 1600.0, GRID), contributor.shared)
    for make in QUESTIONS.values():
        requests = make()
        answer = requests.answer(nothing)
        assert {n: len(v) for n, v in answer.items()} == {
            n: s for n, (s, _) in requests.fields.items()
        }
        assert not any(values.any() for values in answer.values())


@pytest.mark.parametrize(
    ("kind", "change", "why"),
    [
        ("home", {}, "does not say what of routes"),
        ("effects", {"energy.effects": np.ones(3)}, "is not 52 finite numbers"),
        ("effects", {"energy.effects": np.full(52, np.nan)}, "is not 52 finite numbers"),
        ("effects", {"duration.effects": -np.ones(52)}, "cannot be"),
        ("errors", {"energy.matrix": np.ones(4)}, "is not 289 finite numbers"),
        ("errors", {"energy.right": np.ones((17, 1))}, "lacks 'energy.right'"),
    ],
)
def test_what_is_no_question_is_refused(kind, change, why):
    arrays = QUESTIONS.get(kind, QUESTIONS["units"])().arrays
    with pytest.raises(DataError, match=why):
        RouteRequest.read(kind, {**arrays, **change})


def test_places_are_those_of_the_service_area():
    area = SETTINGS.service_area.nodes(Grid())
    request = DrivingRequest.read("places", {"keys": area[:5]}, SETTINGS)
    assert request.fields == {"vehicles": (5, 1.0)}
    cells = area[:2, None] * HEADINGS + np.arange(HEADINGS)
    sums = DrivingRequest.read("sums", {"keys": cells.ravel()}, SETTINGS)
    assert list(sums.fields) == ["vehicles", *SUMS]
    for keys in (area[:0], area[:5][::-1], np.array([5]), np.repeat(area[:1], 2)):
        with pytest.raises(DataError, match="other places than those of the service area"):
            DrivingRequest.read("places", {"keys": keys}, SETTINGS)


def test_a_driving_field_is_the_same_after_its_way(contributor):
    shared = SharedDriving.read(contributor.shared.arrays, GRID, 3)
    np.testing.assert_array_equal(shared.driving.sums, contributor.shared.driving.sums)
    assert shared.digest == contributor.shared.digest
    other = SharedDriving(contributor.shared.driving.times(2.0), None, 3)
    assert other.digest != shared.digest


def learn(everybody, add=floating_total):
    sums = [vehicle_routes.sums for vehicle_routes in everybody.values()]
    contributors = SimulatedContributors(everybody, add)
    return learn_from_contributors(
        contributors, published(sums, 3), frozenset(everybody), SETTINGS, None
    )


def test_vehicles_without_trips_take_part_and_change_nothing():
    everybody = routes_by_vehicle(3)
    alone = learn(everybody)
    idle = {f"idle-{n}": VehicleRoutes((), None, 1600.0, GRID) for n in range(3)}
    learned = learn({**everybody, **idle})
    assert learned.vehicles == 3 and len(learned.insiders) == 6
    np.testing.assert_allclose(learned.effects["energy"].mean, alone.effects["energy"].mean)
    np.testing.assert_allclose(learned.effects["energy"].spread, alone.effects["energy"].spread)
    del everybody["car-0"]
    with pytest.raises(
        TooFewContributors, match=r"2 vehicles have trips .* Held-out vehicles do not"
    ):
        learn({**everybody, **idle})


def test_sums_that_cannot_be_are_noticed():
    def one_lies(fields, vehicles, answers):
        total = floating_total(fields, vehicles, answers)
        if "energy.absolute" in total:
            total["energy.absolute"] = np.array([-1e9])
        return total

    with pytest.raises(RunError, match=r"'absolute', is -1e\+09, which cannot be"):
        learn(routes_by_vehicle(3), one_lies)
