"""Runs: configuration, run folder, checkpoints and their continuation."""

from fedwatt.runs.config import RunConfig, from_toml, to_toml
from fedwatt.runs.execute import execute
from fedwatt.runs.train import Observer

__all__ = ["Observer", "RunConfig", "execute", "from_toml", "to_toml"]
