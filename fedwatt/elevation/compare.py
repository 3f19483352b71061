"""Comparison of a learned elevation map with measured elevation.

Each region is compared about its own mean, because a map has no common zero.

With a channel `elevation_m` (a receiver's, eVED's, or any other) elevations are compared where the
vehicles drive, second by second; climbs over stretches of a minute, which models read. Energy is
not used.

With a terrain model (SRTM tiles, a GeoTIFF, or a file of its posts) elevations are compared at the
map's nodes, and grades between nodes that lie about 0.5, 1 and 2 km apart. No trip is used.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedwatt.elevation.climb import STANDING_MPS, trusted_positions
from fedwatt.elevation.elevation_map import ElevationMap
from fedwatt.elevation.grid import EARTH_RADIUS_M
from fedwatt.elevation.survey import rms
from fedwatt.errors import DataError
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.trip import FloatArray, IntArray

if TYPE_CHECKING:
    # Reading a terrain model needs polars, which comparing with a channel does not.
    from fedwatt.telemetry.terrain_model import Terrain

MINUTE_S = 60
SPANS_M = (500.0, 1000.0, 2000.0)
SLACK = 0.1
"""Nodes count as a span apart if their distance differs from it by at most a tenth."""
LEAST_NODES = 10


@dataclass(frozen=True)
class ElevationAgreement:
    """Agreement of an elevation map with measured elevation.

    seconds             driven seconds with a trusted position and a measured elevation
    covered             share of them that the map covers
    correlation         of elevations about their regions' means
    scale               metres of the map for a metre measured; 1 is right, less is too flat
    difference_m        root mean square of what differs, about regions' means
    minutes             stretches of a minute between two covered positions
    climb_correlation   of their climbs
    climb_difference_m  root mean square of what their climbs differ by
    climb_m             root mean square of the measured climbs, the error of a level map
    """

    seconds: int
    covered: float
    correlation: float
    scale: float
    difference_m: float
    minutes: int
    climb_correlation: float
    climb_difference_m: float
    climb_m: float


def compare(elevation_map: ElevationMap, vehicles: Iterable[Vehicle]) -> ElevationAgreement:
    """Compare a map with the channel `elevation_m` of the vehicles' trips."""
    learned = []
    measured = []
    region = []
    climbs = []
    seconds = 0
    for vehicle in vehicles:
        for trip in vehicle.trips:
            if "elevation_m" not in trip.channels:
                continue
            latitude_deg, longitude_deg, trusted = trusted_positions(trip)
            height, place = elevation_map.read(latitude_deg, longitude_deg)
            true = trip.channels["elevation_m"]
            usable = trusted & np.isfinite(true) & (trip.channels["speed_mps"] >= STANDING_MPS)
            covered = usable & np.isfinite(height)
            seconds += int(usable.sum())
            learned.append(height[covered])
            measured.append(true[covered])
            region.append(place[covered])
            climbs.append(_climbs(height, true, place, trusted))
    if not seconds:
        raise DataError(
            "No trip has both positions and measured elevation, so there is nothing to compare. "
            "Import the fleet with a terrain model (--dem), or recordings with elevation."
        )
    regions: IntArray = np.concatenate(region)
    height_m = about_means(np.concatenate(learned), regions)
    true_m = about_means(np.concatenate(measured), regions)
    ours, theirs = np.concatenate(climbs, axis=1)
    if len(height_m) < 2 or len(ours) < 2:
        raise DataError("The map has no nodes where the vehicles drive. Is it a map of this fleet?")
    return ElevationAgreement(
        seconds=seconds,
        covered=len(height_m) / seconds,
        correlation=float(np.corrcoef(height_m, true_m)[0, 1]),
        scale=float(height_m @ true_m / (true_m @ true_m)),
        difference_m=rms(height_m - true_m),
        minutes=len(ours),
        climb_correlation=float(np.corrcoef(ours, theirs)[0, 1]),
        climb_difference_m=rms(ours - theirs),
        climb_m=rms(theirs),
    )


def _climbs(
    height: FloatArray, true: FloatArray, region: IntArray, trusted: np.ndarray
) -> FloatArray:
    """Return metres gained per minute of a trip by the map and as measured, [2, minutes]."""
    ends = np.arange(MINUTE_S, len(height), MINUTE_S)
    starts = ends - MINUTE_S
    sure = trusted & np.isfinite(height) & np.isfinite(true)
    within = sure[ends] & sure[starts] & (region[ends] == region[starts])
    gained = np.stack([height[ends] - height[starts], true[ends] - true[starts]])
    return gained[:, within]


@dataclass(frozen=True)
class GradeDifference:
    """Grades between nodes about `span_m` apart: how many pairs, and their RMS as ratios.

    `difference` is between the map and the reference, `reference` the error of a level map.
    """

    span_m: float
    pairs: int
    difference: float
    reference: float


@dataclass(frozen=True, eq=False)
class TerrainAgreement:
    """Agreement of an elevation map with a terrain model at its nodes.

    nodes          of the map
    covered        share of them that the model covers
    correlation    of elevations about their regions' means
    slope          metres of the map for a metre of the model; 1 is right, less is too flat
    rms_m          root mean square of what elevations differ by
    median_m       median of its absolute value
    grades         over each of `SPANS_M` that nodes are apart
    learned_m, reference_m   the elevations compared, about their regions' means, [nodes known]
    """

    nodes: int
    covered: float
    correlation: float
    slope: float
    rms_m: float
    median_m: float
    grades: tuple[GradeDifference, ...]
    learned_m: FloatArray
    reference_m: FloatArray


def compare_with_reference(elevation_map: ElevationMap, elevation: "Terrain") -> TerrainAgreement:
    """Compare a map with a terrain model at the map's nodes."""
    latitude_deg, longitude_deg = elevation_map.grid.positions(elevation_map.keys)
    true_m = elevation.elevation_m(latitude_deg, longitude_deg)
    covered = np.flatnonzero(np.isfinite(true_m))
    if len(covered) < LEAST_NODES:
        raise DataError(
            f"The terrain model covers {len(covered)} of {elevation_map.nodes:,} nodes, and "
            f"at least {LEAST_NODES} are needed to compare. Is it of the region where the fleet "
            "drives?"
        )
    region = elevation_map.region[covered]
    ours = about_means(elevation_map.elevation_m[covered], region)
    theirs = about_means(true_m[covered], region)
    place_m = _on_sphere_m(latitude_deg[covered], longitude_deg[covered])
    return TerrainAgreement(
        nodes=elevation_map.nodes,
        covered=len(covered) / elevation_map.nodes,
        correlation=float(np.corrcoef(ours, theirs)[0, 1]),
        slope=float(ours @ theirs / (theirs @ theirs)),
        rms_m=rms(ours - theirs),
        median_m=float(np.median(np.abs(ours - theirs))),
        grades=tuple(_grades(ours, theirs, region, place_m, span) for span in SPANS_M),
        learned_m=ours,
        reference_m=theirs,
    )


def _grades(
    ours: FloatArray, theirs: FloatArray, region: IntArray, place_m: FloatArray, span_m: float
) -> GradeDifference:
    """Return the grades between all pairs of a region's nodes about `span_m` apart."""
    from scipy.spatial import cKDTree

    tree = cKDTree(place_m)
    wide = tree.query_pairs((1 + SLACK) * span_m, output_type="ndarray")
    apart_m = np.linalg.norm(place_m[wide[:, 0]] - place_m[wide[:, 1]], axis=1)
    chosen = (apart_m >= (1 - SLACK) * span_m) & (region[wide[:, 0]] == region[wide[:, 1]])
    first, second = wide[chosen].T
    grade, true = ((z[first] - z[second]) / apart_m[chosen] for z in (ours, theirs))
    if not len(first):
        return GradeDifference(span_m, 0, float("nan"), float("nan"))
    return GradeDifference(span_m, len(first), rms(grade - true), rms(true))


def _on_sphere_m(latitude_deg: FloatArray, longitude_deg: FloatArray) -> FloatArray:
    """Return points in space, metres [nodes, 3]; short chords are as long as arcs."""
    latitude = np.radians(latitude_deg)
    longitude = np.radians(longitude_deg)
    flat = np.cos(latitude)
    point = np.stack([flat * np.cos(longitude), flat * np.sin(longitude), np.sin(latitude)], axis=1)
    return np.asarray(EARTH_RADIUS_M * point)


def about_means(values: FloatArray, region: IntArray) -> FloatArray:
    """Return values less the mean of their region."""
    _, number = np.unique(region, return_inverse=True)
    means = np.bincount(number, values) / np.bincount(number)
    return values - means[number]
