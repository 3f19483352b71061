"""Following a run: the protocol, the log that every run writes, and the settings of trackers."""

from fedwatt.observers.observer import Observer, Observers, OnRound
from fedwatt.observers.progress_log import ProgressLog
from fedwatt.observers.settings import Track

__all__ = ["Observer", "Observers", "OnRound", "ProgressLog", "Track"]
