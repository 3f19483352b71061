"""A small web server: a function answers each GET, and nothing is logged, cached or written.

A connection ends after `SECONDS`, at most `CONNECTIONS` are served at a time, and the `Host` header
must be an address or a name of this machine: a page of somebody else whose name resolves to
127.0.0.1 (DNS rebinding) is refused.
"""

import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from threading import BoundedSemaphore, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fedwatt.errors import RunError

HOST = "127.0.0.1"
CONNECTIONS = 32
SECONDS = 30.0
HTML = "text/html; charset=utf-8"


@dataclass(frozen=True)
class Response:
    """A response to a browser."""

    body: bytes
    kind: str = HTML
    status: HTTPStatus = HTTPStatus.OK


Answer = Callable[[str, Mapping[str, str]], Response | None]
"""(path, query) → reply; None: there is no such page."""


def names_this_machine(host: str, names: Collection[str]) -> bool:
    """Return whether the value of a `Host` header is an address, or one of these names.

    >>> names_this_machine("127.0.0.1:80", ()), names_this_machine("evil.example", ("localhost",))
    (True, False)
    """
    try:
        name = (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return False
    with suppress(ValueError):
        ip_address(name)
        return True
    return name in names


class LocalServer(ThreadingHTTPServer):
    """Serves what a function answers."""

    daemon_threads = True
    request_queue_size = 2 * CONNECTIONS

    def __init__(self, answer: Answer, host: str, port: int) -> None:
        self.answer = answer
        self.names = {"localhost", host.lower(), socket.gethostname().lower()}
        self._free = BoundedSemaphore(CONNECTIONS)
        self._begun: dict[socket.socket, float] = {}
        super().__init__((host, port), Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread, or close it where there are too many."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self._begun[request] = time.monotonic()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._begun.pop(request, None)
            self._free.release()

    def service_actions(self) -> None:
        """End connections that have taken too long; called twice per second."""
        latest = time.monotonic() - SECONDS
        for connection, begun in list(self._begun.items()):
            if begun < latest:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connections that ended early."""


class Handler(BaseHTTPRequestHandler):
    """Answers a browser."""

    server: LocalServer

    def do_GET(self) -> None:
        """Send one page, or 404 where there is none."""
        if not names_this_machine(self.headers.get("Host", ""), self.server.names):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
            return
        address = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        reply = self.server.answer(address.path, query)
        if reply is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.kind)
        self.send_header("Content-Length", str(len(reply.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, format: str, *values: Any) -> None:
        """Log nothing: a line every second would hide the run's own."""


@contextmanager
def answering(answer: Answer, *, port: int, host: str = HOST) -> Iterator[str]:
    """Serve what `answer` answers, and give the address; port 0 is any that is free."""
    try:
        server = LocalServer(answer, host, port)
    except OSError as error:
        raise RunError(
            f"Port {port} cannot be listened on: {error.strerror}. Choose another with --port, or "
            "--port 0 for any that is free."
        ) from error
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
