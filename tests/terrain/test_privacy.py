"""What leaves a vehicle, byte by byte, and what does not."""

import numpy as np
import pytest

from fedwatt.errors import DataError, RunError
from fedwatt.fleet import DataSettings
from fedwatt.terrain import TerrainSettings, learn
from fedwatt.terrain.grid import Grid
from fedwatt.terrain.learn import publishable
from fedwatt.terrain.masked import (
    Area,
    agreed_pairs,
    masked,
    packed,
    presence,
    total,
    unpacked,
)
from fedwatt.terrain.power import residual
from fedwatt.terrain.solve import solve_field
from fedwatt.terrain.statistics import (
    LAYOUT,
    Contribution,
    add,
    contribution,
    touched_nodes,
    usable_segments,
)
from fedwatt.terrain.survey import survey
from tests.terrain.toys import fleet

GRID = Grid(cell_m=80.0)
DATA = DataSettings(features="speed")
K = 3


@pytest.fixture(scope="module")
def surveys():
    return [survey(v, GRID, 8, DATA) for v in fleet(6, trips=6)]


def test_a_message_is_its_declared_arrays_and_nothing_else(surveys):
    sent = contribution(surveys[0], residual(surveys[0]), within=publishable(surveys, K))
    message = sent.to_bytes()
    sizes = {"nodes": len(sent.keys), "pairs": len(sent.value)}
    assert len(message) == 16 + sum(int(kind[-1]) * sizes[of] for _, kind, of in LAYOUT)
    back = Contribution.from_bytes(message)
    for name, *_ in LAYOUT:
        assert (getattr(back, name) == getattr(sent, name)).all()
    with pytest.raises(DataError, match="Ask for it again"):
        Contribution.from_bytes(message[:-1])


def test_no_position_of_a_trip_is_in_the_bytes():
    (one, *_) = vehicles = fleet(6, trips=6)
    surveys = [survey(v, GRID, 8, DATA) for v in vehicles]
    message = contribution(surveys[0], residual(surveys[0]), publishable(surveys, K)).to_bytes()
    for trip in one.trips:
        for channel in ("latitude_deg", "longitude_deg", "energy_wh", "speed_mps"):
            for value in trip.channels[channel][::10]:
                for kind in ("<f8", "<f4"):
                    assert np.array(value, dtype=kind).tobytes() not in message or value == 0


def test_only_nodes_of_k_vehicles_leave_any_vehicle(surveys):
    published = publishable(surveys, K)
    sent = [contribution(one, residual(one), within=published) for one in surveys]
    counts = np.zeros(len(published))
    for one in sent:
        assert np.isin(one.keys, published).all()
        counts += np.isin(published, one.keys)
    assert counts.min() >= K
    driven = np.unique(np.concatenate([touched_nodes(one) for one in surveys]))
    assert 0 < len(published) < len(driven)
    field = solve_field(GRID, add(sent), 0.03)
    assert field.vehicles.min() >= K


def test_a_home_street_is_in_no_message_but_in_the_private_field():
    everyone = fleet(7, trips=20)
    (hermit,) = fleet(1, trips=40, latitude=43.0)
    settings = TerrainSettings(minimum_vehicles=K)
    learned = learn([*everyone[1:], hermit], settings, DATA)
    latitude, _ = GRID.positions(learned.shared.keys)
    assert latitude.max() < 42.5
    own, _ = GRID.positions(learned.own["car-0"].keys)
    assert own.max() > 42.9
    for name in ("car-1", "car-2", "car-6"):
        other, _ = GRID.positions(learned.own[name].keys)
        assert other.max() < 42.5


def masked_exchange(surveys, messages):
    """The whole exchange through masks; every message that leaves a vehicle is kept."""
    names = [f"car-{i}" for i in range(len(surveys))]

    def secrets(me):
        return {o: "/".join(sorted((me, o))).encode() for o in names if o != me}

    def send(values, me, purpose):
        messages.append(masked(values, me, secrets(me), purpose))
        return messages[-1]

    area = Area(south_deg=41.98, north_deg=42.08, west_deg=-83.02, east_deg=-82.9)
    nodes, before = area.nodes(GRID), -1
    while len(nodes) != before:
        before = len(nodes)
        pairs = zip(surveys, names, strict=True)
        counted = total([send(presence(s, nodes), n, f"count {before}") for s, n in pairs])
        nodes = nodes[counted >= K]
    pairs = agreed_pairs(GRID, nodes, 8)
    words = [
        send(packed(s, residual(s), nodes, pairs), n, "sums")
        for s, n in zip(surveys, names, strict=True)
    ]
    return nodes, unpacked(total(words), nodes, pairs, K), words, pairs


def test_masked_sums_are_the_open_sums(surveys):
    nodes, sums, *_ = masked_exchange(surveys, [])
    assert (nodes == publishable(surveys, K)).all()
    clear = add([contribution(one, residual(one), within=nodes) for one in surveys])
    assert (sums.keys == clear.keys).all()
    assert (sums.vehicles == clear.vehicles).all()
    # Six vehicles, each rounded to 2^-31.
    assert abs(sums.matrix - clear.matrix).max() < 1e-8
    assert sums.right == pytest.approx(clear.right, abs=1e-8)


def test_a_masked_message_is_noise_and_its_length_says_nothing(surveys):
    messages: list = []
    nodes, _, words, pairs = masked_exchange(surveys, messages)
    assert len({len(message) for message in words}) == 1
    for message in messages:
        bits = np.unpackbits(np.ascontiguousarray(message).view(np.uint8))
        # 5 standard deviations of a fair coin.
        assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(len(bits))
    # One message missing: what is left of the sum is noise, not somebody's data.
    with pytest.raises(RunError):
        unpacked(total(words[1:]), nodes, pairs, minimum_vehicles=2**33)
    partial = total(words[1:]).view(np.int64)
    assert np.abs(partial / 2**30).mean() > 1e8


def test_segments_that_leave_the_published_nodes_stay_on_board(surveys):
    published = publishable(surveys, K)
    inside = usable_segments(surveys[0], published)
    outside = usable_segments(surveys[0]) & ~inside
    assert outside.any()
    rest = contribution(surveys[0], residual(surveys[0]), excluding=published)
    assert rest.passes.sum() > 0
