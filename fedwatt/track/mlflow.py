"""A run in MLflow: one MLflow run for each method, found again by its folder when it goes on.

MLflow's files are RUN/mlflow.db and RUN/mlflow-artifacts, unless MLFLOW_TRACKING_URI names a
server. `mlflow ui --backend-store-uri sqlite:///RUN/mlflow.db` shows them.
"""

import os
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

from fedwatt.errors import RunError
from fedwatt.observers import Observer
from fedwatt.runs.config import RunConfig, to_tables
from fedwatt.track.scalars import all_scalars, artefacts

try:
    from mlflow.entities import Metric, Param
    from mlflow.tracking import MlflowClient
except ImportError as problem:
    raise RunError("track.mlflow needs MLflow: pip install 'fedwatt[track]'.") from problem

if TYPE_CHECKING:
    from fedwatt.federation import History, RoundRecord, State

TAG = "fedwatt.run"
"""Holds the run folder and the method."""


class MLflow(Observer):
    """Logs to MLflow as a run goes on: means over seeds, and each seed's own."""

    def __init__(self, config: RunConfig, out: Path) -> None:
        self.config = config
        self.out = out.resolve()
        server = os.environ.get("MLFLOW_TRACKING_URI")
        self.client = MlflowClient(server or f"sqlite:///{self.out / 'mlflow.db'}")
        self.place = None if server else (self.out / "mlflow-artifacts").as_uri()
        self.runs: dict[str, str] = {}
        """Method → the id of its MLflow run."""

    def on_start(self, label: str, done: int, rounds: int) -> None:
        """Go on with the method's MLflow run, or begin one."""
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
        params = [Param(key, text) for key, text in _settings(self.config, label).items()]
        self.client.log_batch(self.runs[label], params=params)

    def on_round(self, label: str, state: "State", record: "RoundRecord") -> None:
        """Log the scalars of a round."""
        now = int(time() * 1000)
        values = all_scalars(record.rounds).items()
        metrics = [Metric(name, value, now, state.round) for name, value in values]
        self.client.log_batch(self.runs[label], metrics=metrics)

    def on_end(self, label: str, history: "History") -> None:
        """End the method's MLflow run."""
        self.client.set_terminated(self.runs[label])

    def on_finish(self, run: Path) -> None:
        """Tables, figures, report and models, with each method."""
        for method_run in self.runs.values():
            for file in artefacts(run):
                folder = "figures" if file.parent != run else None
                self.client.log_artifact(method_run, str(file), folder)


def _settings(config: RunConfig, label: str) -> dict[str, str]:
    """Return the settings of a run with one of its methods, by their names in TOML."""
    tables = to_tables(config)
    (method,) = (method for method in tables.pop("method") if method["label"] == label)
    flat = {f"method.{name}": str(value) for name, value in method.items()}
    for section, values in tables.items():
        if isinstance(values, dict):
            flat |= {f"{section}.{name}": str(value) for name, value in values.items()}
        else:
            flat[section] = str(values)
    return {name: text[:500] for name, text in flat.items()}
