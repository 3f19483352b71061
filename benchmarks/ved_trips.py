"""Vehicles of VED with their splits, and the passes of routes that teach or are predicted."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fedwatt.elevation.elevation_map import ElevationMap
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.survey import mass_kg
from fedwatt.journeys.fleet_routes import Pass, VehicleRoutes, passes
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.store import read_fleet
from fedwatt.windows import DataSettings
from fedwatt.windows.client import split_of_trips

NAMES = tuple(
    f"ved-{number}" for number in (10, 11, 371, 398, 443, 453, 455, 457, 492, 550, 554, 561)
)
"""The vehicles of VED with 20 or more usable all-electric trips."""
SETTINGS = ElevationSettings()
GRID = Grid(cell_m=SETTINGS.cell_m)
LEAST_M = 2000.0


def seed_list(text: str) -> list[int]:
    """Return the numbers of a list as `--seeds` takes it.

    >>> seed_list("0,1"), seed_list("")
    ([0, 1], [])
    """
    return [int(seed) for seed in text.split(",") if seed]


@lru_cache(maxsize=1)
def vehicles_of(folder: Path) -> tuple[Vehicle, ...]:
    """Return the 12 vehicles from a fleet's folder or from the files of VED."""
    if (folder / "fleet.json").exists():
        vehicles: Iterable[Vehicle] = read_fleet(folder)
    else:
        from fedwatt.telemetry.readers import import_ved

        files = sorted(folder.glob("EV_PHEV.parquet")) or [folder]
        vehicles = import_ved(files, powertrain=("ev", "phev-electric"))
    return tuple(vehicle for vehicle in vehicles if vehicle.name in NAMES)


def data_settings(seed: int, features: str = "base", window: int = 60) -> DataSettings:
    return DataSettings(
        split_seed=seed, stride=5, evaluation_stride=1, features=features, window=window
    )


def recorded(vehicles: Sequence[Vehicle]) -> dict[str, dict[str, Pass]]:
    """All passes by vehicle and trip; the same for every split."""
    return {
        vehicle.name: {passing.trip.name: passing for passing in passes(vehicle.trips, GRID)}
        for vehicle in vehicles
    }


def split(vehicles: Sequence[Vehicle], all_: Mapping[str, Mapping[str, Pass]], seed: int) -> Any:
    """Return training passes, and test passes of at least 2 km, by vehicle."""
    taught: dict[str, tuple[Pass, ...]] = {}
    tested: dict[str, tuple[Pass, ...]] = {}
    for vehicle in vehicles:
        split_of = split_of_trips(vehicle, data_settings(seed))
        by_trip = all_[vehicle.name]
        in_split = {name: split_of.get(name, "") for name in by_trip}
        taught[vehicle.name] = tuple(
            by_trip[name] for name, part in in_split.items() if part in ("train", "validation")
        )
        tested[vehicle.name] = tuple(
            by_trip[name]
            for name, part in in_split.items()
            if part == "test" and by_trip[name].trip.metres >= LEAST_M
        )
    return taught, tested


def vehicle_routes(
    vehicle: Vehicle, taught: Sequence[Pass], elevations: ElevationMap | None
) -> VehicleRoutes:
    """Return the vehicle side of routes for one vehicle and its training passes."""
    return VehicleRoutes(tuple(taught), elevations, mass_kg(vehicle), GRID)


def forecast_only(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of trips that were not refused."""
    return [row for row in rows if "refused" not in row]


def wh_per_km(taught: Sequence[Pass]) -> float:
    """Return the mean consumption of passes."""
    energy = sum(passing.measured("energy") for passing in taught)
    return energy / sum(passing.route.metres for passing in taught) * 1000


def three(values: Sequence[float]) -> list[float]:
    """Return median, mean and 90th percentile, %."""
    percents = 100 * np.array(values)
    return [
        round(float(x), 2)
        for x in (np.median(percents), percents.mean(), np.percentile(percents, 90))
    ]
