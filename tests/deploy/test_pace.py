"""A vehicle that sends and receives no more than its owner allows."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("flwr")

from flwr.supernode import fleet_http_connection

from fedwatt.deploy import flower
from fedwatt.deploy.fleet_client import FleetClient
from fedwatt.deploy.pace import Pace, bytes_per_second
from fedwatt.errors import SettingError


class Echo(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def echo() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("text", ["fast", "200", "200kB", "200 KB/s", "-1kB/s", "10B/s"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="such as 200kB/s"):
        bytes_per_second(text)


def test_every_byte_waits_for_its_turn() -> None:
    now, slept = [10.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = Pace(1000.0, lambda: now[0], sleep)
    for count in (500, 500, 250):
        pace.take(count)
    # The first goes at once, and each of the others when the one before is over.
    assert slept == pytest.approx([0.5, 0.5])
    now[0] += 60.0  # an idle minute saves nothing up
    pace.take(1000)
    pace.take(1)
    assert slept[2:] == pytest.approx([1.0])


def test_requests_and_answers_go_at_the_pace(echo: str) -> None:
    body = bytes(range(256)) * 400  # 102 kB
    client = type("Paced", (FleetClient,), {"bandwidth": 200_000.0})(echo)
    began = time.monotonic()
    answer = client._client.post(f"{echo}/v1/fleet/push-messages", content=body)
    took = time.monotonic() - began
    assert answer.content == body
    # Half a second each way, but that the first 50 kB of each go at once.
    assert took > 0.5
    client._client.close()
    with FleetClient(echo) as usual:
        began = time.monotonic()
        assert usual._client.post(f"{echo}/v1/fleet/push-messages", content=body).content == body
        assert time.monotonic() - began < took


def test_a_session_has_the_clients_bandwidth(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(fleet_http_connection, "http_request_response", lambda *a, **k: None)
    monkeypatch.setattr(fleet_http_connection, "FleetHttpClient", FleetClient)
    for rate in (0.0, 5000.0):
        flower.open_session("127.0.0.1:9092", None, None, rate)
        made.append(fleet_http_connection.FleetHttpClient.bandwidth)
    assert made == [0.0, 5000.0]
