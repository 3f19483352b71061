"""Recorded files to clean trips: channels, readers, column recognition, cleaning, storage."""

from fedwatt.telemetry.channels import CHANNELS, STORED, Channel
from fedwatt.telemetry.trip import INTERVAL_S, Trip, Vehicle

__all__ = ["CHANNELS", "INTERVAL_S", "STORED", "Channel", "Trip", "Vehicle"]
