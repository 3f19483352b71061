"""The server's side of elevation maps and routes: totals of sums over places, and no others.

The elevation map is learned once, sent to all vehicles, also to those that join later, and lies in
the run folder. The driving map goes to the vehicles whose sums are in it.
"""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from fedwatt.deploy import log
from fedwatt.deploy.server.members import Roster
from fedwatt.deploy.server.requests import BackgroundRequests
from fedwatt.deploy.server.run_state import RunState
from fedwatt.deploy.server.sums import PlaceSums
from fedwatt.deploy.vehicle.messages import ReplyForm
from fedwatt.deploy.wire import Content, Value
from fedwatt.elevation.elevation_map import (
    ElevationMap,
    evaluated_prefix,
    map_digest,
    map_to_arrays,
)
from fedwatt.elevation.exchange import learn_from_totals
from fedwatt.elevation.request import MapRequest
from fedwatt.elevation.store import Provenance, read_map_file, read_provenance, write_map_file
from fedwatt.errors import DataError, RunError
from fedwatt.files import write_bytes
from fedwatt.journeys.driving_exchange import DrivingRequest, learn_driving
from fedwatt.journeys.fleet_routes import FleetRoutes
from fedwatt.journeys.route_exchange import (
    RouteRequest,
    SharedDriving,
    TooFewContributors,
    fewest_contributors,
    learn_from_contributors,
)
from fedwatt.journeys.route_files import fleet_from_bytes, fleet_to_bytes
from fedwatt.metrics.sums import Total
from fedwatt.runs.journeys import ROUTES

AGAIN_SECONDS = 10.0
"""After which a vehicle that could not take the map is sent it again."""


def training_vehicles(roster: Roster) -> frozenset[str]:
    """Return the names of the vehicles that are not held out."""
    return frozenset(client.name for client in roster.fleet().clients if not client.held_out)


def elevation_of_run(
    out: Path, roster: Roster, run: RunState, *, resume: bool
) -> tuple[ElevationMap, int]:
    """Return the map of a run and how many vehicles it is from: learned now, or before a kill."""
    file = out / "elevation_map.parquet"
    if resume and file.exists():
        try:
            earlier = read_map_file(file)
            provenance = read_provenance(file)
        except DataError as error:
            raise RunError(f"{error} Start anew with a new plan and another --out.") from error
        log.info("elevation: %d nodes, learned before", earlier.nodes)
        return earlier, 0 if provenance is None else len(provenance.vehicles)
    settings = roster.config.elevation
    sums = PlaceSums(roster, run, "elevation", _elevation_request)
    learned = learn_from_totals(sums, training_vehicles(roster), settings)
    vehicles = len(learned.contributors)
    nodes = learned.elevation_map.nodes
    log.info("elevation: %d nodes, of %d vehicles. %s", nodes, vehicles, learned.nothing)
    provenance = Provenance.by(learned.contributors, roster.config.data)
    write_map_file(file, learned.elevation_map, provenance=provenance)
    return learned.elevation_map, vehicles


def _elevation_request(request: MapRequest) -> Content:
    """Return the fields of a request for elevation sums."""
    arrays = {"nodes": request.nodes}
    if request.elevation_map is not None:
        arrays |= map_to_arrays(request.elevation_map)
    for number, candidate in enumerate(request.evaluated):
        arrays |= map_to_arrays(candidate, evaluated_prefix(number))
    values: dict[str, Value] = {
        "count": request.elevation_map is None and not request.evaluated,
        "evaluated": len(request.evaluated),
        "segment_s": request.segment_s,
    }
    return Content(values, arrays)


@dataclass
class PublishedMap:
    """The elevation map of a run, and which vehicles have it."""

    published: ElevationMap
    roster: Roster
    holders: set[int] = field(default_factory=set)

    @cached_property
    def offers(self) -> BackgroundRequests:
        """Return the requests that offer the map, one node at a time."""
        return BackgroundRequests(self.roster.requests, ReplyForm("elevation-map"))

    @cached_property
    def digest(self) -> str:
        """Return the digest that vehicles confirm."""
        return map_digest(self.published)

    @cached_property
    def requests(self) -> dict[bool, Content]:
        """Return the requests to take the map, by whether the vehicle extends it.

        Held-out vehicles stand for those that join later: they add nothing of their own.
        """
        arrays = map_to_arrays(self.published)
        values: dict[str, Value] = {"kind": "elevation-map", "plan": self.roster.plan.digest}
        return {extend: Content({**values, "extend": extend}, arrays) for extend in (True, False)}

    def offer(self) -> None:
        """Send the map to vehicles that are not known to have it, without waiting."""
        for node, reply in self.offers.receive().items():
            if reply.content is not None and reply.content.values["map"] == self.digest:
                self.holders.add(node)
            else:
                log.warning("node %d could not take the map; its own log says why", node)
                self.offers.pause([node], AGAIN_SECONDS)
        roster = self.roster
        without = roster.online.keys() - self.holders
        names = {m.node: name for name, m in roster.members.items() if m.node in without}
        ready = self.offers.ready(names)
        held_out = roster.held_out()
        contents = {node: self.requests[names[node] not in held_out] for node in ready}
        self.offers.send(contents, roster.config.deploy.round_seconds)

    def wait(self) -> None:
        """Wait until all connected vehicles have the map, or time is up; RunError if none has."""

        def answered() -> bool:
            self.roster.refresh()
            return not self.offers.waiting

        self.roster.requests.wait(answered, self.roster.config.deploy.round_seconds)
        if not self.holders:
            raise RunError(
                "No vehicle took the elevation map. Their own logs say why; --resume tries again."
            )


def routes_of_run(
    out: Path, roster: Roster, run: RunState, published: ElevationMap, *, resume: bool
) -> FleetRoutes | None:
    """Return the routes of a run, learned now or before a kill; None where too few contribute."""
    file = out / ROUTES
    if resume and file.exists():
        try:
            return fleet_from_bytes(file.read_bytes(), str(file))
        except DataError as error:
            raise RunError(f"{error} Delete {file}: --resume then learns it anew.") from error
    settings = roster.config.elevation
    everyone = training_vehicles(roster)
    contributors = ConnectedContributors(roster, PlaceSums(roster, run, "routes", _routes_request))
    try:
        if len(everyone) < fewest_contributors(settings):
            raise TooFewContributors(len(everyone), fewest_contributors(settings))
        driving, insiders = learn_driving(contributors.total, everyone, settings)
        routes = learn_from_contributors(contributors, driving, insiders, settings, published)
    except TooFewContributors as reason:
        log.warning("routes: nothing is shared. %s", reason)
        return None
    write_bytes(file, fleet_to_bytes(routes))
    cells = len(routes.driving.keys)
    log.info("routes: %d places and headings, learned from %d vehicles", cells, routes.vehicles)
    return routes


def _routes_request(request: DrivingRequest | RouteRequest) -> Content:
    """Return the fields of a request for route sums."""
    return Content({"asks": request.kind}, request.arrays)


@dataclass
class ConnectedContributors:
    """Connected vehicles that contribute to routes."""

    roster: Roster
    sums: PlaceSums

    def share(self, shared: SharedDriving, present: frozenset[str]) -> frozenset[str]:
        """Send the vehicles the driving map; return those that have taken it."""
        values: dict[str, Value] = {"kind": "driving-map", "plan": self.roster.plan.digest}
        request = Content(values, shared.arrays)
        seconds = self.roster.config.deploy.round_seconds
        requests = dict.fromkeys(sorted(present), request)
        replies = self.roster.ask(ReplyForm("driving-map"), requests, seconds)
        taken = frozenset(
            name
            for name, reply in replies.items()
            if reply.content is not None and reply.content.values["map"] == shared.digest
        )
        for name in sorted(present - taken):
            log.warning("routes: %s did not take the driving map, and is left out", name)
        return taken

    def total(self, request: DrivingRequest | RouteRequest, present: frozenset[str]) -> Total:
        """Return the totals of a request over the vehicles named, and who is in them."""
        return self.sums(request, present)
