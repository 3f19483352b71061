"""VED's two static files: one row a vehicle, with type, class, engine and weight.

The type is called `EngineType` in one file and `Vehicle Type` in the other; missing values are the
text `NO DATA`; the weight is in pounds, rounded to 500.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from fedwatt.errors import DataError
from fedwatt.telemetry.readers.powertrain import TYPES

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
    """Rows of all static files by vehicle number."""
    facts: dict[int, StaticFacts] = {}
    for path in paths:
        for row in _rows(path):
            if (number := _number(row.get("VehId"))) is not None:
                facts[int(number)] = _static(row)
    return facts


def _rows(path: Path) -> list[dict[str, object]]:
    try:
        table = pl.read_excel(path)
    except ModuleNotFoundError as error:
        raise DataError(
            f"{path.name}: static data needs fastexcel: pip install 'fedwatt[ved]'."
        ) from error
    except Exception as error:  # fastexcel has no error base of its own
        raise DataError(
            f"{path.name} is not a readable .xlsx file ({str(error).splitlines()[0]}). "
            "Download it again or leave it out."
        ) from error
    if "VehId" not in table.columns or not set(TYPE_COLUMNS) & set(table.columns):
        raise DataError(
            f"{path.name} has no column 'VehId' or none of {' and '.join(TYPE_COLUMNS)}. "
            "Is it one of VED's static files?"
        )
    return table.to_dicts()


def _static(row: Mapping[str, object]) -> StaticFacts:
    kind = next((text for name in TYPE_COLUMNS if (text := _text(row.get(name)))), "").lower()
    texts = {fact: _text(row.get(column)) for column, fact in FACTS.items()}
    facts: dict[str, str | float] = {fact: text for fact, text in texts.items() if text}
    if pounds := _number(row.get("Generalized_Weight")):
        facts["mass_kg"] = round(pounds * KG_PER_LB, 1)
    return StaticFacts(kind if kind in TYPES else "", facts)


def _text(value: object) -> str:
    text = "" if value is None else str(value).strip()
    return "" if text.upper() == "NO DATA" else text


def _number(value: object) -> float | None:
    try:
        return float(_text(value))
    except ValueError:
        return None
