"""Participation, churn, schedules, the stacked engine and its records."""

from fedwatt.federation.federation import Federation, Trained
from fedwatt.federation.records import History, RoundRecord
from fedwatt.federation.settings import Availability, Training
from fedwatt.federation.state import State

__all__ = [
    "Availability",
    "Federation",
    "History",
    "RoundRecord",
    "State",
    "Trained",
    "Training",
]
