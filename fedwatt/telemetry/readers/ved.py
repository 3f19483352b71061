"""Read the Vehicle Energy Dataset and its extension eVED: CSV files, .7z archives, Parquet.

Oh, LeBlanc and Peng, "Vehicle Energy Dataset (VED)", IEEE T-ITS 2022. Rows are events; every
channel repeats its last value until it is read again. A negative current discharges the pack, so
its sign is changed. Air conditioning is in kW for some cars and in W for others. A state of charge
of exactly 0 means that a hybrid did not report it. Only three vehicles are battery-electric.

Powertrains: `ev` battery-electric; `phev` plug-in hybrid, all trips; `phev-electric` only its trips
in which the engine never turned; `hev` and `ice` have no pack signals; `all` is all. The two static
files name the type `EngineType` or `Vehicle Type`, missing values `NO DATA`, and the weight in
pounds, rounded to 500.

Zhang, Fatih, Abdulqadir, Schwarz and Ma, "Extended Vehicle Energy Dataset (eVED)", 2022. Grade is
`Gradient` (a ratio from smoothed elevations), elevation `Elevation Smoothed[m]`. The speed limit is
the one for the direction driven where given; a range such as `48-40` (one limit each way) counts as
its mean. Flags are empty unless set. Positions are the receiver's, as in VED; `Energy_Consumption`
is ignored, since its unit is not certain: energy comes from V and I.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from fedwatt.errors import DataError, SettingError, unknown
from fedwatt.telemetry.cleaning import VED_CLEANING, Cleaning
from fedwatt.telemetry.cleaning.account import Account
from fedwatt.telemetry.readers.files import as_paths, find_static, find_tables
from fedwatt.telemetry.readers.stream import (
    KEYS,
    Candidate,
    Progress,
    Spill,
    VehicleStream,
    keep_trip,
)
from fedwatt.telemetry.readers.tables import (
    TableLayout,
    WantedColumn,
    read_tables,
)
from fedwatt.telemetry.trip import RawTrip, Vehicle

POWERTRAINS = ("ev", "phev-electric", "phev", "hev", "ice", "all")
TYPES = ("ev", "phev", "hev", "ice")
WITHOUT_PACK_SIGNALS = ("hev", "ice")


def asked_types(powertrain: Iterable[str], *, unlabelled: bool) -> frozenset[str]:
    """Return the vehicle types that the selection covers.

    >>> sorted(asked_types(("ev", "phev-electric"), unlabelled=False))
    ['ev', 'phev']
    """
    names = set(powertrain)
    for name in names:
        if name not in POWERTRAINS:
            raise SettingError(unknown("powertrain", name, POWERTRAINS))
    if not names:
        raise SettingError(f"No powertrain is asked for. Choose among {', '.join(POWERTRAINS)}.")
    if not unlabelled and names <= set(WITHOUT_PACK_SIGNALS):
        raise SettingError(
            f"powertrain {', '.join(sorted(names))}: VED records no pack signals for these, so "
            "there is no energy to learn. Ask for unlabelled trips to electrify their driving."
        )
    types = TYPES if "all" in names else (name.removesuffix("-electric") for name in names)
    return frozenset(types)


def electric_trips_only(powertrain: Iterable[str]) -> bool:
    """Return whether a plug-in hybrid gives only the trips its engine took no part in."""
    names = set(powertrain)
    return "phev-electric" in names and not {"phev", "all"} & names


def engine_reason(trip: RawTrip) -> str:
    """Return the reason why a hybrid's trip is not all-electric, or "" when it is: engine speed 0
    in every row.
    """
    if not trip.has("engine_rpm"):
        return "engine speed unknown"
    return "engine ran" if np.nanmax(trip.channels["engine_rpm"]) > 0 else ""


def inferred_type(*, pack_rows: int, engine_rows: int) -> str:
    """Return the type of a vehicle that the static files lack, by the signals it sent.

    Pack signals and no engine speed: `ev`; both: `phev`; no pack signals: `ice`, though it may be a
    hybrid, whose pack VED does not record either.

    >>> inferred_type(pack_rows=900, engine_rows=0)
    'ev'
    """
    if not pack_rows:
        return "ice"
    return "phev" if engine_rows else "ev"


KG_PER_LB = 0.45359237
TYPE_COLUMNS = ("EngineType", "Vehicle Type")
FACTS = {
    "Vehicle Class": "class",
    "Engine Configuration & Displacement": "engine",
    "Transmission": "transmission",
    "Drive Wheels": "drive_wheels",
}


@dataclass(frozen=True)
class StaticFacts:
    """Facts of a vehicle in the static files; `powertrain` is "" when they lack it."""

    powertrain: str = ""
    facts: Mapping[str, str | float] = field(default_factory=dict)


def read_static(paths: Iterable[Path]) -> dict[int, StaticFacts]:
    """Return the rows of all static files by vehicle number."""
    facts: dict[int, StaticFacts] = {}
    for path in (sheet.path for file in paths for sheet in find_tables(file)):
        table = pl.read_csv(path, infer_schema=False)
        if "VehId" not in table.columns or not set(TYPE_COLUMNS) & set(table.columns):
            raise DataError(
                f"{path.name} has no column 'VehId' or none of {' and '.join(TYPE_COLUMNS)}. "
                "Is it one of VED's static files?"
            )
        for row in table.with_columns(pl.all().str.strip_chars()).to_dicts():
            filled = {k: text for k, text in row.items() if text and text.upper() != "NO DATA"}
            number = _as_number(filled.get("VehId", ""))
            if number is not None:
                facts[int(number)] = _static(filled)
    return facts


def _static(row: Mapping[str, str]) -> StaticFacts:
    kind = next((row[name].lower() for name in TYPE_COLUMNS if name in row), "")
    facts: dict[str, str | float] = {
        fact: row[column] for column, fact in FACTS.items() if column in row
    }
    if pounds := _as_number(row.get("Generalized_Weight", "")):
        facts["mass_kg"] = round(pounds * KG_PER_LB, 1)
    return StaticFacts(kind if kind in TYPES else "", facts)


def _as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


KMH_PER_MPS = 3.6
PACK = ("HV Battery Current[A]", "HV Battery Voltage[V]")

# What driving without pack signals needs.
DRIVING = ("VehId", "Trip", "Timestamp(ms)", "Vehicle Speed[km/h]")
SIGNALS = (
    "Latitude[deg]",
    "Longitude[deg]",
    "Engine RPM[RPM]",
    "OAT[DegC]",
    "Air Conditioning Power[kW]",
    "Air Conditioning Power[Watts]",
    "Heater Power[Watts]",
    "HV Battery SOC[%]",
)
RAW_COLUMNS: dict[str, WantedColumn] = {
    **dict.fromkeys((*DRIVING, *SIGNALS, *PACK), WantedColumn()),
    "DayNum": WantedColumn(required=False),
    # Not in the published files; a table that brings the type with it needs no static file.
    "EngineType": WantedColumn(text=True, required=False),
}

_soc = pl.col("HV Battery SOC[%]")
EXPRESSIONS: dict[str, pl.Expr] = {
    "speed_mps": pl.col("Vehicle Speed[km/h]") / KMH_PER_MPS,
    "ambient_c": pl.col("OAT[DegC]"),
    "ac_w": pl.coalesce(
        pl.col("Air Conditioning Power[Watts]"), pl.col("Air Conditioning Power[kW]") * 1000
    ),
    "heater_w": pl.col("Heater Power[Watts]"),
    "voltage_v": pl.col("HV Battery Voltage[V]"),
    "current_a": -pl.col("HV Battery Current[A]"),
    "soc": pl.when(_soc != 0).then(_soc / 100),
    "latitude_deg": pl.col("Latitude[deg]"),
    "longitude_deg": pl.col("Longitude[deg]"),
    "engine_rpm": pl.col("Engine RPM[RPM]"),
}


@dataclass(frozen=True)
class VedFormat:
    """Columns of the files and how they become channels: VED's own, or with eVED's added."""

    source: str
    raw: dict[str, WantedColumn]
    channels: dict[str, pl.Expr]
    hint: str


_HINT = "Is it one of VED's weekly files (VED_*_week.csv)?"
VED = VedFormat("VED", RAW_COLUMNS, EXPRESSIONS, _HINT)


def import_ved(
    paths: Iterable[str | Path],
    *,
    powertrain: Sequence[str] = ("ev",),
    cleaning: Cleaning = VED_CLEANING,
    progress: Progress | None = None,
    form: VedFormat = VED,
) -> VehicleStream:
    """Read VED's vehicles, one at a time, from weekly CSV files, .7z, Parquet or folders.

    Static .xlsx files named, found in the folders or lying beside the files give type and mass.
    `progress(done, total, what)` is called with bytes while reading and with rows while cleaning.
    """
    reader = VedReader(paths, powertrain, unlabelled=cleaning.unlabelled, form=form)
    return VehicleStream(reader, cleaning, progress)


@dataclass
class Recorded:
    """Counts and types read of a vehicle; `spilled` if its rows are in the spill."""

    rows: int = 0
    pack_rows: int = 0
    engine_rows: int = 0
    stated_type: str = ""
    kinds: set[str] = field(default_factory=set)
    spilled: bool = False


class VedReader:
    """Reads VED files into a spill and knows which vehicles were asked for."""

    def __init__(
        self,
        paths: Iterable[str | Path],
        powertrain: Sequence[str],
        *,
        unlabelled: bool,
        form: VedFormat = VED,
    ) -> None:
        self._types = asked_types(powertrain, unlabelled=unlabelled)
        self._electric_only = electric_trips_only(powertrain)
        self._unlabelled = unlabelled
        self._form = form
        files = as_paths(paths)
        self._tables = [table for table in find_tables(files) if table.kind != "xlsx"]
        self._static: dict[int, StaticFacts] = read_static(find_static(files))
        self.columns = (*KEYS, *form.channels)
        self._recorded: dict[int, Recorded] = {}

    def read(self, spill: Spill, progress: Progress) -> tuple[Account, tuple[str, ...]]:
        """Append the rows of every file to the spill, the temporary files by vehicle."""
        columns = self._form.raw
        if self._unlabelled:
            columns = {n: replace(column, required=n in DRIVING) for n, column in columns.items()}
        layout = TableLayout(columns, hint=self._form.hint)
        add = partial(self._add, spill)
        account, passed_over = read_tables(self._tables, layout, add, progress)
        if not self._recorded:
            why = " ".join(passed_over) or "the files hold no rows."
            raise DataError(f"Nothing to import: {why}")
        return account, passed_over

    def candidates(self) -> tuple[list[Candidate], Account]:
        """Return the vehicles of the types asked for, by number."""
        chosen = []
        left_out = []
        for number, recorded in sorted(self._recorded.items()):
            kind, how = self._type(number)
            if kind in self._types and recorded.spilled:
                chosen.append(self._candidate(number, kind, how))
                continue
            reason = f"{kind}, not asked for" if kind not in self._types else "no pack signals"
            left_out.append(Account.passed_over("vehicles", 1, reason))
            left_out.append(Account.passed_over("rows", recorded.rows, reason))
        return chosen, Account.total(left_out)

    def _candidate(self, number: int, kind: str, how: str) -> Candidate:
        electric_only = kind == "phev" and self._electric_only
        facts = {
            "powertrain": "phev-electric" if electric_only else kind,
            "powertrain_from": how,
            "source": self._form.source,
            "file_kind": "+".join(sorted(self._recorded[number].kinds)),
            **self._static.get(number, StaticFacts()).facts,
        }
        return Candidate(
            key=str(number),
            vehicle=Vehicle(f"ved-{number}", (), labels="measured", facts=facts),
            electric=kind == "ev" or electric_only,
            reject=engine_reason if electric_only else keep_trip,
        )

    def _type(self, number: int) -> tuple[str, str]:
        """Return the type of a vehicle, and where it is from."""
        static = self._static.get(number, StaticFacts()).powertrain
        if static:
            return static, "static file"
        recorded = self._recorded[number]
        if recorded.stated_type:
            return recorded.stated_type, "column EngineType"
        inferred = inferred_type(pack_rows=recorded.pack_rows, engine_rows=recorded.engine_rows)
        return inferred, "inferred from its signals"

    def _add(self, spill: Spill, frame: pl.DataFrame, source: int, first_row: int) -> Account:
        """Add the rows of vehicles that may be asked for; count all others."""
        frame = frame.with_columns(
            pl.lit(None, dtype=pl.String if column.text else pl.Float64).alias(name)
            for name, column in self._form.raw.items()
            if name not in frame.columns
        )
        keys = pl.col("VehId", "Trip", "Timestamp(ms)")
        keyed = frame.filter(pl.all_horizontal(keys.is_finite().fill_null(False)))
        tidy = keyed.select(
            pl.col("VehId").cast(pl.Int64).alias("vehicle"),
            pl.col("EngineType").str.to_lowercase().alias("type"),
            pl.lit(float(source)).alias("source"),
            pl.col("DayNum").alias("day"),
            pl.col("Trip").alias("trip"),
            (pl.col("Timestamp(ms)") / 1000).alias("time_s"),
            *(value.cast(pl.Float64).alias(name) for name, value in self._form.channels.items()),
        )
        for part in tidy.partition_by("vehicle", maintain_order=True):
            number = int(part["vehicle"][0])
            pack_rows = min(part["voltage_v"].count(), part["current_a"].count())
            recorded = self._recorded.setdefault(number, Recorded())
            recorded.rows += part.height
            recorded.pack_rows += pack_rows
            recorded.engine_rows += part["engine_rpm"].count()
            recorded.stated_type = part["type"][0] or recorded.stated_type
            recorded.kinds.add(self._tables[source].kind)
            powertrain = self._static.get(number, StaticFacts()).powertrain
            is_requested = (
                powertrain in self._types if powertrain else bool(pack_rows) or self._unlabelled
            )
            # A block in which the pack is silent still belongs to a vehicle spilled before.
            if is_requested or recorded.spilled:
                recorded.spilled = True
                spill.add(str(number), part.select(self.columns).to_numpy())
        return Account.passed_over("rows", frame.height - keyed.height, "no vehicle, trip or time")


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
    """Return a speed limit written as `48`, `48.0` or `48-40` (the mean), null otherwise.

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
    """Return 1 where the column is set, 0 where it is empty, 0 or no.

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


import_eved = partial(import_ved, form=EVED)
"""As `import_ved`, with grade, elevation, speed limit and road flags."""
