"""A vehicle's segments, and its own power model of them.

A segment is a few seconds of a training trip between two trusted positions. Its climb is a
difference of two bilinear readings, so it is linear in the elevations of at most eight nodes; its
energy and its physics features are sums. Nothing else of a trip is needed to learn elevation.

The power model is a ridge regression, fitted and kept in the vehicle:

    energy of a segment = physics · β + up · climb - down · descent + noise

Its residual is due to elevation (and to the wind and the driver). Before a map is learned `up` and
`down` are both mass times gravity; with a map they are fitted like everything else, because a pack
gives more for a metre up than it gets back for a metre down.

A receiver, a barometer or a terrain model measures the climb M of a segment with an error m;
energy gives E, the climb that would explain the residual, with an error e:

    E = c + e,  M = c + m      so that      var(m) = var(M) - cov(E, M)

for independent errors. So a vehicle weights both by their precision, from its own training trips.
Without positions it uploads nothing, and still reads its own elevation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedwatt.elevation.climb import measured_rise_m, trusted_positions
from fedwatt.elevation.elevation_map import ElevationMap
from fedwatt.elevation.grid import Grid, find
from fedwatt.errors import DataError
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.trip import BoolArray, FloatArray, IntArray, Trip
from fedwatt.windows import DataSettings
from fedwatt.windows.client import split_of_trips
from fedwatt.windows.features import physics_features, trip_features
from fedwatt.windows.scaling import ridge

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
    by_length    the same trips in segments of other lengths, by seconds
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
    by_length: "Mapping[int, Survey]" = field(default_factory=dict)
    validation: "Survey | None" = None
    measured_m: FloatArray = field(default_factory=lambda: np.zeros(0))

    def cut(self, segment_s: int) -> "Survey":
        """Return the survey in segments of this length, or itself."""
        return self.by_length.get(segment_s, self)


def surveys(
    vehicle: Vehicle,
    grid: Grid,
    lengths: Sequence[int],
    split_of: Mapping[str, str],
    split: str,
    *,
    measured: bool = False,
) -> dict[int, Survey]:
    """Return the trips of a split in segments of each of `lengths`, with `measured` climbs."""
    names = physics_features([trip for trip in vehicle.trips if trip.name in split_of])
    chosen = [trip for trip in vehicle.trips if split_of.get(trip.name) == split]
    pieces: dict[int, list[tuple[NDArray[Any], ...]]] = {length: [] for length in lengths}
    for number, trip in enumerate(chosen):
        if "energy_wh" not in trip.channels:
            raise DataError(
                f"Vehicle '{vehicle.name}', trip '{trip.name}' has no energy, from which elevation "
                "is learned. Leave 'elevation' out of the features, or read climb off elevation_m: "
                "elevation.source = measured."
            )
        sums = np.cumsum(trip_features(trip, names, vehicle.name), axis=0)
        energy = np.cumsum(trip.channels["energy_wh"])
        track = TripTrack.of(trip, grid)
        rise = measured_rise_m(trip)
        climbed = np.cumsum(np.nan_to_num(rise))
        unknown = np.cumsum(~np.isfinite(rise))
        for length, parts in pieces.items():
            # Energy of second t belongs to the way from t-1 to t, so a segment is (start, end].
            start = np.arange(0, trip.seconds - length, length)
            end = start + length
            over = (values[end] - values[start] for values in (sums, energy))
            measured_throughout = unknown[end] == unknown[start]
            climb = np.where(measured_throughout, climbed[end] - climbed[start], np.nan)
            parts.append((*over, *track.segments(start, end), np.full(len(start), number), climb))
    by_length = {}
    for length, parts in pieces.items():
        arrays = map(np.concatenate, zip(*parts, strict=True))
        physics, energy_wh, keys, weights, placed, trips, climb = arrays
        wh_per_m = mass_kg(vehicle) * GRAVITY / J_PER_WH
        survey = Survey(physics, energy_wh, keys, weights, placed, wh_per_m, trips)
        is_measured = measured and np.isfinite(climb).any()
        by_length[length] = replace(survey, measured_m=climb) if is_measured else survey
    return by_length


def whole_survey(
    vehicle: Vehicle,
    grid: Grid,
    lengths: Sequence[int],
    data: DataSettings,
    *,
    measured: bool = False,
) -> Survey:
    """Return the training trips in segments of all lengths, with the validation trips."""
    split_of = split_of_trips(vehicle, data)
    training = surveys(vehicle, grid, lengths, split_of, "train", measured=measured)
    evaluated = surveys(vehicle, grid, lengths[:1], split_of, "validation", measured=measured)
    first = training.pop(lengths[0])
    return replace(first, by_length=training, validation=evaluated[lengths[0]])


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
        """Return keys, weights and `placed` of segments between seconds, all [segments, ...]."""
        sure = np.cumsum(self.trusted)
        unbroken = self.trusted[start] & (sure[end] - sure[start] == end - start)
        return (
            np.hstack([self.corners[end], self.corners[start]]),
            np.hstack([self.weights[end], -self.weights[start]]),
            unbroken & (self.rolled_m[end] - self.rolled_m[start] > LEAST_METRES),
        )


def climb_m(survey: Survey, elevation_map: ElevationMap) -> FloatArray:
    """Return the metres that each segment climbs in a map, [segments]; 0 where unknown."""
    return known_climb_m(survey, elevation_map)[0]


def known_climb_m(survey: Survey, elevation_map: ElevationMap) -> tuple[FloatArray, BoolArray]:
    """Return the climb of each segment in a map, 0 where unknown, and a mask of known ones,
    [segments].

    Regions have no common zero, so a segment from one into another climbs nothing that is known.
    """
    if not elevation_map.nodes:
        return np.zeros(len(survey.energy_wh)), np.zeros(len(survey.energy_wh), dtype=bool)
    index, is_node = find(elevation_map.keys, survey.keys)
    needed = survey.weights != 0
    climbs = np.where(needed, survey.weights * elevation_map.elevation_m[index], 0.0).sum(axis=1)
    region = elevation_map.region[index]
    # All needed corners must be in the region of the first of them.
    expected = np.take_along_axis(region, needed.argmax(axis=1)[:, None], axis=1)
    sure = ((is_node & (region == expected)) | ~needed).all(axis=1) & survey.placed
    return np.where(sure, climbs, 0.0), sure


LEAST_CLIMBING = 30
LEAST_SLOPE = 0.25  # a metre of climb is worth at least a quarter of mass times gravity
OUTLIER = 3.0
CLEAR_GAIN = 1.02
"""By how much something simpler, or less well known, must be better on few validation trips."""


@dataclass(frozen=True, eq=False)
class Residual:
    """Residual energy per segment [segments], with its noise and the energy per metre of climb.

    residual_wh   energy not explained by physics: slope_wh_per_m times climb, and noise
    noise_wh      standard deviation of that noise, robustly
    """

    residual_wh: FloatArray
    slope_wh_per_m: FloatArray
    noise_wh: float


def residual(survey: Survey, climb_m: FloatArray | None = None) -> Residual:
    """Return the residual of the vehicle's power model, without a map or on top of each segment's
    climb.
    """
    physics = survey.physics
    usual = survey.wh_per_m
    slope = np.full(len(physics), usual)
    climbing_wh = np.zeros(len(physics))
    if climb_m is not None and (np.abs(climb_m) > 1).sum() >= LEAST_CLIMBING:
        ways = _up_and_down(climb_m)
        beta = ridge(np.hstack([physics, ways]), survey.energy_wh)
        climbing_wh = ways @ beta[-3:-1]
        explained = physics @ beta[:-3] + beta[-1] + climbing_wh
        # Smooth from one slope to the other over a metre: a kink at 0 makes refreshes flip signs.
        up, down = slopes(float(beta[-3]), float(beta[-2]), usual)
        slope = down + (up - down) * np.clip(climb_m + 0.5, 0, 1)
    else:
        beta = ridge(physics, survey.energy_wh)
        explained = physics @ beta[:-1] + beta[-1]
    error, noise_wh = without_outliers(survey.energy_wh - explained, survey)
    return Residual(error + climbing_wh, slope, noise_wh)


def without_outliers(error_wh: FloatArray, survey: Survey) -> tuple[FloatArray, float]:
    """Return the errors within 3 robust standard deviations, and that standard deviation."""
    middle = np.median(np.abs(error_wh[survey.placed])) if survey.placed.any() else 1.0
    noise_wh = max(1.4826 * float(middle), 1e-3 * survey.wh_per_m)
    # A door left open or a wrong fix must not make a mountain.
    return np.clip(error_wh, -OUTLIER * noise_wh, OUTLIER * noise_wh), noise_wh


def _up_and_down(climb_m: FloatArray) -> FloatArray:
    return np.column_stack([np.maximum(climb_m, 0), np.minimum(climb_m, 0)])


def map_errors_wh(
    training: Survey, elevation_map: ElevationMap, *, at_face_value: bool = False
) -> FloatArray:
    """Return `validation_errors_wh` [segments] with climbs read from a map."""
    assert training.validation is not None
    climbs_m = [climb_m(each, elevation_map) for each in (training, training.validation)]
    return validation_errors_wh(training, climbs_m, at_face_value=at_face_value)


def validation_errors_wh(
    training: Survey, climbs_m: Sequence[FloatArray], *, at_face_value: bool = False
) -> FloatArray:
    """Return the errors [segments] on validation trips of the power model fitted on training
    segments.

    `climbs_m` are those of training and of validation segments. What a metre of climb is worth is
    fitted, too; `at_face_value` it is what mass and gravity allow (`slopes`), as it is to a network
    that other vehicles trained.
    """
    validation = training.validation
    assert validation is not None
    up_and_down, evaluated = map(_up_and_down, climbs_m)
    beta = ridge(np.hstack([training.physics, up_and_down]), training.energy_wh)
    if at_face_value:
        worth = np.array(slopes(float(beta[-3]), float(beta[-2]), training.wh_per_m))
        level = ridge(training.physics, training.energy_wh - up_and_down @ worth)
        beta = np.concatenate([level[:-1], worth, level[-1:]])
    features = np.hstack([validation.physics, evaluated])
    errors: FloatArray = features @ beta[:-1] + beta[-1] - validation.energy_wh
    return errors


def rms(values: FloatArray) -> float:
    """Return the root mean square."""
    return float(np.sqrt(np.mean(values**2)))


def slopes(up: float, down: float, usual: float) -> tuple[float, float]:
    """Return Wh per metre up and per metre down; mass and gravity fix their mean.

    A map half as high with slopes twice as steep explains energy just as well; losses up and down
    being about equal, their mean is what settles how steep the map is.

    >>> slopes(3.0, 1.0, usual=4.0)
    (6.0, 2.0)
    """
    least = LEAST_SLOPE * usual
    up, down = max(up, least), max(down, least)
    scale = 2 * usual / (up + down)
    return float(up * scale), float(down * scale)


LEAST_ERROR_M = 0.3
"""Of a measured climb over a segment: channels are rounded, to whole metres often."""
LEAST_SEGMENTS = 30


def segment_residual(survey: Survey, elevation_map: ElevationMap) -> Residual:
    """Return residuals given a map and the climb that the vehicle measured."""
    residuals = residual(survey, climb_m(survey, elevation_map))
    if not len(survey.measured_m):
        return residuals
    is_measured = np.isfinite(survey.measured_m)
    error_m = measured_error_m(survey)
    by_energy = (residuals.slope_wh_per_m / residuals.noise_wh) ** 2
    by_channel = np.where(is_measured, error_m**-2, 0.0)
    climb = by_energy * residuals.residual_wh / residuals.slope_wh_per_m
    climb = (climb + by_channel * np.nan_to_num(survey.measured_m)) / (by_energy + by_channel)
    # Sums take slope over noise as the precision of a climb; so it is that of both together.
    slope = residuals.noise_wh * np.sqrt(by_energy + by_channel)
    return replace(residuals, residual_wh=slope * climb, slope_wh_per_m=slope)


def measured_error_m(survey: Survey) -> float:
    """Return standard deviation of the error of a segment's measured climb; infinite with too
    few.
    """
    is_measured = np.isfinite(survey.measured_m)
    if is_measured.sum() < LEAST_SEGMENTS:
        return float("inf")
    by_energy = residual(survey).residual_wh[is_measured] / survey.wh_per_m
    both = np.cov(by_energy, survey.measured_m[is_measured])
    return float(np.sqrt(max(both[1, 1] - both[0, 1], LEAST_ERROR_M**2)))


def measured_is_better(survey: Survey, elevation_map: ElevationMap) -> bool:
    """Return whether a vehicle reads its measured elevation first, by its own validation trips.

    It does unless the map is clearly better there, or measured climbs do harm at face value.
    """
    evaluated = survey.validation
    if evaluated is None or not len(survey.measured_m) or not len(evaluated.measured_m):
        return False

    def error(climbs_m: Sequence[FloatArray], *, at_face_value: bool = False) -> float:
        return rms(validation_errors_wh(survey, climbs_m, at_face_value=at_face_value))

    by_field = [climb_m(each, elevation_map) for each in (survey, evaluated)]
    measured = [
        np.where(np.isfinite(each.measured_m), each.measured_m, climb)
        for each, climb in zip((survey, evaluated), by_field, strict=True)
    ]
    level = [np.zeros(len(climb)) for climb in by_field]
    harmless = error(measured, at_face_value=True) <= CLEAR_GAIN * error(level)
    return harmless and error(measured) <= CLEAR_GAIN * error(by_field)
