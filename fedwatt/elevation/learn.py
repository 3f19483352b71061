"""Learn a fleet's hills in simulation: the vehicles' and the server's parts, one after the other.

1. Each vehicle surveys its training trips.
2. Which nodes may be published is agreed: those that at least k vehicles drive.
3. Each vehicle fits its power model, and hands up sums over published nodes only.
4. The server adds the sums, solves for elevations and publishes the field.
5. On request 3 and 4 are repeated with residuals of a model that knows the field.
6. Each vehicle learns the rest for itself, and keeps of all this what its validation trips bear
   out: the shared field with its private one, the shared field alone, or none.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedwatt.elevation.choose import Verdict, learn_with_prior, verdict
from fedwatt.elevation.climb import with_elevation
from fedwatt.elevation.elevation_map import Field, empty_field
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.measured import measured_is_better, segment_residual
from fedwatt.elevation.noise import private_shared_field
from fedwatt.elevation.power import CLEAR_GAIN, field_errors_wh, rms
from fedwatt.elevation.private import own_field
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.statistics import NOTHING, Contribution, add, contribution, touched_nodes
from fedwatt.elevation.survey import Survey, whole_survey
from fedwatt.elevation.undriven import with_undriven_ground
from fedwatt.errors import DataError
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.trip import IntArray
from fedwatt.windows import DataSettings

Share = Callable[[Sequence[Survey], Grid, ElevationSettings], tuple[Field, Contribution]]
"""Builds the shared field, and the sums behind it, from the vehicles' surveys."""


@dataclass(frozen=True, eq=False)
class Learned:
    """The shared field, and each vehicle's own: the shared one with its private nodes.

    `sums` is what the server holds, `contributors` who it is from; a refresh goes on from them.
    """

    shared: Field
    own: Mapping[str, Field]
    sums: Contribution = NOTHING
    contributors: frozenset[str] = frozenset()


def learn(
    vehicles: Iterable[Vehicle],
    settings: ElevationSettings,
    data: DataSettings,
    *,
    contributors: frozenset[str] | None = None,
    share: Share | None = None,
) -> Learned:
    """Fields of a fleet. Only `contributors` (None: all) take part; the others read what is shared.

    With `settings.private` off, every vehicle's own field is the shared one. `share` stands in for
    `shared_field`, as an exchange under masks does.
    """
    grid = Grid(cell_m=settings.cell_m)
    names, surveys = survey_fleet(vehicles, contributors, grid, settings, data)
    shared, sums = (share or shared_field)(list(surveys.values()), grid, settings)
    own = own_fields(names, surveys, shared, settings)
    return Learned(shared, own, sums, frozenset(surveys))


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
    # A place that nobody else drives is private whatever the threshold, and needs no noise.
    settings = replace(settings, minimum_vehicles=2, private=True, noise_multiplier=0.0)
    own: dict[str, Field] = {}
    for vehicle in vehicles:
        if learners is None or vehicle.name in learners:
            own |= learn([vehicle], settings, data).own
        else:
            own[vehicle.name] = empty_field(Grid(cell_m=settings.cell_m))
    return Learned(empty_field(Grid(cell_m=settings.cell_m)), own)


def survey_fleet(
    vehicles: Iterable[Vehicle],
    contributors: frozenset[str] | None,
    grid: Grid,
    settings: ElevationSettings,
    data: DataSettings,
) -> tuple[list[str], dict[str, Survey]]:
    """Names of all vehicles, and the contributors' surveys; None: all vehicles contribute.

    One without energy, such as a fleet of states of charge has, contributes nothing and reads what
    the others learn.
    """
    names: list[str] = []
    surveys: dict[str, Survey] = {}
    for vehicle in vehicles:
        names.append(vehicle.name)
        has_energy = all("energy_wh" in trip.channels for trip in vehicle.trips)
        if has_energy and (contributors is None or vehicle.name in contributors):
            surveys[vehicle.name] = whole_survey(
                vehicle, grid, settings.lengths, data, measured=settings.measures
            )
    return names, surveys


def own_fields(
    names: Sequence[str],
    surveys: Mapping[str, Survey],
    shared: Field,
    settings: ElevationSettings,
) -> dict[str, Field]:
    """Return each vehicle's map; vehicles without a survey read the shared one.

    Undriven ground beside each map is interpolated (`undriven`).

    With the source "auto" a vehicle reads its measured elevation first, unless its validation trips
    clearly speak for the field.
    """
    read = with_undriven_ground(shared)
    fields = dict.fromkeys(names, replace(read, measured=True) if settings.measures else read)
    for name, one in surveys.items():
        candidates = [shared, empty_field(shared.grid)]
        if settings.private:
            candidates.insert(0, own_field(one, shared, settings))
        best = best_field(candidates, one)
        measured = measured_is_better(one, best)
        fields[name] = replace(with_undriven_ground(best), measured=measured)
    return fields


def best_field(candidates: Sequence[Field], training: Survey) -> Field:
    """Return the field with which the vehicle's power model predicts its own validation trips best.

    The first, which knows most, is given up only for a clear gain: validation trips are few. An
    empty field is a candidate like any other: where positions are wrong, none is best. Hills that
    are wrong all the time look harmless to a model that may value them at nothing, but a network
    that other vehicles trained takes them at face value, so at face value they must not do harm.
    """
    if training.validation is None:
        raise DataError("A survey without validation trips cannot choose among fields.")
    errors = [rms(field_errors_wh(training, field)) for field in candidates]
    errors[0] /= CLEAR_GAIN
    best = candidates[int(np.argmin(errors))]
    none = empty_field(candidates[0].grid)
    with_hills, level = (
        rms(field_errors_wh(training, field, at_face_value=True)) for field in (best, none)
    )
    return best if with_hills <= CLEAR_GAIN * level else none


def learn_shared(
    vehicles: Iterable[Vehicle], settings: ElevationSettings, data: DataSettings
) -> tuple[Field, int]:
    """Return the field that is published, and how many nodes were driven at all."""
    grid = Grid(cell_m=settings.cell_m)
    surveys = list(survey_fleet(vehicles, None, grid, settings, data)[1].values())
    return shared_field(surveys, grid, settings)[0], len(publishable(surveys, 1))


def shared_field(
    surveys: Sequence[Survey], grid: Grid, settings: ElevationSettings
) -> tuple[Field, Contribution]:
    """Return the map that the server publishes, and the sums it holds."""
    if settings.noise_multiplier:
        return private_shared_field(surveys, grid, settings), NOTHING

    published: dict[int, IntArray] = {}

    def exchange(field: Field) -> Contribution:
        length = field.prior.segment_s
        cut = [one.cut(length) for one in surveys]
        if length not in published:
            usual = published.get(settings.segment_s)
            published[length] = publishable(cut, settings.minimum_vehicles, usual)
        return add([vehicle_sums(one, field, published[length]) for one in cut])

    def evaluate(fields: Sequence[Field]) -> Verdict:
        first, *others = (verdict(one, fields, settings) for one in surveys)
        return sum(others, first)

    if not surveys:
        return empty_field(grid), NOTHING
    return learn_with_prior(exchange, evaluate, grid, settings)


def publishable(
    surveys: Sequence[Survey], minimum_vehicles: int, within: IntArray | None = None
) -> IntArray:
    """Nodes, ascending, that segments of at least k vehicles touch without leaving the set.

    With `within` no other nodes are looked at.

    Leaving a node out leaves out segments, which may leave another node with too few vehicles, so
    counting is repeated until nothing changes. Only counts are needed, never who drove where.
    """
    while True:
        touched = [touched_nodes(one, within) for one in surveys]
        if not touched:
            return np.zeros(0, dtype=np.int64)
        keys, counts = np.unique(np.concatenate(touched), return_counts=True)
        kept = keys[counts >= minimum_vehicles]
        if within is not None and len(kept) == len(within):
            return kept
        within = kept


def add_elevation(vehicles: Iterable[Vehicle], learned: Learned) -> Iterable[Vehicle]:
    """Each vehicle with climb and descent read from its own field."""
    return (with_elevation(vehicle, learned.own[vehicle.name]) for vehicle in vehicles)


def vehicle_sums(one: Survey, field: Field, published: IntArray) -> Contribution:
    """Return a vehicle's contribution, from residuals of a model that knows the map so far."""
    return contribution(one, segment_residual(one, field), within=published)
