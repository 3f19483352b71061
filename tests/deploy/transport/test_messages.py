"""Message bodies in Flower's form, and what is refused."""

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedwatt.deploy.transport import messages
from fedwatt.errors import DataError


@pytest.fixture
def message(monkeypatch: pytest.MonkeyPatch) -> Message:
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    return Message(messages.content(b"the body"), 7, messages.TYPE, ttl=10.0)


def test_there_and_back(message: Message) -> None:
    tree, parts = messages.taken_apart(message)
    assert messages.numbers_in(tree) == set(parts)
    assert len(parts) == 3
    again = messages.put_together(tree.object_id, parts, 8)
    assert messages.body_of(again, 8) == b"the body"
    with pytest.raises(DataError, match="it has 8 bytes, more than the 7 that were asked for"):
        messages.body_of(again, 7)


def test_single_request(message: Message) -> None:
    _, parts = messages.taken_apart(message)
    assert messages.attached(messages.encoded(parts)) == parts
    assert not messages.wants_parts(messages.encoded(parts))


def test_too_long_or_no_message(message: Message) -> None:
    tree, parts = messages.taken_apart(message)
    with pytest.raises(DataError, match="more than the 5 bytes"):
        messages.put_together(tree.object_id, parts | {"x": bytes(20_000)}, 5)
    with pytest.raises(DataError, match="it cannot be read"):
        messages.put_together("0" * 64, {"0" * 64: b"nonsense"}, 5)
    other, *_ = (number for number in parts if number != tree.object_id)
    with pytest.raises(DataError, match=r"it is no message|cannot be read"):
        messages.put_together(other, parts, 100)


@pytest.mark.parametrize(
    "record",
    [ConfigRecord({}), ConfigRecord({"body": "text"}), ConfigRecord({"body": b"x", "more": 1})],
)
def test_other_records(message: Message, record: ConfigRecord) -> None:
    message.content = RecordDict({"fedwatt": record})
    with pytest.raises(DataError, match="no message of fedwatt"):
        messages.body_of(message, 100)


def test_fields_by_hand() -> None:
    """Field 1 as a varint, 2 as bytes, 3 in 4 and 4 in 8 bytes, 1000 as bytes."""
    content = b"\x08\x96\x01" + b"\x12\x03abc" + b"\x1d1234" + b"\x2112345678" + b"\xc2\x3e\x01z"
    assert list(messages.fields_of(content)) == [
        (1, b""), (2, b"abc"), (3, b"1234"), (4, b"12345678"), (1000, b"z"),
    ]  # fmt: skip
    for damaged in (b"\xff" * 20, b"\x0b", b"\x08"):
        with pytest.raises(DataError, match="no protobuf message"):
            list(messages.fields_of(damaged))


@pytest.mark.parametrize(
    "record",
    [
        ConfigRecord({"body": list(range(20_000))}),
        ConfigRecord({"body": b"x", "more": b"y" * 20_000}),
        ConfigRecord({"body": "text" * 5_000}),
        ConfigRecord({str(n): n for n in range(2_000)}),
    ],
)
def test_nothing_but_a_body_is_long(record: ConfigRecord, message: Message) -> None:
    message.content = RecordDict({"fedwatt": record})
    tree, parts = messages.taken_apart(message)
    refused = pytest.raises(DataError, match=r"more than one long value|no message of fedwatt")
    with refused:
        again = messages.put_together(tree.object_id, parts, 1_000_000)
        messages.body_of(again, 1_000_000)
