"""Value of elevation and personalised models on VED: ridge per vehicle, federated networks.

    python benchmarks/terrain_ved.py --fleet FLEET --parts ridge,network,unseen_vehicles

FLEET is made by `fedwatt data import ved PATH --powertrain ev,phev-electric --out FLEET`. The 12
vehicles of VED with 20 or more usable all-electric trips (three of VED's cars are purely electric,
two of these are among them). Each seed is another split of trips, another draw of 3,000 test
windows a vehicle and another initial model. Everything is federated; fields, scalers and personal
models see training and validation trips only.

"ridge"      each vehicle's own ridge regression, and controls
"network"    methods with the fleet's field, with k = 3 and private fields, and without elevation
"unseen_vehicles"  leave one vehicle out: its trips are in no field and in no global model; it
             is scaled on its own training trips and, personalised, fine-tunes on them

Fills results/terrain_ved.json cell by cell (what is there is kept, so a stopped run goes on);
terrain_tables.py writes docs/accuracy.md from it. Only aggregates over a vehicle's test windows
are stored.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.terrain_cells import (
    FIXED,
    NAMES,
    Record,
    Rows,
    Task,
    balanced,
    data_settings,
    network_errors,
    parser,
    ridge_error,
    run,
    vehicles_of,
)
from fedwatt.elevation.climb import with_elevation
from fedwatt.elevation.elevation_map import ElevationMap, empty_map
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.learn import add_elevation, learn
from fedwatt.elevation.own_map import own_maps
from fedwatt.elevation.survey import whole_survey
from fedwatt.randomness import generator
from fedwatt.telemetry import Vehicle
from fedwatt.windows import build_fleet

RECORD = Path(__file__).resolve().parents[1] / "results" / "terrain_ved.json"
METHODS = ("fo-ri-fedavg", "fedavg")

ALL = replace(FIXED, minimum_vehicles=1, private=False)
SHARED = replace(FIXED, minimum_vehicles=3, private=False)
BOTH = replace(FIXED, minimum_vehicles=3, private=True)
ALONE = replace(FIXED, minimum_vehicles=len(NAMES) + 1, private=True)

FIELDS = {"fleet's field": ALL, "k = 3, private fields": BOTH, "no elevation": None}
UNSEEN_VEHICLE = {
    "field of others": ALL,
    "k = 3 of others, private field": BOTH,
    "no elevation": None,
}
LEARNED = {
    "ridge, own map only": ALONE,
    "ridge, fleet's field": ALL,
    "ridge, fleet's field where 3 or more drive": SHARED,
    "ridge, that and private fields": BOTH,
}
RIDGE = (
    "ridge, no elevation",
    *LEARNED,
    "ridge, field of the others only",
    "ridge, positions shuffled",
)


# ------------------------------------------------------------------------------ ridge
def ridge_rows(folder: Path, seed: int) -> Rows:
    """Return the errors of every vehicle's ridge regression, by elevation source."""
    vehicles = vehicles_of(folder)
    data = data_settings(seed)

    def errors(of: Sequence[Vehicle], field_of: Callable[[str], ElevationMap]) -> dict[str, float]:
        return {v.name: ridge_error(v, field_of(v.name), seed) for v in of}

    rows = {"ridge, no elevation": errors(vehicles, lambda _: empty_map(Grid()))}
    for row, settings in LEARNED.items():
        rows[row] = errors(vehicles, learn(vehicles, settings, data).maps.__getitem__)
    rows["ridge, field of the others only"] = errors(
        vehicles, lambda me: learn(_without(vehicles, me), ALL, data).shared
    )
    wrong = [shuffled(vehicle, seed) for vehicle in vehicles]
    rows["ridge, positions shuffled"] = errors(wrong, learn(wrong, ALL, data).maps.__getitem__)
    return rows


def _without(vehicles: Sequence[Vehicle], me: str) -> list[Vehicle]:
    return [vehicle for vehicle in vehicles if vehicle.name != me]


def shuffled(vehicle: Vehicle, seed: int) -> Vehicle:
    """Return the control: each trip has the positions of another trip of the vehicle."""
    order = generator(seed, "shuffled positions", vehicle.name).permutation(len(vehicle.trips))
    trips = []
    for trip, other in zip(vehicle.trips, order, strict=True):
        # A shorter trip is driven to and fro, so that no position leaps.
        there = vehicle.trips[other].channels
        to_and_fro = {
            name: np.resize(np.concatenate([there[name], there[name][::-1]]), trip.seconds)
            for name in ("latitude_deg", "longitude_deg")
        }
        trips.append(replace(trip, channels={**trip.channels, **to_and_fro}))
    return replace(vehicle, trips=tuple(trips))


# ---------------------------------------------------------------------------- networks
def network_rows(folder: Path, seed: int, device: str, method: str, name: str) -> Rows:
    """Return the errors of the shared and the personalised networks of one method."""
    vehicles = vehicles_of(folder)
    settings = FIELDS[name]
    data = data_settings(seed, "base, elevation" if settings else "base")
    if settings:
        vehicles = tuple(add_elevation(vehicles, learn(vehicles, settings, data)))
    fleet = balanced(build_fleet(vehicles, data, "ved"), seed)
    one, own = network_errors(fleet, method, seed, device)
    return {f"{method}, {name}, global": one, f"{method}, {name}, personalised": own}


def unseen_vehicle_rows(
    folder: Path, seed: int, device: str, methods: Sequence[str], name: str, me: str
) -> Rows:
    """Return the errors of one vehicle whose trips are in no map and in no shared model."""
    vehicles = vehicles_of(folder)
    settings = UNSEEN_VEHICLE[name]
    data = data_settings(seed, "base, elevation" if settings else "base")
    if settings:
        learned = learn(_without(vehicles, me), settings, data)
        fields = {**learned.maps, me: learned.shared}
        if settings.private:
            # What the unseen vehicle learns on board, on top of what the others have published.
            mine = next(vehicle for vehicle in vehicles if vehicle.name == me)
            grid = learned.shared.grid
            surveyed = whole_survey(mine, grid, settings.lengths, data)
            fields[me] = own_maps([me], {me: surveyed}, learned.shared, settings)[me]
        vehicles = tuple(with_elevation(vehicle, fields[vehicle.name]) for vehicle in vehicles)
    fleet = balanced(build_fleet(vehicles, data, "ved"), seed, held_out=me)
    rows = {}
    for method in methods:
        one, own = network_errors(fleet, method, seed, device, evaluated=me)
        rows[f"unseen_vehicle, {method}, {name}, global"] = one
        rows[f"unseen_vehicle, {method}, {name}, personalised"] = own
    return rows


# ------------------------------------------------------------------------------- tasks
def tasks(
    folder: Path, seeds: Sequence[int], parts: Sequence[str], methods: Sequence[str], device: str
) -> Iterator[Task]:
    """Yield every task of the parts."""
    both = ("global", "personalised")
    for seed in seeds:
        if "ridge" in parts:
            yield Task(RIDGE, seed, ridge_rows, (folder, seed))
    for method in methods:
        for name in FIELDS if "network" in parts else ():
            rows = tuple(f"{method}, {name}, {which}" for which in both)
            for seed in seeds:
                yield Task(rows, seed, network_rows, (folder, seed, device, method, name))
    for name in UNSEEN_VEHICLE if "unseen_vehicles" in parts else ():
        rows = tuple(f"unseen_vehicle, {m}, {name}, {which}" for m in methods for which in both)
        for seed in seeds:
            for me in NAMES:
                arguments = (folder, seed, device, tuple(methods), name, me)
                yield Task(rows, seed, unseen_vehicle_rows, arguments, vehicle=me)


def main() -> None:
    """Fill the cells that are missing."""
    options = parser(__doc__, RECORD)
    options.add_argument("--parts", default="ridge,network,unseen_vehicles")
    options.add_argument("--methods", default=",".join(METHODS))
    chosen = options.parse_args()
    seeds = [int(part) for part in chosen.seeds.split(",")]
    parts = chosen.parts.split(",")
    methods = chosen.methods.split(",")
    due = list(tasks(chosen.fleet, seeds, parts, methods, chosen.device))
    run(due, Record(chosen.record), chosen.workers)


if __name__ == "__main__":
    main()
