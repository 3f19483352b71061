import numpy as np
import pytest

from fedwatt.journeys.mixed_effects import (
    FleetEffects,
    Observations,
    VehicleEffects,
    effect_sums,
    fit,
    left_out,
    predict,
    sum_fields,
    unit_fields,
    unit_sums,
    vehicle_effects,
    vehicle_equations,
)
from fedwatt.metrics.sums import add_up, floating_total

BETA = np.array([150.0, 5.0])


def vehicle(rng, factor=1.0, trips=40, outliers=0):
    x = np.column_stack([rng.uniform(1, 10, trips), rng.uniform(0, 50, trips)])
    y = x @ BETA * factor + 5 * rng.standard_normal(trips)
    y[:outliers] *= 3
    return Observations(x, y, x[:, 0] + 2)


def fitted(vehicles, adding=floating_total):
    def total(reference):
        fleet = reference.get("energy")
        answers = [unit_sums(v) if fleet is None else effect_sums(fleet, v) for v in vehicles]
        fields = unit_fields(2) if fleet is None else sum_fields(2)
        return {"energy": adding(fields, len(vehicles), answers)}

    return fit(total, 2, {"energy": 5.0})["energy"].effects


def test_the_fleets_coefficients_are_found_from_sums_despite_outliers():
    rng = np.random.default_rng(1)
    fleet = fitted([vehicle(rng, outliers=3) for _ in range(6)])
    np.testing.assert_allclose(fleet.mean / fleet.unit, BETA, rtol=0.03)


def test_a_thirsty_vehicle_scales_the_fleet_for_itself():
    rng = np.random.default_rng(2)
    vehicles = [vehicle(rng) for _ in range(6)] + [vehicle(rng, factor=1.3)]
    fleet = fitted(vehicles)
    effects = vehicle_effects(fleet, vehicles[-1])
    error = np.abs(predict(fleet, effects, vehicles[-1].x) / vehicles[-1].y - 1)
    assert np.median(error) < 0.02
    assert np.median(np.abs(vehicles[-1].x / fleet.unit @ fleet.mean / vehicles[-1].y - 1)) > 0.1


def test_masked_sums_give_the_same_fit():
    rng = np.random.default_rng(3)
    vehicles = [vehicle(rng) for _ in range(4)]
    plain = fitted(vehicles)
    masked = fitted(vehicles, add_up)
    np.testing.assert_allclose(plain.mean, masked.mean, rtol=1e-5)


def test_a_vehicle_without_trips_is_the_fleets():
    rng = np.random.default_rng(4)
    fleet = fitted([vehicle(rng) for _ in range(4)])
    effects = vehicle_effects(fleet, Observations(np.zeros((0, 2)), np.zeros(0), np.zeros(0)))
    assert effects.scale == 1
    assert not effects.beta.any()


def test_what_a_vehicle_adds_is_at_most_what_its_own_part_may_vary_by():
    # A - A C A is P - P C P: nearly P = 1/τ² where trips say much, whatever the scale has become.
    trips = vehicle(np.random.default_rng(5), 1.2, trips=6)
    fleet = FleetEffects(np.ones(2), BETA, np.full(2, 5.0), 0.5)
    effects = vehicle_effects(fleet, trips)
    a, right = vehicle_equations(fleet, effects, trips)
    assert effects.scale != 1
    assert np.linalg.eigvalsh((a + a.T) / 2) == pytest.approx([0.04, 0.04], rel=0.01)
    # β₀ + β_v is what the trips say, so that the equations say the same of β₀ alone.
    assert np.linalg.solve(a, right) == pytest.approx(1.2 * BETA / effects.scale, rel=0.05)


def test_what_a_vehicle_adds_is_positive_however_much_its_trips_say():
    # Fewer trips than columns, and weights of 1 / b² = 1e12: inverses would be rounding noise.
    rng = np.random.default_rng(7)
    x = rng.uniform(0, 1, (6, 17)) * np.geomspace(1e-3, 1e3, 17)
    trips = Observations(x, x.sum(axis=1), np.ones(6))
    fleet = FleetEffects(np.ones(17), np.zeros(17), np.geomspace(0.1, 5, 17), 1e-6)
    effects = VehicleEffects(np.zeros(17), 1.0, np.eye(17), np.full(6, 1e12))
    a, _ = vehicle_equations(fleet, effects, trips)
    assert np.diag(a).min() > 0
    assert np.linalg.eigvalsh(a).min() > -1e-12 * np.trace(a)


def test_what_a_vehicle_adds_is_what_its_equations_say():
    trips = vehicle(np.random.default_rng(8), 1.2, trips=6)
    fleet = FleetEffects(np.array([2.0, 3.0]), BETA, np.array([5.0, 1.0]), 4.0)
    effects = vehicle_effects(fleet, trips)
    z = trips.x / fleet.unit * effects.scale
    a = z.T @ np.diag(effects.weights) @ z
    right = z.T @ (effects.weights * trips.y)
    c = np.linalg.inv(a + np.diag(fleet.spread**-2))
    equations = vehicle_equations(fleet, effects, trips)
    np.testing.assert_allclose(equations[0], a - a @ c @ a, rtol=1e-6)
    np.testing.assert_allclose(equations[1], right - a @ c @ right, rtol=1e-6)


def test_noise_does_not_fall_to_nothing_where_every_trip_is_met():
    rng = np.random.default_rng(9)
    assert fitted([vehicle(rng, trips=1) for _ in range(3)]).noise == 2.5  # half of τ = 5


def test_a_left_out_trip_is_predicted_by_the_others():
    rng = np.random.default_rng(5)
    fleet = fitted([vehicle(rng, trips=8) for _ in range(4)])
    trips = vehicle(rng, 1.1, trips=8)
    errors = left_out(fleet, trips)
    effects = vehicle_effects(fleet, Observations(trips.x[1:], trips.y[1:], trips.sigma[1:]))
    np.testing.assert_array_equal(errors[0], (fleet.mean + effects.beta) * effects.scale)
    wrong = Observations(trips.x, trips.y * np.r_[1.5, np.ones(7)], trips.sigma)
    np.testing.assert_array_equal(left_out(fleet, wrong)[0], errors[0])


def test_of_many_trips_every_fiftieth_is_left_out_together():
    rng = np.random.default_rng(6)
    fleet = fitted([vehicle(rng) for _ in range(4)])
    trips = vehicle(rng, 1.1, trips=120)
    errors = left_out(fleet, trips)
    np.testing.assert_array_equal(errors[7], errors[107])
    assert len(np.unique(errors[:, 0])) == 50


def test_what_is_handed_up_has_no_row_of_a_trip():
    rng = np.random.default_rng(6)
    first = vehicle(rng, trips=5)
    other = vehicle(rng, trips=50)
    fleet = fitted([vehicle(rng) for _ in range(4)])
    sizes = [
        {name: len(v) for name, v in effect_sums(fleet, trips_of_vehicle).items()}
        for trips_of_vehicle in (first, other)
    ]
    assert sizes[0] == sizes[1] == {name: size for name, (size, _) in sum_fields(2).items()}
    assert sum(sizes[0].values()) == pytest.approx(3 + 2 + 1 + 1 + 1 + 2 + 1)
