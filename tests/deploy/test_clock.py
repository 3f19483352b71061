"""A vehicle whose clock is off is told so."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from fedwatt.deploy.clock import clock_ahead, clock_trouble


class Refusing(BaseHTTPRequestHandler):
    """Answers as a server does to whom it does not know: with a refusal, and its time."""

    def do_GET(self) -> None:
        self.send_response(401)
        self.end_headers()

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("off", [10.0, -75.0, 0.0])
def test_the_difference_to_the_servers_clock(off: float, server: str) -> None:
    ahead = clock_ahead(server, None, lambda: time.time() + off)
    # The header is in whole seconds, and a busy machine takes its time.
    assert ahead == pytest.approx(off, abs=2.0)


def test_what_is_said_of_it() -> None:
    assert clock_trouble(10.4) == "This vehicle's clock is 10 s ahead of the server's. Set it."
    assert clock_trouble(-75.0) == "This vehicle's clock is 75 s behind the server's. Set it."
    assert clock_trouble(1.5) == clock_trouble(None) == ""


def test_a_server_that_is_not_there_tells_no_time() -> None:
    assert clock_ahead("127.0.0.1:1", None) is None
