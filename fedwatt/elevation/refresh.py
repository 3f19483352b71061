"""Learn the field anew in the midst of training, from what the network cannot explain.

A window's climb is a difference of two readings, as a segment's is, so what the network leaves of
a training window's energy corrects the field in the same sums over nodes:

    energy - prediction + slope · climb given  =  slope · climb(better field) + noise

with the slope that mass and gravity fix, and the climb that the vehicle's network was given: what
its own field says, which is not the shared one where it has private ground or gave the field up.
Sums of earlier exchanges stay in and fade: they know about vehicles that are not there now, and a
vehicle that joins late only adds to them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from fedwatt.elevation.choose import solved
from fedwatt.elevation.climb import own_rise_m
from fedwatt.elevation.elevation_map import Field, find
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.learn import Learned, own_fields, publishable, survey_fleet, vehicle_sums
from fedwatt.elevation.power import Residual, without_outliers
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.statistics import Contribution, add, contribution, touched_nodes
from fedwatt.elevation.survey import Survey, TripTrack, usual_wh_per_m
from fedwatt.errors import DataError
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.trip import FloatArray, IntArray, Trip
from fedwatt.windows import DataSettings
from fedwatt.windows.client import split_of_trips
from fedwatt.windows.splits import window_ends, window_energy, window_sums


def refreshed(
    vehicles: Callable[[], Iterable[Vehicle]],
    learned: Learned,
    predicted_wh: Mapping[str, FloatArray],
    settings: ElevationSettings,
    data: DataSettings,
) -> Learned:
    """Return the fields after one more exchange, with the vehicles whose predictions are given.

    `predicted_wh` is by vehicle the current network's energy of its training windows, in their
    order. A vehicle that never contributed before also brings the sums it would have begun with.
    """
    grid = learned.shared.grid
    ever = learned.contributors | frozenset(predicted_wh)
    prior = learned.shared.prior
    _, surveys = survey_fleet(vehicles(), ever, grid, settings, data)
    cut = {name: one.cut(prior.segment_s) for name, one in surveys.items()}
    published = publishable(list(cut.values()), settings.minimum_vehicles)
    sums = [learned.sums]
    for vehicle in vehicles():
        name = vehicle.name
        if name not in predicted_wh:
            continue
        windows = window_survey(vehicle, grid, data)
        given_m = given_climb_m(vehicle, learned.own[name], data)
        own = network_residual(windows, predicted_wh[name], given_m, data)
        sums.append(contribution(windows, own, within=published))
        if name not in learned.contributors:
            sums.append(vehicle_sums(cut[name], learned.shared, published))
    total = add(sums, settings.forget)
    # A vehicle that contributes again is still one vehicle.
    touched = [touched_nodes(one, published) for one in cut.values()]
    at, known = find(total.keys, np.concatenate([published[:0], *touched]))
    total = replace(total, vehicles=np.bincount(at[known], minlength=len(total.keys)))
    shared = solved(grid, total, prior)
    own_of = own_fields(list(learned.own), surveys, shared, settings)
    return Learned(shared, own_of, total, ever)


def solved_again(
    vehicles: Iterable[Vehicle],
    learned: Learned,
    sums: Contribution,
    contributors: frozenset[str],
    settings: ElevationSettings,
    data: DataSettings,
) -> Learned:
    """Return the fields of an earlier refresh, from its sums and who contributed to them.

    The sums are solved again and private ground is learned again. `learned` is what the run began
    with: its grid and vehicles are the same.
    """
    grid = learned.shared.grid
    shared = solved(grid, sums, learned.shared.prior)
    _, surveys = survey_fleet(vehicles, contributors, grid, settings, data)
    own = own_fields(list(learned.own), surveys, shared, settings)
    return Learned(shared, own, sums, contributors)


def window_survey(vehicle: Vehicle, grid: Grid, data: DataSettings) -> Survey:
    """Return the vehicle's training windows as segments, in the order of its windows."""
    pieces = []
    for trip, end in _training_windows(vehicle, data):
        # A window's first second was driven from the second before it; the first window has none.
        start = np.maximum(end - data.window, 0)
        keys, weights, placed = TripTrack.of(trip, grid).segments(start, end)
        energy_wh = window_energy(trip.channels["energy_wh"], end, length=data.window)
        pieces.append((energy_wh, keys, weights, placed & (end >= data.window)))
    energy_wh, keys, weights, placed = map(np.concatenate, zip(*pieces, strict=True))
    nothing = np.zeros((len(energy_wh), 0))
    return Survey(nothing, energy_wh, keys, weights, placed, usual_wh_per_m(vehicle))


def given_climb_m(vehicle: Vehicle, field: Field, data: DataSettings) -> FloatArray:
    """Metres gained in each training window as the vehicle's network is given them, [windows]."""
    return np.concatenate(
        [
            window_sums(np.nan_to_num(own_rise_m(trip, field)), end, length=data.window)
            for trip, end in _training_windows(vehicle, data)
        ]
    )


def _training_windows(vehicle: Vehicle, data: DataSettings) -> Iterator[tuple[Trip, IntArray]]:
    """Yield the training trips, each with the last seconds of its windows."""
    split_of = split_of_trips(vehicle, data)
    for trip in vehicle.trips:
        if split_of.get(trip.name) == "train":
            yield trip, window_ends(trip.seconds, length=data.window, stride=data.stride)


def network_residual(
    windows: Survey, predicted_wh: FloatArray, given_m: FloatArray, data: DataSettings
) -> Residual:
    """Return the network's residual of each window, on top of the climb `given_m`."""
    if len(predicted_wh) != len(windows.energy_wh):
        raise DataError(
            f"{len(predicted_wh)} predictions are for {len(windows.energy_wh)} windows. "
            "Predict the training windows that the fleet was built with."
        )
    slope = np.full(len(given_m), windows.wh_per_m)
    error, noise_wh = without_outliers(windows.energy_wh - predicted_wh, windows)
    # Windows that overlap say the same thing several times.
    overlap = max(data.window / data.stride, 1.0)
    return Residual(error + slope * given_m, slope, noise_wh * float(np.sqrt(overlap)))
