"""The one town all synthetic vehicles share: ground, roads and the places people drive to."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedwatt.randomness import generator
from fedwatt.synthetic.arrays import FloatArray, IntArray
from fedwatt.synthetic.landscape import Landscape, draw_landscape
from fedwatt.synthetic.roads import MOTORWAY, RoadNetwork, draw_roads

PLACES = 48
PLACE_SCALE_M = 2800.0  # places thin out over this distance from the centre

# An invented town, set down in the open Atlantic so that nobody takes it for a real one.
CENTRE_LATITUDE_DEG = 45.0
CENTRE_LONGITUDE_DEG = -30.0
EARTH_RADIUS_M = 6_371_000.0


@dataclass(frozen=True, eq=False)
class Town:
    """`places` are the nodes [places] where people work, shop and meet."""

    landscape: Landscape
    roads: RoadNetwork
    places: IntArray


@lru_cache(maxsize=2)
def town(seed: int) -> Town:
    """Return the town that belongs to `seed`; made once, since a whole fleet drives in it."""
    roads = draw_roads(seed)
    rng = generator(seed, "places")
    weight = np.exp(-roads.radius_m / PLACE_SCALE_M) * (roads.largest < MOTORWAY)
    places = rng.choice(len(weight), PLACES, replace=False, p=weight / weight.sum())
    return Town(draw_landscape(seed), roads, places)


def homes(roads: RoadNetwork, nearest_m: float, farthest_m: float) -> IntArray:
    """Nodes a vehicle may live at, between two distances from the centre."""
    within = (roads.radius_m >= nearest_m) & (roads.radius_m < farthest_m)
    return np.flatnonzero(within & (roads.largest < MOTORWAY))


def degrees(x_m: FloatArray, y_m: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Latitude and longitude of positions in metres east and north of the centre."""
    latitude = CENTRE_LATITUDE_DEG + np.degrees(y_m / EARTH_RADIUS_M)
    shrink = np.cos(np.radians(CENTRE_LATITUDE_DEG))
    longitude = CENTRE_LONGITUDE_DEG + np.degrees(x_m / (EARTH_RADIUS_M * shrink))
    return latitude, longitude
