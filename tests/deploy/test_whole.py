"""Whole messages: the same words in fewer requests; in Flower's way where one side knows none."""

import asyncio
import threading
from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Message
from flwr.common.constant import NOOP_FLWR_AID
from flwr.proto import fleet_pb2, heartbeat_pb2
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.server.superlink.linkstate import linkstate_factory
from flwr.supercore.constant import NOOP_FEDERATION_ID, TASK_TOKEN_HEADER, TaskType
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink import extensions, main
from flwr.supernode import fleet_http_connection
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from starlette.middleware import Middleware

from fedwatt.deploy import fleet_client, flower, whole
from fedwatt.deploy.exchange import Exchange
from fedwatt.deploy.fleet_client import FleetClient
from fedwatt.deploy.flower_server import COME_BACK_PER_SECOND, Questions, QuickState
from fedwatt.deploy.messages import Content, ReplyForm, Sizes, from_records, sealed
from fedwatt.deploy.prompt_grid import PromptGrid
from fedwatt.deploy.shortcut import Shortcut
from fedwatt.deploy.whole_answers import ALL_SECONDS, replies_with_parts

KEY = ec.derive_private_key(5, ec.SECP256R1())
TRAIN = ReplyForm("train", Sizes(3, "float32"))
WEIGHTS = np.array([1, -2, 3], dtype=np.float32)


class InProcess(httpx.BaseTransport):
    """Carries requests to an app in this process, and counts them by the end of their paths."""

    def __init__(self, app: Any, headers: dict[str, str]) -> None:
        self.inner, self.headers = httpx.ASGITransport(app, raise_app_exceptions=False), headers
        self.count: Counter[str] = Counter()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.count[request.url.path.rpartition("/")[2]] += 1
        request.headers.update(self.headers)

        async def ask() -> httpx.Response:
            found = await self.inner.handle_async_request(request)
            return httpx.Response(
                found.status_code, headers=found.headers, content=await found.aread()
            )

        return asyncio.run(ask())


class Server:
    """Flower's app behind a shortcut, with a run and a vehicle whose requests are counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, knows_whole: bool) -> None:
        monkeypatch.setattr(Questions, "listeners", [])
        monkeypatch.setattr(linkstate_factory, "InMemoryLinkState", QuickState)
        monkeypatch.setenv("FLWR_DATABASE", ":flwr-in-memory:")
        layers = [Middleware(partial(Shortcut, whole=knows_whole))]
        monkeypatch.setattr(extensions, "get_middleware", lambda: layers)
        self.app = main.create_app()
        self.state = self.app.state.linkstate_factory.state()
        self.run = self.state.create_run(
            None, None, None, {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP
        )
        (task,) = self.state.get_tasks(run_ids=[self.run])
        token = self.state.claim_task(task.task_id)
        self.state.activate_task(task.task_id)
        self.of_run = InProcess(self.app, {TASK_TOKEN_HEADER: token})
        self.of_vehicle = InProcess(self.app, {})

    def exchange(self) -> Exchange:
        client = RuntimeHttpClient("https://server")
        client._client = httpx.Client(transport=self.of_run)
        grid: Any = SimpleNamespace(
            _runtime_client=client, node=Node(node_id=1), run=SimpleNamespace(run_id=self.run)
        )
        return Exchange(PromptGrid(grid), poll_seconds=0.01)

    def client(self) -> FleetClient:
        """A vehicle's, whose key is known."""
        client = FleetClient(
            "https://server", interceptors=[NodeAuthHttpInterceptor(KEY, KEY.public_key())]
        )
        hooks = client._client.event_hooks
        client._client = httpx.Client(transport=self.of_vehicle, event_hooks=hooks)
        return client


def trained(message: Message) -> Message:
    """Δ is twice the weights."""
    weights = from_records(message.content).arrays["weights"]
    content = Content({"round": 4, "windows": 5}, {"delta": 2 * weights})
    return Message(sealed(TRAIN, content), reply_to=message)


def conversation(server: Server, monkeypatch: pytest.MonkeyPatch) -> Content:
    """A vehicle's reply to a question to train, through Flower's session and a run's exchange."""
    client, exchange = server.client(), server.exchange()
    public = public_key_to_bytes(KEY.public_key())
    node = server.state.create_node(NOOP_FLWR_AID, "nobody", public, 30)
    made = SimpleNamespace(from_server_address=lambda *args, **more: client)
    monkeypatch.setattr(fleet_http_connection, "FleetHttpClient", made)
    with flower.open_session("server", None, (KEY, KEY.public_key())) as session:
        TaskIdentity.node_id, TaskIdentity.run_id = 1, server.run
        question = Content({"round": 4}, {"weights": WEIGHTS})
        waiting = exchange.send(TRAIN, {node: question}, 60.0)
        flower.identify(session)
        assert flower.answer_next(session, trained)
        answers = exchange.receive(TRAIN, waiting)
    return answers[node].usable()


PASSING = {"activate-node", "deactivate-node", "send-node-heartbeat"}


@pytest.mark.parametrize("knows_whole", [True, False])
def test_a_question_and_its_reply_are_a_request_each(
    knows_whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(monkeypatch, knows_whole=knows_whole)
    reply = conversation(server, monkeypatch)
    assert reply.arrays["delta"].tolist() == [2, -4, 6] and reply.values["windows"] == 5
    vehicle = {k: n for k, n in server.of_vehicle.count.items() if k not in PASSING}
    if knows_whole:
        assert vehicle == {"pull-messages": 1, "push-messages": 1}
        assert server.of_run.count == {"push-messages": 1, "pull-messages": 1}
    else:
        # Message, RecordDict, two records, an array and its data.
        assert vehicle == {
            "pull-messages": 1,
            "pull-object": 6,
            "confirm-message-received": 1,
            "push-messages": 1,
            "push-object": 6,
        }
        assert server.of_run.count["pull-object"] == server.of_run.count["push-object"] == 6
    # Neither way leaves anything behind.
    assert len(server.state.object_store) == 0 and not server.state._object_push_sessions


def test_a_long_reply_is_sent_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "MOST_BYTES", 300)
    server = Server(monkeypatch, knows_whole=True)
    assert conversation(server, monkeypatch).arrays["delta"].tolist() == [2, -4, 6]
    assert server.of_vehicle.count["push-messages"] == 1
    assert server.of_vehicle.count["push-object"] == 6


def test_a_reply_that_is_cut_off_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "MOST_BYTES", 300)
    server, pushed = Server(monkeypatch, knows_whole=True), []
    carry = InProcess.handle_request

    def cut(self: InProcess, request: httpx.Request) -> httpx.Response:
        pushed.append(request.url.path.endswith("push-object"))
        if pushed[-1] and sum(pushed) == 4:
            raise httpx.ReadError("cut off")
        return carry(self, request)

    monkeypatch.setattr(InProcess, "handle_request", cut)
    monkeypatch.setattr("flwr.supercore.retry.http_retry.MAX_RETRY_DELAY", 0.01)
    assert conversation(server, monkeypatch).arrays["delta"].tolist() == [2, -4, 6]
    assert sum(pushed) == 7  # one was cut off, and the three before it were not sent again


def test_an_announcement_that_is_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, knows_whole=True)
    request = fleet_pb2.PushMessagesRequest(node=Node(node_id=1))
    for number in range(2000):
        request.message_object_trees.add(object_id=f"{number:064}")
    with pytest.raises(httpx.HTTPStatusError, match="413"):
        server.client().PushMessages(request)
    # As many bytes of parts are none of it.
    request = fleet_pb2.PushMessagesRequest(node=Node(node_id=1))
    whole.attach(request, {"a": bytes(200_000)})
    with pytest.raises(httpx.HTTPStatusError, match="401"):
        server.client().PushMessages(request)


def looked(client: FleetClient, seconds: int) -> None:
    """As if a look had been answered by a server that counts it."""
    answer = fleet_pb2.PullMessagesResponse(reconnect=fleet_pb2.Reconnect(reconnect=seconds))
    reply = httpx.Response(200, content=answer.SerializeToString())
    client._client = httpx.Client(transport=httpx.MockTransport(lambda request: reply))
    client.PullMessages(fleet_pb2.PullMessagesRequest())


def test_looks_count_as_heartbeats() -> None:
    now, beats = 100.0, []
    client = FleetClient("https://server", clock=lambda: now)

    def beat() -> int:
        answer = heartbeat_pb2.SendNodeHeartbeatResponse(success=True).SerializeToString()

        def answered(request: httpx.Request) -> httpx.Response:
            beats.append(request)
            return httpx.Response(200, content=answer)

        client._client = httpx.Client(transport=httpx.MockTransport(answered))
        assert client.SendNodeHeartbeat(heartbeat_pb2.SendNodeHeartbeatRequest()).success
        return len(beats)

    assert beat() == 1  # nothing is known of the server yet
    looked(client, 0)
    now = 129.0
    assert beat() == 1
    now = 131.0  # at work on a question for half a minute
    assert beat() == 2
    client.looking = True
    assert beat() == 2
    now = 151.0  # longer than any look is held
    assert beat() == 3


def test_vehicles_come_back_to_a_lost_server_at_different_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    client = FleetClient("https://server", clock=lambda: now)
    looked(client, 40)

    def lost(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("lost")

    client._client = httpx.Client(transport=httpx.MockTransport(lost))
    monkeypatch.setattr("random.uniform", lambda low, high: 0.25 * high)
    with pytest.raises(httpx.ReadError):
        client.PullMessages(fleet_pb2.PullMessagesRequest())
    with pytest.raises(httpx.ConnectError, match="turn"):
        client.SendNodeHeartbeat(heartbeat_pb2.SendNodeHeartbeatRequest())
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    with pytest.raises(httpx.ReadError):
        client.PullMessages(fleet_pb2.PullMessagesRequest())
    assert slept == [10.0]


def test_the_first_look_is_short() -> None:
    client = FleetClient("https://server")
    waits = []
    for _ in range(2):
        request = httpx.Request("POST", "https://server/v1/fleet/pull-messages")
        client._would_wait(request)
        waits.append(request.headers[fleet_client.WAIT_HEADER])
        looked(client, 0)
    assert waits == ["1", "50"]


def test_a_server_of_many_spreads_its_vehicles(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, knows_whole=True)
    public = public_key_to_bytes(KEY.public_key())
    node = server.state.create_node(NOOP_FLWR_AID, "nobody", public, 30)
    for number in range(3 * COME_BACK_PER_SECOND):
        server.state.nodes[number] = server.state.nodes[node]
    client = server.client()
    client.PullMessages(fleet_pb2.PullMessagesRequest(node=Node(node_id=node)))
    assert client.spread == 3
    assert server.state.nodes[node].status == "online"


def test_questions_without_a_reply_are_looked_at_every_few_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, seen = [100.0], []
    monkeypatch.setattr("fedwatt.deploy.whole_answers.time.monotonic", lambda: now[0])
    state = SimpleNamespace(lock=threading.Lock(), message_ins_id_to_message_res_id={"b": "reply"})

    def look(request: Any) -> PullAppMessagesResponse:
        seen.append(list(request.message_ids))
        return PullAppMessagesResponse()

    for seconds in (0.0, 0.1, 0.1, ALL_SECONDS):
        now[0] += seconds
        replies_with_parts(state, 1, ["a", "b", "c"], look)
    assert seen == [["a", "b", "c"], ["b"], ["b"], ["a", "b", "c"]]
