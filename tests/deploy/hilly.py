"""Vehicles of one town, and a configuration in which they learn its hills under masks."""

from dataclasses import replace
from pathlib import Path

from fedwatt.fleet import Trip, Vehicle, synthetic_vehicles
from fedwatt.fleet.store import write_fleet
from tests.deploy.fleets import config_text

AREA = [44.93, 45.07, -30.1, -29.98]
"""Around the town: about 24,000 nodes."""


def hilly_fleet(path: Path, lost: str = "") -> Path:
    """Four vehicles of which three drive 69 nodes, two 302, and all four 6; `lost` has no fix."""
    vehicles = [
        without_positions(one) if one.name == lost else one
        for one in synthetic_vehicles(4, 0, trips=16)
    ]
    write_fleet(path, vehicles, "synthetic, for tests")
    return path


def without_positions(vehicle: Vehicle) -> Vehicle:
    """The vehicle before it had a receiver."""
    return replace(
        vehicle,
        trips=tuple(
            Trip(trip.name, {n: v for n, v in trip.channels.items() if not n.endswith("_deg")})
            for trip in vehicle.trips
        ),
    )


def hilly(fleet: Path, method: str = "fedavg", rounds: int = 1, more: str = "") -> str:
    """All four vehicles in every round, k = 3."""
    text = config_text(fleet, method, rounds, more)
    text = text.replace("participation = 0.7", "participation = 1.0")
    text = text.replace("window = 10", 'window = 10\nfeatures = "base, terrain"')
    sections = f"[terrain]\narea = {AREA}\n[secure]\nenabled = true\nstage_seconds = 5\n"
    return text.replace("[[method]]", sections + "[[method]]", 1)
