"""The physics of a Leaf over VED's real electric trips, and the synthetic fleet beside VED's.

    python benchmarks/leaf_physics.py PATH/TO/ved

The model of the Nissan Leaf of 2013 (`fedwatt.synthetic.LEAF_2013`, nothing fitted) predicts the
energy of every trip of VED's three electric cars from speed, outside temperature and the measured
heater and air conditioning; VED has no elevation, so the road is level. Then three parameters of
each car are fitted on its training trips and evaluated on its test trips, for several splits.

Writes results/leaf_physics.json and, from it, docs/figures/synthetic_vs_ved.svg and a paragraph of
docs/data.md. Everything written is an
aggregate over many trips.
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.marked import write_blocks
from fedwatt.report.page import saved
from fedwatt.report.style import INK, MUTED, WIDTH_IN, styled
from fedwatt.synthetic import synthetic_vehicles
from fedwatt.synthetic.electrify import Channels, driving_power_w
from fedwatt.synthetic.vehicle import LEAF_2013, VehicleParameters
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.telemetry.readers import VED_CLEANING, import_ved
from fedwatt.telemetry.trip import FloatArray
from fedwatt.windows.features import acceleration
from fedwatt.windows.splits import split_trips, window_ends, window_sums

REPOSITORY = Path(__file__).resolve().parents[1]
SPLIT = (0.7, 0.1, 0.2)
SPLIT_SEEDS = range(5)
SYNTHETIC_VEHICLES = 40
STANDING_MPS = 0.5
BLUE = "#0072b2"
ORANGE = "#d55e00"

# name: unit, edges of the histogram
DISTRIBUTIONS = {
    "speed when moving": ("km/h", np.linspace(0, 130, 53)),
    "acceleration when moving": ("m/s²", np.linspace(-3, 3, 49)),
    "trip length": ("km", np.linspace(0, 25, 41)),
    "consumption": ("Wh/km", np.linspace(0, 450, 41)),
    "energy of 60 s": ("Wh", np.linspace(-200, 500, 57)),
}

# Fitted parameters: one works per second (auxiliaries), one per metre (rolling resistance) and one
# per unit of energy (drivetrain losses).
FITTED = ("auxiliary_w", "rolling_coefficient", "drivetrain losses")
PASSES = 15
DIFFERENCE = 1e-3
LARGEST_STEP = 0.5
# Relative errors are weighted as if absolute: slopes and wind make a few trips very wrong.
SMALL_ERROR = 0.05
LEAST_TRIP_WH = 150.0
# Pulls each factor to 1 about as much as half a trip does; a vehicle may have only a few.
PRIOR = 0.5


def trip_energy_wh(vehicle: VehicleParameters, channels: Channels) -> float:
    """Energy of one trip with the heater and air conditioning that were measured."""
    climate_w = np.nan_to_num(channels["heater_w"]) + np.nan_to_num(channels["ac_w"])
    power_w = driving_power_w(vehicle, channels) + climate_w + vehicle.auxiliary_w
    return float(power_w.sum() / 3600)


def with_factors(vehicle: VehicleParameters, factors: FloatArray) -> VehicleParameters:
    """Return the vehicle with each of `FITTED` multiplied by its factor, [3]."""
    auxiliary, rolling, losses = (float(factor) for factor in factors)
    drivetrain = vehicle.drivetrain
    return replace(
        vehicle,
        auxiliary_w=vehicle.auxiliary_w * auxiliary,
        rolling_coefficient=vehicle.rolling_coefficient * rolling,
        drivetrain=replace(
            drivetrain,
            conversion_loss=min(drivetrain.conversion_loss * losses, 0.9),
            copper_w=drivetrain.copper_w * losses,
            iron_w=drivetrain.iron_w * losses,
        ),
    )


def calibrated(vehicle: VehicleParameters, trips: Sequence[Channels]) -> VehicleParameters:
    """Fit the vehicle to the trips' measured `energy_wh` by relative error.

    Gauss-Newton on the logarithms of the factors, reweighted toward least absolute error.
    """
    true_wh = np.array([float(trip["energy_wh"].sum()) for trip in trips])
    size_wh = np.maximum(np.abs(true_wh), LEAST_TRIP_WH)
    logarithms = np.zeros(len(FITTED))

    def predicted(at: FloatArray) -> FloatArray:
        candidate = with_factors(vehicle, np.exp(at))
        return np.array([trip_energy_wh(candidate, trip) for trip in trips])

    for _ in range(PASSES):
        now_wh = predicted(logarithms)
        slopes = np.stack(
            [
                (predicted(logarithms + DIFFERENCE * axis) - now_wh) / (DIFFERENCE * size_wh)
                for axis in np.eye(len(FITTED))
            ],
            axis=1,
        )
        error = (true_wh - now_wh) / size_wh
        weight = 1 / np.maximum(np.abs(error), SMALL_ERROR)
        curvature = slopes.T @ (weight[:, None] * slopes) + PRIOR * np.eye(len(FITTED))
        downhill = slopes.T @ (weight * error) - PRIOR * logarithms
        step = np.linalg.solve(curvature, downhill)
        logarithms = logarithms + np.clip(step, -LARGEST_STEP, LARGEST_STEP)
    return with_factors(vehicle, np.exp(logarithms))


def leaf_check(cars: list[Vehicle]) -> dict[str, Any]:
    """Errors of the Leaf model on test trips, unfitted and fitted, pooled over cars and splits."""
    seeds: list[dict[str, float]] = []
    for seed in SPLIT_SEEDS:
        of_seed: dict[str, list[np.ndarray]] = {"unfitted": [], "fitted": []}
        for car in cars:
            recordings = {trip.name: trip.recording for trip in car.trips}
            names = split_trips(car.name, recordings, SPLIT, seed)
            train = [trip for trip in car.trips if trip.name in names["train"]]
            test = [trip for trip in car.trips if trip.name in names["test"]]
            fitted = calibrated(LEAF_2013, [trip.channels for trip in train])
            for what, vehicle in (("unfitted", LEAF_2013), ("fitted", fitted)):
                of_seed[what].append(predicted(test, vehicle) / measured(test))
        seeds.append({what: median_error(np.concatenate(r)) for what, r in of_seed.items()})
    return {
        "data": "VED, electric cars, trips of at least 120 s and 500 m",
        "cars": len(cars),
        "trips": sum(len(car.trips) for car in cars),
        "split_seeds": len(SPLIT_SEEDS),
        "fitted_parameters": list(FITTED),
        "test_trips_median_error_percent": {
            what: round(float(np.mean([seed[what] for seed in seeds])), 1)
            for what in ("unfitted", "fitted")
        },
        "test_trips_median_error_percent_by_split": seeds,
    }


def predicted(trips: list[Trip], vehicle: VehicleParameters = LEAF_2013) -> np.ndarray:
    return np.array([trip_energy_wh(vehicle, trip.channels) for trip in trips])


def measured(trips: list[Trip]) -> np.ndarray:
    return np.array([trip.channels["energy_wh"].sum() for trip in trips])


def median_error(ratio: np.ndarray) -> float:
    return round(float(100 * np.median(np.abs(ratio - 1))), 1)


def distributions(vehicles: Iterable[Vehicle]) -> dict[str, Any]:
    """Histogram (share of samples a bin) and quantiles of each of `DISTRIBUTIONS`."""
    gathered: dict[str, list[np.ndarray]] = {name: [] for name in DISTRIBUTIONS}
    count = trips = seconds = standing = 0
    for vehicle in vehicles:
        count += 1
        for trip in vehicle.trips:
            trips += 1
            speed = trip.channels["speed_mps"]
            energy = trip.channels["energy_wh"]
            km = speed.sum() / 1000
            moving = speed > STANDING_MPS
            seconds, standing = seconds + len(speed), standing + int((~moving).sum())
            gathered["speed when moving"].append(3.6 * speed[moving])
            gathered["acceleration when moving"].append(acceleration(speed)[moving])
            gathered["trip length"].append(np.array([km]))
            gathered["consumption"].append(np.array([energy.sum() / km]))
            ends = window_ends(len(speed), stride=10)
            gathered["energy of 60 s"].append(window_sums(energy, ends))
    result: dict[str, Any] = {"vehicles": count, "trips": trips}
    result["standing"] = round(standing / seconds, 3)
    for name, (unit, edges) in DISTRIBUTIONS.items():
        values = np.concatenate(gathered[name])
        share = np.histogram(values, edges)[0] / len(values)
        quantiles = np.quantile(values, (0.05, 0.25, 0.5, 0.75, 0.95))
        result[name] = {
            "unit": unit,
            "quantiles_5_25_50_75_95": quantiles.round(2).tolist(),
            "histogram": share.round(5).tolist(),
        }
    return result


@styled
def distributions_figure(distribution: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(WIDTH_IN, 5.6))
    axes = figure.subplots(3, 2).ravel()
    for axis, (name, (unit, edges)) in zip(axes, DISTRIBUTIONS.items(), strict=False):
        for what, colour in (("ved", INK), ("synthetic", BLUE)):
            # Mean height 1, so that panels can be compared without a scale of their own.
            share = np.array(distribution[what][name]["histogram"])
            axis.stairs(share * len(share), edges, color=colour, linewidth=1.5)
        axis.set_title(name[0].upper() + name[1:])
        axis.set_xlabel(unit)
        axis.set_yticks([])
        axis.set_xlim(edges[0], edges[-1])
    axes[-1].axis("off")
    for what, colour, y in (("ved", INK, 0.85), ("synthetic", BLUE, 0.35)):
        label = "VED, electric trips" if what == "ved" else "synthetic fleet"
        count = f"{distribution[what]['vehicles']} vehicles, {distribution[what]['trips']:,} trips"
        axes[-1].text(0.02, y, label, color=colour, weight="bold")
        axes[-1].text(0.02, y - 0.13, count, color=MUTED)
        axes[-1].text(0.02, y - 0.26, f"standing {distribution[what]['standing']:.0%}", color=MUTED)
    return figure


def words(check: dict[str, Any]) -> str:
    """Return the sentences of docs/data.md about the errors of trips."""
    errors = check["test_trips_median_error_percent"]
    by_split = [split["fitted"] for split in check["test_trips_median_error_percent_by_split"]]
    return (
        "For VED's electric cars the median error of a test trip is "
        f"**{errors['unfitted']} %**, and **{errors['fitted']} %** with three parameters per car "
        "fitted on its training trips (auxiliaries, rolling resistance, drivetrain losses; "
        f"{min(by_split)} to {max(by_split)} % over {check['split_seeds']} splits)."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ved", type=Path, help="folder or Parquet file with VED's electric cars")
    arguments = parser.parse_args()
    source = arguments.ved / "EV_PHEV.parquet" if arguments.ved.is_dir() else arguments.ved
    source = source if source.exists() else arguments.ved
    few = replace(VED_CLEANING, minimum_trips=3)
    cars = list(import_ved([source], powertrain=("ev",), cleaning=few))
    electric = import_ved([source], powertrain=("ev", "phev-electric"))
    results = {
        "leaf": leaf_check(cars),
        "distributions": {
            "edges": {name: edges.tolist() for name, (_, edges) in DISTRIBUTIONS.items()},
            "ved": distributions(electric),
            "synthetic": distributions(synthetic_vehicles(SYNTHETIC_VEHICLES)),
        },
    }
    out = REPOSITORY / "results"
    figures = REPOSITORY / "docs" / "figures"
    out.mkdir(exist_ok=True)
    figures.mkdir(parents=True, exist_ok=True)
    (out / "leaf_physics.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    drawn = distributions_figure(results["distributions"])
    (figures / "synthetic_vs_ved.svg").write_bytes(saved(drawn))
    write_blocks(REPOSITORY / "docs" / "data.md", {"leaf": words(results["leaf"])})
    errors = results["leaf"]["test_trips_median_error_percent"]
    print(f"Median error of trip energy, %: {errors}")


if __name__ == "__main__":
    main()
