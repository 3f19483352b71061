"""Vehicles of one town, and a configuration in which they learn its hills under masks."""

from pathlib import Path

from fedwatt.synthetic import synthetic_vehicles
from fedwatt.telemetry.store import write_fleet
from tests.deploy.fleets import config_text
from tests.elevation.toys import without_positions

AREA = [44.93, 45.07, -30.1, -29.98]
"""Around the town: about 24,000 nodes."""


def fleet_with_elevation(path: Path, lost: str = "") -> Path:
    """Four vehicles of which three drive 69 nodes, two 302, and all four 6; `lost` has no fix."""
    vehicles = [
        without_positions(synthetic_vehicle)
        if synthetic_vehicle.name == lost
        else synthetic_vehicle
        for synthetic_vehicle in synthetic_vehicles(4, 0, trips=16)
    ]
    write_fleet(path, vehicles, "synthetic, for tests")
    return path


def hilly(fleet: Path, method: str = "fedavg", rounds: int = 1, more: str = "") -> str:
    """All four vehicles in every round, k = 3, hills by energy alone and with the usual prior."""
    text = config_text(fleet, method, rounds, more)
    text = text.replace("participation = 0.7", "participation = 1.0")
    text = text.replace("window = 10", 'window = 10\nfeatures = "base, elevation"')
    usual = 'source = "learn"\nchoose_prior = false\n'
    sections = f"[elevation]\n{usual}area = {AREA}\n[secure]\nenabled = true\n"
    sections += "stage_seconds = 5\nsmallest_sum = 2\n"
    return text.replace("[[method]]", sections + "[[method]]", 1)
