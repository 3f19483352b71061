"""A map as one Parquet file: a row for each node; its metadata holds the grid and provenance.

The provenance says whose trips a map was learned from, so that it is never evaluated on them. A
map is learned from training trips. Used in a run that splits the same vehicles' trips another
way, it would have seen the energy of that run's test trips.
"""

import json
import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedwatt.elevation.elevation_map import ElevationMap, Prior
from fedwatt.elevation.grid import Grid
from fedwatt.errors import DataError, RunError, SettingError
from fedwatt.files import flush, parse_json, write_atomically
from fedwatt.windows import DataSettings

FORMAT = 1
COLUMNS = {
    "node": pa.int64(),
    "elevation_m": pa.float64(),
    "region": pa.int64(),
    "passes": pa.float64(),
    "vehicles": pa.int64(),
}

log = logging.getLogger("fedwatt.elevation")


@dataclass(frozen=True)
class Provenance:
    """The vehicles that contributed to a map, and the settings of their training split.

    `window` in samples: trips shorter than a window are in no split.
    """

    vehicles: frozenset[str]
    split: tuple[float, float, float]
    split_seed: int
    window: int

    @classmethod
    def by(cls, vehicles: Iterable[str], data: DataSettings) -> "Provenance":
        """Return the provenance of a map learned from these vehicles' training trips under
        `data`.
        """
        return cls(frozenset(vehicles), data.split, data.split_seed, data.window)

    def refuse(
        self, file: Path, vehicle: str, data: DataSettings, *, held_out: bool = False
    ) -> None:
        """Raise if the map of `file` was learned from trips that `vehicle` is evaluated on."""
        if vehicle not in self.vehicles:
            return
        if held_out:
            raise SettingError(
                f"The map {file} was learned from vehicle '{vehicle}', which this run holds out; "
                "learn it without that vehicle ('fedwatt elevation learn --set data.held_out=1')."
            )
        here = Provenance.by(self.vehicles, data)
        if here == self:
            return
        differing = ", ".join(
            f"{name} is {_written(getattr(self, name))} there and {_written(getattr(here, name))} "
            "here"
            for name in ("split", "split_seed", "window")
            if getattr(self, name) != getattr(here, name)
        )
        raise SettingError(
            f"The map {file} was learned from vehicle '{vehicle}' with other training trips and "
            f"may know this run's test trips ({differing}); learn it with the run's split."
        )


def _written(value: object) -> str:
    return "/".join(f"{share:g}" for share in value) if isinstance(value, tuple) else str(value)


def write_map_file(
    path: Path,
    elevation_map: ElevationMap,
    *,
    provenance: Provenance | None = None,
) -> None:
    """Write a map; it appears under its name only once all of it is on the disk.

    `provenance` says whose training trips it was learned from; None: not from trips, or unknown.
    """
    arrays = (
        elevation_map.keys,
        elevation_map.elevation_m,
        elevation_map.region,
        elevation_map.passes,
        elevation_map.vehicles,
    )
    head: dict[str, Any] = {"format": FORMAT, "cell_m": elevation_map.grid.cell_m}
    head |= {"prior": asdict(elevation_map.prior), "measured": elevation_map.measured}
    if provenance is not None:
        head["taught"] = asdict(provenance) | {"vehicles": sorted(provenance.vehicles)}
    schema = pa.schema(list(COLUMNS.items()), metadata={"fedwatt.field": json.dumps(head)})
    table = pa.table(dict(zip(COLUMNS, map(pa.array, arrays), strict=True)), schema=schema)
    try:
        write_atomically(path, lambda part: pq.write_table(table, part, compression="zstd"))
        flush(path.parent)
    except RunError as problem:
        reason = getattr(problem.__cause__, "strerror", None) or problem.__cause__
        raise DataError(
            f"Could not write the map to {path}: {reason}. Choose another file."
        ) from problem


def read_map_file(path: Path) -> ElevationMap:
    """Read a map written by `write_map_file`."""
    try:
        table = pq.read_table(path)
        head = parse_json(table.schema.metadata[b"fedwatt.field"])
        if head["format"] != FORMAT:
            raise ValueError(f"format {head['format']} is not {FORMAT}")
        keys, elevation_m, region, passes, vehicles = (
            np.array(table.column(name).cast(kind).to_numpy()) for name, kind in COLUMNS.items()
        )
        prior = Prior(**head.get("prior", {}))
        grid = Grid(cell_m=head["cell_m"])
        measured = bool(head.get("measured", False))
        return ElevationMap(grid, keys, elevation_m, region, passes, vehicles, prior, measured)
    except FileNotFoundError:
        raise DataError(
            f"There is no elevation map {path.absolute()}. 'fedwatt elevation learn' makes one; "
            'elevation.source = "auto" learns it in the run.'
        ) from None
    except (OSError, KeyError, TypeError, ValueError, pa.ArrowException) as problem:
        reason = str(problem).splitlines()[0].rstrip(".")
        raise DataError(f"{path} is not an elevation map that can be read: {reason}.") from problem


def read_provenance(path: Path) -> Provenance | None:
    """Return the vehicles whose trips the map of `path` was learned from, or None."""
    head = parse_json(pq.read_schema(path).metadata[b"fedwatt.field"])
    try:
        if "taught" not in head:
            return None
        table = head["taught"]
        train, validation, test = (float(share) for share in table["split"])
        numbers = int(table["split_seed"]), int(table["window"])
        return Provenance(frozenset(table["vehicles"]), (train, validation, test), *numbers)
    except (KeyError, TypeError, ValueError) as problem:
        raise DataError(
            f"{path} does not say rightly which trips it was learned from: {problem}. "
            "Learn it again with 'fedwatt elevation learn'."
        ) from problem
