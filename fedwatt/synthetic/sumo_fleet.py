"""Vehicles driven by Eclipse SUMO, with weather and cabin climate added."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fedwatt.randomness import generator
from fedwatt.synthetic.cabin import climate_power_w
from fedwatt.synthetic.classes import draw_vehicle
from fedwatt.synthetic.climate import daily_mean_c, trip_days, trip_temperature_c
from fedwatt.synthetic.sumo import SumoTown, drive_in_sumo
from fedwatt.synthetic.town import degrees
from fedwatt.telemetry.readers.sumo_output import import_sumo
from fedwatt.telemetry.trip import Vehicle


def sumo_vehicles(town: SumoTown) -> Iterator[Vehicle]:
    """Drive the town in SUMO and give its electric vehicles, one at a time.

    SUMO knows no weather: heater and air conditioning follow from the town's climate and are added
    to the energy that SUMO's battery device counted.
    """
    with TemporaryDirectory(prefix="fedwatt-sumo-") as folder:
        fcd, battery = drive_in_sumo(town, Path(folder))
        for vehicle in import_sumo(fcd, battery, position=degrees):
            yield _with_climate(vehicle, town)


def _with_climate(vehicle: Vehicle, town: SumoTown) -> Vehicle:
    model, parameters = draw_vehicle(town.kind, generator(town.seed, "vehicle", vehicle.name))
    times = trip_days(vehicle.name, town.seed, len(vehicle.trips))
    outside_c = trip_temperature_c(daily_mean_c(town.seed), *times)
    trips = []
    for trip, ambient in zip(vehicle.trips, outside_c, strict=True):
        ambient_c = np.full(trip.seconds, ambient)
        clock_s = np.arange(trip.seconds, dtype=float)
        heater_w, ac_w = climate_power_w(parameters, ambient_c, clock_s)
        channels = {
            **trip.channels,
            "ambient_c": ambient_c,
            "heater_w": heater_w,
            "ac_w": ac_w,
            "energy_wh": trip.channels["energy_wh"] + (heater_w + ac_w) / 3600,
        }
        trips.append(replace(trip, channels=channels))
    facts = {
        "source": f"SUMO, seed {town.seed}",
        "model": model,
        "powertrain": "ev",
        "mass_kg": round(parameters.mass_kg, 1),
        "pack_capacity_wh": round(parameters.pack.capacity_wh, 1),
    }
    return Vehicle(vehicle.name, tuple(trips), town.kind, "simulated", facts)
