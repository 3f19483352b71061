"""Learn a fleet's elevation map in simulation, and give every vehicle its climb.

1. Each vehicle surveys its training trips.
2. Which nodes may be published is agreed: those that at least k vehicles drive.
3. Each vehicle fits its power model, and uploads sums over published nodes only.
4. The server adds the sums, solves for elevations and publishes the map.
5. On request 3 and 4 are repeated with residuals of a model that has the map.
6. Each vehicle learns private nodes for itself, and uses of all this what lowers the error on its
   validation trips: the shared map with its private nodes, the shared map alone, or none.

`ElevationSettings.source` says where climb comes from: learning, measured elevation, a map file, or
("auto") learning in which a vehicle's measured elevation counts wherever it has it. Telemetry is
read more than once rather than stored, so vehicles come as a function that yields them anew.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedwatt.elevation.choose import MapErrors, learn_with_prior, map_errors
from fedwatt.elevation.climb import with_elevation, with_measured_elevation
from fedwatt.elevation.elevation_map import ElevationMap, empty_map
from fedwatt.elevation.exchange import learn_from_totals, refuse_unmaskable
from fedwatt.elevation.normal_equations import (
    NOTHING,
    Contribution,
    add,
    contribution,
    touched_nodes,
)
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.store import Provenance, read_map_file, read_provenance, write_map_file
from fedwatt.elevation.survey import Survey, segment_residual, whole_survey
from fedwatt.elevation.vehicle_map import vehicle_maps
from fedwatt.errors import DataError
from fedwatt.metrics.sums import add_up, in_process
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.store import read_fleet
from fedwatt.telemetry.trip import IntArray
from fedwatt.windows import DataSettings
from fedwatt.windows.features import feature_names, needs_climb
from fedwatt.windows.splits import held_out_vehicles

log = logging.getLogger("fedwatt.elevation")

Vehicles = Callable[[], Iterable[Vehicle]]
"""Returns the vehicles of a fleet anew, one at a time, each time it is called."""


@dataclass(frozen=True, eq=False)
class Learned:
    """The shared map and, in `maps`, each vehicle's own: the shared one with private nodes.

    The shared map was learned from the vehicles `contributors`.
    """

    shared: ElevationMap
    maps: Mapping[str, ElevationMap]
    contributors: frozenset[str] = frozenset()


def learn(
    vehicles: Iterable[Vehicle],
    settings: ElevationSettings,
    data: DataSettings,
    *,
    contributors: frozenset[str] | None = None,
    secure: bool = False,
) -> Learned:
    """Return the maps of a fleet. Vehicles beside `contributors` (None: all) read the shared one.

    With `settings.private` off, every vehicle's own map is the shared one. `secure` as in
    `shared_map`.
    """
    names, surveys = survey_fleet(vehicles, contributors, settings, data)
    shared = shared_map(list(surveys.values()), settings, secure=secure)
    maps = vehicle_maps(names, surveys, shared, settings)
    return Learned(shared, maps, frozenset(surveys))


def learn_alone(
    vehicles: Iterable[Vehicle],
    settings: ElevationSettings,
    data: DataSettings,
    *,
    learners: frozenset[str] | None = None,
) -> Learned:
    """Return the map of each vehicle as the only one of its fleet: nothing is shared or read.

    Vehicles outside `learners` (None: all learn) have an empty map.
    """
    # A place that nobody else drives is private whatever the threshold.
    settings = replace(settings, minimum_vehicles=2, private=True)
    empty = empty_map(settings.grid)
    maps: dict[str, ElevationMap] = {}
    for vehicle in vehicles:
        if learners is None or vehicle.name in learners:
            maps |= learn([vehicle], settings, data).maps
        else:
            maps[vehicle.name] = empty
    return Learned(empty, maps)


def survey_fleet(
    vehicles: Iterable[Vehicle],
    contributors: frozenset[str] | None,
    settings: ElevationSettings,
    data: DataSettings,
) -> tuple[list[str], dict[str, Survey]]:
    """Return the names of all vehicles, and the surveys of `contributors` (None: of all).

    A vehicle without recorded energy contributes nothing and reads the shared map.
    """
    names: list[str] = []
    surveys: dict[str, Survey] = {}
    for vehicle in vehicles:
        names.append(vehicle.name)
        has_energy = all("energy_wh" in trip.channels for trip in vehicle.trips)
        if has_energy and (contributors is None or vehicle.name in contributors):
            surveys[vehicle.name] = whole_survey(
                vehicle, settings.grid, settings.lengths, data, measured=settings.measures
            )
    return names, surveys


def shared_map(
    surveys: Sequence[Survey], settings: ElevationSettings, *, secure: bool = False
) -> ElevationMap:
    """Return the map that the server publishes.

    If `secure`, the server uses totals over vehicles alone, as on a deployed fleet.
    """
    if not surveys:
        return empty_map(settings.grid)
    if secure:
        refuse_unmaskable(settings)
        vehicles = {f"{number}": survey for number, survey in enumerate(surveys)}
        totals = in_process(add_up, vehicles)
        return learn_from_totals(totals, frozenset(vehicles), settings).elevation_map
    published: dict[int, IntArray] = {}

    def exchange(elevation_map: ElevationMap) -> Contribution:
        length = elevation_map.prior.segment_s
        cut = [survey.cut(length) for survey in surveys]
        if length not in published:
            usual = published.get(settings.segment_s)
            published[length] = publishable(cut, settings.minimum_vehicles, usual)
        nodes = published[length]
        return add(
            [
                contribution(each, segment_residual(each, elevation_map), within=nodes)
                for each in cut
            ]
        )

    def evaluate(maps: Sequence[ElevationMap]) -> MapErrors:
        first, *following = (map_errors(survey, maps, settings) for survey in surveys)
        return sum(following, first)

    return learn_with_prior(exchange, evaluate, settings)


def publishable(
    surveys: Sequence[Survey], minimum_vehicles: int, within: IntArray | None = None
) -> IntArray:
    """Return the nodes, ascending, that segments of at least k vehicles touch without leaving them.

    With `within` other nodes are left out from the start. Leaving a node out leaves out segments,
    which may leave another node with too few vehicles, so counting is repeated until nothing
    changes. Only counts are needed, never who drove where.
    """
    while True:
        touched = [touched_nodes(survey, within) for survey in surveys]
        keys, counts = np.unique(np.concatenate([*touched, NOTHING.keys]), return_counts=True)
        frequent = keys[counts >= minimum_vehicles]
        if within is not None and len(frequent) == len(within):
            return frequent
        within = frequent


def with_climb_channels(
    vehicles: Vehicles,
    data: DataSettings,
    settings: ElevationSettings,
    learned: Learned | None = None,
) -> Iterable[Vehicle]:
    """Yield the vehicles with channels of climb where a feature needs them, else as they are.

    `learned` are maps that the vehicles have learned already.
    """
    if not needs_climb(feature_names(data.features)):
        return vehicles()
    if learned is None and settings.source == "measured":
        return _with_measured_climb(vehicles())
    if learned is None and not settings.learns:
        return _with_map_of(Path(settings.source), vehicles, data)
    return add_elevation(vehicles(), learned or learn_maps(vehicles, data, settings))


def add_elevation(vehicles: Iterable[Vehicle], learned: Learned) -> Iterable[Vehicle]:
    """Yield each vehicle with climb and descent read from its own map."""
    return (with_elevation(vehicle, learned.maps[vehicle.name]) for vehicle in vehicles)


def _with_measured_climb(vehicles: Iterable[Vehicle]) -> Iterator[Vehicle]:
    """Yield the vehicles with climb by their elevation channels; warn of those without any."""
    without = []
    count = 0
    for vehicle in vehicles:
        count += 1
        if not any("elevation_m" in trip.channels for trip in vehicle.trips):
            without.append(vehicle.name)
        yield with_measured_elevation(vehicle)
    if len(without) == count:
        raise DataError(
            "No vehicle has a channel 'elevation_m', so no climb is measured. Import recordings "
            "with elevation (or --dem), or let the fleet learn a map: elevation.source = 'auto'."
        )
    if without:
        log.warning(
            "%d of %d vehicles have no measured elevation, so their climb is unknown: %s. With "
            "elevation.source = 'auto' they would read the map that the fleet learns.",
            len(without),
            count,
            ", ".join(without[:5]),
        )


def learn_maps(
    vehicles: Vehicles, data: DataSettings, settings: ElevationSettings, *, secure: bool = False
) -> Learned:
    """Return the maps that a fleet learns; vehicles that are held out contribute nothing."""
    contributors = None
    if data.held_out:
        names = frozenset(vehicle.name for vehicle in vehicles())
        contributors = names - _held_out(vehicles, data)
    return learn(vehicles(), settings, data, contributors=contributors, secure=secure)


def publish_map(
    fleet: Path, out: Path, settings: ElevationSettings, data: DataSettings
) -> tuple[ElevationMap, int]:
    """Write the map that a stored fleet publishes to `out`; return it and the nodes driven.

    Vehicles that a run under `data` holds out contribute nothing; the file names the contributors.
    """
    excluded = _held_out(lambda: read_fleet(fleet), data)
    vehicles = (vehicle for vehicle in read_fleet(fleet) if vehicle.name not in excluded)
    names, by_name = survey_fleet(vehicles, None, settings, data)
    surveys = list(by_name.values())
    elevation_map = shared_map(surveys, settings)
    driven = len(publishable(surveys, 1))
    write_map_file(out, elevation_map, provenance=Provenance.by(names, data))
    return elevation_map, driven


def _held_out(vehicles: Vehicles, data: DataSettings) -> frozenset[str]:
    names = [vehicle.name for vehicle in vehicles()] if data.held_out else []
    return frozenset(held_out_vehicles(names, data.held_out, data.split_seed))


def _with_map_of(file: Path, vehicles: Vehicles, data: DataSettings) -> Iterable[Vehicle]:
    """Yield the vehicles with climb from a map file; raise if it was learned from test trips."""
    elevation_map = read_map_file(file)
    provenance = read_provenance(file)
    excluded = _held_out(vehicles, data)
    if provenance is None:
        log.warning(
            "The map %s does not say which trips it was learned from, so it may contain test trips "
            "of this run. 'fedwatt elevation learn' makes one that does.",
            file,
        )
    for vehicle in vehicles():
        if provenance is not None:
            provenance.refuse(file, vehicle.name, data, held_out=vehicle.name in excluded)
        yield with_elevation(vehicle, elevation_map)
