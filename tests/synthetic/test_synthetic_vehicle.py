"""The synthetic fleet: plausible, repeatable and consistent with itself."""

import numpy as np
import pytest

from fedwatt.synthetic.fleet import synthetic_vehicle
from fedwatt.synthetic.town import (
    CENTRE_LATITUDE_DEG,
    CENTRE_LONGITUDE_DEG,
    EARTH_RADIUS_M,
    town,
)


@pytest.fixture(scope="module")
def cars():
    return [synthetic_vehicle(f"car-{number:03d}") for number in range(1, 21)]


@pytest.fixture(scope="module")
def trips(cars):
    return [channels for car in cars for channels in driven(car)]


def driven(vehicle):
    return [trip.channels for trip in vehicle.trips]


def channel(trips, name):
    return np.concatenate([trip[name] for trip in trips])


def kilometres(trip):
    return trip["speed_mps"].sum() / 1000


def test_the_same_name_and_seed_give_the_same_bytes(cars):
    again = synthetic_vehicle("car-001")
    assert again.facts == cars[0].facts
    assert [trip.name for trip in again.trips] == [trip.name for trip in cars[0].trips]
    for one, other in zip(driven(cars[0]), driven(again), strict=True):
        assert all(one[c].tobytes() == other[c].tobytes() for c in one)


def test_another_seed_gives_another_town_and_another_drive(cars):
    other = synthetic_vehicle("car-001", seed=1)
    assert driven(other)[0]["elevation_m"][0] != driven(cars[0])[0]["elevation_m"][0]


def test_a_single_trip_can_be_made():
    assert len(synthetic_vehicle("car-001", trips=1).trips) == 1


def test_trips_are_as_long_as_trips_are(trips):
    minutes = np.array([len(trip["speed_mps"]) for trip in trips]) / 60
    km = np.array([kilometres(trip) for trip in trips])
    assert 6 < np.median(minutes) < 10
    assert 1 < minutes.min() < minutes.max() < 45
    assert 3 < np.median(km) < 7


def test_speeds_and_accelerations_are_plausible(trips):
    speed = channel(trips, "speed_mps")
    assert speed.min() == 0
    assert 35 < speed.max() * 3.6 < 150
    assert 25 < speed.mean() * 3.6 < 45
    assert 0.1 < (speed < 0.5).mean() < 0.35
    gained = np.concatenate([np.diff(trip["speed_mps"]) for trip in trips])
    assert 1.2 < np.quantile(gained, 0.99) < 2.5
    assert -2.6 < np.quantile(gained, 0.01) < -1.2
    assert np.abs(gained).max() < 4


def test_consumption_is_plausible(cars, trips):
    totals = [
        sum(trip["energy_wh"].sum() for trip in driven(car))
        / sum(kilometres(trip) for trip in driven(car))
        for car in cars
    ]
    assert 120 < np.median(totals) < 220
    assert 80 < min(totals) < max(totals) < 320
    windows = np.concatenate([np.convolve(t["energy_wh"], np.ones(60), "valid") for t in trips])
    assert 80 < windows.mean() < 150
    assert 60 < windows.std() < 130
    assert (windows < 0).mean() > 0.01  # long descents and braking charge the pack
    power_kw = 3.6 * channel(trips, "energy_wh")
    assert -70 < power_kw.min() < -20
    assert 50 < power_kw.max() < 200


def test_winter_costs_more_than_summer(trips):
    def wh_per_km(chosen):
        return sum(t["energy_wh"].sum() for t in chosen) / sum(kilometres(t) for t in chosen)

    cold = [trip for trip in trips if trip["ambient_c"].mean() < 3]
    mild = [trip for trip in trips if 17 < trip["ambient_c"].mean() < 25]
    assert 1.15 < wh_per_km(cold) / wh_per_km(mild) < 2.0
    assert channel(cold, "heater_w").mean() > 800
    assert channel(mild, "heater_w").mean() < 300


def test_vehicles_differ(cars):
    assert len({car.facts["mass_kg"] for car in cars}) == len(cars)
    assert len({car.facts["route_mix"] for car in cars}) == 3
    assert len({car.facts["model"] for car in cars}) >= 3


def test_energy_agrees_with_voltage_and_current(trips):
    for trip in trips[::37]:
        logged_wh = (trip["voltage_v"] * trip["current_a"]).sum() / 3600
        # The log rounds to 0.5 V and 0.5 A; over hundreds of seconds that averages out.
        assert trip["energy_wh"].sum() == pytest.approx(logged_wh, abs=2.0, rel=0.005)


def test_charge_falls_by_the_energy_drawn_and_the_heat_inside(cars):
    for car in cars[:5]:
        for trip in driven(car):
            used_wh = (trip["soc"][0] - trip["soc"][-1]) * car.facts["pack_capacity_wh"]
            # Charge is logged in steps of 0.1 %, the counter has its gain error and offset; a unit
            # of charge holds 7 % more energy in a full pack than on average, 9 % less in a low one.
            slack_wh = 0.001 * car.facts["pack_capacity_wh"] + 15
            assert used_wh == pytest.approx(trip["energy_wh"].sum(), abs=slack_wh, rel=0.1)
        assert min(trip["soc"].min() for trip in driven(car)) > 0.08


def test_a_drive_goes_on_with_the_charge_the_last_one_left(cars):
    for car in cars[:5]:
        before = np.array([trip["soc"][-1] for trip in driven(car)[:-1]])
        after = np.array([trip["soc"][0] for trip in driven(car)[1:]])
        charged = after > before + 0.01
        assert after[~charged] == pytest.approx(before[~charged], abs=0.0015)
        assert (after[charged] > 0.78).all()
        # Charged when below 40 %, or when the next trip needs it.
        assert (before[~charged] > 0.35).all()


def test_grade_is_the_slope_of_elevation(trips):
    for trip in trips[::37]:
        climbed_m = np.cumsum(trip["speed_mps"] * trip["grade"])
        # Elevation wanders by 0.5 m; noise of grade and the speedometer's scale add up slowly.
        error_m = climbed_m - (trip["elevation_m"] - trip["elevation_m"][0])
        assert np.abs(error_m).max() < 4.0
    assert 0.008 < channel(trips, "grade").std() < 0.03
    assert np.abs(channel(trips, "grade")).max() < 0.1


def test_recorded_position_and_elevation_lie_on_the_towns_hills(trips):
    scale = np.radians(1) * EARTH_RADIUS_M
    for trip in trips[::37]:
        x_m = (trip["longitude_deg"] - CENTRE_LONGITUDE_DEG) * scale
        x_m *= np.cos(np.radians(CENTRE_LATITUDE_DEG))
        y_m = (trip["latitude_deg"] - CENTRE_LATITUDE_DEG) * scale
        true_m = town(0).landscape.elevation_m(x_m, y_m)
        # A position off by a few metres on a slope of a few per cent, plus the map's own 0.5 m.
        assert np.abs(trip["elevation_m"] - true_m).max() < 3.0


def test_sensors_round(trips):
    for name, step in {"speed_mps": 0.1, "ambient_c": 0.5, "heater_w": 50.0, "ac_w": 50.0}.items():
        steps = channel(trips, name) / step
        assert np.abs(steps - steps.round()).max() < 1e-6


def test_flags_are_flags(trips):
    for name in ("intersection", "bus_stop", "focus_point"):
        flag = channel(trips, name)
        assert set(np.unique(flag)) == {0.0, 1.0}
        assert 0.01 < flag.mean() < 0.6


def test_climbing_costs_the_weight_lifted(cars):
    for car in cars[:5]:
        drives = driven(car)
        speed = channel(drives, "speed_mps")
        gained = np.concatenate([np.gradient(trip["speed_mps"]) for trip in drives])
        climb = speed * channel(drives, "grade")
        terms = np.stack([climb, speed * gained, speed, speed**3, np.ones_like(speed)], axis=1)
        power_w = 3600 * channel(drives, "energy_wh")
        lift, inertia, *_ = np.linalg.lstsq(terms, power_w, rcond=None)[0]
        # Between what regeneration gives back (0.6 and more) and what driving draws (1 / 0.84).
        weight_n = 9.81 * (car.facts["mass_kg"] + 60)
        assert 0.6 < lift / weight_n < 1.25
        assert inertia > 0.5 * car.facts["mass_kg"]


@pytest.mark.parametrize(
    ("kind", "lowest", "highest", "top_kmh"), [("truck", 200, 700, 90), ("bus", 500, 2000, 80)]
)
def test_trucks_and_buses_are_heavy_and_slow(kind, lowest, highest, top_kmh):
    for number in range(3):
        vehicle = synthetic_vehicle(f"{kind}-{number}", trips=12, kind=kind)
        drives = driven(vehicle)
        assert vehicle.kind == kind
        wh_per_km = channel(drives, "energy_wh").sum() / sum(kilometres(trip) for trip in drives)
        assert lowest < wh_per_km < highest
        # The speedometer may be off by a few per cent.
        assert channel(drives, "speed_mps").max() * 3.6 < 1.05 * top_kmh
        gained = np.concatenate([np.diff(trip["speed_mps"]) for trip in drives])
        assert 0.7 < np.quantile(gained, 0.995) < 1.6


def test_a_bus_goes_to_and_fro_and_halts_on_the_way():
    bus = synthetic_vehicle("bus-1", trips=6, kind="bus")
    car = synthetic_vehicle("bus-1", trips=6)
    first, second = driven(bus)[:2]
    for channel_name in ("latitude_deg", "longitude_deg"):
        # Both ends are parked at; position is good to a few metres, 1e-4 degrees.
        assert first[channel_name][-1] == pytest.approx(second[channel_name][0], abs=1e-4)
        assert first[channel_name][0] == pytest.approx(second[channel_name][-1], abs=1e-4)

    def halted(trip):
        return ((trip["speed_mps"] == 0) & (trip["bus_stop"] == 1)).mean()

    assert np.mean([halted(t) for t in driven(bus)]) > 2 * np.mean([halted(t) for t in driven(car)])
