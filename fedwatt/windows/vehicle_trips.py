"""Trips of a vehicle that make windows: which are usable, their splits, and their time offset.

A vehicle of a fleet has training, validation and test trips. One that is unseen by a run has any
number of trips and none for test; of few trips, all train.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedwatt.errors import DataError
from fedwatt.telemetry.trip import Trip, Vehicle
from fedwatt.windows.scaling import FleetScaling
from fedwatt.windows.splits import SPLITS, split_trips
from fedwatt.windows.time_offset import aligned, vehicle_lag_s

if TYPE_CHECKING:
    from fedwatt.windows.client import DataSettings

UNSEEN_SPLIT = (0.75, 0.2, 0.05)
"""Shares of an unseen vehicle's trips; those for test validate, too."""
CHARGE_WINDOWS_S = (300, 240, 180, 120)
"""Windows for a state of charge, best first."""


def usable_trips(vehicle: Vehicle, settings: "DataSettings") -> list[Trip]:
    """Return the trips that are long enough for a window and its label."""
    least = settings.window + settings.predicts.ahead(settings.window)
    return [trip for trip in vehicle.trips if trip.seconds >= least]


def split_of_trips(vehicle: Vehicle, settings: "DataSettings") -> dict[str, str]:
    """Return the split of every trip by its name, without trips that hold no window."""
    usable = usable_trips(vehicle, settings)
    recordings = {trip.name: trip.recording for trip in usable}
    long_enough = len(set(recordings.values()))
    if long_enough < len(SPLITS):
        recorded = len({trip.recording for trip in vehicle.trips})
        least = settings.window + settings.predicts.ahead(settings.window)
        raise DataError(
            f"Vehicle '{vehicle.name}' has {recorded} trips, {long_enough} of them at least "
            f"{least} s long; training, validation and test need one each (the parts of "
            "a trip that was cut at gaps count as one). Give it more or longer trips, choose a "
            "shorter window, or leave the vehicle out."
        )
    trips = split_trips(vehicle.name, recordings, settings.split, settings.split_seed)
    return {trip: split for split in SPLITS for trip in trips[split]}


def recordings(vehicle: Vehicle, settings: "DataSettings") -> int:
    """Return the number of recorded trips that hold a window."""
    return len({trip.recording for trip in usable_trips(vehicle, settings)})


def split_of_unseen(vehicle: Vehicle, settings: "DataSettings") -> dict[str, str]:
    """Return the split of every trip of an unseen vehicle; few trips all train.

    The training trips are those of `split_of_trips` with the shares `UNSEEN_SPLIT`.
    """
    if recordings(vehicle, settings) < len(SPLITS):
        return {trip.name: "train" for trip in usable_trips(vehicle, settings)}
    split_of = split_of_trips(vehicle, replace(settings, split=UNSEEN_SPLIT))
    return {trip: "validation" if part == "test" else part for trip, part in split_of.items()}


def prepared(
    vehicle: Vehicle, settings: "DataSettings", unseen: FleetScaling | None = None
) -> Vehicle:
    """Return the vehicle with its motion delayed by its own time offset, if `align` is set.

    A vehicle with a time offset among its facts was delayed before, as for learning elevation. An
    `unseen` vehicle with too few trips has the fleet's offset.
    """
    if not settings.align or "lag_s" in vehicle.facts:
        return vehicle
    if unseen is None:
        return aligned(vehicle, vehicle_lag_s(vehicle, split_of_trips(vehicle, settings)))
    if recordings(vehicle, settings) < len(SPLITS):
        return aligned(vehicle, unseen.lag_s)
    return aligned(vehicle, vehicle_lag_s(vehicle, split_of_unseen(vehicle, settings)))


def recorded_target(vehicles: Sequence[Vehicle]) -> dict[str, Any]:
    """Return the settings of the target that the vehicles' trips allow; {} for energy.

    Of a state of charge, energy where every vehicle's capacity is known, else points. It moves in
    steps, so the window is the longest up to 300 s of which every vehicle has enough trips.
    """
    if any("energy_wh" in trip.channels for vehicle in vehicles for trip in vehicle.trips):
        return {}
    window = CHARGE_WINDOWS_S[-1]
    for seconds in CHARGE_WINDOWS_S:
        long = ({t.recording for t in v.trips if t.seconds >= seconds} for v in vehicles)
        if all(len(recorded) >= len(SPLITS) for recorded in long):
            window = seconds
            break
    in_wh = all("pack_capacity_wh" in vehicle.facts for vehicle in vehicles)
    return {"target": "energy-from-soc" if in_wh else "soc", "window": window}
