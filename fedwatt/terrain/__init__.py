"""The fleet's elevation field: learned from residual energy as sums that add, read as climb.

The names below are loaded on first use: a vehicle's computer reads a field with numpy alone and has
no scipy, which learning one needs.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedwatt.terrain.climb import grade, trip_rise_m, with_terrain
    from fedwatt.terrain.field import Field, empty_field
    from fedwatt.terrain.grid import Grid
    from fedwatt.terrain.learn import Learned, give_terrain, learn, learn_shared
    from fedwatt.terrain.settings import TerrainSettings

_HOMES = {
    "Field": "field",
    "Grid": "grid",
    "Learned": "learn",
    "TerrainSettings": "settings",
    "empty_field": "field",
    "give_terrain": "learn",
    "grade": "climb",
    "learn": "learn",
    "learn_shared": "learn",
    "trip_rise_m": "climb",
    "with_terrain": "climb",
}

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


class _Package(ModuleType):
    """Keeps the name `learn` for the function: loading the module `learn` would take it away."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedwatt.terrain' has no attribute '{name}'")
    return getattr(import_module(f"fedwatt.terrain.{_HOMES[name]}"), name)
