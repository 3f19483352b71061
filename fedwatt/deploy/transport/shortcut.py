"""A short way to the server's answers: the same functions, without Flower's layers before them.

Flower passes every request through nine layers, each with tasks and threads of its own, which take
many times as long as what the request is about. Requests that vehicles and a run send often are
read, checked and answered here instead, by Flower's own functions (`flower_server`). Whatever does
not end well on this way, a wrong signature for one, goes the long way from its beginning, so that
Flower says what is wrong as it always does.

A vehicle's look for questions that finds none is held until there is one, for as long as the
vehicle is willing to wait: it says so in a header, which Flower's own does not send. Such a look
counts as a heartbeat. Its answer says so, and over how many seconds the vehicles are to spread when
they come back to a server that was gone.
"""

import asyncio
import logging
from typing import Final

from flwr.supercore.error.base import FlowerError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedwatt.deploy.transport.fleet_client import WAIT_HEADER, WAIT_SECONDS
from fedwatt.deploy.transport.flower_server import (
    LOOK,
    PROTOBUF,
    Questions,
    ShortAnswer,
    TooLongError,
    beat,
    come_back_over,
    is_asked,
    looking_node,
    short_answers,
)

log = logging.getLogger("fedwatt.deploy")

LARGE: Final = 1_000_000
"""Bytes of a body that is read in another thread: the others' requests are not to wait for it."""

PIECE: Final = 32_768
"""Bytes of a response that are written at once: a connection keeps room for the longest piece that
it was ever given, and there are ten thousand of them."""


class Shortcut:
    """The second thing that a request to the server meets, after the `door`."""

    def __init__(self, app: ASGIApp, *, holds: bool = True, whole: bool = True) -> None:
        self.app, self.answers = app, short_answers(whole=whole)
        self.held = Held() if holds else None
        self.failed: set[str] = set()
        """Paths whose short way has failed by an error that is not Flower's answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        post = scope["type"] == "http" and scope["method"] == "POST"
        answer = self.answers.get(scope["path"]) if post else None
        if answer is None:
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            body = await request.body()  # no longer than the door let in
        except ClientDisconnect:
            return
        try:
            status, content = 200, await self._answered(answer, request, body, receive)
        except TooLongError as error:
            status, content = 413, str(error).encode()
        except Exception as error:
            self._tell(scope["path"], error)
            await self.app(scope, _again(body, receive), send)
            return
        head = [(b"content-type", PROTOBUF), (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": status, "headers": head})
        for at in range(0, len(content) or 1, PIECE):
            more = at + PIECE < len(content)
            piece = content[at : at + PIECE]
            await send({"type": "http.response.body", "body": piece, "more_body": more})

    async def _answered(
        self, answer: ShortAnswer, request: Request, body: bytes, receive: Receive
    ) -> bytes:
        """The body of the response; a look for questions may be held."""
        if len(body) > LARGE:
            return await asyncio.to_thread(answer, request, body)
        looks = request.scope["path"] == LOOK and self.held is not None
        patience = _patience(request) if looks else 0.0
        if not patience:
            return answer(request, body)
        node = looking_node(request, body)
        beat(request, node)
        asked = is_asked(request, node)
        if not asked:
            asked = await self._told(request, node, receive, patience)
            beat(request, node)
        content = answer(request, body) if asked else b""  # looks at its key once more
        return content + come_back_over(request)

    def _tell(self, path: str, error: Exception) -> None:
        """Say once of a path that its short way fails, if that is no answer of Flower's."""
        if not isinstance(error, FlowerError | HTTPException) and path not in self.failed:
            self.failed.add(path)
            log.warning("%s is answered the long way, which is slower: %r", path, error)

    async def _told(self, request: Request, node: int, receive: Receive, seconds: float) -> bool:
        """Wait for a question to a node; False where none has come after `seconds`, or it left."""
        assert self.held is not None
        come = self.held.expect(node)
        gone = asyncio.ensure_future(receive())  # comes to an end when the vehicle hangs up
        gone.add_done_callback(lambda _: _done(come))
        late = come.get_loop().call_later(seconds, _done, come)
        try:
            # One may have come, by another thread, between the first look and now.
            if not is_asked(request, node):
                await come
            return not gone.done() and is_asked(request, node)
        finally:
            late.cancel()
            gone.cancel()
            come.cancel()


class Held:
    """Who waits for questions."""

    def __init__(self) -> None:
        self.waiting: dict[int, asyncio.Future[None]] = {}
        Questions.listeners.append(self.tell)

    def expect(self, node: int) -> "asyncio.Future[None]":
        """Is done when there is a question for a node; who waited for it before is let go."""
        before = self.waiting.get(node)
        if before is not None and not before.done():
            before.set_result(None)
        come: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting[node] = come
        come.add_done_callback(lambda done: self._forget(node, done))
        return come

    def tell(self, node: int) -> None:
        """Let the node know."""
        come = self.waiting.get(node)
        if come is not None:
            come.get_loop().call_soon_threadsafe(_done, come)

    def _forget(self, node: int, come: "asyncio.Future[None]") -> None:
        if self.waiting.get(node) is come:
            del self.waiting[node]


def _done(come: "asyncio.Future[None]") -> None:
    if not come.done():
        come.set_result(None)


def _patience(request: Request) -> float:
    """Seconds that a vehicle would wait for a question; 0: it does not say."""
    text = request.headers.get(WAIT_HEADER, "")
    return min(float(text), WAIT_SECONDS) if text.isdecimal() and text.isascii() else 0.0


def _again(body: bytes, receive: Receive) -> Receive:
    """What `receive` gave, once more from the beginning."""
    whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return whole.pop() if whole else await receive()

    return again
