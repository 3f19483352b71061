"""The loop over rounds, the fleets it asks, what they remember and what is recorded."""

from fedwatt.federation.federation import Federation
from fedwatt.federation.local_fleet import LocalFleet
from fedwatt.federation.loop import Loop, Trained
from fedwatt.federation.records import History, RoundRecord
from fedwatt.federation.settings import Asynchronous, Availability, Training
from fedwatt.federation.state import State

__all__ = [
    "Asynchronous", "Availability", "Federation", "History", "LocalFleet", "Loop", "RoundRecord",
    "State", "Trained", "Training",
]  # fmt: skip
