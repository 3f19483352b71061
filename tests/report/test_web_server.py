"""The web server of pages against clients that mean harm, over real sockets."""

import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from fedwatt.report import web_server as local_server
from fedwatt.report.web_server import Response, answering


def page(path: str, query: Mapping[str, str]) -> Response | None:
    return Response(b"the page") if path == "/" else None


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    with answering(page, port=0) as url:
        parts = urlsplit(url)
        assert parts.hostname and parts.port
        yield parts.hostname, parts.port


def response_to(address: tuple[str, int], host: str | None) -> bytes:
    """The first line of the answer to a request with this Host header."""
    head = "" if host is None else f"Host: {host}\r\n"
    with socket.create_connection(address, timeout=5) as connection:
        connection.sendall(f"GET / HTTP/1.1\r\n{head}\r\n".encode())
        return connection.makefile("rb").read()


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST", "[::1]:80"])
def test_names_of_this_machine(address: tuple[str, int], host: str) -> None:
    assert response_to(address, host.format(port=address[1])).endswith(b"the page")


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "[", "", None])
def test_another_name_is_refused(address: tuple[str, int], host: str | None) -> None:
    message = response_to(address, host)
    assert message.startswith(b"HTTP/1.0 421 ")
    assert b"the page" not in message


def test_half_open_requests_end(address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_server, "SECONDS", 1.0)
    begun = time.monotonic()
    with socket.create_connection(address, timeout=10) as connection:
        # A byte now and then does not prolong it.
        for letter in b"GET / HTTP/1.1\r\nX: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa":
            try:
                connection.sendall(bytes([letter]))
            except OSError:
                break
            time.sleep(0.1)
            if time.monotonic() - begun > 4:
                pytest.fail("the connection was still open after 4 s")
    assert time.monotonic() - begun >= 1


def test_no_more_threads_than_connections(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_ones = [socket.create_connection(address, timeout=5) for _ in range(40)]
    try:
        time.sleep(0.3)
        # Those above the limit are closed at once, the others wait for their request.
        closed = 0
        for connection in open_ones:
            connection.setblocking(False)
            with suppress(BlockingIOError):
                closed += connection.recv(1) == b""
        assert closed == 40 - local_server.CONNECTIONS
        monkeypatch.setattr(local_server, "SECONDS", 0.1)
        time.sleep(2)  # now the others have ended, too
        assert response_to(address, "localhost").endswith(b"the page")
    finally:
        for connection in open_ones:
            connection.close()
