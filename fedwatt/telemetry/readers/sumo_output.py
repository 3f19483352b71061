"""Read what Eclipse SUMO writes: floating-car data and the battery device's output.

Files of `sumo --fcd-output FCD.xml --battery-output BATTERY.xml`, also gzipped. Only vehicles with
a battery device have energy (`energyConsumed`, Wh a step, + = discharge) and are read. In SUMO a
vehicle drives once, so a vehicle that drives again has several ids: "car-7.0" and "car-7.1" are
trips 0 and 1 of car-7. Slopes are degrees, elevation is z; energy is simulated by nature.
"""

import gzip
import math
import zlib
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import polars as pl

from fedwatt.errors import DataError
from fedwatt.files import Bounded, unpacked_bound
from fedwatt.telemetry.cleaning import PLAIN_CLEANING, Cleaning
from fedwatt.telemetry.cleaning.account import Account, nothing_left
from fedwatt.telemetry.cleaning.clean import clean_vehicle
from fedwatt.telemetry.trip import FloatArray, RawTrip, Vehicle

Position = Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]

# attribute: its other names, across versions of SUMO
BATTERY_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "energyConsumed": (),
    "actualBatteryCapacity": ("chargeLevel",),
    "maximumBatteryCapacity": ("capacity",),
}
FCD_COLUMNS: Mapping[str, tuple[str, ...]] = {"speed": (), "x": (), "y": ()}
FCD_OPTIONAL = ("z", "slope")


def geographic(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return latitude and longitude of positions written with `--fcd-output.geo`."""
    return y, x


def import_sumo(
    fcd: Path,
    battery: Path,
    *,
    position: Position | None = None,
    cleaning: Cleaning = PLAIN_CLEANING,
) -> Iterator[Vehicle]:
    """Return the vehicles of a SUMO run, one at a time, in the order in which they first appear.

    An id is divided into vehicle and trip at its last point; one without it is a vehicle with one
    trip. `position` turns x and y of the file into latitude and longitude: `geographic` after
    `--fcd-output.geo`. Without it positions are left out: they are metres of some local map.
    """
    packs = _table(battery, BATTERY_COLUMNS)
    names = packs["id"].unique(maintain_order=True).to_list()
    if not names:
        raise DataError(
            f"{battery} has no vehicle with a battery. Give vehicle types the parameter "
            "'has.battery.device' = 'true' and run SUMO with --battery-output."
        )
    moves = _table(fcd, FCD_COLUMNS, FCD_OPTIONAL, only=names)
    driven = moves.join(packs, on=["id", "time"], maintain_order="left").partition_by(
        "id", as_dict=True
    )
    trips: dict[str, list[RawTrip]] = {}
    for name in names:
        if (name,) not in driven:
            raise DataError(
                f"{fcd} does not have vehicle '{name}' of {battery}. Both files must come from "
                "one run, and the FCD output must not leave out vehicles with a battery."
            )
        vehicle, _, trip = name.rpartition(".")
        recorded = _trip(trip if vehicle else "1", driven[name,], position)
        trips.setdefault(vehicle or name, []).append(recorded)
    return _cleaned(trips, cleaning, fcd)


def _cleaned(trips: dict[str, list[RawTrip]], cleaning: Cleaning, fcd: Path) -> Iterator[Vehicle]:
    total = Account()
    for name, recorded in trips.items():
        driven = Vehicle(name, (), labels="simulated", facts={"source": "SUMO"})
        vehicle, account = clean_vehicle(driven, recorded, cleaning)
        total += account + Account.of("read", "vehicles", 1)
        if vehicle is not None:
            yield vehicle
    if not total.count("kept", "vehicles"):
        raise DataError(f"No vehicle of {fcd} is left to use. {nothing_left(total)}")


def _trip(name: str, rows: pl.DataFrame, position: Position | None) -> RawTrip:
    """Return a trip of the seconds that both files have."""
    columns = {column: rows[column].to_numpy() for column in rows.columns if column != "id"}
    channels = {
        "speed_mps": columns["speed"],
        "energy_step_wh": columns["energyConsumed"],
        "soc": columns["actualBatteryCapacity"] / columns["maximumBatteryCapacity"],
        "elevation_m": columns["z"],
        "grade": np.tan(np.radians(columns["slope"])),
    }
    if position is not None:
        channels["latitude_deg"], channels["longitude_deg"] = position(columns["x"], columns["y"])
    # An optional attribute counts where it is always set.
    complete = {channel: v for channel, v in channels.items() if np.isfinite(v).all()}
    return RawTrip(name, columns["time"], complete, clock_s=0.0)


def _table(
    file: Path,
    required: Mapping[str, tuple[str, ...]],
    optional: Collection[str] = (),
    only: Collection[str] | None = None,
) -> pl.DataFrame:
    """Return "id", "time" and these attributes of every vehicle (of `only` these) in every step."""
    names: list[str] = []
    columns = {column: array("d") for column in ("time", *required, *optional)}
    for time_s, vehicle in _vehicles(file):
        name = vehicle.get("id", "")
        if only is not None and name not in only:
            continue
        names.append(name)
        columns["time"].append(time_s)
        for column, aliases in required.items():
            text = next((t for a in (column, *aliases) if (t := vehicle.get(a)) is not None), None)
            columns[column].append(_number(text, column, name, time_s, file))
        for column in optional:
            text = vehicle.get(column, "nan")
            columns[column].append(_number(text, column, name, time_s, file))
    values = {column: np.frombuffer(numbers) for column, numbers in columns.items()}
    return pl.DataFrame({"id": names, **values}, schema_overrides={"id": pl.String})


def _number(text: str | None, column: str, vehicle: str, time_s: float, file: Path) -> float:
    try:
        return float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        what = "no" if text is None else f"'{text}' as"
        raise DataError(
            f"{file}: vehicle '{vehicle}' at {time_s:g} s has {what} '{column}', where a number is "
            "needed. Write the file with SUMO's default attributes."
        ) from None


def _vehicles(file: Path) -> Iterator[tuple[float, ElementTree.Element]]:
    """Yield time and element of every vehicle of every step, one in memory at a time."""
    time_s = 0.0
    step: ElementTree.Element | None = None
    try:
        with _opened(file) as content:
            for event, element in ElementTree.iterparse(content, ("start", "end")):
                if element.tag == "timestep":
                    if event == "start":
                        time_s = _number(element.get("time"), "time", "-", math.nan, file)
                        step = element
                    else:
                        element.clear()
                elif event == "end":
                    if element.tag == "vehicle":
                        yield time_s, element
                    if step is not None:
                        step.clear()
    except FileNotFoundError:
        raise DataError(f"{file} does not exist. Run SUMO with output files first.") from None
    except (ElementTree.ParseError, OSError, EOFError, zlib.error) as problem:
        raise DataError(
            f"{file} is not a complete XML file: {problem}. Did the run end early?"
        ) from problem


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    file = Path(file)
    if file.suffix == ".gz":
        with gzip.open(file) as packed:
            yield Bounded(packed, unpacked_bound(file))
    else:
        with file.open("rb") as plain:
            yield plain
