"""The log of a run on a real fleet: a line a round, which `fedwatt deploy submit` follows."""

import logging
from collections.abc import Iterator
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING

from fedwatt.deploy.conduct import Conduct
from fedwatt.deploy.event_log import FILE
from fedwatt.deploy.standing import fleet_lines, standings
from fedwatt.deploy.state import RunState
from fedwatt.errors import RunError, counted
from fedwatt.files import read_rows
from fedwatt.observers import Observer

if TYPE_CHECKING:
    from fedwatt.federation import History, RoundRecord, State
    from fedwatt.windows import Fleet

log = logging.getLogger("fedwatt.deploy")


def show_log(of: logging.Logger = log, line: str = "%(asctime)s %(message)s") -> None:
    """Write a log of our own, and nobody else's, to the error stream, which a journal keeps."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(line, "%H:%M:%S"))
    of.handlers = [handler]
    of.setLevel(logging.INFO)
    of.propagate = False


class LogLines(Observer):
    """Follows a run in the log."""

    def __init__(self) -> None:
        self.rounds, self.unit = 0, ""

    def on_fleet(self, fleet: "Fleet") -> None:
        """Who takes part."""
        self.unit = fleet.settings.predicts.unit
        log.info("%s: %d training windows", fleet.source, fleet.windows("train"))

    def on_start(self, label: str, done: int, rounds: int) -> None:
        """A method starts or goes on."""
        self.rounds = rounds
        log.info("%s: %s", label, f"continuing after round {done}" if done else "begins")

    def on_round(self, label: str, state: "State", record: "RoundRecord") -> None:
        """What a round led to, and who was missing."""
        row = record.rounds[0]
        missing = "".join(f", {row[n]} {n}" for n in ("lost", "rejected") if row[n])
        came = f"{row['replies']} of {row['participants']} replies{missing}"
        seconds = record.seconds["total"]
        about = f"{label}: round {state.round}/{self.rounds}"
        error = f"RMSE {row['test_rmse']:.4g} {self.unit}"
        log.info("%s, %s, %s, %.1f s", about, came, error, seconds)

    def on_end(self, label: str, history: "History") -> None:
        """A method is done; RunError if no vehicle had a part in it."""
        if not any(row["replies"] for row in history.rounds):
            rounds = counted(history.rounds[-1]["round"], "round")
            raise RunError(
                f"{label} has trained nothing: no reply counted in {rounds}, and its model is the "
                "one that it began with. The lines above say what became of the replies."
            )
        log.info("%s: done, best round %d", label, history.rounds[-1]["best_round"])


def describe_run(out: Path) -> Iterator[str]:
    """How the vehicles of a run stand and how far its methods are, a level model's run first."""
    from fedwatt.runs.level import LEVEL, level_label

    state = out / "deployment.json"
    if not state.exists():
        raise RunError(
            f"There is no run of a real fleet in {out}. 'fedwatt deploy submit --out {out}' starts "
            "one."
        )

    folders = [(level_label(folder.name), folder) for folder in _methods(out / LEVEL)]
    folders += [(folder.name, folder) for folder in _methods(out)]
    if not folders:
        yield "No round is complete yet."
    for name, folder in folders:
        done = max((int(f.name.removeprefix("round-")) for f in folder.glob("round-*")), default=0)
        yield f"{name}: {counted(done, 'round')} done{_epsilon(folder / f'round-{done:06d}')}"
    yield f"The run is {RunState.read(state).doing}"
    if (out / "report.html").exists():
        yield f"Report: {out / 'report.html'}"
    yield from fleet_lines(standings(read_rows(out / FILE)).values())
    yield from Conduct.read(out / "conduct.json").lines()


def _epsilon(checkpoint: Path) -> str:
    """What a private method has spent by a checkpoint; empty of any other."""
    if not (checkpoint / "rounds.parquet").exists():
        return ""
    from fedwatt.deploy.privacy_ledger import shown
    from fedwatt.runs.tables import read_table

    spent = read_table(checkpoint, "rounds").column("epsilon").to_pylist()
    return "" if not spent or isnan(spent[-1]) else f", ε = {shown(spent[-1])} spent"


def _methods(out: Path) -> list[Path]:
    """Folders of the checkpoints of a run's methods."""
    return sorted(f for f in (out / "checkpoint").glob("*") if f.is_dir())
