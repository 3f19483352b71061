"""A web server for one page: the run's log from a byte on, and its report when that is there.

    GET /                the page
    GET /progress?from=B the complete lines of progress.jsonl from byte B on
    GET /report          report.html of the finished run

It listens on this machine alone and reads nothing but these files.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fedwatt.errors import RunError
from fedwatt.observers.progress_log import FILE
from fedwatt.report.page import fill
from fedwatt.report.style import LOOKS

HOST = "127.0.0.1"


class LivePage(ThreadingHTTPServer):
    """The server of one run."""

    daemon_threads = True

    def __init__(self, run: Path, port: int) -> None:
        self.run = run
        super().__init__((HOST, port), Handler)

    @cached_property
    def page(self) -> str:
        """The page as text; the log comes later."""
        looks = {
            name: {"name": look.name, "light": look.colour, "dark": look.dark}
            for name, look in LOOKS.items()
        }
        return fill("fedwatt.watch", "watch.html.jinja", run=self.run.name, looks=looks)

    def lines(self, start: int) -> bytes:
        """The complete lines of the log from byte `start` on; none where there is no log yet."""
        try:
            with (self.run / FILE).open("rb") as log:
                log.seek(start)
                found = log.read()
        except FileNotFoundError:
            return b""
        return found[: found.rfind(b"\n") + 1]


class Handler(BaseHTTPRequestHandler):
    """Answers a browser."""

    server: LivePage

    def do_GET(self) -> None:
        """One of three addresses."""
        asked = urlsplit(self.path)
        report = self.server.run / "report.html"
        if asked.path == "/":
            self.answer(self.server.page.encode(), "text/html; charset=utf-8")
        elif asked.path == "/progress":
            start = parse_qs(asked.query).get("from", ["0"])[0]
            lines = self.server.lines(int(start) if start.isdecimal() else 0)
            self.answer(lines, "application/x-ndjson; charset=utf-8")
        elif asked.path == "/report" and report.is_file():
            self.answer(report.read_bytes(), "text/html; charset=utf-8")
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def answer(self, body: bytes, kind: str) -> None:
        """Send a body that no cache keeps."""
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *values: Any) -> None:
        """Say nothing: a line every second would hide the run's own."""


@contextmanager
def serving(run: Path, *, port: int) -> Iterator[str]:
    """Serve the page of a run and give its address; 0 is any port that is free."""
    try:
        server = LivePage(run, port)
    except OSError as error:
        raise RunError(
            f"Port {port} cannot be listened on: {error.strerror}. Choose another with --port, or "
            "--port 0 for any that is free."
        ) from error
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
