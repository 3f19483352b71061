"""A vehicle's survey, made once before it learns elevation: its segments.

A segment is a few seconds of a training trip between two trusted positions. Its climb is a
difference of two bilinear readings, so it is linear in the elevations of at most eight nodes; its
energy and its physics features are sums. Nothing else of a trip is needed to learn the field.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedwatt.elevation.climb import measured_rise_m
from fedwatt.elevation.elevation_map import Field, find
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.positions import trusted_positions
from fedwatt.errors import DataError
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.trip import BoolArray, FloatArray, IntArray, Trip
from fedwatt.windows import DataSettings
from fedwatt.windows.client import split_of_trips
from fedwatt.windows.features import physics_features, trip_features

LEAST_METRES = 5.0
USUAL_MASS_KG = {"passenger": 1600.0, "truck": 12_000.0, "bus": 13_000.0}
GRAVITY = 9.81
J_PER_WH = 3600.0


@dataclass(frozen=True, eq=False)
class Survey:
    """Segments of a vehicle's trips.

    physics      float64 [segments, features]: sums of the physics features
    energy_wh    float64 [segments]
    keys         int64 [segments, 8]: corners of the end, then of the start
    weights      float64 [segments, 8]: positive for the end, negative for the start
    placed       bool [segments]: both ends are trusted and the wheels rolled in between
    wh_per_m     energy of a metre of climb, before any has been fitted: mass times gravity
    trip         int64 [segments]: number of the trip that each segment is of
    others       the same trips in segments of other lengths, by seconds
    validation   segments of the validation trips, by which a prior is evaluated; None: none is
                 chosen
    measured_m   float64 [segments]: climb by the vehicle's elevation channel, NaN where that is not
                 known; empty where it is not asked for
    """

    physics: FloatArray
    energy_wh: FloatArray
    keys: IntArray
    weights: FloatArray
    placed: BoolArray
    wh_per_m: float
    trip: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    others: "Mapping[int, Survey]" = field(default_factory=dict)
    validation: "Survey | None" = None
    measured_m: FloatArray = field(default_factory=lambda: np.zeros(0))

    def cut(self, segment_s: int) -> "Survey":
        """Return the survey in segments of this length: one of the others, or else itself."""
        return self.others.get(segment_s, self)


def survey(
    vehicle: Vehicle, grid: Grid, segment_s: int, data: DataSettings, split: str = "train"
) -> Survey:
    """Segments of the vehicle's trips of a split, `segment_s` long, one after the other."""
    return surveys(vehicle, grid, (segment_s,), data, split)[segment_s]


def surveys(
    vehicle: Vehicle,
    grid: Grid,
    lengths: Sequence[int],
    data: DataSettings,
    split: str,
    *,
    measured: bool = False,
) -> dict[int, Survey]:
    """Return the trips of a split in segments of each of `lengths`, on request with measured
    climbs.
    """
    split_of = split_of_trips(vehicle, data)
    names = physics_features([trip for trip in vehicle.trips if trip.name in split_of])
    chosen = [trip for trip in vehicle.trips if split_of.get(trip.name) == split]
    pieces: dict[int, list[tuple[NDArray[Any], ...]]] = {length: [] for length in lengths}
    for number, trip in enumerate(chosen):
        if "energy_wh" not in trip.channels:
            raise DataError(
                f"Vehicle '{vehicle.name}', trip '{trip.name}' has no energy, from which hills are "
                "learned. Leave 'elevation' out of the features, or read climb off elevation_m: "
                "elevation.source = measured."
            )
        sums = np.cumsum(trip_features(trip, names, vehicle.name), axis=0)
        energy = np.cumsum(trip.channels["energy_wh"])
        track = TripTrack.of(trip, grid)
        rise = measured_rise_m(trip)
        climbed = np.cumsum(np.nan_to_num(rise))
        unknown = np.cumsum(~np.isfinite(rise))
        for length, own in pieces.items():
            # Energy of second t belongs to the way from t-1 to t, so a segment is (start, end].
            start = np.arange(0, trip.seconds - length, length)
            end = start + length
            over = (values[end] - values[start] for values in (sums, energy))
            known = unknown[end] == unknown[start]
            climb = np.where(known, climbed[end] - climbed[start], np.nan)
            own.append((*over, *track.segments(start, end), np.full(len(start), number), climb))
    found = {}
    for length, own in pieces.items():
        parts = map(np.concatenate, zip(*own, strict=True))
        physics, energy_wh, keys, weights, placed, trips, climb = parts
        one = Survey(physics, energy_wh, keys, weights, placed, usual_wh_per_m(vehicle), trips)
        known = measured and np.isfinite(climb).any()
        found[length] = replace(one, measured_m=climb) if known else one
    return found


def whole_survey(
    vehicle: Vehicle,
    grid: Grid,
    lengths: Sequence[int],
    data: DataSettings,
    *,
    measured: bool = False,
) -> Survey:
    """Training trips, with all that choosing a prior, and among fields, needs besides."""
    training = surveys(vehicle, grid, lengths, data, "train", measured=measured)
    evaluated = surveys(vehicle, grid, lengths[:1], data, "validation", measured=measured)
    first = training.pop(lengths[0])
    return replace(first, others=training, validation=evaluated[lengths[0]])


def usual_wh_per_m(vehicle: Vehicle) -> float:
    """Energy of a metre of climb: mass times gravity."""
    return mass_kg(vehicle) * GRAVITY / J_PER_WH


def mass_kg(vehicle: Vehicle) -> float:
    """Return the vehicle's mass, or that of vehicles of its kind."""
    return float(vehicle.facts.get("mass_kg") or USUAL_MASS_KG[vehicle.kind])


class TripTrack(NamedTuple):
    """Positions of a trip, second by second: corners and weights [seconds, 4], trust, metres."""

    corners: IntArray
    weights: FloatArray
    trusted: BoolArray
    rolled_m: FloatArray

    @classmethod
    def of(cls, trip: Trip, grid: Grid) -> "TripTrack":
        """Return the track of a trip on a grid."""
        latitude_deg, longitude_deg, trusted = trusted_positions(trip)
        rolled_m = np.cumsum(np.nan_to_num(trip.channels["speed_mps"]))
        return cls(*grid.corners(latitude_deg, longitude_deg), trusted, rolled_m)

    def segments(self, start: IntArray, end: IntArray) -> tuple[IntArray, FloatArray, BoolArray]:
        """Keys, weights and `placed` of segments between seconds, all [segments, ...]."""
        sure = np.cumsum(self.trusted)
        whole = self.trusted[start] & (sure[end] - sure[start] == end - start)
        return (
            np.hstack([self.corners[end], self.corners[start]]),
            np.hstack([self.weights[end], -self.weights[start]]),
            whole & (self.rolled_m[end] - self.rolled_m[start] > LEAST_METRES),
        )


def climb_m(survey: Survey, field: Field) -> FloatArray:
    """Metres each segment climbs in a field, [segments]; 0 where it is not known."""
    return known_climb_m(survey, field)[0]


def known_climb_m(survey: Survey, field: Field) -> tuple[FloatArray, BoolArray]:
    """Metres each segment climbs in a field, 0 where it is not known, and where it is: [segments].

    Regions have no common zero, so a segment from one into another climbs nothing that is known.
    """
    if not field.nodes:
        return np.zeros(len(survey.energy_wh)), np.zeros(len(survey.energy_wh), dtype=bool)
    index, known = find(field.keys, survey.keys)
    needed = survey.weights != 0
    climbs = np.where(needed, survey.weights * field.elevation_m[index], 0.0).sum(axis=1)
    region = field.region[index]
    # Any needed corner stands for the others: they must all be in its region.
    one = np.take_along_axis(region, needed.argmax(axis=1)[:, None], axis=1)
    sure = ((known & (region == one)) | ~needed).all(axis=1) & survey.placed
    return np.where(sure, climbs, 0.0), sure
