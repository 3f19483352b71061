"""A whole message in one request: Flower's own message, with all of its parts inside.

Flower announces a message and then sends its parts one by one, about eight requests each way. Here
the parts travel in the announcement itself, as fields that Flower's messages do not have. Protocol
buffers skip fields that they do not know, so a SuperNode, a SuperLink or a vehicle that knows
nothing of them reads the announcement as ever, and the parts follow one by one.
"""

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

MOST_BYTES: Final = 8_000_000
"""Of parts in one request. A longer reply is sent part by part, so that one which is cut off goes
on where it was; more replies at once are left for the next request of a run."""


EXTRA: Final = """
name: "fedwatt/whole.proto" package: "fedwatt" syntax: "proto3"
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
"""What is added to Flower's messages, by numbers that no field of theirs has."""


def _message_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(EXTRA, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("fedwatt.Extra"))


_Extra: Final = _message_class()


def encoded(parts: Mapping[str, bytes]) -> bytes:
    """Parts by their numbers, to follow the bytes of one of Flower's messages."""
    extra = _Extra()
    for number, content in parts.items():
        extra.parts.add(number=number, content=content)
    return bytes(extra.SerializeToString())


def attach(message: Any, parts: Mapping[str, bytes]) -> None:
    """Put parts into one of Flower's messages."""
    message.MergeFromString(encoded(parts))


def want(message: Any) -> None:
    """Ask, in a request for messages, for their parts as well."""
    message.MergeFromString(_Extra(wanted=True).SerializeToString())


def is_wanted(body: bytes) -> bool:
    """Whether a request, as it came, asks for parts as well."""
    return bool(_Extra.FromString(body).wanted)


def attached(message: Any) -> dict[str, bytes]:
    """The parts in one of Flower's messages, or in its bytes; empty if there are none.

    >>> from flwr.proto.fleet_pb2 import PullMessagesResponse
    >>> message = PullMessagesResponse()
    >>> attach(message, {"a": b"first", "b": b"second"})
    >>> attached(message)
    {'a': b'first', 'b': b'second'}
    """
    body = message if isinstance(message, bytes) else message.SerializeToString()
    return {part.number: part.content for part in _Extra.FromString(body).parts}
