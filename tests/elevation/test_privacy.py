"""The bytes that leave a vehicle, and those that do not."""

from dataclasses import fields, replace
from itertools import count

import numpy as np
import pytest

from fedwatt.elevation.elevation_map import empty_map
from fedwatt.elevation.grid import Area, Grid, agreed_pairs
from fedwatt.elevation.learn import learn, publishable
from fedwatt.elevation.normal_equations import (
    add,
    contribution,
    solve_map,
    touched_nodes,
    usable_segments,
)
from fedwatt.elevation.request import MapRequest, agreed_segments, packed, presence, unpacked
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.survey import Residual, Survey, residual
from fedwatt.errors import RunError
from fedwatt.metrics.sums import VectorLayout
from fedwatt.privacy.secure.messages import Masked, to_plain
from fedwatt.randomness import generator
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.windows import DataSettings
from tests.elevation.toys import DEGREE_M, fleet, survey
from tests.privacy.exchanges import terms_of
from tests.privacy.rehearsal import rehearse

GRID = Grid(cell_m=80.0)
DATA = DataSettings(features="speed")
K = 3


def sum_fields(nodes):
    """Names and sizes of sums over these nodes."""
    return MapRequest(ElevationSettings(), nodes, empty_map(GRID)).fields


@pytest.fixture(scope="module")
def surveys():
    return [survey(v, GRID, 8, DATA) for v in fleet(6, trips=6)]


def test_no_position_of_a_trip_is_in_the_bytes():
    (first, *_) = vehicles = fleet(6, trips=6)
    surveys = [survey(v, GRID, 8, DATA) for v in vehicles]
    sent = contribution(surveys[0], residual(surveys[0]), publishable(surveys, K))
    message = b"".join(getattr(sent, part.name).tobytes() for part in fields(sent))
    for trip in first.trips:
        for channel in ("latitude_deg", "longitude_deg", "energy_wh", "speed_mps"):
            for value in trip.channels[channel][::10]:
                for kind in ("<f8", "<f4"):
                    assert np.array(value, dtype=kind).tobytes() not in message or value == 0


def test_only_nodes_of_k_vehicles_leave_any_vehicle(surveys):
    published = publishable(surveys, K)
    sent = [
        contribution(vehicle_survey, residual(vehicle_survey), within=published)
        for vehicle_survey in surveys
    ]
    counts = np.zeros(len(published))
    for message in sent:
        assert np.isin(message.keys, published).all()
        counts += np.isin(published, message.keys)
    assert counts.min() >= K
    driven = np.unique(
        np.concatenate([touched_nodes(vehicle_survey) for vehicle_survey in surveys])
    )
    assert 0 < len(published) < len(driven)
    field = solve_map(GRID, add(sent), 0.03)
    assert field.vehicles.min() >= K


def test_a_home_street_is_in_no_message_but_in_the_private_field():
    everyone = fleet(7, trips=20)
    (hermit,) = fleet(1, trips=40, latitude=43.0)
    settings = ElevationSettings(minimum_vehicles=K)
    learned = learn([*everyone[1:], hermit], settings, DATA)
    latitude, _ = GRID.positions(learned.shared.keys)
    assert latitude.max() < 42.5
    latitudes, _ = GRID.positions(learned.maps["car-0"].keys)
    assert latitudes.max() > 42.9
    for name in ("car-1", "car-2", "car-6"):
        other, _ = GRID.positions(learned.maps[name].keys)
        assert other.max() < 42.5


def masked_exchange(surveys, overheard, last=None):
    """The whole exchange through secure sums; every message that leaves a vehicle is kept."""
    exchanges = count()

    def summed(fields, values):
        layout = VectorLayout(fields, vehicles=len(values))
        words = {f"car-{i}": layout.encode(uploaded) for i, uploaded in enumerate(values)}
        terms = terms_of(len(words), layout.length, number=next(exchanges))
        sums = layout.decode(rehearse(terms, words, last, overheard=overheard.append)[0])
        assert sums["clipped"] == 0
        return sums

    area = Area(south_deg=41.98, north_deg=42.08, west_deg=-83.02, east_deg=-82.9)
    nodes = area.nodes(GRID)
    before = -1
    while len(nodes) != before:
        before = len(nodes)
        fields = {"vehicles": (len(nodes), 1.0)}
        counts = summed(
            fields, [presence(vehicle_survey, nodes, GRID, 8) for vehicle_survey in surveys]
        )
        nodes = nodes[counts["vehicles"] >= K]
    pairs = agreed_pairs(GRID, nodes, 8)
    values = [
        packed(vehicle_survey, residual(vehicle_survey), nodes, pairs, GRID, 8)
        for vehicle_survey in surveys
    ]
    total = summed(sum_fields(nodes), values)
    return nodes, unpacked(total, nodes, pairs, K), pairs


def test_masked_sums_are_the_open_sums(surveys):
    nodes, sums, _ = masked_exchange(surveys, [])
    assert (nodes == publishable(surveys, K)).all()
    clear = add(
        [
            contribution(vehicle_survey, residual(vehicle_survey), within=nodes)
            for vehicle_survey in surveys
        ]
    )
    assert (sums.keys == clear.keys).all()
    assert (sums.vehicles == clear.vehicles).all()
    # Six vehicles, each rounded to 2^-31.
    assert abs(sums.matrix - clear.matrix).max() < 1e-8
    assert sums.right == pytest.approx(clear.right, abs=1e-8)


def fast(name: str, speed_mps: float) -> Vehicle:
    """Three vehicles' worth of one straight road, also at speeds that no pair was agreed for."""
    seconds = 60
    east = speed_mps * np.arange(seconds) / (DEGREE_M * np.cos(np.radians(42.0)))
    channels = {
        "speed_mps": np.full(seconds, speed_mps),
        "latitude_deg": np.full(seconds, 42.0),
        "longitude_deg": -83.0 + east,
        "energy_wh": np.full(seconds, 5.0) + generator(0, "fast", name).standard_normal(seconds),
    }
    return Vehicle(
        name, tuple(Trip(f"t{i}", channels) for i in range(5)), facts={"mass_kg": 1600.0}
    )


@pytest.mark.parametrize("racers", [1, 3])
def test_vehicles_too_fast_for_the_agreed_pairs_do_not_end_an_exchange(surveys, racers):
    """8 s at 70 m/s are seven cells and more than a pair may span: those segments stay on board.

    Three of them on the same road would count for nodes that they then sum nothing over.
    """
    wild = [survey(fast(f"racer-{i}", 70.0), GRID, 8, DATA) for i in range(racers)]
    assert all(vehicle_survey.placed.any() for vehicle_survey in wild)
    assert not any(agreed_segments(vehicle_survey, GRID, 8).placed.any() for vehicle_survey in wild)
    nodes, sums, _ = masked_exchange([*surveys, *wild], [])
    calm, without, _ = masked_exchange(surveys, [])
    assert (nodes == calm).all()
    assert sums.right == pytest.approx(without.right, abs=1e-8)


@pytest.mark.parametrize("latitude", [0.0, 42.0, 70.0, 89.9])
def test_every_segment_at_legal_speed_is_among_the_agreed_pairs(latitude):
    """In any direction, 8 s at 40 m/s: 320 m between ends, wherever they are in their cells."""
    rng = generator(0, "reach", latitude)
    start_lat = latitude + rng.uniform(-0.05, 0.05, 4000)
    start_lon = rng.uniform(-180, 180, 4000)
    turn = rng.uniform(0, 2 * np.pi, 4000)
    end_lat = start_lat + 320 * np.sin(turn) / DEGREE_M
    end_lon = start_lon + 320 * np.cos(turn) / (DEGREE_M * np.cos(np.radians(start_lat)))
    ends, shares = GRID.corners(end_lat, end_lon)
    starts, remaining = GRID.corners(start_lat, start_lon)
    vehicle_survey = Survey(
        np.zeros((4000, 0)),
        np.zeros(4000),
        np.hstack([ends, starts]),
        np.hstack([shares, -remaining]),
        np.ones(4000, dtype=bool),
        4.0,
    )
    stored = agreed_segments(vehicle_survey, GRID, 8)
    assert stored.placed.all()
    # What a vehicle keeps, the pairs have: the sums go in without an error.
    some = replace(stored, placed=np.arange(4000) < 200)
    nodes = touched_nodes(some)
    vehicle_residual = Residual(np.ones(4000), np.ones(4000), 1.0)
    pairs = agreed_pairs(GRID, nodes, 8)
    assert np.count_nonzero(packed(some, vehicle_residual, nodes, pairs, GRID, 8)["value"]) > 200


def test_a_vehicle_that_drops_out_is_not_in_the_sums(surveys):
    """Its message never arrives; the others' sums come out all the same."""
    nodes, sums, _ = masked_exchange(surveys, [], last={"car-5": "shares"})
    clear = add(
        [
            contribution(vehicle_survey, residual(vehicle_survey), within=nodes)
            for vehicle_survey in surveys[:5]
        ]
    )
    assert sums.right == pytest.approx(clear.right, abs=1e-8)
    assert sums.vehicles.min() >= K


def test_every_byte_a_vehicle_sends_is_key_share_or_noise(surveys):
    """Of all messages, only masked vectors know anything of the vehicle, and these look random."""
    overheard: list = []
    nodes, _, pairs = masked_exchange(surveys, overheard)
    kinds = {type(message).__name__ for message in overheard}
    assert kinds == {"Advert", "Shares", "Masked", "Agreed", "Revealed"}
    driven = {int(key) for single in surveys for key in touched_nodes(single)}
    hidden = driven - set(nodes.tolist())
    assert hidden
    vectors = [message.words for message in overheard if isinstance(message, Masked)]
    # Each exchange has one length for all, fixed by the area or by what is published already.
    assert len(vectors) % len(surveys) == 0
    for first in range(0, len(vectors), len(surveys)):
        assert len({len(words) for words in vectors[first : first + len(surveys)]}) == 1
    assert len(vectors[-1]) == 8 * (len(pairs[0]) + 3 * len(nodes) + 1)
    for words in vectors:
        bits = np.unpackbits(np.frombuffer(words, dtype=np.uint8))
        # 5 standard deviations of a fair coin.
        assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(len(bits))
    layout = VectorLayout(sum_fields(nodes), vehicles=len(surveys))
    secret = layout.encode(packed(surveys[0], residual(surveys[0]), nodes, pairs, GRID, 8))
    sent = np.frombuffer(vectors[-len(surveys)], dtype="<u8")
    assert (sent != secret).mean() > 0.999
    everything = b"".join(bytes(str(to_plain(message)), "utf-8") for message in overheard)
    assert not any(str(key).encode() in everything for key in list(hidden)[:200])


def test_sums_below_k_are_refused(surveys):
    """Whatever a server was told, fewer than k vehicles make no equations."""
    published = publishable(surveys, K)
    pairs = agreed_pairs(GRID, published, 8)
    alone = packed(surveys[0], residual(surveys[0]), published, pairs, GRID, 8)
    with pytest.raises(RunError, match="fewer than 3 vehicles"):
        unpacked(alone, published, pairs, K)


def test_segments_that_leave_the_published_nodes_stay_on_board(surveys):
    published = publishable(surveys, K)
    inside = usable_segments(surveys[0], published)
    outside = usable_segments(surveys[0]) & ~inside
    assert outside.any()
    contributed = contribution(surveys[0], residual(surveys[0]), excluding=published)
    assert contributed.passes.sum() > 0
