"""Routes of a vehicle: from place to place, as one long path cut into trips.

Consecutive trips share their end points, so a vehicle's whole driving life is one path, sampled
every few metres. That lets everything downstream be computed for all its trips at once.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fedwatt.randomness import generator
from fedwatt.synthetic.town import LOCAL, MOTORWAY, RoadNetwork, Town, homes
from fedwatt.telemetry.trip import BoolArray, FloatArray, IntArray

STEP_M = 5.0
ELEVATION_EVERY = 4  # steps; elevation is far smoother than the path
SHORTEST_TRIP_M = 800.0  # as the crow flies
ERRANDS = 5
ERRAND_M = 2500.0  # they thin out over this distance from home
HOMEWARD = 0.65  # how often a drive from elsewhere goes home
DEPOT_M = (3000.0, 6500.0)
DISTRICT_M = 1500.0
DROPS = (3, 8)
LINE_M = (3500.0, 8000.0)


@dataclass(frozen=True)
class RouteMix:
    """Distances of home and work from the centre for a kind of driver, metres."""

    home_m: tuple[float, float]
    work_m: tuple[float, float]
    commuting: float  # how often a drive from home goes to work


ROUTE_MIXES = {
    "urban": RouteMix((0, 2600), (0, 3000), 0.35),
    "suburban": RouteMix((2600, 5000), (0, 5000), 0.45),
    "rural": RouteMix((5000, 8200), (1000, 8200), 0.55),
}


@dataclass(frozen=True, eq=False)
class Path:
    """A path sampled every `STEP_M` ([points]) and the nodes it passes ([passes]).

    `trip_bounds` [trips + 1] are the points where trips meet. `stop_kind` of a pass is 0 for none,
    1 for give way (from a smaller road), 2 for a signal.
    """

    x_m: FloatArray
    y_m: FloatArray
    elevation_m: FloatArray
    limit_mps: FloatArray
    centre_distance_m: FloatArray
    trip_bounds: IntArray
    pass_point: IntArray
    turn_rad: FloatArray
    intersection: BoolArray
    stop_kind: IntArray
    bus_stop: BoolArray

    def at(self, values: FloatArray, distance_m: FloatArray) -> FloatArray:
        """Interpolate values [points] at distances [...] along the path."""
        return np.interp(distance_m / STEP_M, np.arange(len(values)), values)


def itinerary(
    town: Town, seed: int, vehicle: str, trips: int, kind: str = "passenger"
) -> tuple[str, list[list[int]]]:
    """Draw a vehicle's trips: the name of its route mix, and the nodes of each trip in order."""
    rng = generator(seed, "routes", vehicle)
    if kind == "truck":
        return "delivery rounds", _delivery_rounds(town, trips, rng)
    if kind == "bus":
        return "line service", _line_service(town, trips, rng)
    return _commuting(town, trips, rng)


def _commuting(town: Town, trips: int, rng: np.random.Generator) -> tuple[str, list[list[int]]]:
    """Draw trips of a car: home at one node, work at one place, errands to five others."""
    roads = town.roads
    places = town.places
    mix_name = str(rng.choice(list(ROUTE_MIXES)))
    mix = ROUTE_MIXES[mix_name]
    home = int(rng.choice(homes(roads, *mix.home_m)))
    away_m = _metres(roads, places, home)
    far = away_m > SHORTEST_TRIP_M
    radius_m = roads.radius_m[places]
    usual = (radius_m >= mix.work_m[0]) & (radius_m < mix.work_m[1])
    work = int(rng.choice(places, p=_shares(np.where(usual, 1.0, 0.01) * far)))
    # People do most of their errands near where they live.
    near = np.exp(-away_m / ERRAND_M) * far * (places != work)
    errands = rng.choice(places, ERRANDS, replace=False, p=_shares(near))

    here = home
    paths = []
    for _ in range(trips):
        if here == home:
            destination = work if rng.random() < mix.commuting else int(rng.choice(errands))
        else:
            onward = np.append(errands, work)
            onward = onward[_metres(roads, onward, here) > SHORTEST_TRIP_M]
            straight_home = len(onward) == 0 or rng.random() < HOMEWARD
            destination = home if straight_home else int(rng.choice(onward))
        # Ways are stored toward places; the way home is the way from home, driven back.
        if destination == home:
            paths.append(roads.path_to(here, home)[::-1])
        else:
            paths.append(roads.path_to(destination, here))
        here = destination
    return mix_name, paths


def _delivery_rounds(town: Town, trips: int, rng: np.random.Generator) -> list[list[int]]:
    """Draw rounds of a truck: from its depot to a few neighbouring places and back."""
    roads = town.roads
    places = town.places
    depot = int(rng.choice(homes(roads, *DEPOT_M)))
    paths: list[list[int]] = []
    while len(paths) < trips:
        district = int(rng.choice(places[_metres(roads, places, depot) > SHORTEST_TRIP_M]))
        near = np.exp(-_metres(roads, places, district) / DISTRICT_M) * (places != district)
        drops = rng.choice(places, int(rng.integers(*DROPS)), replace=False, p=_shares(near))
        here = depot
        for drop in (district, *drops.tolist()):
            # Calls next door are made on foot.
            if _metres(roads, np.array([drop]), here)[0] > SHORTEST_TRIP_M:
                paths.append(roads.path_to(drop, here))
                here = drop
        paths.append(roads.path_to(here, depot)[::-1])
    return paths[:trips]


def _line_service(town: Town, trips: int, rng: np.random.Generator) -> list[list[int]]:
    """Draw trips of a bus, to and fro between two places far apart."""
    roads = town.roads
    places = town.places
    terminus = int(rng.choice(places))
    apart_m = _metres(roads, places, terminus)
    far = (apart_m > LINE_M[0]) & (apart_m < LINE_M[1])
    other = int(rng.choice(places[far] if far.any() else places[[np.argmax(apart_m)]]))
    outbound = roads.path_to(other, terminus)
    return [outbound if trip % 2 == 0 else outbound[::-1] for trip in range(trips)]


def trace(town: Town, paths: list[list[int]]) -> Path:
    """Sample consecutive trips, each a list of nodes, as one path."""
    roads = town.roads
    # The last node of a trip is the first of the next, so it is listed once.
    nodes = np.array(paths[0] + [node for path in paths[1:] for node in path[1:]])
    bounds = np.cumsum([0, *(len(path) - 1 for path in paths)])
    x_m = roads.x_m[nodes]
    y_m = roads.y_m[nodes]
    dx = np.diff(x_m)
    dy = np.diff(y_m)
    along_m = np.concatenate([[0.0], np.cumsum(np.hypot(dx, dy))])
    stretches = [roads.neighbours[a][b] for a, b in pairwise(nodes)]
    kinds = np.array([road.kind for road in stretches])
    limits = np.array([road.limit_mps for road in stretches])

    points = int(along_m[-1] / STEP_M) + 1
    at_m = STEP_M * np.arange(points)
    on = np.clip(np.searchsorted(along_m, at_m, side="right") - 1, 0, len(kinds) - 1)
    x = np.interp(at_m, along_m, x_m)
    y = np.interp(at_m, along_m, y_m)
    coarse = np.unique(np.append(np.arange(0, points, ELEVATION_EVERY), points - 1))
    elevation = town.landscape.elevation_m(x[coarse], y[coarse])

    heading = np.arctan2(dy, dx)
    turn = np.abs((np.diff(heading) + np.pi) % (2 * np.pi) - np.pi)
    passed = nodes[1:-1]
    passed_m = along_m[1:-1]
    into = kinds[:-1]
    out = kinds[1:]
    crossing = (roads.degree[passed] >= 3) & ~((into == MOTORWAY) & (out == MOTORWAY))
    signal = roads.signalled[passed] & crossing
    gives_way = crossing & ~signal & ((into < roads.largest[passed]) | (into == LOCAL))
    return Path(
        x_m=x,
        y_m=y,
        elevation_m=np.interp(at_m, at_m[coarse], elevation),
        limit_mps=limits[on],
        centre_distance_m=np.hypot(x, y),
        trip_bounds=(along_m[bounds] / STEP_M).astype(np.int64),
        pass_point=(passed_m / STEP_M).astype(np.int64),
        turn_rad=turn,
        intersection=crossing,
        stop_kind=np.where(signal, 2, np.where(gives_way, 1, 0)),
        bus_stop=roads.bus_stop[passed],
    )


def _metres(roads: RoadNetwork, nodes: IntArray, other: int) -> FloatArray:
    dx = roads.x_m[nodes] - roads.x_m[other]
    dy = roads.y_m[nodes] - roads.y_m[other]
    return np.asarray(np.hypot(dx, dy))


def _shares(weights: FloatArray) -> FloatArray:
    return np.asarray(weights / weights.sum())
