import numpy as np
import pytest

from fedwatt.journeys.mixed_effects import (
    FleetEffects,
    Observations,
    effect_sums,
    fit,
    left_out,
    own_effects,
    own_equations,
    predict,
    sum_fields,
    unit_fields,
    unit_sums,
)
from fedwatt.privacy.fixed_point import add_up
from fedwatt.terrain.summands import plainly

BETA = np.array([150.0, 5.0])


def vehicle(rng, factor=1.0, trips=40, outliers=0):
    x = np.column_stack([rng.uniform(1, 10, trips), rng.uniform(0, 50, trips)])
    y = x @ BETA * factor + 5 * rng.standard_normal(trips)
    y[:outliers] *= 3
    return Observations(x, y, x[:, 0] + 2)


def fitted(vehicles, adding=plainly):
    def total(known):
        fleet = known.get("energy")
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
    own = own_effects(fleet, vehicles[-1])
    error = np.abs(predict(fleet, own, vehicles[-1].x) / vehicles[-1].y - 1)
    assert np.median(error) < 0.02
    assert np.median(np.abs(vehicles[-1].x / fleet.unit @ fleet.mean / vehicles[-1].y - 1)) > 0.1


def test_masked_sums_give_the_same_fit():
    rng = np.random.default_rng(3)
    vehicles = [vehicle(rng) for _ in range(4)]
    plain, masked = fitted(vehicles), fitted(vehicles, add_up)
    np.testing.assert_allclose(plain.mean, masked.mean, rtol=1e-5)


def test_a_vehicle_without_trips_is_the_fleets():
    rng = np.random.default_rng(4)
    fleet = fitted([vehicle(rng) for _ in range(4)])
    own = own_effects(fleet, Observations(np.zeros((0, 2)), np.zeros(0), np.zeros(0)))
    assert own.scale == 1
    assert not own.beta.any()


def test_what_a_vehicle_adds_is_at_most_what_its_own_part_may_vary_by():
    # A - A C A is P - P C P: nearly P = 1/τ² where trips say much, whatever the scale has become.
    trips = vehicle(np.random.default_rng(5), 1.2, trips=6)
    fleet = FleetEffects(np.ones(2), BETA, np.full(2, 5.0), 0.5)
    own = own_effects(fleet, trips)
    a, right = own_equations(fleet, own, trips)
    assert own.scale != 1
    assert np.linalg.eigvalsh((a + a.T) / 2) == pytest.approx([0.04, 0.04], rel=0.01)
    # β₀ + β_v is what the trips say, so that the equations say the same of β₀ alone.
    assert np.linalg.solve(a, right) == pytest.approx(1.2 * BETA / own.scale, rel=0.05)


def test_left_out_errors_are_larger_than_fitted_ones():
    rng = np.random.default_rng(5)
    vehicles = [vehicle(rng, trips=8) for _ in range(4)]
    fleet = fitted(vehicles)
    own = own_effects(fleet, vehicles[0])
    fitted_errors = (vehicles[0].y - predict(fleet, own, vehicles[0].x)) / vehicles[0].sigma
    assert (np.abs(left_out(fleet, own, vehicles[0])) >= np.abs(fitted_errors)).all()


def test_what_is_handed_up_has_no_row_of_a_trip():
    rng = np.random.default_rng(6)
    one, other = vehicle(rng, trips=5), vehicle(rng, trips=50)
    fleet = fitted([vehicle(rng) for _ in range(4)])
    sizes = [{name: len(v) for name, v in effect_sums(fleet, own).items()} for own in (one, other)]
    assert sizes[0] == sizes[1] == {name: size for name, (size, _) in sum_fields(2).items()}
    assert sum(sizes[0].values()) == pytest.approx(3 + 2 + 1 + 1 + 1 + 2 + 1)
