"""A deployed fleet as its operator sees it, from the run's files, the key store and the server.

It holds what the server knows and nothing else: names that vehicles enrolled under, outcomes of
requests, and error sums where vehicles send them one by one. ε is the run's: a vehicle adds up ε
over all plans that it accepted.

A vehicle's state is that of the last round in which it was asked: one trouble there outweighs the
requests that it answered, since a vehicle that evaluates models and refuses to train is no help.
"""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from threading import RLock
from typing import Any

from fedwatt.deploy.plan.certificates import read_certificate
from fedwatt.deploy.server.requests import (
    ANSWERED,
    AWAY,
    ENROLLED,
    EVENTS,
    LATE,
    REFUSED,
    REPLIES,
    TROUBLES,
    TURNED_AWAY,
)
from fedwatt.deploy.server.run_state import FILE as STATE_FILE
from fedwatt.deploy.server.run_state import RunState
from fedwatt.deploy.transport.control import Control, Node
from fedwatt.deploy.transport.processes import Flower
from fedwatt.errors import RunError, counted
from fedwatt.files import parse_json
from fedwatt.runs.observers import FILE as PROGRESS
from fedwatt.runs.observers import rounds_in
from fedwatt.windows.splits import natural_key

LOOK_SECONDS = 2.0
"""Fewest seconds between two looks at the files and the server."""
SHARE = 20
"""A look that took a second is not repeated for so many: a large fleet's list takes a while."""
MOST_VEHICLES = 200
"""Vehicles in one answer; those in trouble come first."""
MOST_ROUNDS = 300
MEMBERS = "members.jsonl"
MOST_EVENTS = 50
"""Events of a vehicle in one answer."""
MOST_LINES = 50
"""Vehicles that a terminal shows."""
STATES = {
    "revoked": "its certificate was revoked",
    "failing": "it failed in the last round that asked it",
    "refused": "its acceptance file refuses the plan",
    "late": "it missed the deadline in the last round that asked it",
    "turned away": "it may not take part, or not yet",
    "away": "it is outside the hours in which it answers",
    "offline": "it is not connected",
    "on time": "it did all that the last round asked of it",
    "waiting": "it has enrolled and was not asked yet",
    "not seen": "its key is accepted, and it has not enrolled in this run",
}
"""In the order in which an operator wants to see them."""
OF_EVENT = {REFUSED: "refused", LATE: "late", TURNED_AWAY: "turned away"}
"""States after a trouble; "failing" after any other."""
Line = Mapping[str, Any]
Round = tuple[str, int]
"""Method and round."""
ORDER = {state: place for place, state in enumerate(STATES)}
Table = dict[str, Any]


@dataclass
class Standing:
    """The status of one vehicle, from the events of a run."""

    vehicle: str
    version: str = ""
    requests: int = 0
    answered: int = 0
    success: Line | None = None
    """The last reply to train, or any of a vehicle that was never asked to."""
    trains: bool = False
    """Whether it was ever asked to train; held-out vehicles are not."""
    trouble: Line | None = None
    away: Line | None = None
    """The last line that it is outside its hours, if nothing came since."""
    failing: int = 0
    """Rounds in a row, of those that asked it, with a trouble."""
    last: Round | None = None
    """The round that asked it last."""
    troubled: bool = False
    """Whether there was a trouble in that round."""

    def take(self, line: Line) -> None:
        """Update the status by one event."""
        event = line["event"]
        self.away = line if event == AWAY else None
        if event == ENROLLED:
            self.version = line["version"]
            if self.trouble is not None and self.trouble["event"] == TURNED_AWAY:
                self.troubled = False
                self.failing = 0
        elif event != AWAY:
            self._take_reply(event, line)

    def _take_reply(self, event: str, line: Line) -> None:
        # A vehicle that is turned away is in no round.
        now = (line["method"], line["round"]) if "round" in line else ("", -1 - self.failing)
        if now != self.last:
            self.failing = self.failing if self.troubled else 0
            self.troubled = False
            self.last = now
        training = line.get("request") == "train"
        if training and not self.trains:
            self.trains = True
            self.success = None
        if event in REPLIES:
            self.requests += 1
        if event == ANSWERED:
            self.answered += 1
            if training or not self.trains:
                self.success = line
        elif event in TROUBLES:
            self.failing += not self.troubled
            self.troubled = True
            self.trouble = line

    def state(self) -> tuple[str, str]:
        """Return one of `STATES`, as far as the events show, and the reason for it."""
        if self.away is not None:
            return "away", str(self.away["reason"])
        if self.troubled and self.trouble is not None:
            return OF_EVENT.get(self.trouble["event"], "failing"), str(self.trouble["reason"])
        return ("waiting" if not self.answered else "on time"), ""


@dataclass
class Tail:
    """A place in a file of JSON lines that is only ever added to."""

    path: Path
    at: int = 0
    """Bytes that were read."""

    def new(self) -> list[Table]:
        """Return the complete lines since the last look."""
        content = self._read(self.at)
        self.at += len(content)
        return [parse_json(line) for line in content.split(b"\n") if line]

    def matching(self, text: str) -> list[Table]:
        """Return all complete lines with this text in their JSON."""
        lines = self._read(0).split(b"\n")
        return [parse_json(line) for line in lines if text.encode() in line]

    def _read(self, start: int) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                content = file.read()
        except FileNotFoundError:
            return b""
        return content[: content.rfind(b"\n") + 1]


class RunFacts:
    """The numbers of a run folder, read from where the last look ended; it need not exist yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events = Tail(folder / EVENTS)
        self.progress = Tail(folder / PROGRESS)
        self.roster = Tail(folder / MEMBERS)
        self.members: set[str] = set()
        """Vehicles that have enrolled."""
        self.standings: dict[str, Standing] = {}
        self.rounds: dict[str, dict[int, Table]] = {}
        """The line of progress.jsonl for each method and round."""
        self.starts: dict[str, Table] = {}
        """The line that says how many rounds a method has."""
        self.ended: set[str] = set()
        self.unit = "Wh"
        self.latest: Round = ("", 0)
        self.in_round: dict[str, str] = {}
        """Outcomes of the latest round by vehicle; a trouble outweighs an answer."""

    def refresh(self) -> None:
        """Read the lines that were added."""
        self.members |= {line["name"] for line in self.roster.new()}
        for line in self.events.new():
            self._event(line)
        for line in self.progress.new():
            rounds_in([line | {"vehicles": None}], self.rounds)
            if line["event"] == "fleet":
                self.unit = line["unit"]
            elif line["event"] == "start":
                self.starts[line["method"]] = line
                self.ended.discard(line["method"])
            elif line["event"] == "end":
                self.ended.add(line["method"])

    def _event(self, line: Table) -> None:
        name = line["vehicle"]
        event = line["event"]
        self.standings.setdefault(name, Standing(name)).take(line)
        if "round" in line:
            now = line["method"], line["round"]
            if now != self.latest:
                self.latest = now
                self.in_round.clear()
            if self.in_round.get(name) not in TROUBLES:
                self.in_round[name] = event

    @property
    def state(self) -> RunState | None:
        """Return the state of the run; None before it begins."""
        path = self.folder / STATE_FILE
        return RunState.read(path) if path.exists() else None

    def last_model(self) -> float | None:
        """Return when the last round was completed, in seconds since 1970; None: none was."""
        times = [line["at"] for rounds in self.rounds.values() for line in rounds.values()]
        return datetime.fromisoformat(max(times)).timestamp() if times else None

    def vehicle_events(self, name: str) -> list[Table]:
        """Return a vehicle's last events, the newest first."""
        lines = [line for line in self.events.matching(name) if line["vehicle"] == name]
        return lines[-MOST_EVENTS:][::-1]


def newest_run(folder: Path) -> Path:
    """Return the run in a folder: itself, or the one below it that was begun or went on last."""
    if (folder / STATE_FILE).exists():
        return folder
    files = folder.glob(f"*/{STATE_FILE}")
    return max(files, key=lambda file: file.stat().st_mtime, default=folder / STATE_FILE).parent


def ask_nodes(flower: Flower) -> list[Node]:
    """Return the vehicles that the running server knows; RunError if none answers."""
    with Control(flower) as control:
        return control.nodes()


@dataclass
class ServerFacts:
    """A key store, its running server, and who is connected."""

    flower: Flower
    ask: Callable[[Flower], list[Node]] = ask_nodes
    nodes: dict[str, Node] = field(default_factory=dict)
    """The newest key of each name that the server knows, by that name."""
    trouble: str = "nobody has looked yet"
    """Why the server did not answer at the last look; empty if it did."""
    accepted: frozenset[str] = frozenset()
    """Vehicles whose certificates count."""
    changed: float = -1.0

    def refresh(self) -> None:
        """Read the key store, and ask the server."""
        store = self.flower.store
        changed = store.changed()
        if changed != self.changed:
            self.accepted = frozenset(name for name, _ in store.accepted().values())
            self.changed = changed
        try:
            self.nodes = {node.name: node for node in self.ask(self.flower)}
            self.trouble = ""
        except RunError as error:
            self.nodes = {}
            self.trouble = str(error)

    def online(self, name: str) -> bool | None:
        """Tell whether a vehicle is connected; None: unknown, because no server answers."""
        if self.trouble:
            return None
        return name in self.nodes and self.nodes[name].status == "online"

    def certificates(self) -> dict[str, float]:
        """Return when certificates end, in seconds since 1970, by their names."""
        store = self.flower.store
        files = {"owner": store.owner, "server": store.certificate}
        return {
            name: read_certificate(path).not_valid_after_utc.timestamp()
            for name, path in files.items()
            if path.exists()
        }


class FleetView:
    """A run folder, or a folder of runs of which the newest counts, and its key store if any."""

    def __init__(self, folder: Path, server: ServerFacts | None = None) -> None:
        self.folder = folder
        self.server = server
        self.run = RunFacts(newest_run(folder))
        self.lock = RLock()
        self.next_look = float("-inf")
        self.rows: list[Table] = []
        """A row per vehicle, those in trouble first."""

    def refresh(self) -> None:
        """Read what has changed, at most once in two seconds, less often in a large fleet."""
        with self.lock:
            began = time.monotonic()
            if began < self.next_look:
                return
            newest = newest_run(self.folder)
            if newest != self.run.folder:
                self.run = RunFacts(newest)
            self.run.refresh()
            if self.server is not None:
                self.server.refresh()
            names = self.run.members | self.run.standings.keys()
            if self.server is not None:
                names |= self.server.accepted
            rows = [self._row(self.run.standings.get(name) or Standing(name)) for name in names]
            self.rows = sorted(
                rows, key=lambda row: (ORDER[row["state"]], natural_key(row["vehicle"]))
            )
            now = time.monotonic()
            self.next_look = now + max(LOOK_SECONDS, SHARE * (now - began))

    def _row(self, standing: Standing) -> Table:
        """Return everything that the table shows of one vehicle."""
        name = standing.vehicle
        server = self.server
        state, reason = standing.state()
        online = None
        accepted: frozenset[str] = frozenset()
        if server is not None:
            online = server.online(name)
            accepted = server.accepted
        member = name in self.run.members
        if accepted and name not in accepted and member:
            state = "revoked"
            reason = "its certificate was revoked, or is not in the key store"
        elif state == "waiting" and not member:
            state = "not seen"
        elif online is False and not reason:
            state = "offline"
        return {
            "vehicle": name,
            "state": state,
            "reason": reason,
            "online": online,
            "version": standing.version,
            "asked": standing.requests,
            "answered": standing.answered,
            "failing": standing.failing if standing.troubled else 0,
            "success": standing.success,
            "trouble": standing.away or standing.trouble,
        }

    def summary(self, state: str = "", find: str = "") -> Table:
        """Return the fleet at a glance, its rounds, and the vehicles of a state or name."""
        with self.lock:
            self.refresh()
            run = self.run
            server = self.server
            matching = [
                row
                for row in self.rows
                if state in ("", row["state"]) and find.lower() in row["vehicle"].lower()
            ]
            rounds = run.rounds.get(next(reversed(run.starts), ""), {})
            answers = None if server is None else {"up": not server.trouble, "why": server.trouble}
            return {
                "run": run.folder.name,
                "doing": self.doing(),
                "server": answers,
                "enrolled": len(run.members),
                "online": self.online(),
                "latest": dict(zip(("method", "round"), run.latest, strict=True)),
                "asked": len(run.in_round),
                "replies": Counter(run.in_round.values()),
                "states": self.states(),
                "meanings": STATES,
                "versions": self.versions(),
                "unit": run.unit,
                "methods": self.methods(),
                "rounds": [_round(rounds[number]) for number in sorted(rounds)[-MOST_ROUNDS:]],
                "vehicles": matching[:MOST_VEHICLES],
                "matching": len(matching),
                "disk_free": self.disk_free(),
                "certificates": {} if server is None else server.certificates(),
                "report": (run.folder / "report.html").exists(),
            }

    def doing(self) -> str:
        """Return what the run is doing, as one sentence."""
        state = self.run.state
        return "The run has not begun." if state is None else f"The run: {state.doing}"

    def online(self) -> int | None:
        """Return the number of connected vehicles; None: unknown."""
        if self.server is None or self.server.trouble:
            return None
        return sum(row["online"] is True for row in self.rows)

    def states(self) -> dict[str, int]:
        """Return the number of vehicles in each state, in the order of `STATES`."""
        counts = Counter(row["state"] for row in self.rows)
        return {state: counts[state] for state in STATES if counts[state]}

    def versions(self) -> dict[str, int]:
        """Return the number of vehicles by the version of fedwatt that they enrolled with."""
        return dict(sorted(Counter(row["version"] for row in self.rows if row["version"]).items()))

    def methods(self) -> list[Table]:
        """Return the progress of each method."""
        methods = []
        for method, start in self.run.starts.items():
            rounds = self.run.rounds.get(method, {})
            last = rounds[max(rounds)] if rounds else {"rows": [{}]}
            (row, *_) = last["rows"]
            methods.append({
                "method": method,
                "round": last.get("round", start["done"]),
                "of": start["rounds"],
                "ended": method in self.run.ended,
                "rmse": row.get("test_rmse"),
                "seconds": last.get("seconds"),
                "epsilon": row.get("epsilon"),
            })  # fmt: skip
        return methods

    def vehicle(self, name: str) -> Table | None:
        """Return one vehicle with its last events; None: there is no such vehicle."""
        with self.lock:
            self.refresh()
            row = next((row for row in self.rows if row["vehicle"] == name), None)
            return None if row is None else row | {"events": self.run.vehicle_events(name)}

    def disk_free(self) -> int | None:
        """Return the free bytes where the run is; None: the folder is not there yet."""
        folder = self.run.folder
        return shutil.disk_usage(folder).free if folder.exists() else None

    def lines(self) -> Iterator[str]:
        """Yield the lines of `fedwatt deploy status` about a run."""
        self.refresh()
        folder = self.run.folder
        if self.run.state is None:
            raise RunError(
                f"There is no run of a deployed fleet in {folder}. 'fedwatt deploy run --out "
                f"{folder}' starts one."
            )
        for method in self.methods():
            spent = method["epsilon"]
            private = "" if spent is None else f", ε = {spent:.3g} spent"
            yield f"{method['method']}: {counted(method['round'], 'round')} done{private}"
        yield self.doing()
        if (folder / "report.html").exists():
            yield f"Report: {folder / 'report.html'}"
        for row in self.rows[:MOST_LINES]:
            yield f"{row['vehicle']}: {row['state']}" + (f", {row['reason']}" * bool(row["reason"]))
        if (left := len(self.rows) - MOST_LINES) > 0:
            yield f"And {counted(left, 'vehicle')} more: {self.states()} in all."


def _round(line: Table) -> Table:
    """Return the numbers of a round that the page shows."""
    row = line["rows"][0]
    columns = ("participants", "replies", "lost", "rejected", "test_rmse", "epsilon")
    numbers = {name: line[name] for name in ("method", "round", "at", "seconds")}
    return numbers | {name: row.get(name) for name in columns}
