import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from fedwatt.elevation.elevation_map import ElevationMap
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.errors import DataError, SettingError
from fedwatt.journeys.charge import arrival, usable_wh
from fedwatt.journeys.driving_field import published
from fedwatt.journeys.fleet_routes import REFERENCE_MASS_KG, passes
from fedwatt.journeys.route import Route, recorded_route, route_of
from fedwatt.journeys.route_exchange import learn_routes
from fedwatt.journeys.route_files import (
    fleet_from_bytes,
    fleet_to_bytes,
    model_from_text,
    model_to_text,
)
from fedwatt.journeys.route_intervals import interval
from fedwatt.journeys.route_model import NAMES, Coefficients
from fedwatt.metrics.sums import add_up
from fedwatt.randomness import generator
from tests.edge.bare import ON_BOARD

from .towns import DEGREE_M, GRID, a_vehicle, routes_by_vehicle, street_trip, vehicle_routes

SETTINGS = ElevationSettings()


@pytest.fixture(scope="module")
def fleet():
    return learn_routes(routes_by_vehicle(4), SETTINGS)


@pytest.fixture(scope="module")
def model(fleet):
    return fleet.personalised(routes_by_vehicle(1)["car-0"], "car-0", capacity_wh=16_000.0)


def along(start_m, end_m, name="north"):
    at = np.arange(start_m, end_m + 1, 10.0)
    return route_of(name, 42 + at / DEGREE_M, np.full(len(at), -83.0))


def test_a_street_is_predicted_from_its_route_alone(model):
    prediction = model.forecast(along(0, 4000), 20.0)
    # 150 Wh/km, and 500 W for 200 s at 10 m/s, 100 s at 20 m/s and 10 s for a stop now and then.
    assert prediction.total_wh == pytest.approx(600 + 500 * 310 / 3600, rel=0.05)
    assert prediction.seconds[-1] == pytest.approx(310, rel=0.1)
    low, high = interval(prediction.energy_levels_wh[-1], 0.9)
    assert low < prediction.total_wh < high
    assert prediction.known == 1


def test_nothing_of_a_trip_but_its_positions_and_the_weather_is_used(model):
    rng = generator(0, "leak")
    trip = street_trip("t", rng, kilometres=4.0)
    scrambled = {
        name: rng.permutation(values) + 3.0
        for name, values in trip.channels.items()
        if name in ("speed_mps", "energy_wh")
    } | {"heater_w": np.full(trip.seconds, 5000.0)}
    other = replace(trip, channels={**trip.channels, **scrambled})
    first, second = (
        model.forecast(recorded_route(driven_trip)[0], 20.0) for driven_trip in (trip, other)
    )
    np.testing.assert_array_equal(first.energy_levels_wh, second.energy_levels_wh)
    np.testing.assert_array_equal(first.seconds, second.seconds)


def test_a_newcomer_has_the_fleets_numbers(fleet):
    new = fleet.unseen_vehicle(1600.0)
    assert new.trips == 0
    prediction = new.forecast(along(0, 4000), 20.0)
    assert prediction.total_wh == pytest.approx(600 + 500 * 310 / 3600, rel=0.1)
    # In a town where all vehicles are alike, nobody's own trips teach what an unseen vehicle lacks.
    assert new.bars["energy"].wider == pytest.approx(1, abs=0.1)


def test_a_newcomer_has_wider_bars_where_vehicles_differ():
    vehicle_effects = {
        f"car-{n}": vehicle_routes(a_vehicle(f"car-{n}", heater_w=heater_w))
        for n, heater_w in enumerate((0.0, 1000.0, 2000.0, 3000.0))
    }
    assert learn_routes(vehicle_effects, SETTINGS).unseen_vehicle(1600.0).bars["energy"].wider > 1.5


def test_a_route_under_way_begins_with_the_bars_of_its_forecast(model):
    prediction = model.forecast(along(0, 4000), 20.0)
    going = model.in_trip(prediction)
    errors = prediction.energy_levels_wh[-1] - prediction.total_wh
    np.testing.assert_allclose(going.total_levels_wh - going.total_wh, errors, atol=1e-9)
    going.step(3000.0, 250.0, float(prediction.energy_wh[149]), 20.0)
    low, high = interval(going.total_levels_wh, 0.9)
    before = interval(prediction.energy_levels_wh[-1], 0.9)
    assert high - low < before[1] - before[0]


def test_masks_change_nothing(fleet):
    area = ElevationSettings(area=(41.99, 42.08, -83.01, -82.99))
    masked = learn_routes(routes_by_vehicle(4), area, add_up=add_up)
    np.testing.assert_array_equal(masked.driving.keys, fleet.driving.keys)
    for target, effect in fleet.effects.items():
        np.testing.assert_allclose(masked.effects[target].mean, effect.mean, rtol=1e-3, atol=1e-3)


def test_too_few_vehicles_share_nothing():
    with pytest.raises(DataError, match="2 vehicles have trips with positions"):
        learn_routes(routes_by_vehicle(2), SETTINGS)


def test_a_file_and_a_model_file_hold_it_all(fleet, model):
    again = fleet_from_bytes(fleet_to_bytes(fleet), "here")
    np.testing.assert_array_equal(again.driving.sums, fleet.driving.sums)
    np.testing.assert_array_equal(again.effects["energy"].mean, fleet.effects["energy"].mean)
    remaining = model_from_text(model_to_text(model), "here")
    route = along(0, 4000)
    first, second = (route_model.forecast(route, -3.0) for route_model in (model, remaining))
    assert first.total_wh == pytest.approx(second.total_wh, rel=1e-6)
    assert remaining.capacity_wh == 16_000
    with pytest.raises(DataError, match="here holds no routes"):
        model_from_text("AAAA", "here")
    with pytest.raises(DataError, match="here holds no routes"):
        fleet_from_bytes(b"nothing", "here")


@pytest.mark.parametrize("where", [(51.5, -0.1), (0.1, -30.0), (-33.9, 151.2)])
def test_other_continents_and_the_sea_get_no_number(model, where):
    lat, lon = (at + np.linspace(0, 0.03, 400) for at in where)
    with pytest.raises(DataError, match="goes where the fleet has not driven: it knows 0%"):
        model.forecast(route_of("far", lat, lon), 20.0)


def test_exchanged_latitude_and_longitude_are_noticed(model):
    right = along(0, 4000)
    # At the fleet's place reversed degrees are in the Antarctic, which is a place as well.
    reversed_ = Route("reversed", right.longitude_deg, right.latitude_deg, right.step_m)
    with pytest.raises(DataError, match="seem to be exchanged"):
        model.forecast(reversed_, 20.0)


def test_a_route_that_leaves_the_known_ground_has_wider_bars(model):
    def width(route):
        prediction = model.forecast(route, 20.0)
        low, high = interval(prediction.energy_levels_wh[-1], 0.9)
        return prediction.known, high - low

    reference, inside = width(along(0, 4000))
    partly, outside = width(along(-2000, 2000))
    assert reference == 1
    assert 0.2 < partly < 1
    assert outside >= inside


def test_a_temperature_that_cannot_be_is_refused(model):
    with pytest.raises(SettingError, match="300 °C cannot be"):
        model.forecast(along(0, 4000), 300.0)


def test_a_charge_leaves_what_the_route_does_not_take(model):
    prediction = model.forecast(along(0, 4000), 20.0)
    left = arrival(prediction, 0.5, 16_000.0)
    assert left.left == pytest.approx(0.5 - prediction.total_wh / 16_000)
    assert left.likely == pytest.approx(0.99)
    assert np.isinf(left.reach(0.9)).all()
    short = arrival(prediction, 0.02, 16_000.0)
    assert short.left < 0
    # 320 Wh at about 160 Wh/km.
    assert short.reach_m == pytest.approx(2000, rel=0.15)
    low, high = short.reach(0.9)
    assert low <= short.reach_m <= high


def test_a_charge_or_a_capacity_that_cannot_be_is_refused(model):
    prediction = model.forecast(along(0, 4000), 20.0)
    with pytest.raises(SettingError, match="state of charge of 120% does not exist"):
        arrival(prediction, 1.2, 16_000.0)
    with pytest.raises(SettingError, match=r"16000 kWh cannot be.*write 16"):
        usable_wh(16_000.0)
    with pytest.raises(SettingError, match="above 0"):
        usable_wh(0.0)


def test_a_long_route_takes_less_than_a_second(model):
    to_and_fro = np.abs(np.mod(np.arange(0, 100_001, 10.0) + 4000, 8000) - 4000)
    started = time.process_time()
    route = route_of("laps", 42 + to_and_fro / DEGREE_M, np.full(len(to_and_fro), -83.0))
    prediction = model.forecast(route, 20.0)
    assert time.process_time() - started < 1
    assert prediction.metres[-1] == pytest.approx(100_000, rel=0.01)


def test_no_weather_makes_a_way_take_less_than_two_thirds_of_its_time(model):
    wild = np.zeros(len(NAMES))
    # seconds a minute
    wild[NAMES.index("time")] = 60.0
    wild[NAMES.index("cold time")] = -10.0
    coefficients = Coefficients(wild, 1.0)
    cold = replace(model, coefficients={**model.coefficients, "duration": coefficients})
    usual, frosty = (cold.forecast(along(0, 4000), celsius).seconds[-1] for celsius in (20, -10))
    assert frosty == pytest.approx(usual * 2 / 3)


def test_a_newcomer_twice_as_heavy_takes_twice_the_energy_and_the_same_time(fleet):
    light, heavy = (
        fleet.unseen_vehicle(mass).forecast(along(0, 4000), 20.0) for mass in (1600, 3200)
    )
    assert heavy.energy_wh == pytest.approx(2 * light.energy_wh)
    assert heavy.seconds == pytest.approx(light.seconds)
    # As heavy as the fleet's vehicles, it takes what they do.
    assert light.total_wh == pytest.approx(600 + 500 * 310 / 3600, rel=0.05)


def test_an_unseen_vehicle_moves_by_70_percent_of_its_consumption(fleet):
    usual = fleet.wh_per_km * 1600 / REFERENCE_MASS_KG
    # 150 Wh/km and 500 W over 310 s in 4 km.
    assert usual == pytest.approx((600 + 500 * 310 / 3600) / 4, rel=0.05)
    plain = fleet.unseen_vehicle(1600.0).forecast(along(0, 4000), 14.0)
    same, more = (fleet.unseen_vehicle(1600.0, wh).forecast(along(0, 4000), 14.0)
                  for wh in (usual, 1.25 * usual))  # fmt: skip
    assert same.energy_wh == pytest.approx(plain.energy_wh)
    assert more.energy_wh == pytest.approx((0.3 + 0.7 * 1.25) * plain.energy_wh)
    assert more.seconds == pytest.approx(plain.seconds)
    # Half the mass counts in the remaining 30 %.
    light = fleet.unseen_vehicle(800.0, usual).forecast(along(0, 4000), 14.0)
    assert light.energy_wh == pytest.approx((0.3 * 0.5 + 0.7) * plain.energy_wh)


def climbing(vehicle_board, vehicles):
    """Ground around a vehicle's passes that climbs 5 % northward, taught by so many vehicles."""
    corners = [
        GRID.corners(driven_pass.route.latitude_deg, driven_pass.route.longitude_deg)
        for driven_pass in vehicle_board.passes
    ]
    keys = np.unique(np.concatenate([result.ravel() for result, _ in corners]))
    latitude, _ = GRID.positions(keys)
    count = np.full(len(keys), vehicles)
    height = 0.05 * (latitude - 42) * DEGREE_M
    return ElevationMap(GRID, keys, height, np.zeros(len(keys), int), count.astype(float), count)


def test_a_newcomers_lessons_know_no_hills_that_are_the_vehicles_own(fleet):
    level = routes_by_vehicle(1)["car-0"]
    climb = NAMES.index("climb")
    samples = replace(level, elevations=climbing(level, 1)).sample_sets(fleet.driving, None, 3)
    assert samples.inside.x[:, climb].min() > 10 and not samples.new.x[:, climb].any()
    # As many as k drive there with the vehicle, so fewer than k without it: not published then.
    for vehicles, reference in ((3, False), (4, True)):
        elevations = climbing(level, vehicles)
        result = level.sample_sets(fleet.driving, elevations.only(elevations.vehicles > 3), 3)
        assert not result.inside.x[:, climb].any()
        assert result.new.x[:, climb].any() == reference


def test_a_newcomer_finds_no_driving_where_fewer_than_k_others_drive():
    own = routes_by_vehicle(3)
    shared = published([vehicle_board.sums for vehicle_board in own.values()], 3)
    samples = own["car-0"].sample_sets(shared, None, 3)
    # Nothing is known of any place, so every route is driven as the two others usually drive.
    remaining = published([own[name].sums.within(shared.keys) for name in ("car-1", "car-2")], 1)
    _, wheel_m, seconds, *_ = remaining.sums.sum(axis=0)
    pace = (seconds / 60) / (wheel_m / 1000)
    distance, minutes = samples.new.x[:, [NAMES.index("distance"), NAMES.index("time")]].T
    assert minutes / distance == pytest.approx(np.full(len(distance), pace))


def test_a_trip_without_positions_teaches_nothing():
    vehicle = vehicle_routes(a_vehicle("car-9", trips=2))
    nowhere = {name: v for name, v in vehicle.passes[0].trip.channels.items() if "deg" not in name}
    assert passes([replace(vehicle.passes[0].trip, channels=nowhere)], vehicle.grid) == ()


def test_a_vehicle_reads_its_routes_with_numpy_alone(model, tmp_path):
    (tmp_path / "routes.txt").write_text(model_to_text(model))
    program = (
        ON_BOARD
        + f"""
from pathlib import Path
import numpy as np
from fedwatt.journeys.route import route_of
from fedwatt.journeys.route_files import model_from_text
model = model_from_text(Path({str(tmp_path / "routes.txt")!r}).read_text(), "here")
at = np.arange(0, 4001, 10.0)
route = route_of("north", 42 + at / {DEGREE_M}, np.full(len(at), -83.0))
print(round(model.forecast(route, 20.0).total_wh))
"""
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert int(answer.stdout) == round(model.forecast(along(0, 4000), 20.0).total_wh)
