"""What a vehicle works out, once and on board, before it learns hills: its segments.

A segment is a few seconds of a training trip between two trusted positions. Its climb is a
difference of two bilinear readings, so it is linear in the elevations of at most eight nodes; its
energy and its physics features are sums. Nothing else of a trip is needed to learn the field.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedwatt.data import DataSettings, Vehicle
from fedwatt.data.client import split_of_trips
from fedwatt.data.features import FEATURE_SETS, FEATURES, trip_features
from fedwatt.data.trip import FloatArray, Trip
from fedwatt.errors import DataError
from fedwatt.terrain.field import Field, find
from fedwatt.terrain.grid import Grid, IntArray
from fedwatt.terrain.positions import trusted_positions

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
    """

    physics: FloatArray
    energy_wh: FloatArray
    keys: IntArray
    weights: FloatArray
    placed: NDArray[np.bool_]
    wh_per_m: float


def survey(
    vehicle: Vehicle, grid: Grid, segment_s: int, data: DataSettings, split: str = "train"
) -> Survey:
    """Segments of the vehicle's trips of a split, `segment_s` long, one after the other."""
    split_of = split_of_trips(vehicle, data)
    names = physics_features([trip for trip in vehicle.trips if trip.name in split_of])
    chosen = [trip for trip in vehicle.trips if split_of.get(trip.name) == split]
    pieces = [_trip_segments(trip, grid, segment_s, names, vehicle.name) for trip in chosen]
    physics, energy_wh, keys, weights, placed = map(np.concatenate, zip(*pieces, strict=True))
    return Survey(physics, energy_wh, keys, weights, placed, usual_wh_per_m(vehicle))


def usual_wh_per_m(vehicle: Vehicle) -> float:
    """Energy of a metre of climb by the vehicle's mass, or by that of vehicles of its kind."""
    mass_kg = float(vehicle.facts.get("mass_kg") or USUAL_MASS_KG[vehicle.kind])
    return mass_kg * GRAVITY / J_PER_WH


def physics_features(trips: list[Trip]) -> tuple[str, ...]:
    """The physics features that all of these trips have the channels for."""
    return tuple(
        name
        for name in FEATURE_SETS["physics"]
        if all(set(FEATURES[name].needs) <= set(trip.channels) for trip in trips)
    )


def _trip_segments(
    trip: Trip, grid: Grid, segment_s: int, names: tuple[str, ...], vehicle: str
) -> tuple[FloatArray, FloatArray, IntArray, FloatArray, NDArray[np.bool_]]:
    """The parts of a survey from one trip."""
    # Energy of second t belongs to the way from t-1 to t, so a segment is (start, end].
    start = np.arange(0, trip.seconds - segment_s, segment_s)
    end = start + segment_s

    def over(values: FloatArray) -> FloatArray:
        total = np.cumsum(values, axis=0)
        sums: FloatArray = total[end] - total[start]
        return sums

    if "energy_wh" not in trip.channels:
        raise DataError(
            f"Vehicle '{vehicle}', trip '{trip.name}' has no energy, from which hills are learned. "
            "Leave 'terrain' out of the features, or read climb off elevation_m: "
            "terrain.source = measured."
        )
    physics, energy_wh = over(trip_features(trip, names, vehicle)), over(trip.channels["energy_wh"])
    return physics, energy_wh, *segments_between(trip, grid, start, end)


def segments_between(
    trip: Trip, grid: Grid, start: IntArray, end: IntArray
) -> tuple[IntArray, FloatArray, NDArray[np.bool_]]:
    """Keys, weights and `placed` of a trip's segments between seconds, all [segments, ...]."""
    latitude_deg, longitude_deg, trusted = trusted_positions(trip)
    corners, weights = grid.corners(latitude_deg, longitude_deg)
    rolled_m, sure = np.cumsum(np.nan_to_num(trip.channels["speed_mps"])), np.cumsum(trusted)
    whole = trusted[start] & (sure[end] - sure[start] == end - start)
    return (
        np.hstack([corners[end], corners[start]]),
        np.hstack([weights[end], -weights[start]]),
        whole & (rolled_m[end] - rolled_m[start] > LEAST_METRES),
    )


def climb_m(survey: Survey, field: Field) -> FloatArray:
    """Metres each segment climbs in a field, [segments]; 0 where it is not known.

    Regions have no common zero, so a segment from one into another climbs nothing that is known.
    """
    if not field.nodes:
        return np.zeros(len(survey.energy_wh))
    index, known = find(field.keys, survey.keys)
    needed = survey.weights != 0
    climbs = np.where(needed, survey.weights * field.elevation_m[index], 0.0).sum(axis=1)
    region = field.region[index]
    # Any needed corner stands for the others: they must all be in its region.
    one = np.take_along_axis(region, needed.argmax(axis=1)[:, None], axis=1)
    sure = ((known & (region == one)) | ~needed).all(axis=1) & survey.placed
    return np.where(sure, climbs, 0.0)
