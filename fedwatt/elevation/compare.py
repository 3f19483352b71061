"""Comparison of a learned elevation map with a terrain model, at the map's nodes.

The model is SRTM tiles, a GeoTIFF, or a file of its posts. Each region is compared about its own
mean, because a map has no common zero; grades are compared between nodes that lie about 0.5, 1 and
2 km apart. No trip is used.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedwatt.elevation.elevation_map import ElevationMap
from fedwatt.elevation.grid import EARTH_RADIUS_M
from fedwatt.elevation.survey import rms
from fedwatt.errors import DataError
from fedwatt.telemetry.trip import FloatArray, IntArray

if TYPE_CHECKING:
    from fedwatt.telemetry.terrain_model import Terrain

SPANS_M = (500.0, 1000.0, 2000.0)
SLACK = 0.1
"""Nodes count as a span apart if their distance differs from it by at most a tenth."""
LEAST_NODES = 10


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
