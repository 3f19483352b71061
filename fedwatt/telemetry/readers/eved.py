"""Read the extended Vehicle Energy Dataset: VED's columns and what map matching adds.

Zhang, Fatih, Abdulqadir, Schwarz and Ma, "Extended Vehicle Energy Dataset (eVED)", 2022. Grade is
taken from `Gradient` (a ratio from smoothed elevations), elevation from `Elevation Smoothed[m]`.
The speed limit is the one for the direction driven where given; a range such as `48-40` (one limit
each way) counts as its mean. Flags are empty unless set. Positions stay the receiver's own, as in
VED; `Energy_Consumption` is ignored, since its unit is not certain: energy comes from V and I.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

from fedwatt.telemetry.cleaning.cleaning import VED_CLEANING, Cleaning
from fedwatt.telemetry.readers.stream import Progress, VehicleStream
from fedwatt.telemetry.readers.table_blocks import WantedColumn
from fedwatt.telemetry.readers.ved import (
    EXPRESSIONS,
    KMH_PER_MPS,
    RAW_COLUMNS,
    VedFormat,
    import_ved,
)

DIRECTED_LIMIT = "Speed Limit with Direction[km/h]"

EVED_RAW_COLUMNS: dict[str, WantedColumn] = {
    **RAW_COLUMNS,
    "Elevation Smoothed[m]": WantedColumn(),
    "Gradient": WantedColumn(),
    "Speed Limit[km/h]": WantedColumn(text=True),
    DIRECTED_LIMIT: WantedColumn(("Speed Limit Direction[km/h]",), text=True, required=False),
    "Intersection": WantedColumn(("Intersections",), text=True),
    "Bus Stops": WantedColumn(("Bus Stop",), text=True),
    "Focus Points": WantedColumn(("Focus Point",), text=True),
}


def limit_kmh(column: str) -> pl.Expr:
    """Speed limit written as `48`, `48.0` or `48-40` (the mean of both), null otherwise.

    >>> texts = {"limit": ["48", "48-40;", "none", None]}
    >>> pl.DataFrame(texts).select(limit_kmh("limit"))["limit"].to_list()
    [48.0, 44.0, None, None]
    """
    ends = pl.col(column).str.strip_chars(" ;").str.split("-")
    numbers = ends.list.eval(pl.element().cast(pl.Float64, strict=False))
    # A list that holds something else than numbers has a mean of the rest: not to be trusted.
    all_numbers = numbers.list.eval(pl.element().is_not_null()).list.all()
    return pl.when(all_numbers).then(numbers.list.mean())


def flag(column: str) -> pl.Expr:
    """1 where the column holds anything but nothing, 0 or no; else 0.

    >>> marks = {"mark": ["1.0", "0", ";", None, "crossing;"]}
    >>> pl.DataFrame(marks).select(flag("mark"))["mark"].to_list()
    [1.0, 0.0, 0.0, 0.0, 1.0]
    """
    text = pl.col(column).str.strip_chars(" ;").str.to_lowercase()
    unset = text.is_in(["", "0", "0.0", "no", "false", "none", "nan"])
    return pl.when(text.is_null() | unset).then(0.0).otherwise(1.0).alias(column)


EVED = VedFormat(
    "eVED",
    EVED_RAW_COLUMNS,
    {
        **EXPRESSIONS,
        "grade": pl.col("Gradient"),
        "elevation_m": pl.col("Elevation Smoothed[m]"),
        "speed_limit_mps": pl.coalesce(limit_kmh(DIRECTED_LIMIT), limit_kmh("Speed Limit[km/h]"))
        / KMH_PER_MPS,
        "intersection": flag("Intersection"),
        "bus_stop": flag("Bus Stops"),
        "focus_point": flag("Focus Points"),
    },
    "Is it one of eVED's weekly files (eVED_*_week.csv)?",
)


def import_eved(
    paths: Iterable[str | Path],
    *,
    powertrain: Sequence[str] = ("ev",),
    cleaning: Cleaning = VED_CLEANING,
    progress: Progress | None = None,
) -> VehicleStream:
    """Vehicles of eVED: as `import_ved`, with grade, elevation, speed limit and road flags."""
    return import_ved(paths, powertrain=powertrain, cleaning=cleaning, progress=progress, form=EVED)
