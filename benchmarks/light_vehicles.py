"""Many vehicles in one process that answer and do not train, for loads on a real server.

    python -m benchmarks.light_vehicles STORE HOST:PORT FIRST LAST POLL FAULTY OUT

Each has its own key, TLS connection and looks for questions, and sends the requests that a real
vehicle sends (`deploy.transport.node`): single-request messages, or parts of messages where the
server does not know these; heartbeats where its polls do not count as such. What it says is made
up: it has 100 windows, its Δ is 0, and its errors are those of nobody. Of `FAULTY` in a hundred,
by turns,

    silent     never answers a question to train
    garbage    sends a Δ of another size
    slow       takes a minute to train
    dropping   hangs up in the middle of its reply, and connects again
    clock      has a clock ten minutes ahead, so that no server believes its signatures

OUT gets a line for each question: the vehicle, its kind, and the seconds from its making until it
was noticed.
"""

import asyncio
import json
import ssl
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, TIMESTAMP_HEADER
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto import fleet_pb2, heartbeat_pb2, message_pb2
from flwr.proto.node_pb2 import Node
from flwr.supercore.constant import (
    FLEET_HTTP_PUBLIC_KEY_HEADER,
    FLEET_HTTP_SIGNATURE_HEADER,
    PULL_BACKOFF_CAP,
    PULL_INITIAL_BACKOFF,
)
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE

import fedwatt
from fedwatt.deploy.plan.certificates import KEY, OWNER
from fedwatt.deploy.transport import messages
from fedwatt.deploy.transport.client import HEARD_HEADER, WAIT_HEADER, WAIT_SECONDS
from fedwatt.deploy.transport.node import FIRST_PAUSE, LONGER
from fedwatt.deploy.transport.superlink import open_files
from fedwatt.deploy.vehicle.messages import DONE
from fedwatt.deploy.wire import Content, pack, unpack
from fedwatt.metrics import ErrorSums

FAULTS: Final = ("silent", "garbage", "slow", "dropping", "clock")
AHEAD: Final = timedelta(minutes=10)
"""Of a clock that is wrong."""
SLOW_SECONDS: Final = 60.0
SIGNED_SECONDS: Final = 5.0
"""For which a signature is used again: Flower takes it for minutes, and this process is not what is
measured."""
LONG_PAUSE: Final = 10.0
"""Seconds after which one that is refused tries again."""
PER_SECOND: Final = 100
"""Vehicles of all processes that connect in a second."""
LARGEST: Final = 100_000_000
"""Bytes of a request."""


class Link:
    """A vehicle's connection: requests of HTTP/1.1, one after the other."""

    def __init__(self, address: str, tls: ssl.SSLContext, key: ec.EllipticCurvePrivateKey) -> None:
        host, _, port = address.rpartition(":")
        self.host = host
        self.port = int(port)
        self.tls = tls
        self.key = key
        self.public = public_key_to_bytes(key.public_key())
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.signed = 0.0
        self.signature = b""
        self.patience = 1.0
        """Seconds for which a poll may be held."""
        self.heard = False
        """Whether the last response says that the poll counted as a heartbeat."""
        self.ahead = timedelta()

    async def ask(self, name: str, request: Any, answer: Any) -> bytes:
        """Read Flower's answer to a request, and return its bytes; ConnectionError if none."""
        body = request.SerializeToString()
        head = (
            f"POST /v1/fleet/{name} HTTP/1.1\r\nhost: {self.host}\r\n"
            f"content-type: {PROTOBUF_MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\n"
        )
        if name == "pull-messages":
            head += f"{WAIT_HEADER}: {self.patience:.0f}\r\n"
        if self.streams is None:
            self.streams = await asyncio.open_connection(self.host, self.port, ssl=self.tls)
        reader, writer = self.streams
        try:
            writer.write(head.encode() + self._signature() + b"\r\n" + body)
            lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
            length = next(line for line in lines if line.startswith(b"content-length"))
            content = await reader.readexactly(int(length.partition(b":")[2]))
        except (OSError, asyncio.IncompleteReadError) as error:
            writer.close()
            self.streams = None
            raise ConnectionError(str(error)) from error
        if b" 200 " not in lines[0] + b" ":
            raise ConnectionError(f"{lines[0].decode()}: {content[:200]!r}")
        self.heard = any(line.startswith(HEARD_HEADER.encode()) for line in lines)
        answer.ParseFromString(content)
        return content

    async def cut_off(self, name: str, request: Any) -> None:
        """Send half of a request and hang up; ConnectionError."""
        assert self.streams is not None
        body = request.SerializeToString()
        head = f"POST /v1/fleet/{name} HTTP/1.1\r\nhost: {self.host}\r\n"
        head += f"content-type: {PROTOBUF_MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\n"
        _, writer = self.streams
        writer.write(head.encode() + self._signature() + b"\r\n" + body[: len(body) // 2])
        await writer.drain()
        writer.close()
        self.streams = None
        raise ConnectionError("hung up")

    def _signature(self) -> bytes:
        if time.monotonic() - self.signed > SIGNED_SECONDS:
            self.signed, stamp = time.monotonic(), (now() + self.ahead).isoformat()
            signature = b64encode(sign_message(self.key, stamp.encode())).decode()
            self.signature = (
                f"{FLEET_HTTP_PUBLIC_KEY_HEADER}: {b64encode(self.public).decode()}\r\n"
                f"{TIMESTAMP_HEADER}: {stamp}\r\n{FLEET_HTTP_SIGNATURE_HEADER}: {signature}\r\n"
            ).encode()
        return self.signature


class LightVehicle:
    """A vehicle that answers and does not train."""

    def __init__(self, name: str, link: Link, poll: float, fault: str) -> None:
        self.name = name
        self.link = link
        self.poll = poll
        self.fault = fault
        self.node = Node()
        self.beaten = 0.0
        link.ahead = AHEAD if fault == "clock" else timedelta()
        self.noticed: list[tuple[str, float]] = []

    async def live(self, begin: float) -> None:
        """Connect after `begin` seconds, then answer until cancelled."""
        await asyncio.sleep(begin)
        while True:
            try:
                if not self.node.node_id:
                    await self._connect()
                await self._serve()
            except OSError as error:  # a busy server's timeouts among them
                if "401" in str(error):
                    self.node = Node()
                refused = LONG_PAUSE if self.fault == "clock" else 1.0
                await asyncio.sleep(refused * (1.0 + Random(self.name).random()))

    async def _connect(self) -> None:
        request = fleet_pb2.ActivateNodeRequest(
            public_key=self.link.public, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL
        )
        response = fleet_pb2.ActivateNodeResponse()
        await self.link.ask("activate-node", request, response)
        self.node = Node(node_id=response.node_id)
        self.beaten = time.monotonic()

    async def _serve(self) -> None:
        pause = min(FIRST_PAUSE, self.poll)
        while True:
            if time.monotonic() - self.beaten > 0.8 * HEARTBEAT_DEFAULT_INTERVAL:
                beat = heartbeat_pb2.SendNodeHeartbeatRequest(
                    node=self.node, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL
                )
                answer = heartbeat_pb2.SendNodeHeartbeatResponse()
                await self.link.ask("send-node-heartbeat", beat, answer)
                self.beaten = time.monotonic()
            request = fleet_pb2.PullMessagesRequest(node=self.node)
            began = time.monotonic()
            messages.want_parts(request)
            response = fleet_pb2.PullMessagesResponse()
            content = await self.link.ask("pull-messages", request, response)
            if self.link.heard:
                self.beaten = time.monotonic()
                self.link.patience = WAIT_SECONDS
            if response.messages_list:
                await self._answer(response, messages.attached(content))
                pause = min(FIRST_PAUSE, self.poll)
            elif time.monotonic() - began < self.poll:
                await asyncio.sleep(pause)
                pause = min(LONGER * pause, self.poll)

    async def _answer(self, response: Any, parts: dict[str, bytes]) -> None:
        metadata = response.messages_list[0].metadata
        tree = response.message_object_trees[0]
        seconds = time.time() - metadata.created_at
        single = bool(parts)
        if not single:
            parts = await self._pulled(metadata.run_id, tree)
        request = unpack(messages.body_in(parts, LARGEST))
        message = message_from_proto(response.messages_list[0])
        kind = str(request.values["kind"])
        self.noticed.append((kind, seconds))
        training = kind == "train"
        if training and self.fault == "silent":
            return
        if training and self.fault == "slow":
            await asyncio.sleep(SLOW_SECONDS)
        reply = Message(messages.content(self._reply(kind, request)), reply_to=message)
        outline, contents = messages.taken_apart(reply)
        header = message_to_proto(remove_content_from_message(reply))
        pushes = fleet_pb2.PushMessagesRequest(
            node=self.node, messages_list=[header], message_object_trees=[outline]
        )
        if single:
            messages.attach(pushes, contents)
        if training and self.fault == "dropping":
            await self.link.cut_off("push-messages", pushes)
        upload_response = fleet_pb2.PushMessagesResponse()
        await self.link.ask("push-messages", pushes, upload_response)
        for part in upload_response.objects_to_push:
            pushed = message_pb2.PushObjectRequest(
                node=self.node,
                run_id=metadata.run_id,
                object_id=part,
                object_content=contents[part],
                session_id=upload_response.session_id,
            )
            await self.link.ask("push-object", pushed, message_pb2.PushObjectResponse())

    async def _pulled(self, run: int, tree: Any) -> dict[str, bytes]:
        """Return the parts of a request, fetched one by one."""
        parts = {part: await self._part(run, part) for part in messages.numbers_in(tree)}
        received = message_pb2.ConfirmMessageReceivedRequest(
            node=self.node, run_id=run, message_object_id=tree.object_id
        )
        done = message_pb2.ConfirmMessageReceivedResponse()
        await self.link.ask("confirm-message-received", received, done)
        return parts

    async def _part(self, run: int, part: str) -> bytes:
        """Return a part of a request as soon as the server has it."""
        request = message_pb2.PullObjectRequest(node=self.node, run_id=run, object_id=part)
        pause = PULL_INITIAL_BACKOFF
        while True:
            response = message_pb2.PullObjectResponse()
            await self.link.ask("pull-object", request, response)
            if not response.object_found:
                raise ConnectionError("the question is gone")
            if response.object_available:
                return bytes(response.object_content)
            await asyncio.sleep(pause)
            pause = min(2 * pause, PULL_BACKOFF_CAP)

    def _reply(self, kind: str, request: Content) -> bytes:
        if kind == "enrol":
            values = {"vehicle": self.name, "enough": True, "version": fedwatt.__version__}
            content = Content(values, {"windows": np.array([100, 20, 20])})
        elif kind == "train":
            size = len(request.arrays["weights"]) + (self.fault == "garbage")
            content = Content({"windows": 100}, {"delta": np.zeros(size, dtype=np.float32)})
        elif kind == "evaluate":
            content = Content({}, {"validation": ERRORS, "test": ERRORS})
        else:
            content = Content({}, {"test": ERRORS})
        return pack(content.with_values(status=DONE))


ERRORS: Final = ErrorSums(20, 20_000.0, 400.0, 5.0, 2_000.0, 0).as_array()
"""Of 20 windows, RMSE 31.6 Wh."""


def fault_of(number: int, per_cent: int) -> str:
    """Return the fault of the vehicle of this number, where `per_cent` of all have one.

    >>> [fault_of(number, 20) for number in range(6)]
    ['silent', '', '', '', '', 'garbage']
    """
    place = number * per_cent // 100
    faulty = place != (number - 1) * per_cent // 100
    return FAULTS[place % len(FAULTS)] if faulty else ""


def vehicles(store: Path, address: str, numbers: range, poll: float, faulty: int) -> Iterator[Any]:
    """Return the vehicles of these numbers."""
    tls = ssl.create_default_context(cafile=str(store / OWNER))
    for number in numbers:
        name = f"car-{number:05d}"
        key = load_pem_private_key((store.parent / "keys" / name / KEY).read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        yield LightVehicle(name, Link(address, tls, key), poll, fault_of(number, faulty))


async def main(words: list[str]) -> None:
    """Let the vehicles live until this process is ended."""
    open_files()
    store, address, first, last, poll, faulty, out = words
    fleet = list(
        vehicles(Path(store), address, range(int(first), int(last)), float(poll), int(faulty))
    )
    # Not all at once: a fleet does not start its engines in one second.
    lives = [
        asyncio.create_task(vehicle.live(number / PER_SECOND))
        for number, vehicle in enumerate(fleet, start=int(first))
    ]
    with Path(out).open("a") as file:
        while not any(life.done() for life in lives):
            await asyncio.sleep(0.5)
            for vehicle in fleet:
                for kind, seconds in vehicle.noticed:
                    file.write(json.dumps([vehicle.name, kind, seconds]) + "\n")
                vehicle.noticed.clear()
            file.flush()
    await asyncio.gather(*lives)


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        asyncio.run(main(sys.argv[1:]))
    else:
        uvloop.run(main(sys.argv[1:]))
