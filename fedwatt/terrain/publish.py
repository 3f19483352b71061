"""Learn the shared field of a stored fleet and write it to a file."""

from collections.abc import Iterator
from pathlib import Path

from fedwatt.data import DataSettings, Vehicle
from fedwatt.data.split import held_out_vehicles
from fedwatt.data.store import read_fleet
from fedwatt.terrain.field import Field
from fedwatt.terrain.learn import learn_shared
from fedwatt.terrain.provenance import Provenance
from fedwatt.terrain.settings import TerrainSettings
from fedwatt.terrain.store import write_field


def publish_field(
    fleet: Path, out: Path, settings: TerrainSettings, data: DataSettings
) -> tuple[Field, int]:
    """The published field, now in the file `out`, and how many nodes were driven at all.

    Vehicles that a run under `data` holds out contribute nothing, and the file says who did.
    """
    names = [vehicle.name for vehicle in read_fleet(fleet)] if data.held_out else []
    held_out = held_out_vehicles(names, data.held_out, data.split_seed)
    contributors: list[str] = []

    def contributing() -> Iterator[Vehicle]:
        for vehicle in read_fleet(fleet):
            if vehicle.name not in held_out:
                contributors.append(vehicle.name)
                yield vehicle

    field, driven = learn_shared(contributing(), settings, data)
    write_field(out, field, driven=driven, provenance=Provenance.by(contributors, data))
    return field, driven
