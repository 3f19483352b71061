"""Messages that would cost more than they may are refused by their bytes, in milliseconds."""

import json
import time

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.proto.recorddict_pb2 import ConfigRecord as ProtoConfigRecord
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from fedwatt.deploy.bounds import Bounds, refuse_oversized, reply_bounds
from fedwatt.deploy.messages import IN_THE_CLEAR, Content, ReplyForm, Sizes, sealed, to_records
from fedwatt.errors import DataError

FORM = ReplyForm("train", Sizes(1000, "float32"))
ENROL = ReplyForm("enrol", more=IN_THE_CLEAR)
TRAIN = reply_bounds(FORM)
REPLY = Content({"round": 0, "windows": 5}, {"delta": np.ones(1000, dtype=np.float32)})


def parts(records: RecordDict) -> dict[str, bytes]:
    question = Message(RecordDict(), 1, "train")
    question.metadata.__dict__["_message_id"] = "question"
    reply = Message(records, reply_to=question)
    return {number: one.deflate() for number, one in get_all_nested_objects(reply).items()}


def refused(own: dict[str, bytes], bounds: Bounds) -> str:
    """The reason, which must be found at a hundredth of what inflating a bomb would take."""
    began = time.process_time()
    with pytest.raises(DataError) as error:
        refuse_oversized(own, bounds)
    assert time.process_time() - began < 0.1
    return str(error.value)


def test_a_reply_as_declared_is_let_through() -> None:
    refuse_oversized(parts(sealed(FORM, REPLY)), TRAIN)
    # 4,000 bytes of Δ; the declaration leaves room for names and shapes and nothing else.
    assert 4_000 < TRAIN.arrays < 5_000 and TRAIN.values < 2_000 and TRAIN.items == 2


def test_longest_declared_texts_are_let_through() -> None:
    content = Content(
        {
            "vehicle": "ü" * 256,
            "features": ["ü" * 256] * 64,
            "simulated": True,
            "enough": True,
            "version": "1" * 256,
        },
        {"windows": np.ones(3, dtype=np.int64)},
    )
    own = parts(sealed(ENROL, content))
    refuse_oversized(own, reply_bounds(ENROL))
    longer = Content({**content.values, "vehicle": "v" * 257}, content.arrays)
    with pytest.raises(DataError, match="too long"):
        sealed(ENROL, longer)


def test_five_megabytes_of_tiny_values_cost_milliseconds() -> None:
    # Inflated, these take Flower more than ten seconds: each is a name and a truth value.
    one = b"\x0a\x07\x0a\x01a\x12\x02\x20\x01"
    assert ProtoConfigRecord.FromString(one).items[0].value.bool
    bomb = {"bomb": b"ConfigRecord  5000000\0" + one * 555_555}
    assert "bytes that were asked for" in refused(bomb, TRAIN)
    assert "more than 10 values" in refused(bomb, Bounds(arrays=0, values=2**26, items=10))
    assert "more than 1000 values" in refused(bomb, Bounds(arrays=0, values=2**26, items=1000))


@pytest.mark.parametrize("value", [[b""] * 2_000, [0.5] * 2_000, [True] * 2_000])
def test_a_long_list_is_many_values(value: list) -> None:
    wide = Bounds(arrays=0, values=2**26, items=1000)
    assert "1000 values" in refused(parts(to_records(Content({"list": value}))), wide)


def test_an_array_that_repeats_its_data_is_refused() -> None:
    own = parts(sealed(FORM, REPLY))
    (number,) = [n for n, part in own.items() if part.startswith(b"Array ")]
    head, _, body = own[number].partition(b"\0")
    about = json.loads(body)
    about["arraychunk_ids"] = [0] * 2000  # 2 kB that stand for 8 MB
    own[number] = head + b"\0" + json.dumps(about).encode()
    with pytest.raises(DataError, match="repeats its data"):
        refuse_oversized(own, TRAIN)


def test_more_data_than_declared_is_refused() -> None:
    long = Array(np.zeros(2_000_000, dtype=np.float32))
    records = RecordDict({"arrays": ArrayRecord({"delta": long})})
    assert f"{TRAIN.arrays} bytes" in refused(parts(records), TRAIN)


@pytest.mark.parametrize("spoiled", [b"", b"nonsense", b"Popen  0\0", b"Message " + b"x" * 20_000])
def test_other_parts_are_refused(spoiled: bytes) -> None:
    own = parts(sealed(FORM, REPLY)) | {"more": spoiled}
    with pytest.raises(DataError):
        refuse_oversized(own, TRAIN)


@pytest.mark.parametrize("body", [b"\xff" * 11, b"\x0a\x7f", b"\x0b", b"\x0a"])
def test_values_that_are_no_protobuf_are_refused(body: bytes) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        refuse_oversized({"one": b"ConfigRecord  4\0" + body}, TRAIN)


def test_a_vector_of_a_secure_sum_has_the_length_of_its_exchange() -> None:
    bounds = reply_bounds(ReplyForm("secure-train", Sizes(words=80_000)))
    assert 80_000 < bounds.values < 83_000
    fits = {"exchange": b"e" * 32, "vehicle": "car-1", "words": bytes(80_000)}
    refuse_oversized(parts(to_records(Content(fits))), bounds)
    too_long = parts(to_records(Content({**fits, "words": bytes(90_000)})))
    assert "bytes that were asked for" in refused(too_long, bounds)
