"""A vehicle's own components and selected features: by hand, and from training trips alone."""

import numpy as np
import pytest

from fedwatt.errors import SettingError
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.windows import DataSettings, build_client, build_fleet
from fedwatt.windows.client import split_of_trips
from fedwatt.windows.scaling import principal_mix, selection_mix

from .toys import make_vehicle

SMALL = {"window": 5, "features": "base"}


def test_components_are_uncorrelated_and_of_unit_variance():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 4)) @ rng.normal(size=(4, 4))
    out = (rows - rows.mean(axis=0)) @ principal_mix(rows, 3)
    assert out.T @ out / 500 == pytest.approx(np.eye(3), abs=1e-9)


def test_the_first_component_is_the_widest_and_its_largest_weight_positive():
    # All variance along (-3, 4)/5; the larger weight is the second.
    rows = np.array([[-3.0, 4.0], [3.0, -4.0], [-6.0, 8.0], [6.0, -8.0]])
    (mix,) = principal_mix(rows, 1).T
    # Variance is (25 + 25 + 100 + 100) / 4 = 62.5.
    assert mix == pytest.approx(np.array([-0.6, 0.8]) / np.sqrt(62.5))


def test_signs_do_not_depend_on_the_order_of_rows():
    rows = np.random.default_rng(1).normal(size=(50, 5))
    assert principal_mix(rows, 5) == pytest.approx(principal_mix(rows[::-1], 5))


def test_a_direction_without_variance_stays_silent():
    rows = np.array([[1.0, 1.0], [-1.0, -1.0], [2.0, 2.0], [-2.0, -2.0]])
    assert principal_mix(rows, 2)[:, 1] == pytest.approx([0.0, 0.0])


def test_selection_keeps_what_moves_the_label():
    rng = np.random.default_rng(2)
    means = rng.normal(size=(400, 4)) * np.array([1.0, 1.0, 1.0, 0.01])
    # The fourth weight is large, but that feature hardly varies.
    labels = 3 * means[:, 2] - 2 * means[:, 0] + 20 * means[:, 3] + 0.1 * rng.normal(size=400)
    assert np.diag(selection_mix(means, labels, 2)).tolist() == [1, 0, 1, 0]


def test_off_by_default_and_equal_columns_everywhere():
    vehicles = [make_vehicle("a"), make_vehicle("b", (20, 30, 40, 25))]
    plain = build_fleet(vehicles, DataSettings(**SMALL), "toys")
    assert all(client.scaler.mix is None for client in plain.clients)
    reduced = build_fleet(vehicles, DataSettings(**SMALL, components=3), "toys")
    assert reduced.features == ("component 1", "component 2", "component 3")
    assert [client.series.shape[1] for client in reduced.clients] == [3, 3]
    chosen = build_fleet(vehicles, DataSettings(**SMALL, selected=2), "toys")
    assert chosen.features == plain.features
    for client, full in zip(chosen.clients, plain.clients, strict=True):
        heard = np.abs(client.series).max(axis=0) > 0
        assert heard.sum() == 2
        assert np.array_equal(client.series[:, heard], full.series[:, heard])


@pytest.mark.parametrize("reduction", [{"components": 4}, {"selected": 3}], ids=str)
def test_nothing_comes_from_validation_and_test_trips(reduction):
    vehicle = make_vehicle("car", (40, 30, 50, 35, 45, 60))
    settings = DataSettings(**SMALL, **reduction)
    split_of = split_of_trips(vehicle, settings)

    def shaken(trip: Trip) -> Trip:
        if split_of[trip.name] == "train":
            return trip
        rng = np.random.default_rng(9)
        changed = {c: 7 * rng.normal(size=trip.seconds) ** 3 for c in trip.channels}
        return Trip(trip.name, changed)

    other = Vehicle("car", tuple(shaken(trip) for trip in vehicle.trips))
    one = build_client(vehicle, settings)
    two = build_client(other, settings)
    assert np.array_equal(one.scaler.mix, two.scaler.mix)
    assert not np.array_equal(one.series, two.series)


@pytest.mark.parametrize(
    "wrong", [{"components": 9}, {"selected": -1}, {"components": 2, "selected": 2}], ids=str
)
def test_impossible_reductions_are_refused(wrong):
    with pytest.raises(SettingError):
        DataSettings(**SMALL, **wrong)
