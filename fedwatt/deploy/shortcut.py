"""A short way to the server's answers: the same functions, without Flower's layers before them.

Flower passes every request through nine layers, each with tasks and threads of its own, which take
many times as long as what the request is about. Requests that vehicles and a run send often are
read, checked and answered here instead, by Flower's own functions (`flower_server`). Whatever does
not end well on this way, a wrong signature for one, goes the long way from its beginning, so that
Flower says what is wrong as it always does.
"""

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedwatt.deploy.flower_server import PROTOBUF, short_answers


class Shortcut:
    """The second thing that a request to the server meets, after the `door`."""

    def __init__(self, app: ASGIApp) -> None:
        self.app, self.answers = app, short_answers()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        post = scope["type"] == "http" and scope["method"] == "POST"
        answer = self.answers.get(scope["path"]) if post else None
        if answer is None:
            await self.app(scope, receive, send)
            return
        body = await _body(receive)
        if body is None:
            return
        try:
            content = answer(Request(scope), body)
        except Exception:
            await self.app(scope, _again(body, receive), send)
            return
        head = [(b"content-type", PROTOBUF), (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": content})


async def _body(receive: Receive) -> bytes | None:
    """The whole body, no longer than the door let in; None where the sender is gone."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """What `receive` gave, once more from the beginning."""
    whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return whole.pop() if whole else await receive()

    return again
