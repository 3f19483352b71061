"""A message body in Flower's form: its envelope, its parts, and all parts in one request.

Flower takes a message apart into objects and sends each in its own request. A message of fedwatt is
one bytes value, so it has three objects: message, record dictionary and record. For a
single-request message the objects travel inside Flower's own request or response, as fields that
its messages do not have; Protocol Buffers skip unknown fields, so a SuperLink or SuperNode that
does not know them asks for the objects one by one, as ever.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from fedwatt.errors import DataError

RECORD = "fedwatt"
BODY = "body"
TYPE = "query"
ENVELOPE = 16_384
"""Bytes that a message may have besides its body."""
MOST_PARTS = 8
MOST_FIELDS = 100_000
"""Of a response to a run; each takes a hundred bytes of memory, however short it is."""
BODY_PATH = (1, 2, 6)
"""Numbers of the fields that lead to the body in Flower's form of a record: item, value, bytes."""
SINGLE_REQUEST_BYTES = 8_000_000
"""Largest message that travels in one request; a larger one goes on part by part if cut off."""

EXTRA = """
name: "fedwatt/extra.proto" package: "fedwatt" syntax: "proto3"
message_type {
  name: "Part"
  field { name: "number" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "content" number: 2 type: TYPE_BYTES label: LABEL_OPTIONAL }
}
message_type {
  name: "Extra"
  field { name: "parts" number: 1000 type: TYPE_MESSAGE type_name: "Part" label: LABEL_REPEATED }
  field { name: "wanted" number: 1001 type: TYPE_BOOL label: LABEL_OPTIONAL }
}
"""
"""Fields that are added to Flower's messages."""


_pool = descriptor_pool.DescriptorPool()
_pool.Add(text_format.Parse(EXTRA, descriptor_pb2.FileDescriptorProto()))
_Extra, _Part = (
    message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"fedwatt.{name}"))
    for name in ("Extra", "Part")
)
PARTS = 1000
"""Number of the field with parts."""

Parts = Mapping[str, bytes]
"""Objects of a message by their numbers."""


def content(body: bytes) -> RecordDict:
    """Return a message body as Flower's records."""
    return RecordDict({RECORD: ConfigRecord({BODY: body})})


def body_of(message: Message, largest: int) -> bytes:
    """Return the body of a message; DataError if it has none, or a longer one."""
    record = message.content.config_records.get(RECORD, ConfigRecord())
    body = record.get(BODY)
    if not isinstance(body, bytes) or len(record) != 1:
        raise DataError("it is no message of fedwatt")
    if len(body) > largest:
        raise DataError(f"it has {len(body)} bytes, more than the {largest} that were asked for")
    return body


def taken_apart(message: Message) -> tuple[Any, dict[str, bytes]]:
    """Return the object tree and the objects of a message, which gets its number."""
    with no_object_id_recompute():
        message.metadata.__dict__["_message_id"] = message.object_id
        objects = get_all_nested_objects(message)
        tree = get_object_tree(message)
        return tree, {number: part.deflate() for number, part in objects.items()}


def numbers_in(tree: Any) -> set[str]:
    """Return the numbers of a message's objects; DataError if they are more than a message has."""
    numbers: set[str] = set()
    try:
        for part in iterate_object_tree(tree):
            numbers.add(part.object_id)
            if len(numbers) > MOST_PARTS:
                raise DataError("it has too many parts")
    except RecursionError as error:
        raise DataError("its parts are nested too deeply") from error
    return numbers


def pulled(
    numbers: set[str], pull: Callable[[Any], Any], node: Any, run_id: int, seconds: float
) -> Parts:
    """Return the objects of a message that are sent one by one.

    ObjectPullError if some are not there after so many seconds.
    """
    pull_one = make_pull_object_fn_protobuf(pull, node, run_id)
    return pull_objects(sorted(numbers), pull_one, max_time=seconds)


def put_together(number: str, parts: Parts, largest: int) -> Message:
    """Return a message from its objects; DataError if they are too long or no message."""
    if sum(map(len, parts.values())) > largest + ENVELOPE:
        raise DataError(f"it has more than the {largest} bytes that were asked for")
    for part in parts.values():
        _refuse_many_values(part)
    # What Flower raises on malformed objects has no end.
    try:
        message = inflate_object_from_contents(number, dict(parts))
    except Exception as error:
        raise DataError(f"it cannot be read ({type(error).__name__})") from error
    if not isinstance(message, Message):
        raise DataError("it is no message")
    message.metadata.__dict__["_message_id"] = number
    return message


def encoded(parts: Parts) -> bytes:
    """Return objects as bytes that may follow those of one of Flower's messages."""
    extra = _Extra()
    for number, part in parts.items():
        extra.parts.add(number=number, content=part)
    return bytes(extra.SerializeToString())


def attach(message: Any, parts: Parts) -> None:
    """Put objects into one of Flower's messages."""
    message.MergeFromString(encoded(parts))


def attached(body: bytes) -> dict[str, bytes]:
    """Return the objects in the bytes of one of Flower's messages.

    >>> attached(encoded({"a": b"first", "b": b"second"}))
    {'a': b'first', 'b': b'second'}
    """
    own = [field for number, field in fields_of(body) if number == PARTS]
    parts = (_Part.FromString(field) for field in own)
    return {part.number: part.content for part in parts}


def fields_of(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield numbers and bytes of the fields of a protobuf message, those of numbers empty.

    DataError where they are too many: parsed at once they would take many times their size.
    """
    at = 0
    for _ in range(MOST_FIELDS):
        if at >= len(content):
            return
        key, at = _varint(content, at)
        kind = key & 7
        size = {1: 8, 5: 4}.get(kind, 0)
        if kind == 0:
            _, at = _varint(content, at)
        elif kind == 2:
            size, at = _varint(content, at)
        elif not size:
            raise DataError("it is no protobuf message")
        yield key >> 3, content[at : at + size]
        at += size
    raise DataError("it has too many fields")


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place in a protobuf message, and where the next field begins."""
    value = 0
    for shift, byte in enumerate(content[at : at + 10]):
        value |= (byte & 127) << (7 * shift)
        if byte < 128:
            return value, at + shift + 1
    raise DataError("it is no protobuf message")


def _refuse_many_values(part: bytes) -> None:
    """Raise DataError unless all that is long in a part is one bytes value, which stays as long."""
    if len(part) <= ENVELOPE:
        return
    _, _, content = part.partition(b"\0")
    for expected in BODY_PATH:
        number, value = max(fields_of(content), key=lambda field: len(field[1]), default=(0, b""))
        if number != expected or len(content) - len(value) > ENVELOPE:
            raise DataError("it has more than one long value")
        content = value


def want_parts(request: Any) -> None:
    """Ask, in a request for messages, for their objects as well."""
    request.MergeFromString(_Extra(wanted=True).SerializeToString())


def wants_parts(body: bytes) -> bool:
    """Return whether a request asks for objects as well; it is a short one."""
    return bool(_Extra.FromString(body).wanted)
