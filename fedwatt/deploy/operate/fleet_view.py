"""A deployed fleet as its operator sees it, from the run's files, the key store and the server.

It holds what the server knows and nothing else: names that vehicles enrolled under, what became of
questions, and error sums where vehicles send them in the clear. ε is the run's: what a vehicle has
spent over its life is in a ledger on board.
"""

import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Any, Final

from fedwatt.deploy.operate.run_facts import RunFacts, newest_run
from fedwatt.deploy.operate.server_facts import SHARE, ServerFacts
from fedwatt.deploy.server.status import STATES, Standing, back_off_reason
from fedwatt.windows.splits import natural_key

LOOK_SECONDS: Final = 1.0
"""Fewest seconds between two looks at the files."""
MOST_VEHICLES: Final = 200
"""Vehicles in one answer; those in trouble come first."""
MOST_ROUNDS: Final = 300
ORDER: Final = {state: place for place, state in enumerate(STATES)}


@dataclass
class FleetView:
    """A run folder, or a folder of runs of which the newest counts, and its key store if any."""

    folder: Path
    server: ServerFacts | None = None
    clock: Callable[[], float] = time.time
    run: RunFacts = field(init=False)
    lock: RLock = field(default_factory=RLock)
    next_look: float = 0.0
    rows: list[dict[str, Any]] = field(default_factory=list)
    """A row a vehicle, those in trouble first."""

    def __post_init__(self) -> None:
        self.run = RunFacts(newest_run(self.folder))

    def refresh(self) -> None:
        """Look at what has changed, at most once a second, less often in a large fleet."""
        with self.lock:
            began = self.clock()
            if began < self.next_look:
                return
            newest = newest_run(self.folder)
            if newest != self.run.folder:
                self.run = RunFacts(newest)
            self.run.refresh()
            if self.server is not None:
                self.server.refresh()
            self.rows = self._rows()
            now = self.clock()
            self.next_look = now + max(LOOK_SECONDS, SHARE * (now - began))

    def _rows(self) -> list[dict[str, Any]]:
        run = self.run
        server = self.server
        faulty = self.run.faults
        names = run.members | run.standings.keys()
        if server is not None:
            names |= server.accepted.keys()
        rows = []
        for name in names:
            own = run.standings.get(name) or Standing(name)
            faults = faulty.faults.get(name, []) if faulty.excluded(name) else []
            rows.append(self._row(own, faults))
        return sorted(rows, key=lambda row: (ORDER[row["state"]], natural_key(row["vehicle"])))

    def _row(self, own: Standing, faults: list[str]) -> dict[str, Any]:
        """Return everything that is shown of one vehicle in the table."""
        name = own.vehicle
        server = self.server
        state = own.state
        reason = str((own.away or own.trouble or {}).get("reason", ""))
        online = None if server is None else server.online(name)
        member = name in self.run.members
        if server is not None and server.accepted and name not in server.accepted and member:
            state = "revoked"
            reason = "its certificate was revoked, or is not in the key store"
        elif faults:
            state = "excluded"
            reason = f"excluded after {len(faults)} faults: {faults[-1]}"
        elif own.away is None and own.backing_off is not None:
            reason = back_off_reason(own.backing_off)
        elif state == "waiting" and name not in self.run.members:
            state = "not seen"
        elif online is False and state in ("on time", "waiting"):
            state = "offline"
        troubled = state not in ("on time", "waiting", "offline", "not seen")
        return {
            "vehicle": name,
            "state": state,
            "reason": reason if troubled else "",
            "online": online,
            "version": own.version,
            "asked": own.asked,
            "answered": own.answered,
            "failing": own.failing,
            "success": _moment(own.success),
            "trouble": _moment(own.away or own.trouble),
            "seconds": own.success["seconds"] if own.success else None,
            "time_offset": self._time_offset(own),
        }

    def _time_offset(self, own: Standing) -> int | None:
        """Return rounds since the vehicle's last answer, of the method that trains; None: it has
        none.
        """
        method, latest = self.run.latest
        if own.success is None or own.success["method"] != method:
            return None
        return latest - int(own.success["round"])

    def summary(self, state: str = "", find: str = "", most: int = MOST_VEHICLES) -> dict[str, Any]:
        """Return the fleet at a glance, its rounds, and the vehicles of a state or a part of a
        name.
        """
        with self.lock:
            self.refresh()
            run = self.run
            server = self.server
            found = [
                row
                for row in self.rows
                if state in ("", row["state"]) and find.lower() in row["vehicle"].lower()
            ]
            doing = run.state
            return {
                "run": run.folder.name,
                "doing": "The run has not begun." if doing is None else f"The run is {doing.doing}",
                "server": None if server is None else {"up": server.up, "why": server.why},
                "enrolled": len(run.members),
                "online": self.online(),
                "latest": dict(zip(("method", "round"), run.latest, strict=True)),
                "asked": len(run.in_round),
                "replies": run.replies(),
                "states": self.states(),
                "meanings": STATES,
                "versions": self.versions(),
                "unit": run.unit,
                "methods": self.methods(),
                "rounds": self.rounds(),
                "vehicles": found[:most],
                "matching": len(found),
                "disk_free": self.disk_free(),
                "certificates": {} if server is None else server.certificates(),
                "report": (run.folder / "report.html").exists(),
            }

    def online(self) -> int | None:
        """Vehicles that are connected; None: not known."""
        if self.server is None or not self.server.up:
            return None
        return sum(row["online"] is True for row in self.rows)

    def states(self) -> dict[str, int]:
        """Vehicles by their states, in the order of `STATES`."""
        found = Counter(row["state"] for row in self.rows)
        return {state: found[state] for state in STATES if found[state]}

    def versions(self) -> dict[str, int]:
        """Vehicles by the version of fedwatt that they enrolled with."""
        return dict(sorted(Counter(row["version"] for row in self.rows if row["version"]).items()))

    def methods(self) -> list[dict[str, Any]]:
        """Return the progress of each method."""
        found = []
        for method, start in self.run.starts.items():
            own = self.run.rounds.get(method, {})
            last = own[max(own)] if own else None
            row = last["rows"][0] if last else {}
            found.append(
                {
                    "method": method,
                    "round": last["round"] if last else start["done"],
                    "of": start["rounds"],
                    "ended": method in self.run.ended,
                    "rmse": row.get("test_rmse"),
                    "seconds": last["seconds"] if last else None,
                    "epsilon": row.get("epsilon"),
                }
            )
        return found

    def rounds(self) -> list[dict[str, Any]]:
        """Return the last rounds of the method that trains, the newest last."""
        own = self.run.rounds.get(self.run.method, {})
        return [self._round(own[number]) for number in sorted(own)[-MOST_ROUNDS:]]

    def _round(self, line: dict[str, Any]) -> dict[str, Any]:
        row = line["rows"][0]
        names = ("participants", "replies", "lost", "rejected", "test_rmse", "epsilon")
        about = {name: line[name] for name in ("method", "round", "at", "seconds")}
        return about | {name: row.get(name) for name in names}

    def vehicle(self, name: str) -> dict[str, Any] | None:
        """One vehicle with its last events; None: there is no such vehicle."""
        with self.lock:
            self.refresh()
            row = next((row for row in self.rows if row["vehicle"] == name), None)
            if row is None:
                return None
            methods = [one for one in self.methods() if one["epsilon"] is not None]
            spent = {one["method"]: one["epsilon"] for one in methods}
            return row | {"events": self.run.vehicle_events(name), "epsilon": spent}

    def round(self, method: str, number: int) -> dict[str, Any] | None:
        """One round with the events of its vehicles; None: there is no such round."""
        with self.lock:
            self.refresh()
            line = self.run.rounds.get(method, {}).get(number)
            events = self.run.round_events(method, number)
            if line is None and not events:
                return None
            about = {"method": method, "round": number} if line is None else self._round(line)
            return about | {"events": events}

    def disk_free(self) -> int | None:
        """Free bytes where the run is; None: the folder is not there yet."""
        folder = self.run.folder
        return shutil.disk_usage(folder).free if folder.exists() else None


def _moment(line: Any) -> dict[str, Any] | None:
    """When and where something happened to a vehicle."""
    if line is None:
        return None
    names = ("at", "event", "method", "round", "question", "reason")
    return {name: line[name] for name in names if name in line}
