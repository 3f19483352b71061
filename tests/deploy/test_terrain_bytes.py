"""All bytes that vehicles send while they learn hills: declared, random, and of one length."""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

from flwr.app import Message

from fedwatt.deploy import node
from fedwatt.deploy.messages import REPLIES, Content, from_records, to_records
from fedwatt.elevation.encoding import field_from_arrays
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.question import Question
from fedwatt.elevation.statistics import touched_nodes
from fedwatt.elevation.store import read_field
from fedwatt.elevation.survey import Survey, survey
from fedwatt.privacy.fixed_point import Layout
from fedwatt.runs import from_toml
from fedwatt.telemetry.store import read_vehicle
from tests.deploy.fleets import deployed, loopback
from tests.deploy.hilly import hilly, hilly_fleet
from tests.deploy.loopback import KINDS, Loopback
from tests.deploy.test_messages import Session

HILLS = ["enrol", "secure-keys", "secure-shares", "secure-terrain", "secure-agree", "secure-reveal"]
CARS = 4


@dataclass
class Sent:
    """One reply on its way: what was asked, what it says, and its bytes on the connection."""

    node: int
    kind: str
    asked: Content
    says: Content
    data: bytes


@dataclass
class Line:
    """A grid whose vehicles answer through their own connection, which is listened to."""

    grid: Loopback
    sent: list[Sent] = field(default_factory=list)

    def answer(self, message: Message) -> Message:
        number = message.metadata.dst_node_id
        kind = KINDS[message.metadata.message_type]
        vehicle = self.grid.vehicles[number]
        honest, replies = vehicle.answer, []

        def kept(kind, records):
            replies.append(honest(kind, records))
            return replies[0]

        vehicle.answer = kept
        asked = from_records(message.content)
        session = Session([Message(to_records(asked), number, message.metadata.message_type)])
        node._serve(vehicle, session, 0.0, lambda: bool(session.questions))
        vehicle.answer = honest
        data = b"".join(session.sent)
        self.sent.append(Sent(number, kind, asked, from_records(replies[0]), data))
        return Message(replies[0], reply_to=message)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hilly_fleet(tmp_path_factory.mktemp("bytes") / "fleet")


def surveys(line: Line, text: str) -> dict[int, Survey]:
    config = from_toml(text)
    grid = Grid(cell_m=config.terrain.cell_m)
    return {
        number: survey(read_vehicle(v.folder), grid, config.terrain.segment_s, config.data)
        for number, v in line.grid.vehicles.items()
    }


def of_level(sent: Sent) -> bool:
    return str(sent.asked.values.get("run", "")).endswith("/level")


def in_the_clear(sent: Sent, own: Survey, text: str) -> np.ndarray:
    """The words that a reply would have held without masks."""
    config = from_toml(text)
    grid, known = Grid(cell_m=config.terrain.cell_m), None
    if not sent.asked.values["count"]:
        known = field_from_arrays(sent.asked.arrays, grid)
    question = Question(grid, config.terrain, sent.asked.arrays["nodes"], known)
    return Layout(question.fields, vehicles=CARS).encode(question.answer(own))


def test_every_byte_of_learning_hills(fleet: Path, tmp_path: Path) -> None:
    text = hilly(fleet)
    line = Line(loopback(fleet, tmp_path / "state"))
    line.grid.answer = line.answer
    run = deployed(text, line.grid, tmp_path / "run")
    end = max(n for n, one in enumerate(line.sent) if one.kind == "terrain-field")
    # Without the level model's rounds, which are those of any run, and know no hills.
    phase = [one for one in line.sent[: end + 1] if not of_level(one)]
    assert {one.kind for one in phase} == {*HILLS, "terrain-field"}

    # 1. The declared fields and no others.
    for one in phase:
        assert {*one.says.values, *one.says.arrays} == set(REPLIES[one.kind])
    fields = {one.says.values["field"] for one in phase if one.kind == "terrain-field"}
    assert len(fields) == 1

    # 2. No value of the telemetry, no position as text, no node that anybody drove.
    everything = b"".join(one.data for one in phase)
    pieces = {everything[at : at + 8] for at in range(len(everything) - 7)}
    own, values = surveys(line, text), 0
    for number, vehicle in line.grid.vehicles.items():
        for trip in read_vehicle(vehicle.folder).trips:
            for name, channel in trip.channels.items():
                for value in np.unique(channel[np.isfinite(channel) & (np.abs(channel) > 1e-6)]):
                    if value != round(value):  # 1.0 and 20.0 are nobody's secret
                        assert value.tobytes() not in pieces
                        values += 1
                if name in ("latitude_deg", "longitude_deg"):
                    assert not any(f"{v:.4f}".encode() in everything for v in channel[::50])
        for key in touched_nodes(own[number]):
            assert key.tobytes() not in pieces
            assert str(key).encode() not in everything
    assert values > 10_000
    # The search does find what is there.
    enrolled = next(one for one in phase if one.kind == "enrol").says
    assert enrolled.values["version"].encode() in everything
    assert next(iter(fields)).encode() in everything

    # 3. Under masks nothing is as it is in the clear: no vehicle's numbers, and no sum below k.
    exchanges = defaultdict(dict)
    for one in phase:
        if one.kind == "secure-terrain":
            exchanges[one.says.values["exchange"]][one.node] = one
    counts = [e for e in exchanges.values() if next(iter(e.values())).asked.values["count"]]
    assert len(exchanges) - len(counts) == 3 and len(counts) >= 2
    driven_alone = 0
    for replies in exchanges.values():
        assert set(replies) == set(line.grid.vehicles)
        words = {n: np.frombuffer(r.says.values["words"], dtype="<u8") for n, r in replies.items()}
        clear = {n: in_the_clear(r, own[n], text) for n, r in replies.items()}
        for few in (1, 2):
            for some in combinations(words, few):
                total, hidden = sum(words[n] for n in some), sum(clear[n] for n in some)
                assert not (total == hidden).any()
                driven_alone += few == 1 and int((hidden != 0).sum())
        for number, vector in words.items():
            bits = np.unpackbits(vector.view(np.uint8))
            # 5 standard deviations of fair coins.
            assert abs(bits.mean() - 0.5) < 2.5 / np.sqrt(len(bits))
            unlike = clear[number][clear[number] != 0]
            secret = unlike[unlike % np.uint64(2**32) != 0]  # not a round number such as a count
            assert not {word.tobytes() for word in secret} & pieces
    assert driven_alone > 1000

    # 4. Vehicles that drove elsewhere, and more or less, send messages of one length.
    assert len({len(touched_nodes(one)) for one in own.values()}) == CARS
    lengths = defaultdict(list)
    for one in phase:
        if one.kind != "enrol":
            lengths[one.kind, one.says.values.get("exchange")].append(len(one.data))
    for several in lengths.values():
        assert len(several) == CARS and len(set(several)) == 1

    # What the server makes public has k vehicles everywhere; the rest is on board only.
    published = read_field(run / "field.parquet")
    assert published.vehicles.min() >= 3
    for number, vehicle in line.grid.vehicles.items():
        (file,) = vehicle.state.glob("memory/*/hills-*.parquet")
        private = set(read_field(file).keys) - set(published.keys)
        assert private <= set(touched_nodes(own[number])) and private
    asked = [one.asked for one in phase if one.kind == "terrain-field"]
    for question in asked:
        parts = ("keys", "elevation_m", "region", "prior")
        assert set(question.arrays) == {f"field.{part}" for part in parts}
        assert np.array_equal(question.arrays["field.keys"], published.keys)
