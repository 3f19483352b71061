"""The loop over rounds, the vehicles that take part, their client state and what is recorded."""

from fedwatt.federation.federation import Federation
from fedwatt.federation.loop import Loop, TrainingResult
from fedwatt.federation.records import History, RoundRecord
from fedwatt.federation.settings import Asynchronous, Availability, Training
from fedwatt.federation.state import State

__all__ = [
    "Asynchronous",
    "Availability",
    "Federation",
    "History",
    "Loop",
    "RoundRecord",
    "State",
    "Training",
    "TrainingResult",
]
