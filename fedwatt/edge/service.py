"""A small HTTP service: routes and trips in JSON through one model.

    GET  /               a page to try it
    POST /route          energy, duration and state of charge of a route
    POST /predict        energy of a trip's channels
    GET  /model          what the model was trained on, its errors and its limits
    GET  /health         whether the service is up
    GET  /openapi.json   the OpenAPI document

Each request is bounded in size, depth, points and time, and at most `COMPUTING` are computed at
once. The `Host` header must name this machine, so that a page of somebody else whose name resolves
to 127.0.0.1 (DNS rebinding) is refused; bodies must be JSON by content type, which a browser sends
to another origin only after asking, and nothing here permits it.
"""

import asyncio
import secrets
import socket
from asyncio import Semaphore
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from fedwatt import __version__
from fedwatt.edge.handlers import Handlers, document, first_problem
from fedwatt.errors import FedwattError, SettingError
from fedwatt.files import parse_json
from fedwatt.report.web_server import names_this_machine

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import HTMLResponse, JSONResponse, Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Receive, Scope, Send
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as problem:  # pragma: no cover
    raise SettingError("The service needs Starlette: pip install 'fedwatt[serve]'.") from problem

HOST = "127.0.0.1"
PORT = 8765
LARGEST_BODY = 4_000_000
COMPUTING = 4
"""Requests that are computed at a time; more wait up to `SECONDS`, and `CONNECTIONS` may wait."""
CONNECTIONS = 64
SECONDS = 10.0
"""In which a request's headers, then its body, must arrive, and in which it is computed."""
OPEN = ("/", "/health", "/openapi.json")
"""Paths that need no token."""


class Refusal(Exception):
    """A request that is answered with a status other than 200 and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Guard:
    """Middleware that refuses requests for another host or without the token."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str], token: str) -> None:
        self.app = app
        self.hosts = hosts
        self.token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with 421 or 401."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        app = self.app
        if not names_this_machine(headers.get(b"host", b"").decode("latin-1"), self.hosts):
            app = _problem(421, "The Host header names another machine. Allow it with --name.")
        elif self.token and scope["path"] not in OPEN and not self._has_token(headers):
            app = _problem(401, "The header 'Authorization: Bearer TOKEN' is missing or wrong.")
            app.headers["WWW-Authenticate"] = "Bearer"
        await app(scope, receive, send)

    def _has_token(self, headers: Mapping[bytes, bytes]) -> bool:
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        return scheme.lower() == b"bearer" and secrets.compare_digest(token, self.token)


def application(handlers: Handlers, *, names: tuple[str, ...] = (), token: str = "") -> ASGIApp:
    """Return the ASGI application; `names` are further host names that it answers to."""
    page = files("fedwatt.edge").joinpath("templates/service.html").read_text(encoding="utf-8")
    computing = Semaphore(COMPUTING)

    def endpoint(schema: str, handle: Callable[[Mapping[str, Any]], dict[str, Any]]) -> Any:
        async def respond(request: Request) -> Response:
            try:
                body = await _json_body(request, schema)
                async with asyncio.timeout(SECONDS), computing:
                    return _json(200, await run_in_threadpool(handle, body))
            except Refusal as refusal:
                return _problem(refusal.status, str(refusal))
            except FedwattError as refused:
                return _problem(422, str(refused))
            except TimeoutError:
                return _problem(503, "The service is busy. Try again in a few seconds.")

        return respond

    async def model(request: Request) -> Response:
        return _json(200, handlers.description())

    async def health(request: Request) -> Response:
        return _json(200, {"status": "ok", "version": __version__})

    async def openapi(request: Request) -> Response:
        return _json(200, document())

    async def index(request: Request) -> Response:
        nonce = secrets.token_urlsafe(16)
        policy = (
            "default-src 'none'; style-src 'unsafe-inline'; connect-src 'self'; "
            f"script-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        )
        headers = {"Content-Security-Policy": policy, "Cache-Control": "no-store"}
        return HTMLResponse(page.replace("NONCE", nonce), headers=headers)

    routes = [
        Route("/", index),
        Route("/route", endpoint("RouteRequest", handlers.route), methods=["POST"]),
        Route("/predict", endpoint("TripRequest", handlers.trip), methods=["POST"]),
        Route("/model", model),
        Route("/health", health),
        Route("/openapi.json", openapi),
    ]
    hosts = frozenset(name.lower() for name in ("localhost", socket.gethostname(), *names))
    return Guard(Starlette(routes=routes), hosts, token)


async def _json_body(request: Request, schema: str) -> dict[str, Any]:
    """Return a request's body, checked against a schema of the document; Refusal otherwise."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(415, "The body must be JSON, with 'Content-Type: application/json'.")
    content = bytearray()
    try:
        async with asyncio.timeout(SECONDS):
            async for piece in request.stream():
                content += piece
                if len(content) > LARGEST_BODY:
                    raise Refusal(413, f"The body is larger than {LARGEST_BODY:,} bytes.")
    except TimeoutError:
        raise Refusal(408, f"The body did not arrive in {SECONDS:g} s.") from None
    except ClientDisconnect:
        raise Refusal(400, "The body ended early.") from None
    try:
        value = parse_json(bytes(content))
    except ValueError as problem:  # JSONDecodeError and UnicodeDecodeError
        raise Refusal(400, f"The body is no JSON: {problem}.") from None
    found = first_problem(value, schema)
    if found is not None:
        raise Refusal(422, found)
    body: dict[str, Any] = value
    return body


def _json(status: int, value: Any) -> JSONResponse:
    return JSONResponse(value, status, {"Cache-Control": "no-store"})


def _problem(status: int, sentence: str) -> JSONResponse:
    return _json(status, {"error": sentence})


class TimedProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection whose first request does not arrive in `SECONDS`."""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self.loop.call_later(SECONDS, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if getattr(self, "cycle", None) is None:
            self.transport.close()


def listen(app: ASGIApp, host: str, port: int) -> None:
    """Serve the application until it is interrupted."""
    uvicorn.run(
        app,
        host=host,
        port=port,
        http=TimedProtocol,
        ws="none",
        lifespan="off",
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=3,
        log_level="warning",
        server_header=False,
    )
