"""The operator's page of a real fleet, with its metrics and its health, over one small web server.

    GET /                          the page
    GET /fleet.json?state=S&find=N the fleet at a glance, its rounds and its vehicles
    GET /vehicle.json?name=N       one vehicle with its last events
    GET /metrics                   for Prometheus
    GET /health/live               200 while this process answers
    GET /health/ready              200 while the fleet's server answers; 503 says why not
    GET /report                    report.html of the finished run

It asks for no password, and it only reads; so it listens on this machine unless told otherwise.

Metrics are in the text format that Prometheus scrapes,
https://prometheus.io/docs/instrumenting/exposition_formats/ (version 0.0.4). No label names a
vehicle: a series for each of ten thousand vehicles would cost the database more than it tells; the
page has them.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Any

from fedwatt.deploy.operate.fleet_view import STATES, FleetView
from fedwatt.deploy.server.requests import REPLIES
from fedwatt.deploy.server.run_state import RUNNING
from fedwatt.errors import FedwattError
from fedwatt.report.page import fill
from fedwatt.report.web_server import Response

KIND = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[Mapping[str, str], float | int | None]
"""Labels and a value; None: unknown, and left out."""


@dataclass(frozen=True)
class Dashboard:
    """The page of one fleet and the numbers that it requests."""

    view: FleetView

    @cached_property
    def page(self) -> bytes:
        """Return the HTML page, which then requests its numbers."""
        return fill("fedwatt.deploy.operate", "dashboard.html.jinja", light={}, dark={}).encode()

    def answer(self, path: str, query: Mapping[str, str]) -> Response | None:
        """Return the reply at one of the addresses above; None at any other."""
        try:
            return self._answer(path, query)
        except FedwattError as error:
            # Such as a damaged file, which the operator is to read about.
            return _json({"trouble": str(error)}, HTTPStatus.SERVICE_UNAVAILABLE)

    def _answer(self, path: str, query: Mapping[str, str]) -> Response | None:
        view = self.view
        report = view.run.folder / "report.html"
        match path:
            case "/":
                return Response(self.page)
            case "/fleet.json":
                return _json(view.summary(query.get("state", ""), query.get("find", "")))
            case "/vehicle.json":
                return _json(view.vehicle(query.get("name", "")))
            case "/metrics":
                return Response(exposition(view).encode(), KIND)
            case "/health/live":
                return _json({"live": True})
            case "/health/ready":
                view.refresh()
                why = "" if view.server is None else view.server.trouble
                status = HTTPStatus.SERVICE_UNAVAILABLE if why else HTTPStatus.OK
                return _json({"ready": not why, "why": why}, status)
            case "/report" if report.is_file():
                return Response(report.read_bytes())
        return None


def _json(table: Mapping[str, Any] | None, status: HTTPStatus = HTTPStatus.OK) -> Response | None:
    """Return a table as a reply; None where there is none."""
    if table is None:
        return None
    body = json.dumps(table, ensure_ascii=False).encode()
    return Response(body, "application/json; charset=utf-8", status)


def exposition(view: FleetView) -> str:
    """Return all metrics of a fleet as text for Prometheus."""
    with view.lock:
        view.refresh()
        lines = [line for family in _families(view) for line in family]
    return "\n".join(lines) + "\n"


def _families(view: FleetView) -> Iterator[Iterable[str]]:
    run = view.run
    server = view.server
    methods = view.methods()
    states = view.states()
    doing = run.state
    outcomes = list(run.in_round.values())
    running = None if doing is None else int(doing.doing.startswith(RUNNING))
    yield _family("run_running", "1 while the run continues, else 0.", [({}, running)])
    up = None if server is None else int(not server.trouble)
    yield _family("server_up", "1 while the fleet's server answers, else 0.", [({}, up)])
    yield _family("vehicles_enrolled", "Vehicles of the run.", [({}, len(run.members))])
    yield _family("vehicles_online", "Vehicles that are connected.", [({}, view.online())])
    yield _family(
        "vehicles",
        "Vehicles by their state.",
        [({"state": state}, states.get(state, 0)) for state in STATES],
    )
    yield _family(
        "round_vehicles",
        "Vehicles that the latest round asked, by outcome.",
        [({"outcome": event}, outcomes.count(event)) for event in REPLIES],
    )
    for name, meaning, column in (
        ("rounds_done", "Rounds that a method has completed.", "round"),
        ("rounds_planned", "Rounds that a method is to have.", "of"),
        ("round_seconds", "How long the last round took.", "seconds"),
        ("test_rmse", "Test error of the last round's model, in the unit of its target.", "rmse"),
        ("epsilon", "Privacy that a private method has spent.", "epsilon"),
    ):
        yield _family(name, meaning, [({"method": m["method"]}, m[column]) for m in methods])
    yield _family(
        "last_model_timestamp_seconds", "When a round was last completed.", [({}, run.last_model())]
    )
    yield _family("disk_free_bytes", "Free disk where the run is.", [({}, view.disk_free())])
    yield _family(
        "certificate_expiry_timestamp_seconds",
        "When a certificate of the key store ends.",
        [({"certificate": n}, at) for n, at in (server.certificates() if server else {}).items()],
    )


def _family(name: str, meaning: str, samples: Iterable[Sample]) -> Iterator[str]:
    """Yield the lines of one metric in Prometheus format; none if all its values are unknown."""
    present = [(labels, value) for labels, value in samples if value is not None]
    if present:
        yield f"# HELP fedwatt_{name} {meaning}"
        yield f"# TYPE fedwatt_{name} gauge"
    for labels, value in present:
        yield f"fedwatt_{name}{_labels(labels)} {value!r}"


def _labels(labels: Mapping[str, str]) -> str:
    """Return labels in braces.

    >>> _labels({"method": "fedavg", "le": "0.1"})
    '{method="fedavg",le="0.1"}'
    """
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
