"""The elevation map as a step of a run: vehicles learn it before the first round.

RUN/elevation_map.parquet    the published map

`fedwatt.elevation` says how a map is learned.
"""

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedwatt.elevation.elevation_map import ElevationMap
from fedwatt.elevation.learn import Learned, learn_alone, learn_maps, learns_map
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.store import Provenance, read_map_file, write_map_file
from fedwatt.errors import DataError, SettingError
from fedwatt.privacy import Budget
from fedwatt.runs.config import RunConfig
from fedwatt.runs.source import open_fleet, source_vehicles
from fedwatt.windows import DataSettings, Fleet
from fedwatt.windows.features import feature_names, features_without_elevation, needs_climb


def learns_elevation(config: RunConfig) -> bool:
    """Return whether a feature needs climb and the run's vehicles learn the map it is read from."""
    return learns_map(config.elevation, config.data)


def shares_elevation(config: RunConfig) -> bool:
    """Return whether a deployed fleet learns an elevation map: for features, or for routes."""
    return learns_elevation(config) or config.deploy.routes


def data_without_elevation(data: DataSettings) -> DataSettings | None:
    """Return the same windows without features of climb; None where no other features are left."""
    features = features_without_elevation(data.features)
    if not features:
        return None
    count = len(feature_names(features))
    components = min(data.components, count)
    selected = min(data.selected, count)
    return replace(data, features=features, components=components, selected=selected)


def learned_for(config: RunConfig) -> Learned | None:
    """Return the maps that a run learns; None where it needs none or has them from elsewhere."""
    return learned_elevation(config) if learns_elevation(config) else None


def learned_elevation(config: RunConfig) -> Learned:
    """Return the maps that the vehicles of a run learn, whether or not its features need climb.

    Vehicles that are held out contribute nothing. With `secure.enabled` the map is the one that the
    same vehicles would learn on a deployed fleet, by secure aggregation.
    """
    vehicles = partial(source_vehicles, config.fleet, config.data)
    return learn_maps(vehicles, config.data, config.elevation, secure=config.secure.enabled)


def learned_alone(config: RunConfig, learners: frozenset[str] | None = None) -> Learned:
    """Return the maps of local-only vehicles, each learned from its own training trips alone.

    Vehicles outside `learners` (None: all learn) have an empty map.
    """
    vehicles = source_vehicles(config.fleet, config.data)
    return learn_alone(vehicles, config.elevation, config.data, learners=learners)


def run_fleet(config: RunConfig) -> Fleet:
    """Return the fleet of a run, with climb where its features need it."""
    return open_fleet(config, learned_for(config))


def write_learned(file: Path, learned: Learned, config: RunConfig) -> None:
    """Write the published elevation map with the vehicles it was learned from."""
    provenance = Provenance.by(learned.contributors, config.data)
    write_map_file(file, learned.shared, provenance=provenance)


def elevation_facts(
    config: RunConfig, fleet: Fleet, shared: ElevationMap, contributors: int, learnings: int = 1
) -> dict[str, Any]:
    """Return the number of shared nodes, and the privacy that noise on their sums has spent."""
    facts = {"nodes": shared.nodes, "vehicles": contributors}
    return facts | elevation_spending(config, fleet, learnings)


def elevation_budget(settings: ElevationSettings, *, population: int) -> Budget | None:
    """Return the budget of a field learned with noise by K vehicles; None: without.

    Each of its published vectors is one Gaussian mechanism that every vehicle takes part in:
    `Budget.epsilon(settings.releases)` is what learning the field once costs.
    """
    if not settings.noise_multiplier:
        return None
    return Budget(settings.noise_multiplier, 1.0, max(population, 2) ** -1.1)


def elevation_spending(config: RunConfig, fleet: Fleet, learnings: int = 1) -> dict[str, Any]:
    """Return the privacy spent on learning elevation; empty without noise or without learning.

    `learnings` is how often it was begun: one that was cut off counts as if it had been finished.
    """
    population = sum(not client.held_out for client in fleet.clients)
    budget = elevation_budget(config.elevation, population=population)
    if budget is None:
        return {}
    releases = max(learnings, 1) * config.elevation.releases
    return asdict(budget) | {"epsilon": budget.epsilon(releases)}


def vehicle_map(
    config: RunConfig, run: Path, vehicle: str, file: Path | None = None
) -> ElevationMap | None:
    """Return the elevation map of a vehicle's model file; None where the model needs none.

    It is the map of `file`, or else the run's. A map that the run learned is learned again from the
    same training trips: the shared nodes and the vehicle's private ones, which no run folder holds.
    The map of a deployed fleet is on the vehicle's own disk.
    """
    climbs = needs_climb(feature_names(config.data.features))
    source = config.elevation.source
    if not climbs or source == "measured":
        if file is not None:
            raise SettingError(
                "The run needs no elevation map: "
                + ("its climb is measured." if climbs else "climb is not among its features.")
                + " Leave --elevation-map out."
            )
        return None
    if file is not None or not config.elevation.learns:
        return read_map_file(file or Path(source))
    if (run / "deployment.json").exists():
        raise DataError(
            f"The elevation map of {run} was learned on a deployed fleet, and that of vehicle "
            f"'{vehicle}' is on its own disk. Give its --state folder here as well, or the file of "
            "a map with --elevation-map."
        )
    learned = learned_for(config)
    if learned is None or vehicle not in learned.maps:
        raise DataError(
            f"Vehicle '{vehicle}' is not in the run's fleet '{config.fleet.data}', so the run has "
            "no elevation map for it. Give one with --elevation-map ('fedwatt elevation learn' "
            "makes it)."
        )
    return learned.maps[vehicle]
