"""Vehicles of a run: names, numbers of windows, and the nodes that answer for them.

A vehicle enrols by accepting the plan. It must have the name of the certificate that its key was
registered with, and a name that a connected node answers for is not given to a second one. A
vehicle may enrol at any time; the plan names conditions, not vehicles.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median_low
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

import fedwatt
from fedwatt.deploy import log
from fedwatt.deploy.plan.plan import Plan
from fedwatt.deploy.server.requests import (
    AWAY,
    ENROLLED,
    EVENTS,
    TURNED_AWAY,
    BackgroundRequests,
    EventLog,
    Reply,
    Requests,
)
from fedwatt.deploy.vehicle.messages import ReplyForm, enrolment_form
from fedwatt.deploy.wire import Content
from fedwatt.errors import RunError
from fedwatt.federation.evaluate import MOST_WINDOWS
from fedwatt.federation.participation import BoolArray
from fedwatt.files import append_rows, read_rows
from fedwatt.runs.config import RunConfig
from fedwatt.windows import DataSettings, Fleet
from fedwatt.windows.client import Client
from fedwatt.windows.splits import SPLITS, held_out_vehicles, natural_key

if TYPE_CHECKING:
    from fedwatt.deploy.server.maps import PublishedMap

FILE = "members.jsonl"
AGAIN_SECONDS = 30.0
"""After which a node that was turned away is asked again."""
TAKEN_SECONDS = 10.0
"""The same where its name is taken: it may come back before its old connection is over."""
TAKEN = "another node already answers for"


@dataclass(frozen=True)
class Member:
    """The server's record of an enrolled vehicle."""

    name: str
    node: int
    windows: tuple[int, int, int]
    """Training, validation and test windows; 0 under secure aggregation."""


@dataclass
class Roster:
    """The vehicles of a run; grows when new ones enrol."""

    requests: Requests
    plan: Plan
    signed_plan: bytes
    path: Path
    """A line per member; of two with one name, the latter counts."""
    members: dict[str, Member] = field(default_factory=dict)
    online: dict[int, str] = field(default_factory=dict)
    """Connected nodes, with the names that their keys are registered under."""
    away: dict[int, float] = field(default_factory=dict)
    """Nodes that are outside their hours until a time."""
    published: "PublishedMap | None" = None
    """The elevation map that vehicles must have before they can train."""
    enrolments: BackgroundRequests = field(init=False)
    events: EventLog = field(init=False)
    _fleet: tuple[tuple[object, ...], Fleet] | None = None

    def __post_init__(self) -> None:
        form = enrolment_form(hidden=self.hidden)
        self.enrolments = BackgroundRequests(self.requests, form)
        self.events = EventLog(self.path.with_name(EVENTS))

    @property
    def config(self) -> RunConfig:
        """Return the plan's configuration."""
        return self.plan.config

    @property
    def hidden(self) -> bool:
        """Tell whether secure aggregation hides the numbers of single vehicles."""
        return self.config.secure.enabled

    def load(self) -> None:
        """Read the vehicles of an interrupted run from disk."""
        try:
            rows = read_rows(self.path)
            members = [Member(**row | {"windows": tuple(row["windows"])}) for row in rows]
            if not self.hidden and not all(_possible(m.windows) for m in members):
                raise ValueError("a vehicle has an impossible number of windows")
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise RunError(f"{self.path} is damaged: {error}. Delete it.") from error
        self.members = {member.name: member for member in members}

    def wait(self) -> None:
        """Let vehicles enrol until as many are there as the plan says, or time is up.

        A continued run waits for those it had, and goes on with those that are there.
        """
        before = len(self.members)
        seconds = self.config.deploy.enrolment_seconds
        vehicles = before or self.config.deploy.vehicles

        def enrolled() -> int:
            return sum(self.is_ready(name) or self.is_away(name) for name in self.members)

        def complete() -> bool:
            self.refresh()
            return 0 < vehicles <= enrolled()

        self.requests.wait(complete, seconds)
        present = enrolled()
        if not present or (vehicles and present < vehicles and not before):
            raise RunError(
                f"{present} of {vehicles or 'any'} vehicles enrolled within {seconds:g} s. Start "
                "'fedwatt deploy vehicle' in each, or sign a plan with other deploy.vehicles."
            )
        log.info("%d vehicles enrolled", present)

    def refresh(self) -> None:
        """Update who is connected, ask new vehicles to enrol and admit those that have."""
        self.online = self.requests.channel.nodes()
        self.away = {node: until for node, until in self.away.items() if node in self.online}
        self._admit(self.enrolments.receive())
        enrolled = {member.node for member in self.members.values()}
        new = self.enrolments.ready(node for node in self.online if node not in enrolled)
        request = Content({"kind": "enrol", "signed_plan": self.signed_plan})
        seconds = self.config.deploy.enrolment_seconds
        self.enrolments.send(dict.fromkeys(new, request), seconds)
        if self.published is not None:
            self.published.offer()

    def _admit(self, replies: Mapping[int, Reply]) -> None:
        """Enter the vehicles that have enrolled, and turn the others away."""
        lines = []
        admitted = []
        for node, reply in replies.items():
            reason = reply.reason if reply.content is None else self._fault(node, reply.content)
            if reason or reply.content is None:
                name = self.online.get(node) or f"node {node}"
                self._turn_away(node, reason)
                lines.append({"event": TURNED_AWAY, "vehicle": name, "reason": reason[:200]})
                continue
            member = _member(node, reply.content)
            version = str(reply.content.values["version"])[:40]
            self.members[member.name] = member
            admitted.append(asdict(member))
            lines.append({"event": ENROLLED, "vehicle": member.name, "version": version})
            log.info("vehicle %s enrolled", member.name)
            if version != fedwatt.__version__:
                log.warning("vehicle %s has fedwatt %s", member.name, version)
        if admitted:
            append_rows(self.path, admitted)
        self.events.write(lines)

    def _turn_away(self, node: int, reason: str) -> None:
        """Ask a node again later."""
        pause = TAKEN_SECONDS if reason.startswith(TAKEN) else AGAIN_SECONDS
        self.enrolments.pause([node], pause)
        log.warning("node %d was turned away for %g s: %s", node, pause, reason)

    def _fault(self, node: int, content: Content) -> str:
        """Return why an enrolment cannot be accepted; empty if it can."""
        name = str(content.values["vehicle"])
        registered = self.online.get(node, "")
        if not name:
            return "it has no name"
        if registered and registered != name:
            return f"it calls itself {name[:80]!r}, and its key is registered for '{registered}'"
        before = self.members.get(name)
        if before is not None and before.node != node and before.node in self.online:
            return f"{TAKEN} '{name}'"
        if not content.values["enough"]:
            return "it lacks windows for training, validation or test"
        if self.hidden:
            return ""
        windows = _member(node, content).windows
        if not _possible(windows):
            return f"it has {list(windows)} windows, and 1 to {MOST_WINDOWS} are possible"
        return ""

    def held_out(self) -> frozenset[str]:
        """Return the vehicles that never train."""
        data = self.config.data
        return held_out_vehicles(self.members, data.held_out, data.split_seed)

    def is_ready(self, name: str) -> bool:
        """Tell whether a vehicle is connected, within its hours, and has the elevation map."""
        node = self.members[name].node
        has_map = self.published is None or node in self.published.holders
        return node in self.online and has_map and not self.is_away(name)

    def is_away(self, name: str) -> bool:
        """Tell whether a vehicle is connected and outside its hours."""
        return self.away.get(self.members[name].node, 0.0) > monotonic()

    def heaviest(self) -> tuple[float, ...]:
        """Return the most training, validation and test windows that a vehicle counts for."""
        table = [member.windows for member in self.members.values()]
        cap = self.config.deploy.weight_cap
        return tuple(cap * median_low(counts) for counts in zip(*table, strict=True))

    def fleet(self) -> Fleet:
        """Return the fleet as the server knows it: names and numbers of windows, no data."""
        settings = self.config.data
        never = self.held_out()
        state = (never, *self.members.values())
        if self._fleet is None or self._fleet[0] != state:
            ordered = sorted(self.members.values(), key=lambda member: natural_key(member.name))
            clients = tuple(_client(m, settings, m.name in never) for m in ordered)
            self._fleet = state, Fleet(clients, settings, f"{len(clients)} vehicles")
        return self._fleet[1]

    def available(self) -> BoolArray:
        """Return A_t as a mask over the vehicles that may train."""
        clients = self.fleet().clients
        return np.array([self.is_ready(c.name) for c in clients if not c.held_out], dtype=bool)

    def ask(
        self,
        form: ReplyForm,
        requests: Mapping[str, Content],
        seconds: float,
        *,
        kind: str = "",
        enough: int = 0,
        each: Callable[[str, Reply], Reply] = lambda name, reply: reply,
    ) -> dict[str, Reply]:
        """Return the replies that came in time by vehicle, in the order of `requests`.

        `enough` and `each` as in `Requests.ask`; `kind` is what events call it.
        """
        nodes = {name: self.members[name].node for name in requests if self.is_ready(name)}
        names = {node: name for name, node in nodes.items()}
        outcomes = self.requests.ask(
            form,
            {node: requests[name] for name, node in nodes.items()},
            seconds,
            enough=enough,
            each=lambda node, reply: each(names[node], reply),
        )
        return self.note(kind or form.kind, {name: outcomes[nodes[name]] for name in nodes})

    def note(self, kind: str, outcomes: Mapping[str, Reply]) -> dict[str, Reply]:
        """Write down the outcomes of a request by vehicle; return the replies among them."""
        now = monotonic()
        self.events.replied(kind, outcomes)
        self.away |= {
            self.members[name].node: now + reply.away_seconds
            for name, reply in outcomes.items()
            if reply.outcome == AWAY
        }
        return {name: reply for name, reply in outcomes.items() if reply.came}


def _member(node: int, content: Content) -> Member:
    """Return the vehicle that enrols with this content."""
    windows = content.arrays.get("windows", np.zeros(3))
    train, validation, test = (int(count) for count in windows)
    return Member(str(content.values["vehicle"]), node, (train, validation, test))


def _possible(windows: tuple[int, ...]) -> bool:
    """Tell whether a vehicle can have so many windows of each kind."""
    return all(1 <= count <= MOST_WINDOWS for count in windows)


def _client(member: Member, settings: DataSettings, held_out: bool) -> Client:
    """Return a client of which only the numbers of windows are known."""
    # All windows end at second 0, in no memory: only their number means anything.
    ends = [np.broadcast_to(np.int64(0), count) for count in member.windows]
    return Client(
        name=member.name,
        features=settings.columns,
        window=settings.window,
        series=np.zeros((0, len(settings.columns)), dtype=np.float32),
        ends=dict(zip(SPLITS, ends, strict=True)),
        labels={split: np.zeros(0, dtype=np.float32) for split in SPLITS},
        label_center_wh=0.0,
        label_scale_wh=1.0,
        strata={},
        trips=dict.fromkeys(SPLITS, ()),
        held_out=held_out,
        simulated=False,
    )
