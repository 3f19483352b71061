"""From telemetry to client datasets: features, scaling, splits, windows and the on-disk store."""

from fedwatt.data.channels import CHANNELS, STORED, Channel
from fedwatt.data.client import Client, DataSettings, Fleet, build_client, build_fleet
from fedwatt.data.features import FEATURE_SETS, FEATURES, Feature, feature_names
from fedwatt.data.split import SPLITS
from fedwatt.data.synthetic import synthetic_fleet, synthetic_vehicles
from fedwatt.data.trip import INTERVAL_S, Trip, Vehicle

__all__ = [
    "CHANNELS", "FEATURES", "FEATURE_SETS", "INTERVAL_S", "SPLITS", "STORED", "Channel", "Client",
    "DataSettings", "Feature", "Fleet", "Trip", "Vehicle", "build_client", "build_fleet",
    "feature_names", "synthetic_fleet", "synthetic_vehicles",
]  # fmt: skip
