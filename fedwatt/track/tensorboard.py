"""Curves for TensorBoard: RUN/tensorboard/METHOD/seed-1, one folder for each method and seed."""

from pathlib import Path
from typing import TYPE_CHECKING

from fedwatt.errors import RunError
from fedwatt.observers import Observer
from fedwatt.runs.tables import read_table
from fedwatt.track.scalars import scalars

try:
    from torch.utils.tensorboard import SummaryWriter
except ImportError as problem:
    raise RunError(
        "track.tensorboard needs TensorBoard: pip install 'fedwatt[track]'."
    ) from problem

if TYPE_CHECKING:
    from fedwatt.federation import History, RoundRecord, State


class TensorBoard(Observer):
    """Writes event files as a run goes on."""

    def __init__(self, out: Path) -> None:
        self.folder = out / "tensorboard"
        self.done = 0
        self.writers: dict[int, SummaryWriter] = {}
        """By seed, those of the method that trains."""

    def on_start(self, label: str, done: int, rounds: int) -> None:
        """Open a method's curves; repeated rounds replace what is there."""
        self.done = done
        self.writers = {}

    def on_round(self, label: str, state: "State", record: "RoundRecord") -> None:
        """Add a point to every curve."""
        for row in record.rounds:
            seed = row["seed"]
            if seed not in self.writers:
                folder = self.folder / label / f"seed-{seed}"
                self.writers[seed] = SummaryWriter(str(folder), purge_step=self.done + 1)
            for name, value in scalars(row).items():
                self.writers[seed].add_scalar(name, value, state.round)
            self.writers[seed].flush()

    def on_end(self, label: str, history: "History") -> None:
        """Close the curves."""
        for writer in self.writers.values():
            writer.close()

    def on_finish(self, run: Path) -> None:
        """Write the errors of single vehicles as a table."""
        rows = read_table(run, "vehicles").to_pylist()
        lines = ["| method | model | seed | vehicle | test RMSE |", "|---|---|---|---|--:|"]
        lines += [
            f"| {row['method']} | {row['model']} | {row['seed']} | {row['vehicle']} "
            f"| {row['rmse']:.4g} |"
            for row in rows
            if row["stratum"] == "all"
        ]
        with SummaryWriter(str(self.folder / "vehicles")) as writer:
            writer.add_text("vehicles", "\n".join(lines))
