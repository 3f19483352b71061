"""Trackers: observers that pass a run on to TensorBoard, MLflow or Weights & Biases.

Each is one file and is loaded only where a run asks for it (`[track]`). None of them needs the
internet: what they write lies in the run folder unless the user's environment names a server.
"""

from pathlib import Path

from fedwatt.observers import Observer
from fedwatt.runs.config import RunConfig


def trackers(config: RunConfig, out: Path) -> list[Observer]:
    """Return the trackers that a configuration asks for; RunError if the package of one is
    missing.
    """
    observers: list[Observer] = []
    if config.track.tensorboard:
        from fedwatt.track.tensorboard import TensorBoard

        observers.append(TensorBoard(out))
    if config.track.mlflow:
        from fedwatt.track.mlflow import MLflow

        observers.append(MLflow(config, out))
    if config.track.wandb:
        from fedwatt.track.wandb import WandB

        observers.append(WandB(config, out))
    return observers
