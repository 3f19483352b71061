"""The recipe of `fedwatt run`: the one place that decides what a run does unless it is told.

A configuration (`RunConfig`) has plain defaults, which Python programs and TOML files rely on. The
command, where it is given no file, adds a recipe to them by where the vehicles come from. Options
and `--set` come before the recipe.
"""

from collections.abc import Mapping
from typing import Any, Final

from fedwatt.runs.config import Source, choose, default_methods
from fedwatt.runs.source import made_on_demand, vehicle_maker
from fedwatt.settings import from_table

Recipe = Mapping[str, Mapping[str, Any]]

WITH_ELEVATION: Final = "base, elevation"
"""Features of a model that knows climb and descent."""
BUILT_IN: Final[Recipe] = {
    "data": {"features": WITH_ELEVATION},
    "personalisation": {"enabled": True, "rates": [0.01, 0.03]},
    "training": {"rounds": 30},
}
"""For the built-in synthetic fleet: learned elevation and personalisation, in under a minute."""
RECORDED: Final[Recipe] = {}
"""For the fleet in a folder."""
PLAIN: Final[Recipe] = {}
"""For fleets too large to be held in memory, and for methods with a privacy budget, which a second
model without elevation would spend twice."""


def with_recipe(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return a TOML document with the recipe's settings where it has none."""
    result = dict(tables)
    for section, settings in _recipe(tables).items():
        result[section] = {**settings, **tables.get(section, {})}
    return result


def _recipe(tables: Mapping[str, Any]) -> Recipe:
    source = from_table(Source, tables.get("fleet", {}), "fleet")
    if source.data not in ("synthetic", "sketch"):
        return RECORDED
    methods = [choose(table).method for table in tables.get("method", default_methods(tables))]
    large = made_on_demand(source, vehicle_maker(source).count)
    private = any(method.server.private for method in methods)
    if source.data == "sketch" or large or private:
        return PLAIN
    return BUILT_IN
