"""A run in Weights & Biases: one W&B run for each method, grouped by the run folder.

Nothing leaves the machine unless WANDB_MODE says "online": files are in RUN/wandb, and
`wandb sync RUN/wandb/offline-run-*` sends them later.
"""

import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedwatt.errors import RunError
from fedwatt.observers import Observer
from fedwatt.runs.config import RunConfig, to_tables
from fedwatt.runs.tables import read_table
from fedwatt.track.scalars import all_scalars, artefacts

try:
    import wandb
except ImportError as problem:
    raise RunError("track.wandb needs Weights & Biases: pip install 'fedwatt[track]'.") from problem

if TYPE_CHECKING:
    from fedwatt.federation import History, RoundRecord, State


class WandB(Observer):
    """Logs to Weights & Biases as a run goes on: means over seeds, and each seed's own."""

    def __init__(self, config: RunConfig, out: Path) -> None:
        self.config = config
        self.out = out.resolve()
        self.open: Any = None
        """The W&B run of the method that trains."""

    def on_start(self, label: str, done: int, rounds: int) -> None:
        """Go on with the method's W&B run, or begin one."""
        self.open = self._opened(label)

    def _opened(self, label: str, kind: str = "method") -> Any:
        """Return the W&B run of a method; its id is always that of this folder and method."""
        return wandb.init(
            project=self.config.track.experiment,
            group=self.out.name,
            name=label,
            id=sha256(f"{self.out}#{label}".encode()).hexdigest()[:16],
            job_type=kind,
            config=to_tables(self.config),
            dir=str(self.out),
            mode=os.environ.get("WANDB_MODE", "offline"),  # type: ignore[arg-type]
            resume="allow",
            reinit="finish_previous",
        )

    def on_round(self, label: str, state: "State", record: "RoundRecord") -> None:
        """Log the scalars of a round."""
        self.open.log(all_scalars(record.rounds), step=state.round)

    def on_end(self, label: str, history: "History") -> None:
        """End the method's W&B run."""
        self.open.finish()

    def on_finish(self, run: Path) -> None:
        """Log the vehicles' errors as a table and all files as one artefact."""
        last = self._opened("results", kind="results")
        rows = read_table(run, "vehicles").to_pylist()
        columns: list[str | int] = ["method", "model", "seed", "vehicle", "stratum", "rmse"]
        table = wandb.Table(columns=columns, data=[[row[c] for c in columns] for row in rows])
        last.log({"vehicles": table})
        artefact = wandb.Artifact(f"{run.resolve().name}-run", type="run")
        for file in artefacts(run):
            artefact.add_file(str(file), name=str(file.relative_to(run)))
        last.log_artifact(artefact)
        last.finish()
