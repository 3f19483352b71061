"""Trips to training windows: features, targets, splits, scaling, `Client` and `Fleet`."""

from fedwatt.windows.client import Client, DataSettings, Fleet, build_client, build_fleet
from fedwatt.windows.features import FEATURE_SETS, FEATURES, Feature, feature_names
from fedwatt.windows.splits import SPLITS

__all__ = [
    "FEATURES",
    "FEATURE_SETS",
    "SPLITS",
    "Client",
    "DataSettings",
    "Feature",
    "Fleet",
    "build_client",
    "build_fleet",
    "feature_names",
]
