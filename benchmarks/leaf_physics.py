"""The physics of a Leaf over VED's real electric trips, and the synthetic fleet beside VED's.

    python benchmarks/leaf_physics.py PATH/TO/ved

The model of the Nissan Leaf of 2013 (`fedwatt.synthetic.LEAF_2013`, nothing fitted) predicts the
energy of every trip of VED's three electric cars from speed, outside temperature and the measured
heater and air conditioning; VED has no elevation, so the road is level. Then three parameters of
each car are fitted on its training trips and evaluated on its test trips, for several splits.

Writes results/leaf_physics.json and, from it, docs/figures/leaf_physics.svg and
docs/figures/synthetic_vs_ved.svg and a paragraph of docs/data.md. Everything written is an
aggregate over many trips.
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
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
from fedwatt.windows.splits import split_trips, window_ends, window_energy

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
ERROR_PERCENT = np.arange(0, 61, 1.0)
DRAG_BINS_KMH = np.array([0, 50, 70, 140])
DRAG_AREAS_M2 = (0.65, 0.87)  # data sheet, and what EPA's coast-down suggests
# Bounds of trip energy, Wh, between which predicted over measured is summarised.
TRIP_BINS_WH = np.array([0, 250, 500, 750, 1000, 1500, 2500, 6000])

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
    """The vehicle with each of `FITTED` multiplied by its factor, [3]."""
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
    """The vehicle that comes closest to the trips' measured `energy_wh` in relative terms.

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
    by_car: dict[str, dict[str, Any]] = {}
    seeds: list[dict[str, float]] = []
    ratios: dict[str, list[np.ndarray]] = {"unfitted": [], "fitted": []}
    true: list[np.ndarray] = []
    all_trips = [(predicted([t]) / measured([t]))[0] for car in cars for t in car.trips]
    for seed in SPLIT_SEEDS:
        of_seed: dict[str, list[np.ndarray]] = {"unfitted": [], "fitted": []}
        for car in cars:
            recordings = {trip.name: trip.recording for trip in car.trips}
            names = split_trips(car.name, recordings, SPLIT, seed)
            train = [trip for trip in car.trips if trip.name in names["train"]]
            test = [trip for trip in car.trips if trip.name in names["test"]]
            fitted = calibrated(LEAF_2013, [trip.channels for trip in train])
            for what, vehicle in (("unfitted", LEAF_2013), ("fitted", fitted)):
                ratio = predicted(test, vehicle) / measured(test)
                of_seed[what].append(ratio)
                entry = by_car.setdefault(car.name, {"trips": len(car.trips)})
                entry.setdefault(what, []).append(median_error(ratio))
            by_car[car.name].setdefault("factors", []).append(factors(fitted))
            true.append(measured(test))
        seeds.append({what: median_error(np.concatenate(r)) for what, r in of_seed.items()})
        for what, found in of_seed.items():
            ratios[what] += found
    pooled = {what: np.concatenate(found) for what, found in ratios.items()}
    return {
        "data": "VED, electric cars, trips of at least 120 s and 500 m",
        "cars": len(cars),
        "trips": sum(len(car.trips) for car in cars),
        "split_seeds": len(SPLIT_SEEDS),
        "fitted_parameters": list(FITTED),
        "all_trips_unfitted_median_error_percent": median_error(np.array(all_trips)),
        "test_trips_median_error_percent": {
            what: round(float(np.mean([seed[what] for seed in seeds])), 1) for what in pooled
        },
        "test_trips_median_error_percent_by_split": seeds,
        "test_trips_median_error_percent_by_car": {
            name: of_car(entry) for name, entry in by_car.items()
        },
        "share_of_test_trips_within_percent": shares_within(pooled),
        "predicted_over_measured_by_trip_energy": ratios_by_energy(pooled, np.concatenate(true)),
    }


def drag_check(cars: list[Vehicle]) -> dict[str, Any]:
    """Predicted over measured energy by speed, with the data sheet's drag area and a larger one.

    The speed of a trip is the root of ∫v³dt/∫v dt, the one at which its drag is that of steady
    driving; losses and load of a car move all speeds alike, a wrong drag area the fast trips.
    """
    found: dict[str, Any] = {"bounds_kmh": DRAG_BINS_KMH.tolist(), "by_car": {}}
    for car in cars:
        speeds = [trip.channels["speed_mps"] for trip in car.trips]
        kmh = np.array([3.6 * np.sqrt((v**3).sum() / v.sum()) for v in speeds])
        bins = np.digitize(kmh, DRAG_BINS_KMH) - 1
        numbers = range(len(DRAG_BINS_KMH) - 1)
        entry: dict[str, Any] = {"trips": [int((bins == b).sum()) for b in numbers]}
        for area_m2 in DRAG_AREAS_M2:
            vehicle = replace(LEAF_2013, drag_area_m2=area_m2)
            ratio = predicted(list(car.trips), vehicle) / measured(list(car.trips))
            entry[str(area_m2)] = [
                round(float(np.median(ratio[bins == b])), 3) if (bins == b).any() else None
                for b in numbers
            ]
        found["by_car"][car.name] = entry
    return found


def of_car(entry: dict[str, Any]) -> dict[str, Any]:
    """Means over the splits of one car."""
    return {
        "trips": entry["trips"],
        "unfitted": round(float(np.mean(entry["unfitted"])), 1),
        "fitted": round(float(np.mean(entry["fitted"])), 1),
        "factors": np.mean(entry["factors"], axis=0).round(2).tolist(),
    }


def shares_within(pooled: dict[str, np.ndarray]) -> dict[str, list[float]]:
    """Share of trips whose error is at most each of `ERROR_PERCENT`."""
    shares = {
        what: [
            round(float((100 * np.abs(r - 1) <= percent).mean()), 4) for percent in ERROR_PERCENT
        ]
        for what, r in pooled.items()
    }
    return {"percent": ERROR_PERCENT.tolist(), **shares}


def ratios_by_energy(pooled: dict[str, np.ndarray], true_wh: np.ndarray) -> dict[str, list[Any]]:
    """Quartiles of predicted over measured, by the measured energy of a trip."""
    bins = np.digitize(true_wh, TRIP_BINS_WH) - 1
    numbers = range(len(TRIP_BINS_WH) - 1)
    quartiles = {
        what: [np.quantile(r[bins == b], (0.25, 0.5, 0.75)).round(3).tolist() for b in numbers]
        for what, r in pooled.items()
    }
    return {
        "bounds_wh": TRIP_BINS_WH.tolist(),
        "trips": [int((bins == b).sum()) for b in numbers],
        **quartiles,
    }


def predicted(trips: list[Trip], vehicle: VehicleParameters = LEAF_2013) -> np.ndarray:
    return np.array([trip_energy_wh(vehicle, trip.channels) for trip in trips])


def measured(trips: list[Trip]) -> np.ndarray:
    return np.array([trip.channels["energy_wh"].sum() for trip in trips])


def median_error(ratio: np.ndarray) -> float:
    return round(float(100 * np.median(np.abs(ratio - 1))), 1)


def factors(vehicle: VehicleParameters) -> list[float]:
    return [
        vehicle.auxiliary_w / LEAF_2013.auxiliary_w,
        vehicle.rolling_coefficient / LEAF_2013.rolling_coefficient,
        vehicle.drivetrain.iron_w / LEAF_2013.drivetrain.iron_w,
    ]


def distributions(vehicles: Iterable[Vehicle]) -> dict[str, Any]:
    """Histogram (share of samples a bin) and quantiles of each of `DISTRIBUTIONS`."""
    found: dict[str, list[np.ndarray]] = {name: [] for name in DISTRIBUTIONS}
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
            found["speed when moving"].append(3.6 * speed[moving])
            found["acceleration when moving"].append(acceleration(speed)[moving])
            found["trip length"].append(np.array([km]))
            found["consumption"].append(np.array([energy.sum() / km]))
            ends = window_ends(len(speed), stride=10)
            found["energy of 60 s"].append(window_energy(energy, ends))
    result: dict[str, Any] = {"vehicles": count, "trips": trips}
    result["standing"] = round(standing / seconds, 3)
    for name, (unit, edges) in DISTRIBUTIONS.items():
        values = np.concatenate(found[name])
        share = np.histogram(values, edges)[0] / len(values)
        quantiles = np.quantile(values, (0.05, 0.25, 0.5, 0.75, 0.95))
        result[name] = {
            "unit": unit,
            "quantiles_5_25_50_75_95": quantiles.round(2).tolist(),
            "histogram": share.round(5).tolist(),
        }
    return result


@styled
def leaf_figure(check: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(WIDTH_IN, 4.6))
    within, by_energy = figure.subplots(2, 1)
    curves = check["share_of_test_trips_within_percent"]
    errors = check["test_trips_median_error_percent"]
    for what, colour in (("unfitted", ORANGE), ("fitted", BLUE)):
        share = 100 * np.array(curves[what])
        within.plot(curves["percent"], share, color=colour)
        label = f"{what}: median error {errors[what]:.1f} %"
        within.plot([], [], color=colour, label=label)
        within.plot([errors[what]] * 2, [0, 50], color=colour, linewidth=0.9, linestyle=":")
    within.set_title("Share of test trips within an error, %")
    within.set_xlabel("error of the trip's energy, %")
    within.set_xlim(0, 60)
    within.set_ylim(0, 100)
    within.legend(loc="lower right")

    bins = check["predicted_over_measured_by_trip_energy"]
    bounds = bins["bounds_wh"]
    at = np.arange(len(bounds) - 1)
    for what, colour, shift in (("unfitted", ORANGE, -0.12), ("fitted", BLUE, 0.12)):
        low, middle, high = np.array(bins[what]).T
        by_energy.vlines(at + shift, low, high, color=colour, linewidth=2.2)
        by_energy.plot(at + shift, middle, "o", color=colour, markersize=5)
    by_energy.axhline(1, color=MUTED, linewidth=0.8)
    by_energy.set_xticks(at, [f"{a}–{b}" for a, b in pairwise(bounds)])
    by_energy.tick_params(axis="x", labelsize=7.5)
    by_energy.set_title("Predicted over measured: median and middle half")
    by_energy.set_xlabel("measured energy of the trip, Wh")
    return figure


@styled
def distributions_figure(found: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(WIDTH_IN, 5.6))
    axes = figure.subplots(3, 2).ravel()
    for axis, (name, (unit, edges)) in zip(axes, DISTRIBUTIONS.items(), strict=False):
        for what, colour in (("ved", INK), ("synthetic", BLUE)):
            # Mean height 1, so that panels can be compared without a scale of their own.
            share = np.array(found[what][name]["histogram"])
            axis.stairs(share * len(share), edges, color=colour, linewidth=1.5)
        axis.set_title(name[0].upper() + name[1:])
        axis.set_xlabel(unit)
        axis.set_yticks([])
        axis.set_xlim(edges[0], edges[-1])
    axes[-1].axis("off")
    for what, colour, y in (("ved", INK, 0.85), ("synthetic", BLUE, 0.35)):
        label = "VED, electric trips" if what == "ved" else "synthetic fleet"
        count = f"{found[what]['vehicles']} vehicles, {found[what]['trips']:,} trips"
        axes[-1].text(0.02, y, label, color=colour, weight="bold")
        axes[-1].text(0.02, y - 0.13, count, color=MUTED)
        axes[-1].text(0.02, y - 0.26, f"standing {found[what]['standing']:.0%}", color=MUTED)
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
        "drag_area": drag_check(cars),
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
    (figures / "leaf_physics.svg").write_bytes(saved(leaf_figure(results["leaf"])))
    drawn = distributions_figure(results["distributions"])
    (figures / "synthetic_vs_ved.svg").write_bytes(saved(drawn))
    write_blocks(REPOSITORY / "docs" / "data.md", {"leaf": words(results["leaf"])})
    errors = results["leaf"]["test_trips_median_error_percent"]
    print(f"Median error of trip energy, %: {errors}")


if __name__ == "__main__":
    main()
