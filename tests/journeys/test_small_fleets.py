"""Fleets of hardly more trips than coefficients: they are fitted, and their bars are wide."""

import numpy as np
import pytest

from fedwatt.elevation.learn import learn
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.survey import mass_kg
from fedwatt.journeys.fleet_routes import RouteSamples, SampleSets, VehicleRoutes, evaluated, passes
from fedwatt.journeys.mixed_effects import fit, predict, vehicle_effects
from fedwatt.journeys.route_exchange import (
    RouteContributor,
    RouteRequest,
    SharedDriving,
    learn_routes,
)
from fedwatt.journeys.route_intervals import Bars, filled, interval, quantiles
from fedwatt.randomness import generator
from fedwatt.synthetic import synthetic_vehicles
from fedwatt.windows import DataSettings
from fedwatt.windows.client import split_of_trips

from .towns import GRID

COLUMNS = 17


def test_four_vehicles_of_eight_trips_learn_routes_from_positive_sums():
    vehicles = list(synthetic_vehicles(4, trips=8))
    data = DataSettings()
    settings = ElevationSettings()
    learned = learn(vehicles, settings, data)
    routes_by_vehicle = {}
    for vehicle in vehicles:
        part = split_of_trips(vehicle, data)
        taught = [trip for trip in vehicle.trips if part.get(trip.name, "test") != "test"]
        maps = learned.maps[vehicle.name]
        routes_by_vehicle[vehicle.name] = VehicleRoutes(
            passes(taught, GRID), maps, mass_kg(vehicle), GRID
        )
    fleet = learn_routes(routes_by_vehicle, settings, elevations=learned.shared)
    shared = SharedDriving(fleet.driving, None, settings.minimum_vehicles)
    question = RouteRequest("effects", fleet.effects)
    for vehicle_routes in routes_by_vehicle.values():
        answer = question.answer(RouteContributor(vehicle_routes, shared))
        a = np.zeros((COLUMNS, COLUMNS))
        a[np.triu_indices(COLUMNS)] = answer["energy.matrix"]
        assert np.linalg.eigvalsh(a, "U").min() > -1e-9 * np.trace(a)
    # Some 24 trips cannot promise a twentieth.
    low, high = interval(fleet.personalised(vehicle_routes, "last").bars["energy"].vehicle, 0.9)
    assert (high - low).min() / 2 > 0.1


def a_linear_vehicle(rng, trips):
    """17 features of trips of 3 to 20 km; 150 Wh/km in all, a tenth off by vehicle and by trip."""
    metres = rng.uniform(3000, 20_000, trips)
    x = metres[:, None] / 1000 * rng.uniform(0.2, 1.8, (trips, COLUMNS))
    level = 1 + 0.1 * rng.standard_normal()
    energy = x.sum(axis=1) * 150 / COLUMNS * level * (1 + 0.1 * rng.standard_normal(trips))
    return RouteSamples(x, metres, {"energy": energy}, 1700.0)


@pytest.mark.parametrize(("vehicles", "trips"), [(4, 6), (6, 6), (6, 9), (6, 12)])
def test_bars_of_a_small_fleet_cover_trips_that_taught_nothing(vehicles, trips):
    covered = [cover for seed in range(8) for cover in covers(seed, vehicles, trips)]
    assert np.mean(covered) > 0.8


def covers(seed, vehicles, trips):
    """Return whether 90 % intervals hold each of 20 further trips of every vehicle."""
    rng = generator(seed, "linear fleet", f"{vehicles} of {trips}")
    driven = [a_linear_vehicle(rng, trips + 20) for _ in range(vehicles)]
    taught, later = (
        [part(vehicle_routes, at) for vehicle_routes in driven]
        for at in (slice(trips), slice(trips, None))
    )

    def total(reference):
        result = [
            taught_vehicle.answer("energy", reference.get("energy")) for taught_vehicle in taught
        ]
        return {
            "energy": {name: sum(answer_sums[name] for answer_sums in result) for name in result[0]}
        }

    fitted = fit(total, COLUMNS, {"energy": 5.0})["energy"]
    fleet = fitted.effects
    equations = (fitted.matrix, fitted.right)
    counts = [
        evaluated(
            SampleSets(taught_vehicle, taught_vehicle, taught_vehicle), "energy", fleet, equations
        )
        for taught_vehicle in taught
    ]
    insider, unseen_vehicle = (
        sum(count_row[name] for count_row in counts) for name in ("insider", "unseen_vehicle")
    )
    table = quantiles(filled(insider, unseen_vehicle))
    same = (np.eye(COLUMNS), np.ones(COLUMNS))
    bars = Bars(table, table, table, np.array(fleet.noise), *same)
    for taught_vehicle, new in zip(taught, later, strict=True):
        x = new.of("energy").x
        predicted = predict(fleet, vehicle_effects(fleet, taught_vehicle.of("energy")), x)
        low, high = interval(bars.errors(new.metres, predicted, x, 0.0), 0.9)
        off = new.measured["energy"] - predicted
        yield from (low <= off) & (off <= high)


def part(first, at):
    """Some of a vehicle's trips."""
    return RouteSamples(
        first.x[at], first.metres[at], {"energy": first.measured["energy"][at]}, 1700.0
    )
