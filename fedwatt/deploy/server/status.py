"""Status of each vehicle of a run, derived from the lines of events.jsonl.

A vehicle's state is that of the last round in which it was asked: one trouble there outweighs the
questions that it answered, since a vehicle that evaluates models and refuses to train is no help.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path
from typing import Any, Final

from fedwatt.deploy.server.events import (
    ANSWERED,
    AWAY,
    BACK_OFF,
    ENROLLED,
    FAILED,
    FAULTS,
    FILE,
    LATE,
    REFUSED,
    REJECTED,
    REPLIES,
    TROUBLES,
    TURNED_AWAY,
    UNCOUNTED,
    Faults,
)
from fedwatt.deploy.server.run_state import FILE as STATE_FILE
from fedwatt.deploy.server.run_state import RunState
from fedwatt.errors import RunError, counted
from fedwatt.files import read_rows

STATES: Final = {
    "revoked": "its certificate was revoked",
    "excluded": "three of its replies were beyond the limits",
    "backing off": "it missed several rounds in a row and is skipped for some",
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
OF_EVENT: Final = {
    FAILED: "failing",
    REJECTED: "failing",
    UNCOUNTED: "failing",
    REFUSED: "refused",
    LATE: "late",
    TURNED_AWAY: "turned away",
}
TRAINING: Final = frozenset(("train",))
"""Questions whose answers make the next model."""
MOST_LINES: Final = 50
"""Vehicles that a terminal shows."""
Line = Mapping[str, Any]


@dataclass
class Clock:
    """The round that the events have come to."""

    method: str = ""
    round: int = 0


@dataclass
class Standing:
    """The status of one vehicle, from the events of a run."""

    vehicle: str
    version: str = ""
    asked: int = 0  # questions
    answered: int = 0
    answer: Line | None = None  # the last one, whatever was asked
    trained: Line | None = None  # the last reply to a round that nothing was wrong with
    before: Line | None = None  # the one before that
    trains: bool = False
    """Whether it was ever asked to train; held-out vehicles are not."""
    back_offs: dict[str, Line] = field(default_factory=dict)
    """By question, since when it is left out, and until which round."""
    clock: Clock = field(default_factory=Clock)
    """Of all vehicles together."""
    trouble: Line | None = None  # the last one
    away: Line | None = None
    """The last word that it is outside its hours, if nothing came since."""
    failures: int = 0
    """Rounds in a row, of those that asked it, with a trouble."""
    last: tuple[str, int] | None = None
    """Method and round that asked it last."""
    troubled: tuple[str, int] | None = None
    """Method and round of the last trouble."""

    def take(self, line: Line) -> None:
        """Go on by one event."""
        event = line["event"]
        self.away = line if event == AWAY else None
        if event == AWAY:
            return
        if event == ENROLLED:
            self.version = line["version"]
            if self.trouble is not None and self.trouble["event"] == TURNED_AWAY:
                self.troubled = None
                self.failures = 0
            return
        if event == BACK_OFF:
            self.back_offs[line["question"]] = line
            return
        if event in REPLIES:
            self.back_offs.pop(line["question"], None)
        # Who is turned away is in no round, and waits longer each time.
        now = (line["method"], line["round"]) if "round" in line else ("", -1 - self.failures)
        if now != self.last and self.troubled != self.last:
            self.failures = 0
        self.last = now
        self.asked += event in REPLIES
        training = line.get("question") in TRAINING
        self.trains |= training
        if event == ANSWERED:
            self.answered += 1
            self.answer = line
            if training:
                self.trained, self.before = line, self.trained
        elif event in TROUBLES:
            if event == UNCOUNTED and self.trained is not None and now == _round(self.trained):
                self.trained = self.before
            self.failures += self.troubled != now
            self.trouble = line
            self.troubled = now

    @property
    def state(self) -> str:
        """One of `STATES`, as far as the events tell."""
        if self.away is not None:
            return "away"
        if self.backing_off is not None:
            return "backing off"
        if self.last is not None and self.troubled == self.last and self.trouble is not None:
            return OF_EVENT[self.trouble["event"]]
        return "waiting" if self.answer is None else "on time"

    @property
    def backing_off(self) -> Line | None:
        """Since when it is left out; None where it is not, or not any more."""
        now = self.clock
        own = (line for line in self.back_offs.values() if line["method"] == now.method)
        return next((line for line in own if now.round < line["until"]), None)

    @property
    def success(self) -> Line | None:
        """The last reply that helped to train; of a vehicle that never trains, its last answer."""
        return self.trained if self.trains else self.answer

    @property
    def failing(self) -> int:
        """Rounds in a row with a trouble, up to now."""
        return self.failures if self.troubled == self.last else 0


def standings(
    lines: Iterable[Line], known: dict[str, Standing] | None = None
) -> dict[str, Standing]:
    """Return the status of vehicles after further lines than those that made `known`."""
    found = {} if known is None else known
    clock = next((one.clock for one in found.values()), Clock())
    for line in lines:
        name = line["vehicle"]
        if name not in found:
            found[name] = Standing(name, clock=clock)
        if "round" in line:
            clock.method = line["method"]
            clock.round = line["round"]
        found[name].take(line)
    return found


def fleet_lines(found: Iterable[Standing]) -> Iterator[str]:
    """Yield the lines of `fedwatt deploy status` on the vehicles of a run, those in trouble
    first.
    """
    order = list(STATES)
    ordered = sorted(found, key=lambda one: (order.index(one.state), one.vehicle))
    for standing in ordered[:MOST_LINES]:
        yield from described(standing)
    if left := ordered[MOST_LINES:]:
        states = Counter(one.state for one in left)
        others = ", ".join(f"{count:,} {state}" for state, count in states.items())
        yield f"And {counted(len(left), 'vehicle')} more: {others}."


def described(standing: Standing) -> Iterator[str]:
    """Yield a vehicle's last success and its last trouble."""
    success = standing.success
    trouble = standing.trouble
    last = "no success yet" if success is None else f"last success {_when(success)}"
    about = f"{standing.vehicle}: {standing.state}, {last}"
    if success is not None:
        about += f" in {success['seconds']:g} s"
    yield about
    if standing.away is not None:
        yield f"  {standing.away['reason']}"
    if standing.backing_off is not None:
        yield f"  {back_off_reason(standing.backing_off)}"
    if trouble is not None:
        times = f", {counted(standing.failing, 'round')} in a row" if standing.failing > 1 else ""
        yield f"  last trouble {_when(trouble)}{times}: {trouble['reason']}"


def back_off_reason(line: Line) -> str:
    """Until when a vehicle rests, and why."""
    what = "training" if line["question"] in TRAINING else "evaluation"
    return f"skipped in {what} until round {line['until']}: {line['reason']}"


def _round(line: Line) -> tuple[str, int]:
    return line["method"], line["round"]


def _when(line: Line) -> str:
    """Time (UTC), method, round and question of an event."""
    time = str(line["at"])[:19].replace("T", " ")
    if "round" not in line:
        return f"{time} when it enrolled"
    question = f" to '{line['question']}'" if "question" in line else ""
    return f"{time} in round {line['round']} of {line['method'] or 'the beginning'}{question}"


def describe_run(out: Path) -> Iterator[str]:
    """Return lines about the vehicles of a run and how far its methods are."""
    state = out / STATE_FILE
    if not state.exists():
        raise RunError(
            f"There is no run of a real fleet in {out}. 'fedwatt deploy submit --out {out}' starts "
            "one."
        )

    folders = list(_methods(out))
    if not folders:
        yield "No round is complete yet."
    for folder in folders:
        done = max((int(f.name.removeprefix("round-")) for f in folder.glob("round-*")), default=0)
        epsilon = _epsilon(folder / f"round-{done:06d}")
        yield f"{folder.name}: {counted(done, 'round')} done{epsilon}"
    yield f"The run is {RunState.read(state).doing}"
    if (out / "report.html").exists():
        yield f"Report: {out / 'report.html'}"
    yield from fleet_lines(standings(read_rows(out / FILE)).values())
    yield from Faults.read(out / FAULTS).lines()


def _epsilon(checkpoint: Path) -> str:
    """Return the budget that a private method has spent by a checkpoint; empty for others."""
    if not (checkpoint / "rounds.parquet").exists():
        return ""
    from fedwatt.runs.tables import read_table

    spent = read_table(checkpoint, "rounds").column("epsilon").to_pylist()
    return "" if not spent or isnan(spent[-1]) else f", ε = {spent[-1]:.3g} spent"


def _methods(out: Path) -> list[Path]:
    """Folders of the checkpoints of a run's methods."""
    return sorted(f for f in (out / "checkpoint").glob("*") if f.is_dir())
