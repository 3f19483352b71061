"""The operator's page of a real fleet, with its metrics and its health, over one small web server.

    GET /                          the page
    GET /fleet.json?state=S&find=N the fleet at a glance, its rounds and its vehicles
    GET /vehicle.json?name=N       one vehicle with its last events
    GET /round.json?method=M&round=T   one round with what became of each vehicle
    GET /metrics                   for Prometheus
    GET /health/live               200 while this process answers
    GET /health/ready              200 while the fleet's server answers; 503 says why not
    GET /report                    report.html of the finished run

Nobody is asked for a password, and it only reads; so it listens on this machine unless told
otherwise.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from threading import Event, Thread
from typing import Any, Final

from fedwatt.deploy.operate.alerts import Watchman, firing, history
from fedwatt.deploy.operate.fleet_view import FleetView
from fedwatt.deploy.operate.metrics import KIND, exposition
from fedwatt.errors import FedwattError
from fedwatt.report.page import fill
from fedwatt.report.web_server import HOST, Reply, answering

log = logging.getLogger("fedwatt.alerts")

ALERT_SECONDS: Final = 15.0
"""Between two looks at the rules."""
SHOWN: Final = 20
"""Changes of alerts that the page lists."""


@dataclass(frozen=True)
class Dashboard:
    """Answers for one fleet."""

    view: FleetView
    watchman: Watchman

    @cached_property
    def page(self) -> bytes:
        """The page; its numbers come later."""
        return fill("fedwatt.deploy.operate", "dashboard.html.jinja").encode()

    def answer(self, path: str, query: Mapping[str, str]) -> Reply | None:
        """One of the addresses above."""
        if path == "/health/live":
            return _json({"live": True})
        try:
            return self._answer(path, query)
        except FedwattError as error:
            # Such as a damaged file, which the operator is to read about.
            return _json({"trouble": str(error)}, HTTPStatus.SERVICE_UNAVAILABLE)

    def _answer(self, path: str, query: Mapping[str, str]) -> Reply | None:
        view = self.view
        report = self.view.run.folder / "report.html"
        match path:
            case "/":
                return Reply(self.page)
            case "/fleet.json":
                summary = view.summary(query.get("state", ""), query.get("find", ""))
                return _json(summary | self._alerts())
            case "/vehicle.json":
                return _found(view.vehicle(query.get("name", "")))
            case "/round.json":
                number = query.get("round", "")
                round = int(number) if number.isdecimal() else -1
                return _found(view.round(query.get("method", ""), round))
            case "/metrics":
                return Reply(exposition(view, self.watchman.counts()).encode(), KIND)
            case "/health/ready":
                return self._ready()
            case "/report" if report.is_file():
                return Reply(report.read_bytes())
        return None

    def _alerts(self) -> dict[str, Any]:
        folder = self.view.run.folder
        changes = list(history(folder))[-SHOWN:]
        return {
            "firing": [vars(change) for change in firing(folder).values()],
            "changes": [vars(change) for change in changes[::-1]],
        }

    def _ready(self) -> Reply:
        self.view.refresh()
        server = self.view.server
        if server is None or server.up:
            return _json({"ready": True})
        return _json({"ready": False, "why": server.why}, HTTPStatus.SERVICE_UNAVAILABLE)


def _json(table: Mapping[str, Any], status: HTTPStatus = HTTPStatus.OK) -> Reply:
    body = json.dumps(table, ensure_ascii=False).encode()
    return Reply(body, "application/json; charset=utf-8", status)


def _found(table: Mapping[str, Any] | None) -> Reply | None:
    return None if table is None else _json(table)


@contextmanager
def dashboard(view: FleetView, watchman: Watchman, *, port: int, host: str = HOST) -> Iterator[str]:
    """Serve the page, look at the rules of alerts meanwhile, and give the address."""
    over = Event()

    def look() -> None:
        while not over.is_set():
            try:
                watchman.look()
            except FedwattError as error:
                log.error("%s", error)
            over.wait(ALERT_SECONDS)

    with answering(Dashboard(view, watchman).answer, port=port, host=host) as address:
        thread = Thread(target=look, daemon=True)
        thread.start()
        try:
            yield address
        finally:
            over.set()
            thread.join(2.0)  # a webhook may hang; the process need not wait for it
