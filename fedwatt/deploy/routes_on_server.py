"""The server's side of routes on a real fleet: totals of secure sums, and no others.

The driving field that comes of the first goes to the vehicles that are in it; all that a route
needs lies in the run folder in the end, as after a simulation (`runs.routes`).
"""

import logging
from dataclasses import dataclass
from pathlib import Path

from fedwatt.deploy.hills_on_server import PublishedHills, secret_draws
from fedwatt.deploy.messages import Content, Value
from fedwatt.deploy.roster import Roster
from fedwatt.deploy.routes_on_board import ASKS, FIELD
from fedwatt.deploy.secret_totals import SecretTotals
from fedwatt.deploy.state import RunState
from fedwatt.elevation.summands import Total
from fedwatt.errors import DataError, RunError
from fedwatt.files import write_bytes
from fedwatt.journeys.driving_exchange import DrivingQuestion, learn_driving
from fedwatt.journeys.fleet_routes import FleetRoutes
from fedwatt.journeys.route_exchange import TooFewTeach, fewest_teachers, learn_from_pupils
from fedwatt.journeys.route_files import fleet_from_bytes, fleet_to_bytes
from fedwatt.journeys.route_questions import RouteQuestion, SharedDriving
from fedwatt.runs.routes import ROUTES

log = logging.getLogger("fedwatt.deploy")


def routes_of_run(
    out: Path, roster: Roster, run: RunState, hills: PublishedHills, *, resume: bool
) -> FleetRoutes | None:
    """The routes of a run, learned now or before a cut-off; None where too few can teach them."""
    file = out / ROUTES
    if resume and file.exists():
        try:
            return fleet_from_bytes(file.read_bytes(), str(file))
        except DataError as problem:
            raise RunError(f"{problem} Delete {file}: --resume then learns it anew.") from problem
    try:
        found = learn_routes(roster, run, hills)
    except TooFewTeach as reason:
        log.warning("routes: nothing is shared. %s", reason)
        return None
    write_bytes(file, fleet_to_bytes(found))
    cells = len(found.driving.keys)
    log.info("routes: %d places and headings, learned from %d vehicles", cells, found.vehicles)
    return found


def learn_routes(roster: Roster, run: RunState, hills: PublishedHills) -> FleetRoutes:
    """The routes that the connected vehicles learn together, under masks."""
    settings = roster.config.terrain
    everyone = frozenset(c.name for c in roster.fleet().clients if not c.held_out)
    if len(everyone) < fewest_teachers(settings):
        raise TooFewTeach(len(everyone), fewest_teachers(settings))
    pupils = RoadPupils(roster, run, hills)
    driving, insiders = learn_driving(pupils.total, everyone, settings, secret_draws)
    return learn_from_pupils(pupils, driving, insiders, settings, hills.published)


@dataclass
class RoadPupils:
    """Vehicles on the road that teach the server routes; `field` is what they drive by."""

    roster: Roster
    run: RunState
    hills: PublishedHills
    field: str = ""

    def share(self, shared: SharedDriving, present: frozenset[str]) -> frozenset[str]:
        """Send the vehicles the driving field; those that have taken it."""
        self.field = shared.digest
        question = Content(dict(self.hills.common), shared.arrays)
        seconds = self.roster.config.deploy.round_seconds
        told = self.roster.hand_out(question, sorted(present), seconds)
        taken = frozenset(name for name, digest in told.items() if digest == self.field)
        for name in sorted(present - taken):
            log.warning("routes: %s did not take the driving field, and is left out", name)
        return taken

    def total(self, question: DrivingQuestion | RouteQuestion, present: frozenset[str]) -> Total:
        """The totals of a question over the vehicles named, and whose answers are in them."""
        about = self.hills.question_values
        totals = SecretTotals(self.roster, self.run, "routes", "secure-routes", self._asked, about)
        return totals(question, present)

    def _asked(self, question: DrivingQuestion | RouteQuestion) -> Content:
        values: dict[str, Value] = {ASKS: question.kind}
        if isinstance(question, RouteQuestion):
            values[FIELD] = self.field
        return Content(values, question.arrays)
