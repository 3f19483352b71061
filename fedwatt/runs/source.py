"""The fleet that a configuration asks for."""

from itertools import islice
from pathlib import Path

from fedwatt.fleet import DataSettings, Fleet, build_fleet, synthetic_fleet
from fedwatt.fleet.store import fleet_source, read_fleet
from fedwatt.runs.config import Source

SYNTHETIC_VEHICLES = 20


def open_fleet(source: Source, data: DataSettings) -> Fleet:
    """Synthetic vehicles, or those of a stored fleet."""
    if source.data == "synthetic":
        vehicles = source.vehicles or SYNTHETIC_VEHICLES
        return synthetic_fleet(vehicles=vehicles, seed=source.seed, settings=data)
    path = Path(source.data)
    vehicles_there = islice(read_fleet(path), source.vehicles or None)
    return build_fleet(vehicles_there, data, fleet_source(path))
