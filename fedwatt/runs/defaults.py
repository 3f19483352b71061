"""The recipe of `fedwatt run`: the parts of the model that the command switches on by itself.

A configuration (`RunConfig`) has plain defaults, which Python programs and TOML files rely on. The
command, where it is given no file, adds a recipe by where the vehicles come from. Options and
`--set` come before the recipe. Every part is checked on validation trips, vehicle by vehicle:
elevation (`elevation.learn`), fine-tuning (`evaluation.finetune`) and the members of a mixture
(`journeys.mixture`); a time offset must explain the training trips better (`windows.time_offset`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fedwatt.methods.catalogue import RECOMMENDED
from fedwatt.runs.config import RunConfig, Source, choose, default_methods
from fedwatt.runs.source import fleet_folder, made_on_demand, vehicle_maker
from fedwatt.settings import from_table
from fedwatt.telemetry.store import read_fleet, vehicle_folders
from fedwatt.windows.features import MAY_BE_UNKNOWN, feature_names, needs_climb
from fedwatt.windows.vehicle_trips import recorded_target

WITHOUT_ELEVATION = "base"
WITH_ELEVATION = f"{WITHOUT_ELEVATION}, elevation"
"""Features of a model that knows climb and descent."""
RECORDED = f"{WITHOUT_ELEVATION}, physics, elevation, journey"
"""Features of recorded vehicles: the ridge needs physics and the time since departure."""
UNREPORTED_HEATER = f"{RECORDED}, cold_squared"
"""The same where no vehicle reports its heater, whose power grows faster than the cold."""
POSITIONS = frozenset({"latitude_deg", "longitude_deg"})
MEASURED = "elevation_m"


@dataclass(frozen=True, kw_only=True)
class RunRecipe:
    """Settings that apply where the user has given none, and the reasons for them."""

    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    methods: tuple[str, ...] = ()
    """Methods to train; none: those of the plain defaults."""
    elevation: str = "learned from energy and positions"
    missing: str = ""
    """Why a part is left out."""

    def applied(self, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Return a TOML document with the recipe's settings where it has none."""
        result = dict(tables)
        for section, settings in self.sections.items():
            result[section] = {**settings, **tables.get(section, {})}
        if self.methods:
            result.setdefault("method", [{"name": name} for name in self.methods])
        return result

    def sentences(self, config: RunConfig) -> list[str]:
        """Return two lines: what was chosen for a run, and why; none without a recipe."""
        if not self.sections:
            return []
        chose_target = "target" in self.sections.get("data", {})
        parts = {
            f"target {config.data.target} over {config.data.window} s": chose_target,
            f"elevation ({self.elevation})": needs_climb(feature_names(config.data.features)),
            "personalised models": config.personalisation.enabled,
            "time offset": config.data.align,
            "mixture with ridges": config.model.mixture,
        }
        chosen = ", ".join(part for part, used in parts.items() if used) or "network alone"
        reason = "each vehicle uses the parts that its own validation trips support"
        return [
            f"Recipe: {chosen}.",
            f"Why: {reason}{self.missing}. --plain trains the paper's set-up.",
        ]


BUILT_IN = RunRecipe(
    sections={
        "data": {"features": WITH_ELEVATION},
        "personalisation": {"enabled": True, "rates": [0.03]},
        "training": {"rounds": 30},
    }
)
"""For the built-in synthetic fleet: a comparison of two methods in under a minute."""
PLAIN = RunRecipe()
"""For fleets too large to be held in memory, and for methods with a privacy budget, which a second
model without elevation would spend twice."""


def choose_recipe(tables: Mapping[str, Any]) -> RunRecipe:
    """Return the recipe for the vehicles and methods of a TOML document."""
    source = from_table(Source, tables.get("fleet", {}), "fleet")
    methods = [choose(table).method for table in tables.get("method", default_methods(tables))]
    private = any(method.server.private for method in methods)
    if private:
        return PLAIN
    if source.data != "synthetic":
        return stored_recipe(fleet_folder(source))
    large = made_on_demand(source, vehicle_maker(source).count)
    return PLAIN if large else BUILT_IN


def stored_recipe(fleet: Path) -> RunRecipe:
    """Return default settings of a run for a stored fleet, by the channels that it has."""
    channels = stored_channels(fleet)
    sections: dict[str, dict[str, Any]] = {"personalisation": {"enabled": True}}
    if "energy_wh" not in channels:
        sections["data"] = recorded_target(list(read_fleet(fleet)))
        missing = (
            ", and no vehicle recorded power or energy, which another target, elevation, time "
            "offset and mixture need"
        )
        return RunRecipe(sections=sections, methods=(RECOMMENDED,), missing=missing)
    sections["data"] = {"align": True}
    sections["model"] = {"mixture": True}
    missing = "; without elevation, because no vehicle has positions or measured elevation"
    if channels >= POSITIONS or MEASURED in channels:
        sections["data"]["features"] = RECORDED if "heater_w" in channels else UNREPORTED_HEATER
        missing = ""
    elevation = RunRecipe.elevation
    if MEASURED in channels:
        elevation = f"measured, else {elevation}" if channels >= POSITIONS else "measured"
    return RunRecipe(
        sections=sections, methods=(RECOMMENDED,), elevation=elevation, missing=missing
    )


def stored_channels(fleet: Path) -> frozenset[str]:
    """Return the channels that any vehicle of a stored fleet reports.

    A channel that is unknown (NaN) in all trips is not reported. Damaged files are left out.
    """
    channels: set[str] = set()
    for folder in vehicle_folders(fleet):
        file = folder / "trips.parquet"
        try:
            names = set(pq.read_schema(file).names)
            powers = pq.read_table(file, columns=list(names.intersection(MAY_BE_UNKNOWN)))
        except (OSError, pa.ArrowException):  # opening the fleet refuses them with a sentence
            continue
        silent = (
            name for name in powers.column_names if not pc.any(pc.is_finite(powers[name])).as_py()
        )
        channels.update(names.difference(silent))
    return frozenset(channels)
