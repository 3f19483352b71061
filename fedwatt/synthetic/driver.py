"""Driver model: speed at every point of a path, then motion at every second.

Along the path the driver goes as fast as limits, turns, stops and traffic allow, within a
comfortable acceleration a(v) = a₀ / (1 + v²/v₀²). The distance needed to reach a speed from rest is
then (u + u²/2v₀²) / 2a₀ with u = v². Measured by that distance, accelerating over a step adds just
the step's length, so the fastest feasible profile is one running minimum forward (accelerating) and
one backward (braking): no loop over seconds is needed.
"""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from fedwatt.synthetic.routes import STEP_M, Path
from fedwatt.synthetic.vehicle import DUTIES, Duty
from fedwatt.telemetry.trip import FloatArray, IntArray

# v₀: comfortable acceleration, or braking, is half of a₀ at this speed.
ACCELERATING_FADE_MPS = 15.0
BRAKING_FADE_MPS = 25.0
SIGNAL_STOP_SHARE = 0.5
GIVE_WAY_STOP_SHARE = 0.4
CREEP_MPS = 3.0
HELD_UP_PER_M = 0.005  # in the thickest traffic, on the slowest roads
SLOW_ROAD_MPS = 30 / 3.6
PARKED_S = (5.0, 40.0)  # switched on but not yet, or no longer, driving


@dataclass(frozen=True)
class DriverStyle:
    """Habits of one driver. Accelerations are a₀ above, at standstill, m/s²."""

    accelerating_mps2: float
    braking_mps2: float
    speed_factor: float  # desired speed on a free road, as a share of the limit
    unsteadiness: float  # relative ripple of speed on a free road
    congestion: float  # how heavy the traffic is when this driver goes, 0 to 1


@dataclass(frozen=True)
class Effort:
    """Acceleration a₀ / (1 + v²/v₀²), and the distances and speeds that follow from it."""

    from_rest_mps2: float
    fade_mps: float

    def run_up(self, speed_mps: FloatArray) -> FloatArray:
        """Return the distance needed to reach a speed from rest.

        >>> float(Effort(2.0, 10.0).run_up(np.array(10.0)))
        37.5
        """
        u = speed_mps**2
        return (u + u**2 / (2 * self.fade_mps**2)) / (2 * self.from_rest_mps2)

    def reached_mps(self, run_up: FloatArray) -> FloatArray:
        """Return the speed reached from rest after a run-up; inverse of `run_up`."""
        u0 = self.fade_mps**2
        # Rounding can leave a stop at -1e-12 m.
        lift = 4 * self.from_rest_mps2 * np.maximum(run_up, 0.0) / u0
        # u0 (sqrt(1 + lift) - 1), without cancellation near a stop.
        return np.asarray(np.sqrt(u0 * lift / (np.sqrt(1 + lift) + 1)))


def feasible(
    desired_mps: FloatArray, along: FloatArray, forward: Effort, backward: Effort
) -> FloatArray:
    """Return the fastest speeds, at most those desired, that acceleration and braking allow.

    `along` [points] is the distance, or time, at which each speed is desired.
    """
    slack = np.minimum.accumulate(forward.run_up(desired_mps) - along)
    need = backward.run_up(forward.reached_mps(along + slack)) + along
    return backward.reached_mps(np.minimum.accumulate(need[::-1])[::-1] - along)


@dataclass(frozen=True, eq=False)
class Motion:
    """Second-by-second motion of all trips in a row; arrays are [seconds].

    `distance_m` is along the path. `moved_m` and `gained_mps` are distance and speed gained during
    the second that ends here; both are 0 in the first second of a trip, before it moves off.
    """

    trip: IntArray
    second: IntArray  # since the start of its trip
    distance_m: FloatArray
    speed_mps: FloatArray
    moved_m: FloatArray
    gained_mps: FloatArray


def draw_style(rng: Generator, duty: Duty = DUTIES["passenger"]) -> DriverStyle:
    """Draw the habits of a driver, from calm to brisk, in a vehicle with this duty."""
    briskness = rng.normal()
    accelerating = float(np.clip(1.75 * np.exp(0.15 * briskness), 1.25, 2.4))
    braking = float(np.clip(1.65 * np.exp(0.12 * briskness + 0.08 * rng.normal()), 1.2, 2.4))
    return DriverStyle(
        accelerating_mps2=duty.accelerating * accelerating,
        braking_mps2=duty.braking * braking,
        speed_factor=float(np.clip(1.0 + 0.05 * briskness + 0.03 * rng.normal(), 0.88, 1.15)),
        unsteadiness=float(rng.uniform(0.03, 0.07)),
        congestion=float(rng.beta(2, 3)),
    )


def drive(
    path: Path, style: DriverStyle, rng: Generator, duty: Duty = DUTIES["passenger"]
) -> Motion:
    """Drive every trip of `path`."""
    desired_mps, waiting_s = _desired(path, style, rng)
    desired_mps = np.minimum(desired_mps, duty.top_mps)
    halts = path.pass_point[path.bus_stop & (rng.random(len(path.bus_stop)) < duty.halts)]
    desired_mps[halts] = 0.0
    waiting_s[halts] += duty.halt_s * rng.gamma(4.0, 0.25, len(halts))
    way_m = np.concatenate([[0.0], np.cumsum(_mood(path, rng)[1:])]) * STEP_M
    forward = Effort(style.accelerating_mps2, ACCELERATING_FADE_MPS)
    backward = Effort(style.braking_mps2, BRAKING_FADE_MPS)
    speed = feasible(desired_mps, way_m, forward, backward)
    idle_s = rng.uniform(*PARKED_S, (2, len(path.trip_bounds) - 1))
    return _each_second(speed, waiting_s, path.trip_bounds, idle_s)


def _desired(path: Path, style: DriverStyle, rng: Generator) -> tuple[FloatArray, FloatArray]:
    """Draw the desired speed at each point, and the seconds of standing there; both [points]."""
    points = len(path.x_m)
    trips = len(path.trip_bounds) - 1
    # Traffic differs from trip to trip and is thickest in the centre.
    by_trip = 0.5 * rng.beta(2, 3, trips) + 0.5 * style.congestion
    trip = np.clip(np.searchsorted(path.trip_bounds, np.arange(points)) - 1, 0, trips - 1)
    traffic = by_trip[trip] * (0.35 + 0.65 * np.exp(-path.centre_distance_m / 3000))
    desired_mps = path.limit_mps * style.speed_factor * (1 - 0.35 * traffic)
    desired_mps *= (
        1 + 0.1 * _ripple(path, 30.0, rng) + style.unsteadiness * _ripple(path, 10.0, rng)
    )
    waiting_s = np.zeros(points)

    # Somebody ahead brakes, turns or parks, mostly where roads are slow.
    often = HELD_UP_PER_M * STEP_M * traffic * SLOW_ROAD_MPS / path.limit_mps
    held_up = rng.random(points) < often
    desired_mps[held_up] *= rng.uniform(0.1, 0.8, held_up.sum())

    cornering = np.interp(path.turn_rad, [0.3, 0.8, 1.6, 3.2], [30.0, 10.0, 5.0, 2.5])
    desired_mps[path.pass_point] = np.minimum(desired_mps[path.pass_point], cornering)

    draw = rng.random(len(path.pass_point))
    red = (path.stop_kind == 2) & (draw < SIGNAL_STOP_SHARE)
    blocked = (path.stop_kind == 1) & (draw < GIVE_WAY_STOP_SHARE)
    yielding = (path.stop_kind == 1) & ~blocked
    slowed = path.pass_point[yielding]
    desired_mps[slowed] = np.minimum(desired_mps[slowed], rng.uniform(CREEP_MPS, 9.0, len(slowed)))
    for stopping, wait_s in ((red, 26.0), (blocked, 5.0)):
        stops = path.pass_point[stopping]
        desired_mps[stops] = 0.0
        waiting_s[stops] = np.minimum(1.0 + rng.exponential(wait_s, len(stops)), 75.0)

    desired_mps[path.trip_bounds] = 0.0
    return desired_mps, waiting_s


def _mood(path: Path, rng: Generator) -> FloatArray:
    """Draw a factor on acceleration and braking for each leg between crossings, [points]."""
    legs = np.searchsorted(path.pass_point, np.arange(len(path.x_m)), side="right")
    eagerness = np.clip(np.exp(0.2 * rng.normal(size=len(path.pass_point) + 1)), 0.6, 1.3)
    return eagerness[legs]


def _ripple(path: Path, memory_s: float, rng: Generator) -> FloatArray:
    """Draw smooth noise of about unit spread along the path, [points].

    It lasts about `memory_s` of driving at the limit: a ripple of fixed length would be far too
    quick on a motorway.
    """
    knot = np.cumsum(STEP_M / path.limit_mps) / (memory_s / 2)
    knots = np.clip(rng.normal(size=int(knot[-1]) + 2), -2, 2)
    return np.interp(knot, np.arange(len(knots)), knots)


def _each_second(
    speed: FloatArray, waiting_s: FloatArray, bounds: IntArray, idle_s: FloatArray
) -> Motion:
    """Return the motion at whole seconds; acceleration is constant between points.

    The vehicle is parked for `idle_s` [2, trips] before and after each trip.
    """
    before_s, after_s = idle_s
    step_s = 2 * STEP_M / (speed[:-1] + speed[1:])
    leave_s = np.cumsum(np.concatenate([[0.0], step_s]) + waiting_s)
    arrive_s = leave_s - waiting_s
    start_s = leave_s[bounds[:-1]]
    end_s = arrive_s[bounds[1:]]
    seconds = np.ceil(before_s + end_s - start_s + after_s).astype(np.int64)
    first = np.concatenate([[0], np.cumsum(seconds)[:-1]])
    trip = np.repeat(np.arange(len(seconds)), seconds)
    second = np.arange(len(trip)) - first[trip]
    clock_s = np.clip((start_s - before_s)[trip] + second, start_s[trip], end_s[trip])

    # The step being driven starts at the last point left; a waiting vehicle stands at its far end.
    at = np.clip(np.searchsorted(leave_s, clock_s, side="right") - 1, 0, len(step_s) - 1)
    since_s = np.minimum(clock_s - leave_s[at], step_s[at])
    gain = (speed[at + 1] - speed[at]) / step_s[at]
    now = np.maximum(speed[at] + gain * since_s, 0.0)
    distance = at * STEP_M + (speed[at] + gain * since_s / 2) * since_s
    moving = second > 0
    return Motion(
        trip=trip,
        second=second,
        distance_m=distance,
        speed_mps=now,
        moved_m=np.where(moving, np.diff(distance, prepend=distance[:1]), 0.0),
        gained_mps=np.where(moving, np.diff(now, prepend=now[:1]), 0.0),
    )
