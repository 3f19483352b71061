"""Measure elevation and fine-tuning on vehicles of VED that took no part in the training.

    python -m benchmarks.elevation_unseen --fleet FLEET

FLEET is made by `fedwatt data import ved PATH --powertrain ev,phev-electric --out FLEET`. Each of
the 12 vehicles with 20 or more usable all-electric trips is left out in turn: its trips are in no
map and in no shared model; it is scaled on its own training trips and, personalised, fine-tunes on
them. Each seed is another split of trips, draw of 3,000 test windows per vehicle and initial model.

Fills results/elevation_unseen.json cell by cell (what is there is kept, so a stopped run goes on);
elevation_tables.py writes docs/accuracy.md from it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.elevation_cells import (
    FIXED,
    NAMES,
    Record,
    Rows,
    Task,
    balanced,
    data_settings,
    network_errors,
    parser,
    run,
    vehicles_of,
)
from fedwatt.elevation.climb import with_elevation
from fedwatt.elevation.learn import learn, own_fields
from fedwatt.elevation.survey import whole_survey
from fedwatt.telemetry import Vehicle
from fedwatt.windows import build_fleet

RECORD = Path(__file__).resolve().parents[1] / "results" / "elevation_unseen.json"
METHOD = "fedavg"

ALL = replace(FIXED, minimum_vehicles=1, private=False)
BOTH = replace(FIXED, minimum_vehicles=3, private=True)

UNSEEN_VEHICLE = {
    "map of others": ALL,
    "k = 3 of others, private map": BOTH,
    "no elevation": None,
}


def _without(vehicles: Sequence[Vehicle], me: str) -> list[Vehicle]:
    return [vehicle for vehicle in vehicles if vehicle.name != me]


def unseen_vehicle_rows(folder: Path, seed: int, device: str, name: str, me: str) -> Rows:
    """Return the errors of one vehicle whose trips are in no map and in no shared model."""
    vehicles = vehicles_of(folder)
    settings = UNSEEN_VEHICLE[name]
    data = data_settings(seed, "base, elevation" if settings else "base")
    if settings:
        learned = learn(_without(vehicles, me), settings, data)
        fields = {**learned.own, me: learned.shared}
        if settings.private:
            # What the unseen vehicle learns on its side, on top of what the others have published.
            mine = next(vehicle for vehicle in vehicles if vehicle.name == me)
            grid = learned.shared.grid
            surveyed = whole_survey(mine, grid, settings.lengths, data)
            fields[me] = own_fields([me], {me: surveyed}, learned.shared, settings)[me]
        vehicles = tuple(with_elevation(vehicle, fields[vehicle.name]) for vehicle in vehicles)
    fleet = balanced(build_fleet(vehicles, data, "ved"), seed, held_out=me)
    shared, personalised = network_errors(fleet, METHOD, seed, device, evaluated=me)
    return {f"{name}, shared": shared, f"{name}, personalised": personalised}


# ------------------------------------------------------------------------------- tasks
def tasks(folder: Path, seeds: Sequence[int], device: str) -> Iterator[Task]:
    """Yield a task for every elevation source, split and vehicle."""
    for name in UNSEEN_VEHICLE:
        rows = tuple(f"{name}, {model}" for model in ("shared", "personalised"))
        for seed in seeds:
            for me in NAMES:
                arguments = (folder, seed, device, name, me)
                yield Task(rows, seed, unseen_vehicle_rows, arguments, vehicle=me)


def main() -> None:
    """Fill the cells that are missing."""
    chosen = parser(__doc__, RECORD).parse_args()
    seeds = [int(part) for part in chosen.seeds.split(",")]
    run(list(tasks(chosen.fleet, seeds, chosen.device)), Record(chosen.record), chosen.workers)


if __name__ == "__main__":
    main()
