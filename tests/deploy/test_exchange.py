"""Replies whose parts do not come, or are nonsense: the deadline holds, and the others count."""

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pytest import approx

pytest.importorskip("flwr")

from flwr.app import Message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

from fedwatt.deploy import whole
from fedwatt.deploy.exchange import Answer, Exchange
from fedwatt.deploy.messages import Content, ReplyForm, Sizes, sealed
from fedwatt.deploy.prompt_grid import MOST_PARTS, PromptGrid

TRAIN = ReplyForm("train", Sizes(3, "float32"))
REPLY = Content({"round": 0, "windows": 5}, {"delta": np.ones(3, dtype=np.float32)})


class Store:
    """Flower's Grid and its server's store of parts, in memory; every reply is announced once."""

    def __init__(self) -> None:
        self.node, self.run = Node(node_id=1), SimpleNamespace(run_id=1)
        self._runtime_client = self
        self.parts: dict[str, bytes | None] = {}
        """None: announced and not there yet."""
        self.replies: dict[str, tuple[Any, Any]] = {}
        self.asked: set[str] = set()
        self.confirmed: list[str] = []
        self.brings_parts = False
        """Whether replies come with their parts, where those are all there."""

    def PushMessages(self, request: Any) -> Any:
        numbers = []
        for proto in request.messages_list:
            number = proto.metadata.message_id = f"question-{proto.metadata.dst_node_id}"
            numbers.append(number)
            if number not in self.asked:
                self.asked.add(number)
                self.reply(message_from_proto(proto))
        return SimpleNamespace(message_ids=numbers, objects_to_push=[], session_id="")

    def reply(self, question: Message) -> None:
        node = question.metadata.dst_node_id
        reply = Message(sealed(TRAIN, REPLY), reply_to=question)
        reply.metadata.__dict__["_src_node_id"] = node
        reply.metadata.__dict__["_message_id"] = reply.object_id
        for number, part in get_all_nested_objects(reply).items():
            self.parts.setdefault(number, part.deflate())
        proto, tree = message_to_proto(reply), get_object_tree(reply)
        self.replies[question.metadata.message_id] = proto, tree

    def PullMessages(self, request: Any) -> Any:
        found = [self.replies.pop(n) for n in request.message_ids if n in self.replies]
        response = PullAppMessagesResponse(
            messages_list=[proto for proto, _ in found],
            message_object_trees=[tree for _, tree in found],
        )
        if self.brings_parts and whole.is_wanted(request.SerializeToString()):
            whole.attach(response, {n: part for n, part in self.parts.items() if part is not None})
        return response

    def PullObject(self, request: Any) -> Any:
        content = self.parts.get(request.object_id)
        return SimpleNamespace(
            object_found=request.object_id in self.parts,
            object_available=content is not None,
            object_content=content,
        )

    def ConfirmMessageReceived(self, request: Any) -> None:
        self.confirmed.append(request.message_object_id)


def root(store: Store, node: int) -> str:
    """The part of a reply that is the vehicle's alone: its message."""
    return store.replies[f"question-{node}"][1].object_id


def ask(store: Store, spoil: Any, seconds: float = 0.2) -> tuple[dict, float]:
    """Ask vehicles 1, 2 and 3, after `spoil` has met their replies."""
    exchange = Exchange(PromptGrid(store), poll_seconds=0.01)
    began = time.monotonic()
    exchange.send(TRAIN, {node: Content() for node in (1, 2, 3)}, seconds)
    spoil(store)
    answers = exchange.ask(TRAIN, {n: Content() for n in (1, 2, 3)}, seconds)
    return answers, time.monotonic() - began


def test_parts_that_never_come_do_not_hold_up_the_others() -> None:
    answers, took = ask(Store(), lambda store: store.parts.update({root(store, 1): None}))
    assert {node: answer.content is None for node, answer in answers.items()} == {
        2: False,
        3: False,
    }
    # Flower alone would have tried 500 times, a second apart. Room for a busy machine.
    assert took < 10


def test_replies_that_come_with_their_parts_are_not_asked_for_again() -> None:
    store = Store()
    store.brings_parts = True
    store.PullObject = None  # type: ignore[method-assign, assignment]
    answers, _ = ask(store, lambda store: None, seconds=10.0)
    assert all(answer.content is not None for answer in answers.values()) and len(answers) == 3
    assert store.confirmed == []


def test_parts_that_come_late_are_waited_for() -> None:
    store = Store()
    kept: dict[str, bytes | None] = {}

    def hold(store: Store) -> None:
        number = root(store, 1)
        kept[number] = store.parts[number]
        store.parts[number] = None
        pull, looks = store.PullObject, []

        def slow(request: Any) -> Any:
            if request.object_id == number:
                looks.append(number)
                if len(looks) == 3:
                    store.parts.update(kept)
            return pull(request)

        store.PullObject = slow

    answers, _ = ask(store, hold, seconds=10.0)
    assert {node: answer.content is None for node, answer in answers.items()} == dict.fromkeys(
        (1, 2, 3), False
    )
    assert len(store.confirmed) == 3


SPOILED = {
    "nonsense": b"nonsense",
    "no such class": b'{"type": "Popen", "children_ids": [], "body_len": 0}',
    "nothing": b"",
}


@pytest.mark.parametrize("spoiled", SPOILED)
def test_parts_that_are_nonsense_are_a_rejected_reply(spoiled: str) -> None:
    def spoil(store: Store) -> None:
        store.parts[root(store, 1)] = SPOILED[spoiled]

    answers, _ = ask(Store(), spoil, seconds=10.0)
    assert {node: answer.content is None for node, answer in answers.items()} == {
        1: True,
        2: False,
        3: False,
    }
    assert "cannot be read" in answers[1].trouble


def test_parts_that_are_gone_are_a_lost_reply() -> None:
    answers, took = ask(Store(), lambda store: store.parts.pop(root(store, 1)), seconds=60.0)
    assert {node: answer.content is None for node, answer in answers.items()} == {
        2: False,
        3: False,
    }
    assert took < 30  # nobody waits for it any more


def test_a_reply_has_few_parts() -> None:
    def many(store: Store) -> None:
        tree = store.replies["question-1"][1]
        for number in range(MOST_PARTS):
            tree.children.add().object_id = f"part-{number}"

    answers, _ = ask(Store(), many, seconds=10.0)
    assert "parts" in answers[1].trouble
    assert answers[2].content is not None


def test_a_reply_under_another_vehicles_announcement_is_rejected() -> None:
    def swap(store: Store) -> None:
        one, other = store.replies["question-1"], store.replies["question-2"]
        one[0].metadata.message_id = other[0].metadata.message_id
        store.replies["question-1"] = one[0], other[1]

    answers, _ = ask(Store(), swap, seconds=10.0)
    assert answers[1].content is None and answers[2].content is not None


def test_whatever_flowers_records_raise_is_the_vehicles_trouble() -> None:
    class Nasty:
        metadata = SimpleNamespace(reply_to_message_id="question-1", src_node_id=1)

        def has_error(self) -> bool:
            return False

        @property
        def content(self) -> Any:
            raise KeyError("arrays")

    grid = SimpleNamespace(pull_messages=lambda numbers: [Nasty()])
    waiting = {"question-1": 1}
    answers = Exchange(grid).receive(TRAIN, waiting)
    assert answers[1].trouble == "it cannot be read (KeyError)" and not waiting


@pytest.mark.parametrize(
    ("share", "seconds"),
    # Two of three have answered after 4 s, then 6 = 1.5 · 4. All three never do.
    [(1.0, 60.0), (0.67, 60.0), (0.66, 6.0)],
)
def test_the_last_vehicles_have_half_as_long_again(share: float, seconds: float) -> None:
    store, now = Store(), [0.0]
    lost = SimpleNamespace(messages_list=[], message_object_trees=[])
    pull, empty = store.PullMessages, PullAppMessagesResponse(**vars(lost))

    def later(request: Any) -> Any:
        store.replies.pop("question-1", None)
        return pull(request) if now[0] >= 4 else empty

    store.PullMessages = later  # type: ignore[method-assign]

    def sleep(time: float) -> None:
        now[0] += 0.5

    exchange = Exchange(PromptGrid(store), 0.5, lambda: now[0], sleep)
    questions = {node: Content() for node in (1, 2, 3)}
    answers = exchange.ask(TRAIN, questions, 60.0, share=share)
    assert sorted(answers) == [2, 3] and now[0] == seconds


def test_looks_take_half_of_the_time_at_most() -> None:
    now, slept = [0.0], []

    def sleep(time: float) -> None:
        slept.append(time)
        now[0] += time

    def look() -> bool:
        now[0] += 3.0
        return len(slept) == 2

    assert Exchange(None, 0.1, lambda: now[0], sleep).wait(look, 60.0)  # type: ignore[arg-type]
    assert slept == [3.0, 3.0]


def test_each_answer_is_taken_as_it_comes_and_may_be_let_go() -> None:
    store, taken = Store(), []

    def each(node: int, answer: Answer) -> Answer:
        taken.append((node, answer.usable().values["windows"]))
        return Answer(Content())

    exchange = Exchange(PromptGrid(store), poll_seconds=0.01)
    questions = {node: Content() for node in (1, 2, 3)}
    answers = exchange.ask(TRAIN, questions, 10.0, each=each)
    assert sorted(taken) == [(1, 5), (2, 5), (3, 5)]
    assert all(answer.usable() == Content() for answer in answers.values())


def test_the_last_vehicles_have_as_long_as_the_slowest_of_earlier_rounds() -> None:
    """Nodes 1 to 9 answer after 0.2 s, node 10 after 0.4 s; then it never does."""
    now = [0.0]
    late = {10: 0.4}

    class Clocked(Store):
        def PullMessages(self, request: Any) -> Any:
            took = round(now[0] - since[0], 4)
            due = [n for n in request.message_ids if took >= late.get(node_of(n), 0.2)]
            request.ClearField("message_ids")
            request.message_ids.extend(due)
            return super().PullMessages(request)

    def node_of(number: str) -> int:
        return int(number.rpartition("-")[2])

    def sleep(seconds: float) -> None:
        now[0] += seconds + 1e-6  # nobody wakes up too early

    store, since = Clocked(), [0.0]
    store.brings_parts = True
    exchange = Exchange(PromptGrid(store), 0.1, clock=lambda: now[0], sleep=sleep)
    waited, answered = [], []
    for _ in range(6):
        store.asked.clear()
        since[0] = now[0]
        questions = {node: Content() for node in range(1, 11)}
        answers = exchange.ask(TRAIN, questions, 60.0, share=0.9)
        waited.append(round(now[0] - since[0], 3))
        answered.append(len(answers))
        if len(waited) == 4:
            late[10] = 1000.0
    # Node 10 is in time while it answers; then rounds end a quarter after its usual time.
    assert answered == [10, 10, 10, 10, 9, 9]
    assert waited[:4] == [0.4] * 4
    assert waited[4] == approx(0.5, abs=0.002)
    assert waited[5] == approx(0.5, abs=0.002)
