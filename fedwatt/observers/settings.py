"""Which trackers follow a run."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Track:
    """Trackers beside the run folder; they change no number. Each needs its own package."""

    tensorboard: bool = False
    """Whether curves go to RUN/tensorboard, for `tensorboard --logdir RUN/tensorboard`."""
    mlflow: bool = False
    """Whether the run goes to MLflow: RUN/mlflow.db, or the server in MLFLOW_TRACKING_URI."""
    wandb: bool = False
    """Whether it goes to Weights & Biases: offline into RUN/wandb, unless WANDB_MODE is set."""
    experiment: str = "fedwatt"
    """Experiment in MLflow, and project in Weights & Biases."""
