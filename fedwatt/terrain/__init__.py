"""The fleet's elevation field: learned from residual energy as sums that add, read as climb."""

from fedwatt.terrain.climb import grade, trip_rise_m, with_terrain
from fedwatt.terrain.field import Field, empty_field
from fedwatt.terrain.grid import Grid
from fedwatt.terrain.learn import Learned, give_terrain, learn, learn_shared
from fedwatt.terrain.settings import TerrainSettings

__all__ = [
    "Field",
    "Grid",
    "Learned",
    "TerrainSettings",
    "empty_field",
    "give_terrain",
    "grade",
    "learn",
    "learn_shared",
    "trip_rise_m",
    "with_terrain",
]
