"""Small vehicles made by hand or drawn by hypothesis."""

import numpy as np
from hypothesis import strategies as st

from fedwatt.telemetry import CHANNELS, STORED, Trip, Vehicle

LABELS = [name for name, channel in CHANNELS.items() if channel.role == "label"]
INPUTS = [name for name, channel in CHANNELS.items() if channel.role == "input"]


def make_trip(name: str, seconds: int, seed: int = 0, **channels: object) -> Trip:
    """A trip with every channel, in rough units; `channels` replace (or, if None, drop) some."""
    rng = np.random.default_rng([seed, seconds])
    made: dict[str, object] = {channel: rng.normal(size=seconds) for channel in STORED}
    made |= {"speed_mps": 20 * rng.random(seconds), "ambient_c": 30 * rng.random(seconds)}
    made |= channels
    return Trip(name, {key: value for key, value in made.items() if value is not None})


def make_vehicle(name: str = "car", lengths: tuple[int, ...] = (9, 8, 12, 7, 10)) -> Vehicle:
    """A vehicle with one trip a length, named "1", "2", ..."""
    trips = tuple(make_trip(str(i + 1), length, seed=i) for i, length in enumerate(lengths))
    return Vehicle(name, trips)


def same_trips(vehicle: Vehicle, other: Vehicle) -> bool:
    """Return whether two vehicles hold the same trips and channels, bit for bit."""
    return [trip.name for trip in vehicle.trips] == [trip.name for trip in other.trips] and all(
        a.channels.keys() == b.channels.keys()
        and all(np.array_equal(a.channels[c], b.channels[c], equal_nan=True) for c in a.channels)
        for a, b in zip(vehicle.trips, other.trips, strict=True)
    )


vehicles = st.builds(
    make_vehicle,
    name=st.text(min_size=1, max_size=8),
    lengths=st.lists(st.integers(1, 30), min_size=6, max_size=12)
    .filter(lambda lengths: sum(length >= 5 for length in lengths) >= 3)
    .map(tuple),
)
