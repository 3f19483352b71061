"""Small hand-made files in the published layouts, and the real data where it is at hand."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedwatt.telemetry.readers import VED_CLEANING, import_ved
from fedwatt.telemetry.trip import RawTrip, Vehicle
from tests.real_data import real_file

VED_HEADER = (
    "DayNum,VehId,Trip,Timestamp(ms),Latitude[deg],Longitude[deg],Vehicle Speed[km/h],MAF[g/sec],"
    "Engine RPM[RPM],Absolute Load[%],OAT[DegC],Fuel Rate[L/hr],Air Conditioning Power[kW],"
    "Air Conditioning Power[Watts],Heater Power[Watts],HV Battery Current[A],HV Battery SOC[%],"
    "HV Battery Voltage[V],Short Term Fuel Trim Bank 1[%],Short Term Fuel Trim Bank 2[%],"
    "Long Term Fuel Trim Bank 1[%],Long Term Fuel Trim Bank 2[%]"
)
METRES_PER_DEGREE = 111_195.0


def ved_rows(
    vehicle: int = 10,
    trip: int = 706,
    *,
    seconds: int = 200,
    speed_kmh: float = 36.0,
    engine_rpm: str = "",
    day: float = 1.5,
    current_a: float = -20.0,
) -> list[list[str]]:
    """One row a second, due north: 200 s at 36 km/h, 360 V and 20 A out of the pack = 400 Wh."""
    rows = []
    for second in range(seconds + 1):
        # Speed and current wobble evenly, so that nothing looks frozen and means stay exact.
        wobble = 0.5 if second % 2 else -0.5
        latitude = 42.0 + second * speed_kmh / 3.6 / METRES_PER_DEGREE
        cells = [""] * 22
        cells[:7] = [
            f"{day}",
            f"{vehicle}",
            f"{trip}",
            f"{second * 1000}",
            f"{latitude:.9f}",
            "-83.7",
            f"{speed_kmh + wobble:.3f}",
        ]
        cells[8] = engine_rpm
        cells[10] = "5.0"
        cells[13] = "300.0"
        cells[14] = "100.0"
        cells[15] = f"{current_a + wobble:.3f}"
        cells[16] = "80.0"
        cells[17] = "360.0"
        rows.append(cells)
    return rows


@pytest.fixture
def rows() -> Callable[..., list[list[str]]]:
    return ved_rows


@pytest.fixture
def write_ved(tmp_path: Path) -> Callable[..., Path]:
    """Writes a weekly file in VED's layout and returns its path."""

    def write(
        rows: Sequence[Sequence[str]],
        name: str = "VED_171101_week.csv",
        header: str = VED_HEADER,
        end: str = "",
    ) -> Path:
        path = tmp_path / name
        lines = [header, *(",".join(row) + end for row in rows)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write


@pytest.fixture
def raw_trip() -> Callable[..., RawTrip]:
    """A trip from a time list and channel lists."""

    def make(time_s: Sequence[float], **channels: Sequence[float]) -> RawTrip:
        arrays = {name: np.array(values, dtype=float) for name, values in channels.items()}
        return RawTrip("1", np.array(time_s, dtype=float), arrays)

    return make


@pytest.fixture(scope="session")
def ved_folder() -> Path:
    """The real VED files, or a skip."""
    return real_file("ved/EV_PHEV.parquet").parent


@pytest.fixture(scope="session")
def ved_vehicles(ved_folder: Path) -> dict[str, Vehicle]:
    """All electric and all-electric trips of the real files, imported once."""
    every_trip = replace(VED_CLEANING, minimum_trips=1, minimum_metres=0)
    vehicles = import_ved([ved_folder], powertrain=("ev", "phev-electric"), cleaning=every_trip)
    return {vehicle.name: vehicle for vehicle in vehicles}
