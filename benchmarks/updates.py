"""Displacements as float16 and int8: bytes of a reply, what rounding takes, and the error after it.

    python -m benchmarks.updates [--seeds 1 2 3] [--rounds 40]

The README's fleet on the road, in one process: every question and reply goes through Flower's
messages, between the server of a run and vehicles that train. Writes results/updates.json and the
table of docs/deploy.md. Took twenty minutes on two cores that others used as well.
"""

import argparse
import json
import logging
import re
import statistics
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from flwr.supercore.task_identity import TaskIdentity

from benchmarks.marked import write_blocks
from fedwatt.deploy.board import Board
from fedwatt.deploy.execute import execute
from fedwatt.deploy.flower import taken_apart
from fedwatt.deploy.policy import OPEN
from fedwatt.deploy.vehicle import Vehicle
from fedwatt.observers import Observers
from fedwatt.runs.config import RunConfig, from_tables
from fedwatt.runs.deployment import UPDATE_TYPES
from fedwatt.runs.tables import read_table
from fedwatt.synthetic import synthetic_vehicles
from fedwatt.telemetry.store import vehicle_folders, write_fleet
from tests.deploy.loopback import KINDS, Loopback

ROOT: Final = Path(__file__).parents[1]
VEHICLES, TRIPS = 20, 12


@dataclass
class Weighing(Loopback):
    """Notes how many bytes each reply to a round has."""

    weighed: list[int] = field(default_factory=list)

    def answer(self, message: Any) -> Any:
        """The vehicle's reply, weighed."""
        reply = super().answer(message)
        if reply is not None and KINDS[message.metadata.message_type] == "train":
            self.weighed.append(sum(map(len, taken_apart(reply)[1].values())))
        return reply


class Losses(logging.Handler):
    """Collects the mean and the largest loss of each round from the log, in per cent."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[float, float]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Read a line of the log."""
        if said := re.search(r"took ([\d.]+) % of Δ, at most ([\d.]+) %", record.getMessage()):
            self.found.append((float(said[1]), float(said[2])))


def configuration(kind: str, seed: int, rounds: int) -> RunConfig:
    """The default comparison on these vehicles."""
    usual = from_tables({})
    return replace(
        usual,
        seeds=(seed,),
        training=replace(usual.training, rounds=rounds),
        deploy=replace(usual.deploy, vehicles=VEHICLES, poll_seconds=0.001, update_type=kind),
    )


def measure(folder: Path, kind: str, seed: int, rounds: int) -> dict[str, Any]:
    """One run: bytes of its replies, losses, and test errors by method."""
    grid = Weighing(
        {
            number: Vehicle(own, folder / f"state-{kind}-{seed}" / own.name, board=Board(OPEN))
            for number, own in enumerate(vehicle_folders(folder / "fleet"), start=1)
        }
    )
    log, losses = logging.getLogger("fedwatt.deploy"), Losses()
    log.setLevel(logging.INFO)
    log.addHandler(losses)
    out = folder / f"run-{kind}-{seed}"
    execute(configuration(kind, seed, rounds), out, grid, Observers(()))
    log.removeHandler(losses)
    rows = read_table(out, "rounds").to_pylist()
    errors: dict[str, dict[str, float]] = {}
    for row in rows:
        errors.setdefault(row["method"], {})["last"] = row["test_rmse"]
        if row["round"] == rounds:
            errors[row["method"]]["kept"] = row["kept_test_rmse"]
    return {
        "update_type": kind,
        "seed": seed,
        "bytes": statistics.median(grid.weighed),
        "rounding_percent": statistics.mean(mean for mean, _ in losses.found or [(0.0, 0.0)]),
        "rounding_most_percent": max(most for _, most in losses.found or [(0.0, 0.0)]),
        "test_rmse_wh": errors,
    }


def table(rows: list[dict[str, Any]], rounds: int) -> str:
    """What docs/deploy.md shows."""
    methods = list(rows[0]["test_rmse_wh"])
    seeds = sorted({row["seed"] for row in rows})
    heads = " | ".join(f"{name}: RMSE, Wh | change by seed" for name in methods)
    lines = [f"| sent as | a reply, bytes | rounding takes of Δ | {heads} |"]
    lines.append("|---|--:|--:|" + "--:|--:|" * len(methods))
    for kind in UPDATE_TYPES:
        own = [row for row in rows if row["update_type"] == kind]
        size, full = own[0]["bytes"], rows[0]["bytes"]
        share = "" if kind == "full" else f" ({100 * size / full:.0f} %)"
        lost = statistics.mean(row["rounding_percent"] for row in own)
        most = max(row["rounding_most_percent"] for row in own)
        rounding = "–" if kind == "full" else f"{lost:.2f} %, at most {most:.2f} %"
        cells = [f"`{kind}`", f"{size:,.0f}{share}", rounding]
        for name in methods:
            found = [row["test_rmse_wh"][name]["last"] for row in own]
            exact = [row["test_rmse_wh"][name]["last"] for row in rows[: len(seeds)]]
            changes = [100 * (one / other - 1) for one, other in zip(found, exact, strict=True)]
            told = "–" if kind == "full" else f"{min(changes):+.2f} to {max(changes):+.2f} %"
            cells += [f"{statistics.mean(found):.2f}", told]
        lines.append("| " + " | ".join(cells) + " |")
    about = (
        f"{VEHICLES} vehicles of the embedded fleet with {TRIPS} trips each, {rounds} rounds, mean "
        f"test RMSE after the last one over seeds {', '.join(map(str, seeds))}, each method at the "
        "rate of the default comparison."
    )
    return f"{about}\n\n" + "\n".join(lines)


def main() -> None:
    """Measure all types, write the record and the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--rounds", type=int, default=40)
    asked = parser.parse_args()
    for name in ("_run_id", "_task_id", "_node_id"):  # which Flower's processes would have said
        setattr(TaskIdentity, name, 1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_fleet(folder / "fleet", synthetic_vehicles(VEHICLES, trips=TRIPS), "embedded")
        rows = [
            measure(folder, kind, seed, asked.rounds)
            for kind in UPDATE_TYPES
            for seed in asked.seeds
        ]
    record = {"vehicles": VEHICLES, "trips": TRIPS, "rounds": asked.rounds, "runs": rows}
    (ROOT / "results" / "updates.json").write_text(json.dumps(record, indent=1) + "\n")
    write_blocks(ROOT / "docs" / "deploy.md", {"updates": table(rows, asked.rounds)})
    print(table(rows, asked.rounds))


if __name__ == "__main__":
    main()
