"""Measure what bad positions cost a vehicle of VED, beside having no elevation at all.

    python -m benchmarks.elevation_faults --fleet FLEET --workers 14

One vehicle at a time is given one fault in all its trips; the other eleven stay sound. The fleet
learns its elevation map (k = 3 and private nodes, the defaults) and trains as elsewhere, the faulty
vehicle among the others. Recorded are that vehicle's RMSE under the global model and
under its personalised one. Beside them: no elevation, and no elevation from another initial model,
which says how much of a vehicle's difference is chance.

Fills results/elevation_faults.json cell by cell (what is there is kept, so a stopped run goes on);
elevation_tables.py writes docs/accuracy.md from it. A task takes about half a minute of one
core where a C compiler is installed, so three seeds of all vehicles about three hours.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.elevation_cells import (
    FIXED,
    NAMES,
    TRAINING,
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
from fedwatt.elevation.learn import add_elevation, learn
from fedwatt.evaluation import Personalisation, personalise
from fedwatt.federation import Federation
from fedwatt.models import get_model
from fedwatt.randomness import generator
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.channels import POSITION
from fedwatt.windows import DataSettings, build_fleet
from fedwatt.windows.client import split_of_trips

RECORD = Path(__file__).resolve().parents[1] / "results" / "elevation_faults.json"
SETTINGS = FIXED
DEGREE_M = 6_371_000 * np.pi / 180
ANOTHER = 1000
"""Added to the seed of the initial model and of the rounds, with the same trips and windows."""

WHICH = ("global", "personalised")

Positions = np.ndarray
"""[2, seconds]: latitude and longitude in degrees."""
Spoil = Callable[[Positions, np.random.Generator], Positions]


# ----------------------------------------------------------------------------- faults
def nothing(positions: Positions, rng: np.random.Generator) -> Positions:
    return np.full_like(positions, np.nan)


def half_of_trips(positions: Positions, rng: np.random.Generator) -> Positions:
    return positions if rng.random() < 0.5 else nothing(positions, rng)


def tenth(positions: Positions, rng: np.random.Generator) -> Positions:
    return positions if rng.random() < 0.1 else nothing(positions, rng)


def frozen(positions: Positions, rng: np.random.Generator) -> Positions:
    """From some moment of the trip's first half on, the last fix is repeated."""
    at = int(rng.integers(0, positions.shape[1] // 2))
    stuck = positions.copy()
    stuck[:, at:] = stuck[:, at : at + 1]
    return stuck


def jumps(positions: Positions, rng: np.random.Generator) -> Positions:
    """Return position jumps of about a kilometre every two minutes, each up to ten seconds long."""
    jumped = positions.copy()
    for at in rng.integers(0, positions.shape[1], positions.shape[1] // 120 + 1):
        jumped[:, at : at + int(rng.integers(1, 10))] += rng.normal(0, 0.01, (2, 1))
    return jumped


def offset(positions: Positions, rng: np.random.Generator) -> Positions:
    """All trips shifted by the same 3 km to the north."""
    return np.asarray(positions + np.array([[3000 / DEGREE_M], [0.0]]))


def tunnels(positions: Positions, rng: np.random.Generator) -> Positions:
    """In every stretch of ten minutes two to four without a fix."""
    gaps = positions.copy()
    for begin in range(0, positions.shape[1], 600):
        at = begin + int(rng.integers(0, 300))
        gaps[:, at : at + int(rng.integers(120, 240))] = np.nan
    return gaps


def wandering(positions: Positions, rng: np.random.Generator) -> Positions:
    """Return a slow position error of 30 m with a correlation time of half a minute."""
    stay = np.exp(-1 / 30)
    error = rng.normal(0, 30, positions.shape)
    for second in range(1, error.shape[1]):
        fresh = np.sqrt(1 - stay**2) * error[:, second]
        error[:, second] = stay * error[:, second - 1] + fresh
    return positions + error / (DEGREE_M * np.array([[1.0], [np.cos(np.radians(42))]]))


FAULTS: dict[str, Spoil] = {
    "no positions at all": nothing,
    "positions in one trip of ten": tenth,
    "positions in half of the trips": half_of_trips,
    "positions lost after training": nothing,
    "frozen within the first half of each trip": frozen,
    "a jump every two minutes": jumps,
    "3 km beside the truth": offset,
    "tunnels of two to four minutes": tunnels,
    "wandering by 30 m": wandering,
}


def spoiled(vehicle: Vehicle, fault: str, seed: int, data: DataSettings) -> Vehicle:
    """Return the vehicle with a fault in all trips, or in test trips if it came after training."""
    split_of = split_of_trips(vehicle, data)
    trips = []
    for trip in vehicle.trips:
        if fault == "positions lost after training" and split_of.get(trip.name) != "test":
            trips.append(trip)
            continue
        rng = generator(seed, "fault", fault, vehicle.name, trip.name)
        positions = np.stack([trip.channels[name] for name in POSITION])
        wrong = dict(zip(POSITION, FAULTS[fault](positions, rng), strict=True))
        trips.append(replace(trip, channels={**trip.channels, **wrong}))
    return replace(vehicle, trips=tuple(trips))


# ------------------------------------------------------------------------------- rows
def rows_with_elevation(
    vehicles: Sequence[Vehicle],
    seed: int,
    device: str,
    method: str,
    fault: str,
    evaluated: Sequence[str],
) -> Rows:
    """Return errors of all vehicles under the global model, and of some personalised models."""
    data = data_settings(seed, "base, elevation")
    climbing = add_elevation(vehicles, learn(vehicles, SETTINGS, data))
    fleet = balanced(build_fleet(climbing, data, "ved"), seed)
    model = get_model("mlp", window=fleet.window, features=len(fleet.features))
    federation = Federation(fleet, model, training=TRAINING, seeds=(seed,), device=device)
    weights = federation.train(method).state.best_weights
    places = [fleet.names.index(name) for name in evaluated]
    personalised = personalise(federation, weights, Personalisation(), vehicles=places).test
    rows = {
        f"{fault}, global": federation.vehicle_rows(weights),
        f"{fault}, personalised": federation.prediction_rows(personalised),
    }
    return {
        name: {row["vehicle"]: float(row["rmse"]) for row in errors}
        for name, errors in rows.items()
    }


def rows_without_elevation(folder: Path, seed: int, device: str, method: str, name: str) -> Rows:
    """Return errors without elevation; `name` says from which initial model."""
    fleet = balanced(build_fleet(vehicles_of(folder), data_settings(seed), "ved"), seed)
    begin = seed if name == "no elevation" else seed + ANOTHER
    shared, personalised = network_errors(fleet, method, begin, device)
    return {f"{name}, global": shared, f"{name}, personalised": personalised}


def faulty_rows(folder: Path, seed: int, device: str, method: str, fault: str, me: str) -> Rows:
    """Return errors of one vehicle with a fault."""
    data = data_settings(seed)
    vehicles = [spoiled(v, fault, seed, data) if v.name == me else v for v in vehicles_of(folder)]
    rows = rows_with_elevation(vehicles, seed, device, method, fault, [me])
    return {name: {me: errors[me]} for name, errors in rows.items()}


# ------------------------------------------------------------------------------ tasks
def tasks(
    folder: Path, seeds: Sequence[int], device: str, method: str, vehicles: Sequence[str]
) -> Iterator[Task]:
    """Yield the runs without elevation first, then every fault of every vehicle."""
    for seed in seeds:
        for name in ("no elevation", "no elevation, another initial model"):
            rows = tuple(f"{name}, {which}" for which in WHICH)
            yield Task(rows, seed, rows_without_elevation, (folder, seed, device, method, name))
    for seed in seeds:
        for fault in FAULTS:
            rows = tuple(f"{fault}, {which}" for which in WHICH)
            for me in vehicles:
                arguments = (folder, seed, device, method, fault, me)
                yield Task(rows, seed, faulty_rows, arguments, vehicle=me)


def main() -> None:
    options = parser(__doc__, RECORD)
    options.set_defaults(seeds="1,2,3")
    options.add_argument("--method", default="fo-ri-fedavg")
    options.add_argument("--vehicles", default=",".join(NAMES), help="those to be given faults")
    chosen = options.parse_args()
    seeds = [int(part) for part in chosen.seeds.split(",")]
    due = tasks(chosen.fleet, seeds, chosen.device, chosen.method, chosen.vehicles.split(","))
    run(list(due), Record(chosen.record), chosen.workers)


if __name__ == "__main__":
    main()
