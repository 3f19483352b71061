"""Compare one network for known and unknown elevation with two networks, on VED.

    python -m benchmarks.elevation_masked --fleet FLEET

The library trains one network, which sees some windows with their elevation masked. Beside it
train a network with elevation that sees no masked window, and one without elevation. All are
fine-tuned in each of the 12 vehicles of the other benchmarks, k = 3. "recorded" are test windows
as they were recorded, nearly all with known elevation; "masked" are the same windows with their
elevation masked, which are no other windows to the network without elevation.

Fills results/elevation_masked.json; elevation_tables.py writes a sentence of docs/accuracy.md.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.elevation_cells import (
    FIXED,
    TRAINING,
    Errors,
    Record,
    Rows,
    Task,
    balanced,
    data_settings,
    parser,
    run,
    vehicles_of,
)
from fedwatt.elevation.learn import add_elevation, learn
from fedwatt.evaluation import Personalisation, PersonalisedModel, personalise
from fedwatt.federation import Federation
from fedwatt.models import get_model
from fedwatt.telemetry import Vehicle
from fedwatt.windows import DataSettings, build_fleet
from fedwatt.windows.client import split_of_trips
from fedwatt.windows.features import CLIMB, CLIMB_KNOWN

RECORD = Path(__file__).resolve().parents[1] / "results" / "elevation_masked.json"
METHOD = "fedavg"
NETWORKS = {
    "one network": "base, elevation",
    "network with elevation": "base, ascent, descent",
    "network without elevation": "base",
}
"""Name → features; only the first has the feature that says whether climb is known."""
ROWS = (
    "one network, recorded",
    "one network, masked",
    "network with elevation, recorded",
    "network without elevation, recorded",
)


def masked(vehicle: Vehicle, data: DataSettings) -> Vehicle:
    """Return the vehicle with unknown climb in its test trips."""
    split_of = split_of_trips(vehicle, data)
    trips = []
    for trip in vehicle.trips:
        if split_of.get(trip.name) == "test":
            level = dict.fromkeys((*CLIMB, CLIMB_KNOWN), np.zeros(trip.seconds))
            trips.append(replace(trip, channels={**trip.channels, **level}))
        else:
            trips.append(trip)
    return replace(vehicle, trips=tuple(trips))


def personalised_errors(
    vehicles: Sequence[Vehicle], seed: int, device: str, features: str
) -> dict[str, Errors]:
    """Return the test RMSE of each vehicle's personalised model, "recorded" and "masked"."""
    data = data_settings(seed, features)
    fleet = balanced(build_fleet(vehicles, data, "ved"), seed)
    model = get_model("mlp", window=fleet.window, features=len(fleet.features))
    federation = Federation(fleet, model, training=TRAINING, seeds=(seed,), device=device)
    weights = federation.train(METHOD).state.final_weights
    tuned: dict[int, PersonalisedModel] = {}
    personalise(
        federation,
        weights,
        Personalisation(),
        keep=lambda model: tuned.update({model.vehicle: model}),
    )
    unknown = build_fleet([masked(vehicle, data) for vehicle in vehicles], data, "ved")
    views = {"recorded": federation}
    views["masked"] = Federation(
        balanced(unknown, seed), model, training=TRAINING, seeds=(seed,), device=device
    )
    return {
        name: {
            fleet.names[place]: view.vehicle_rows(model_of_place.weights[None])[place]["rmse"]
            for place, model_of_place in tuned.items()
        }
        for name, view in views.items()
    }


def rows(folder: Path, seed: int, device: str) -> Rows:
    """Return the errors of all networks in one split."""
    data = data_settings(seed, NETWORKS["one network"])
    vehicles = vehicles_of(folder)
    climbing = tuple(add_elevation(vehicles, learn(vehicles, FIXED, data)))
    return {
        f"{name}, {windows}": errors
        for name, features in NETWORKS.items()
        for windows, errors in personalised_errors(climbing, seed, device, features).items()
        if f"{name}, {windows}" in ROWS
    }


def tasks(folder: Path, seeds: Sequence[int], device: str) -> Iterator[Task]:
    """Yield a task for each split."""
    for seed in seeds:
        yield Task(ROWS, seed, rows, (folder, seed, device))


def main() -> None:
    """Fill the cells that are missing."""
    chosen = parser(__doc__, RECORD).parse_args()
    seeds = [int(part) for part in chosen.seeds.split(",")]
    run(list(tasks(chosen.fleet, seeds, chosen.device)), Record(chosen.record), chosen.workers)


if __name__ == "__main__":
    main()
