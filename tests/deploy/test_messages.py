"""What leaves a vehicle: the declared fields, and no telemetry."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.common.serde import message_to_proto
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

from fedwatt.deploy import node
from fedwatt.deploy.messages import (
    IN_THE_CLEAR,
    MESSAGE_TYPES,
    REPLIES,
    Content,
    ReplyForm,
    Sizes,
    all_records,
    diagnostic_fields,
    from_records,
    opened,
    sealed,
    to_records,
)
from fedwatt.deploy.vehicle import Vehicle
from fedwatt.errors import DataError
from fedwatt.methods import METHODS
from fedwatt.methods.catalogue import Recipe
from fedwatt.runs.tables import read_table
from fedwatt.tables import ROUGHNESS
from fedwatt.telemetry.store import read_vehicle, vehicle_folders
from fedwatt.windows import DataSettings
from tests.deploy.fleets import BOARD, config_text, deployed, loopback, make_fleet
from tests.deploy.loopback import open_policy
from tests.federation.test_work import Weighed

TRAIN = ReplyForm("train", Sizes(3, "float32"))
REPLY = Content({"round": 1, "windows": 5}, {"delta": np.zeros(3, dtype=np.float32)})


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("messages") / "fleet")


def test_a_sealed_reply_opens_as_it_was() -> None:
    content = opened(TRAIN, sealed(TRAIN, REPLY))
    assert content.values == REPLY.values
    assert content.arrays["delta"].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "content",
    [
        Content({**REPLY.values, "speed_mps": 13.9}, REPLY.arrays),
        Content(REPLY.values, {**REPLY.arrays, "series": np.zeros((4, 8), dtype=np.float32)}),
        Content({**REPLY.values, "roughness": 0.2}, REPLY.arrays),
        Content(REPLY.values, {"delta": np.zeros(4, dtype=np.float32)}),
        Content(REPLY.values, {"delta": np.zeros(3)}),
        Content({**REPLY.values, "windows": 5.0}, REPLY.arrays),
        Content({**REPLY.values, "windows": True}, REPLY.arrays),
        Content({"windows": 5}, REPLY.arrays),
    ],
    ids=["value", "array", "unasked", "shape", "precision", "type", "flag", "missing"],
)
def test_what_is_not_declared_neither_leaves_nor_enters(content: Content) -> None:
    with pytest.raises(DataError):
        sealed(TRAIN, content)
    with pytest.raises(DataError):
        opened(TRAIN, to_records(content))


def test_roughness_leaves_only_if_asked_for() -> None:
    told = Content({**REPLY.values, "roughness": 0.2}, REPLY.arrays)
    asked = replace(TRAIN, more=diagnostic_fields([ROUGHNESS]))
    content = opened(asked, sealed(asked, told))
    assert content.values["roughness"] == 0.2


def test_a_name_is_not_too_long() -> None:
    content = Content({"strata": ["x" * 5000]}, {"sums": np.zeros((1, 6))})
    with pytest.raises(DataError, match="too long"):
        sealed(ReplyForm("strata"), content)


TRUE = Array(np.zeros(3, dtype=np.float32)).data


def forged(dtype: str, shape: tuple[int, ...], data: bytes) -> RecordDict:
    array = Array(dtype=dtype, shape=shape, stype="numpy.ndarray", data=data)
    values = ConfigRecord(dict(REPLY.values))
    return RecordDict({"arrays": ArrayRecord({"delta": array}), "values": values})


def edited(place: int, piece: bytes) -> bytes:
    return TRUE[:place] + piece + TRUE[place + len(piece) :]


@given(
    st.sampled_from(["float32", "float64", "O", "V8", "f4,f4", "", "bool"]),
    st.one_of(st.just((3,)), st.lists(st.integers(-2, 2**70), max_size=40).map(tuple)),
    st.one_of(st.binary(max_size=300), st.builds(edited, st.integers(0, 139), st.binary())),
)
# Unclosed brackets, a header without a dictionary, and one that asks for all memory.
@example("float32", (3,), TRUE.replace(b"(3,)", b"(((("))
@example("float32", (3,), TRUE.replace(b"{'descr'", b"        "))
@example("float32", (3,), TRUE.replace(b"'shape': (3,), }       ", b"'shape': (9000000000,),}"))
@example("float32", (3,), TRUE + b"\0")
@example("float32", (0, 2**70), b"")
def test_no_bytes_of_a_sender_raise_anything_else(
    dtype: str, shape: tuple[int, ...], data: bytes
) -> None:
    for read in (from_records, lambda records: opened(TRAIN, records)):
        try:
            array = read(forged(dtype, shape, data)).arrays["delta"]
        except DataError:
            continue
        assert data.startswith(TRUE[:128]) and len(data) == len(TRUE)
        assert (str(array.dtype), array.shape) == (dtype, shape)


def test_a_truth_value_is_0_or_1() -> None:
    true = Array(np.array([True, False]))
    assert from_records(forged("bool", (2,), true.data)).arrays["delta"].tolist() == [True, False]
    with pytest.raises(DataError):
        from_records(forged("bool", (2,), true.data[:-2] + b"\x02\x00"))


@pytest.mark.parametrize(
    "array", [np.asfortranarray(np.eye(3)), np.float64(2.0), np.zeros((0, 6)), np.arange(4)[::2]]
)
def test_every_layout_of_an_array_arrives(array: np.ndarray) -> None:
    arrived = from_records(to_records(Content({}, {"a": array}))).arrays["a"]
    assert arrived.shape == np.shape(array) and np.array_equal(arrived, array)


def test_a_question_about_a_method_that_is_not_in_the_configuration_is_refused(
    fleet: Path, tmp_path: Path
) -> None:
    vehicle = Vehicle(vehicle_folders(fleet)[0], tmp_path, board=BOARD)
    values = {"config": config_text(fleet)}
    assert vehicle.answer("enrol", to_records(Content(values)))
    for label, why in (
        (None, "lacks its method"),
        ("", "lacks its method"),
        ("x", "no method 'x'"),
    ):
        more = {} if label is None else {"label": label}
        with pytest.raises(DataError, match=why):
            vehicle.answer("train", to_records(Content(values | more)))


def test_every_question_has_a_reply() -> None:
    assert REPLIES.keys() == MESSAGE_TYPES.keys()


class Session:
    """Flower's session with a server that asks what is in `questions`, and keeps all it is sent."""

    def __init__(self, questions: list[Message]) -> None:
        self.questions = questions
        self.sent: list[bytes] = []
        self.runtimes: list[float] = []
        self.kinds: list[str] = []

    def __iter__(self):
        return iter(
            (7, self.receive, self.send, None, None, self.pull, self.push, lambda run, number: None)
        )

    def receive(self):
        if not self.questions:
            return None
        message = self.questions.pop(0)
        self.objects = {n: o.deflate() for n, o in get_all_nested_objects(message).items()}
        return SimpleNamespace(metadata=message.metadata), get_object_tree(message)

    def pull(self, run: int, number: str) -> bytes:
        return self.objects[number]

    def send(self, header: Message, outline, runtime: float):
        self.runtimes.append(runtime)
        self.kinds.append(header.metadata.message_type)
        self.sent.append(message_to_proto(header).SerializeToString())
        self.sent.append(outline.SerializeToString())
        return {tree for tree in _numbers(outline)}, "upload"

    def push(self, run: int, upload: str, number: str, data: bytes) -> None:
        self.sent.append(data)


def _numbers(tree) -> list[str]:
    return [tree.object_id] + [n for child in tree.children for n in _numbers(child)]


def test_all_bytes_that_leave_a_vehicle(fleet: Path, tmp_path: Path) -> None:
    """Questions of a whole run, put to a vehicle's own connection, which records what it sends."""
    grid = loopback(fleet, tmp_path / "state")
    questions: list[Message] = []
    push = grid.push_messages

    def keep(messages) -> list[str]:
        messages = list(messages)
        questions.extend(
            Message(to_records(from_records(m.content)), 7, m.metadata.message_type)
            for m in messages
            if m.metadata.dst_node_id == 1
        )
        return push(messages)

    grid.push_messages = keep
    text = config_text(fleet, "fo-ri-fedavg", rounds=4)
    deployed(text.replace("participation = 0.7", "participation = 1.0"), grid, tmp_path / "run")
    asked = len(questions)
    folder = grid.vehicles[1].folder
    session = Session(questions)
    vehicle = Vehicle(folder, tmp_path / "own", board=BOARD)
    node._serve(vehicle, session, 0.0, lambda: bool(session.questions))

    assert len(session.kinds) == asked >= 10
    assert set(session.runtimes) == {0.0}
    sent = b"".join(session.sent)
    # Each reply is what was declared: here, by taking the captured replies apart again.
    for kind, reply in [(k, r) for n, k, r in grid.sent if n == 1]:
        content = from_records(reply)
        fields = {*content.values, *content.arrays}
        assert fields == REPLIES[kind].keys() | (IN_THE_CLEAR if kind == "enrol" else {}).keys()

    # Nothing of the telemetry: no raw value (8 bytes), no two neighbours of the scaled series.
    client = vehicle.client(DataSettings(window=10, stride=20), "measured", None)
    pieces = {sent[i : i + 8] for i in range(len(sent) - 7)}
    secret = 0
    for trip in read_vehicle(folder).trips:
        for values in trip.channels.values():
            for value in np.unique(values[np.isfinite(values) & (np.abs(values) > 1e-6)]):
                if value != round(value):  # 1.0 and 20.0 are nobody's secret
                    assert value.tobytes() not in pieces
                    secret += 1
    rows = client.series.reshape(-1)
    pairs = np.stack([rows[:-1], rows[1:]], axis=1)
    pairs = pairs[(pairs != np.round(pairs)).all(axis=1)]
    for pair in pairs:
        assert pair.tobytes() not in pieces
    for split in ("train", "validation", "test"):
        energies = client.energy_wh(client.labels[split])
        assert not {value.tobytes() for value in energies if value != round(value)} & pieces
    assert secret > 1000 and len(pairs) > 1000
    # The search does find what is there.
    assert grid.models and np.float64(client.label_scale_wh).tobytes() not in pieces
    sums = from_records(next(r for n, k, r in grid.sent if n == 1 and k == "evaluate"))
    assert sums.arrays["test"][1].tobytes() in pieces


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fednova", "fedel"])
def test_each_method_sends_what_it_needs(method: str, fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "state")
    deployed(config_text(fleet, method, rounds=1), grid, tmp_path / "run")
    more = {"scaffold": {"control_change"}, "fednova": {"accumulation"}, "fedel": {"trained"}}
    for _, kind, reply in grid.sent:
        content = from_records(reply)
        further = {"train": more.get(method, set()), "enrol": {"windows"}}.get(kind, set())
        assert {*content.values, *content.arrays} == REPLIES[kind].keys() | further
    assert method in METHODS


def test_diagnostics_are_recorded_if_asked_for(fleet: Path, tmp_path: Path) -> None:
    text = config_text(fleet, "fo-ri-fedavg", rounds=1)
    silent = deployed(text, loopback(fleet, tmp_path / "x"), tmp_path / "silent")
    text = text.replace("poll_seconds", "diagnostics = true\npoll_seconds")
    told = deployed(text, loopback(fleet, tmp_path / "y"), tmp_path / "told")
    assert all(np.isnan(read_table(silent, "clients").column("roughness").to_pylist()))
    assert all(np.isfinite(read_table(told, "clients").column("roughness").to_pylist()))


def test_what_a_rule_of_ones_own_records_leaves_only_if_asked_for(
    fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "weighed", Recipe("Records sizes.", (Weighed(),)))
    text = config_text(fleet, "weighed", rounds=1)
    quiet = loopback(fleet, tmp_path / "x")
    silent = read_table(deployed(text, quiet, tmp_path / "silent"), "clients")
    text = text.replace("poll_seconds", "diagnostics = true\npoll_seconds")
    told = read_table(deployed(text, loopback(fleet, tmp_path / "y"), tmp_path / "told"), "clients")
    assert all("size" not in from_records(reply).values for _, _, reply in quiet.sent)
    assert all(np.isnan(silent["size"].to_pylist())) and not any(silent["large"].to_pylist())
    sizes, planned, large = (told[name].to_pylist() for name in ("size", "planned", "large"))
    assert all(size > 0 for size in sizes) and planned == told["steps"].to_pylist()
    assert large == [size > 1 for size in sizes]


def test_a_failure_on_board_tells_nothing(fleet: Path, tmp_path: Path) -> None:
    vehicle = Vehicle(vehicle_folders(fleet)[0], tmp_path, board=BOARD)
    asked = Message(to_records(Content({"config": "seeds = 'secret'"})), 7, "train")
    asked.metadata.__dict__["_message_id"] = "1"
    reply = node.answer(vehicle, asked)
    assert reply.has_error()
    assert reply.error.reason == node.NO_ANSWER
    assert node.answer(vehicle, Message(RecordDict(), 7, "query.shell")).has_error()


def test_flowers_own_node_gets_the_same_answer(fleet: Path, tmp_path: Path) -> None:
    from fedwatt.deploy.client_app import app

    folder = vehicle_folders(fleet)[0]
    board = open_policy(tmp_path / "board")
    config = {"folder": str(folder), "state": str(tmp_path), "policy": str(board)}
    context = Context(1, 7, config, RecordDict(), {}, series_id=1)
    asked = Message(to_records(Content({"config": config_text(fleet)})), 7, "query.enrol")
    asked.metadata.__dict__["_message_id"] = "1"
    ours = node.answer(Vehicle(folder, tmp_path, board=BOARD), asked)
    theirs = app(message=asked, context=context)
    assert from_records(theirs.content).values == from_records(ours.content).values
    assert from_records(theirs.content).values["vehicle"] == "car-001"


def test_what_questions_have_in_common_is_made_once() -> None:
    model, other = np.arange(6.0), np.arange(6.0)
    first = Content({"counted": 1}, {"weights": model})
    second = Content({"counted": 2}, {"weights": model[:]})  # another view of the same memory
    third = Content({"counted": 1}, {"weights": other})
    turned = Content({}, {"weights": model[::-1]})
    found = all_records([first, first, second, third, turned])
    assert found[0] is found[1]
    models = [records["arrays"]["weights"] for records in found]
    assert models[0] is models[2] and models[0] is not models[3]
    for records, content in zip(found, (first, first, second, third, turned), strict=True):
        read = from_records(records)
        assert dict(read.values) == dict(content.values)
        assert read.arrays["weights"].tolist() == content.arrays["weights"].tolist()
