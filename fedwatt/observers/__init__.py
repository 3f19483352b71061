"""Following a run: who is told of its steps, and the log that every run writes."""

from fedwatt.observers.observer import SILENT, Observer, Observers, OnRound
from fedwatt.observers.progress_log import ProgressLog

__all__ = ["SILENT", "Observer", "Observers", "OnRound", "ProgressLog"]
