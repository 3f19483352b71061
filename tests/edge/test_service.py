"""The HTTP service: its contract, and what it refuses."""

import asyncio
import json
import socket
import subprocess
import sys
import time

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from fedwatt.edge.handlers import Handlers, document, first_problem
from fedwatt.edge.service import LARGEST_BODY, application

POINTS = [{"latitude_deg": 48 + i / 500, "longitude_deg": 11.0} for i in range(30)]
ROUTE = {"points": POINTS, "temperature_c": 5.0}
APP = application(Handlers.of("leaf-24"), names=("testserver",))
SCHEMA = schemathesis.openapi.from_dict(document())


class Client:
    """Requests to an application in this process."""

    def __init__(self, app):
        self.app = app

    def request(self, method, path, **options):
        async def sent():
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as out:
                return await out.request(method, path, **options)

        return asyncio.run(sent())

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, **options):
        return self.request("POST", path, **options)


@pytest.fixture(scope="module")
def client():
    return Client(APP)


@pytest.fixture(scope="module")
def address():
    """Address of the service as users run it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "fedwatt", "serve", "leaf-24", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        for _ in range(100):
            try:
                assert httpx.get(f"http://127.0.0.1:{port}/health").json()["status"] == "ok"
                break
            except httpx.TransportError:
                time.sleep(0.2)
        yield "127.0.0.1", port
    finally:
        server.terminate()
        server.wait(timeout=20)


@SCHEMA.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_contract_holds_on_the_running_service(case, address):
    # A route that fits the schema may still lead through the sea: 422 is an answer to it.
    url = "http://{}:{}".format(*address)
    case.call_and_validate(base_url=url, excluded_checks=[positive_data_acceptance])


def test_a_route_in_each_form_is_the_same(client):
    line = [[p["longitude_deg"], p["latitude_deg"]] for p in POINTS]
    tracks = "".join(f'<trkpt lat="{lat}" lon="{lon}"/>' for lon, lat in line)
    bodies = [
        ROUTE,
        {"geometry": {"type": "LineString", "coordinates": line}, "temperature_c": 5.0},
        {"gpx": f"<gpx><trk><trkseg>{tracks}</trkseg></trk></gpx>", "temperature_c": 5.0},
    ]
    answers = [client.post("/route", json=body).json() for body in bodies]
    assert answers[0]["distance_km"] == pytest.approx(6.45, abs=0.02)
    assert answers[0]["energy_kwh"] == answers[1]["energy_kwh"] == answers[2]["energy_kwh"]
    low, high = answers[0]["energy_kwh"]["interval_90"]
    assert low < answers[0]["energy_kwh"]["interval_50"][0] < high
    assert answers[0]["soc_percent"] is None


def test_a_state_of_charge_gives_that_on_arrival(client):
    body = ROUTE | {"soc_percent": 60.0, "load_kg": 150.0}
    result = client.post("/route", json=body).json()
    left = result["soc_percent"]["expected"]
    assert left == pytest.approx(60 - 100 * result["energy_kwh"]["expected"] / 21.3, abs=0.1)
    assert result["answer"].startswith(f"You arrive with {left:.0f} %")
    assert result["arrival_probability"] == 0.99


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        (b"{", 400, "no JSON"),
        (b"\xff\xfe", 400, "no JSON"),
        (b"[" * 100_000, 400, "no JSON"),
        (b'{"temperature_c": NaN, "points": []}', 422, "is not of type"),
        (b'{"temperature_c": 1e999, "points": []}', 422, "is not of type"),
        (b'{"temperature_c": ' + b"9" * 5000 + b"}", 400, "no JSON"),
        (b"[]", 422, "The body: value is not of type"),
        (b'{"temperature_c": 300, "points": []}', 422, "greater than the maximum of 60"),
        (json.dumps(ROUTE | {"speed": 1}).encode(), 422, "'speed' was unexpected"),
        (json.dumps(ROUTE | {"gpx": "<gpx/>"}).encode(), 422, "'oneOf'"),
        (json.dumps({"gpx": "<gpx/>", "temperature_c": 1}).encode(), 422, "neither a track"),
        (json.dumps({"gpx": "<a>" * 500_000, "temperature_c": 1}).encode(), 422, "GPX"),
        (json.dumps(ROUTE | {"points": POINTS[:1] * 20_001}).encode(), 422, "more than 20000"),
        (b" " * (LARGEST_BODY + 1), 413, "larger than"),
    ],
)
def test_bodies_that_are_refused(client, content, status, message):
    reply = client.post("/route", content=content, headers={"content-type": "application/json"})
    assert (reply.status_code, message in reply.json()["error"]) == (status, True), reply.text


def test_another_host_another_type_and_another_method_are_refused(client):
    assert client.get("/health", headers={"host": "evil.example"}).status_code == 421
    assert client.get("/health", headers={"host": "127.0.0.1:8765"}).status_code == 200
    reply = client.post("/route", content=json.dumps(ROUTE), headers={"content-type": "text/plain"})
    assert reply.status_code == 415
    assert client.get("/route").status_code == 405


def test_a_token_is_needed_for_all_but_the_page_and_health():
    client = Client(application(Handlers.of("leaf-24"), names=("testserver",), token="s" * 20))
    assert client.get("/health").status_code == client.get("/").status_code == 200
    assert client.get("/model").status_code == 401
    wrong = {"authorization": "Bearer x"}
    assert client.post("/route", json=ROUTE, headers=wrong).status_code == 401
    right = {"authorization": f"Bearer {'s' * 20}"}
    assert client.post("/route", json=ROUTE, headers=right).status_code == 200


def test_an_xml_bomb_is_refused(client):
    entities = (
        '<!ENTITY a "'
        + "x" * 1000
        + '">'
        + "".join(f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 50}">' for i in range(8))
    )
    bomb = f"<!DOCTYPE gpx [{entities}]><gpx><trk>&i;</trk></gpx>"
    reply = client.post("/route", json={"gpx": bomb, "temperature_c": 1.0})
    assert reply.status_code == 422


def test_the_page_runs_only_its_own_script(client):
    reply = client.get("/")
    policy = reply.headers["content-security-policy"]
    nonce = policy.partition("'nonce-")[2].partition("'")[0]
    assert f'nonce="{nonce}"' in reply.text and "NONCE" not in reply.text
    assert client.get("/").text != reply.text


def test_the_document_names_its_bounds():
    assert document()["openapi"].startswith("3.")
    channels = document()["components"]["schemas"]["TripRequest"]["properties"]["channels"]
    assert channels["properties"]["speed_mps"]["items"]["maximum"] == 70
    assert first_problem({"channels": {"speed_mps": [1]}}, "TripRequest") == (
        'Field channels: "ambient_c" is a required property.'
    )


def test_an_open_address_needs_a_token():
    done = subprocess.run(
        [sys.executable, "-m", "fedwatt", "serve", "leaf-24", "--host", "0.0.0.0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2 and "--token" in done.stderr


def test_it_drops_silent_connections_and_goes_on(address):
    with socket.create_connection(address) as silent:
        silent.sendall(b"GET /health HTTP/1.1\r\nHost: 127")
        silent.settimeout(20)
        assert silent.recv(100) == b""
    reply = httpx.post("http://{}:{}/route".format(*address), json=ROUTE, timeout=20)
    assert reply.status_code == 200
