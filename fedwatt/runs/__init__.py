"""Runs: configuration, run folder, checkpoints and their continuation."""

from fedwatt.observers import Observer
from fedwatt.runs.config import RunConfig, from_toml, to_toml
from fedwatt.runs.execute import execute

__all__ = ["Observer", "RunConfig", "execute", "from_toml", "to_toml"]
