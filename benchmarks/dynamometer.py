"""Compare the project's physics and FASTSim with a car on a chassis dynamometer; nothing is fitted.

    python -m benchmarks.dynamometer ../shared/data/dynamometer
    python -m benchmarks.dynamometer                             writes docs/data.md from the record

The folder holds `dynamometer.parquet` (MOTIVES-LAB): 46 tests of one electric car, one row per
second with the bench's speed and the power of the pack's two branches. The bench states its road
load, F = 179.4 N + 0.28 N/(km/h)·v + 0.0235 N/(km/h)²·v², and the test mass of 1,919 kg. Everything
else (losses of the drivetrain, regeneration, auxiliaries) are the shipped values of the passenger
class that is nearest in mass. FASTSim (`pip install fastsim`, 3.1) drives the same speeds with the
same road load, mass and auxiliaries on the drivetrains of two cars that it ships; without it the
record says "not installed". Writes results/dynamometer.json and a block of docs/data.md.
"""

import argparse
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.marked import write_blocks
from fedwatt.files import write_text
from fedwatt.synthetic.vehicle import (
    CLASSES,
    DRIVER_KG,
    GRAVITY_MPS2,
    Drivetrain,
    VehicleParameters,
    air_density,
    traction_power_w,
    wheel_power_w,
)
from fedwatt.telemetry.trip import FloatArray

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "results" / "dynamometer.json"
PAGE = ROOT / "docs" / "data.md"
MASS_KG = 1919.0
BENCH_C = 20.0  # rolling resistance and air density have no correction there
CONSTANT_N = 179.4
LINEAR_NS_PER_M = 0.28 * 3.6
SQUARE_NS2_PER_M2 = 0.0235 * 3.6**2
FASTSIM_CARS = {
    "FASTSim, Tesla Model 3": "2022 Tesla Model 3 RWD thrml.yaml",
    "FASTSim, Renault Zoe": "2022_Renault_Zoe_ZE50_R135.yaml",
}
FASTSIM_AIR_KG_M3 = 1.172
FASTSIM_GRAVITY = 9.80154849496314
FEDWATT = "fedwatt"


@dataclass(frozen=True, eq=False)
class BenchTest:
    """A laboratory test: speed at whole seconds [seconds] and what the pack gave."""

    name: str
    speed_mps: FloatArray
    energy_wh: float

    @property
    def cycle(self) -> str:
        """Driving cycle without the numbers of the test.

        >>> BenchTest("CLTC_CSS/04_CS_110 1", np.zeros(2), 1.0).cycle
        'CS_110'
        """
        tested = self.name.split("/")[1].removeprefix(self.name.split("/")[1][:2]).strip(" _")
        return re.sub(r" \d+$", "", tested).replace("SPEED_", "CS_")


def read_tests(folder: Path) -> list[BenchTest]:
    """Return all tests of the bench in the order of the file."""
    table = pl.read_parquet(folder / "dynamometer.parquet")
    tests = []
    for (name,), rows in table.group_by("test", maintain_order=True):
        power_w = -(rows["traction_w"] + rows["other_w"]).to_numpy().astype(float)
        energy_wh = float(middles(power_w).sum() / 3600)
        speed_mps = rows["speed_kmh"].to_numpy().astype(float) / 3.6
        tests.append(BenchTest(str(name), speed_mps, energy_wh))
    return tests


def middles(values: FloatArray) -> FloatArray:
    """Return the means of neighbouring values, [n] to [n - 1].

    >>> middles(np.array([0.0, 2.0, 6.0]))
    array([1., 4.])
    """
    return (values[1:] + values[:-1]) / 2


def bench_vehicle(name: str) -> VehicleParameters:
    """Return a passenger class's typical drivetrain under the bench's mass and road load.

    Typical is the middle of what `fedwatt.synthetic.vehicle.draw_vehicle` draws.
    """
    typical = CLASSES["passenger"][name]
    air_kg_m3 = float(air_density(np.array(BENCH_C)))
    return VehicleParameters(
        mass_kg=MASS_KG,
        rolling_coefficient=CONSTANT_N / (MASS_KG * GRAVITY_MPS2),
        drag_area_m2=2 * SQUARE_NS2_PER_M2 / air_kg_m3,
        drivetrain=Drivetrain(
            conversion_loss=0.04,
            peak_force_n=typical.peak_force_n,
            copper_w=0.1 * typical.motor_w,
            iron_w=250.0 + 0.008 * typical.motor_w,
        ),
        regeneration_share=0.85,
        regeneration_limit_w=typical.regeneration_limit_w,
        regeneration_fade_mps=4.25,
        auxiliary_w=(typical.auxiliary_least_w + typical.auxiliary_most_w) / 2,
    )


def nearest_class() -> str:
    """Return the passenger class whose mass with a driver is nearest to the bench's."""
    classes = CLASSES["passenger"]
    return min(classes, key=lambda name: abs(classes[name].mass_kg + DRIVER_KG - MASS_KG))


def physics_wh(vehicle: VehicleParameters, speed_mps: FloatArray) -> float:
    """Return the energy at the pack that the project's physics gives for a speed trace."""
    speed = middles(speed_mps)
    level = np.zeros_like(speed)
    air_c = np.full_like(speed, BENCH_C)
    wheel_w = wheel_power_w(vehicle, speed, np.diff(speed_mps), level, air_c)
    # The bench's road load has a linear term, for which the vehicle's parameters have no place.
    wheel_w = wheel_w + LINEAR_NS_PER_M * speed**2
    power_w = traction_power_w(vehicle, wheel_w, speed, air_c) + vehicle.auxiliary_w
    return float(power_w.sum() / 3600)


def fastsim_wh(resource: str, auxiliary_w: float, tests: list[BenchTest]) -> list[float]:
    """Return FASTSim's energy at the battery's terminals; NaN where it cannot drive a test.

    FASTSim has no linear term: rolling resistance and drag follow the road load by least squares
    over 0 to 130 km/h. It starts at rest, so two tests that begin at speed cannot be driven.
    """
    import fastsim

    speed = np.linspace(0, 130 / 3.6, 131)
    force_n = CONSTANT_N + LINEAR_NS_PER_M * speed + SQUARE_NS2_PER_M2 * speed**2
    design = np.stack([np.ones_like(speed), speed**2], axis=1)
    constant_n, square = np.linalg.lstsq(design, force_n, rcond=None)[0]
    car = fastsim.Vehicle.from_resource(resource).to_dict()
    chassis = car["chassis"]
    chassis |= {"glider_mass_kilograms": None, "cargo_mass_kilograms": None}
    chassis["wheel_rr_coef"] = constant_n / (MASS_KG * FASTSIM_GRAVITY)
    area_m2 = chassis["frontal_area_square_meters"]
    chassis["drag_coef"] = 2 * square / (FASTSIM_AIR_KG_M3 * area_m2)
    car |= {"mass_kilograms": MASS_KG, "pwr_aux_base_watts": auxiliary_w}
    car |= {"hvac": "None", "cabin": "None"}
    car["pt_type"]["BEV"]["res"]["thrml"] = "None"
    energies = []
    for test in tests:
        if test.speed_mps[0] > 0.5:
            energies.append(float("nan"))
            continue
        seconds = np.arange(len(test.speed_mps), dtype=float)
        trace = {
            "time_seconds": seconds.tolist(),
            "speed_meters_per_second": test.speed_mps.tolist(),
        }
        drive = fastsim.SimDrive(fastsim.Vehicle.from_dict(car), fastsim.Cycle.from_dict(trace))
        drive.walk()
        state = drive.to_dict()["veh"]["pt_type"]["BEV"]["res"]["state"]
        energies.append(state["energy_out_electrical_joules"] / 3600)
    return energies


def measure(folder: Path) -> dict[str, Any]:
    """Return errors of all models over all tests, in percent."""
    tests = read_tests(folder)
    chosen = nearest_class()
    vehicle = bench_vehicle(chosen)
    models = {FEDWATT: [physics_wh(vehicle, test.speed_mps) for test in tests]}
    try:
        fastsim_version = version("fastsim")
    except PackageNotFoundError:
        fastsim_version = "not installed"
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            for row, resource in FASTSIM_CARS.items():
                models[row] = fastsim_wh(resource, vehicle.auxiliary_w, tests)
    true_wh = np.array([test.energy_wh for test in tests])
    off = {row: 100 * (np.array(energies) / true_wh - 1) for row, energies in models.items()}
    drivable = np.all([np.isfinite(errors) for errors in off.values()], axis=0)
    constant = np.array([test.cycle.startswith("CS_") for test in tests])
    return {
        "data": "MOTIVES-LAB, one electric car on a chassis dynamometer",
        "tests": len(tests),
        "class": chosen,
        "fastsim": fastsim_version,
        "overall": {row: summary(errors[np.isfinite(errors)]) for row, errors in off.items()},
        "driving_cycles": {
            row: summary(errors[np.isfinite(errors) & ~constant]) for row, errors in off.items()
        },
        "tests_of_all_models": {row: summary(errors[drivable]) for row, errors in off.items()},
    }


def summary(errors_percent: FloatArray) -> dict[str, Any]:
    """Return the number of tests, the mean absolute and the mean error."""
    if not len(errors_percent):
        return {"tests": 0}
    return {
        "tests": len(errors_percent),
        "mean_absolute_percent": round(float(np.abs(errors_percent).mean()), 2),
        "mean_percent": round(float(errors_percent.mean()), 2),
    }


def block(record: Mapping[str, Any]) -> str:
    """Return the sentences of docs/data.md."""
    rows = list(record["overall"])
    overall = record["overall"][FEDWATT]
    cycles = record["driving_cycles"][FEDWATT]
    words = (
        f"Over the {record['tests']} tests the mean absolute error of a test's energy is "
        f"**{overall['mean_absolute_percent']:.1f} %** (mean error "
        f"{overall['mean_percent']:+.1f} %; {cycles['mean_absolute_percent']:.1f} % on the "
        f"{cycles['tests']} tests of driving cycles). "
    )
    if len(rows) == 1:
        words += "FASTSim: not installed."
    else:
        both = record["tests_of_all_models"]
        each = ", ".join(f"{row} {both[row]['mean_absolute_percent']:.1f} %" for row in rows)
        words += (
            f"On the {both[FEDWATT]['tests']} tests that begin at rest, beside FASTSim "
            f"{record['fastsim']} with the same road load, mass and auxiliaries: {each}."
        )
    return words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="folder with dynamometer.parquet")
    folder = parser.parse_args().folder
    if folder is not None:
        write_text(RECORD, json.dumps(measure(folder), indent=1) + "\n")
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    write_blocks(PAGE, {"dynamometer": block(record)})
    print(json.dumps(record["overall"], indent=1))


if __name__ == "__main__":
    main()
