"""Trackers: observers that pass a run on to TensorBoard or MLflow (`[track]`).

    TensorBoard   RUN/tensorboard/METHOD/seed-1, one folder for each method and seed
    MLflow        RUN/mlflow.db and RUN/mlflow-artifacts, unless MLFLOW_TRACKING_URI names a server;
                  `mlflow ui --backend-store-uri sqlite:///RUN/mlflow.db` shows them

MLflow has one run for each method, found again by the run folder when it is continued. Neither
needs the internet, and the package of each is loaded only where a run asks for it.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from statistics import fmean
from time import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from fedwatt.errors import RunError, optional
from fedwatt.runs.config import RunConfig, flattened, to_tables
from fedwatt.runs.model_file import MODEL_FILE
from fedwatt.runs.observers import Observer, rounds_beside
from fedwatt.runs.tables import read_table

if TYPE_CHECKING:
    from fedwatt.federation import History, RoundRecord, State

KEYS = ("seed", "round", "method")
"""Columns of a row that say where it belongs."""
TAG = "fedwatt.run"
"""The MLflow tag with the run folder and the method."""


def trackers(config: RunConfig, out: Path) -> list[Observer]:
    """Return the trackers that a configuration asks for; RunError if a package is missing."""
    observers: list[Observer] = []
    if config.track.tensorboard:
        observers.append(TensorBoard(out))
    if config.track.mlflow:
        observers.append(MLflow(config, out))
    return observers


def _load(module: str, name: str, setting: str) -> Any:
    missing = f"track.{setting} needs {name}: pip install 'fedwatt[track]'."
    return optional(module, missing, RunError)


class TensorBoard(Observer):
    """A writer of TensorBoard event files."""

    def __init__(self, out: Path) -> None:
        module = _load("torch.utils.tensorboard", "TensorBoard", "tensorboard")
        self.new_writer = module.SummaryWriter
        self.folder = out / "tensorboard"
        self.done = 0
        self.writers: dict[int, Any] = {}
        """By seed, the writers of the method that trains."""

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
                self.writers[seed] = self.new_writer(str(folder), purge_step=self.done + 1)
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
        with self.new_writer(str(self.folder / "vehicles")) as writer:
            writer.add_text("vehicles", "\n".join(lines))


class MLflow(Observer):
    """A logger to MLflow: means over seeds, and the numbers of each seed."""

    def __init__(self, config: RunConfig, out: Path) -> None:
        self.entities = _load("mlflow.entities", "MLflow", "mlflow")
        self.config = config
        self.out = out.resolve()
        server = os.environ.get("MLFLOW_TRACKING_URI")
        new_client = _load("mlflow.tracking", "MLflow", "mlflow").MlflowClient
        self.client = new_client(server or f"sqlite:///{self.out / 'mlflow.db'}")
        self.place = None if server else (self.out / "mlflow-artifacts").as_uri()
        self.runs: dict[str, str] = {}
        """Method → the id of its MLflow run."""

    def on_start(self, label: str, done: int, rounds: int) -> None:
        """Continue the method's MLflow run, or begin one."""
        name = self.config.track.experiment
        existing = self.client.get_experiment_by_name(name)
        experiment = (
            self.client.create_experiment(name, artifact_location=self.place)
            if existing is None
            else existing.experiment_id
        )
        # MLflow's filters have no way to write a quotation mark inside a text.
        tag = f"{self.out}#{label}".replace("'", "%27")
        earlier = self.client.search_runs([experiment], f"tags.`{TAG}` = '{tag}'", max_results=1)
        if earlier:
            self.runs[label] = earlier[0].info.run_id
            self.client.update_run(self.runs[label], status="RUNNING")
            return
        run = self.client.create_run(experiment, tags={TAG: tag}, run_name=label)
        self.runs[label] = run.info.run_id
        settings = _settings(self.config, label).items()
        params = [self.entities.Param(key, text) for key, text in settings]
        self.client.log_batch(self.runs[label], params=params)

    def on_round(self, label: str, state: "State", record: "RoundRecord") -> None:
        """Log the scalars of a round."""
        now = int(time() * 1000)
        metrics = [
            self.entities.Metric(name, value, now, state.round)
            for name, value in all_scalars(record.rounds).items()
        ]
        self.client.log_batch(self.runs[label], metrics=metrics)

    def on_end(self, label: str, history: "History") -> None:
        """End the method's MLflow run."""
        self.client.set_terminated(self.runs[label])

    def on_finish(self, run: Path) -> None:
        """Log tables, figures, report and models with each method."""
        for method_run in self.runs.values():
            for file in artefacts(run):
                folder = "figures" if file.parent != run else None
                self.client.log_artifact(method_run, str(file), folder)


@dataclass
class Replayed(Observer):
    """A tracker of a run whose methods train elsewhere: it gets their rounds from the history."""

    tracker: Observer
    seen: set[int] = field(default_factory=set)

    def on_start(self, label: str, done: int, rounds: int) -> None:
        """Count rounds that are done already as still to come."""
        self.seen = set()
        self.tracker.on_start(label, 0, rounds)

    def on_round(self, label: str, state: "State", record: "RoundRecord") -> None:
        """Pass on a round that was trained here after all."""
        self.seen.add(state.round)
        self.tracker.on_round(label, state, record)

    def on_end(self, label: str, history: "History") -> None:
        """Pass on all rounds that the tracker has not seen, in their order."""
        from fedwatt.federation import RoundRecord

        for number, rows in rounds_beside(history, self.seen):
            state = cast("State", SimpleNamespace(round=number))  # trackers read nothing else of it
            self.tracker.on_round(label, state, RoundRecord(rows, [], {}))
        self.tracker.on_end(label, history)

    def on_finish(self, run: Path) -> None:
        """Pass on that the folder is complete."""
        self.tracker.on_finish(run)


def scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of a row of rounds.parquet.

    >>> scalars({"seed": 1, "round": 3, "evaluated": True, "test_rmse": 48, "pull": float("nan")})
    {'test_rmse': 48.0}
    """
    return {
        name: float(value)
        for name, value in row.items()
        if name not in KEYS
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and isfinite(value)
    }


def all_scalars(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return means over the seeds that have a number, and the numbers of each seed.

    >>> all_scalars([{"seed": 1, "test_rmse": 48.0}, {"seed": 2, "test_rmse": 50.0}])
    {'test_rmse': 49.0, 'seed-1/test_rmse': 48.0, 'seed-2/test_rmse': 50.0}
    """
    by_seed = {row["seed"]: scalars(row) for row in rows}
    names = dict.fromkeys(name for seed_scalars in by_seed.values() for name in seed_scalars)
    means = {
        name: fmean(seed_scalars[name] for seed_scalars in by_seed.values() if name in seed_scalars)
        for name in names
    }
    for seed, seed_scalars in by_seed.items():
        means |= {f"seed-{seed}/{name}": value for name, value in seed_scalars.items()}
    return means


def artefacts(run: Path) -> Iterator[Path]:
    """Yield the files of a finished run that are worth storing elsewhere, where they exist."""
    for name in ("config.toml", "report.html", "vehicles.parquet", "rounds.parquet", MODEL_FILE):
        if (run / name).is_file():
            yield run / name
    yield from sorted((run / "figures").glob("*.svg"))


def _settings(config: RunConfig, label: str) -> dict[str, str]:
    """Return the settings of a run with one of its methods, by their names in TOML."""
    tables = to_tables(config)
    # A model without elevation is labelled after its method.
    methods = [method for method in tables["method"] if method["label"] in label]
    method = max(methods, key=lambda entry: len(entry["label"]))
    settings = flattened(tables | {"method": method})
    return {name: str(value)[:500] for name, value in settings.items()}
