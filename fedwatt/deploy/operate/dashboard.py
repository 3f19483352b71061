"""The operator's page of a real fleet, with its metrics and its health, over one small web server.

    GET /                          the page
    GET /fleet.json?state=S&find=N the fleet at a glance, its rounds and its vehicles
    GET /vehicle.json?name=N       one vehicle with its last events
    GET /metrics                   for Prometheus
    GET /health/live               200 while this process answers
    GET /health/ready              200 while the fleet's server answers; 503 says why not
    GET /report                    report.html of the finished run

It asks for no password, and it only reads; so it listens on this machine unless told otherwise.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Any

from fedwatt.deploy.operate.fleet_view import FleetView
from fedwatt.deploy.operate.metrics import KIND, exposition
from fedwatt.errors import FedwattError
from fedwatt.report.page import fill
from fedwatt.report.web_server import Response


@dataclass(frozen=True)
class Dashboard:
    """Answers for one fleet."""

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
                return self._ready()
            case "/report" if report.is_file():
                return Response(report.read_bytes())
        return None

    def _ready(self) -> Response | None:
        self.view.refresh()
        server = self.view.server
        if server is None or not server.trouble:
            return _json({"ready": True})
        return _json({"ready": False, "why": server.trouble}, HTTPStatus.SERVICE_UNAVAILABLE)


def _json(table: Mapping[str, Any] | None, status: HTTPStatus = HTTPStatus.OK) -> Response | None:
    """Return a table as a reply; None where there is none."""
    if table is None:
        return None
    body = json.dumps(table, ensure_ascii=False).encode()
    return Response(body, "application/json; charset=utf-8", status)
