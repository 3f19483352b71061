"""Participation, churn, schedules, the stacked engine and its records."""

from fedwatt.federation.buffered import Buffered
from fedwatt.federation.federation import Federation, Trained
from fedwatt.federation.records import History, RoundRecord
from fedwatt.federation.settings import Asynchronous, Availability, Training
from fedwatt.federation.state import State

__all__ = [
    "Asynchronous",
    "Availability",
    "Buffered",
    "Federation",
    "History",
    "RoundRecord",
    "State",
    "Trained",
    "Training",
]
