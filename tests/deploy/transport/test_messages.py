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
    assert messages.body_in(parts, 8) == messages.body_of(message, 8) == b"the body"
    for read in (lambda: messages.body_in(parts, 7), lambda: messages.body_of(message, 7)):
        with pytest.raises(DataError, match="it has 8 bytes"):
            read()


def test_single_request(message: Message) -> None:
    _, parts = messages.taken_apart(message)
    assert messages.attached(messages.encoded(parts)) == parts
    assert not messages.wants_parts(messages.encoded(parts))


@pytest.mark.parametrize(
    "record",
    [ConfigRecord({}), ConfigRecord({"body": "text"}), ConfigRecord({"body": b"x", "more": 1})],
)
def test_other_records(message: Message, record: ConfigRecord) -> None:
    message.content = RecordDict({"fedwatt": record})
    with pytest.raises(DataError, match="no message of fedwatt"):
        messages.body_of(message, 100)


@pytest.mark.parametrize("parts", [{}, {"a": b"nonsense"}, {"a": b"ConfigRecord  9\0nonsense"}])
def test_no_record(parts: dict[str, bytes]) -> None:
    with pytest.raises(DataError, match=r"it has 0 bytes|no protobuf message"):
        messages.body_in(parts, 100)


def test_fields_by_hand() -> None:
    """Field 1 as a number, 2 and 1000 as bytes; 1 in four bytes, which Flower does not have."""
    content = b"\x08\x96\x01" + b"\x12\x03abc" + b"\xc2\x3e\x01z"
    assert list(messages.fields_of(content)) == [(1, b""), (2, b"abc"), (1000, b"z")]
    for damaged in (b"\xff" * 20, b"\x0b", b"\x08", b"\x0d1234"):
        with pytest.raises(DataError, match="no protobuf message"):
            list(messages.fields_of(damaged))


@pytest.mark.parametrize(
    "record",
    [
        ConfigRecord({"body": list(range(20_000))}),
        ConfigRecord({"body": "text" * 5_000}),
        ConfigRecord({str(n): n for n in range(2_000)}),
    ],
)
def test_nothing_but_a_body_is_long(record: ConfigRecord, message: Message) -> None:
    message.content = RecordDict({"fedwatt": record})
    _, parts = messages.taken_apart(message)
    with pytest.raises(DataError, match=r"no message of fedwatt|it has 0 bytes"):
        messages.body_in(parts, 1_000_000)
