"""The invented town that all synthetic vehicles share: elevation, weather, roads and places.

Elevation is a sum of plane waves, known exactly everywhere, so that a learned map can be compared
with the truth. Wavelengths from 700 m to 9 km carry equal slope each, so there are wide valleys and
short ramps. The weather is temperate with cold winters, and on a given day the same for everybody.

Roads are a lattice of 200 m blocks, bent by a smooth warp: local streets in the centre, arterials
through the suburbs, main roads out to the villages, and two motorways that meet main roads at
interchanges.
"""

from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np

from fedwatt.randomness import generator
from fedwatt.telemetry.trip import BoolArray, FloatArray, IntArray

WAVES = 40
SHORTEST_M = 700.0
LONGEST_M = 9000.0
SLOPE_RMS = 0.022
MEAN_ELEVATION_M = 250.0


@dataclass(frozen=True, eq=False)
class Landscape:
    """Elevation = mean + Σ amplitude · cos(kx·x + ky·y + phase); all arrays [waves]."""

    mean_m: float
    amplitude_m: FloatArray
    kx: FloatArray
    ky: FloatArray
    phase: FloatArray

    def elevation_m(self, x_m: FloatArray, y_m: FloatArray) -> FloatArray:
        """Return the height at positions [...] in metres east and north of the centre."""
        elevation = np.full(np.shape(x_m), self.mean_m)
        # A loop over waves keeps memory at O(positions) and is as fast as one large outer product.
        waves = zip(self.amplitude_m, self.kx, self.ky, self.phase, strict=True)
        for amplitude, kx, ky, phase in waves:
            elevation += amplitude * np.cos(kx * x_m + ky * y_m + phase)
        return elevation


def draw_landscape(seed: int) -> Landscape:
    """Return the elevation of the town that belongs to `seed`."""
    rng = generator(seed, "landscape")
    wavelength = np.exp(rng.uniform(np.log(SHORTEST_M), np.log(LONGEST_M), WAVES))
    direction = rng.uniform(0, 2 * np.pi, WAVES)
    wavenumber = 2 * np.pi / wavelength
    return Landscape(
        mean_m=MEAN_ELEVATION_M,
        # Mean squared slope is Σ (amplitude·wavenumber)² / 2.
        amplitude_m=SLOPE_RMS * np.sqrt(2 / WAVES) / wavenumber,
        kx=wavenumber * np.cos(direction),
        ky=wavenumber * np.sin(direction),
        phase=rng.uniform(0, 2 * np.pi, WAVES),
    )


DAYS = 365
MEAN_C = 10.0
SEASON_C = 12.5
WARMEST_DAY = 203
DAY_TO_DAY_C = 3.5
DAY_MEMORY = 0.75
NIGHT_TO_DAY_C = 4.0
WARMEST_HOUR = 15.0
SHORTEST_PERIOD_DAYS = 90


def daily_mean_c(seed: int) -> FloatArray:
    """Return the mean temperature of every day of a year, [days]: season plus lasting weather."""
    shocks = generator(seed, "weather").normal(size=DAYS)
    weather = np.zeros(DAYS)
    for day in range(1, DAYS):
        weather[day] = DAY_MEMORY * weather[day - 1] + np.sqrt(1 - DAY_MEMORY**2) * shocks[day]
    season = np.cos(2 * np.pi * (np.arange(DAYS) - WARMEST_DAY) / DAYS)
    return MEAN_C + SEASON_C * season + DAY_TO_DAY_C * weather


def trip_days(vehicle: str, seed: int, trips: int) -> tuple[IntArray, FloatArray]:
    """Draw the day of the year and the hour of each trip, in the order driven; each [trips].

    Each vehicle is observed for a part of the year, from 90 days to all of it.
    """
    rng = generator(seed, "calendar", vehicle)
    period = int(rng.integers(SHORTEST_PERIOD_DAYS, DAYS + 1))
    first = int(rng.integers(DAYS))
    day = np.sort(rng.integers(period, size=trips))
    return (first + day) % DAYS, rng.uniform(6.5, 21.5, trips)


def trip_temperatures_c(vehicle: str, seed: int, trips: int) -> FloatArray:
    """Return the outside temperature when each trip begins, [trips]."""
    day, hour = trip_days(vehicle, seed, trips)
    clock = np.cos(2 * np.pi * (hour - WARMEST_HOUR) / 24)
    return daily_mean_c(seed)[day] + NIGHT_TO_DAY_C * clock


BLOCK_M = 200.0
REACH = 40  # blocks from the centre to the edge of the map
# blocks between roads of a class
ARTERIAL_EVERY = 4
MAIN_EVERY = 12
CENTRE_RADIUS_M = 2600.0
TOWN_RADIUS_M = 5000.0
MOTORWAY_LINES = (-18, 18)  # one runs north at x = -18 blocks, one east at y = 18 blocks
WARP_M = 120.0
WARP_WAVELENGTH_M = (2500.0, 6000.0)

LOCAL, ARTERIAL, MAIN, MOTORWAY = range(4)
KMH = 1 / 3.6
LIMITS_MPS = {LOCAL: 30 * KMH, ARTERIAL: 50 * KMH, MAIN: 80 * KMH, MOTORWAY: 110 * KMH}
MAIN_IN_TOWN_MPS = 60 * KMH
BUS_STOP_SHARE = 0.3  # of the nodes on larger roads
CROSSING_S = 4.0  # what passing a node costs on average, for choosing a way

Lattice = tuple[int, int]


@dataclass(frozen=True)
class Road:
    """A stretch of road between two nodes."""

    kind: int
    limit_mps: float


@dataclass(frozen=True, eq=False)
class RoadNetwork:
    """Nodes with positions in metres east and north of the centre, and the roads between them."""

    x_m: FloatArray
    y_m: FloatArray
    neighbours: tuple[dict[int, Road], ...]
    bus_stop: BoolArray
    _ways: dict[int, list[int]] = field(default_factory=dict)

    @cached_property
    def radius_m(self) -> FloatArray:
        """Distance of each node from the centre, [nodes]."""
        return np.hypot(self.x_m, self.y_m)

    @cached_property
    def degree(self) -> IntArray:
        """Number of roads that meet at each node, [nodes]."""
        return np.array([len(around) for around in self.neighbours])

    @cached_property
    def largest(self) -> IntArray:
        """Largest kind of road at each node, [nodes]."""
        return np.array([max(road.kind for road in around.values()) for around in self.neighbours])

    @cached_property
    def signalled(self) -> BoolArray:
        """True for nodes where at least three larger roads meet, [nodes]."""
        large = [[road.kind in (ARTERIAL, MAIN) for road in n.values()] for n in self.neighbours]
        return np.array([sum(around) >= 3 for around in large])

    def path_to(self, place: int, start: int) -> list[int]:
        """Return the nodes of the quickest way from `start` to `place`, both included.

        Routes to a place are stored: many vehicles go to the same few places.
        """
        if place not in self._ways:
            self._ways[place] = self._ways_to(place)
        path = [start]
        while path[-1] != place:
            path.append(self._ways[place][path[-1]])
        return path

    def _ways_to(self, place: int) -> list[int]:
        """Return the next node on the quickest way to `place` for every node (Bellman and Ford)."""
        start, end, road_s = self.directed
        seconds = np.full(len(self.x_m), np.inf)
        seconds[place] = 0.0
        before = np.zeros_like(seconds)
        while not np.array_equal(seconds, before):
            before = seconds.copy()
            np.minimum.at(seconds, start, before[end] + road_s)
        quickest = seconds[end] + road_s == seconds[start]
        onward = np.full(len(seconds), place)
        onward[start[quickest]] = end[quickest]
        return onward.tolist()

    @cached_property
    def directed(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Start, end and seconds of every road in each direction, all [directed roads]."""
        ends = [(start, end) for start, roads in enumerate(self.neighbours) for end in roads]
        start, end = np.array(ends).T
        metres = np.hypot(self.x_m[start] - self.x_m[end], self.y_m[start] - self.y_m[end])
        limits = np.array([road.limit_mps for roads in self.neighbours for road in roads.values()])
        return start, end, metres / limits + CROSSING_S


def draw_roads(seed: int) -> RoadNetwork:
    """Return the road network of the town of `seed`: its plan is fixed, its bends are drawn."""
    roads = _lattice_roads()
    nodes = sorted({end for pair in roads for end in pair})
    index = {node: i for i, node in enumerate(nodes)}
    neighbours: tuple[dict[int, Road], ...] = tuple({} for _ in nodes)
    for (start, other), road in roads.items():
        neighbours[index[start]][index[other]] = road
        neighbours[index[other]][index[start]] = road
    x_m, y_m = BLOCK_M * np.array(nodes, float).T
    bend_x, bend_y = _warp(seed, x_m, y_m)
    larger = [{road.kind for road in n.values()} & {ARTERIAL, MAIN} for n in neighbours]
    drawn = generator(seed, "bus stops").random(len(nodes)) < BUS_STOP_SHARE
    bus_stop = drawn & np.array([bool(kinds) for kinds in larger])
    return RoadNetwork(x_m + bend_x, y_m + bend_y, neighbours, bus_stop)


def _lattice_roads() -> dict[tuple[Lattice, Lattice], Road]:
    roads: dict[tuple[Lattice, Lattice], Road] = {}
    for line in range(-REACH, REACH + 1):
        for block in range(-REACH, REACH):
            road = _road_on(line, block)
            if road is not None:
                roads[(line, block), (line, block + 1)] = road
                roads[(block, line), (block + 1, line)] = road
    motorway = Road(MOTORWAY, LIMITS_MPS[MOTORWAY])
    north, east = MOTORWAY_LINES
    interchanges = range(-3 * MAIN_EVERY, 3 * MAIN_EVERY, MAIN_EVERY)
    for at in interchanges:
        roads[(north, at), (north, at + MAIN_EVERY)] = motorway
        roads[(at, east), (at + MAIN_EVERY, east)] = motorway
    return roads


def _road_on(line: int, block: int) -> Road | None:
    """Return the road on a lattice line between `block` and the next, if there is one."""
    radius_m = BLOCK_M * float(np.hypot(line, block + 0.5))
    if line % MAIN_EVERY == 0:
        in_town = radius_m < TOWN_RADIUS_M
        return Road(MAIN, MAIN_IN_TOWN_MPS if in_town else LIMITS_MPS[MAIN])
    if line % ARTERIAL_EVERY == 0 and radius_m < TOWN_RADIUS_M:
        return Road(ARTERIAL, LIMITS_MPS[ARTERIAL])
    if radius_m < CENTRE_RADIUS_M:
        return Road(LOCAL, LIMITS_MPS[LOCAL])
    return None


def _warp(seed: int, x_m: FloatArray, y_m: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Draw a smooth displacement of the lattice, so that roads bend; [nodes] east and north."""
    rng = generator(seed, "roads")
    shifts = []
    for _ in range(2):
        shift = np.zeros_like(x_m)
        for wavelength in rng.uniform(*WARP_WAVELENGTH_M, 4):
            direction, phase = rng.uniform(0, 2 * np.pi, 2)
            along = x_m * np.cos(direction) + y_m * np.sin(direction)
            shift += WARP_M / 2 * np.sin(2 * np.pi * along / wavelength + phase)
        shifts.append(shift)
    return shifts[0], shifts[1]


PLACES = 48
PLACE_SCALE_M = 2800.0  # places thin out over this distance from the centre

# An invented town, set down in the open Atlantic so that nobody takes it for a real one.
CENTRE_LATITUDE_DEG = 45.0
CENTRE_LONGITUDE_DEG = -30.0
EARTH_RADIUS_M = 6_371_000.0


@dataclass(frozen=True, eq=False)
class Town:
    """Elevation and roads of a town, and the nodes [places] where people work, shop and meet."""

    landscape: Landscape
    roads: RoadNetwork
    places: IntArray


@lru_cache(maxsize=2)
def town(seed: int) -> Town:
    """Return the town that belongs to `seed`, the same object for a complete fleet."""
    roads = draw_roads(seed)
    rng = generator(seed, "places")
    weight = np.exp(-roads.radius_m / PLACE_SCALE_M) * (roads.largest < MOTORWAY)
    places = rng.choice(len(weight), PLACES, replace=False, p=weight / weight.sum())
    return Town(draw_landscape(seed), roads, places)


def homes(roads: RoadNetwork, nearest_m: float, farthest_m: float) -> IntArray:
    """Return the nodes where a vehicle may live, between two distances from the centre."""
    within = (roads.radius_m >= nearest_m) & (roads.radius_m < farthest_m)
    return np.flatnonzero(within & (roads.largest < MOTORWAY))


def degrees(x_m: FloatArray, y_m: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return latitude and longitude of positions in metres east and north of the centre."""
    latitude = CENTRE_LATITUDE_DEG + np.degrees(y_m / EARTH_RADIUS_M)
    shrink = np.cos(np.radians(CENTRE_LATITUDE_DEG))
    longitude = CENTRE_LONGITUDE_DEG + np.degrees(x_m / (EARTH_RADIUS_M * shrink))
    return latitude, longitude
