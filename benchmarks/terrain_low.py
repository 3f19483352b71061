"""How low can it get: what changes of field, features and network do to the error on VED.

    python benchmarks/terrain_low.py --fleet FLEET                 # ridges, one core: minutes
    python benchmarks/terrain_low.py --fleet FLEET --networks      # networks as well

Each row changes one thing of the "as it is" row: 80 m between nodes, segments of 8 s, and so on
(`TerrainSettings`), the fleet's whole field (k = 1), on the vehicles, splits and test windows of
terrain_ved.py. Validation errors are recorded beside test errors, so that a choice can be made
without looking at the latter. Fills results/terrain_low.json cell by cell; terrain_tables.py writes
docs/accuracy.md from it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.terrain_cells import (
    FIXED,
    TRAINING,
    Columns,
    Record,
    Rows,
    Task,
    balanced,
    data_settings,
    network_errors,
    parser,
    ridge_errors,
    run,
    vehicles_of,
)
from fedwatt.elevation.learn import give_terrain, learn
from fedwatt.elevation.settings import TerrainSettings
from fedwatt.federation import Training
from fedwatt.telemetry import Vehicle
from fedwatt.windows import build_fleet

RECORD = Path(__file__).resolve().parents[1] / "results" / "terrain_low.json"
ALL = replace(FIXED, minimum_vehicles=1, private=False)
METHOD = "fo-ri-fedavg"


# ------------------------------------------------------------------------------- ridges
def curved(rise: np.ndarray, speed: np.ndarray) -> np.ndarray:
    """Climb that costs more or less at speed and on steep ground."""
    return np.stack([rise * speed, rise**2 * np.sign(rise), np.abs(rise) * speed], axis=1)


def steep(rise: np.ndarray, speed: np.ndarray) -> np.ndarray:
    """Metres up and down where it is steeper than 3 %."""
    run_m = 0.03 * speed
    return np.stack([np.maximum(rise - run_m, 0), np.maximum(-rise - run_m, 0)], axis=1)


@dataclass(frozen=True)
class Ridge:
    """One change of the ridge."""

    terrain: TerrainSettings = ALL
    lag_s: int = 0
    """Seconds that positions are ahead of power; VED's columns come from different units."""
    smooth_s: int = 1
    """Seconds that positions are averaged over."""
    columns: Columns | None = None
    parts: int = 1


RIDGES = {
    "as it is": Ridge(),
    **{f"nodes {m} m apart": Ridge(replace(ALL, cell_m=float(m))) for m in (40, 60, 120, 160)},
    **{f"segments of {s} s": Ridge(replace(ALL, segment_s=s)) for s in (4, 6, 12, 20)},
    **{f"prior grade {g:.0%}": Ridge(replace(ALL, prior_grade=g)) for g in (0.02, 0.05)},
    **{f"{n} further exchanges": Ridge(replace(ALL, refreshes=n)) for n in (0, 1, 4)},
    **{f"power {s:+d} s behind motion": Ridge(lag_s=s) for s in (-2, -1, 1, 2, 3)},
    **{f"positions averaged over {s} s": Ridge(smooth_s=s) for s in (3, 7)},
    "climb × speed and climb²": Ridge(columns=curved),
    "climb beyond 3 % on its own": Ridge(columns=steep),
    **{f"means of {n} parts of a window": Ridge(parts=n) for n in (2, 3, 6)},
    # The two that validation errors of seed 1 liked best, together.
    "segments of 12 s, means of 6 parts": Ridge(replace(ALL, segment_s=12), parts=6),
}


def moved(vehicle: Vehicle, change: Ridge) -> Vehicle:
    """The vehicle with its positions shifted and averaged."""
    if change.lag_s == 0 and change.smooth_s == 1:
        return vehicle
    trips = []
    for trip in vehicle.trips:
        channels = dict(trip.channels)
        for name in ("latitude_deg", "longitude_deg"):
            if name not in channels:
                continue
            # Power of second t belongs to where the vehicle was `lag_s` before.
            at = np.clip(np.arange(trip.seconds) - change.lag_s, 0, trip.seconds - 1)
            values = channels[name][at]
            if change.smooth_s > 1 and np.isfinite(values).all():
                half = change.smooth_s // 2
                padded = np.pad(values, half, mode="edge")
                kernel = np.full(change.smooth_s, 1 / change.smooth_s)
                values = np.convolve(padded, kernel, mode="valid")
            channels[name] = values
        trips.append(replace(trip, channels=channels))
    return replace(vehicle, trips=tuple(trips))


def ridge_rows(folder: Path, seed: int, name: str) -> Rows:
    change = RIDGES[name]
    vehicles = [moved(vehicle, change) for vehicle in vehicles_of(folder)]
    own = learn(vehicles, change.terrain, data_settings(seed)).own
    found = {
        v.name: ridge_errors(v, own[v.name], seed, columns=change.columns, parts=change.parts)
        for v in vehicles
    }
    return {
        f"ridge, {name}, {split}": {vehicle: both[split] for vehicle, both in found.items()}
        for split in ("validation", "test")
    }


# ----------------------------------------------------------------------------- networks
@dataclass(frozen=True)
class Network:
    """One change of the network."""

    features: str = "base, terrain"
    model: str = "mlp"
    hidden: tuple[int, ...] = ()
    training: Training = TRAINING
    stride: int = 5
    terrain: dict[str, Any] = field(default_factory=dict)


# The longest first, so that several cores end together.
NETWORKS = {
    "GRU 32": Network(model="gru"),
    "every window, stride 1": Network(stride=1),
    "40 rounds": Network(training=replace(TRAINING, rounds=40)),
    "wider, 128-64": Network(hidden=(128, 64)),
    "base, physics and summary features": Network(features="base, physics, summary, terrain"),
    "as it is": Network(),
    "physics features": Network(features="physics, terrain"),
    "base and summary features": Network(features="base, summary, terrain"),
    "narrower, 32-16": Network(hidden=(32, 16)),
    "nodes 60 m apart": Network(terrain={"cell_m": 60.0}),
}


def network_rows(folder: Path, seed: int, device: str, name: str) -> Rows:
    change = NETWORKS[name]
    data = replace(data_settings(seed, change.features), stride=change.stride)
    vehicles = vehicles_of(folder)
    learned = learn(vehicles, replace(ALL, **change.terrain), data)
    fleet = balanced(build_fleet(give_terrain(vehicles, learned), data, "ved"), seed)
    one, own = network_errors(
        fleet,
        METHOD,
        seed,
        device,
        model=change.model,
        hidden=change.hidden,
        training=change.training,
    )
    return {f"network, {name}, global": one, f"network, {name}, personal": own}


def tasks(folder: Path, seeds: Sequence[int], networks: bool, device: str) -> Iterator[Task]:
    for seed in seeds:
        for name in RIDGES:
            rows = tuple(f"ridge, {name}, {split}" for split in ("validation", "test"))
            yield Task(rows, seed, ridge_rows, (folder, seed, name))
    for name in NETWORKS if networks else ():
        for seed in seeds:
            rows = tuple(f"network, {name}, {which}" for which in ("global", "personal"))
            yield Task(rows, seed, network_rows, (folder, seed, device, name))


def main() -> None:
    options = parser(__doc__, RECORD)
    options.add_argument("--networks", action="store_true", help="networks as well")
    chosen = options.parse_args()
    seeds = [int(part) for part in chosen.seeds.split(",")]
    due = list(tasks(chosen.fleet, seeds, chosen.networks, chosen.device))
    run(due, Record(chosen.record), chosen.workers)


if __name__ == "__main__":
    main()
