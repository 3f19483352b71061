"""A learned field held against real elevation: a DEM, eVED's, or any channel `elevation_m`.

Elevations are compared where the vehicles drive, second by second, each region about its own mean
(the field knows no other zero); climbs over stretches of a minute, which is what a model is given.
Only measured heights count, wherever they are from; energy is not looked at.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedwatt.data import Vehicle
from fedwatt.data.trip import FloatArray
from fedwatt.errors import DataError
from fedwatt.terrain.climb import STANDING_MPS
from fedwatt.terrain.field import Field
from fedwatt.terrain.grid import IntArray
from fedwatt.terrain.positions import trusted_positions

MINUTE_S = 60


@dataclass(frozen=True)
class Comparison:
    """How a field agrees with measured elevation.

    seconds             driven seconds with a trusted position and a measured elevation
    known               share of them that the field knows
    correlation         of elevations about their regions' means
    scale               metres of the field for a metre measured; 1 is right, less is too flat
    difference_m        root mean square of what differs, about regions' means
    minutes             stretches of a minute that the field knows from end to end
    climb_correlation   of their climbs
    climb_difference_m  root mean square of what their climbs differ by
    climb_m             root mean square of the measured climbs: what a level road would miss
    """

    seconds: int
    known: float
    correlation: float
    scale: float
    difference_m: float
    minutes: int
    climb_correlation: float
    climb_difference_m: float
    climb_m: float


def compare(field: Field, vehicles: Iterable[Vehicle]) -> Comparison:
    """Hold a field against the channel `elevation_m` of the vehicles' trips."""
    learned, measured, region, climbs = [], [], [], []
    seconds = 0
    for vehicle in vehicles:
        for trip in vehicle.trips:
            if "elevation_m" not in trip.channels:
                continue
            latitude_deg, longitude_deg, trusted = trusted_positions(trip)
            height, place = field.read(latitude_deg, longitude_deg)
            true = trip.channels["elevation_m"]
            usable = trusted & np.isfinite(true) & (trip.channels["speed_mps"] >= STANDING_MPS)
            known = usable & np.isfinite(height)
            seconds += int(usable.sum())
            learned.append(height[known])
            measured.append(true[known])
            region.append(place[known])
            climbs.append(_climbs(height, true, place, trusted))
    if not seconds:
        raise DataError(
            "No trip has both positions and measured elevation, so there is nothing to compare. "
            "Import the fleet with a terrain model (--dem), or recordings with elevation."
        )
    one, other = np.concatenate(learned), np.concatenate(measured)
    regions: IntArray = np.concatenate(region)
    ours, theirs = np.concatenate(climbs, axis=1)
    if len(one) < 2 or len(ours) < 2:
        raise DataError(
            "The field knows no ground that the vehicles drive. Is it a field of this fleet?"
        )
    one, other = about_means(one, regions), about_means(other, regions)
    return Comparison(
        seconds=seconds,
        known=len(one) / seconds,
        correlation=float(np.corrcoef(one, other)[0, 1]),
        scale=float(one @ other / (other @ other)),
        difference_m=rms(one - other),
        minutes=len(ours),
        climb_correlation=float(np.corrcoef(ours, theirs)[0, 1]),
        climb_difference_m=rms(ours - theirs),
        climb_m=rms(theirs),
    )


def _climbs(
    height: FloatArray, true: FloatArray, region: IntArray, trusted: np.ndarray
) -> FloatArray:
    """Metres gained in each minute of a trip by the field and as measured, [2, minutes]."""
    ends = np.arange(MINUTE_S, len(height), MINUTE_S)
    starts = ends - MINUTE_S
    sure = trusted & np.isfinite(height) & np.isfinite(true)
    kept = sure[ends] & sure[starts] & (region[ends] == region[starts])
    gained = np.stack([height[ends] - height[starts], true[ends] - true[starts]])
    found: FloatArray = gained[:, kept]
    return found


def about_means(values: FloatArray, region: IntArray) -> FloatArray:
    """Values less the mean of their region."""
    _, number = np.unique(region, return_inverse=True)
    means = np.bincount(number, values) / np.bincount(number)
    centred: FloatArray = values - means[number]
    return centred


def rms(values: FloatArray) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(values**2)))
