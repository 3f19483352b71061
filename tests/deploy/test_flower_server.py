"""A server that answers in short what Flower answers at length, and what it relies on in Flower."""

import asyncio
import inspect
import logging
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from importlib import import_module
from inspect import signature
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr")

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Message as AppMessage
from flwr.app import RecordDict
from flwr.proto import fleet_pb2, heartbeat_pb2, message_pb2, run_pb2
from flwr.proto.log_pb2 import PushLogsRequest
from flwr.proto.node_pb2 import Node, NodeInfo
from flwr.proto.runtime_pb2 import GetNodesResponse, SendTaskHeartbeatResponse
from flwr.proto.task_pb2 import Task
from flwr.server.superlink.linkstate import in_memory_linkstate, linkstate_factory
from flwr.supercore.constant import TASK_TOKEN_HEADER
from flwr.supercore.corestate import in_memory_corestate
from flwr.supercore.date import now
from flwr.supercore.dependencies import superexec, task
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError
from flwr.supercore.object_store import in_memory_object_store
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message
from flwr.supercore.protobuf import translation
from flwr.supercore.servicer.runtime import runtime_handlers as core_handlers
from flwr.superlink import extensions, main
from flwr.superlink.federation import noop_federation_manager
from flwr.superlink.grid import http_grid
from flwr.superlink.routers.fleet import node_auth, router
from flwr.superlink.servicer.fleet import fleet_handlers
from flwr.superlink.servicer.runtime import runtime_handlers
from flwr.supernode import fleet_http_connection
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse

from fedwatt.deploy import fleet_client, flower
from fedwatt.deploy.fleet_client import FleetClient
from fedwatt.deploy.flower_server import (
    SERVER_KEEPS_SECONDS,
    SWEEP_SECONDS,
    Questions,
    QuickState,
    keep_connections,
    questions_by_node,
)
from fedwatt.deploy.node import drive
from fedwatt.deploy.shortcut import LARGE, PIECE, Shortcut

KEY = ec.derive_private_key(5, ec.SECP256R1())
PUBLIC = public_key_to_bytes(KEY.public_key())
TYPE = "application/protobuf"


@pytest.mark.parametrize(
    ("replaced", "digest"),
    [
        (in_memory_linkstate.InMemoryLinkState.get_message_ins, "6547c8dcbc62e12f"),
        (in_memory_linkstate.InMemoryLinkState.get_message_res, "3e91c65629fc5b48"),
        (in_memory_linkstate.InMemoryLinkState.delete_messages, "5cfa8be0fba08ae1"),
        (in_memory_linkstate.InMemoryLinkState.store_message_ins, "a2b78afac51dc4a2"),
        (in_memory_linkstate.InMemoryLinkState._on_push_session_expired, "9546c972fc7280ff"),
        (main._get_middleware, "acdbc2dce1520f8f"),
        (node_auth, "8646e6bfd8e5b47d"),
        (router, "98ce9e07f1cb4814"),
        (import_module("flwr.supercore.routers.runtime.router"), "59bd7cd3edcc465c"),
        (translation.ProtobufTranslationMiddleware, "5ff23a6fdd06d0f9"),
        (task.authenticate_task, "7b4c0c58ea91353a"),
        (http_grid.HttpGrid._try_push_messages, "6e420bc3237c65bb"),
        (fleet_handlers.pull_messages, "5f1d8861a9eb1465"),
        (fleet_handlers.push_messages, "70c2fe927c6693b0"),
        (fleet_handlers.pull_object, "78f6d45fda46df47"),
        (fleet_handlers.push_object, "df7e96f1188e0a40"),
        (fleet_handlers.confirm_message_received, "52bf47754a452d94"),
        (runtime_handlers.pull_messages, "8c998d6d197c09e4"),
        (runtime_handlers.push_messages, "03b2ea647465c032"),
        (runtime_handlers.confirm_message_received, "ff47366421910371"),
        (core_handlers.push_logs, "38ea9dbcf9159ee8"),
        (core_handlers.send_task_heartbeat, "0664b523bbb1a7f6"),
        (in_memory_corestate.InMemoryCoreState.store_object, "2f952e079f4dadd4"),
        (superexec.authenticate_superexec_request, "25520d5ab7206484"),
        (fleet_http_connection.http_request_response, "b80ca36779c2657f"),
    ],
)
def test_what_is_replaced_is_what_it_was(replaced: object, digest: str) -> None:
    """Flower 1.41's. Where this fails, compare the new source with `deploy.flower_server`."""
    assert sha256(inspect.getsource(replaced).encode()).hexdigest()[:16] == digest


class Passed:
    """Counts what goes on to Flower's own layers."""

    count = 0

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        Passed.count += scope["type"] == "http"
        await self.app(scope, receive, send)


class Client:
    """Asks a server in this process."""

    def __init__(self, app: Any) -> None:
        self.transport = httpx.ASGITransport(app, raise_app_exceptions=False)

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            base = "https://server"
            async with httpx.AsyncClient(transport=self.transport, base_url=base) as client:
                return await client.request(method, path, **more)

        return asyncio.run(ask())


def server(monkeypatch: pytest.MonkeyPatch, *layers: Any) -> Client:
    own = [Middleware(layer) for layer in (*layers, Passed)]
    monkeypatch.setattr(extensions, "get_middleware", lambda: own)
    monkeypatch.setenv("FLWR_DATABASE", ":flwr-in-memory:")
    return Client(main.create_app())


def signed(key: ec.EllipticCurvePrivateKey = KEY) -> dict[str, str]:
    stamp = now().isoformat()
    return {
        "content-type": TYPE,
        "flwr-public-key": b64encode(PUBLIC).decode(),
        "flwr-timestamp": stamp,
        "flwr-signature": b64encode(sign_message(key, stamp.encode())).decode(),
    }


def conversation(client: Client) -> Iterator[tuple[int, str, bytes]]:
    """A vehicle's requests, good and bad: status, type and content of each response."""

    def ask(name: str, request: Any, **headers: str) -> Any:
        body = request if isinstance(request, bytes) else request.SerializeToString()
        return client.ask("POST", f"/v1/fleet/{name}", content=body, headers=signed() | headers)

    found = ask("register-node", fleet_pb2.RegisterNodeFleetRequest(public_key=PUBLIC))
    number = fleet_pb2.RegisterNodeFleetResponse.FromString(found.content).node_id
    node = Node(node_id=number)
    activate = fleet_pb2.ActivateNodeRequest(public_key=PUBLIC, heartbeat_interval=30)
    look = fleet_pb2.PullMessagesRequest(node=node)
    beat = heartbeat_pb2.SendNodeHeartbeatRequest(node=node, heartbeat_interval=30)
    responses = [
        ask("activate-node", activate),
        ask("pull-messages", look),
        ask("send-node-heartbeat", beat),
        # A vehicle that says it is another, one that signs with another key, and one that signs
        # nothing; nonsense; another type; a run that there is none of.
        ask("pull-messages", fleet_pb2.PullMessagesRequest(node=Node(node_id=number + 1))),
        ask("pull-messages", look, **signed(ec.derive_private_key(6, ec.SECP256R1()))),
        client.ask("POST", "/v1/fleet/pull-messages", content=look.SerializeToString()),
        ask("pull-messages", b"\xff\xff nonsense"),
        ask("pull-messages", look, **{"content-type": "text/plain"}),
        ask("get-run", run_pb2.GetRunRequest(node=node, run_id=7)),
        ask("pull-object", message_pb2.PullObjectRequest(node=node, run_id=7, object_id="a")),
        ask("register-node", fleet_pb2.RegisterNodeFleetRequest(public_key=PUBLIC)),
        client.ask("POST", "/v1/runtime/get-nodes", headers={"content-type": TYPE}),
        client.ask("GET", "/v1/fleet/pull-messages"),
    ]
    for one in responses:
        said = b"" if one is responses[0] else one.content  # the number of the node, by chance
        yield one.status_code, one.headers.get("content-type", ""), said


def test_the_short_way_and_the_long_way_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    Passed.count = 0
    long = list(conversation(server(monkeypatch)))
    assert Passed.count == 14
    Passed.count = 0
    short = list(conversation(server(monkeypatch, Shortcut)))
    assert short == long
    assert [status for status, _, _ in short][:3] == [200, 200, 200]
    assert all(status >= 400 for status, _, _ in short[3:])
    assert Passed.count == 10  # all that did not end well


def test_a_run_is_answered_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, own = in_memory_linkstate.InMemoryLinkState, {"token": Task(run_id=1, task_id=1)}
    monkeypatch.setattr(kind, "get_task_by_token", lambda self, token: own.get(token))
    monkeypatch.setattr(kind, "get_nodes", lambda self, run: {run} & {1})
    monkeypatch.setattr(
        kind, "get_node_info", lambda self, node_ids: [NodeInfo(node_id=n) for n in node_ids]
    )
    headers = {"content-type": TYPE, TASK_TOKEN_HEADER: "token"}
    found = []
    for layers in ((), (Shortcut,)):
        Passed.count, client = 0, server(monkeypatch, *layers)
        response = client.ask("POST", "/v1/runtime/get-nodes", headers=headers)
        found.append((response.status_code, response.content, Passed.count))
    told = GetNodesResponse(nodes=[NodeInfo(node_id=1)]).SerializeToString()
    assert found == [(200, told, 1), (200, told, 0)]


def test_a_run_tells_its_log_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, own = in_memory_linkstate.InMemoryLinkState, {"token": Task(run_id=1, task_id=7)}
    told: list[tuple[int, str]] = []
    monkeypatch.setattr(kind, "get_task_by_token", lambda self, token: own.get(token))
    monkeypatch.setattr(kind, "add_task_log", lambda self, *what: told.append(what))
    headers = {"content-type": TYPE, TASK_TOKEN_HEADER: "token"}
    body = PushLogsRequest(run_id=1, logs=["round 1\n", "round 2\n"]).SerializeToString()
    for layers, passed in (((), 1), ((Shortcut,), 0)):
        Passed.count, client = 0, server(monkeypatch, *layers)
        found = client.ask("POST", "/v1/runtime/push-logs", content=body, headers=headers)
        assert (found.status_code, found.content, Passed.count) == (200, b"", passed)
    assert told == [(7, "round 1\nround 2\n")] * 2


def test_a_run_is_alive_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, own = in_memory_linkstate.InMemoryLinkState, {"token": Task(run_id=1, task_id=7)}
    monkeypatch.setattr(kind, "get_task_by_token", lambda self, token: own.get(token))
    monkeypatch.setattr(kind, "acknowledge_task_heartbeat", lambda self, number: number == 7)
    headers = {"content-type": TYPE, TASK_TOKEN_HEADER: "token"}
    found = []
    for layers in ((), (Shortcut,)):
        Passed.count, client = 0, server(monkeypatch, *layers)
        response = client.ask("POST", "/v1/runtime/send-task-heartbeat", headers=headers)
        found.append((response.status_code, response.content, Passed.count))
    told = SendTaskHeartbeatResponse(success=True).SerializeToString()
    assert found == [(200, told, 1), (200, told, 0)]


@pytest.mark.parametrize("length", [0, 1, PIECE, PIECE + 1, 3 * PIECE])
def test_a_long_answer_is_written_in_pieces(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytes(n % 251 for n in range(length))
    monkeypatch.setattr(
        "fedwatt.deploy.shortcut.short_answers", lambda whole: {"/x": lambda *about: content}
    )
    sent: list[dict[str, Any]] = []

    async def ask() -> None:
        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/x", "headers": []}
        await Shortcut(Passed, holds=False)(scope, receive, send)  # type: ignore[arg-type]

    asyncio.run(ask())
    head, *pieces = sent
    assert dict(head["headers"])[b"content-length"] == b"%d" % length
    assert b"".join(piece["body"] for piece in pieces) == content
    assert all(len(piece["body"]) <= PIECE for piece in pieces)
    assert [piece["more_body"] for piece in pieces] == [True] * (len(pieces) - 1) + [False]


def activated(client: Client) -> int:
    """The number of a node that may look for questions."""
    for name, request in (
        ("register-node", fleet_pb2.RegisterNodeFleetRequest(public_key=PUBLIC)),
        (
            "activate-node",
            fleet_pb2.ActivateNodeRequest(public_key=PUBLIC, heartbeat_interval=30),
        ),
    ):
        body = request.SerializeToString()
        found = client.ask("POST", f"/v1/fleet/{name}", content=body, headers=signed())
    return fleet_pb2.ActivateNodeResponse.FromString(found.content).node_id


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("holds", [False, True])
def test_a_look_for_questions_is_held_until_there_is_one(
    asked: bool, holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Questions, "listeners", [])
    monkeypatch.setattr(linkstate_factory, "InMemoryLinkState", QuickState)
    client = server(monkeypatch, partial(Shortcut, holds=holds))
    number = activated(client)
    body = fleet_pb2.PullMessagesRequest(node=Node(node_id=number)).SerializeToString()

    async def look() -> float:
        headers = signed() | {fleet_client.WAIT_HEADER: "1"}
        base, began = "https://server", time.monotonic()
        async with httpx.AsyncClient(transport=client.transport, base_url=base) as session:
            looking = session.post("/v1/fleet/pull-messages", content=body, headers=headers)
            task = asyncio.create_task(looking)
            await asyncio.sleep(0.05)
            for tell in Questions.listeners if asked else ():
                tell(number + 1)  # another's question
                tell(number)
            response = await task
        found = fleet_pb2.PullMessagesResponse.FromString(response.content)
        assert (response.status_code, list(found.messages_list)) == (200, [])
        assert found.HasField("reconnect") is holds  # such a look counts as a heartbeat
        return time.monotonic() - began

    seconds = asyncio.run(look())
    assert seconds >= 1 if holds and not asked else seconds < 0.9


def test_a_look_that_another_key_signed_is_refused_and_not_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Questions, "listeners", [])
    monkeypatch.setattr(linkstate_factory, "InMemoryLinkState", QuickState)
    client = server(monkeypatch, Shortcut)
    body = fleet_pb2.PullMessagesRequest(node=Node(node_id=activated(client))).SerializeToString()
    headers = signed(ec.derive_private_key(6, ec.SECP256R1())) | {fleet_client.WAIT_HEADER: "50"}
    monkeypatch.setattr(Shortcut, "_told", None)  # whoever is held fails
    found = client.ask("POST", "/v1/fleet/pull-messages", content=body, headers=headers)
    assert found.status_code == 401


def question(node: int, run: int, delivered: str = "") -> Any:
    about = SimpleNamespace(dst_node_id=node, run_id=run, delivered_at=delivered)
    return SimpleNamespace(metadata=about)


@pytest.mark.parametrize("limit", [1, 2, None])
@pytest.mark.parametrize("run", [None, 1, 2])
@pytest.mark.parametrize("node", [1, 2, 3])
def test_questions_are_found_as_flower_finds_them(node: int, run: int | None, limit: int) -> None:
    found = []
    for kind in (in_memory_linkstate.InMemoryLinkState, QuickState):
        manager = noop_federation_manager.NoOpFederationManager()
        state = kind(manager, in_memory_object_store.InMemoryObjectStore())

        def check(numbers: set[str], own: Any = state) -> None:
            own.delete_messages(numbers & {"expired"})

        state._check_stored_messages = check  # type: ignore[method-assign, assignment]
        store = state.message_ins_store
        for number, (to, of) in enumerate(((1, 1), (2, 1), (1, 2), (1, 1), (2, 2))):
            store[f"m{number}"] = question(to, of)
        store["old"], store["expired"] = question(1, 1, "yesterday"), question(1, 1)
        looks = [state.get_message_ins(node, limit, run_id=run) for _ in range(3)]
        names = {id(message): name for name, message in store.items()}
        found.append([[names[id(message)] for message in look] for look in looks])
        assert all(message.metadata.delivered_at for look in looks for message in look)
        if isinstance(state, QuickState) and (node, limit) == (1, None):
            assert "expired" not in store and "expired" not in store.to_node[1]
    assert found[0] == found[1]


def test_a_vehicle_that_says_too_soon_that_it_has_a_question_does_not_end_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pushed = []

    def make(**about: object) -> Callable[[str, bytes], None]:
        def push(number: str, content: bytes) -> None:
            pushed.append(number)
            raise ObjectPushError(number, 1, "session")

        return push

    def announced(request: Any) -> Any:
        numbers = [message.metadata.message_id for message in request.messages_list]
        trees = [tree.object_id for tree in request.message_object_trees]
        return SimpleNamespace(message_ids=numbers, objects_to_push=trees, session_id="s")

    monkeypatch.setattr(flower, "make_push_object_fn_protobuf", make)
    client = SimpleNamespace(PushMessages=announced, PushObject=None)
    grid: Any = SimpleNamespace(_runtime_client=client, node=1, run=SimpleNamespace(run_id=1))
    messages = [AppMessage(RecordDict(), node, "train") for node in (1, 2)]
    assert len(flower.push_questions(grid, messages)) == 2
    assert len(pushed) == 2


def test_a_vehicle_keeps_its_connection_longer_than_it_pauses() -> None:
    with FleetClient("https://127.0.0.1:1", interceptors=[]) as client:
        pool = client._client._transport._pool
        kept = pool._keepalive_expiry
    longest = max(fleet_client.WAIT_SECONDS, signature(drive).parameters["poll_seconds"].default)
    assert longest < kept < SERVER_KEEPS_SECONDS


def test_the_server_keeps_connections_and_does_not_wait_for_held_looks_when_it_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = import_module("flwr.superlink.cli.flower_superlink")
    monkeypatch.setattr(module, "uvicorn", module.uvicorn)  # put back afterwards
    told: dict[str, Any] = {}
    monkeypatch.setattr("uvicorn.run", lambda app, **more: told.update(more))
    keep_connections()
    module.uvicorn.run("app", port=1)
    assert told == {"port": 1, "timeout_keep_alive": 75, "timeout_graceful_shutdown": 2}


def test_the_servers_state_is_the_one_with_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = linkstate_factory.InMemoryLinkState
    monkeypatch.setattr(linkstate_factory, "InMemoryLinkState", plain)  # put back afterwards
    monkeypatch.setenv("FLWR_DATABASE", ":flwr-in-memory:")
    questions_by_node()
    assert isinstance(main.create_app().state.linkstate_factory.state(), QuickState)


def test_questions_to_vehicles_that_never_look_are_dropped_when_they_are_too_old() -> None:
    manager = noop_federation_manager.NoOpFederationManager()
    state = QuickState(manager, in_memory_object_store.InMemoryObjectStore())
    state.questions["gone"] = question(2, 1)
    checked: list[set[str]] = []
    state._check_stored_messages = checked.append  # type: ignore[method-assign, assignment]
    state.get_message_ins(1, 1)
    assert checked == []
    state.swept -= SWEEP_SECONDS
    state.get_message_ins(1, 1)
    state.get_message_ins(1, 1)
    assert checked == [{"gone"}]


@pytest.mark.parametrize(("length", "elsewhere"), [(LARGE, False), (LARGE + 1, True)])
def test_a_large_body_is_read_beside_the_others(
    length: int, elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def read(request: Any, body: bytes) -> bytes:
        threads.append(threading.get_ident())
        return b"%d" % len(body)

    monkeypatch.setattr("fedwatt.deploy.shortcut.short_answers", lambda whole: {"/large": read})
    found = Client(Shortcut(Passed, holds=False)).ask("POST", "/large", content=b"x" * length)
    assert found.content == b"%d" % length
    assert (threads != [threading.get_ident()]) is elsewhere


def test_a_short_way_that_fails_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    errors = [HTTPException(401), KeyError("renamed by Flower"), KeyError("once more")]

    def fail(request: Any, body: bytes) -> bytes:
        raise errors.pop(0)

    monkeypatch.setattr("fedwatt.deploy.shortcut.short_answers", lambda whole: {"/often": fail})
    client = Client(Shortcut(PlainTextResponse("the long way"), holds=False))
    with caplog.at_level(logging.WARNING, "fedwatt.deploy"):
        assert {client.ask("POST", "/often").text for _ in range(3)} == {"the long way"}
    (told,) = caplog.messages
    assert "/often" in told and "renamed by Flower" in told


def test_the_index_is_kept_however_questions_change() -> None:
    own = Questions()
    own.update({"a": question(1, 1), "b": question(1, 1), "c": question(2, 1)})
    own["b"] = question(2, 1)
    assert {node: list(numbers) for node, numbers in own.to_node.items()} == {
        1: ["a"],
        2: ["c", "b"],
    }
    own.pop("a")
    own.setdefault("d", question(3, 1))
    assert {node: list(numbers) for node, numbers in own.to_node.items()} == {
        2: ["c", "b"],
        3: ["d"],
    }
    own.clear()
    assert not own and not own.to_node
