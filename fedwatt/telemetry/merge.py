"""Put fleets together in one folder, with the names of their vehicles kept apart.

A name that occurs in one fleet alone stays as it is, so that its trips are split as before: splits
are drawn from names. One that occurs in several gets the name of its fleet's folder before it, in
every one of them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote

from fedwatt.errors import DataError, counted
from fedwatt.telemetry.channels import POSITION
from fedwatt.telemetry.store import fleet_source, read_fleet, vehicle_folders, write_fleet
from fedwatt.telemetry.trip import Vehicle

NO_ENERGY = "none"


@dataclass
class Part:
    """One of the fleets that were put together, and what its vehicles have."""

    name: str
    vehicles: int = 0
    trips: int = 0
    seconds: int = 0
    with_positions: int = 0
    with_elevation: int = 0
    energy: Counter[str] = field(default_factory=Counter)
    renamed: int = 0

    def count(self, vehicle: Vehicle, renamed: bool) -> None:
        """Add a vehicle."""
        channels = {name for trip in vehicle.trips for name in trip.channels}
        has_energy = all("energy_wh" in trip.channels for trip in vehicle.trips)
        self.vehicles += 1
        self.trips += len(vehicle.trips)
        self.seconds += sum(trip.seconds for trip in vehicle.trips)
        self.with_positions += channels.issuperset(POSITION)
        self.with_elevation += "elevation_m" in channels
        self.energy[vehicle.labels if has_energy else NO_ENERGY] += 1
        self.renamed += renamed

    def sentence(self) -> str:
        """Return a sentence on what came from this fleet."""
        energy = ", ".join(f"{n} {kind}" for kind, n in sorted(self.energy.items()))
        renamed = f" {counted(self.renamed, 'vehicle')} got '{self.name}-' before the name."
        left_out = (
            f" Left out of a run that predicts energy, but not by data.target = soc: "
            f"{counted(self.energy[NO_ENERGY], 'vehicle')} with trips without energy."
        )
        return (
            f"{self.name}: {counted(self.vehicles, 'vehicle')}, {counted(self.trips, 'trip')}, "
            f"{self.seconds / 3600:.1f} h; {self.with_positions} with positions, "
            f"{self.with_elevation} with elevation; energy: {energy}."
            + (left_out if self.energy[NO_ENERGY] else "")
            + (renamed if self.renamed else "")
        )


def merge_fleets(fleets: Sequence[Path], out: Path) -> list[Part]:
    """Write the vehicles of all `fleets` into the new fleet `out`; what each of them brought."""
    if len(fleets) < 2 or len({path.resolve() for path in fleets}) < len(fleets):
        raise DataError("Name two or more different fleets to put together.")
    parts = [Part(name) for name in fleet_names(fleets)]
    # Some file systems do not tell capitals from small letters.
    folders = [folder for path in fleets for folder in vehicle_folders(path)]
    times = Counter(unquote(folder.name).lower() for folder in folders)
    sources = "; ".join(fleet_source(path) for path in fleets)

    def vehicles() -> Iterator[Vehicle]:
        for part, fleet in zip(parts, fleets, strict=True):
            for vehicle in read_fleet(fleet):
                clash = times[vehicle.name.lower()] > 1
                part.count(vehicle, clash)
                name = f"{part.name}-{vehicle.name}" if clash else vehicle.name
                facts = {**vehicle.facts, "merged_from": fleet_source(fleet)}
                yield replace(vehicle, name=name, facts=facts)

    write_fleet(out, vehicles(), source=f"merged: {sources}")
    return parts


def fleet_names(fleets: Sequence[Path]) -> list[str]:
    """Return a name for each fleet: its folder's, with a number where several have the same.

    >>> fleet_names([Path("a/ved"), Path("b/ved"), Path("town")])
    ['ved', 'ved2', 'town']
    """
    names: list[str] = []
    for path in fleets:
        name = path.resolve().name
        number = 2
        while name in names:
            name, number = f"{path.resolve().name}{number}", number + 1
        names.append(name)
    return names
