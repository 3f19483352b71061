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
