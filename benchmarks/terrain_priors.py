"""The prior of hills as chosen from the data, beside the usual one, against the true ground.

    python -m benchmarks.terrain_priors --changchun FLEET

Synthetic towns, as they are and with three times the slopes, driven by fleets of several sizes; and
the car of Changchun, whose elevation was logged. Every vehicle's own field (k = 3 and private
ground, energy alone) is held against the elevation of all its trips. VED is judged in
terrain_reference.py: its prior stays the usual one. Writes results/terrain_priors.json and a table
in docs/accuracy.md; about two minutes of one core.
"""

import argparse
import json
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.marked import write_blocks
from fedwatt.elevation.compare import Comparison, compare
from fedwatt.elevation.field import Field
from fedwatt.elevation.learn import learn
from fedwatt.elevation.settings import TerrainSettings
from fedwatt.errors import DataError
from fedwatt.synthetic import landscape, synthetic_vehicles
from fedwatt.synthetic.town import town
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.store import read_fleet
from fedwatt.windows import DataSettings

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "results" / "terrain_priors.json", ROOT / "docs" / "accuracy.md"
TOWNS = ((1.0, 6, 20), (3.0, 4, 10), (3.0, 6, 20), (3.0, 12, 30))
"""Times the slopes, vehicles, trips of each."""
SEEDS = (0, 1, 2)


def drive(steeper: float, vehicles: int, trips: int) -> list[Vehicle]:
    """A fleet over the synthetic town's ground, so many times as steep."""
    with mock.patch.object(landscape, "SLOPE_RMS", steeper * landscape.SLOPE_RMS):
        town.cache_clear()
        made = list(synthetic_vehicles(vehicles, trips=trips))
    town.cache_clear()
    return made


def compared(field: Field, vehicle: Vehicle) -> Comparison | None:
    """A vehicle's own field against its elevation; None where it gave its own ground up."""
    try:
        return compare(field, [vehicle])
    except DataError:
        return None


def judged(vehicles: list[Vehicle], seed: int) -> dict[str, Any]:
    """Means over vehicles of what their own fields are worth, by the usual prior and the chosen."""
    data, found = DataSettings(split_seed=seed), {}
    for name, choose in (("usual", False), ("chosen", True)):
        learned = learn(vehicles, TerrainSettings(source="learn", choose_prior=choose), data)
        each = [one for v in vehicles if (one := compared(learned.own[v.name], v)) is not None]
        prior = learned.shared.prior
        found[name] = {
            "vehicles": len(each),
            "grade": prior.grade,
            "segment_s": prior.segment_s,
            "slope": round(float(np.mean([one.scale for one in each])), 3),
            "difference_m": round(float(np.mean([one.difference_m for one in each])), 2),
            "climb_difference_m": round(
                float(np.mean([one.climb_difference_m for one in each])), 2
            ),
        }
    return found


def tables(found: dict[str, Any]) -> dict[str, str]:
    """The block of docs/accuracy.md: ranges over splits."""
    head = "fleet | prior chosen | slope, usual | slope, chosen | elevation, usual | chosen, m"
    lines = [f"| {head} |", "|---|" + "--:|" * 5]
    for name, seeds in found.items():
        grades = sorted({own["chosen"]["grade"] for own in seeds.values()})
        lengths = sorted({own["chosen"]["segment_s"] for own in seeds.values()})
        prior = ", ".join(f"{grade:.0%}" for grade in grades)
        prior += "" if lengths == [8] else f", {lengths[-1]} s"
        cells = [
            _range([own[which][what] for own in seeds.values()], digits)
            for what, digits in (("slope", 2), ("difference_m", 1))
            for which in ("usual", "chosen")
        ]
        lines.append("| " + " | ".join([name, prior, *cells]) + " |")
    return {"priors": "\n".join(lines)}


def _range(values: list[float], digits: int) -> str:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--changchun", type=Path, help="fleet imported with '--map changchun'")
    chosen = parser.parse_args()
    fleets = {
        f"town, {steeper:g} times the slopes, {vehicles} cars with {trips} trips": drive(
            steeper, vehicles, trips
        )
        for steeper, vehicles, trips in TOWNS
    }
    if chosen.changchun is not None:
        fleets["Changchun, 1 car with 52 trips"] = list(read_fleet(chosen.changchun))
    found = {}
    for name, vehicles in fleets.items():
        found[name] = {str(seed): judged(vehicles, seed) for seed in SEEDS}
        print(name, found[name], flush=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    write_blocks(PAGE, tables(found))


if __name__ == "__main__":
    main()
