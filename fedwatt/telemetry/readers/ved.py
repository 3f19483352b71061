"""Read the Vehicle Energy Dataset: weekly CSV files, loose or in .7z archives, and Parquet.

Oh, LeBlanc and Peng, "Vehicle Energy Dataset (VED)", IEEE T-ITS 2022. Rows are events; every
channel repeats its last value until it is read again. A negative current discharges the pack, so it
is turned round here. Air conditioning is in kW for some cars and in W for others. A state of charge
of exactly 0 means that a hybrid did not report it. Only three vehicles are battery-electric.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from fedwatt.errors import DataError
from fedwatt.telemetry.cleaning.account import Account
from fedwatt.telemetry.cleaning.cleaning import VED_CLEANING, Cleaning
from fedwatt.telemetry.readers.find_files import FoundTable, as_paths, find_static, find_tables
from fedwatt.telemetry.readers.powertrain import (
    asked_types,
    electric_trips_only,
    engine_reason,
    inferred_type,
)
from fedwatt.telemetry.readers.read_tables import Source, read_tables
from fedwatt.telemetry.readers.spill import KEYS, Spill
from fedwatt.telemetry.readers.stream import Candidate, Progress, VehicleStream, keep_trip
from fedwatt.telemetry.readers.table_blocks import TableLayout, WantedColumn
from fedwatt.telemetry.readers.ved_static import StaticFacts, read_static
from fedwatt.telemetry.trip import Vehicle

KMH_PER_MPS = 3.6
PACK = ("HV Battery Current[A]", "HV Battery Voltage[V]")

# What driving without pack signals needs.
DRIVING = ("VehId", "Trip", "Timestamp(ms)", "Vehicle Speed[km/h]")
SIGNALS = (
    "Latitude[deg]", "Longitude[deg]", "Engine RPM[RPM]", "OAT[DegC]", "Air Conditioning Power[kW]",
    "Air Conditioning Power[Watts]", "Heater Power[Watts]", "HV Battery SOC[%]",
)  # fmt: skip
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
    """Vehicles of VED, one at a time, from weekly CSV files, .7z archives, Parquet, or folders.

    Static .xlsx files named, found in the folders or lying beside the files give type and mass.
    `progress(done, total, what)` is called with bytes while reading and with rows while cleaning.
    """
    reader = VedReader(paths, powertrain, unlabelled=cleaning.unlabelled, form=form)
    return VehicleStream(reader, cleaning, progress)


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
        self._tables = find_tables(files)
        self._static: dict[int, StaticFacts] = read_static(find_static(files))
        self.columns = (*KEYS, *form.channels)
        self._rows: Counter[int] = Counter()
        self._pack_rows: Counter[int] = Counter()
        self._engine_rows: Counter[int] = Counter()
        self._stated: dict[int, str] = {}
        self._kinds: dict[int, set[str]] = {}
        self._spilled: set[int] = set()

    def read(self, spill: Spill, progress: Progress) -> tuple[Account, tuple[str, ...]]:
        """Stream every file into the spill."""

        def add(frame: pl.DataFrame, source: Source, first_row: int) -> Account:
            return self._add(frame, source.number, spill, source.table.kind)

        account, left_out = read_tables(self._tables, self._layout, add, progress)
        passed_over = tuple(f"{where} has no pack signals" for where in left_out)
        if not self._rows:
            why = "; ".join(passed_over) or "the files hold no rows"
            raise DataError(f"Nothing to import: {why}. {self._form.hint}")
        return account, passed_over

    def candidates(self) -> tuple[list[Candidate], Account]:
        """Vehicles of the types asked for, by number."""
        chosen = []
        left_out = []
        for number in sorted(self._rows):
            kind, how = self._type(number)
            if kind in self._types and number in self._spilled:
                chosen.append(self._candidate(number, kind, how))
                continue
            reason = f"{kind}, not asked for" if kind not in self._types else "no pack signals"
            left_out.append(Account.passed_over("vehicles", 1, reason))
            left_out.append(Account.passed_over("rows", self._rows[number], reason))
        return chosen, Account.total(left_out)

    def _candidate(self, number: int, kind: str, how: str) -> Candidate:
        electric_only = kind == "phev" and self._electric_only
        facts = {
            "powertrain": "phev-electric" if electric_only else kind,
            "powertrain_from": how,
            "source": self._form.source,
            "file_kind": "+".join(sorted(self._kinds[number])),
            **self._static.get(number, StaticFacts()).facts,
        }
        return Candidate(
            key=str(number),
            vehicle=Vehicle(f"ved-{number}", (), labels="measured", facts=facts),
            electric=kind == "ev" or electric_only,
            reject=engine_reason if electric_only else keep_trip,
        )

    def _type(self, number: int) -> tuple[str, str]:
        static = self._static.get(number, StaticFacts()).powertrain
        if static:
            return static, "static file"
        if number in self._stated:
            return self._stated[number], "column EngineType"
        pack_rows = self._pack_rows[number]
        engine_rows = self._engine_rows[number]
        inferred = inferred_type(pack_rows=pack_rows, engine_rows=engine_rows)
        return inferred, "inferred from its signals"

    def _layout(self, table: FoundTable) -> TableLayout:
        columns = self._form.raw
        if self._unlabelled:
            columns = {n: replace(column, required=n in DRIVING) for n, column in columns.items()}
        met_in_folder = not table.named and not self._unlabelled
        return TableLayout(columns, any_of=PACK if met_in_folder else (), hint=self._form.hint)

    def _add(self, frame: pl.DataFrame, source: int, spill: Spill, kind: str) -> Account:
        """Spill the rows of vehicles that may be asked for; count what else was there."""
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
            pack = part.height - max(part["voltage_v"].null_count(), part["current_a"].null_count())
            self._rows[number] += part.height
            self._pack_rows[number] += pack
            self._engine_rows[number] += part.height - part["engine_rpm"].null_count()
            if part["type"][0] is not None:
                self._stated[number] = part["type"][0]
            self._kinds.setdefault(number, set()).add(kind)
            powertrain = self._static.get(number, StaticFacts()).powertrain
            is_requested = (
                powertrain in self._types if powertrain else bool(pack) or self._unlabelled
            )
            # A block in which the pack is silent still belongs to a vehicle spilled before.
            if is_requested or number in self._spilled:
                self._spilled.add(number)
                spill.add(str(number), part.select(self.columns).to_numpy())
        return Account.passed_over("rows", frame.height - keyed.height, "no vehicle, trip or time")
