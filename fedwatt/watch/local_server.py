"""A small web server: a function answers each GET, and nothing is logged, cached or written."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from fedwatt.errors import RunError

HOST: Final = "127.0.0.1"
HTML: Final = "text/html; charset=utf-8"


@dataclass(frozen=True)
class Reply:
    """What a browser is sent."""

    body: bytes
    kind: str = HTML
    status: HTTPStatus = HTTPStatus.OK


Answer = Callable[[str, Mapping[str, str]], Reply | None]
"""(path, query) → reply; None: there is no such page."""


class LocalServer(ThreadingHTTPServer):
    """Serves what a function answers."""

    daemon_threads = True

    def __init__(self, answer: Answer, host: str, port: int) -> None:
        self.answer = answer
        super().__init__((host, port), Handler)


class Handler(BaseHTTPRequestHandler):
    """Answers a browser."""

    server: LocalServer

    def do_GET(self) -> None:
        """One page, or word that there is none."""
        asked = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(asked.query).items()}
        reply = self.server.answer(asked.path, query)
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
        """Say nothing: a line every second would hide the run's own."""


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
