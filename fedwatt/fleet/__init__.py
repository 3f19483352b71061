"""From telemetry to client datasets: features, scaling, splits, windows and the on-disk store."""

from fedwatt.fleet.client import Client, DataSettings, Fleet, build_client, build_fleet
from fedwatt.fleet.features import FEATURE_SETS, FEATURES, Feature, feature_names
from fedwatt.fleet.split import SPLITS
from fedwatt.fleet.synthetic import synthetic_fleet, synthetic_vehicles
from fedwatt.fleet.trip import CHANNELS, INTERVAL_S, Channel, Trip, Vehicle

__all__ = [
    "CHANNELS",
    "FEATURES",
    "FEATURE_SETS",
    "INTERVAL_S",
    "SPLITS",
    "Channel",
    "Client",
    "DataSettings",
    "Feature",
    "Fleet",
    "Trip",
    "Vehicle",
    "build_client",
    "build_fleet",
    "feature_names",
    "synthetic_fleet",
    "synthetic_vehicles",
]
