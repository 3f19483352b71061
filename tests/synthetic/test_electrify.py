"""Recorded speed as an electric vehicle would have driven it, by hand and by its laws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedwatt.synthetic.battery import charge_between_trips
from fedwatt.synthetic.electrify import TimedEffort, driving_power_w, electrify, followed
from fedwatt.synthetic.vehicle import DUTIES, Drivetrain, VehicleParameters

PLAIN = VehicleParameters(
    mass_kg=1000.0,
    rotating_mass_factor=1.0,
    rolling_coefficient=0.01,
    drag_area_m2=1e-9,
    drivetrain=Drivetrain(conversion_loss=0.25, copper_w=0.0, iron_w=0.0),
)

LEAF_2013 = VehicleParameters()


def a_trip(seconds: int = 400, seed: int = 0, ambient_c: float = 20.0) -> dict[str, np.ndarray]:
    """Stop and go up to about 15 m/s."""
    rng = np.random.default_rng(seed)
    wave = np.sin(np.arange(seconds) / 17) + 0.5 * np.sin(
        np.arange(seconds) / 41 + rng.uniform(0, 6)
    )
    return {
        "speed_mps": np.clip(10 * wave, 0, None),
        "ambient_c": np.full(seconds, ambient_c),
        "heater_w": np.zeros(seconds),
        "ac_w": np.zeros(seconds),
    }


def test_power_of_a_steady_drive_by_hand():
    # Rolling 98.1 N at 10 m/s is 981 W at the wheels, a quarter more from the pack.
    steady = {"speed_mps": np.full(3, 10.0), "ambient_c": np.full(3, 20.0)}
    assert driving_power_w(PLAIN, steady) == pytest.approx([1226.25] * 3, rel=1e-6)
    # Uphill by 1 %: as much again, but for the cosine.
    climbing = {**steady, "grade": np.full(3, 0.01)}
    assert driving_power_w(PLAIN, climbing) == pytest.approx([2452.5] * 3, rel=1e-4)


def test_kinetic_energy_is_counted_once():
    # To 20 m/s at 1 m/s²: 200 kJ of motion; rolling takes 98.1 N over 200 m.
    speed = np.minimum(np.arange(21.0), 20.0)
    power = driving_power_w(PLAIN, {"speed_mps": speed, "ambient_c": np.full(21, 20.0)})
    assert power.sum() == pytest.approx(1.25 * (200_000 + 98.1 * 200), rel=1e-9)


def test_energy_is_demand_and_everything_is_simulated_alike():
    trips = [a_trip(seed=1, ambient_c=18.0), a_trip(seed=2, ambient_c=-5.0)]
    mild, cold = electrify(LEAF_2013, trips, np.zeros(2), np.random.default_rng(0))
    demand = driving_power_w(LEAF_2013, trips[0]) + LEAF_2013.auxiliary_w
    # 18 °C needs neither heater nor air conditioning.
    assert mild.channels["energy_wh"] == pytest.approx(demand / 3600, abs=1e-8)
    assert (mild.channels["heater_w"] == 0).all()
    assert (cold.channels["heater_w"] > 500).all()
    for drive in (mild, cold):
        wh = drive.channels["voltage_v"] * drive.channels["current_a"] / 3600
        assert wh == pytest.approx(drive.channels["energy_wh"])
        assert drive.unmet == pytest.approx(0.0, abs=1e-9)


def test_payload_costs_energy():
    trips = [a_trip(), a_trip()]
    empty, laden = electrify(LEAF_2013, trips, np.array([0.0, 400.0]), np.random.default_rng(0))
    assert laden.channels["energy_wh"].sum() > 1.05 * empty.channels["energy_wh"].sum()


def test_a_demand_beyond_the_pack_shows():
    heavy = VehicleParameters(mass_kg=40_000.0, regeneration_limit_w=1.0)
    (drive,) = electrify(heavy, [a_trip()], np.zeros(1), np.random.default_rng(0))
    assert drive.unmet > 0.05


def test_a_pack_is_charged_before_it_is_low_and_not_otherwise():
    # 24 kWh; each trip takes 20 kW over 15 minutes, 5 kWh, about 22 % with heat.
    trip = np.repeat(np.arange(5), 900)
    drives = charge_between_trips(
        LEAF_2013.pack, trip, np.full(4500, 20_000.0), np.random.default_rng(0)
    )
    assert drives.first.tolist() == [0, 900, 1800, 2700, 3600]
    assert np.isfinite(drives.start_soc).tolist() == [True, False, False, True, False]
    assert 0.8 <= drives.start_soc[0] <= 0.95


def test_a_car_follows_a_car_as_it_is():
    speed = a_trip()["speed_mps"]
    assert followed(speed, DUTIES["passenger"], np.random.default_rng(0)) is speed


@given(st.floats(0, 40), st.floats(0.5, 3), st.floats(5, 40))
def test_reached_speed_undoes_the_run_up(speed, from_rest, fade):
    effort = TimedEffort(from_rest, fade)
    assert effort.reached_mps(effort.run_up(np.array(speed))) == pytest.approx(speed, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(0, 35), min_size=1, max_size=120),
    st.sampled_from(["truck", "bus"]),
    st.integers(0, 5),
)
def test_a_heavy_vehicle_is_never_faster_nor_more_agile(speeds, kind, seed):
    duty = DUTIES[kind]
    values = np.array(speeds)
    got = followed(values, duty, np.random.default_rng(seed))
    assert got.shape == values.shape
    assert (got >= 0).all()
    assert (got <= np.minimum(values, duty.top_mps) + 1e-9).all()
    # a₀ is the acceleration at standstill, the largest there is.
    assert np.diff(got).max(initial=0) <= 2.2 * duty.accelerating + 1e-9
    assert np.diff(got).min(initial=0) >= -2.8 * duty.braking - 1e-9


def test_a_bus_halts_in_town_and_not_on_the_motorway():
    town = np.full(600, 10.0)
    motorway = np.full(600, 30.0)
    bus = DUTIES["bus"]
    assert (followed(town, bus, np.random.default_rng(0)) == 0).mean() > 0.15
    assert (followed(motorway, bus, np.random.default_rng(0)) > 0).all()
